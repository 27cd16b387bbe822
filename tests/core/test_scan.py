"""Byte ranges in JSON text, held to what the standard library reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.wire import scan
from tests.laws.histories import odd_values, texts
from tests.laws.rendering import STYLES, Literal, Pairs

styles = st.sampled_from(STYLES)
bad_texts = st.lists(
    st.sampled_from(
        ("a", "é", "😀", "\ud83d", "\ude00", "\udcff", "\udcc3\udca9", "\\", '"', "\n", "\x00")
    )
).map("".join)  # fmt: skip
pairs = st.lists(st.tuples(texts | bad_texts, odd_values), max_size=5).map(Pairs)


def loads(raw: bytes) -> object:
    text = raw.decode("utf-8", "surrogateescape")
    return _decoder.decode(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_float=Literal, parse_int=Literal, parse_constant=Literal
)


@given(pairs, styles, st.sampled_from((b"", b" ", b"\n\t")))
def test_members_are_those_of_the_object_repeated_keys_included(row, style, blank) -> None:
    text = blank + style.render(row)

    found = scan.members(text)

    assert loads(text) == [(m.key, loads(text[m.start : m.end])) for m in found]
    assert [m.key for m in found] == [loads(text[m.at : scan.value_end(text, m.at)]) for m in found]


@given(st.lists(odd_values | texts | bad_texts, max_size=5), styles)
def test_elements_are_those_of_the_array(row, style) -> None:
    text = b"x" + style.render(row)

    assert loads(text[1:]) == [loads(text[a:b]) for a, b in scan.elements(text, 1, 5)]


@given(texts | bad_texts, styles)
def test_a_literal_has_one_text(text, style) -> None:
    literal = style.render(text)

    assert json.loads(literal.decode("utf-8", "surrogateescape")) == scan.text_of(literal)


@given(texts | bad_texts, styles, st.integers(0, 30))
def test_an_offset_cuts_a_literal_where_its_text_is_cut(text, style, count) -> None:
    literal = style.render(text)
    whole = scan.text_of(literal)
    count = min(count, len(whole))

    at = scan.raw_offset(literal, count)

    assert whole == scan.text_of(literal[:at] + b'"') + scan.text_of(b'"' + literal[at:])
    assert whole[:count] == scan.text_of(literal[:at] + b'"')
    assert at == scan.raw_offset(literal, count - count // 2, scan.raw_offset(literal, count // 2))


def test_no_offset_lies_beyond_the_end_of_a_text() -> None:
    with pytest.raises(scan.Odd):
        scan.raw_offset(b'"ab"', 3)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1 "b":2}', b'{"a" 1}', b"{1:2}",
        b'{"a":}', b'{"a":"x}', b'{"a":[1}', b'{"a":nul}', b'{"a":-}', b'{"a":1,}', b'{"\\q":1}',
        b'{"a":"\\"}', b"\xff{}", b'{"a":{"b":"}',
    ],
)  # fmt: skip
def test_what_is_no_object_is_odd(text: bytes) -> None:
    with pytest.raises(scan.Odd):
        scan.members(text)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[", b"[1", b"[1 2]", b"[1,]", b"[,1]", b"[[1]", b'["a]']
)
def test_what_is_no_array_is_odd(text: bytes) -> None:
    with pytest.raises(scan.Odd):
        scan.elements(text, 0, 9)


def test_more_elements_or_members_than_are_looked_at_are_too_many() -> None:
    assert 3 == len(scan.elements(b"[1,2,3]", 0, 3))
    with pytest.raises(scan.TooMany):
        scan.elements(b"[1,2,3,4]", 0, 3)
    with pytest.raises(scan.TooMany):
        scan.members(b"{" + b'"a":1,' * scan.MAX_MEMBERS + b'"b":2}')


def test_values_count_where_they_begin_and_not_in_texts() -> None:
    assert not scan.busier_than(b'["a,b,[c,{d",1,2]', 3)
    assert not scan.busier_than(b"[1,2,3]", 3)
    assert scan.busier_than(b'["a,",1,2,3]', 3)
    assert scan.busier_than(b"[[[[1]]]]", 3)
    assert not scan.busier_than(b'["\\\\",["\\"",["a,,,,"]]]', 5)
    assert scan.busier_than(b'["\\\\",["\\"",["a,,,,"]]]', 4)


def test_texts_that_may_hold_values_count_where_they_hold_very_many() -> None:
    assert not scan.busier_than(b'["%b"]' % (b"," * 11), 3)
    assert scan.busier_than(b'["%b"]' % (b"," * 12), 3)


def test_more_quotes_than_values_can_have_are_too_many() -> None:
    assert not scan.busier_than(b'["",""' + b" " * 9 + b'",,,"]', 3)
    assert scan.busier_than(b'[1,2",,"' + b'""' * 6, 3)


def test_a_long_number_is_told_from_a_text_of_digits() -> None:
    assert scan.has_number_of(9, b'["a",123456789]', 9)
    assert not scan.has_number_of(9, b'["123456789",12345678,12345678]', 9)
    assert not scan.has_number_of(9, b'["\\"123456789"]', 9)
    assert scan.has_number_of(9, b'["123456789"' + b',""' * 9, 9)


# Each took time by the square of its length once, which for these would be hours.
_LONG = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":["' + b'\\"' * _LONG,
        b'{"a":[' + b'"' + b"\\\\" * _LONG,
        b'{"a":' + b"[" * _LONG,
        b'{"a":"' + b"x" * _LONG,
        b'{"a":["' + b'x","' * _LONG,
    ],
    ids=["escaped quotes", "backslashes", "brackets", "text", "strings"],
)
def test_what_is_unfinished_is_told_in_one_pass(text: bytes) -> None:
    with pytest.raises(scan.Odd):
        scan.members(text)


def test_a_long_text_of_escapes_is_cut_in_one_pass() -> None:
    literal = b'"' + b"\\n" * _LONG + b'"'

    assert 2 * _LONG + 1 == scan.raw_offset(literal, _LONG)
