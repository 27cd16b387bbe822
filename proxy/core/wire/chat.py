"""A chat completions request as it arrived: its messages as byte ranges, and one way to render it.

Nothing is ever serialised anew. A request leaves as the bytes that came, less a list of edits; what
was not edited keeps its bytes by construction. Two roads lead to the same ranges. The fast one lets
msgspec cut the text and finds offsets by arithmetic, where that is provably right. The slow one
scans; it takes what the fast one refuses: lone surrogates, NaN, repeated keys, escaped keys, deep
nesting.

What a body may cost is bounded before anything is built or scanned: one that holds too many values,
brackets or long numbers is `too_busy`, and leaves as it came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from proxy.core.wire import scan
from proxy.core.wire.scan import Member

MAX_MESSAGES = 20_000
"""A request that holds more is not read. The largest context windows hold a quarter of that."""
MOST_VALUES = 300_000
"""Values in one body, texts counted as one each; what holds more is not read."""
MOST_DIGITS = 400
"""Digits of one number in a body that is large: reading takes time by the square of them."""
MOST_TOIL = 1_200_000
"""Brackets, quotes and escapes in a body that has to be scanned."""
MAX_DEPTH = 100
"""Messages nested deeper are not looked into, so that the stack never decides what is read."""
MAX_VALUES = 100_000
"""Values in one message, texts counted as one each; what holds more is not looked into."""
_SMALL = 1 << 20
# Bytes up to which a body cannot hold enough to keep us long.
_LARGE = 4 << 20
# Bytes from which long numbers may be so many that they do.

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = b'"messages"'
# How a JSON text may spell a letter otherwise: only so can a key be `messages` and not look like
# it.
_SPELLED = b"\\u00"


class Number(NamedTuple):
    """A JSON number by its literal."""

    literal: str


_exact = msgspec.json.Decoder(float_hook=Number)


class Unreadable(ValueError):
    """The body is no chat request that can be pruned, and leaves as it came. `reason` is a word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Edit(msgspec.Struct, frozen=True, gc=False):
    """Replace the bytes from `start` to `end` of the body."""

    start: int
    end: int
    text: bytes = b""


class Layout(msgspec.Struct, frozen=True):
    """`fields` holds the raw value of every top-level member but `messages`; `spans` the messages'
    ranges."""

    fields: Mapping[str, bytes]
    spans: tuple[tuple[int, int], ...]


class Head(msgspec.Struct, frozen=True):
    """What is known of a body's beginning: its first members, where the known messages end."""

    fields: Mapping[str, bytes]
    end: int


def layout(body: bytes) -> Layout:
    """Find the messages of a request. Raises `Unreadable`."""
    if len(body) > _SMALL and _too_busy(body):
        raise Unreadable("too_busy")
    found = _fast(body)
    return found if found is not None else _slow(body)


def _too_busy(body: bytes) -> bool:
    """Whether reading would take so long that others feel it."""
    if scan.busier_than(body, MOST_VALUES):
        return True
    return len(body) > _LARGE and scan.has_number_of(MOST_DIGITS, body, 4 * MOST_VALUES)


def _fast(body: bytes) -> Layout | None:
    at = body.find(_KEY)
    if at < 0 or body.find(_KEY, at + 1) >= 0:
        return None
    try:
        fields = _members.decode(body)
        array = bytes(fields.pop("messages"))
        raws = _elements.decode(array)
    except (msgspec.DecodeError, RecursionError, KeyError):
        return None
    start = _value_start(body, at + len(_KEY))
    if not body.startswith(array, start) or _spelled(body, at, start + len(array)):
        return None
    if len(fields) >= scan.MAX_MEMBERS or len(raws) > MAX_MESSAGES:
        return None
    return Layout({key: bytes(raw) for key, raw in fields.items()}, _row(body, start, raws))


def _value_start(body: bytes, at: int) -> int:
    """Where the value begins whose key ends at `at`."""
    return scan.skip_blank(body, scan.skip_blank(body, at) + 1)


def _spelled(body: bytes, start: int, end: int) -> bool:
    """Whether a second `messages` may hide outside of a range."""
    return body.find(_SPELLED, 0, start) >= 0 or body.find(_SPELLED, end) >= 0


def _row(body: bytes, at: int, raws: Sequence[msgspec.Raw]) -> tuple[tuple[int, int], ...]:
    """The offsets of the elements of an array that begins at `at`, from their lengths."""
    spans = []
    at = scan.skip_blank(body, at + 1)
    for raw in raws:
        end = at + len(memoryview(raw))
        spans.append((at, end))
        if body.startswith(b",{", end):
            at = end + 1
        else:
            at = _value_start(body, end)
    return tuple(spans)


