"""Requests as they arrive: two roads to the same ranges, and edits that leave the rest alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit, Head, Layout, Number, Unreadable
from tests.laws import reading
from tests.laws.histories import History, body_of, histories

_KEYS = (
    '"messages"',
    '"messages"',
    '"m\\u0065ssages"',
    '"model"',
    '"\\u006dodel"',
    '"tools"',
    '"a\\"b"',
)
_VALUES = (
    "[]", "[ ]", "[1 , 2]", '[{"role":"user","content":"messages"}]', '[{"a":1}\n,{"b":[2]} ]',
    '{"messages":[1]}', '"messages"', '"m\\u0065"', '["messages",[1 , 2]]', "null", "1", "12",
    "1.5e3", '"\\ud83d"', "NaN", '"\\""', "{}",
    '{"messages":[1 , 2],"m\\u0065ssages":3}',
)  # fmt: skip
_BLANKS = ("", "", " ", "\r\n\t")
blanks = st.sampled_from(_BLANKS)
members = st.tuples(st.sampled_from(_KEYS), blanks, blanks, st.sampled_from(_VALUES), blanks)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects that are full of traps; every second one is broken somewhere."""
    row = [f"{key}{a}:{b}{value}{c}" for key, a, b, value, c in draw(st.lists(members, max_size=4))]
    text = draw(blanks) + "{" + ",".join(row) + "}" + draw(blanks)
    if draw(st.booleans()):
        at, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        end = min(end, at + 2)
        text = text[:at] + draw(st.sampled_from(("", ",", "]", "}", "{", '"', "\\"))) + text[end:]
    return text.encode()


def slow(body: bytes) -> Layout | str:
    try:
        return chat._slow(body)
    except Unreadable as odd:
        return odd.reason


def whole(body: bytes) -> Layout | str:
    try:
        return chat.layout(body)
    except Unreadable as odd:
        return odd.reason


@given(bodies())
@example(b'{"m\\u0065ssages":[1],"messages":[2]}')
@example(b'{"x":{"messages":[1]},"m\\u0065ssages":[1]}')
@example(b'{"model":1,"model":2,"messages":[1]}')
@example(b'{"messages":[1 , 2]}')
def test_the_fast_road_leads_where_the_slow_one_does(body: bytes) -> None:
    found = chat._fast(body)

    assert found is None or slow(body) == found


@given(histories())
def test_both_roads_lead_to_the_messages_that_were_written(history: History) -> None:
    body = history.bodies()[-1]

    found = chat.layout(body)

    request = reading.decoded(body)
    assert slow(body) == found
    assert request["messages"] == [reading.decoded(body[a:b]) for a, b in found.spans]
    fields = {key: value for key, value in request.items() if key != "messages"}
    assert fields == {key: reading.decoded(raw) for key, raw in found.fields.items()}


def members_of(body: bytes, start: int) -> list[scan.Member] | None:
    try:
        return list(chat.members(body, start, len(body)))
    except scan.Odd:
        return None


@given(bodies().map(bytes.strip))
@example(b'{"a":1,"b":[{}],"a":12}')
@example(b'{"a":12,"a":1}')
@example(b'{"a":{"q":1,"b":2},"b":3,"a":{"q":1}}')
@example(b'{"\\u0061":1}')
def test_members_of_an_object_lie_where_a_scan_finds_them(body: bytes) -> None:
    try:
        expected = scan.members(b"xx" + body, 2)
    except scan.Odd:
        expected = None

    assert expected == members_of(b"xx" + body, 2)


@given(st.lists(st.sampled_from(_VALUES), max_size=4), blanks, blanks)
def test_elements_of_an_array_lie_where_a_scan_finds_them(row: list[str], a: str, b: str) -> None:
    text = ("x[" + a + (a + "," + b).join(row) + b + "]").encode()

    assert scan.elements(text, 1, 9) == list(chat.elements(text, 1, len(text)))


