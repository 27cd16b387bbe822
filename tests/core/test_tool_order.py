"""Tools in their first order: shuffled and late ones, and those that nobody can order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import tool_order, turn
from proxy.core.additions import NOTHING, Added
from proxy.core.turn import Turn
from proxy.core.wire import chat
from tests.laws import reading
from tests.laws.histories import odd_values
from tests.laws.rendering import COMPACT, STYLES, Literal, Pairs, Style

SCOPE = b"s" * 16


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}, **more}


def request(tools: Any, style: Style = COMPACT) -> Turn:
    members = [("x", Literal("1e400")), ("tools", tools), ("messages", [{"role": "user"}])]
    return turn.read(style.render(Pairs([*members, ("y", 2**64)])), SCOPE)


def tools_of(*names: str) -> Turn:
    return request([tool(name) for name in names])


def left(it: Turn, pins: Sequence[bytes]) -> bytes:
    return chat.apply(it.body, tool_order.apply(it, pins).edits)


def order(it: Turn, pins: Sequence[bytes]) -> str:
    """The names of the tools as they leave, one letter each."""
    return "".join(row["function"]["name"] for row in json.loads(left(it, pins))["tools"])


def first(it: Turn, by_name: bool) -> bytes:
    pin = tool_order.offer(it, by_name)
    assert pin is not None
    return pin


def all_pins(it: Turn, by_name: bool, pins: list[bytes]) -> list[bytes]:
    """Pin what is not pinned yet, as a ledger would."""
    while (more := tool_order.offer(it, by_name, pins)) is not None:
        pins.append(more)
    return pins


def test_tools_leave_sorted_by_name_from_the_first_request_on() -> None:
    pins = [first(tools_of(*"cab"), by_name=True)]

    assert "abc" == order(tools_of(*"cab"), pins)
    assert "abc" == order(tools_of(*"bca"), pins)
    assert {"tools_order": 1} == tool_order.apply(tools_of(*"bca"), pins).counts


def test_tools_in_the_clients_own_order_are_left_alone_but_for_those_that_come_late() -> None:
    pins = [first(tools_of(*"cab"), by_name=False)]

    assert NOTHING == tool_order.apply(tools_of(*"cab"), pins)
    assert "cabd" == order(tools_of(*"cdab"), pins)
    assert {"late_tools": 1} == tool_order.apply(tools_of(*"cdab"), pins).counts
    assert NOTHING == tool_order.apply(tools_of(*"cabzd"), pins)


def test_late_tools_without_a_pin_follow_by_name_where_the_first_were_sorted() -> None:
    pins = [first(tools_of(*"ca"), by_name=True)]

    assert "acbd" == order(tools_of(*"dbca"), pins)
    assert "acbde" == order(tools_of(*"dbeca"), pins)


@pytest.mark.parametrize("by_name", [True, False])
def test_late_tools_that_are_pinned_stay_before_those_that_come_later_still(by_name: bool) -> None:
    pins = all_pins(tools_of(*"ca"), by_name, [])
    pins = all_pins(tools_of(*"cxa"), by_name, pins)
    pins = all_pins(tools_of(*"cbxa"), by_name, pins)

    assert 3 == len(pins)
    assert ("acxb" if by_name else "caxb") == order(tools_of(*"xcba"), pins)


def test_a_tool_that_went_and_comes_again_takes_its_old_place() -> None:
    pins = [first(tools_of(*"abc"), by_name=True)]

    assert "ac" == order(tools_of(*"ca"), pins)
    assert "abc" == order(tools_of(*"cba"), pins)
    assert None is tool_order.offer(tools_of(*"ca"), True, pins)


def test_the_first_pin_says_how_late_tools_follow_whatever_is_set_later() -> None:
    pins = [first(tools_of("a"), by_name=False)]

    assert "azb" == order(tools_of(*"zab"), pins)
    assert "azb" == order(tools_of(*"azb"), all_pins(tools_of(*"zab"), True, pins))


@pytest.mark.parametrize(
    "tools",
    [
        [tool("b"), tool("a"), tool("b")],
        [tool("b"), {"type": "web_search"}, tool("a")],
        [tool("b"), tool(""), tool("a")],
        [tool("b"), tool(5), tool("a")],
        [tool("b"), "a"],
        [tool("b"), {"type": "function", "function": "a", "name": "a"}],
        [tool("b"), tool("a"), Literal("[" * 2000 + "]" * 2000)],
        [],
        {},
        None,
        "ba",
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_tools_that_cannot_be_told_apart_leave_as_they_came(tools: Any, by_name: bool) -> None:
    it = request(tools)
    pins = [first(tools_of(*"ab"), by_name), first(it, by_name)]

    assert NOTHING == tool_order.apply(it, pins)
    assert it.body is left(it, pins)
    assert None is tool_order.offer(it, by_name, pins)
    assert 1 == len(first(it, by_name))


def test_a_conversation_that_began_without_tools_has_them_pinned_when_they_come() -> None:
    none = request(None)

    assert "ab" == order(tools_of(*"ba"), all_pins(tools_of(*"ba"), True, all_pins(none, True, [])))
    assert "ba" == order(
        tools_of(*"ba"), all_pins(tools_of(*"ba"), False, all_pins(none, False, []))
    )


def test_flat_and_custom_tools_are_known_by_their_names_too() -> None:
    flat = [{"type": "function", "name": "b"}, {"type": "custom", "custom": {"name": "a"}}]
    it = request(flat)

    assert flat[::-1] == json.loads(left(it, [first(it, True)]).replace(b"1e400", b"1"))["tools"]


@pytest.mark.parametrize("pins", [[], [b""], [b"n1234567"], [b"x12345678"], [b"n", b"n1"]])
def test_without_a_pin_that_is_one_nothing_is_ordered(pins: list[bytes]) -> None:
    assert NOTHING == tool_order.apply(tools_of(*"ba"), pins)


def test_what_is_no_pin_is_never_followed_by_another() -> None:
    assert None is tool_order.offer(tools_of("a"), True, [b""])


def test_a_body_that_repeats_its_tools_is_left_alone() -> None:
    rows = [("tools", [tool("b"), tool("a")])] * 2
    it = turn.read(COMPACT.render(Pairs([*rows, ("messages", [])])), SCOPE)

    assert NOTHING == tool_order.apply(it, [first(it, True)])


def test_pins_are_bounded_in_size_and_in_number() -> None:
    names = [f"tool_{n:04d}" for n in range(tool_order.MOST_TOOLS * 10)]
    it = tools_of(*names[::-1])
    pins = all_pins(it, True, [])

    assert tool_order.MOST_PINS == len(pins)
    assert {1 + 8 * tool_order.MOST_TOOLS} == set(map(len, pins))
    assert NOTHING == tool_order.apply(tools_of(*names), pins)


names = st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=6)
extras = st.dictionaries(st.sampled_from(("cache_control", "strict", "x")), odd_values, max_size=2)


@st.composite
def shuffles(draw: st.DrawFn) -> tuple[Style, list[list[Any]]]:
    """The tools of a conversation's requests: a set that only grows, in any order."""
    known: dict[str, Any] = {}
    requests = []
    for _ in range(draw(st.integers(1, 4))):
        for name in draw(names):
            known.setdefault(name, tool(name, **draw(extras)))
        requests.append(draw(st.permutations(list(known.values()))))
    return draw(st.sampled_from(STYLES)), requests


