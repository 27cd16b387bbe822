"""Conclusions and verdicts in words, from answers alone."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from proxy.core.contract import Drops, Reuse, StreamUsage, UserTurn
from proxy.core.seen import Seen
from proxy.core.usage import Usage
from proxy.doctor import carried
from proxy.doctor.answers import Answer, Listed, not_asked
from proxy.doctor.conclusion import Conclusion
from proxy.doctor.findings import Findings, conclude
from proxy.doctor.prompts import CARRIERS, THOUGHT_WORDS, Dialect
from proxy.doctor.record import Record
from proxy.doctor.verdicts import POLICIES, verdicts

DIALECT = Dialect("m")
REFUSED = Answer(400, said="no such field")


def reply(prompt: int | None = 100, carriers: tuple[str, ...] = (), hidden: int = 0) -> Answer:
    usage = Usage(input=prompt, output=5, reasoning=hidden or None)
    return Answer(200, seen=Seen(usage=usage, carriers=carriers), message={}, usage=True)


def record(first: Answer | None = None, **more: object) -> Record:
    listed = Listed(Answer(200), ("m",), "me")
    return replace(Record(DIALECT, listed, first or reply()), **more)  # type: ignore[arg-type]


def test_rows_are_every_conclusion_in_order() -> None:
    found = conclude(record(), keyed=False)
    names = [it.name for it in fields(Findings) if it.name not in ("errors", "rule")]

    assert [getattr(found, name) for name in names] == found.rows
    assert len({row.what for row in found.rows}) == len(found.rows)


def test_whatever_was_not_asked_is_unknown_with_a_reason() -> None:
    found = conclude(Record(DIALECT, Listed(not_asked("x")), not_asked("x")), keyed=True)

    assert all(row.value is None and row.how for row in found.rows)
    assert ((), None) == (found.errors, found.rule)


def test_of_equal_carriers_the_longer_text_is_told_first() -> None:
    found = conclude(record(reply(carriers=("reasoning", "reasoning_details"))), keyed=False)

    assert "reasoning" == found.writes.value
    assert "the same in reasoning_details" in found.writes.how


def test_reasoning_that_is_counted_and_not_shown_is_hidden() -> None:
    found = conclude(record(reply(hidden=64)), keyed=False)

    assert ("", "none: hidden") == (found.writes.value, found.writes.found)


def test_a_carrier_is_read_where_the_prompt_has_half_of_the_words() -> None:
    grown = {"reasoning_content": THOUGHT_WORDS // 2, "reasoning": THOUGHT_WORDS // 2 - 1}
    loop = {name: reply(100 + grown.get(name, 0)) for name in (*CARRIERS, "absent")}

    assert ("reasoning_content",) == carried.reads(record(loop=loop)).value


def test_where_a_missing_field_is_refused_an_empty_one_is_what_is_compared_with() -> None:
    loop = {name: reply(200) for name in CARRIERS} | {"absent": REFUSED, "empty": reply(100)}

    assert CARRIERS[:-1] == carried.reads(record(loop=loop)).value


def test_what_was_never_counted_is_not_called_unread() -> None:
    loop = dict.fromkeys((*CARRIERS, "absent"), reply(None))

    assert carried.reads(record(reply(None), loop=loop)).value is None


@pytest.mark.parametrize(
    ("asking", "bare", "value"),
    [
        (reply(), reply(), StreamUsage.ALWAYS),
        (reply(), replace(reply(None), usage=False), StreamUsage.ASK),
        (REFUSED, replace(reply(None), usage=False), StreamUsage.REFUSED),
        (replace(reply(None), usage=False), replace(reply(None), usage=False), None),
        (REFUSED, REFUSED, None),
    ],
)
def test_usage_in_streams(asking: Answer, bare: Answer, value: StreamUsage | None) -> None:
    found = conclude(record(streamed=asking, bare=bare), keyed=False)

    assert value is found.stream_usage.value


def test_a_stream_that_comes_whole_is_none() -> None:
    assert conclude(record(streamed=reply(), bare=reply()), keyed=False).streams.value is False


def with_values(**values: object) -> Findings:
    found = conclude(record(), keyed=False)
    known = {
        name: Conclusion(getattr(found, name).what, value, "", "") for name, value in values.items()
    }
    return replace(found, **known)  # type: ignore[arg-type]


def test_every_policy_has_a_verdict_whatever_is_known() -> None:
    for reuse in (*Reuse, None):
        for user_turn in (*UserTurn, None):
            told = verdicts(with_values(reuse=reuse, user_turn=user_turn, reads=("reasoning",)))

            assert list(POLICIES) == [it.policy for it in told]
            assert all(it.words for it in told)


def test_a_new_user_message_that_drops_breaks_what_was_kept_and_not_what_was_dropped() -> None:
    keep, drop, _, latest = verdicts(
        with_values(reuse=Reuse.GENERATED, user_turn=UserTurn.DROPS, reads=("reasoning",))
    )

    assert "processed again" in keep.words
    assert "the prefix stays whole" in drop.words
    assert "breaks the prefix on every turn" in latest.words


def test_dropping_costs_no_cache_where_only_prompts_are_re_used() -> None:
    _, drop, *_ = verdicts(with_values(reuse=Reuse.PROMPT, reads=("reasoning",)))

    assert "costs no cache at all" in drop.words


def test_where_nothing_is_read_policies_are_the_same() -> None:
    assert 1 == len({it.words for it in verdicts(with_values(reads=()))})


def test_where_nothing_may_go_policies_are_clamped() -> None:
    keep, *others = verdicts(with_values(drops=Drops.NEVER, reuse=Reuse.PROMPT))

    assert "reads the last prompt" in keep.words
    assert all("clamped to keep" in it.words for it in others)