def members(body: bytes, start: int, end: int) -> Sequence[Member]:
    """The members of the object at `body[start:end]`, repeated ones too. Raises `scan.Odd`."""
    found = _placed(body, start, end)
    return scan.members(body, start) if found is None else found


def _placed(body: bytes, start: int, end: int) -> Sequence[Member] | None:
    """Members by arithmetic. Each is laid beside the text: escaped or repeated keys do not pass."""
    try:
        decoded = _members.decode(memoryview(body)[start:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    found, at = [], scan.skip_blank(body, start + 1)
    for key, raw in decoded.items():
        literal = b'"%b":' % key.encode()
        value = at + len(literal)
        if not (body.startswith(literal, at) and body.startswith(raw, value)):
            value = _value_start(body, value - 1)
            if not (body.startswith(literal[:-1], at) and body.startswith(raw, value)):
                return None
        stop = value + len(memoryview(raw))
        found.append(Member(at, key, value, stop))
        at = stop + 1 if body.startswith(b',"', stop) else _value_start(body, stop)
    return found if at >= end else None


def value_range(body: bytes, start: int, end: int, name: str) -> tuple[int, int] | None:
    """The range of the value of the member of that name; None where there is none, or the object
    repeats a key, so that nobody knows which one holds.
    """
    at, found = start + 1, None
    try:
        raws = _members.decode(memoryview(body)[start:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    for key, raw in raws.items():
        at += len(key) + 3
        stop = at + len(memoryview(raw))
        if key == name:
            found = at, stop
        at = stop + 1
    # Blanks, escapes and repeated keys all make a text longer than that.
    return found if at == end else _searched(body, start, end, name)


def _searched(body: bytes, start: int, end: int, name: str) -> tuple[int, int] | None:
    try:
        rows = members(body, start, end)
    except scan.Odd:
        return None
    found = {row.key: (row.start, row.end) for row in rows}
    return found.get(name) if len(found) == len(rows) else None


def elements(body: bytes, start: int, end: int) -> Sequence[tuple[int, int]]:
    """The ranges of the elements of the array at `body[start:end]`. Raises `scan.Odd`."""
    try:
        raws = _elements.decode(memoryview(body)[start:end])
    except (msgspec.DecodeError, RecursionError):
        return scan.elements(body, start, MAX_VALUES)
    return _row(body, start, raws)


def _slow(body: bytes) -> Layout:
    if body[:3] == b"\xef\xbb\xbf":
        raise Unreadable("not_json")
    if len(body) > _SMALL and scan.count_of(b'{}[]"\\', body) > MOST_TOIL:
        raise Unreadable("too_busy")
    try:
        rows = scan.members(body)
    except scan.TooMany:
        raise Unreadable("too_many_members") from None
    except scan.Odd:
        raise Unreadable(_why(body)) from None
    if scan.skip_blank(body, _object_end(body, rows)) < len(body):
        raise Unreadable("not_json")
    found = [member for member in rows if member.key == "messages"]
    if len(found) > 1:
        raise Unreadable("repeated_key")
    if not found or body[found[0].start : found[0].start + 1] != b"[":
        raise Unreadable("no_messages")
    fields = {m.key: body[m.start : m.end] for m in rows if m is not found[0]}
    try:
        return Layout(fields, tuple(scan.elements(body, found[0].start, MAX_MESSAGES)))
    except scan.TooMany:
        raise Unreadable("too_many_messages") from None
    except scan.Odd:
        raise Unreadable("not_json") from None


def _object_end(body: bytes, rows: Sequence[Member]) -> int:
    last = rows[-1].end if rows else scan.skip_blank(body, 0) + 1
    return body.index(b"}", last) + 1


def _why(body: bytes) -> str:
    at = scan.skip_blank(body, 0)
    first = body[at : at + 1]
    return "not_an_object" if first and first in b'["0123456789-tfn' else "not_json"


def continued(body: bytes, head: Head) -> Layout | None:
    """The layout of a body whose first `head.end` bytes are known; its spans are only those that
    follow.

    None where that cannot be told from the rest alone; the caller then reads the whole.
    """
    more = body.startswith(b",", head.end)
    if not more and not body.startswith(b"]", head.end):
        return None
    tail = b'{"messages":[' + body[head.end + more :]
    try:
        found = layout(tail)
    except Unreadable:
        return None
    if more is not bool(found.spans) or not head.fields.keys().isdisjoint(found.fields):
        return None
    shift = len(body) - len(tail)
    spans = tuple((start + shift, end + shift) for start, end in found.spans)
    return Layout({**head.fields, **found.fields}, spans)


def head_fields(body: bytes, fields: Mapping[str, bytes], first: int) -> Mapping[str, bytes] | None:
    """The fields that stand before the messages; None where that cannot be told cheaply."""
    key = body.rfind(_KEY, 0, first)
    text = body[:key].rstrip(b" \t\r\n") if key >= 0 else b""
    try:
        found = _members.decode(text.removesuffix(b",") + b"}")
    except (msgspec.DecodeError, RecursionError):
        return None
    # What is the same is one object, so that all turns of a conversation share it.
    rows = {key: bytes(raw) for key, raw in found.items()}
    return {key: fields[key] if fields.get(key) == raw else raw for key, raw in rows.items()}


def decode(text: bytes) -> Any:
    """One JSON value; stdlib's reader is the second chance (surrogates, NaN). Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _second_chance(text)


def _second_chance(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def exact(text: bytes) -> Any:
    """One JSON value, fractions by literal. Raises ValueError, also for what is beyond measure."""
    if scan.busier_than(text, MAX_VALUES):
        raise ValueError("too many values")
    try:
        value = _by_literal(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise ValueError("nested too deep")
    return value


def _by_literal(text: bytes) -> Any:
    try:
        return _exact.decode(text)
    except msgspec.DecodeError:
        loose = text.decode("utf-8", "surrogateescape")
        return json.loads(loose, parse_float=Number, parse_int=Number, parse_constant=Number)


def _deeper_than(value: Any, limit: int) -> bool:
    level, rows = 0, [value] if isinstance(value, dict | list) else []
    while rows and level <= limit:
        inner = [row.values() if type(row) is dict else row for row in rows]
        rows = [v for row in inner for v in row if type(v) is dict or type(v) is list]
        level += 1
    return level > limit


def apply(body: bytes, edits: Sequence[Edit]) -> bytes:
    """The body with its edits, which are in order and apart. Without any, the very same object."""
    if not edits:
        return body
    parts, at = [], 0
    for edit in edits:
        parts.append(body[at : edit.start])
        parts.append(edit.text)
        at = edit.end
    parts.append(body[at:])
    return b"".join(parts)


_ASK_USAGE = b'"stream_options":{"include_usage":true}'


def ask_for_usage(body: bytes, fields: Mapping[str, bytes]) -> Edit | None:
    """The edit that asks for usage at the end of a stream; None where it is asked or cannot be."""
    raw = fields.get("stream_options")
    if raw is None:
        return _first_member(body)
    if raw == b'{"include_usage":true}' or wants_usage(fields):
        return None
    try:
        rows = members(body, scan.skip_blank(body, 0), len(body))
        found = [member for member in rows if member.key == "stream_options"]
        return _within(body, found[0]) if len(found) == 1 else None
    except scan.Odd:
        return None


def _first_member(body: bytes) -> Edit | None:
    at = scan.skip_blank(body, 0)
    if not body.startswith(b"{", at):
        return None
    empty = body.startswith(b"}", scan.skip_blank(body, at + 1))
    return Edit(at + 1, at + 1, _ASK_USAGE if empty else _ASK_USAGE + b",")


def _within(body: bytes, member: scan.Member) -> Edit | None:
    if body[member.start : member.end] == b"null":
        return Edit(member.start, member.end, _ASK_USAGE.partition(b":")[2])
    if body[member.start : member.start + 1] != b"{":
        return None
    inner = scan.members(body, member.start)
    for found in reversed(inner):
        if found.key == "include_usage":
            return Edit(found.start, found.end, b"true")
    comma = b"," if inner else b""
    return Edit(member.start + 1, member.start + 1, b'"include_usage":true' + comma)


def wants_usage(fields: Mapping[str, bytes]) -> bool:
    """Whether the client itself asked for usage at the end of its stream."""
    return field(fields, "stream_options", "include_usage") is True


def streams(fields: Mapping[str, bytes]) -> bool:
    return fields.get("stream") == b"true"


def field(fields: Mapping[str, bytes], name: str, inner: str | None = None) -> Any:
    """A top-level value decoded (or a member of it); None where it is absent or odd."""
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        value = decode(raw)
    except ValueError:
        return None
    if inner is None:
        return value
    return value.get(inner) if isinstance(value, dict) else None


def literal(text: str) -> bytes:
    """A text as a JSON string literal; what is no Unicode is escaped, so it can be sent."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()
