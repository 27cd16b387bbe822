"""Accounts laid out: ratios, sums, findings, and texts on both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.explain import common
from proxy.core.prefix import NOT_BREAKS, Cause
from proxy.core.sent import Element, Part, Sent
from proxy.ledger.contract import Conversation, Entry, Summary
from proxy.page import chart, messages, shown, told
from proxy.page.causes import CAUSES
from proxy.page.differing import differing
from proxy.page.terminal import _cost
from tests.page.talk import account

MISSED = {
    "ttl_expired", "below_minimum", "template", "provider_miss", "upstream_switched", "unreported"
}  # fmt: skip


def conversation(
    *accounts: Mapping[str, Any],
    sent: Sent | None = None,
    texts: Mapping[bytes, Entry] | None = None,
) -> Conversation:
    summary = Summary(
        "ab" * 16, b"s" * 16, len(accounts), 1.0, 2.0, accounts[-1] if accounts else {}
    )
    return Conversation(summary, accounts, sent, texts or {})


def broken(cause: str = "message_edited", **more: Any) -> dict[str, Any]:
    prefix = {"cause": cause, "by": "client", "message": 3, "stale_bytes": 400, **more}
    return account(2, prefix=prefix)


# Numbers


def test_what_nobody_reported_is_unknown_and_not_nothing() -> None:
    silent = account(tokens={"input": 100, "cache_read": None, "output": 5})

    assert told.hit_ratio(silent) is None
    assert told.new_tokens(silent) is None
    assert told.totals([silent])["hit_ratio"] is None
    assert told.totals([silent])["tokens"]["cache_read"] is None
    assert told.totals([])["tokens"]["input"] is None


def test_the_hit_ratio_of_several_turns_counts_only_those_that_told_it() -> None:
    silent = account(tokens={"input": 9_000, "cache_read": None, "output": 5})
    half = account(tokens={"input": 100, "cache_read": 50, "output": 5})

    assert 0.5 == told.totals([silent, half])["hit_ratio"]


def test_an_account_without_its_members_is_read() -> None:
    bare = conversation({}, {"prefix": None, "tokens": 3, "cache": "?"})

    assert [] == told.findings(bare, notes=True)
    assert "–" == shown.turns(bare)[0].input
    assert 2 == len(chart.chart(bare).bars)
    assert "–" == shown.row(bare.summary, 3.0).model


def test_turns_keep_their_number_when_the_oldest_are_let_go() -> None:
    summary = Summary("ab" * 16, b"", 2_007, 1.0, 2.0, {})
    it = Conversation(summary, (account(1), account(2)), None)

    assert [2_006, 2_007] == [turn["turn"] for turn in told.conversation(it)["timeline"]]


# Findings


def test_every_cause_has_a_sentence_and_every_break_an_advice() -> None:
    assert {cause.value for cause in Cause} | MISSED == set(CAUSES)
    breaks = [cause.value for cause in Cause if cause not in NOT_BREAKS]
    assert all(CAUSES[name].advice for name in (*breaks, *MISSED))


def test_a_break_is_found_where_it_happened() -> None:
    it = conversation(account(1), broken(path="$.messages[3].content", offset=7, rebuilt_tokens=90))

    (found,) = told.findings(it)

    assert ("break", 2, "message_edited", "client") == tuple(
        found[name] for name in ("kind", "turn", "cause", "by")
    )
    assert ("$.messages[3].content", 7, 90) == tuple(
        found[name] for name in ("path", "offset", "tokens")
    )


def test_a_break_has_its_price_where_the_model_has_one() -> None:
    priced = {**broken(), "dollars": {"cost": 0.1, "rebuilt_estimated": 0.0012}}

    (found,) = told.findings(conversation(priced))
    (bare,) = told.findings(conversation(broken()))

    assert 0.0012 == found["dollars"]
    assert bare["dollars"] is None
    assert "rebuilt, ~$0.0012" in _cost(found)
    assert "$" not in _cost(bare)


def test_money_is_summed_over_the_turns_that_have_a_price() -> None:
    one = {"dollars": {"cost": 0.1, "mechanical_saving": 0.3, "estimated": False}}
    two = {"dollars": {"cost": 0.2, "mechanical_saving": -0.5, "estimated": True}}

    found = told.totals([one, {"unpriced": "pending"}, two])["dollars"]

    assert told.totals([{"unpriced": "pending"}])["dollars"] is None
    assert {"cost": 0.3, "mechanical_saving": -0.2, "estimated": True, "unpriced_turns": 1} == {
        name: round(value, 9) if isinstance(value, float) else value
        for name, value in found.items()
    }


def test_reasoning_that_was_counted_is_told_as_it_was_counted() -> None:
    assert 90 == told.dropped({"reasoning_tokens": {"dropped": 90}, "reasoning_bytes": {}})
    assert 100 == told.dropped({"reasoning_bytes": {"dropped": 400}})


def test_a_break_without_a_count_of_tokens_is_estimated_from_bytes() -> None:
    (found,) = told.findings(conversation(broken()))

    assert 100 == found["tokens"]
    assert 100 == told.totals([broken()])["rebuilt_tokens"]


def test_the_account_decides_what_is_a_break() -> None:
    assert told.is_break(broken("model_changed"))
    assert not told.is_break(broken("model_changed", broken=False))


def test_a_reply_that_read_too_little_is_a_finding_and_one_that_says_nothing_a_note() -> None:
    miss = account(
        2, cache={"expected": 90, "reported": 10, "cause": "ttl_expired", "missed_tokens": 80}
    )
    silent = account(3, cache={"expected": 90, "reported": None, "cause": "unreported"})
    it = conversation(account(1), miss, silent)

    assert [("cache", 80)] == [(found["kind"], found["tokens"]) for found in told.findings(it)]
    assert ["cache", "note"] == [found["kind"] for found in told.findings(it, notes=True)]
    assert "cache" == shown.turns(it)[1].prefix.tone


def test_before_and_after_are_shown_as_far_as_they_are_kept() -> None:
    texts = {
        b"a" * 16: Entry(b"a" * 16, b'{"content":"It is Monday. Go on."}'),
        b"b" * 16: Entry(b"b" * 16, b'{"content":"It is Tuesday. Go on."}'),
    }
    digests = {"before": (b"a" * 16).hex(), "after": (b"b" * 16).hex()}

    (found,) = told.findings(conversation(broken(**digests), texts=texts))
    (half,) = told.findings(
        conversation(broken(before="00" * 16, after=digests["after"]), texts=texts)
    )
    (none,) = told.findings(conversation(broken(before="no hex", after=None)))

    assert ("Mon", "Tues") == (found["difference"]["was"], found["difference"]["now"])
    assert half["difference"]["was"] is None
    assert none["difference"] is None


@given(st.text(), st.text(), st.text(), st.text())
def test_where_texts_part_is_where_they_part(head: str, a: str, b: str, tail: str) -> None:
    was, now = head + a + tail, head + b + tail
    at = common(was, now)

    assert was[:at] == now[:at]
    assert at == len(was) or at == len(now) or was[at] != now[at]
    found = differing(was, now)
    if not any(str(part).endswith("…") or str(part).startswith("…") for part in found.values()):
        assert was == found["shared"] + found["was"] + found["rest"]
        assert now == found["shared"] + found["now"] + found["rest"]


# Turns as they are laid out


def test_few_turns_are_all_shown_and_long_calm_stretches_of_many_are_folded() -> None:
    few = shown.runs(shown.turns(conversation(*[account(n) for n in range(1, 41)])))
    accounts = [account(n) for n in range(1, 501)]
    accounts[200] = broken()
    many = shown.runs(shown.turns(conversation(*accounts)))

    assert [(1, 40, False)] == [(run.first, run.last, run.folded) for run in few]
    assert [(1, 200, True), (201, 201, False), (202, 490, True), (491, 500, False)] == [
        (run.first, run.last, run.folded) for run in many
    ]
    assert "60 to 99 %" == many[0].hits


def test_bars_hold_what_was_reported_and_fit() -> None:
    drawn = chart.chart(conversation(account(1), account(2), broken()))

    assert [["cached", "new", "dropped"]] * 3 == [
        [p.kind for p in bar.pieces] for bar in drawn.bars
    ]
    assert all(chart.TOP <= piece.y for bar in drawn.bars for piece in bar.pieces)
    assert "1 break: message edited at turn 3." in drawn.summary
    assert "Turn 1 · extended · 100 input · 60 cached · – written · 40 new" in drawn.bars[0].text


def test_an_input_whose_cache_is_unknown_is_a_bar_of_its_own() -> None:
    silent = account(tokens={"input": 100, "cache_read": None, "output": 5})

    assert ["unknown", "dropped"] == [
        p.kind for p in chart.chart(conversation(silent)).bars[0].pieces
    ]


# Messages


def sent_of(*roles: str) -> Sent:
    rows = [Element(Part.MODEL, bytes(16), bytes(16), bytes(8), 1, 0, "")]
    rows += [
        Element(Part.MESSAGE, bytes([n + 1]) * 16, bytes(16), bytes(8), 50, 9, role)
        for n, role in enumerate(roles)
    ]
    return Sent(bytes(16), bytes(16), tuple(rows), 1.0, "default")


def laid(left: Any, came: Any = None) -> messages.Shown:
    texts = [json.dumps(it).encode() if it is not None else None for it in (left, came)]
    entry = Entry(bytes([1]) * 16, texts[0] or b"", texts[1])
    it = conversation(account(), sent=sent_of("assistant"), texts={entry.digest: entry})
    (found,) = messages.shown(it, 0, 9)
    return found


def test_dropped_reasoning_stays_in_its_place_on_the_providers_side() -> None:
    said = {"role": "assistant", "content": "Done."}
    found = laid({**said, "reasoning_content": ""}, {**said, "reasoning_content": "Hm."})

    assert [("reasoning", "sent"), ("text", "")] == [(b.kind, b.state) for b in found.came]
    assert [("reasoning", "dropped"), ("text", "")] == [(b.kind, b.state) for b in found.left]
    assert "Hm." == found.left[0].text


def test_reasoning_that_was_replaced_shows_both() -> None:
    found = laid(
        {"role": "assistant", "reasoning_content": "short"},
        {"role": "assistant", "reasoning_content": "long and winding"},
    )

    assert [("dropped", "long and winding"), ("replaced", "short")] == [
        (b.state, b.text) for b in found.left
    ]


def test_kept_reasoning_is_shown_once_whatever_carries_it() -> None:
    found = laid(
        {"role": "assistant", "content": "A.", "reasoning": "Hm.", "reasoning_content": "Hm."}
    )

    assert found.same
    assert [("reasoning", "kept", "reasoning_content, reasoning"), ("text", "", "")] == [
        (b.kind, b.state, b.label) for b in found.left
    ]


def test_reasoning_in_the_text_is_taken_apart_from_it() -> None:
    think = {"role": "assistant", "content": "<think>Hm.</think>\n\nDone."}
    thought, done = {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Done."}
    parts = {"role": "assistant", "content": [thought, done]}

    for found in (laid(think), laid(parts)):
        assert [("reasoning", "Hm."), ("text", "Done.")] == [(b.kind, b.text) for b in found.left]


def test_unknown_members_parts_and_calls_are_shown_as_they_are() -> None:
    found = laid(
        {
            "role": "assistant",
            "content": [{"type": "image_url", "image_url": {"url": "data:x"}}, 7],
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}, {"odd": 1}],
            "mood": "glad", "name": None,
        }
    )  # fmt: skip

    wanted = [("data", "image_url"), ("data", ""), ("call", "f")]
    wanted += [("data", "tool call"), ("data", "more")]
    assert wanted == [(b.kind, b.label) for b in found.left]


def test_long_texts_are_cut_and_say_how_much_is_hidden() -> None:
    found = laid({"role": "assistant", "content": "a" * 5_000})

    assert messages.PREVIEW == len(found.left[0].text)
    assert 5_000 - messages.PREVIEW == found.hidden


def test_what_is_not_kept_is_absent() -> None:
    it = conversation(account(), sent=sent_of("user", "assistant"))

    assert [True, True] == [found.absent for found in messages.shown(it, 0, 9)]
    assert [None, 1] == [found.step for found in messages.shown(it, 0, 9)]
    assert 1 == messages.place_of(it, 1)


def test_a_text_that_is_no_json_is_shown_as_it_is() -> None:
    entry = Entry(bytes([1]) * 16, b'{"role": oops \xff')
    it = conversation(account(), sent=sent_of("user"), texts={entry.digest: entry})

    (found,) = messages.shown(it, 0, 9)

    assert [("data", '{"role": oops \ufffd')] == [(b.kind, b.text) for b in found.left]
