"""Forms: however a message came and however it has to leave, what was said stays as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core import fingerprint, form, reasoning
from proxy.core.contract import UNKNOWN, Contract, Encoding, Remedy, Requires
from proxy.core.fingerprint import Message
from proxy.core.form import Shape, Wire
from proxy.core.replies import Reply
from proxy.core.verdict import Kind
from proxy.core.wire import chat
from proxy.forms import Forms
from tests.laws import histories as made
from tests.laws import reading
from tests.laws.rendering import COMPACT, PYTHON, STYLES, Literal, Pairs, Style

CARRIERS = (*reasoning.STRING_CARRIERS, "reasoning_details", "content_parts", "think")
_BEFORE, _AFTER = b'{"messages":[{"role":"user","content":"go"},', b"]}"


def read(raw: bytes, before: bytes = _BEFORE, after: bytes = _AFTER) -> tuple[bytes, Message]:
    """A body with the message in it, and the message."""
    body = before + raw + after
    return body, fingerprint.read(body, len(before), len(before) + len(raw), b"before")


def shaped(raw: bytes, kind: Kind, reply: Reply | None, wire: Wire) -> Shape | None:
    return form.shape(*read(raw), kind, reply, wire)


def left(raw: bytes, kind: Kind, reply: Reply | None, wire: Wire) -> bytes:
    """The message as it leaves: in its shape, else less what a drop takes out anyhow."""
    body, message = read(raw)
    shape = form.shape(body, message, kind, reply, wire)
    plain = message.edits if kind is Kind.DROP else ()
    out = chat.apply(body, shape.edits if shape else plain)
    assert out.startswith(_BEFORE)
    assert out.endswith(_AFTER)
    return out[len(_BEFORE) : len(out) - len(_AFTER)]


# What comes: messages in any state, replies that they echo more or less, wires of all kinds.

spellings = (COMPACT, PYTHON, Style(html=True, slashes=True), Style(" , ", " :  ", ascii=True))
values = st.dictionaries(made.texts, made.odd_values, max_size=3)


class Came(NamedTuple):
    """A message as it came, and the argument texts of its calls as they may have been before."""

    raw: bytes
    arguments: tuple[str, ...]


def written(style: Style, value: Any) -> str:
    return style.render(value).decode("utf-8", "surrogateescape")


@st.composite
def messages(draw: st.DrawFn) -> Came:
    message = draw(made.assistants(draw(st.integers(0, 3))))
    if not draw(st.sampled_from((False, False, False, True))):
        message = plain(dict(message))
    before = []
    for call in dict(message).get("tool_calls", ()):
        value, spelled = draw(values | made.odd_values), st.sampled_from(spellings)
        call["function"]["arguments"] = written(draw(spelled), value)
        other = draw(values) if draw(st.integers(0, 5)) == 0 else value
        before.append(written(draw(spelled), other))
    raw = draw(st.sampled_from(STYLES)).render(message)
    return Came(raw, tuple(before))


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Without a key twice, without a seal on the message itself."""
    return {key: value for key, value in message.items() if key not in reasoning.SEALED_MEMBERS}


def texts_in(raw: bytes) -> list[str]:
    value = chat.exact(raw)
    return [text for _, text in reasoning.texts_of(value)] if isinstance(value, dict) else []


@st.composite
def replies(draw: st.DrawFn, came: Came) -> Reply:
    """What may have been generated: what came, what came less blanks, or something else."""
    said = made.thoughts | st.sampled_from([*texts_in(came.raw), "thought \n"])
    text = draw(said) + draw(st.sampled_from(("", "", " \n")))
    carrier = draw(st.sampled_from(("", *CARRIERS)))
    if carrier == "think":
        inner = text.replace("</think>", "") or "a"
        text = f"{draw(made.blanks)}<think>{inner}</think>{draw(made.blanks)}"
    details = b""
    if carrier == "reasoning_details" or draw(st.integers(0, 3)) == 0:
        rows = [{"type": "reasoning.text", "text": text, "index": 0}]
        details = draw(st.sampled_from((b"", json.dumps(rows).encode())))
    arguments = came.arguments if draw(st.integers(0, 5)) else came.arguments[1:]
    return Reply(carrier, text if carrier else "", details, arguments)


