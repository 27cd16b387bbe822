"""Reading replies: law 8, streams and bodies agree, nothing raises, memory is bounded."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.fold import MOST_CALLS, MOST_ITEMS, MOST_TEXT
from proxy.core.reply import MOST_ODD, MOST_VALUES, StreamReader, read_body, read_error
from proxy.core.seen import Seen, ToolCall
from proxy.core.usage import Usage

FILES = sorted((Path(__file__).parent.parent / "vectors" / "reply").glob("*.json"))
BODIES = [path for path in FILES if "body" in json.loads(path.read_text())]
STREAMS = [path for path in FILES if "stream" in json.loads(path.read_text())]
DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields}]})


def wire(vector: dict[str, Any]) -> bytes:
    """A vector's stream: objects are events, strings are raw text."""
    items = vector["stream"]
    return b"".join(i.encode() if isinstance(i, str) else event(i) for i in items)


def seen(fields: dict[str, Any]) -> Seen:
    calls = tuple(ToolCall(*call) for call in fields.pop("tool_calls", ()))
    usage = Usage(**fields.pop("usage", {}))
    carriers = tuple(fields.pop("carriers", ()))
    return Seen(usage=usage, carriers=carriers, tool_calls=calls, **fields)


def stream(*chunks: bytes, **limits: int) -> Seen:
    reader = StreamReader(**limits)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def cut_at(text: bytes, places: list[int]) -> list[bytes]:
    return [text[a:b] for a, b in pairwise([0, *sorted(p % (len(text) + 1) for p in places), None])]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_stream_is_read_as_the_vector_says(path: Path) -> None:
    vector = json.loads(path.read_text())
    expected = replace(seen(vector["seen"]), done=vector.get("stream_done", True))

    assert expected == read_only(stream(wire(vector)))


def read_only(seen: Seen) -> Seen:
    """Less what is there to be put back: the tests further down look at that."""
    return replace(seen, thought="", details=b"")


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_a_body_is_read_as_the_vector_says_of_the_stream(path: Path) -> None:
    vector = json.loads(path.read_text())
    body = json.dumps(vector["body"]).encode()

    assert replace(seen(vector["seen"]), done=True) == read_only(read_body(body))
    assert read_body(body) == read_body(b"\n   \n\n" + body + b"\n")


@given(st.sampled_from(STREAMS), st.lists(st.integers(0, 10_000), max_size=12))
def test_what_is_seen_does_not_depend_on_how_the_bytes_were_cut(
    path: Path, places: list[int]
) -> None:
    text = wire(json.loads(path.read_text()))

    assert stream(text) == stream(*cut_at(text, places))


keys = st.sampled_from(
    "choices index delta message content reasoning reasoning_content reasoning_details text type"
    " tool_calls id function name arguments custom input usage model error code finish_reason"
    " prompt_tokens prompt_tokens_details cached_tokens timings x_groq detail response signature"
    " data thinking extra_content thinking_blocks object".split()
)
words = st.sampled_from(["", "a", "<think>", "</think>", "thinking", "reasoning.text", "\ud83d"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | words
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)
deltas = st.dictionaries(keys, values, max_size=4)
chunks = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"index": values, "delta": deltas}), max_size=2)}
)


@given(st.lists(values | chunks, max_size=6), st.lists(st.integers(0, 10_000), max_size=6))
def test_no_json_makes_reading_raise_whatever_its_shape(items: list[Any], at: list[int]) -> None:
    text = b"".join(map(event, items))

    assert stream(text) == stream(*cut_at(text, at))
    for item in items:
        body = json.dumps(item).encode()
        assert isinstance(read_body(body), Seen)
        assert isinstance(read_error(body), str)


junk = st.binary(max_size=60) | st.sampled_from(
    [b"data: ", b"\n\n", b"\r", b"\r\n", b'{"choices":[', b'{"delta":{"content":"a"}}', b"]}", DONE]
    + [b"event: error\n", b"\xef\xbb\xbf", b'"\\ud83d"', b"[" * 2000, b'{"error":' * 600]
)


@given(st.lists(junk, max_size=12))
def test_no_bytes_make_reading_raise(parts: list[bytes]) -> None:
    text = b"".join(parts)

    assert stream(*parts) == stream(text)
    assert isinstance(read_body(text), Seen)
    assert isinstance(read_error(text), str)


