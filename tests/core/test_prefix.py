"""What happened to the prefix, and by whom: one case a file, and law 9 over scripts of edits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core import prefix, turn
from proxy.core.prefix import NOT_BREAKS, By, Cause
from proxy.core.sent import Element, Part, Sent
from proxy.core.turn import Sealed
from proxy.core.verdict import DROP, KEEP
from tests.laws import checks
from tests.laws.histories import History, body_of, histories, steps, texts, thoughts, users
from tests.laws.pipeline import RENDERED, SCOPE

VECTORS = sorted((Path(__file__).parent.parent / "vectors" / "prefix").glob("*.json"))
VERDICTS = {"keep": KEEP, "drop": DROP}


def sealed(body: bytes, verdict: str, last: Sealed | None = None, by_hint: bool = False) -> Sealed:
    it = turn.read(body, SCOPE)
    front = turn.front_of(it, RENDERED, False, turn.tools_element(it.fields.get("tools", b"")))
    standing = dict.fromkeys(range(len(it.steps)), VERDICTS[verdict])
    was = Sent(b"", last.outgoing, last.elements, 0.0, "") if last else None
    return turn.seal(it, standing, front, was, by_hint)


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_what_happened_to_the_prefix_is_told_as_the_vector_says(path: Path) -> None:
    case: dict[str, Any] = json.loads(path.read_text())
    before, after = (json.dumps(case[key]).encode() for key in ("was", "now"))
    was = sealed(before, case.get("was_verdict", "keep")) if case["was"] else None

    now = sealed(after, case.get("now_verdict", "keep"), was, case.get("by_hint", False))

    it = now.finding
    told = {key: getattr(it, key) for key in ("element", "message", "removed")}
    told |= {"cause": it.cause.value, "by": it.by.value}
    assert case["finding"] == told, case["rule"]
    assert (Cause(case["finding"]["cause"]) not in NOT_BREAKS) is it.is_break
    assert (it.stale > 0) is it.is_break


def test_every_cause_has_a_vector() -> None:
    told = {json.loads(path.read_text())["finding"]["cause"] for path in VECTORS}

    assert {cause.value for cause in Cause} == told


Edit = Callable[[list[Any], dict[str, Any]], None]


def _at(messages: list[Any], at: int) -> int:
    return at % len(messages)


def say(at: int, text: str) -> Edit:
    return lambda messages, _: messages[_at(messages, at)].update(content=text)


def think(at: int, text: str | None) -> Edit:
    def edit(messages: list[Any], _: dict[str, Any]) -> None:
        message = messages[_at(messages, at)]
        if text is None:
            message.pop("reasoning_content", None)
        else:
            message["reasoning_content"] = text

    return edit


def insert(at: int, message: Any) -> Edit:
    return lambda messages, _: messages.insert(_at(messages, at), dict(message))


def cut(at: int, count: int) -> Edit:
    def edit(messages: list[Any], _: dict[str, Any]) -> None:
        start = 1 + at % len(messages)
        del messages[start : start + count]

    return edit


def swap(at: int) -> Edit:
    def edit(messages: list[Any], _: dict[str, Any]) -> None:
        a, b = _at(messages, at), _at(messages, at + 1)
        messages[a], messages[b] = messages[b], messages[a]

    return edit


def flip(at: int) -> Edit:
    """What is no difference: a marker, one text part, the order of keys, bookkeeping."""

    def edit(messages: list[Any], _: dict[str, Any]) -> None:
        message = messages[_at(messages, at)]
        if isinstance(message.get("content"), str) and message["content"]:
            message["content"] = [{"type": "text", "text": message["content"], "cache_control": {}}]
        rest = dict(reversed(message.items()))
        message.clear()
        message.update(rest, cache_control={"type": "ephemeral"}, status="done")

    return edit


def field(key: str, value: Any) -> Edit:
    return lambda _, fields: fields.update({key: value})


A, B = {"name": "a"}, {"name": "b"}
places = st.integers(0, 9)
edits = st.one_of(
    st.builds(say, places, texts),
    st.builds(think, places, st.none() | thoughts),
    st.builds(insert, places, users),
    st.builds(cut, places, st.integers(1, 3)),
    st.builds(swap, places),
    st.builds(flip, places),
    st.builds(field, st.just("model"), st.sampled_from(("m-1", "m-2"))),
    st.builds(field, st.just("tools"), st.sampled_from(([], [A, B], [B, A]))),
    st.builds(field, st.just("seed"), st.integers(0, 3)),
)  # fmt: skip


def _with(history: History, messages: list[Any], fields: dict[str, Any]) -> bytes:
    before, after = (
        {**part, **{k: v for k, v in fields.items() if k in part}}
        for part in (history.before, history.after)
    )
    rest = {k: v for k, v in fields.items() if k not in before and k not in after}
    return body_of(History(history.style, before, {**after, **rest}, ()), messages)


@given(
    histories(odd=False, max_steps=3), st.lists(edits, max_size=3), st.lists(steps(), max_size=2)
)
def test_a_break_is_told_exactly_where_an_earlier_element_changed_at_the_first_such_element(
    history: History, script: list[Edit], more: list[list[Any]]
) -> None:
    messages = [dict(message) for message in history.messages(len(history.chunks))]
    was = sealed(_with(history, messages, {}), "keep")
    edited = [dict(m) for m in [*messages, *[m for step in more for m in step]]]
    fields: dict[str, Any] = {}
    for edit in script:
        edit(edited, fields)

    now = sealed(_with(history, edited, fields), "keep", was)

    it, at = now.finding, checks.first_changed(was, now)
    if at is None:
        longer = len(now.elements) > len(was.elements)
        assert (Cause.EXTENDED if longer else Cause.RETRY) == it.cause
    elif at == len(now.elements):
        assert Cause.REWIND == it.cause
    else:
        assert at == it.element
        assert it.is_break or it.cause in (Cause.FORK, Cause.SIDE_REQUEST)
        a, b = was.elements[at], now.elements[at]
        # A client that puts reasoning where there was none cannot be told from us, who kept it.
        put_back = a.digest == a.said == b.said and b.reasoning > 0
        assert (By.PROXY if put_back else By.CLIENT) is it.by


@given(
    histories(odd=False, max_steps=4),
    st.lists(st.sampled_from(("keep", "drop")), min_size=2, max_size=2),
)
def test_a_change_of_verdict_is_told_as_our_own_doing(
    history: History, verdicts: list[str]
) -> None:
    body = history.bodies()[-1]
    was = sealed(body, verdicts[0])

    now = sealed(body, verdicts[1], was)

    changed = was.outgoing != now.outgoing
    assert (Cause.SELF if changed else Cause.RETRY, changed) == (
        now.finding.cause,
        now.finding.is_break,
    )
    assert By.PROXY is now.finding.by or not changed


def element(name: int, role: str = "user") -> Element:
    said = name.to_bytes(16, "big")
    return Element(Part.MESSAGE, said, said, said[8:], 10, 0, role)


def compared(was: list[Element], now: list[Element]) -> prefix.Finding:
    return prefix.compare(Sent(b"", b"", tuple(was), 0.0, ""), now, now)[0]


STRIPPED = (lambda was: replace(was, digest=was.said, reasoning=0), Cause.REASONING_STRIPPED)
CHANGED = (lambda was: replace(was, digest=b"other".ljust(16)), Cause.REASONING_CHANGED)
WRITTEN_ANEW = (
    lambda was: replace(was, digest=b"other".ljust(16), said=b"other".ljust(16)),
    Cause.RESERIALIZED,
)


@pytest.mark.parametrize(("change", "cause"), [STRIPPED, CHANGED, WRITTEN_ANEW])
def test_what_was_put_back_and_is_not_any_more_is_told_as_our_own_doing(
    change: Callable[[Element], Element], cause: Cause
) -> None:
    came = replace(element(1, "assistant"), digest=b"thinks".ljust(16), reasoning=7)
    ours = replace(came, put_back=True)

    now = change(came)

    assert (cause, By.CLIENT) == told(compared([came], [now]))
    assert (Cause.SELF, By.PROXY) == told(compared([ours], [now]))
    assert (cause, By.CLIENT) == told(compared([ours], [replace(now, put_back=True)]))


def told(finding: prefix.Finding) -> tuple[Cause, By]:
    return finding.cause, finding.by


def test_stale_is_what_was_there_at_most_what_is_there_now() -> None:
    row = [element(n) for n in range(10)]

    assert 10 == compared(row, [*row[:2], element(99, "assistant")]).stale
    assert (
        20
        == compared(row[:4], [*row[:2], element(99), *map(element, range(200, 250)), row[3]]).stale
    )


def test_long_histories_with_nothing_in_common_are_compared_in_one_pass() -> None:
    was = [element(n) for n in range(20_000)]
    now = [element(n, "assistant") for n in range(20_000, 40_000)]

    assert Cause.MESSAGE_EDITED == compared(was, now).cause
    assert 20_000 == compared(was, now).removed


def told_by_tip(
    last: Sequence[Element] | None,
    tip: Sequence[Element],
    now: Sequence[Element],
    begins: bool = False,
    by_hint: bool = False,
) -> Cause:
    """What is found where the conversation last sent `tip`, beside the record of the chain."""
    record = Sent(b"d", b"", tuple(last), 0.0, "") if last is not None else None
    latest = Sent(b"t", b"", tuple(tip), 1.0, "")
    found, _ = prefix.compare(record, now, now, by_hint, lambda at, earlier: begins, latest)
    return found.cause


def spoken(name: str, role: str = "user", part: Part = Part.MESSAGE) -> Element:
    whole = name.encode().ljust(16, b".")
    return Element(part, whole, whole, whole[:8], 10, 0, role)


SYSTEM, GO, ONE, TWO, NEW = (
    spoken("system", "system", Part.SYSTEM), spoken("go"), spoken("one", "assistant"),
    spoken("two", "tool"), spoken("new", "assistant"),
)  # fmt: skip


def test_what_was_sent_last_counts_where_it_went_further() -> None:
    short, long = (SYSTEM, GO), (SYSTEM, GO, ONE, TWO)

    assert Cause.MESSAGE_EDITED is told_by_tip(short, long, (SYSTEM, GO, ONE, NEW))
    assert Cause.EXTENDED is told_by_tip(short, long, (SYSTEM, GO, NEW))
    begun = (SYSTEM, GO, NEW, spoken("after", "tool"))
    assert Cause.MESSAGE_EDITED is told_by_tip(short, long, begun, begins=True)
    assert Cause.MESSAGES_DROPPED is told_by_tip(short, long, (SYSTEM, GO, TWO))
    assert Cause.EXTENDED is told_by_tip(long, short, (*long, NEW))


def test_what_was_sent_last_counts_where_nothing_else_is_known() -> None:
    long = (SYSTEM, GO, ONE, TWO)

    assert Cause.MESSAGE_EDITED is told_by_tip(None, long, (SYSTEM, GO, ONE, NEW))
    assert Cause.EXTENDED is told_by_tip(None, long, (*long, NEW))
    assert Cause.COLD_START is told_by_tip(None, long, (SYSTEM, spoken("another")))
    other = spoken("other", "system", Part.SYSTEM)
    assert Cause.COLD_START is told_by_tip(None, long, (other, GO, NEW))
    assert Cause.MESSAGE_EDITED is told_by_tip((GO,), long, (SYSTEM, GO, ONE, NEW), by_hint=True)


# What is learned of a provider meanwhile


@pytest.mark.parametrize("first", [False, True])
@given(data=st.data())
def test_which_of_tools_and_system_comes_first_may_be_learned_in_between(
    first: bool, data: st.DataObject
) -> None:
    """An engine says what it is after the first requests have left: that is no break."""
    tools = turn.tools_element(b'[{"type":"function","function":{"name":"a"}}]')
    system = data.draw(st.integers(0, 2))
    rows = [{"role": "system", "content": f"s{n}"} for n in range(system)]
    rows.append({"role": "user", "content": "go"})

    def fronted(rows: Sequence[Any], system_first: bool) -> tuple[Any, tuple[Element, ...]]:
        it = turn.read(json.dumps({"model": "m", "messages": rows}).encode(), SCOPE)
        return it, turn.front_of(it, RENDERED, system_first, tools)

    it, front = fronted(rows, first)
    before = turn.seal(it, {}, front, None)
    was = Sent(b"", before.outgoing, before.elements, 0.0, "")
    it, front = fronted([*rows, {"role": "assistant", "content": "done"}], not first)

    assert Cause.EXTENDED is turn.seal(it, {}, front, was).finding.cause
