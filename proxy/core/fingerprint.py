"""Names a history by what was said: a link digests the link before it and one message without its
reasoning.

Real clients flip some forms between turns, so they are not part of what was said: `cache_control`,
key order, `null` or `""` or no content, a string or one text part, and bookkeeping such as
`annotations`. Everything else is: role, exact text, tool calls with the argument text as sent, tool
result ids, images, unknown members. Numbers count by their literal, never through a float. Tool
results are opaque text.

The root of a chain carries the scope, so no link is ever shared between keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.core import reasoning
from proxy.core.sent import NO_TEXT, Element, Part
from proxy.core.wire import chat
from proxy.core.wire.chat import Edit, Number

_IGNORED = frozenset({"cache_control", "annotations", "logprobs", "status", "index", "id"})
_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_ABSENT: tuple[Any, ...] = (None, "", [])
_THOUGHT = (*reasoning.STRING_CARRIERS, *reasoning.LIST_CARRIERS, *reasoning.SEALED_MEMBERS)


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a request. Offsets are those of the body it was read from.

    `calls` are the ids of its tool calls, `answers` the id of the call that it answers. `carriers`
    are the fields in which it has reasoning, empty ones too. `kept` and
    `dropped` are the element it becomes under either verdict; the same object where there is no
    reasoning to drop.
    """

    start: int
    end: int
    role: str
    link: bytes
    calls: tuple[str, ...]
    answers: str
    edits: tuple[Edit, ...]
    slots: tuple[tuple[int, int], ...]
    sealed: bool
    kept: Element
    dropped: Element
    carriers: tuple[str, ...] = ()


def digest(*parts: bytes, size: int = 16) -> bytes:
    """A digest over parts, each with its length, so that no two lists of parts run together."""
    hashed = blake2b(digest_size=size)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.digest()


def scope_of(credential: bytes | None, secret: bytes) -> bytes:
    """The scope of a request (16 bytes): a digest of its credential, keyed by the secret if any."""
    if credential is None:
        return digest(b"anonymous")
    return blake2b(credential, key=secret[:64], digest_size=16, person=b"lethe-scope").digest()


def hint(scope: bytes, name: str) -> bytes:
    """A name within a scope (16 bytes): of a session, of a tool call."""
    raw = name.encode("utf-8", "surrogatepass")
    return blake2b(raw, key=scope, digest_size=16, person=b"lethe-hint").digest()


LONGEST = 128
"""Characters of a name from outside as it is kept."""


def short(name: str, most: int = LONGEST) -> str:
    """A name from outside as it is kept; of a very long one its beginning, and a digest of all of
    it, which tells it apart as well. Names are remembered and compared: a client may send megabytes
    for one.
    """
    if len(name) <= most:
        return name
    tail = digest(utf8(name)).hex()
    return f"{name[: most - len(tail) - 1]}…{tail}"


def root_of(scope: bytes) -> bytes:
    """The link before the first message."""
    return digest(b"root", scope)


def read(body: bytes, start: int, end: int, before: bytes) -> Message:
    """Read the message at `body[start:end]`, whose chain so far ends in the link `before`.

    A message that no reader can decode is known by its bytes and never edited.
    """
    raw = body[start:end]
    try:
        message = chat.exact(raw)
    except ValueError:
        return _opaque(raw, start, before)
    if not isinstance(message, dict) or not isinstance(message.get("role", ""), str):
        return _opaque(raw, start, before)
    return _read(body, start, end, before, message)


def _opaque(raw: bytes, start: int, before: bytes) -> Message:
    said = digest(b"opaque", raw)
    element = Element(Part.MESSAGE, said, said, said[:8], len(raw), 0, "")
    link = digest(before, said)
    return Message(start, start + len(raw), "", link, (), "", (), (), False, element, element)


def _read(body: bytes, start: int, end: int, before: bytes, message: Mapping[str, Any]) -> Message:
    """The fast ways take what nearly all messages are; they give what the slow one gives."""
    keys, content, role = message.keys(), message.get("content"), message.get("role", "")
    if keys <= _SPOKEN and type(content) is str and role != "assistant":
        return _read_spoken(start, end, before, message, role, content)
    if keys <= _THOUGHT_OUT and role == "assistant":
        found = _read_thought_out(body, start, end, before, message)
        if found is not None:
            return found
    return read_slowly(body, start, end, before, message)


_SPOKEN = frozenset({"role", "content", "tool_call_id"})
_THOUGHT_OUT = frozenset({"role", "content", "reasoning_content", "tool_calls"})
# As far as a text may begin with a thought.
_OPENING = reasoning.MOST_BLANKS + len("<think>")


