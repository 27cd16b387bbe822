"""Where reasoning stands in an assistant message: a table of carriers, and how each is taken out.

| carrier | where | taken out by |
|---|---|---|
| `reasoning_content`, `reasoning`, `reasoning_text` | string member | `""` in that member |
| `reasoning_details` | list member | removal of the member |
| content parts | `type` `thinking`, `reasoning` | removal of the part |
| `<think>…</think>` | start of the text | removal, with the blanks after it |

Two carriers with the same text are one. A message with any signed or encrypted piece keeps all of
its reasoning, whole: a signature covers what it came with. So does one that repeats a key, because
nobody can say which of the two a provider reads. `null` is never written: an engine answers it with
500.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit
from proxy.core.wire.scan import Member

STRING_CARRIERS = ("reasoning_content", "reasoning", "reasoning_text")
LIST_CARRIERS = ("reasoning_details",)
PART_TYPES = frozenset({"thinking", "reasoning", "redacted_thinking"})
SEALED_MEMBERS = ("thought_signature", "reasoning_opaque", "thinking_blocks", "extra_content")
_SEALS = ("signature", "thought_signature", "encrypted_content", "encrypted", "data")
_SEALED_TYPES = frozenset(
    {"redacted_thinking", "reasoning.encrypted", "reasoning.server_tool_call"}
)
_TEXT_KEYS = ("text", "thinking", "reasoning", "summary", "content")
_OPEN, _CLOSE = "<think>", "</think>"
MOST_THOUGHTS = 8
"""`<think>…</think>` at the start of a text; where there are more, none is a thought."""
MOST_BLANKS = 32
"""Blanks before a thought, and behind one; where there are more, none is a thought."""
_opening = re.compile(rf"\s{{0,{MOST_BLANKS}}}+{_OPEN}")
_blanks = re.compile(rf"\s{{0,{MOST_BLANKS + 1}}}+")


def _spelled(text: str) -> bytes:
    """A pattern for ASCII text however JSON may spell it."""
    return b"".join(rb"(?:%c|\\u00(?i:%02x))" % (ord(c), ord(c)) for c in text)


# Apart, so that each search has a beginning to look for.
_SLASH = rb"(?:\\?/|\\u002[fF])"
_closings = [re.compile(first + _SLASH + _spelled("think>")) for first in (rb"<", rb"\\u003[cC]")]


class Found(msgspec.Struct, frozen=True, gc=False):
    """The reasoning of one message.

    `texts` are pairs of carrier and text. `size` is the length of the different texts in UTF-8
    bytes. `edits` take it out, in order, with offsets in the body. `slots` are the ranges of string
    literals that held reasoning, where another text may stand instead. `sealed` says that it must
    stay whole.
    """

    texts: tuple[tuple[str, str], ...]
    size: int
    edits: tuple[Edit, ...]
    slots: tuple[tuple[int, int], ...]
    sealed: bool


NOTHING = Found((), 0, (), (), False)


def find(body: bytes, start: int, end: int, message: Mapping[str, Any]) -> Found:
    """The reasoning of the assistant message at `body[start:end]`, which decodes to `message`."""
    texts = tuple(texts_of(message))
    if is_sealed(message):
        return Found(texts, _size(texts), (), (), True)
    if not texts:
        return NOTHING
    try:
        edits, slots = _taken_out(body, members(body, start, end), message)
    except scan.Odd:
        edits, slots = (), ()
    return Found(texts, _size(texts), edits, slots, False)


def present(message: Mapping[str, Any]) -> tuple[str, ...]:
    """The carriers that a message has, empty ones too; `null` is none."""
    found = [key for key in STRING_CARRIERS if isinstance(message.get(key), str)]
    found += [key for key in LIST_CARRIERS if isinstance(message.get(key), list)]
    content = message.get("content")
    if isinstance(content, list) and any(map(is_reasoning_part, content)):
        found.append("content_parts")
    if think_span(first_text(content)):
        found.append("think")
    return tuple(found)


def signs_a_call(message: Mapping[str, Any]) -> bool:
    """Whether a tool call of it is signed, or the message itself is (Gemini, Copilot): such a
    signature is never touched.
    """
    return any(message.get(key) for key in SEALED_MEMBERS) or any(
        map(_call_sealed, _items(message.get("tool_calls")))
    )


def _size(texts: Iterable[tuple[str, str]]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in {text for _, text in texts})


def carries(key: str, value: Any) -> bool:
    """Whether a member of an assistant message is reasoning or its seal, and nothing said."""
    if key in STRING_CARRIERS:
        return isinstance(value, str)
    if key in LIST_CARRIERS:
        return isinstance(value, list)
    return key in SEALED_MEMBERS


def texts_of(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every piece of reasoning that is not empty, with its carrier."""
    for key in STRING_CARRIERS:
        value = message.get(key)
        if isinstance(value, str) and value:
            yield key, value
    for key in LIST_CARRIERS:
        if text := text_in(_items(message.get(key))):
            yield key, text
    content = message.get("content")
    if isinstance(content, list):
        if text := text_in([part for part in content if is_reasoning_part(part)]):
            yield "content_parts", text
    if think := think_in(first_text(content)):
        yield "think", think


