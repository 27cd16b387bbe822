"""Server-sent events cut out of bytes, however those were cut. Only framing: no reply is read here.

A line ends with LF, CRLF or CR, an event with an empty line (html.spec.whatwg.org, "Parsing an
event stream"). A CR that came last may yet become a CRLF, so what it ends is not whole before the
next byte: that way nothing depends on how the bytes were cut. An empty line on its own is an event
without data.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

LONGEST_USAGE = 64 * 1024
"""Bytes. A longer event is not a usage event; the largest on record has 0.7 KiB."""
LONGEST_EVENT = 32 * 1024 * 1024
"""Bytes. A longer event is not read; the largest on record has 23 KiB."""
BATCH = 64 * 1024
"""Bytes gathered before they are read: some 250 events, a third of a millisecond."""

_EOL = rb"(?:\r\n|\n|\r(?=[^\n]))"
_eol = re.compile(_EOL)
_blank = re.compile(_EOL + _EOL)
_any_eol = re.compile(rb"\r\n|\n|\r")
_comments = re.compile(rb"(?::[^\r\n]*" + _EOL + rb")*")
# Between the tokens of a JSON text that may be spread over several `data` lines.
_GAP = rb"(?:\s|data:)*"
_no_choices = re.compile(rb'"choices"' + _GAP + rb":" + _GAP + rb"\[" + _GAP + rb"\]")
_BOM = b"\xef\xbb\xbf"


class Splitter:
    """Cuts bytes into whole raw events.

    All that it gave out, and `rest()`, are what came, byte for byte.
    """

    __slots__ = ("_given", "_held", "_returns", "_scanned")

    def __init__(self) -> None:
        self._held = bytearray()
        self._scanned = 0  # no event ends before here
        self._given = 0  # so much of what is held was given out early
        self._returns = False  # whether a CR has come

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that this chunk made whole, each with the empty line that ends it."""
        self._returns = self._returns or b"\r" in chunk
        if not self._held and not self._returns and _is_one_event(chunk):
            return [chunk]
        end_of = _end_at_any if self._returns else _end_at_line_feeds
        self._held += chunk
        held, start, events = self._held, 0, []
        while (end := end_of(held, start, max(start, self._scanned))) >= 0:
            events.append(bytes(held[start + self._given : end]))
            start, self._given = end, 0
        del held[:start]
        self._scanned = max(0, len(held) - 3)
        return events

    def rest(self) -> bytes:
        """What is held of an event that is not whole."""
        return bytes(self._held[self._given :])

    def take(self, count: int) -> bytes:
        """Give out the first `count` bytes of `rest()` early; the remainder comes as an event."""
        taken = bytes(self._held[self._given : self._given + count])
        self._given += len(taken)
        if self._given > 4:  # keep what tells where a line ends, behind the beginning of some line
            self._held[: self._given - 3] = b":"
            self._given, self._scanned = 4, 0
        return taken


def _is_one_event(chunk: bytes) -> bool:
    """Whether a chunk without CR is one event, as nearly every chunk of a stream is."""
    at = chunk.find(b"\n\n")
    return at == len(chunk) - 2 and at > 0 and not chunk.startswith(b"\n")


def _end_at_any(held: bytearray, start: int, scanned: int) -> int:
    """The offset behind the first event from `start` on, -1 where none is whole."""
    match = _eol.match(held, start) or _blank.search(held, scanned)
    return match.end() if match else -1


def _end_at_line_feeds(held: bytearray, start: int, scanned: int) -> int:
    """The same where there is no CR, many times faster."""
    if held.startswith(b"\n", start):
        return start + 1
    at = held.find(b"\n\n", scanned)
    return at + 2 if at >= 0 else -1


def data_of(event: bytes) -> bytes | None:
    """The payload of one raw event: its `data` lines joined by LF; None where it has none."""
    lines = values_of(event, b"data")
    return b"\n".join(lines) if lines else None


def values_of(event: bytes, field: bytes) -> list[bytes]:
    """The values of one field of a raw event, in order.

    Empty lines and a byte order mark before it are skipped.
    """
    event = event.lstrip(b"\r\n").removeprefix(_BOM)
    lines = _any_eol.split(event) if b"\r" in event else event.split(b"\n")
    head, at = field + b":", len(field) + 1
    found = [line[at:] for line in lines if line.startswith(head) or line == field]
    return [value[1:] if value.startswith(b" ") else value for value in found]


