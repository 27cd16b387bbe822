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
from proxy.core.contract import Encoding, Requires
from proxy.core.dialect import Wire
from proxy.core.fingerprint import Message
from proxy.core.form import Shape
from proxy.core.replies import Reply, echoes
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
    text = (text.replace("</think>", "") or "a") if carrier == "think" else text
    details = b""
    if carrier == "reasoning_details" or draw(st.integers(0, 3)) == 0:
        rows = [{"type": "reasoning.text", "text": text, "index": 0}]
        details = draw(st.sampled_from((b"", json.dumps(rows).encode())))
    if carrier == "think":
        text = f"{draw(made.blanks)}<think>{text}</think>{draw(made.blanks)}"
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


def said(message: Any, loose: bool = False) -> Any:
    """What a message says, its reasoning aside: a text is as good as one part that holds it,
    nothing as good as an empty text; arguments count as values, numbers by their literals. `loose`:
    blanks at the start of the text are not looked at, since those behind a thought are the
    thought's.
    """
    pairs = reading.without_reasoning(message)
    if pairs is message:
        return message
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

    assert said(reading.decoded(came), loose) == said(reading.decoded(out), loose)
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
    if not echoes(chat.exact(case.came.raw), reply):
        return
    out = chat.exact(case.left())
    text = reasoning.think_in(reply.reasoning) if reply.carrier == "think" else reply.reasoning

    texts = {key: it for key, it in held(out).items() if not wire.reads or key in wire.reads}
    if "</think>" in text:
        texts.pop("think", None)  # it would end there
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

    left = replace(shape.element, put_back=False)
    assert (arrived.digest, arrived.reasoning) == (left.digest, left.reasoning)
    assert case.kind is Kind.DROP or arrived == left  # the frame of a thought is no size
    assert shape.element.put_back is bool({"restored", "arguments"} & {*shape.did})


# What is put back, one by one

KEPT = Kind.KEEP
CALL = {"id": "c0", "type": "function", "function": {"name": "bash", "arguments": '{"a": 1}'}}
WAS = Reply("reasoning_content", "why \n", b"", ('{"a":  1}',))


def assistant(content: Any = "said", **more: Any) -> bytes:
    return COMPACT.render({"role": "assistant", "content": content, **more})


def sent(raw: bytes, reply: Reply | None, kind: Kind = KEPT, **wire: Any) -> Any:
    """The message as it leaves, decoded."""
    return json.loads(left(raw, kind, reply, Wire(**wire)))


def did(raw: bytes, reply: Reply | None, kind: Kind = KEPT, **wire: Any) -> tuple[str, ...]:
    shape = shaped(raw, kind, reply, Wire(**wire))
    return shape.did if shape else ()