def parts_of(history: History) -> list[list[object]]:
    messages = history.messages(len(history.chunks))
    return [messages[:size] for size in range(1, len(messages) + 1)]


@given(histories(max_steps=3), st.data())
def test_a_body_is_continued_to_the_layout_that_it_has_as_a_whole(history: History, data) -> None:
    heads = parts_of(history)
    short, long = sorted(data.draw(st.tuples(*[st.integers(0, len(heads) - 1)] * 2)))
    before, after = body_of(history, heads[short]), body_of(history, heads[long])
    found = chat.layout(before)
    fields = chat.head_fields(before, found.fields, found.spans[0][0])
    assert fields is not None

    more = chat.continued(after, Head(fields, found.spans[-1][1]))

    expected = chat.layout(after)
    if more is not None:
        assert expected == Layout(more.fields, (*found.spans, *more.spans))
    else:
        assert history.style.comma.startswith(" ")
        assert short < long


@given(bodies(), bodies(), st.integers(0, 60))
@example(b'{"model":"a","messages":[1],"model":"b"}', b'{"model":"a","messages":[1,2]}', 26)
@example(b'{"messages":[1]}', b'{"messages":[1,]}', 14)
@example(b'{"messages":[1]}', b'{"messages":[1],"messages":[2]}', 14)
@example(b'{"messages":[1]}', b'{"messages":[1],"m\\u0065ssages":[2]}', 14)
@example(b'{"model":1,"messages":[1]}', b'{"model":1,"messages":[1],"model":2}', 24)
@example(b'{"messages":[1]}', b'{"messages":[1', 14)
def test_whatever_follows_a_known_head_it_is_read_as_if_it_were_new(
    known: bytes, other: bytes, cut: int
) -> None:
    try:
        found = chat.layout(known)
    except Unreadable:
        return
    fields = chat.head_fields(known, found.fields, found.spans[0][0]) if found.spans else None
    if fields is None:
        return
    end = found.spans[-1][1]
    body = known[:end] + (other[end:] if other.startswith(known[:end]) else other[cut:])

    more = chat.continued(body, Head(fields, end))

    assert more is None or whole(body) == Layout(more.fields, (*found.spans, *more.spans))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (b"hello", "not_json"),
        (b"\xef\xbb\xbf" + b'{"messages":[]}', "not_json"),
        ('{"messages":[]}'.encode("utf-16"), "not_json"),
        (b"[]", "not_an_object"),
        (b' "messages"', "not_an_object"),
        (b"12", "not_an_object"),
        (b"null", "not_an_object"),
        (b"{}", "no_messages"),
        (b'{"messages":{}}', "no_messages"),
        (b'{"messages":null}', "no_messages"),
        (b'{"x":{"messages":[]}}', "no_messages"),
        (b'{"messages":[],"messages":[]}', "repeated_key"),
        (b'{"messages":[],"m\\u0065ssages":[]}', "repeated_key"),
        (b'{"messages":[]}{}', "not_json"),
        (b'{"messages":[1,]}', "not_json"),
        (b'{"messages":[1 2]}', "not_json"),
        (b'{"messages":[', "not_json"),
        (b'{"messages":[]', "not_json"),
    ],
)
def test_what_is_no_chat_request_is_told_by_a_word(body: bytes, reason: str) -> None:
    assert reason == whole(body)


@pytest.mark.parametrize(
    "body", [b'{"messages":[]}', b' { "messages" : [ ] } ', b'{"m\\u0065ssages":[]}']
)
def test_a_request_without_messages_has_none(body: bytes) -> None:
    assert Layout({}, ()) == chat.layout(body)


def test_a_request_beyond_all_measure_is_not_read() -> None:
    many = b"1," * chat.MAX_MESSAGES + b"1"
    keys = b"".join(b'"%d":1,' % n for n in range(scan.MAX_MEMBERS + 1))

    assert "too_many_messages" == whole(b'{"messages":[' + many + b"]}")
    assert "too_many_members" == whole(b"{" + keys + b'"messages":[]}')


