"""What is remembered of bodies changes nothing but the time that it takes."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import memo
from proxy.core import turn
from proxy.core.turn import Unreadable
from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.memo import Memo
from tests.laws.histories import History, body_of, histories

SCOPES = (b"a" * 16, b"b" * 16)
VERDICTS = st.sampled_from([None, KEEP, DROP, DROP, Verdict(Kind.REPLACE, "In short.")])


def conversation(messages: int, **fields: object) -> bytes:
    rows = [{"role": "user", "content": f"message {n} " + "x" * 200} for n in range(messages)]
    return json.dumps({"model": "m", "messages": rows, **fields}).encode()


def long(history: History) -> History:
    """Its first message made long enough for the memo to have something to hold on to."""
    first = ({"role": "user", "content": "x" * 600}, *history.chunks[0])
    return History(history.style, history.before, history.after, (first, *history.chunks[1:]))


@given(
    histories(max_steps=3).map(long),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.booleans()), max_size=10),
)
def test_a_turn_is_the_same_with_and_without_it(
    history: History, asked: list[tuple[int, int, bool]]
) -> None:
    """Any row of prefixes, rewinds, retries and edits, of two scopes."""
    held = Memo(1, 1 << 20)
    messages = history.messages(len(history.chunks))
    for size, scope, edited in asked:
        rows = messages[: 1 + size % len(messages)]
        if edited:
            rows = [*rows[: size // 2], {"role": "user", "content": "y" * 700}, *rows[size // 2 :]]
        body = body_of(history, rows)

        assert turn.read(body, SCOPES[scope]) == held.read(body, SCOPES[scope])


@given(
    histories(max_steps=4).map(long),
    st.lists(st.tuples(st.integers(0, 9), st.lists(VERDICTS, max_size=6)), max_size=8),
)
def test_what_a_seal_carries_over_changes_nothing(
    history: History, asked: list[tuple[int, list[Verdict | None]]]
) -> None:
    """Whatever verdicts stand from one turn to the next: a retroactive policy changes them."""
    held, messages = Memo(1, 1 << 20), history.messages(len(history.chunks))
    for size, verdicts in asked:
        body = body_of(history, messages[: 1 + size % len(messages)])
        standing = {index: it for index, it in enumerate(verdicts) if it is not None}
        fresh, known = turn.read(body, SCOPES[0]), held.read(body, SCOPES[0])
        stands = {index: standing[index] for index in standing if index < len(fresh.steps)}

        assert turn.seal(fresh, stands, (), None) == turn.seal(known, stands, (), None)


@pytest.mark.parametrize("at", range(0, 3_000, 97))
def test_one_other_byte_anywhere_is_seen(at: int) -> None:
    held, body = Memo(1, 1 << 20), conversation(12)
    held.read(body, SCOPES[0])
    other = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]

    try:
        expected = turn.read(other, SCOPES[0])
    except Unreadable:
        with pytest.raises(Unreadable):
            held.read(other, SCOPES[0])
    else:
        assert expected == held.read(other, SCOPES[0])


def test_what_is_known_is_not_read_again() -> None:
    held = Memo(1, 1 << 20)
    first = held.read(conversation(12), SCOPES[0])

    more = held.read(conversation(14), SCOPES[0])
    back = held.read(conversation(12), SCOPES[0])

    assert all(a is b for a, b in zip(first.messages, more.messages, strict=False))
    assert all(a is b for a, b in zip(first.messages, back.messages, strict=True))


@pytest.mark.parametrize("fewer", range(1, 12))
def test_a_body_that_ends_before_what_is_known_is_read_for_itself(fewer: int) -> None:
    held = Memo(1, 1 << 20)
    held.read(conversation(12), SCOPES[0])

    assert turn.read(conversation(fewer), SCOPES[0]) == held.read(conversation(fewer), SCOPES[0])


def test_a_scope_knows_nothing_of_another() -> None:
    held, body = Memo(1, 1 << 20), conversation(12)
    first = held.read(body, SCOPES[0])

    other = held.read(body, SCOPES[1])

    assert {m.link for m in first.messages}.isdisjoint(m.link for m in other.messages)


def test_a_known_beginning_whose_members_come_twice_is_read_anew() -> None:
    held = Memo(1, 1 << 20)
    rows = conversation(5)[len(b'{"model": "m", ') : -1]
    for body in (b'{"model":"a",' + rows + b',"model":"b"}', b'{"model":"a",' + rows + b"}"):
        assert turn.read(body, SCOPES[0]) == held.read(body, SCOPES[0])


def test_short_bodies_and_those_without_messages_are_not_held() -> None:
    held = Memo(1, 1 << 20)
    short = b'{"messages":[{"role":"user","content":"go"}]}'
    for body in (short, conversation(0), conversation(0, x="y" * 2_000)):
        assert turn.read(body, SCOPES[0]) == held.read(body, SCOPES[0])
    assert not held._entries


def test_it_holds_no_more_than_it_may() -> None:
    held = Memo(1, 1 << 20, max_bytes=100_000)
    for n in range(5, 30):
        held.read(conversation(n, n=n), SCOPES[n % 2])
        assert held._held == sum(entry.weight for entry in held._entries.values())
        assert 0 < held._held <= 100_000


def test_what_stands_before_the_messages_is_weighed_and_the_largest_not_held() -> None:
    held = Memo(1, 1 << 20, max_bytes=100_000)
    for size in (1_000, 10_000, 60_000):
        body = json.dumps(
            {"tools": ["x" * size], "messages": [{"role": "user", "content": "go"}]}
        ).encode()
        assert turn.read(body, SCOPES[0]) == held.read(body, SCOPES[0])

    assert 11_000 < held._held < 20_000


CALL = {"id": "c" * 100, "type": "function", "function": {"name": "f", "arguments": "{}"}}
THOUGHT = {"type": "thinking", "thinking": "hm"}
SAID = {"type": "text", "text": "so"}


@pytest.mark.parametrize(
    "said",
    [{"tool_calls": [CALL] * 10_000}, {"content": [THOUGHT, SAID] * 10_000}],
    ids=["calls", "thoughts"],
)
def test_what_one_message_holds_is_weighed(said: dict[str, object]) -> None:
    held = Memo(1, 1 << 25)
    rows = [{"role": "user", "content": "go"}, {"role": "assistant", **said}]
    body = json.dumps({"messages": rows}).encode()

    tracemalloc.start()
    held.read(body, SCOPES[0])
    takes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert takes < held._held < 3 * takes


def test_a_turn_weighs_the_same_whether_it_grew_or_was_met_so() -> None:
    calls = [{"role": "assistant", "tool_calls": [CALL] * count} for count in (1, 9, 50)]
    rows = [{"role": "system", "content": "x" * 600}, {"role": "user", "content": "go"}, *calls]
    grown, weights = Memo(1, 1 << 20), []
    for count in range(1, len(rows) + 1):
        body = json.dumps({"model": "m", "messages": rows[:count]}).encode()
        met = Memo(1, 1 << 20)
        for held in (grown, met):
            held.read(body, SCOPES[0])
        weights.append(met._held)

        assert met._held == list(grown._entries.values())[-1].weight
    assert weights == sorted(weights)


def test_a_body_beyond_the_last_mark_is_read_all_the_same() -> None:
    held = Memo(1, 1_024)
    for n in (3, 8, 9):
        assert turn.read(conversation(n), SCOPES[0]) == held.read(conversation(n), SCOPES[0])


def test_marks_are_dense_at_first_and_few_at_last() -> None:
    marks = memo.marks(32 << 20)

    assert (256, 512, 768) == marks[:3]
    assert all(b - a <= max(256, a // 8) for a, b in zip(marks, marks[1:], strict=False))
    assert len(marks) < 200
    assert () == memo.marks(100)


def test_tools_are_read_once() -> None:
    held = Memo(1, 1 << 20)
    a, b = (turn.read(conversation(1, tools=[{"name": "f"}], n=n), SCOPES[n]) for n in (0, 1))
    front = held.front(a, (), False)

    assert front[2] is held.front(b, (), False)[2]
    assert front == turn.front_of(a, (), False, turn.tools_element(a.fields["tools"]))
    for n in range(memo.MAX_TOOLS + 5):
        held.front(turn.read(conversation(1, functions=[{"name": str(n)}]), SCOPES[0]), (), True)
    assert memo.MAX_TOOLS == len(held._tools)


def test_fronts_that_are_alike_are_shared_and_those_that_hold_much_are_not_held() -> None:
    held = Memo(1, 1 << 20)
    system = [{"role": "system", "content": str(n)} for n in range(100)]
    for count in (1, 2, 100):
        rows = [*system[:count], {"role": "user", "content": "go"}]
        body = json.dumps({"model": "m", "messages": rows}).encode()
        a, b = (turn.read(body, scope) for scope in SCOPES)
        front = held.front(a, (), False)

        assert turn.front_of(a, (), False, ()) == front
        assert (count < 100) == (front is held.front(b, (), False))
    held.front(turn.read(conversation(1, x="y" * memo.LARGE_FRONT), SCOPES[0]), ("x",), False)

    assert [3, 4] == [len(front) for front in held._fronts.values()]