def text_in(value: Any) -> str:
    """All text below a list of reasoning items, in order."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_in, value))
    if isinstance(value, dict):
        return "".join(text_in(value[key]) for key in _TEXT_KEYS if key in value)
    return ""


def first_text(content: Any) -> str:
    """The text with which a message's content begins, be it a string or parts."""
    if isinstance(content, str):
        return content
    at = first_text_part(content) if isinstance(content, list) else None
    return "" if at is None else str(content[at]["text"])


def first_text_part(content: Sequence[Any]) -> int | None:
    """The index of the first part that holds text and is no reasoning."""
    for at, part in enumerate(content):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            if not is_reasoning_part(part):
                return at
    return None


def think_span(text: str) -> tuple[int, int] | None:
    """The `<think>…</think>` at the start of a text, one or several, with the blanks after them."""
    match = _opening.match(text)
    found = _thoughts(text, match.end()) if match else None
    return (found[0][0], found[-1][2]) if found else None


def think_in(text: str) -> str:
    match = _opening.match(text)
    if match is None:
        return ""
    inner = [text[start + len(_OPEN) : end] for start, end, _ in _thoughts(text, match.end())]
    return "".join(inner)


def _thoughts(text: str, opened: int) -> list[tuple[int, int, int]]:
    """Where each thought at the start of a text begins, is closed, and the blanks after it end.

    `opened` is where the first `<think>` ends.
    """
    found: list[tuple[int, int, int]] = []
    at, close = opened - len(_OPEN), text.find(_CLOSE, opened)
    while close >= 0:
        after = _blanks_end(text, close + len(_CLOSE))
        if len(found) == MOST_THOUGHTS or after - close - len(_CLOSE) > MOST_BLANKS:
            return []
        found.append((at, close, after))
        at = after
        close = text.find(_CLOSE, at) if text.startswith(_OPEN, at) else -1
    return found


def _blanks_end(text: str, at: int) -> int:
    match = _blanks.match(text, at)
    return match.end() if match else at


def without_think(text: str) -> str:
    """The text less the `<think>…</think>` at its start and the blanks after it."""
    span = think_span(text)
    return text[: span[0]] + text[span[1] :] if span else text


def is_reasoning_part(part: Any) -> bool:
    return isinstance(part, dict) and _is_reasoning_type(part.get("type"))


def _is_reasoning_type(kind: Any) -> bool:
    return isinstance(kind, str) and kind in PART_TYPES


