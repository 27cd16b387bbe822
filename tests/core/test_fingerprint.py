"""Names by what was said: what clients flip does not count, everything else does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core import fingerprint
from proxy.core.fingerprint import Message
from proxy.core.sent import Part
from proxy.core.wire import chat
from proxy.core.wire.chat import Number
from tests.laws import reading
from tests.laws.histories import histories, odd_values, steps
from tests.laws.rendering import COMPACT, PYTHON, STYLES, Literal, Pairs

BEFORE = b"\1" * 16


def read(message: Any, style=COMPACT) -> Message:
    body = message if isinstance(message, bytes) else style.render(message)
    return fingerprint.read(body, 0, len(body), BEFORE)


def assistant(**members: Any) -> dict[str, Any]:
    return {"role": "assistant", **members}


def user(**members: Any) -> dict[str, Any]:
    return {"role": "user", **members}


def tool(**members: Any) -> dict[str, Any]:
    return {"role": "tool", **members}


def call(id: str = "c1", arguments: str = '{"a":1}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


ONE = {"type": "text", "text": "x"}
TURNED = dict(reversed(ONE.items()))
SAME = [
    (assistant(content=None), assistant(content="")),
    (assistant(content=None), assistant()),
    (assistant(content=[]), assistant(content="")),
    (assistant(content="x"), assistant(content=[ONE])),
    (assistant(content="x"), assistant(content=[{"text": "x"}])),
    (user(content="x"), user(content=[{**ONE, "cache_control": {"type": "ephemeral"}}])),
    (tool(content="x", tool_call_id="c"), {"tool_call_id": "c", "content": [ONE], "role": "tool"}),
    (assistant(content="x"), assistant(content="x", annotations=[{"a": 1}], logprobs={}, index=3)),
    (assistant(content="x"), assistant(content="x", status="completed", id="m_1")),
    (assistant(content="x"), assistant(content="x", refusal=None, audio=None, name="")),
    (assistant(content="x", tool_calls=[]), assistant(content="x", tool_calls=None)),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(index=0)])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[dict(reversed(call().items()))])),
    (assistant(content=[ONE, ONE]), assistant(content=[{**ONE, "cache_control": {}}, TURNED])),
    (assistant(content="x", reasoning_content=""), assistant(content="x", reasoning_details=[])),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SAME)
def test_what_clients_flip_is_not_part_of_what_was_said(a: Any, b: Any) -> None:
    one, two = read(a), read(b, PYTHON)

    assert one.link == two.link
    assert (one.kept.said, one.kept.digest) == (two.kept.said, two.kept.digest)
    assert one.kept.gist == two.kept.gist


OTHER = [
    (assistant(content="x"), {"role": "user", "content": "x"}),
    (assistant(content="x"), assistant(content="x ")),
    (assistant(content="x"), assistant(content="X")),
    (assistant(content=""), assistant(content=" ")),
    (assistant(content=" x"), assistant(content="x ")),
    (assistant(content="x"), assistant(content=[ONE, ONE])),
    (assistant(content="x"), assistant(content=[{"type": "input_text", "text": "x"}])),
    (assistant(content="x"), assistant(content="x", name="bob")),
    (assistant(content="x"), assistant(content="x", refusal="no")),
    (assistant(content="x"), assistant(content="x", audio={"id": "a"})),
    (assistant(content="x"), assistant(content="x", reasoning={"effort": "high"})),
    (assistant(content="x"), assistant(content="x", reasoning_details="why")),
    (assistant(content="1"), assistant(content=1)),
    (assistant(content=Literal("1.0")), assistant(content=Literal("1.00"))),
    (assistant(content=Literal("1.0")), assistant(content="1.0")),
    (assistant(content=True), assistant(content="True")),
    (assistant(x=Literal("NaN")), assistant(x="NaN")),
    (assistant(x=Literal("18446744073709551616")), assistant(x=Literal("18446744073709551617"))),
    (assistant(x=[1, [2]]), assistant(x=[[1], 2])),
    (assistant(x=["ab", "c"]), assistant(x=["a", "bc"])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(id="c2")])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(arguments='{"a": 1}')])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(), call()])),
    (assistant(tool_calls=[{"x": 1}]), assistant(x=1)),
    (assistant(tool_calls={"x": 1}), assistant(tool_calls=[{"x": 1}, 0])),
    ({"role": "tool", "tool_call_id": "a"}, {"role": "tool", "tool_call_id": "b"}),
    ({"role": "tool", "tool_call_id": 5}, {"role": "tool", "tool_call_id": 6}),
    ({"role": "user", "reasoning_content": "a"}, {"role": "user", "reasoning_content": "b"}),
    ({"role": "user", "content": "<think>a</think>x"}, {"role": "user", "content": "x"}),
    (user(content=[ONE, {"type": "thinking", "thinking": "a"}]), user(content=[ONE])),
    ({"role": 5, "content": "x"}, {"role": 6, "content": "x"}),
    ({"content": "x"}, {"role": "user", "content": "x"}),
    (5, 6), ("x", "y"), (None, []),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), OTHER)
def test_all_else_is_part_of_what_was_said(a: Any, b: Any) -> None:
    assert read(a).link != read(b).link
    assert read(a).kept.digest != read(b).kept.digest


THOUGHT = [
    assistant(content="x"),
    assistant(content="x", reasoning_content="a"),
    assistant(content="x", reasoning_content="b"),
    assistant(content="x", reasoning="a"),
    assistant(content="x", reasoning_details=[{"text": "a"}]),
    assistant(content=[{"type": "thinking", "thinking": "a"}, ONE]),
    assistant(content=[ONE, {"type": "thinking", "thinking": "a"}]),
    assistant(content=[{"type": "thinking", "thinking": "a", "signature": "s"}, ONE]),
    assistant(content=[{"type": "thinking", "thinking": "a", "signature": "t"}, ONE]),
    assistant(content="<think>a</think>x"),
    assistant(content="<think>a</think>\nx"),
    assistant(content="<think></think>x"),
    assistant(content="x", thought_signature="s"),
    assistant(content="x", thinking_blocks=[{"thinking": "a", "signature": "s"}]),
]


def test_reasoning_is_in_no_link_and_in_every_element_that_leaves_with_it() -> None:
    rows = [read(message) for message in THOUGHT]

    assert 1 == len({row.link for row in rows})
    assert 1 == len({row.kept.said for row in rows})
    assert len(rows) == len({row.kept.digest for row in rows})


@pytest.mark.parametrize("message", THOUGHT)
def test_dropped_it_is_the_element_of_a_message_without_it(message: Any) -> None:
    row, bare = read(message), read(THOUGHT[0])

    if row.edits:
        assert replace(bare.kept, size=row.dropped.size) == row.dropped
        assert row.kept.reasoning > 0
        assert row.dropped.size < row.kept.size
    else:
        assert row.kept is row.dropped


def calling(arguments: str, id: str = "c1") -> dict[str, Any]:
    return assistant(tool_calls=[call(id, arguments)])


GISTS = [
    (assistant(content="x\n"), assistant(content=" x")),
    (assistant(content="<think>a</think>\nx"), assistant(content="x")),
    (calling('{"a":1,"b":"\\u00e9"}'), calling('{"b": "é", "a": 1}', "z")),
    (calling('{"a":1.50}'), calling('{ "a" : 1.50 }')),
    (tool(tool_call_id="a", content="x"), tool(tool_call_id="b", content="x\n")),
]


@pytest.mark.parametrize(("a", "b"), GISTS)
def test_serialised_anew_a_message_keeps_its_gist(a: Any, b: Any) -> None:
    assert read(a).kept.gist == read(b).kept.gist


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (assistant(content="x"), assistant(content="y")),
        (assistant(content="x"), {"role": "user", "content": "x"}),
        (assistant(content=[ONE, ONE]), assistant(content="x")),
        (calling('{"a":1}'), calling('{"a":2}')),
        (calling("{"), calling("{}")),
        (calling("1.0"), calling("1.00")),
        (assistant(tool_calls=[5]), assistant(tool_calls=[{"function": 5}])),
    ],
)  # fmt: skip
def test_what_was_meant_otherwise_has_another_gist(a: Any, b: Any) -> None:
    assert read(a).kept.gist != read(b).kept.gist


@given(st.lists(odd_values, min_size=2, max_size=2))
def test_canonical_forms_are_equal_where_values_are(pair: list[Any]) -> None:
    one, two = (reading.decoded(COMPACT.render(value)) for value in pair)
    forms = [fingerprint.canonical(_numbers(value)) for value in (one, two)]

    assert (_bare(one) == _bare(two)) is (forms[0] == forms[1])


def _numbers(value: Any) -> Any:
    match value:
        case Literal():
            return Number(value.text)
        case list() if not isinstance(value, Pairs):
            return [_numbers(inner) for inner in value]
        case dict():
            return {key: _numbers(inner) for key, inner in value.items()}
        case _:
            return value


def _bare(value: Any) -> Any:
    """True is no 1 here."""
    match value:
        case bool():
            return ("bool", value)
        case list():
            return [_bare(inner) for inner in value]
        case dict():
            return {key: _bare(inner) for key, inner in value.items()}
        case _:
            return value


@given(steps(), st.sampled_from(STYLES), st.sampled_from(STYLES))
def test_how_a_client_writes_is_not_what_was_said(step: list[Any], one, two) -> None:
    for message in step:
        assume(not isinstance(message, Pairs))
        a, b = read(message, one), read(message, two)

        assert a.link == b.link
        assert a.kept.digest == b.kept.digest
        assert (a.dropped.digest, a.dropped.said) == (b.dropped.digest, b.dropped.said)


@given(histories(max_steps=2), st.binary(max_size=20))
def test_what_stands_around_a_message_changes_nothing_but_offsets(history, around: bytes) -> None:
    for message in history.messages(len(history.chunks)):
        text = history.style.render(message)
        alone = fingerprint.read(text, 0, len(text), BEFORE)

        inside = fingerprint.read(
            around + text + around, len(around), len(around) + len(text), BEFORE
        )

        shift = len(around)
        moved = [replace(e, start=e.start + shift, end=e.end + shift) for e in alone.edits]
        slots = [(a + shift, b + shift) for a, b in alone.slots]
        expected = replace(
            alone, start=shift, end=shift + len(text), edits=tuple(moved), slots=tuple(slots)
        )
        assert expected == inside


@pytest.mark.parametrize(
    "raw",
    [b"5", b'"x"', b"null", b"[]", b"{", b"", b"\xff", b'{"role":["user"]}', b'{"role":null}',
     b'{"role":"assistant","reasoning":"a","content":' + b"[" * 101 + b"]" * 101 + b"}",
     b'{"role":"assistant","reasoning":"a","content":"\x01"}',
     b'{"role":"assistant","reasoning":"a","content":01}'],
)  # fmt: skip
def test_what_nobody_can_read_is_known_by_its_bytes_and_left_alone(raw: bytes) -> None:
    row, twin, other = read(raw), read(raw), read(raw + b" ")

    assert row == twin
    assert row.link != other.link
    assert ("", (), (), ()) == (row.role, row.calls, row.edits, row.slots)
    assert (Part.MESSAGE, len(raw)) == (row.kept.part, row.kept.size)


def test_one_odd_message_is_no_concern_of_the_next() -> None:
    before = read(b"{").link
    text = COMPACT.render(assistant(content="x", reasoning="a"))

    after = fingerprint.read(text, 0, len(text), before)

    assert after.edits
    assert fingerprint.read(text, 0, len(text), BEFORE).link != after.link


@pytest.mark.parametrize(
    ("message", "calls", "answers"),
    [
        (assistant(tool_calls=[call("a"), call("b")]), ("a", "b"), ""),
        (assistant(tool_calls=[{"function": {}}, 5, {"id": 7}]), ("", "", ""), ""),
        (assistant(tool_calls=[]), (), ""),
        (assistant(tool_calls="x"), (), ""),
        (assistant(function_call={"name": "f", "arguments": "{}"}), ("",), ""),
        (assistant(function_call="auto"), (), ""),
        ({"role": "tool", "tool_call_id": "a"}, (), "a"),
        ({"role": "tool", "tool_call_id": 5}, (), ""),
    ],
)
def test_calls_and_what_they_are_answered_by_are_read(
    message: Any, calls: Any, answers: Any
) -> None:
    row = read(message)

    assert (calls, answers) == (row.calls, row.answers)


def test_digests_do_not_run_together() -> None:
    rows = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), ()]

    assert len(rows) == len({fingerprint.digest(*row) for row in rows})
    assert 8 == len(fingerprint.digest(b"a", size=8))


def test_scopes_differ_by_credential_and_by_secret() -> None:
    scopes = [
        fingerprint.scope_of(None, b""),
        fingerprint.scope_of(None, b"secret"),
        fingerprint.scope_of(b"", b""),
        fingerprint.scope_of(b"key", b""),
        fingerprint.scope_of(b"key", b"secret"),
        fingerprint.scope_of(b"key", b"s" * 100),
        fingerprint.scope_of(b"key2", b"secret"),
    ]

    assert scopes[0] == scopes[1]
    assert 6 == len(set(scopes))
    assert len(set(scopes)) == len({fingerprint.root_of(scope) for scope in scopes})
    assert {16} == set(map(len, scopes))


def test_a_large_message_full_of_brackets_and_commas_is_read() -> None:
    text = json.dumps(assistant(content="[{,}]" * 50_000, reasoning="a")).encode()

    assert read(text).edits


# The fast ways and the slow one

WORDS = st.sampled_from(
    ["", " ", "a", " a\n", "<think>x</think>y", " \n<think>x</think>", "é🙂", "\ud83d",
     '"reasoning_content":"']
)  # fmt: skip
CALLS = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["c1", "", "functions.bash:0"]),
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": WORDS, "arguments": st.sampled_from(["{}", '{"a": 1.50}', "not json", ""])},
            optional={"extra": WORDS},
        ),
    },
    optional={"index": st.integers(0, 2), "extra_content": WORDS},
)
PLAIN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool", "system", "assistant", "developer", ""])},
    optional={
        "content": st.none() | WORDS,
        "tool_call_id": st.none() | WORDS,
        "reasoning_content": st.none() | WORDS | st.just(["x"]),
        "tool_calls": st.none() | st.lists(CALLS | st.none(), max_size=2),
        "name": WORDS,
    },
)


@given(
    PLAIN, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]), st.booleans(), st.data()
)
def test_a_message_read_the_fast_way_is_what_the_slow_way_makes_of_it(
    message: dict[str, Any], separators: tuple[str, str], ascii: bool, data: st.DataObject
) -> None:
    keys = data.draw(st.permutations(list(message)))
    rows = {key: message[key] for key in keys}
    lone = not ascii and "\\ud83d" in json.dumps(rows)
    text = json.dumps(rows, separators=separators, ensure_ascii=ascii or lone)
    body = b"[" + text.encode() + b"]"

    fast = fingerprint.read(body, 1, len(body) - 1, b"b" * 16)

    decoded = chat.exact(body[1:-1])
    assert fingerprint.read_slowly(body, 1, len(body) - 1, b"b" * 16, decoded) == fast


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"assistant","reasoning_content":"a","reasoning\\u005fcontent":"b"}',
        b'{"role":"assistant","reasoning_content":5,"reasoning\\u005fcontent":"b"}',
        b'{"role":"assistant","reasoning_content":"a","reasoning_content":"b"}',
        b'{"role":"assistant","content":"a","content":"b","reasoning_content":"\\\\\\"a"}',
        b'{"role":"assistant","role":"assistant","reasoning_content":"a"}',
    ],
)
def test_a_message_that_repeats_a_key_keeps_its_reasoning(raw: bytes) -> None:
    assert () == read(raw).edits


@pytest.mark.parametrize("text", ["a", '"', "\\", '\\"', '\\\\"', '"reasoning_content":"b"'])
def test_a_thought_is_found_whatever_is_quoted(text: str) -> None:
    for content in ("said", text):
        message = {"role": "assistant", "reasoning_content": text, "content": content}
        raw = json.dumps(message, separators=(",", ":")).encode()

        left = json.loads(chat.apply(raw, read(raw).edits))

        assert {**message, "reasoning_content": ""} == left
        assert read(raw) == fingerprint.read_slowly(raw, 0, len(raw), BEFORE, chat.exact(raw))
