"""Puts values that a client makes anew for every request back to what they first were.

A clock or a nonce in the system prompt makes every request's prompt new from there on. Patterns
from the settings say what such a value looks like: the whole match, or its first group where it
has one. The values of the conversation's first request are pinned to it, with a digest of the text
before each; a later request's value gives way to the first one as long as all before it, the values
aside, is the same. Behind a first difference the cache is lost, and the client's own words stand.

What is put back was true once: patterns are for what no model needs to read right. A pin stands for
all conversations that share a first message under one key, so never for a path or a name that the
agent works with. A pin holds text of the message, the values themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from proxy.core.additions import NOTHING, Added, members_of
from proxy.core.fingerprint import digest
from proxy.core.turn import Turn
from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit
from proxy.core.wire.scan import Member

MOST_TEXT = 256 * 1024
"""Characters of a system message; a longer one is not searched."""
MOST_VALUES = 64
"""Values of one pattern, and of all together; later ones stay as they come."""
MOST_BYTES = 3072
"""Bytes of the pinned values with their digests; values that do not fit stay as they come."""

Patterns = Sequence[re.Pattern[str]]
_Span = tuple[int, int]
_Pin = tuple[bytes, bytes]
# The digest of the text since the value before, and the value as it stood in the JSON text.
_DIGEST = 8
_pins = msgspec.msgpack.Decoder(list[_Pin])


def offer(turn: Turn, patterns: Patterns) -> bytes:
    """What to pin at the first request; of a prompt that has no such values, that it has none."""
    pins: list[_Pin] = []
    try:
        literal = _literal(turn)
        text = scan.text_of(literal)
        room = MOST_BYTES
        for gap, raw in _as_pins(literal, text, _values(text, patterns)):
            room -= len(gap) + len(raw)
            if room < 0:
                break
            pins.append((gap, raw))
    except scan.Odd:
        pins = []
    return msgspec.msgpack.encode(pins)


def apply(turn: Turn, patterns: Patterns, pinned: bytes | None) -> Added:
    """Put the first request's values back, one edit each. `pinned` is None where nothing is."""
    if not patterns or pinned is None:
        return NOTHING
    try:
        pins = _pins.decode(pinned)
        found = _place(turn)
        literal = turn.body[found.start : found.end]
        edits = _put_back(literal, patterns, pins)
    except (scan.Odd, msgspec.DecodeError):
        return NOTHING
    if not edits:
        return NOTHING
    moved = [Edit(e.start + found.start, e.end + found.start, e.text) for e in edits]
    return Added(tuple(moved), counts={"system_values": len(moved)})


def _literal(turn: Turn) -> bytes:
    found = _place(turn)
    return turn.body[found.start : found.end]


def _place(turn: Turn) -> Member:
    """The member that holds the text of the first system message. Raises `scan.Odd`."""
    if not turn.leading:
        raise scan.Odd("no system message")
    body, first = turn.body, turn.leading[0]
    content = members_of(body, first.start, first.end).get("content")
    if content is None:
        raise scan.Odd("no content")
    if body.startswith(b"[", content.start):
        content = _first_text(body, content)
    if not body.startswith(b'"', content.start):
        raise scan.Odd(f"no text at byte {content.start}")
    return content


def _first_text(body: bytes, content: Member) -> Member:
    for start, end in chat.elements(body, content.start, content.end):
        found = members_of(body, start, end).get("text")
        if found is not None:
            return found
    raise scan.Odd("no part holds text")


def _values(text: str, patterns: Patterns) -> Sequence[_Span]:
    """Where values stand, in order and apart: of two that overlap, the first, the longer one."""
    if len(text) > MOST_TEXT:
        return []
    spans = {span for pattern in patterns for span in _matches(text, pattern)}
    apart: list[_Span] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not apart or start >= apart[-1][1]:
            apart.append((start, end))
    return apart[:MOST_VALUES]


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[_Span]:
    group = 1 if pattern.groups else 0
    for match in islice(pattern.finditer(text), MOST_VALUES):
        start, end = match.span(group)
        if start < end:
            yield start, end


def _as_pins(literal: bytes, text: str, values: Sequence[_Span]) -> Iterator[_Pin]:
    at = 0
    for (start, end), (first, last) in zip(values, _in_literal(literal, values), strict=True):
        yield _gap(text, at, start), literal[first:last]
        at = end


def _in_literal(literal: bytes, spans: Sequence[_Span]) -> Sequence[_Span]:
    """Spans of a text, in order, as spans of its literal."""
    found, at, before = [], 1, 0
    for start, end in spans:
        first = scan.raw_offset(literal, start - before, at)
        at = scan.raw_offset(literal, end - start, first)
        found.append((first, at))
        before = end
    return found


def _gap(text: str, start: int, end: int) -> bytes:
    return digest(text[start:end].encode("utf-8", "surrogatepass"), size=_DIGEST)


def _put_back(literal: bytes, patterns: Patterns, pins: Sequence[_Pin]) -> Sequence[Edit]:
    """The edits of the literal; none where its text would then be another than is meant."""
    text = scan.text_of(literal)
    changes = _changes(text, patterns, pins)
    if not changes:
        return []
    spans = _in_literal(literal, [span for span, _ in changes])
    edits = [Edit(start, end, raw) for (start, end), (_, raw) in zip(spans, changes, strict=True)]
    left = scan.text_of(chat.apply(literal, edits))
    # A pattern may see other values where the first ones stand, or a neighbour join with one.
    meant = left == _replaced(text, changes) and not _changes(left, patterns, pins)
    return edits if meant else []


def _changes(text: str, patterns: Patterns, pins: Sequence[_Pin]) -> Sequence[tuple[_Span, bytes]]:
    """The values that are not what they first were, as long as the text between them is."""
    found, at = [], 0
    for (start, end), (gap, raw) in zip(_values(text, patterns), pins, strict=False):
        if _gap(text, at, start) != gap:
            break
        if text[start:end] != _text(raw):
            found.append(((start, end), raw))
        at = end
    return found


def _text(raw: bytes) -> str:
    return scan.text_of(b'"' + raw + b'"')


def _replaced(text: str, changes: Sequence[tuple[_Span, bytes]]) -> str:
    parts, at = [], 0
    for (start, end), raw in changes:
        parts += [text[at:start], _text(raw)]
        at = end
    return "".join([*parts, text[at:]])
