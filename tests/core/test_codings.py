"""Content codings: undone however they were cut, told where they cannot be, and never too far."""

from __future__ import annotations

import gzip
import zlib

import brotli  # type: ignore[import-untyped]  # it comes without annotations
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.codings import MOST_CODINGS, MOST_MEMBERS, Decoder
from tests.core.test_reply import DONE, cut_at, delta

TEXT = b"".join(delta(content=f"word {i} ") for i in range(500)) + DONE


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


CODED = {
    "": TEXT,
    "identity": TEXT,
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:999]) + gzip.compress(TEXT[999:]),
    "GZIP ": gzip.compress(TEXT[:999]) + bytes(7) + gzip.compress(TEXT[999:]) + bytes(9),
    "deflate": zlib.compress(TEXT),
    "Deflate": raw_deflate(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "ZSTD": zstandard.compress(TEXT[:999]) + zstandard.compress(TEXT[999:]),
    "gzip, br": brotli.compress(gzip.compress(TEXT)),
    "identity, zstd": zstandard.compress(TEXT),
}


def decode(decoder: Decoder, chunks: list[bytes]) -> bytes:
    return b"".join(map(decoder.feed, chunks)) + decoder.close()


@pytest.mark.parametrize("coding", CODED)
def test_a_coded_reply_is_decoded_in_one_piece_and_byte_by_byte(coding: str) -> None:
    coded = CODED[coding]
    for chunks in ([coded], [coded[i : i + 1] for i in range(len(coded))], [coded, b""]):
        decoder = Decoder(coding)
        assert TEXT == decode(decoder, chunks)
        assert not decoder.failed


@given(st.sampled_from(sorted(CODED)), st.lists(st.integers(0, 30_000), max_size=8))
def test_decoding_does_not_depend_on_how_the_bytes_were_cut(coding: str, places: list[int]) -> None:
    assert TEXT == decode(Decoder(coding), cut_at(CODED[coding], places))


@given(st.sampled_from(sorted(CODED)), st.binary(max_size=80), st.integers(0, 200))
def test_no_bytes_make_decoding_raise(coding: str, junk: bytes, at: int) -> None:
    decoder = Decoder(coding)
    out = decode(decoder, [CODED[coding][:at] + junk, junk])

    assert isinstance(out, bytes)
    assert b"" == decoder.feed(CODED[coding]) or not decoder.failed


def test_a_coding_that_is_not_known_fails() -> None:
    decoder = Decoder("gzip, snappy")

    assert decoder.failed
    assert b"" == decoder.feed(b"abc")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_what_was_told_before_an_undecodable_byte_stands(coding: str) -> None:
    decoder = Decoder(coding)
    coded = CODED[coding]

    head = decoder.feed(coded[: len(coded) // 2])
    assert TEXT.startswith(head)
    decoder.feed(bytes(range(255, 0, -1)) * 40)

    assert decoder.failed
    assert b"" == decoder.feed(coded)


def test_junk_behind_a_gzip_member_costs_nothing_of_it() -> None:
    decoder = Decoder("gzip")

    assert TEXT == decoder.feed(gzip.compress(TEXT) + b"junk")
    assert decoder.failed


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, br"])
def test_a_bomb_is_not_unfolded(coding: str) -> None:
    size = 8 * 1024 * 1024
    bombs = {
        "gzip": gzip.compress(bytes(size)),
        "deflate": zlib.compress(bytes(size)),
        "br": brotli.compress(bytes(size)),
        "zstd": zstandard.compress(bytes(size)) * 8,
        "gzip, br": brotli.compress(gzip.compress(bytes(size))),
    }
    decoder = Decoder(coding, most=10_000)

    assert bytes(10_000) == decoder.feed(bombs[coding])
    assert decoder.failed
    assert b"" == decoder.feed(b"more")


@pytest.mark.parametrize("coding", CODED)
def test_a_reply_as_large_as_allowed_is_decoded(coding: str) -> None:
    decoder = Decoder(coding, most=len(TEXT))

    assert TEXT == decode(decoder, [CODED[coding]])
    assert not decoder.failed


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_piece_that_unfolds_to_too_much_at_once_is_not_unfolded(coding: str) -> None:
    decoder = Decoder(coding, at_once=len(TEXT) - 1)

    assert TEXT[:-1] == decoder.feed(CODED[coding])
    assert (True, True) == (decoder.failed, decoder.too_large)


def test_what_is_too_large_is_told_from_what_is_broken() -> None:
    broken = Decoder("gzip")
    broken.feed(b"no gzip")

    assert (True, False) == (broken.failed, broken.too_large)


def test_more_codings_than_anyone_uses_are_not_undone() -> None:
    assert not Decoder(",".join(["gzip"] * MOST_CODINGS)).failed
    assert Decoder(",".join(["gzip"] * (MOST_CODINGS + 1))).failed


def test_members_of_a_gzip_text_are_read_up_to_the_most() -> None:
    decoder = Decoder("gzip")

    assert b"a" == decoder.feed(gzip.compress(b"") * (MOST_MEMBERS - 1) + gzip.compress(b"a"))
    assert not decoder.failed
    decoder.feed(gzip.compress(b"b"))
    assert (True, False) == (decoder.failed, decoder.too_large)


def test_a_zstd_frame_with_a_window_beyond_the_http_limit_fails() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24)
    coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    decoder = Decoder("zstd")

    decoder.feed(coder.compress(bytes(100)) + coder.flush())

    assert decoder.failed
