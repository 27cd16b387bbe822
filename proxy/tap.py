"""Reads a reply along, beside the bytes that pass: usage, reasoning, tool calls, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.reply import Decoder, Seen, StreamReader, read_body, read_error

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes of a reply that is not streamed; what is longer passes, but is not read."""


class Tap:
    """Hears each piece after it was written. What it makes of them is asked for once, at the
    end.
    """

    def __init__(self, status: int, named: Mapping[bytes, bytes]) -> None:
        self.failures = 0
        self.bytes = 0
        self._status = status
        coding = named.get(b"content-encoding")
        self._decoder = Decoder(coding.decode("latin-1")) if coding else None
        streamed = named.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        self._reader = StreamReader() if streamed else None
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        self.bytes += len(chunk)
        plain = self._decoder.feed(chunk) if self._decoder is not None else chunk
        if self._reader is not None:
            self._reader.feed(plain)
        elif self.bytes <= LARGEST_BODY:
            self._pieces.append(plain)

    def seen(self) -> Seen:
        """All that was read."""
        rest = self._decoder.close() if self._decoder is not None else b""
        if self._reader is not None:
            self._reader.feed(rest)
            return self._reader.finish()
        return read_body(b"".join([*self._pieces, rest]))

    def error(self) -> str:
        """The type or code of the provider's error, where it answered with one."""
        if self._status < 400 or self._reader is not None:
            return ""
        return read_error(b"".join(self._pieces))