class _Text(NamedTuple):
    """A text with what is digested of it: exactly, and without the blanks around it."""

    raw: bytes
    exact: bytes
    core: bytes
    length: int


def _text_in(text: str) -> _Text:
    raw, core = utf8(text), utf8(text.strip())
    if len(core) == len(raw):
        gist = digest(raw) if raw else b""
        return _Text(raw, b"%b0," % gist if raw else b"", gist, len(raw))
    return _Text(raw, *_text_forms(text), len(core))


def _read_spoken(
    start: int, end: int, before: bytes, message: Mapping[str, Any], role: str, content: str
) -> Message:
    """A message of a role, a text and the id that it answers: of all but assistants."""
    text, answers = _text_in(content), message.get("tool_call_id")
    spoken = utf8(role)
    answered = () if answers in _ABSENT else (b"answers", canonical(answers))
    said = digest(spoken, text.exact, *answered)
    element = Element(
        Part.MESSAGE, said, said, digest(spoken, text.core, size=8), _FRAME + len(text.raw), 0,
        short(role), text.core[:8] or NO_TEXT, text.length,
    )  # fmt: skip
    link = digest(before, said)
    return Message(
        start, end, element.role, link, (), _id(answers), (), (), False, element, element
    )


def _read_thought_out(
    body: bytes, start: int, end: int, before: bytes, message: Mapping[str, Any]
) -> Message | None:
    """An assistant's text, thought and calls, each in its plainest form; None where one is not."""
    content, thought = message.get("content"), message.get("reasoning_content")
    calls = message.get("tool_calls", [])
    plain = content is None or (type(content) is str and "<think>" not in content[:_OPENING])
    if not (plain and type(calls) is list and all(map(_is_plain_call, calls))):
        return None
    slot = _thought_literal(body, start, end, message)
    if slot is None:
        return None
    text = _text_in(content or "")
    exact, gist, rendered = [b"assistant", text.exact], [b"assistant", text.core], len(text.raw)
    for call in calls:
        function = call["function"]
        name, arguments = utf8(function["name"]), utf8(function["arguments"])
        exact += (b"call", _plain_call(arguments, name, utf8(call["id"]), utf8(call["type"])))
        gist += (b"call", _call_gist(call))
        rendered += len(name) + len(arguments) + _CALL_FRAME
    said = digest(*exact)
    bare = Element(
        Part.MESSAGE, said, said, digest(*gist, size=8), _FRAME + rendered, 0,
        "assistant", text.core[:8] or NO_TEXT, text.length,
    )  # fmt: skip
    link, ids = digest(before, said), tuple([_id(call["id"]) for call in calls])
    carriers = () if thought is None else ("reasoning_content",)
    if not thought:
        return Message(start, end, "assistant", link, ids, "", (), (), False, bare, bare, carriers)
    size, form = len(utf8(thought)), canonical(thought)
    whole = digest(said, b"reasoning", b"reasoning_content", form)
    kept = replace(bare, digest=whole, reasoning=size, size=bare.size + size)
    edits = (Edit(slot[0], slot[1], b'""'),)
    return Message(
        start, end, "assistant", link, ids, "", edits, (slot,), False, kept, bare, carriers
    )


def _is_plain_call(call: Any) -> bool:
    if type(call) is not dict or call.keys() != _CALL or type(call["function"]) is not dict:
        return False
    function = call["function"]
    texts = (call["id"], call["type"], *function.values())
    return function.keys() == _FUNCTION and all([type(text) is str for text in texts])


def _thought_literal(
    body: bytes, start: int, end: int, message: Mapping[str, Any]
) -> tuple[int, int] | None:
    """Where the literal of `reasoning_content` stands; (0, 0) where it holds nothing, None where
    that is not sure.
    """
    thought = message.get("reasoning_content")
    if thought is None or thought == "":
        return (0, 0)
    return chat.value_range(body, start, end, "reasoning_content") if type(thought) is str else None


def read_slowly(
    body: bytes, start: int, end: int, before: bytes, message: Mapping[str, Any]
) -> Message:
    """Any message that decodes to `message`, whatever its members are."""
    role = message.get("role", "")
    exact, gist = _forms(message, role)
    said = digest(*exact)
    text, length = _text_of(message, gist[1])
    whole = digest(*gist, size=8)
    size = _rendered(message)
    bare = Element(Part.MESSAGE, said, said, whole, size, 0, short(role), text, length)
    found, kept, dropped = reasoning.NOTHING, bare, bare
    carriers: tuple[str, ...] = ()
    if role == "assistant":
        found, carriers = reasoning.find(body, start, end, message), reasoning.present(message)
        kept = _with_reasoning(bare, message, found.size)
        dropped = bare if found.edits else kept
    return Message(
        start, end, bare.role, digest(before, said), _calls(message),
        _id(message.get("tool_call_id")),
        found.edits, found.slots, found.sealed, kept, dropped, carriers,
    )  # fmt: skip


