"""Reads a reply along, beside the bytes that pass: usage, reasoning, tool calls, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from proxy.core.reply import Decoder, Seen, StreamReader, read_body, read_error

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes of a reply that is not streamed, decoded; what is longer passes, but is not read."""
LARGEST_STREAM = 64 * 1024 * 1024
"""Bytes that a coded stream may unfold to; what comes after passes, but is not read."""
LARGEST_PIECE = 4 * 1024 * 1024
"""Bytes that one piece of a coded stream may unfold to."""


class Tap:
    """Hears each piece after it was written. What it makes of them is asked for once, at the
    end.
    """

    def __init__(self, status: int, named: Mapping[bytes, bytes]) -> None:
        self.failures = 0
        self.bytes = 0
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
        elif not self._too_large(plain):
            self._pieces.append(plain)

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