@given(chunks)
def test_the_fast_way_and_the_slow_way_read_the_same(chunk: dict[str, Any]) -> None:
    payload = json.dumps(chunk).encode()

    assert stream(b"data: " + payload + b"\n\n") == stream(b"id: 1\ndata:" + payload + b"\n\n")


@given(chunks)
def test_chunks_that_only_the_standard_library_can_read_are_read_the_same(
    chunk: dict[str, Any],
) -> None:
    payload = json.dumps(chunk)[:-1]
    plain = stream(b"data: " + payload.encode() + b"}\n\n")

    assert plain == stream(b"data: " + payload.encode() + b', "odd": NaN}\n\n')


@given(
    st.lists(st.text(max_size=6), max_size=8),
    st.lists(st.text(max_size=6), max_size=8),
    st.sampled_from(["reasoning_content", "reasoning", "reasoning_text"]),
)
def test_a_stream_and_a_body_of_one_reply_agree(
    text: list[str], reasoning: list[str], carrier: str
) -> None:
    parts = [delta(**{carrier: part}) for part in reasoning] + [delta(content=p) for p in text]
    message = {"content": "".join(text)}
    if reasoning:
        message[carrier] = "".join(reasoning)
    body = json.dumps({"choices": [{"message": message}]}).encode()

    assert read_body(body) == stream(*parts, DONE)


@given(st.lists(st.sampled_from(["a", "é", "<think>", "</think>", "\n"]), max_size=20))
def test_text_is_read_in_order_across_batches(words: list[str]) -> None:
    pad = "x" * 40_000
    chunks = [delta(content=word) + b": " + pad.encode() + b"\n\n" for word in words]
    once = read_body(json.dumps({"choices": [{"message": {"content": "".join(words)}}]}).encode())

    assert once == stream(*chunks, DONE)


def test_nothing_is_read_before_a_batch_is_there() -> None:
    reader = StreamReader()

    reader.feed(delta(content="a"))

    assert "" == reader._reply.seen().text
    assert "a" == reader.finish().text


def test_finishing_twice_gives_the_same() -> None:
    reader = StreamReader()
    reader.feed(delta(content="a") + DONE)

    assert reader.finish() == reader.finish()


def test_text_beyond_the_most_is_left_out_and_told() -> None:
    wire = [delta(content="x" * 40) for _ in range(10)]
    wire += [event({"choices": [], "usage": {"prompt_tokens": 3}}), DONE]

    reply = stream(*wire, most_text=100)

    assert 120 == len(reply.text)
    assert reply.truncated
    assert reply.done
    assert 3 == reply.usage.input


def test_text_up_to_the_most_is_kept_and_no_more() -> None:
    wire = [delta(content="x" * 10) for _ in range(10)]
    fits = stream(*wire, DONE, most_text=100)
    exceeds = stream(*wire, delta(content="y"), DONE, most_text=100)

    assert 100 == len(fits.text)
    assert not fits.truncated
    assert replace(fits, truncated=True) == exceeds


@given(st.lists(st.integers(0, 5_000), max_size=6), st.integers(1, 200))
def test_what_is_left_out_does_not_depend_on_how_the_bytes_were_cut(
    places: list[int], most: int
) -> None:
    call = [{"index": 0, "id": "i", "function": {"name": "n", "arguments": "[1,2]"}}]
    text = b"".join(
        delta(content="x" * 7, reasoning="y" * 5) + b"data:" + delta(tool_calls=call)[5:]
        for _ in range(10)
    )

    assert stream(text, most_text=most) == stream(*cut_at(text, places), most_text=most)


def test_an_event_that_is_too_long_is_left_out_and_told() -> None:
    reply = stream(delta(content="x" * 200), delta(content="a"), DONE, longest_event=150)

    assert "a" == reply.text
    assert reply.truncated


def test_calls_beyond_the_most_are_left_out_and_told() -> None:
    calls = [{"index": i, "id": str(i), "function": {"name": "n"}} for i in range(MOST_CALLS + 2)]
    body = json.dumps({"choices": [{"message": {"tool_calls": calls}}]}).encode()

    for reply in (stream(delta(tool_calls=calls)), read_body(body)):
        assert MOST_CALLS == len(reply.tool_calls)
        assert reply.truncated


def test_items_beyond_the_most_are_left_out_and_told() -> None:
    parts = [{"type": "text", "text": "a"}] * (MOST_ITEMS + 1)
    body = json.dumps({"choices": [{"message": {"content": parts}}]}).encode()

    for reply in (stream(delta(content=parts)), read_body(body)):
        assert MOST_ITEMS == len(reply.text)
        assert reply.truncated