@given(shuffles(), st.booleans())
def test_tools_only_grow_at_their_end_however_a_client_shuffles_and_inserts(
    shuffled: tuple[Style, list[list[Any]]], by_name: bool
) -> None:
    style, requests = shuffled
    pins: list[bytes] = []
    before: list[Any] = []
    for tools in requests:
        it = request(tools, style)
        pins = all_pins(it, by_name, pins)
        now = reading.decoded(left(it, pins))["tools"]
        assert before == now[: len(before)]
        before = now


@given(shuffles(), st.booleans())
def test_the_front_of_a_body_whose_tools_are_shuffled_is_the_same_bytes(
    shuffled: tuple[Style, list[list[Any]]], by_name: bool
) -> None:
    style, requests = shuffled
    pins = all_pins(request(requests[-1], style), by_name, [])
    bodies = {left(request(tools, style), pins) for tools in _rotations(requests[-1])}

    assert 1 == len(bodies)


def _rotations(tools: list[Any]) -> list[list[Any]]:
    return [tools[at:] + tools[:at] for at in range(max(1, len(tools)))]


@given(shuffles(), st.booleans())
def test_only_the_order_of_tools_changes_and_once(
    shuffled: tuple[Style, list[list[Any]]], by_name: bool
) -> None:
    style, requests = shuffled
    pins = all_pins(request(requests[0], style), by_name, [])
    it = request(requests[-1], style)
    added = tool_order.apply(it, pins)
    after = chat.apply(it.body, added.edits)
    came, went = reading.decoded(it.body), reading.decoded(after)

    assert sorted(map(repr, came.pop("tools"))) == sorted(map(repr, went.pop("tools")))
    assert list(came.items()) == list(went.items())
    assert len(it.body) == len(after)
    assert NOTHING == tool_order.apply(turn.read(after, SCOPE), pins)
    assert (after is it.body) is (added == Added())