_MANY = 1 << 20
_TEXT = b'{"messages":[{"role":"user","content":%b}]}'


@pytest.mark.parametrize(
    "body",
    [
        _TEXT % (b"[" * _MANY + b"]" * _MANY),
        _TEXT % (b"[" * _MANY),
        _TEXT % (b'{"a":' * _MANY),
        _TEXT % (b"[" + b'"",' * _MANY + b"1]"),
        _TEXT % (b'"a' + b",[{" * _MANY + b'"'),
        _TEXT % (b'""' * _MANY),
        _TEXT % (b"[" + b",".join([b"9" * 4_000] * 1_200) + b"]"),
        b'{"messages":[' + b"[]," * _MANY + b"[]]}",
        b'{"messages":[],"tools":' + b"[" * _MANY + b"]" * _MANY + b"}",
        b'{"messages":[],"x":NaN,"a":"' + b"\\n" * 2 * _MANY + b'"}',
    ],
    ids=[
        "deep", "open", "objects", "strings", "JSON in a text", "quotes", "digits", "messages",
        "tools", "escapes to scan",
    ],
)  # fmt: skip
def test_a_large_body_that_would_keep_us_long_is_not_read(body: bytes) -> None:
    assert "too_busy" == whole(body)


@pytest.mark.parametrize(
    "body",
    [
        _TEXT % (b'"' + b"1234567890" * _MANY + b'"'),
        _TEXT % (b'"' + b"f(a, b);\\n" * (_MANY // 8) + b'"'),
        _TEXT % (b'["' + b",[{" * (_MANY // 8) + b'"]'),
        _TEXT % (b'"' + b"\\n" * 4 * _MANY + b'"'),
        _TEXT % (b'"' + b"x" * 2 * _MANY + b'\\ud83d"') + b" " * _MANY,
        b'{"messages":[1],"x":NaN,"a":"' + b"\\n" * (_MANY // 2) + b'"}',
    ],
    ids=["digits", "code", "brackets", "escapes", "lone surrogate", "no JSON number"],
)
def test_a_large_body_of_text_is_read(body: bytes) -> None:
    found = whole(body)

    assert isinstance(found, Layout)
    assert 1 == len(found.spans)


def test_the_head_of_a_body_is_what_stands_before_its_messages() -> None:
    body = b'{"a":1,"b":2,"messages":[{}],"a":3}'
    fields = chat.layout(body).fields

    head = chat.head_fields(body, fields, body.index(b"{}"))

    assert {"a": b"1", "b": b"2"} == head
    assert head is not None
    assert head["b"] is fields["b"]


@pytest.mark.parametrize(
    "body", [b'{"a":"messages","m\\u0065ssages":[{}]}', b'{"a":{"messages":1,"m":[{}]}}']
)
def test_a_head_that_cannot_be_told_is_none(body: bytes) -> None:
    assert chat.head_fields(body, {}, body.index(b"{}")) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1.50", Number("1.50")),
        (b"1e400", Number("1e400")),
        (b"NaN", Number("NaN")),
        (b"-Infinity", Number("-Infinity")),
        (b"9" * 400, 10**400 - 1),
        (b"9" * 5_000, Number("9" * 5_000)),
        (b"18446744073709551616", 1 << 64),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'"\\ud83d"', "\ud83d"),
        (b'"\xff"', "\udcff"),
    ],
)
def test_numbers_are_read_by_their_literal(text: bytes, value: object) -> None:
    assert value == chat.exact(text)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"01", b"[" * 101 + b"]" * 101, b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" * 100_000 + b"]" * 100_000, b"[" + b"1," * 100_001 + b"1]", b"\xff",
    ],
    ids=["nothing", "open", "zero", "array", "object", "very deep", "very wide", "no text"],
)  # fmt: skip
def test_what_is_out_of_measure_is_not_read(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any reader's complaint will do
        chat.exact(text)


def test_a_text_full_of_brackets_is_not_deep() -> None:
    text = json.dumps({"a": "[{" * 1_000, "b": [[]] * 60}).encode()

    assert ["a", "b"] == list(chat.exact(text))
    assert chat.exact(b"[" * 100 + b"]" * 100)


def test_decoding_has_a_second_chance_and_no_third() -> None:
    assert {"a": "\ud83d"} == chat.decode(b'{"a":"\\ud83d"}')
    for text in (b"{", b"[" * 100_000 + b"]" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011  any reader's complaint will do
            chat.decode(text)


def test_without_edits_the_very_same_object_leaves() -> None:
    body = b'{"messages":[]}'

    assert body is chat.apply(body, ())


@given(
    st.binary(max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=3)), max_size=4),
)
def test_edits_replace_their_ranges_and_nothing_else(body: bytes, cuts) -> None:
    ends = sorted(min(at, len(body)) for at, _ in cuts)
    rows = list(zip(ends[::2], ends[1::2], [text for _, text in cuts], strict=False))

    expected, at = b"", 0
    for start, end, text in rows:
        expected, at = expected + body[at:start] + text, end
    assert expected + body[at:] == chat.apply(body, [Edit(*row) for row in rows])