wires = st.builds(
    Wire,
    st.lists(st.sampled_from(CARRIERS), max_size=3, unique=True).map(tuple),
    st.sampled_from(("", *CARRIERS)),
    st.sampled_from(Encoding),
    st.sampled_from(Requires),
    st.booleans(),
    st.sampled_from((True, True, False)),
    st.sampled_from((True, True, False)),
    st.booleans(),
    st.booleans(),
)
kinds = st.sampled_from((Kind.KEEP, Kind.DROP))


class Case(NamedTuple):
    came: Came
    kind: Kind
    reply: Reply | None
    wire: Wire

    def left(self) -> bytes:
        return left(self.came.raw, self.kind, self.reply, self.wire)

    @property
    def is_odd(self) -> bool:
        """Whether nobody can say where its members stand."""
        return any(isinstance(value, Pairs) for value in within(reading.decoded(self.came.raw)))

    @property
    def is_sealed(self) -> bool:
        return read(self.came.raw)[1].sealed


def within(value: Any) -> list[Any]:
    """A message, and the parts of its content."""
    content = dict(value).get("content")
    return [value, *(content if isinstance(content, list) else [])]


@st.composite
def cases(draw: st.DrawFn, kind: Kind | None = None, answered: bool | None = None) -> Case:
    came = draw(messages())
    has_reply = draw(st.sampled_from((True, True, False))) if answered is None else answered
    reply = draw(replies(came)) if has_reply else None
    return Case(came, kind or draw(kinds), reply, draw(wires))


# What was said

_EMPTY: tuple[Any, ...] = (None, "", [])


def said(raw: bytes, loose: bool = False) -> Any:
    """What a message says, its reasoning aside: a text is as good as one part that holds it,
    nothing as good as an empty text; arguments count as values, numbers by their literals. `loose`:
    blanks at the start of the text are not looked at, since those behind a thought are the
    thought's.
    """
    pairs = reading.without_reasoning(reading.decoded(raw))
    if not isinstance(pairs, list):
        return pairs
    carriers = (*reasoning.STRING_CARRIERS, "reasoning_details")
    rows = [(key, _valued(key, value, loose)) for key, value in pairs]
    rows = [row for row in rows if not (row[0] in carriers and row[1] is None)]
    return sorted(((k, v) for k, v in rows if k != "content" or v != ""), key=lambda row: row[0])


def _valued(key: str, value: Any, loose: bool) -> Any:
    if key == "tool_calls" and isinstance(value, list):
        return [_call(call) for call in value]
    if key != "content":
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        if value[0].keys() == {"type", "text"} and value[0]["type"] == "text":
            value = value[0]["text"]
    if loose and isinstance(value, list):
        value = [_loose(part) for part in value]
    if isinstance(value, str) and loose:
        return value.lstrip()
    return "" if value in _EMPTY else value


def _loose(part: Any) -> Any:
    text = part.get("text") if isinstance(part, dict) else None
    return {**part, "text": text.lstrip()} if isinstance(text, str) else part


def _call(call: Any) -> Any:
    text = call["function"]["arguments"]
    return {**call, "function": {**call["function"], "arguments": _parsed(text)}}