def json_of(data: bytes) -> Any:
    """The JSON value in `data`, None where it is not JSON.

    The standard library is the second chance: it reads lone surrogates and NaN, orjson does not.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return None


class UsageFilter:
    """Relays every byte but those of events with `choices: []` and a usage, which we asked for.

    Bytes go on at once, but for those of an event that is not whole. Of these, comment lines at its
    start (a server's heartbeat) go on too, and all where it is longer than `LONGEST_USAGE`. Keys
    that are written with escapes are not recognised. `removed` counts events.
    """

    __slots__ = ("_between", "_long", "_splitter", "removed")

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._between = True
        self._long = False
        self.removed = 0

    def feed(self, chunk: bytes) -> bytes:
        """The bytes to send on now."""
        if self._between and chunk.endswith(b"\n\n"):
            if b'"usage"' not in chunk or _no_choices.search(chunk) is None:
                return chunk
        kept = [self._kept(event) for event in self._splitter.feed(chunk)]
        return b"".join((*kept, self._early()))

    def close(self) -> bytes:
        """What is still held: the beginning of an event that never became whole, as it is."""
        return self._splitter.rest()

    def _kept(self, event: bytes) -> bytes:
        self._between = True
        if self._long:
            self._long = False
            return event
        comments = _comments_end(event)
        if not _is_usage(event[comments:] if comments else event):
            return event
        self.removed += 1
        return event[:comments]

    def _early(self) -> bytes:
        """What may go on of an event that is not whole."""
        rest = self._splitter.rest()
        if not rest:
            return b""
        self._between = False
        comments = 0 if self._long else _comments_end(rest)
        self._long = self._long or len(rest) - comments > LONGEST_USAGE
        return self._splitter.take(len(rest) if self._long else comments)


def _comments_end(event: bytes) -> int:
    match = _comments.match(event) if event.startswith(b":") else None
    return match.end() if match else 0


def _is_usage(event: bytes) -> bool:
    if len(event) > LONGEST_USAGE or b'"usage"' not in event or not _no_choices.search(event):
        return False
    value = json_of(data_of(event) or b"")
    return isinstance(value, dict) and value.get("choices") == [] and value.get("usage") is not None


class Gatherer:
    """Keeps chunks as they come, for almost nothing, and has their events read many at a time.

    An event longer than `longest` bytes is let go, and counted in `skipped`.
    """

    __slots__ = ("_chunks", "_due", "_inside_long", "_longest", "_size", "skipped")

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._longest = longest
        self._chunks: list[bytes] = []
        self._size = 0
        self._due = BATCH
        self._inside_long = False
        self.skipped = 0

    def read(self, text: bytes) -> None:
        """Is given whole events: line ends made LF, the empty line after the last one left out."""
        raise NotImplementedError

    def feed(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size >= self._due:
            self._hand_on(last=False)

    def catch_up(self) -> None:
        """Hand on all whole events now."""
        self._hand_on(last=False)

    def close(self) -> None:
        """Hand on what is left, an event that is not whole included."""
        self._hand_on(last=True)

    def _hand_on(self, last: bool) -> None:
        text = _with_line_feeds(b"".join(self._chunks), last)
        at = len(text.rstrip(b"\n")) if last else text.rfind(b"\n\n")
        whole = text[:at] if at >= 0 else None
        if whole is not None and self._inside_long:
            whole = whole.partition(b"\n\n")[2]
            self._inside_long = False
        if whole and len(text) > self._longest:
            whole = self._short(whole)
        self._keep(b"" if last else text[at + 2 :] if at >= 0 else text)
        if whole:
            self.read(whole)

    def _keep(self, rest: bytes) -> None:
        if len(rest) > self._longest + 4:  # four: line ends before it and behind it
            self.skipped += not self._inside_long
            self._inside_long = True
            rest = rest[-2:]
        self._chunks = [rest]
        self._size = len(rest)
        self._due = max(BATCH, 2 * len(rest))

    def _short(self, whole: bytes) -> bytes:
        events = whole.split(b"\n\n")
        short = [event for event in events if len(event.strip(b"\n")) <= self._longest]
        self.skipped += len(events) - len(short)
        return b"\n\n".join(short)


def _with_line_feeds(text: bytes, last: bool) -> bytes:
    """Every line end as LF; a CR at the very end stays, as it may yet become a CRLF."""
    if b"\r" not in text:
        return text
    undecided = b"\r" if text.endswith(b"\r") and not last else b""
    text = text.removesuffix(undecided).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text + undecided