def is_sealed(message: Mapping[str, Any]) -> bool:
    """Whether reasoning of the message is signed or encrypted; a signed tool call counts."""
    content = message.get("content")
    parts = [p for p in content if is_reasoning_part(p)] if isinstance(content, list) else []
    return (
        any(message.get(key) for key in SEALED_MEMBERS)
        or any(map(_item_sealed, parts))
        or any(map(_item_sealed, _items(message.get("reasoning_details"))))
        or any(map(_call_sealed, _items(message.get("tool_calls"))))
    )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _item_sealed(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return (isinstance(kind, str) and kind in _SEALED_TYPES) or any(map(item.get, _SEALS))


def _call_sealed(call: Any) -> bool:
    return isinstance(call, dict) and any(map(call.get, SEALED_MEMBERS))


def _taken_out(
    body: bytes, members: Sequence[Member], message: Mapping[str, Any]
) -> tuple[tuple[Edit, ...], tuple[tuple[int, int], ...]]:
    slots = [(m.start, m.end) for m in members if m.key in STRING_CARRIERS and _is_text(body, m)]
    lists = [m.key in LIST_CARRIERS and body.startswith(b"[", m.start) for m in members]
    edits = [Edit(start, end, b'""') for start, end in slots]
    if any(lists):
        edits += removed([(m.at, m.end) for m in members], lists)
    for member in members:
        if member.key == "content":
            edits += content_out(body, member, message["content"])
    return tuple(sorted(edits, key=_place)), tuple(slots)


def members(body: bytes, start: int, end: int) -> Sequence[Member]:
    """The members of a message. Raises `scan.Odd`, also where a key is repeated: nobody can say
    which of the two a provider reads.
    """
    found = chat.members(body, start, end)
    if len({member.key for member in found}) < len(found):
        raise scan.Odd(f"a key is repeated in the object at byte {start}")
    return found


def _is_text(body: bytes, member: Member) -> bool:
    """A string literal that is not empty."""
    return body.startswith(b'"', member.start) and member.end - member.start > 2


def removed(spans: Sequence[tuple[int, int]], gone: Sequence[bool]) -> list[Edit]:
    """The edits that remove some of a row of members or elements, with the commas freed."""
    edits, at = [], 0
    while at < len(spans):
        stop = at
        while stop < len(spans) and gone[stop]:
            stop += 1
        if stop > at:
            edits.append(_run_out(spans, at, stop))
        at = stop + 1
    return edits


def _run_out(spans: Sequence[tuple[int, int]], at: int, stop: int) -> Edit:
    if stop < len(spans):
        return Edit(spans[at][0], spans[stop][0])
    return Edit(spans[at - 1][1] if at else spans[at][0], spans[stop - 1][1])


def content_out(body: bytes, member: Member, content: Any) -> list[Edit]:
    """The edits that take reasoning out of a message's content."""
    parts, thought = parts_out(body, member, content), think_out(body, member, content)
    return sorted([*parts, *thought], key=_place)


def parts_out(body: bytes, member: Member, content: Any) -> list[Edit]:
    """The edits that take the parts out that are reasoning; `""` where there are no others."""
    gone = [is_reasoning_part(part) for part in content] if isinstance(content, list) else []
    if not any(gone):
        return []
    if all(gone):
        return [Edit(member.start, member.end, b'""')]
    return removed(chat.elements(body, member.start, member.end), gone)


def think_out(body: bytes, member: Member, content: Any) -> list[Edit]:
    """The edit that takes the thought out with which a content begins."""
    found = think_place(body, member, content)
    return [Edit(found.start, found.end)] if found else []


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where the `<think>…</think>` stands in the literal of a text, in offsets of the body; `end`
    is where the blanks after it end.
    """

    start: int
    closed: int
    end: int


def think_place(body: bytes, member: Member, content: Any) -> Place | None:
    """Where the thought stands with which a message's content begins."""
    text = first_text(content)
    match = _opening.match(text)
    found = _thoughts(text, match.end()) if match else None
    if not found:
        return None
    start, end = first_literal(body, member, content)
    literal, (_, close, after) = body[start:end], found[-1]
    opens, closes = scan.raw_offset(literal, found[0][0]), _closed(literal, len(found))
    ends = scan.raw_offset(literal, after - close - len(_CLOSE), closes)
    return Place(start + opens, start + closes, start + ends)


def first_literal(body: bytes, member: Member, content: Any) -> tuple[int, int]:
    """The literal of the text with which a content begins, which has one. Raises `scan.Odd`."""
    if isinstance(content, str):
        return member.start, member.end
    spans = chat.elements(body, member.start, member.end)
    part = members(body, *spans[first_text_part(content) or 0])
    (text,) = (m for m in part if m.key == "text")
    return text.start, text.end


def _closed(literal: bytes, count: int) -> int:
    """Where the `</think>` of so many thoughts ends in the literal of a text that begins so."""
    bare = literal.replace(b"\\\\", b"  ")  # now every escape begins where a backslash stands
    ends = [m.end() for tag in _closings for m in islice(tag.finditer(bare), count)]
    return sorted(ends)[count - 1]


def _place(edit: Edit) -> int:
    return edit.start