_ASKED = {"include_usage": True}


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (b'{"messages":[]}', _ASKED),
        (b' {\n "messages":[] }', _ASKED),
        (b"{ }", _ASKED),
        (b'{"messages":[],"stream_options":null}', _ASKED),
        (b'{"stream_options": {} ,"messages":[]}', _ASKED),
        (b'{"stream_options":{"include_usage":false},"messages":[]}', _ASKED),
        (b'{"stream_options":{"a":1},"messages":[]}', {**_ASKED, "a": 1}),
        (b'{"stream_\\u006fptions":{ "a":1},"messages":[]}', {**_ASKED, "a": 1}),
        (b'{"stream_options":{"include_usage":false,"include_usage":null},"messages":[]}', _ASKED),
    ],
)
def test_usage_is_asked_for_whatever_stands_there(body: bytes, asked: object) -> None:
    fields = {key: b"" for key in json.loads(body)}
    found = chat.layout(body).fields if "messages" in fields else {}

    edit = chat.ask_for_usage(body, found)

    assert edit is not None
    left = json.loads(chat.apply(body, [edit]))
    assert asked == left.pop("stream_options")
    assert {k: v for k, v in json.loads(body).items() if k != "stream_options"} == left


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream_options":{"include_usage":true},"messages":[]}',
        b'{"stream_options":{ "include_usage" : true , "a":1},"messages":[]}',
        b'{"stream_options":5,"messages":[]}',
        b'{"stream_options":{},"stream_options":{},"messages":[]}',
    ],
)
def test_usage_is_not_asked_for_twice_nor_in_what_is_odd(body: bytes) -> None:
    assert chat.ask_for_usage(body, chat.layout(body).fields) is None


def test_usage_is_not_asked_for_in_what_is_no_object() -> None:
    assert chat.ask_for_usage(b"[]", {}) is None
    assert chat.ask_for_usage(b"[]", {"stream_options": b"{}"}) is None


def test_fields_are_read_one_by_one() -> None:
    fields = {"model": b'"m"', "stream": b"true", "x": b"{", "y": b"[1]"}

    assert "m" == chat.field(fields, "model")
    assert chat.streams(fields)
    assert not chat.streams({"stream": b"false"})
    assert chat.field(fields, "absent") is None
    assert chat.field(fields, "x") is None
    assert chat.field(fields, "y", "inner") is None
    assert chat.wants_usage({"stream_options": b'{"include_usage": true}'})
    assert not chat.wants_usage({"stream_options": b'{"include_usage": 1}'})


@given(st.text())
def test_a_text_becomes_a_literal_of_that_text(text: str) -> None:
    assert text == scan.text_of(chat.literal(text))
    assert text + "\ud83d" == scan.text_of(chat.literal(text + "\ud83d"))
