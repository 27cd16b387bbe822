"""What is read of a reply beside the bytes that pass, and what is too large to be read."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from proxy.core.seen import Seen
from proxy.tap import LARGEST_BODY, LARGEST_PIECE, LARGEST_STREAM, Tap

JSON, STREAM = b"application/json", b"text/event-stream; charset=utf-8"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7}}\n\ndata: [DONE]\n\n'


def tapped(
    *pieces: bytes, kind: bytes = JSON, coding: bytes = b"", status: int = 200
) -> tuple[Seen, str, int]:
    """What was seen, the error that was told, how many bytes passed."""
    tap = Tap(status, {b"content-type": kind, **({b"content-encoding": coding} if coding else {})})
    for piece in pieces:
        tap.feed(piece)
    return tap.seen(), tap.error(), tap.bytes


def completion(size: int) -> bytes:
    """A completion of so many bytes."""
    head, tail = b'{"choices":[{"message":{"content":"', b'"}}],"usage":{"prompt_tokens":7}}'
    return head + b"a" * (size - len(head) - len(tail)) + tail


def cut(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("coding", [b"", b"gzip"])
def test_a_body_is_read_up_to_the_largest_and_not_beyond(coding: bytes) -> None:
    code = gzip.compress if coding else bytes

    fits, _, _ = tapped(*cut(code(completion(LARGEST_BODY)), 1 << 16), coding=coding)
    exceeds, _, _ = tapped(*cut(code(completion(LARGEST_BODY + 1)), 1 << 16), coding=coding)

    assert (7, False) == (fits.usage.input, fits.truncated)
    assert Seen(truncated=True) == exceeds


def test_bytes_are_counted_as_they_pass_however_many() -> None:
    body = completion(LARGEST_BODY + 100)

    assert len(body) == tapped(*cut(body, 1 << 20))[2]


def test_an_error_is_told_by_its_code_where_it_is_one_and_can_be_read() -> None:
    error = json.dumps({"error": {"code": "bad"}}).encode()

    assert "bad" == tapped(error, status=400)[1]
    assert "" == tapped(error, status=200)[1]
    assert "" == tapped(b"data: " + error, kind=STREAM, status=400)[1]
    assert "" == tapped(error, b" " * LARGEST_BODY, status=400)[1]


def test_a_long_stream_is_read_to_its_usage() -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"abc"}}]}\n\n' * 1_000

    seen, _, _ = tapped(*[chunk] * 300, USAGE, kind=STREAM)

    assert (900_000, 7, True, False) == (
        len(seen.text), seen.usage.input, seen.done, seen.truncated,
    )  # fmt: skip


def test_a_coded_stream_that_unfolds_to_very_much_is_cut_off() -> None:
    bomb = gzip.compress(b"data: x\n\n" * (LARGEST_PIECE // 9 + 1))
    steady = [gzip.compress(b": " + b"x" * (1 << 20) + b"\n\n")] * (LARGEST_STREAM >> 20)
    usage = gzip.compress(USAGE)

    assert tapped(bomb, usage, kind=STREAM, coding=b"gzip")[0].truncated
    assert tapped(*steady, usage, kind=STREAM, coding=b"gzip")[0].truncated
    seen, _, _ = tapped(*steady[2:], usage, kind=STREAM, coding=b"gzip")
    assert (7, False) == (seen.usage.input, seen.truncated)


def test_a_frame_of_a_gigabyte_in_a_few_bytes_is_not_unfolded() -> None:
    bomb = zstandard.compress(bytes(1 << 28))

    assert Seen(truncated=True) == tapped(bomb, coding=b"zstd")[0]
    assert tapped(bomb, kind=STREAM, coding=b"zstd")[0].truncated


def test_what_cannot_be_decoded_shows_nothing() -> None:
    assert Seen() == tapped(b"no gzip", coding=b"gzip")[0]
