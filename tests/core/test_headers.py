"""What travels through, in which order, and what each hop keeps to itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import headers

NAMES = st.sampled_from(
    [b"accept", b"connection", b"te", b"x-a", b"x-b", b"host", b"x-lethe-policy", b"keep-alive"]
)
LISTS = st.lists(st.tuples(NAMES, st.sampled_from([b"1", b"x-a", b"close, X-B", b"keep-alive"])))


def test_what_belongs_to_the_connection_stays_behind():
    came = [
        (b"host", b"127.0.0.1:4100"),
        (b"connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authorization", b"Basic eA=="),
        (b"proxy-connection", b"keep-alive"),
        (b"te", b"trailers"),
        (b"trailer", b"x-sum"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"AAMAAABkAAQ"),
        (b"expect", b"100-continue"),
        (b"content-length", b"17"),
        (b"content-type", b"application/json"),
    ]

    assert [(b"content-type", b"application/json")] == headers.forwarded(came)


def test_what_a_connection_header_names_stays_behind_in_any_case():
    came = [
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"connection", b"x-two"),
        (b"x-two", b"2"),
    ]

    assert [] == headers.forwarded(came)
    assert [] == headers.returned(came)


def test_our_own_headers_never_reach_the_upstream():
    came = [(b"x-lethe-policy", b"drop"), (b"x-lethe-anything", b"1"), (b"x-lethargy", b"2")]

    assert [(b"x-lethargy", b"2")] == headers.forwarded(came)


def test_order_and_duplicates_are_kept():
    came = [(b"b", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"\xe9")]

    assert came == headers.forwarded(came)


def test_tracing_and_provider_headers_travel():
    came = [
        (b"authorization", b"Bearer k"),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"anthropic-beta", b"interleaved-thinking-2025-05-14"),
        (b"openai-organization", b"org"),
        (b"idempotency-key", b"7"),
        (b"x-request-id", b"r"),
        (b"cookie", b"a=b"),
    ]

    assert came == headers.forwarded(came)


def test_more_can_be_left_out_for_the_caller_to_write_anew():
    came = [(b"authorization", b"Bearer ours"), (b"accept", b"*/*")]

    assert [(b"accept", b"*/*")] == headers.forwarded(came, drop=frozenset({b"authorization"}))


def test_reply_headers_lose_their_hop_and_their_capitals_but_not_their_length():
    came = [
        (b"Content-Type", b"text/event-stream"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"keep-alive"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Content-Length", b"3"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"X-Lethe-Policy", b"of another proxy"),
    ]
    kept = [(b"content-type", b"text/event-stream"), (b"content-length", b"3")]
    cookies = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]

    assert kept + cookies == headers.returned(came)
    assert kept[:1] + cookies == headers.returned(came, length=False)


@given(LISTS)
def test_only_whole_pairs_are_taken_out_and_the_second_time_none(came):
    once = headers.forwarded(came)
    left = iter(came)

    assert all(pair in left for pair in once)
    assert once == headers.forwarded(once)


@pytest.mark.parametrize(
    ("asked", "identity", "wanted"),
    [
        (b"gzip, deflate, br, zstd", False, b"gzip, deflate, br, zstd"),
        (b"gzip, deflate, br, zstd", True, b"identity"),
        (b"zstd,gzip", False, b"zstd, gzip"),
        (b"br;q=1.0, GZIP;q=0.6, *;q=0.1", False, b"br;q=1.0, GZIP;q=0.6"),
        (b"compress, dcb", False, b"identity"),
        (b"*", False, b"identity"),
        (b"", False, b"identity"),
        (None, False, b"identity"),
    ],
)
def test_only_encodings_that_can_be_read_along_are_accepted(asked, identity, wanted):
    assert wanted == headers.accept_encoding(asked, identity)


@pytest.mark.parametrize(
    ("came", "wanted"),
    [
        ([(b"authorization", b"Bearer sk-1")], b"sk-1"),
        ([(b"authorization", b"bearer  sk-1 ")], b"sk-1"),
        ([(b"authorization", b"Basic dTpw")], b"Basic dTpw"),
        ([(b"api-key", b"az")], b"az"),
        ([(b"x-api-key", b"ant")], b"ant"),
        ([(b"x-api-key", b"ant"), (b"authorization", b"Bearer sk-1")], b"sk-1"),
        ([(b"authorization", b"Bearer "), (b"api-key", b"az")], b"az"),
        ([(b"authorization", b"Bearer")], None),
        ([(b"accept", b"*/*")], None),
        ([], None),
    ],
)
def test_a_key_is_the_same_credential_whichever_header_carries_it(came, wanted):
    assert wanted == headers.credential(dict(came))


def test_a_value_with_a_control_character_is_no_header():
    came = [(b"X-A", b"fine"), (b"X-B", b"a\x00b"), (b"X-C", b"tab\tis text")]

    assert [(b"x-a", b"fine"), (b"x-c", b"tab\tis text")] == headers.returned(came)