def part(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def said_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


THOUGHT = "<think>why \n</think>"


@pytest.mark.parametrize(
    ("reads", "came", "expected"),
    [
        # What is lost goes to the preferred carrier, where none is known to that of the reply.
        ((), {}, {"reasoning_content": "why \n"}),
        (("reasoning",), {}, {"reasoning": "why \n"}),
        (("think", "reasoning"), {}, {"content": THOUGHT + "said"}),
        (("content_parts",), {}, {"content": [part("why \n"), said_part("said")]}),
        # What was trimmed is made whole, wherever it is read; an empty field would hide it.
        (("reasoning",), {"reasoning": "why"}, {"reasoning": "why \n"}),
        (
            ("reasoning", "reasoning_content"),
            {"reasoning": "", "reasoning_content": "why"},
            {"reasoning": "why \n", "reasoning_content": "why \n"},
        ),
        ((), {"content": "<think>why</think>\nsaid"}, {"content": THOUGHT + "\nsaid"}),
        (
            ("content_parts",),
            {"content": [said_part("said"), part("w"), part("hy")]},
            {"content": [part("why \n"), said_part("said")]},
        ),
        (
            ("think",),
            {"content": [said_part("<think>w</think>said"), said_part("too")]},
            {"content": [said_part(THOUGHT + "said"), said_part("too")]},
        ),
        # What is not read goes to what is, and is not said twice.
        (("reasoning",), {"reasoning_content": "why \n"}, {"reasoning": "why \n"}),
        (
            ("reasoning",),
            {"content": "<think>why</think>said"},
            {"reasoning": "why \n", "content": "said"},
        ),
        (
            ("reasoning",),
            {"content": [part("why"), said_part("said")]},
            {"reasoning": "why \n", "content": [said_part("said")]},
        ),
        (("think",), {"content": [part("why")]}, {"content": THOUGHT}),
        (
            ("content_parts",),
            {"content": "<think>why</think>said"},
            {"content": [part("why \n"), said_part("said")]},
        ),
        (
            ("content_parts", "think"),
            {"content": [part("w"), said_part("<think>w</think>said")]},
            {"content": [part("why \n"), said_part(THOUGHT + "said")]},
        ),
        # Without a text there is still a place.
        (("think",), {"content": None}, {"content": THOUGHT}),
        (("content_parts",), {"content": None}, {"content": [part("why \n")]}),
        (("content_parts",), {"content": ""}, {"content": [part("why \n")]}),
        # What stands in its place and is no reasoning was said: the next carrier will do.
        (
            ("reasoning", "reasoning_content"),
            {"reasoning": 5},
            {"reasoning": 5, "reasoning_content": "why \n"},
        ),
        (
            ("think", "reasoning"),
            {"content": {"a": 1}},
            {"content": {"a": 1}, "reasoning": "why \n"},
        ),
        (
            ("think", "reasoning"),
            {"content": [{"type": "image_url"}]},
            {"content": [{"type": "image_url"}], "reasoning": "why \n"},
        ),
    ],
)
def test_what_was_generated_is_put_back(
    reads: tuple[str, ...], came: dict[str, Any], expected: dict[str, Any]
) -> None:
    raw = assistant(**came)

    out = sent(raw, WAS, reads=reads, restores=True)

    whole = {"role": "assistant", "content": "said", **came, **expected}
    assert {key: value for key, value in whole.items() if key in out} == out
    assert expected.items() <= out.items()


def test_where_nothing_can_hold_it_a_message_leaves_as_it_came() -> None:
    closing = Reply("reasoning", "a</think>b")
    for reads, content in ((("think",), "said"), (("reasoning_details",), "x"), (("think",), 5)):
        raw = assistant(content, reasoning="mine")
        assert raw == left(raw, KEPT, closing, Wire(reads=reads, restores=True))
        assert raw == left(raw, KEPT, None, Wire(reads=("reasoning_details",)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("said", "\n<think>why</think>\n\nsaid"),
        ("\n\n\nsaid", "\n<think>why</think>\n\nsaid"),
        ("\n<think>wh</think>\nsaid", "\n<think>why</think>\n\nsaid"),
        ("\n<think>why</think>\n\nsaid", "\n<think>why</think>\n\nsaid"),
    ],
)
def test_a_thought_from_within_a_text_comes_back_with_its_own_blanks(
    content: str, expected: str
) -> None:
    reply = Reply("think", "\n<think>why</think>\n\n")

    for reads in ((), ("think",), ("reasoning_content",)):
        out = sent(assistant(content), reply, reads=reads, restores=True)
        assert {"role": "assistant", "content": expected} == out


def test_bytes_that_say_the_same_are_left_alone() -> None:
    thought = b'"reasoning":"\\u0077hy \\n","content":"\\u003cthink>why \\n</think>x"'
    raw = b'{"role":"assistant",%b}' % thought

    assert raw == left(raw, KEPT, WAS, Wire(restores=True))
    assert raw == left(raw, KEPT, None, Wire(reads=("reasoning",)))


ITEMS = [{"type": "reasoning.text", "text": "why \n", "format": "x", "n": 1.0}]
DETAILS = json.dumps(ITEMS).encode()
ROUTED = ("reasoning_details", "reasoning")


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        ({}, {"reasoning_details": ITEMS}),
        ({"reasoning": "why"}, {"reasoning_details": ITEMS, "reasoning": "why \n"}),
        ({"reasoning_details": ITEMS[:0]}, {"reasoning_details": ITEMS}),
        ({"reasoning_details": [{"text": "\ud83d"}]}, {"reasoning_details": ITEMS}),
        ({"reasoning_details": 5}, {"reasoning_details": 5, "reasoning": "why \n"}),
    ],
)
def test_details_come_back_whole(came: dict[str, Any], expected: dict[str, Any]) -> None:
    reply = Reply("reasoning", "why \n", DETAILS)

    out = sent(assistant(**came), reply, reads=ROUTED, restores=True)

    assert {"role": "assistant", "content": "said", **expected} == out