def test_a_body_of_more_values_than_are_looked_at_is_not_read() -> None:
    values = b"[]," * MOST_VALUES

    assert Seen(truncated=True) == read_body(b'{"choices":[' + values + b"1]}")
    assert "" == read_error(b'{"error":[' + values + b"1]}")


_LAST = event({"choices": [], "usage": {"prompt_tokens": 3}})


@pytest.mark.parametrize("odd", [b"data: x\n\n", b"data: {}\n\n", b'data:{"a":1}\n\n'])
def test_behind_many_odd_events_only_those_are_read_that_promise_something(odd: bytes) -> None:
    said = delta(content="a") + delta(content="b").replace(b"data: ", b"data:")

    few = stream(odd * (MOST_ODD - 1), said, odd, _LAST, DONE)
    many = stream(odd * (2 * MOST_ODD), said, _LAST, DONE)

    assert not few.truncated
    assert replace(few, truncated=True) == many
    assert ("ab", 3, True) == (many.text, many.usage.input, many.done)


def test_a_stream_that_promises_and_promises_is_read_no_more() -> None:
    promise = b'data: {"usage":1}\n\n'

    assert 3 == stream(promise * (2 * MOST_ODD - 1), _LAST).usage.input
    reply = stream(promise * (2 * MOST_ODD), _LAST)

    assert reply.usage.input is None
    assert reply.truncated


@pytest.mark.parametrize(
    "frame", [b"id: 1\ndata: %b\n\n", b"data:%b\n\n", b": ping\n\ndata: %b\n\n"]
)
def test_chunks_in_an_odd_frame_are_read_to_the_end(frame: bytes) -> None:
    chunk = frame % b'{"choices":[{"delta":{"content":"a"}}]}'

    reply = stream(chunk * (3 * MOST_ODD), _LAST)

    assert 3 * MOST_ODD == len(reply.text)
    assert (3, False) == (reply.usage.input, reply.truncated)


def test_json_nested_too_deep_is_left_out_and_told() -> None:
    deep = b'{"choices":[{"delta":{"reasoning_details":' + b"[" * 990 + b"]" * 990 + b"}}]}"

    assert stream(b"data: " + deep + b"\n\n").truncated
    assert read_body(deep.replace(b'"delta"', b'"message"')).truncated


@pytest.mark.parametrize("body", [b"", b"  \n", b"<html>", b"5", b"null", b"[]", b"[5]", b"\xff"])
def test_a_body_that_is_no_object_shows_nothing(body: bytes) -> None:
    assert Seen() == read_body(body)
    assert "" == read_error(body)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (
            {"error": {"code": "context_length_exceeded", "type": "invalid"}},
            "context_length_exceeded",
        ),
        ({"error": {"code": 400, "message": "m", "type": "invalid"}}, "invalid"),
        ({"error": {"code": None, "type": "invalid_request_error"}}, "invalid_request_error"),
        ({"error": {"code": "401", "type": None, "status": "UNAUTHENTICATED"}}, "UNAUTHENTICATED"),
        ({"error": {"code": 429, "message": "slow down"}}, "429"),
        ({"error": {"code": True, "message": "m"}}, "error"),
        ({"error": {"message": "only words"}}, "error"),
        ({"error": "only words"}, "error"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ([{"error": {"code": 400, "status": "INVALID_ARGUMENT"}}], "INVALID_ARGUMENT"),
        ({"object": "error", "message": "m", "type": "BadRequestError"}, "BadRequestError"),
        ({"code": 400, "message": "m", "type": "Bad Request"}, "400"),
        ({"__type": "ThrottlingException", "message": "m"}, "ThrottlingException"),
        ({"detail": "only words"}, "error"),
        ({"detail": [{"type": "missing", "msg": "m"}]}, "missing"),
        ({"detail": []}, ""),
        ({"error": {"code": "x" * 65}}, "error"),
        ({"error": {"code": "white\nspace"}}, "error"),
        ({"error": None, "message": None}, ""),
        ({"object": "list", "data": []}, ""),
        ({"choices": [], "message": "m"}, ""),
    ],
)
def test_an_error_body_is_told_by_its_code(body: Any, code: str) -> None:
    assert code == read_error(json.dumps(body).encode())


def test_no_message_text_is_told_of_an_error() -> None:
    body = json.dumps({"error": {"code": "please, see https://x?", "message": "secret"}}).encode()

    assert "error" == read_error(body)
    assert "error" == read_body(body).error
    assert "error" == stream(b"event: error\ndata: " + body + b"\n\n").error