def _with_reasoning(bare: Element, message: Mapping[str, Any], size: int) -> Element:
    thought = list(_thought(message))
    if not thought:
        return bare
    whole = digest(bare.said, b"reasoning", *thought)
    return replace(bare, digest=whole, reasoning=size, size=bare.size + size)


_FRAME = 32
"""Bytes that a template puts around one message: ChatML's tags, role and line ends."""
_CALL_FRAME = 52
"""The same around one call: Hermes' and Qwen's `<tool_call>` with its JSON."""
_IMAGE = 4000
"""Bytes of text that one image is worth, about a thousand tokens; its own bytes say nothing."""


def _rendered(message: Mapping[str, Any]) -> int:
    """How much of a message a template renders, in bytes and about: what it says, not its JSON."""
    content, calls = message.get("content"), message.get("tool_calls")
    size = _FRAME + len(utf8(content)) if isinstance(content, str) else _FRAME
    if isinstance(content, list):
        parts = (part for part in content if not reasoning.is_reasoning_part(part))
        size += sum(map(_rendered_part, parts))
    elif isinstance(content, dict):
        size += len(canonical(content))
    for call in calls if isinstance(calls, list) else ():
        size += _CALL_FRAME + _rendered_call(call)
    if message.get("role") != "assistant":
        return size
    return size - len(utf8(reasoning.think_in(reasoning.first_text(content))))


def _rendered_call(call: Any) -> int:
    """A call's name and arguments; its id is not rendered."""
    inner = call.get("function") or call.get("custom") if isinstance(call, dict) else None
    if not isinstance(inner, dict):
        return len(canonical(call))
    return sum(len(utf8(value)) for value in inner.values() if isinstance(value, str))


def _rendered_part(part: Any) -> int:
    if isinstance(part, dict) and not isinstance(part.get("text"), str):
        return _IMAGE
    return len(utf8(part["text"])) if isinstance(part, dict) else len(canonical(part))


def _text_of(message: Mapping[str, Any], core: bytes) -> tuple[bytes, int]:
    """The digest of a message's text, blanks around it aside, and its length; none for parts."""
    text = plain_text(message)
    return (core[:8], len(utf8(text))) if text else (NO_TEXT, 0)


def plain_text(message: Mapping[str, Any]) -> str:
    """The text of a message that is nothing but one text, without the blanks around it."""
    content, assistant = message.get("content"), message.get("role") == "assistant"
    if isinstance(content, list):
        parts = [p for p in content if not (assistant and reasoning.is_reasoning_part(p))]
        content = parts[0]["text"] if len(parts) == 1 and _plain_part(parts[0]) else None
    if not isinstance(content, str):
        return ""
    return (reasoning.without_think(content) if assistant else content).strip()


def begins_with(message: Mapping[str, Any], earlier: Element) -> bool:
    """Whether the text of a message begins with the text of an earlier element, and goes on."""
    text = utf8(plain_text(message))
    if not 0 < earlier.length < len(text):
        return False
    return digest(text[: earlier.length])[:8] == earlier.text


def _thought(message: Mapping[str, Any]) -> Iterator[bytes]:
    """All of an assistant message that is rendered and was not said, as parts to digest."""
    for key in _THOUGHT:
        value = message.get(key)
        if value and reasoning.carries(key, value):
            yield from (key.encode(), canonical(value))
    content = message.get("content")
    if isinstance(content, list):
        placed = [[at, p] for at, p in enumerate(content) if reasoning.is_reasoning_part(p)]
        if placed:
            yield from (b"content", canonical(placed))
    text = reasoning.first_text(content)
    if span := reasoning.think_span(text):
        yield from (b"think", utf8(text[span[0] : span[1]]))


def _forms(message: Mapping[str, Any], role: str) -> tuple[list[bytes], list[bytes]]:
    """What was said as parts to digest: exactly, and in gist.

    The gist is what is left when another hand serialises the message anew: text stripped, arguments
    parsed, ids left out.
    """
    assistant = role == "assistant"
    content, core = _content(message.get("content"), assistant)
    exact, gist = [utf8(role), content], [utf8(role), core]
    answers = message.get("tool_call_id")
    if answers not in _ABSENT:
        exact += [b"answers", canonical(answers)]
    calls = message.get("tool_calls")
    if calls not in _ABSENT:
        for call in calls if isinstance(calls, list) else [calls]:
            exact += [b"call", _call(call)]
            gist += [b"call", _call_gist(call)]
    extra = _extra(message, assistant)
    if extra:
        exact += [b"extra", canonical(extra)]
    return exact, gist