def _parsed(text: str) -> Any:
    try:
        return reading.decoded(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return text


def keys_of(raw: bytes) -> list[str]:
    value = reading.decoded(raw)
    return [key for key, _ in (value if isinstance(value, Pairs) else value.items())]


def nulls(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, Pairs):
        value = [inner for _, inner in value]
    return sum(map(nulls, value)) if isinstance(value, list) else int(value is None)


@given(cases())
def test_nothing_but_reasoning_changes(case: Case) -> None:
    came, out = case.came.raw, case.left()
    loose = "think" in (*case.wire.reads, case.wire.writes, case.reply and case.reply.carrier)

    assert said(came, loose) == said(out, loose)
    stay = [key for key in keys_of(out) if key in keys_of(came)]
    assert [key for key in keys_of(came) if key in stay] == stay
    assert {*keys_of(out)} - {*keys_of(came)} <= {*CARRIERS, "content"}
    assert nulls(reading.decoded(out)) <= nulls(reading.decoded(came))


@given(cases())
def test_what_left_leaves_as_it_is(case: Case) -> None:
    once = case.left()

    assert once == left(once, case.kind, case.reply, case.wire)


@given(cases())
def test_what_is_sealed_leaves_as_it_came_or_goes_whole(case: Case) -> None:
    if not case.is_sealed:
        return
    out = case.left()
    if case.kind is Kind.KEEP or not case.wire.seals_may_go:
        assert case.came.raw == out
    elif out != case.came.raw:
        assert not reading.is_sealed(reading.decoded(out))
        assert not reading.reasoning_in(reading.decoded(out))


@given(cases(answered=False))
def test_a_plain_message_needs_no_shape(case: Case) -> None:
    body, message = read(case.came.raw)
    if not form.is_plain(message, case.kind is Kind.DROP, case.wire):
        return
    shape = form.shape(body, message, case.kind, None, case.wire)

    plain = message.edits if case.kind is Kind.DROP else ()
    assert shape is None or plain == shape.edits


@given(cases(Kind.DROP))
def test_a_drop_leaves_no_reasoning_in_any_carrier(case: Case) -> None:
    if case.is_odd or case.is_sealed:
        return
    out = reading.decoded(case.left())

    assert not reading.reasoning_in(out)
    if case.wire.encoding is Encoding.ABSENT and case.wire.requires is Requires.NOTHING:
        strings = [key for key in reading.STRINGS if isinstance(out.get(key), str)]
        assert [] == strings


def held(value: Any) -> dict[str, Any]:
    """The carriers of a message that hold something, with what."""
    return dict(reasoning.texts_of(value))


@given(cases(Kind.KEEP, answered=True))
def test_what_is_kept_leaves_as_it_was_generated_in_every_carrier_that_is_read(case: Case) -> None:
    reply, wire = case.reply, case.wire
    if reply is None or not reply.reasoning or not wire.restores or case.is_odd or case.is_sealed:
        return
    out = chat.exact(case.left())
    text = reasoning.think_in(reply.reasoning) if reply.carrier == "think" else reply.reasoning

    texts = {key: it for key, it in held(out).items() if not wire.reads or key in wire.reads}
    assert {key: text for key in texts} == texts
    read_strings = [key for key in reasoning.STRING_CARRIERS if not wire.reads or key in wire.reads]
    assert [] == [key for key in read_strings if out.get(key) == ""]
    if any(out.get(key) in (None, text) for key in read_strings):
        assert texts or "think" in held(out)


@given(cases())
def test_a_message_that_has_to_have_the_field_has_it(case: Case) -> None:
    wants = case.wire.requires
    calls = reading.decoded(case.came.raw)
    covered = wants is Requires.EVERY or (
        wants is Requires.TOOL_CALLS and bool(dict(calls).get("tool_calls"))
    )
    read_strings = [key for key in case.wire.reads or CARRIERS if key in reading.STRINGS]
    if not covered or case.is_odd or case.is_sealed or not read_strings:
        return
    out = reading.decoded(case.left())

    odd = [key for key in read_strings if not isinstance(out.get(key), str | None)]
    assert odd or any(isinstance(out.get(key), str) for key in read_strings)


surroundings = st.sampled_from((b"", b'{"messages":[', b'{"messages":[5,{"reasoning":"x"},'))


@given(cases(), surroundings, st.sampled_from((b"", b"]}", b',{"role":"user"}],"x":[]}')))
def test_what_stands_around_a_message_makes_no_difference(
    case: Case, before: bytes, after: bytes
) -> None:
    came, kind, reply, wire = case
    here, there = read(came.raw), read(came.raw, before, after)

    shape, other = (form.shape(*at, kind, reply, wire) for at in (here, there))

    moved = len(before) - len(_BEFORE)
    assert (shape and at(shape, moved)) == other


def at(shape: Shape, moved: int) -> Shape:
    edits = [replace(e, start=e.start + moved, end=e.end + moved) for e in shape.edits]
    return replace(shape, edits=tuple(edits))


@given(st.lists(cases(), min_size=1, max_size=3), surroundings)
def test_a_form_that_is_remembered_is_the_same(some: Sequence[Case], before: bytes) -> None:
    forms = Forms(7)
    for came, kind, reply, wire in [*some, *some]:
        for place in (_BEFORE, before):
            body, message = read(came.raw, place)
            expected = form.shape(body, message, kind, reply, wire)
            assert expected == forms.shape(body, message, kind, reply, wire)


@given(cases())
def test_a_shape_is_the_element_that_is_read_where_it_arrives(case: Case) -> None:
    shape = shaped(*(case.came.raw, case.kind, case.reply, case.wire))
    if shape is None:
        return
    arrived = read(case.left())[1].kept

    assert arrived.digest == shape.element.digest
    assert (arrived.size, arrived.reasoning) == (shape.element.size, shape.element.reasoning)