def test_details_in_another_spelling_are_the_same() -> None:
    raw = b'{"role":"assistant","reasoning_details":%b}' % DETAILS.replace(b", ", b",\n")

    assert raw == left(raw, KEPT, Reply("reasoning", "why \n", DETAILS), Wire(restores=True))


def test_details_that_nobody_generated_do_not_hide_what_was() -> None:
    mine, same = [{"type": "reasoning.text", "text": "mine"}], [{"type": "x", "text": "why \n"}]

    assert {"role": "assistant", "content": "said", "reasoning": "why \n"} == sent(
        assistant(reasoning_details=mine), WAS, reads=ROUTED, restores=True
    )
    raw = assistant(reasoning_details=same)
    assert raw == left(raw, KEPT, WAS, Wire(reads=ROUTED, restores=True))


def test_details_without_a_text_come_back_where_they_are_read_and_else_nothing_does() -> None:
    sealed = [{"type": "reasoning.encrypted", "data": "c2Vh"}]
    reply = Reply("reasoning_details", "", json.dumps(sealed).encode())
    raw = assistant(reasoning="mine")

    assert sealed == sent(raw, reply, reads=ROUTED, restores=True)["reasoning_details"]
    out = sent(raw, reply, reads=("reasoning_content",), restores=True)
    assert {"role": "assistant", "content": "said", "reasoning_content": "mine"} == out


def test_a_field_that_has_to_be_there_says_what_other_carriers_say() -> None:
    wire: Any = {"reads": ROUTED, "requires": Requires.EVERY, "restores": True}
    reply = Reply("reasoning", "why \n", DETAILS)

    out = sent(assistant(), reply, **wire)

    assert (ITEMS, "why \n") == (out["reasoning_details"], out["reasoning"])
    assert ("restored", "restored") == did(assistant(), reply, **wire)