def _extra(message: Mapping[str, Any], assistant: bool) -> dict[str, Any]:
    """Members that nobody here knows: they may be rendered, so they count."""
    return {
        key: value
        for key, value in message.items()
        if key not in _KNOWN
        and key not in _IGNORED
        and value not in _ABSENT
        and not (assistant and reasoning.carries(key, value))
    }


def _content(content: Any, assistant: bool) -> tuple[bytes, bytes]:
    """The content exactly, and in gist."""
    if isinstance(content, list):
        parts = [p for p in content if not (assistant and reasoning.is_reasoning_part(p))]
        if len(parts) != 1 or not _plain_part(parts[0]):
            form = b"".join(_parts(parts, assistant))
            return form, form
        content = parts[0]["text"]
    if isinstance(content, str):
        return _text_forms(reasoning.without_think(content) if assistant else content)
    form = b"" if content is None else canonical(content)
    return form, form


def _text_forms(text: str) -> tuple[bytes, bytes]:
    """A text exactly, and without the blanks around it; it is digested once for both."""
    if not text:
        return b"", b""
    core = text.strip()
    before = text[: len(text) - len(text.lstrip())] if core else ""
    after = text[len(before) + len(core) :]
    gist = digest(utf8(core)) if core else b""
    return b"%b%d,%b%b" % (gist, len(before), utf8(before), utf8(after)), gist


def _plain_part(part: Any) -> bool:
    """Whether a part is text and nothing else; `cache_control` aside."""
    return (
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and part.keys() <= {"type", "text", "cache_control"}
        and part.get("type", "text") == "text"
    )


def _parts(parts: Sequence[Any], assistant: bool) -> Iterator[bytes]:
    """Several parts; `<think>` is taken out of the first text only."""
    first = reasoning.first_text_part(parts) if assistant else None
    for at, part in enumerate(parts):
        if at == first:
            part = {**part, "text": reasoning.without_think(part["text"])}
        yield canonical(part)


_CALL = frozenset({"id", "type", "function"})
_FUNCTION = frozenset({"name", "arguments"})


def _call(call: Any) -> bytes:
    """A call in canonical form; nearly all have the same members, all of them texts."""
    if type(call) is dict and call.keys() == _CALL and type(call["function"]) is dict:
        function = call["function"]
        if function.keys() == _FUNCTION:
            texts = (function["arguments"], function["name"], call["id"], call["type"])
            if all([type(text) is str for text in texts]):
                return _plain_call(*map(utf8, texts))
    if isinstance(call, dict) and "index" in call:
        call = {key: value for key, value in call.items() if key != "index"}
    return canonical(call)


def _plain_call(arguments: bytes, name: bytes, id: bytes, kind: bytes) -> bytes:
    """What `canonical` makes of a call of these four."""
    return b'{"8:function{"9:arguments"%d:%b"4:name"%d:%b}"2:id"%d:%b"4:type"%d:%b}' % (
        len(arguments), arguments, len(name), name, len(id), id, len(kind), kind,
    )  # fmt: skip


def _call_gist(call: Any) -> bytes:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return canonical(call)
    return canonical([function.get("name"), parsed_arguments(function.get("arguments"))])


def parsed_arguments(arguments: Any) -> Any:
    """Tool arguments as a value with fractions by literal; the text itself where it is not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return chat.exact(utf8(arguments))
    except ValueError:
        return arguments


def _calls(message: Mapping[str, Any]) -> tuple[str, ...]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return ("",) if isinstance(message.get("function_call"), dict) else ()
    return tuple([_id(call.get("id")) if isinstance(call, dict) else "" for call in calls])


def _id(value: Any) -> str:
    return short(_text(value))


def canonical(value: Any) -> bytes:
    """One form for values that are equal but for key order and `cache_control`."""
    out: list[bytes] = []
    _write(value, out)
    return b"".join(out)


def _write(value: Any, out: list[bytes]) -> None:
    kind = type(value)
    if kind is str:
        raw = utf8(value)
        out.append(b'"%d:%b' % (len(raw), raw))
    elif kind is dict:
        out.append(b"{")
        for key in sorted(value):
            if key != "cache_control":
                _write(key, out)
                _write(value[key], out)
        out.append(b"}")
    elif kind is list:
        out.append(b"[")
        for item in value:
            _write(item, out)
        out.append(b"]")
    else:
        literal = value.literal if kind is Number else repr(value)
        out.append(b"#%d:%b" % (len(literal), literal.encode()))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
