"""Content codings, undone as the bytes come, for reading along.

How far a text may unfold is bounded, and how far one piece of it may at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Protocol

import brotli  # type: ignore[import-untyped]  # it comes without annotations
import zstandard

MOST_DECODED = 64 * 1024 * 1024
"""Bytes that one coded text may unfold to."""
MOST_CODINGS = 4
MOST_MEMBERS = 10_000
"""Members of one gzip text."""


class _Stage(Protocol):
    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        """Add what `data` unfolds to to `out`; more than `room` bytes tell that there are more."""


class _Gzip:
    """Members one after the other, and zeros between them.

    Fed in slices: with every member that ends, all that is left of the data is copied.
    """

    SLICE = 16 * 1024

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False
        self._members = 0

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        for at in range(0, len(data), self.SLICE):
            self._unfold(data[at : at + self.SLICE], room, out)

    def _unfold(self, data: bytes, room: int, out: bytearray) -> None:
        while len(out) <= room and (data := data if self._begun else data.lstrip(b"\0")):
            out += self._member.decompress(data, room + 1 - len(out))
            self._begun = not self._member.eof
            data = self._member.unused_data
            if not self._begun:
                self._next()

    def _next(self) -> None:
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise zlib.error("too many members")
        self._member = zlib.decompressobj(wbits=31)


class _Deflate:
    """With the zlib header of RFC 9110, or without, as some servers send it."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: Any = None

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        if self._stream is None:
            self._head = data = self._head + data
            if len(data) < 2:
                return
            wrapped = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(wbits=15 if wrapped else -15)
        out += self._stream.decompress(data, room + 1)


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        # The limit is no exact one, but what stops short of it is all there is.
        out += self._stream.process(data, output_buffer_limit=room + 1)


class _Zstd:
    """Fed in slices: four bytes may unfold to 128 KiB, and there is no other bound on one call."""

    SLICE = 512
    WINDOW = 8 * 1024 * 1024  # RFC 9659: the most that this content coding may ask for

    def __init__(self) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=self.WINDOW)
        self._stream = decompressor.decompressobj(read_across_frames=True)

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        for at in range(0, len(data), self.SLICE):
            if len(out) > room:
                break
            out += self._stream.decompress(data[at : at + self.SLICE])


_STAGES: dict[str, Callable[[], _Stage]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


class Decoder:
    """Undoes a Content-Encoding as the bytes come, for reading along.

    Where the input cannot be decoded, its coding is not known, or it unfolds to more than `most`
    bytes or one piece to more than `at_once`, `failed` is set and nothing more comes out; where it
    is for the size, `too_large` too. Never raises.
    """

    __slots__ = ("_at_once", "_room", "_stages", "failed", "too_large")

    def __init__(
        self, content_encoding: str, most: int = MOST_DECODED, at_once: int = MOST_DECODED
    ) -> None:
        names = [name.strip().lower() for name in content_encoding.split(",")]
        coded = [name for name in reversed(names) if name not in ("", "identity")]
        self.failed = not _STAGES.keys() >= set(coded) or len(coded) > MOST_CODINGS
        self.too_large = False
        self._stages = [] if self.failed else [_STAGES[name]() for name in coded]
        self._room, self._at_once = most, at_once

    def feed(self, chunk: bytes) -> bytes:
        """What can be told so far."""
        if self.failed:
            return b""
        if not self._stages:
            return chunk
        for stage in self._stages:
            chunk = self._unfolded(stage, chunk)
        self._room -= len(chunk)
        return chunk

    def _unfolded(self, stage: _Stage, data: bytes) -> bytes:
        out, room = bytearray(), min(self._room, self._at_once)
        try:
            stage.unfold(data, room, out)
        except (zlib.error, brotli.error, zstandard.ZstdError):
            self.failed = True
        if len(out) > room:
            self.failed = self.too_large = True
        return bytes(out[:room])

    def close(self) -> bytes:
        """What was held back: nothing, all that can be told is told at once."""
        return b""
