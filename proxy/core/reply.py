"""What came back, read beside the relay: usage, reasoning, text, tool calls, how it ended.

A stream and a body go through one fold (`fold`), so they agree. Nothing here raises, whatever came,
and memory is bounded; what cannot be read is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from proxy.core.chunks import Chunk, chunk_from, chunk_of, decode_body, error_in, object_in
from proxy.core.fold import MOST_TEXT, Fold
from proxy.core.seen import Seen
from proxy.core.sse import Gatherer, data_of, values_of
from proxy.core.wire import scan

LONGEST_READ = 4 * 1024 * 1024
"""Bytes of one event of a stream; a longer one is left out."""
MOST_VALUES = 1_000_000
"""Values in a body that is not streamed; of what holds more nothing is read."""
MOST_ODD = 2_000
"""Events of a stream that are no chunks. Behind these only those are read that promise something,
and behind as many of them that did not keep it, none.
"""
_promise = re.compile(rb'"(?:choices|usage|error)"|\[DONE\]')


class StreamReader(Gatherer):
    """Reads a stream of chat completion chunks: `feed` them all, then `finish`.

    Of an Anthropic or a Responses stream it reads usage, model and errors.
    """

    __slots__ = ("_most", "_odd", "_reply", "_safe", "_start", "_wire")

    def __init__(self, longest_event: int = LONGEST_READ, most_text: int = MOST_TEXT) -> None:
        super().__init__(longest_event)
        self._reply = Fold()
        self._most = self._safe = most_text  # until then no text can be too much
        self._wire = self._start = 0
        self._odd = 0

    def so_far(self) -> Seen:
        """All whole events that were fed; more may follow."""
        self.catch_up()
        return self._reply.seen()

    def finish(self) -> Seen:
        """All that was fed, an event that never became whole included where it can be read."""
        self.close()
        self._reply.truncated = self._reply.truncated or self.skipped > 0
        return self._reply.seen()

    def read(self, text: bytes) -> None:
        """Nearly every piece between the two marks is one payload and nothing else."""
        self._start, self._wire = self._wire, self._wire + len(text)
        take = self._take if self._wire <= self._safe else self._take_sparingly
        first, *pieces = (b"\n\n" + text).split(b"\n\ndata: ")
        self._read_odd(first)
        for piece in self._patiently(pieces):
            chunk = chunk_of(piece) if b"\n" not in piece else None
            if chunk is not None:
                take(chunk)
            else:
                self._read_odd(b"data: " + piece)
        self._reply.settle()

    def _read_odd(self, text: bytes) -> None:
        """Events in any form."""
        events = [event for event in text.split(b"\n\n") if b"data" in event]
        for event in self._patiently(events):
            data = data_of(event)
            if data is not None:
                self._read_data(data, values_of(event, b"event")[-1:])

    def _patiently(self, events: list[bytes]) -> Iterator[bytes]:
        """All events; once many were odd, those that promise something, and then none."""
        for event in events:
            if self._odd < MOST_ODD or (self._odd < 2 * MOST_ODD and _promise.search(event)):
                yield event
            else:
                self._reply.truncated = True

    def _read_data(self, data: bytes, names: list[bytes]) -> None:
        if data.strip() == b"[DONE]":
            self._reply.done = True
        elif (chunk := chunk_of(data)) is not None:
            self._take_sparingly(chunk)
        else:
            self._odd += 1
            self._read_other(data)
        if names == [b"error"]:
            self._reply.error = self._reply.error or "error"

    def _read_other(self, data: bytes) -> None:
        value = object_in(data)
        if value is not None:
            self._take_sparingly(chunk_from(value, "delta"))
            self._reply.take_rest(value)

    def _take(self, chunk: Chunk) -> None:
        try:
            self._reply.take(chunk)
        except RecursionError:  # JSON nested some thousand deep
            self._reply.truncated = True

    def _take_sparingly(self, chunk: Chunk) -> None:
        """The same once the wire brought so many bytes that the text in them may be too much."""
        if self._wire > self._safe and chunk.choices and self._is_full():
            self._reply.truncated = True
            for choice in chunk.choices:
                choice.delta = None
        self._take(chunk)

    def _is_full(self) -> bool:
        """Whether as much text is held as may be; if not, it cannot be before `_safe`."""
        held = self._reply.settle()
        self._safe = max(self._safe, self._start + self._most - held)
        return held >= self._most


def read_body(body: bytes) -> Seen:
    """The reply in a body that was not streamed; an empty `Seen` where it is no JSON object."""
    if scan.busier_than(body, MOST_VALUES):
        return Seen(truncated=True)
    return _plain_body(body) or _odd_body(body)


def _plain_body(body: bytes) -> Seen | None:
    """The fast way to read a completion; None where the other must do."""
    try:
        chunk = decode_body(body)
        if not chunk.choices or chunk.error:
            return None
        reply = Fold(whole=True)
        reply.done = True
        reply.take(chunk)
        return reply.seen()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _odd_body(body: bytes) -> Seen:
    value = object_in(body)
    if value is None:
        return Seen()
    reply = Fold(whole=True)
    reply.done = True
    try:
        reply.take(chunk_from(value, "message"))
    except RecursionError:  # JSON nested some thousand deep
        reply.truncated = True
    reply.take_rest(value)
    return reply.seen()


def read_error(body: bytes) -> str:
    """The code or type that an error body names: "error" where none, "" where it is no error."""
    value = None if scan.busier_than(body, MOST_VALUES) else object_in(body)
    return error_in(value) if value is not None else ""