@pytest.mark.parametrize(
    ("raw", "reply", "wire", "expected"),
    [
        (assistant(), WAS, {"restores": True}, ("restored",)),
        (assistant(reasoning="why"), WAS, {"restores": True}, ("restored",)),
        (assistant(reasoning="why \n"), WAS, {"restores": True}, ()),
        (
            assistant(reasoning="why"),
            WAS,
            {"reads": ("reasoning_content",), "restores": True},
            ("moved",),
        ),
        (assistant(reasoning="x"), None, {"reads": ("reasoning_content",)}, ("moved",)),
        (assistant(reasoning=""), None, {"reads": ("reasoning_content",)}, ()),
        (assistant(), None, {"requires": Requires.EVERY}, ("placeholder",)),
        (assistant(), None, {"requires": Requires.TOOL_CALLS}, ()),
        (assistant(tool_calls=[CALL]), None, {"requires": Requires.TOOL_CALLS}, ("placeholder",)),
        (assistant(tool_calls=[CALL]), WAS, {"repairs": True}, ("arguments",)),
    ],
)
def test_what_is_done_is_told(
    raw: bytes, reply: Reply | None, wire: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert expected == did(raw, reply, **wire)


def test_an_empty_field_that_is_not_read_goes() -> None:
    raw = b'{"role":"assistant", "reasoning":"", "content":"<think>x</think>said"}'

    out = left(raw, KEPT, None, Wire(reads=("reasoning_content",)))

    assert b'{"role":"assistant", "content":"<think>x</think>said"}' == out


def test_the_longest_of_what_is_not_read_is_moved() -> None:
    raw = assistant(reasoning="a", reasoning_text="abc", reasoning_details=[{"text": "ab"}])

    out = sent(raw, None, reads=("reasoning_content",))

    assert {"role": "assistant", "content": "said", "reasoning_content": "abc"} == out


# Arguments


@pytest.mark.parametrize(
    ("came", "generated", "expected"),
    [
        ('{"a":1}', '{"a":  1}', '{"a":  1}'),
        ('{"b":[1.0,true],"a":"\\u00e9"}', '{"a": "é", "b": [1.0, true]}', None),
        ('{"a":18446744073709551616}', '{"a": 18446744073709551617}', ""),
        ('{"a":1}', '{"a": 1.0}', ""),
        ('{"a":1}', '{"a": true}', ""),
        ('{"a":100000.0}', '{"a": 1e5}', ""),
        ('{"a":[1,2]}', '{"a": [1]}', ""),
        ('{"a":[1,2]}', '{"a": [2, 1]}', ""),
        ('{"a":1}', '{"a": 1, "cache_control": 2}', ""),
        ("[]", "{}", ""),
        ("not JSON", "not  JSON", ""),
        ('{"a":"\\ud83d"}', '{"a": "\\ud83d"}', None),
    ],
)
def test_arguments_that_say_the_same_leave_as_they_were_generated(
    came: str, generated: str, expected: str | None
) -> None:
    """`expected` is empty where the client's own stand, None where the generated ones do."""
    call = {**CALL, "function": {"name": "bash", "arguments": came}}
    reply = Reply("", "", b"", (generated,))

    out = sent(assistant(tool_calls=[call]), reply, repairs=True)

    wanted = {"": came, None: generated}.get(expected, expected)
    assert wanted == out["tool_calls"][0]["function"]["arguments"]


ODD_CALLS = [
    [],
    {},
    [CALL, CALL],
    [{**CALL, "function": 5}],
    [{**CALL, "function": {"name": "bash", "arguments": {"a": 1}}}],
    [{**CALL, "function": {"name": "bash"}}],
    [{"id": "c0"}],
    [{"id": "c0", "type": "custom", "custom": {"name": "bash", "input": '{"a": 1}'}}],
    [5],
]


@pytest.mark.parametrize("calls", ODD_CALLS)
def test_calls_that_are_not_those_of_the_reply_stay(calls: Any) -> None:
    raw = assistant(tool_calls=calls)

    assert raw == left(raw, KEPT, WAS, Wire(repairs=True))


def test_a_call_that_repeats_a_key_stays() -> None:
    function = Pairs([("arguments", '{"a": 1}'), ("arguments", '{"a": 1}')])
    raw = COMPACT.render({"role": "assistant", "tool_calls": [{**CALL, "function": function}]})

    assert raw == left(raw, KEPT, WAS, Wire(repairs=True))


# What is dropped


@pytest.mark.parametrize(
    ("raw", "wire", "expected"),
    [
        (b'{"reasoning":"x","role":"assistant"}', {}, b'{"reasoning":"","role":"assistant"}'),
        (
            b'{"reasoning":"x", "role":"assistant"}',
            {"encoding": Encoding.ABSENT},
            b'{"role":"assistant"}',
        ),
        (
            b'{"reasoning":"x","role":"assistant"}',
            {"encoding": Encoding.ABSENT, "requires": Requires.EVERY},
            b'{"reasoning":"","role":"assistant"}',
        ),
        (
            b'{"role":"assistant","reasoning":"x","reasoning_content":""}',
            {"reads": ("reasoning_content",)},
            b'{"role":"assistant","reasoning_content":""}',
        ),
        (
            b'{"role":"assistant","reasoning":null}',
            {"requires": Requires.EVERY, "reads": ("reasoning",)},
            b'{"role":"assistant","reasoning":""}',
        ),
        (
            b'{"role":"assistant","reasoning_details":[]}',
            {"reads": ("reasoning",)},
            b'{"role":"assistant"}',
        ),
        (b'{"role":"assistant","reasoning_details":[]}', {}, None),
        (b'{"role":"assistant","content":[{"type":"thinking","thinking":""}]}', {}, None),
        (b'{"role":"assistant","reasoning":5}', {"requires": Requires.EVERY}, b""),
    ],
)
def test_a_drop_is_written_as_it_is_taken(
    raw: bytes, wire: dict[str, Any], expected: bytes | None
) -> None:
    """`expected` is None where it leaves as it came, empty where another field is put in."""
    out = left(raw, Kind.DROP, None, Wire(**wire))

    other = b'{"reasoning_content":"",' + raw[1:]
    assert {None: raw, b"": other}.get(expected, expected) == out


@pytest.mark.parametrize(
    "seal", [{"thought_signature": "x"}, {"tool_calls": [{**CALL, "thought_signature": "x"}]}]
)
def test_a_signature_on_a_call_is_never_touched(seal: dict[str, Any]) -> None:
    raw = assistant(reasoning="x", **seal)

    assert raw == left(raw, Kind.DROP, None, Wire(seals_may_go=True))


def test_sealed_reasoning_goes_whole_where_that_is_allowed() -> None:
    seal = [{"type": "reasoning.encrypted", "data": "c2Vh"}]
    raw = assistant(reasoning="x", reasoning_details=seal)

    shape = shaped(raw, Kind.DROP, None, Wire(seals_may_go=True))

    assert {"role": "assistant", "content": "said", "reasoning": ""} == sent(
        raw, None, Kind.DROP, seals_may_go=True
    )
    assert shape is not None
    assert shape.drops
    assert raw == left(raw, Kind.DROP, None, Wire())


def test_what_repeats_a_key_inside_leaves_as_it_came() -> None:
    inside = Pairs([("type", "text"), ("text", "<think>a</think>"), ("text", "<think>b</think>")])
    raw = COMPACT.render({"role": "assistant", "reasoning": "x", "content": [inside]})

    for kind in (KEPT, Kind.DROP):
        assert raw == left(raw, kind, WAS, Wire(restores=True))


def test_a_message_too_deep_to_be_looked_into_leaves_as_it_came() -> None:
    body, message = read(assistant(reasoning="x"))
    deep = COMPACT.render({"role": "assistant", "x": Literal("[" * 200 + "]" * 200)})

    assert None is form.shape(deep, replace(message, start=0, end=len(deep)), KEPT, WAS, Wire())
    assert b"x" in body


SEALED = [{"type": "reasoning.encrypted", "data": "c2Vh"}]


@pytest.mark.parametrize(
    ("raw", "drop", "wire", "plain"),
    [
        (assistant(), False, {"reads": ("reasoning",)}, True),
        (assistant(), False, {"requires": Requires.TOOL_CALLS}, True),
        (assistant(tool_calls=[CALL]), False, {"requires": Requires.TOOL_CALLS}, False),
        (assistant(), True, {"requires": Requires.EVERY}, False),
        (assistant(reasoning=""), True, {"requires": Requires.EVERY}, True),
        (assistant(reasoning="x"), False, {"reads": ("reasoning",)}, True),
        (assistant(reasoning="x"), True, {"reads": ("reasoning_content",)}, False),
        (assistant(reasoning="x"), True, {"encoding": Encoding.ABSENT}, False),
        (assistant(reasoning="x"), False, {"encoding": Encoding.ABSENT}, True),
        (assistant(THOUGHT), True, {"reads": ("reasoning",)}, True),
        (assistant([part("x")]), False, {"reads": ("reasoning",)}, False),
        (assistant(reasoning_details=SEALED), True, {}, True),
        (assistant(reasoning_details=SEALED), True, {"seals_may_go": True}, False),
    ],
)
def test_a_plain_message_is_known_without_looking(
    raw: bytes, drop: bool, wire: dict[str, Any], plain: bool
) -> None:
    assert plain == form.is_plain(read(raw)[1], drop, Wire(**wire))


@given(cases(answered=False))
def test_a_plain_wire_changes_nothing_that_a_drop_does_not(case: Case) -> None:
    wire = Wire(writes=case.wire.writes)
    body, message = read(case.came.raw)

    assert wire.is_plain
    assert not case.wire.is_plain or not case.wire.reads
    assert form.is_plain(message, case.kind is Kind.DROP, wire)
