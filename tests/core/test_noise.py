"""Values that change with every request: put back where that keeps the prompt, else left alone."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import fingerprint, noise, turn
from proxy.core.additions import NOTHING
from proxy.core.turn import Turn
from proxy.core.wire import chat
from tests.laws import reading
from tests.laws.histories import odd_values, texts
from tests.laws.rendering import COMPACT, PYTHON, STYLES, Literal, Pairs, Style

SCOPE = b"s" * 16
CLOCK = re.compile(r"\d\d:\d\d")
NONCE = re.compile(r"run-id: (\w+)")
BOTH = (CLOCK, NONCE)
NO_GAP = fingerprint.digest(b"", size=8)


def request(content: Any, style: Style = COMPACT, /, **more: Any) -> Turn:
    system = Pairs([("role", "system"), *more.items(), ("content", content)])
    messages = [system, {"role": "user", "content": "it is 99:99"}]
    body = style.render(Pairs([("x", Literal("1e400")), ("messages", messages), ("y", 2**64)]))
    return turn.read(body, SCOPE)


def left(it: Turn, pinned: bytes | None, *patterns: re.Pattern[str]) -> bytes:
    return chat.apply(it.body, noise.apply(it, patterns or BOTH, pinned).edits)


def text_left(first: Any, later: Any, *patterns: re.Pattern[str]) -> Any:
    """The system message as it leaves, of a later request of a conversation that began so."""
    pinned = noise.offer(request(first), patterns or BOTH)
    return reading.decoded(left(request(later), pinned, *patterns))["messages"][0]["content"]


def test_a_value_gives_way_to_what_the_first_request_had_there() -> None:
    assert "At 09:15 go" == text_left("At 09:15 go", "At 10:30 go")
    assert "run-id: abc\nAt 09:15" == text_left("run-id: abc\nAt 09:15", "run-id: z\nAt 10:30")


def test_of_a_pattern_with_a_group_only_the_group_is_a_value() -> None:
    pinned = noise.offer(request("run-id: abc"), BOTH)

    assert b"run-id: abc" in left(request("run-id: wxyz"), pinned)
    assert [b"abc"] == [raw for _, raw in msgspec.msgpack.decode(pinned)]
    assert {"system_values": 1} == noise.apply(request("run-id: wxyz"), BOTH, pinned).counts


def test_a_group_that_takes_no_part_is_no_value() -> None:
    assert "ac" == text_left("ab", "ac", re.compile(r"a(x)?|b"))


def test_the_first_part_that_holds_text_is_searched() -> None:
    def parts(first: str, second: str) -> list[Any]:
        image = {"type": "image_url", "image_url": {"url": "data:,"}}
        return [image, {"type": "text", "text": first}, {"type": "text", "text": second}]

    assert parts("at 09:15", "at 10:31") == text_left(
        parts("at 09:15", "at 09:16"), parts("at 10:30", "at 10:31")
    )


def test_behind_a_first_difference_the_clients_own_words_stand() -> None:
    assert "09:15 new 10:31" == text_left("09:15 old 09:16", "10:30 new 10:31")
    assert "new 10:30" == text_left("09:15", "new 10:30")


def test_values_that_come_on_top_stay_and_those_that_went_are_not_missed() -> None:
    assert "09:15, 10:31" == text_left("09:15", "10:30, 10:31")
    assert "09:15" == text_left("09:15, 09:16", "10:30")
    assert "at 10:30" == text_left("soon", "at 10:30")


def test_of_values_that_overlap_the_first_and_longer_one_counts() -> None:
    date = re.compile(r"\d\d:\d\d:\d\d")

    assert "09:15:01" == text_left("09:15:01", "10:30:22", CLOCK, date)


@pytest.mark.parametrize(
    "it",
    [
        request(None),
        request(5),
        request([]),
        request(["10:30"]),
        request([{"type": "text", "text": 5}]),
        request([{"type": "image_url"}]),
        request([Pairs([("text", "10:30"), ("text", "10:31")])]),
        request("10:30", content="10:31"),
        request("10:30 " * 50_000),
        turn.read(b'{"messages":[{"role":"system"}]}', SCOPE),
        turn.read(b'{"messages":[{"role":"user","content":"10:30"}]}', SCOPE),
        turn.read(b'{"messages":[{"role":"user","content":"a"},{"role":"system"}]}', SCOPE),
    ],
)
def test_a_prompt_whose_first_text_is_not_found_is_left_alone(it: Turn) -> None:
    pinned = noise.offer(request("09:15"), BOTH)

    assert NOTHING == noise.apply(it, BOTH, pinned)
    assert [] == msgspec.msgpack.decode(noise.offer(it, BOTH))


@pytest.mark.parametrize(
    "pinned",
    [
        None,
        b"",
        b"\xff",
        msgspec.msgpack.encode(5),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([(NO_GAP, b'a"b')]),
        msgspec.msgpack.encode([(NO_GAP, b"\\x")]),
    ],
)
def test_without_a_pin_that_is_one_nothing_is_put_back(pinned: bytes | None) -> None:
    it = request("10:30")

    assert it.body is left(it, pinned)


def test_without_patterns_nothing_is_put_back() -> None:
    it = request("10:30")

    assert NOTHING == noise.apply(it, (), noise.offer(request("09:15"), BOTH))
    assert NOTHING == noise.apply(it, (), noise.offer(it, ()))


def test_a_value_that_would_be_seen_otherwise_once_put_back_stays_as_it_came() -> None:
    joining = re.compile(r"aab|aa(?=c)|b")

    assert "bb" == text_left("aac", "bb", joining)
    assert "aac" == text_left("aac", "bc", joining)


def test_a_half_of_an_emoji_is_never_made_whole() -> None:
    half = re.compile("[\ud83dx]")
    pinned = noise.offer(request("\ud83d"), (half,))
    it = request("x\ude00")

    assert it.body is left(it, pinned, half)


def test_a_value_leaves_in_the_letters_in_which_it_first_left() -> None:
    word = re.compile(r"id (\S+)")
    pinned = noise.offer(request("id é/😀 .", PYTHON), (word,))

    assert b"id \\u00e9/\\ud83d\\ude00 ." in left(request("id b ."), pinned, word)


def test_pins_are_bounded_in_number_and_in_size() -> None:
    many = noise.offer(request("10:30 " * 1000), BOTH)
    long = noise.offer(request(f"run-id: a run-id: {'b' * 4000} run-id: c"), BOTH)

    assert noise.MOST_VALUES == len(msgspec.msgpack.decode(many))
    assert [b"a"] == [raw for _, raw in msgspec.msgpack.decode(long)]
    assert 4096 > len(noise.offer(request(f"run-id: {'b' * 60} " * 100), BOTH))


clocks = st.from_regex(r"\d\d:\d\d", fullmatch=True)
# Words of letters that JSON may escape, and a break behind each, so that values keep their edges.
words = st.from_regex(r"[a-zé]{1,5}", fullmatch=True)
gaps = st.lists(texts, min_size=1, max_size=4)


@st.composite
def systems(draw: st.DrawFn) -> tuple[Style, list[str]]:
    """What a conversation's system message says in three requests: only its values change."""
    between = draw(gaps)
    kinds = [draw(st.booleans()) for _ in between]

    def said() -> str:
        values = [f"|{draw(clocks)}|" if k else f"run-id: {draw(words)}|" for k in kinds]
        return "".join(gap + value for gap, value in zip(between, values, strict=True))

    return draw(st.sampled_from(STYLES)), [said() for _ in range(3)]


