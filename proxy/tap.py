"""Reads a reply along, beside the bytes that pass: usage, reasoning, tool calls, how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from proxy.core.codings import Decoder
from proxy.core.reply import StreamReader, read_body, read_error
from proxy.core.seen import Seen

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes of a reply that is not streamed, decoded; what is longer passes, but is not read."""
LARGEST_STREAM = 64 * 1024 * 1024
"""Bytes that a coded stream may unfold to; what comes after passes, but is not read."""
LARGEST_PIECE = 4 * 1024 * 1024
"""Bytes that one piece of a coded stream may unfold to."""


# What a stream's last event but the usage's holds: a client that sees it may ask again at once.
# Some gateways send an empty reason with every event.
_terminal = re.compile(rb'"finish_reason"\s{0,8}:\s{0,8}"[^"]|\[DONE\]')
_LONGEST_TERMINAL = 40


class Tap:
    """Hears each piece. What it makes of them is asked for at the end; `ends` says of a stream that
    its terminal event has begun to come.
    """

    def __init__(self, status: int, named: Mapping[bytes, bytes]) -> None:
        self.failures = 0
        self.bytes = 0
        self.ends = False
        self._watched: bytes | None = None
        self._status = status
        streamed = named.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        self._reader = StreamReader() if streamed else None
        self._decoder = _decoder(named.get(b"content-encoding"), streamed)
        self._pieces: list[bytes] = []
        self._room = LARGEST_BODY

    def feed(self, chunk: bytes) -> None:
        self.bytes += len(chunk)
        plain = self._decoder.feed(chunk) if self._decoder is not None else chunk
        if self._reader is not None:
            self._reader.feed(plain)
            if self._watched is not None:
                self._watch(self._watched + plain)
        elif not self._too_large(plain):
            self._pieces.append(plain)

    def watch(self) -> None:
        """Look out for a stream's end from now on."""
        self._watched = b""

    def _watch(self, text: bytes) -> None:
        self.ends = self.ends or _terminal.search(text) is not None
        self._watched = None if self.ends else text[-_LONGEST_TERMINAL:]

    def so_far(self) -> Seen:
        """What was read before the end; of a body, all that came."""
        if self._reader is not None:
            return self._reader.so_far()
        return self.seen()

    def seen(self) -> Seen:
        """All that was read; nothing of a body that is too large."""
        if self._reader is not None:
            seen = self._reader.finish()
            return replace(seen, truncated=True) if self._cut_off() else seen
        if self._room < 0 or self._cut_off():
            return Seen(truncated=True)
        return read_body(b"".join(self._pieces))

    def error(self) -> str:
        """The type or code of the provider's error, where it answered with one."""
        if self._status < 400 or self._reader is not None:
            return ""
        return read_error(b"".join(self._pieces))

    def _too_large(self, plain: bytes) -> bool:
        self._room -= len(plain)
        if self._room < 0:
            self._pieces.clear()
        return self._room < 0

    def _cut_off(self) -> bool:
        return self._decoder is not None and self._decoder.too_large


def _decoder(coding: bytes | None, streamed: bool) -> Decoder | None:
    if not coding:
        return None
    most, at_once = (LARGEST_STREAM, LARGEST_PIECE) if streamed else (LARGEST_BODY, LARGEST_BODY)
    return Decoder(coding.decode("latin-1"), most, at_once)