def test_other_bodies_are_read_for_usage_and_errors() -> None:
    anthropic = {"type": "message", "model": "c", "content": [], "usage": {"input_tokens": 3}}
    responses = {"object": "response", "error": {"code": "server_error"}, "usage": None}

    assert Seen(usage=Usage(input=3), model="c", done=True) == read_body(
        json.dumps(anthropic).encode()
    )
    assert Seen(error="server_error", done=True) == read_body(json.dumps(responses).encode())


# What is there to be put back


def streamed(*rows: dict[str, Any]) -> bytes:
    return b"".join(event({"choices": [{"index": 0, "delta": row}]}) for row in rows)


def test_a_thought_before_the_text_is_kept_as_it_came_with_its_blanks() -> None:
    seen = stream(streamed({"content": "<think>\nHm"}, {"content": ".\n</think>\n\nDone."}))

    assert ("<think>\nHm.\n</think>\n\n", "Done.") == (seen.thought, seen.text)


def test_the_pieces_of_details_become_the_items_that_they_are_pieces_of() -> None:
    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "QUJD", "id": "rs_1"}
    seen = stream(
        streamed(
            {"reasoning_details": [{**text, "text": "I thi"}]},
            {"reasoning_details": [{**text, "text": "nk."}]},
            {"reasoning_details": [{**text, "text": "", "signature": "sig=="}]},
            {"reasoning_details": [sealed]},
        )
    )

    assert [{**text, "text": "I think.", "signature": "sig=="}, sealed] == json.loads(seen.details)


def test_details_of_a_body_are_kept_item_by_item() -> None:
    items = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}]
    message = {"content": "x", "reasoning_details": items}
    body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()

    assert items == json.loads(read_body(body).details)


def test_what_came_so_far_is_told_while_more_may_come() -> None:
    reader = StreamReader()
    reader.feed(streamed({"content": "Do"}, {"content": "ne"}) + b'data: {"choices":[{"del')

    assert "Done" == reader.so_far().text
    reader.feed(b'ta":{"content":"."},"index":0}]}\n\n')
    assert "Done." == reader.finish().text


def kept_of(*details: Any) -> bytes:
    """What is kept of details that came event by event."""
    return stream(streamed(*({"reasoning_details": items} for items in details))).details


DETAIL = {"type": "reasoning.text", "index": 0, "text": "a"}


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # A piece without a word of its own keeps what stands; one with another takes its place.
        (
            [[{**DETAIL, "format": "x"}], [{**DETAIL, "text": None, "format": None}]],
            {"format": "x"},
        ),
        ([[DETAIL], [{**DETAIL, "text": "b", "format": "y"}]], {"text": "ab", "format": "y"}),
        ([[{"type": "t", "text": "a"}], [{"type": "t", "text": "b"}]], {"type": "t", "text": "ab"}),
    ],
)
def test_pieces_of_one_item_are_put_together(pieces: Any, expected: dict[str, Any]) -> None:
    (item,) = json.loads(kept_of(*pieces))

    assert expected.items() <= item.items()


@pytest.mark.parametrize(
    "other",
    [{**DETAIL, "index": 1}, {**DETAIL, "id": "b"}, {**DETAIL, "type": "reasoning.summary"}],
)
def test_pieces_of_another_item_are_not(other: dict[str, Any]) -> None:
    assert [DETAIL, other] == json.loads(kept_of([DETAIL], [other]))
    kinds = [{"type": "a", "text": "x"}, {"type": "b", "text": "y"}]
    assert kinds == json.loads(kept_of(kinds[:1], kinds[1:]))


SEAL = {"type": "reasoning.encrypted", "index": 0, "data": "x" * (MOST_TEXT // 3)}


@pytest.mark.parametrize(
    "pieces",
    [
        [[DETAIL, "no item"]],
        [[DETAIL, "no item"], [DETAIL]],
        [[{**DETAIL, "text": "\ud83d"}]],
        [[SEAL]] * 3,
        [[SEAL]] * 4,
    ],
    ids=["odd", "odd, then more", "no Unicode", "too much", "too much, then more"],
)
def test_of_details_that_are_not_whole_nothing_is_kept(pieces: list[list[Any]]) -> None:
    assert b"" == kept_of(*pieces)
    assert b"" != kept_of([SEAL], [SEAL])