@given(systems())
def test_a_prompt_whose_values_change_leaves_in_the_same_bytes_every_time(
    said: tuple[Style, list[str]],
) -> None:
    style, contents = said
    turns = [request(content, style) for content in contents]
    pinned = noise.offer(turns[0], BOTH)

    assert {turns[0].body} == {left(it, pinned) for it in turns}
    assert turns[0].body is left(turns[0], pinned)


@given(st.sampled_from(STYLES), texts, texts, odd_values, st.sampled_from((r"\w+", r'["\\]', ".")))
def test_only_values_change_and_once(
    style: Style, first: str, later: str, odd: Any, pattern: str
) -> None:
    patterns = (re.compile(pattern),)
    pinned = noise.offer(request(first, style), patterns)
    it = request(later, style, x_unknown=odd)
    added = noise.apply(it, patterns, pinned)
    after = chat.apply(it.body, added.edits)
    came, went = reading.decoded(it.body), reading.decoded(after)
    for decoded in (came, went):
        decoded["messages"][0].pop("content")

    assert came == went
    assert list(came["messages"][0].items()) == list(went["messages"][0].items())
    assert NOTHING == noise.apply(turn.read(after, SCOPE), patterns, pinned)
    assert (after is it.body) is (added == NOTHING)
    assert len(added.edits) == sum(added.counts.values())
