"""Header lists on their way through: what travels, what is one hop's own, what we may ask for.

A list is ASGI's: pairs of raw bytes, in the order in which they came, duplicates kept, names in
lower case on the client's side and as they came on the upstream's. Nothing is joined or sorted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Headers = list[tuple[bytes, bytes]]

_control = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# RFC 9110 § 7.6.1: the connection's own, whoever sent them. What `connection` names comes on top.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# `host` and `content-length` are written anew; `expect` was answered by our own server.
_NOT_FORWARDED = _HOP_BY_HOP | {b"host", b"content-length", b"expect", b"http2-settings"}
_LENGTH = frozenset({b"content-length"})

# What a relay can read along with: the content codings that the usage tap decodes.
_READABLE = frozenset({b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"identity"})
# Sent as they are by nearly every client, so that these need no reading.
_READABLE_LISTS = frozenset(
    {
        b"gzip, deflate",
        b"gzip, deflate, br",
        b"gzip, deflate, zstd",
        b"gzip, deflate, br, zstd",
        b"br, gzip, deflate",
        b"gzip",
        b"identity",
    }
)

_CREDENTIALS = (b"authorization", b"api-key", b"x-api-key")


def forwarded(
    headers: Iterable[tuple[bytes, bytes]], *, drop: frozenset[bytes] = frozenset()
) -> Headers:
    """The client's headers for the upstream: hop-by-hop, framing and `x-lethe-*` taken out.

    `drop` names more to leave out, where the caller writes its own. A connection option can take
    out only what the client itself sent: it never reaches a header that is added afterwards.
    """
    headers = list(headers)
    out = _NOT_FORWARDED | drop | _named(headers)
    return [pair for pair in headers if pair[0] not in out and not pair[0].startswith(b"x-lethe-")]


def returned(headers: Iterable[tuple[bytes, bytes]], *, length: bool = True) -> Headers:
    """The upstream's headers as the client gets them, names in lower case.

    A value that holds a control character is no header and goes (RFC 9110 § 5.5). `length` false
    leaves `content-length` out, for a body that is edited on its way. An upstream's own
    `x-lethe-*` (a second proxy behind this one) are left out: those a client reads are ours.
    """
    lower = [(name.lower(), value) for name, value in headers]
    out = _HOP_BY_HOP | _named(lower) | (frozenset() if length else _LENGTH)
    if _control.search(b"".join([value for _, value in lower])):
        lower = [pair for pair in lower if not _control.search(pair[1])]
    return [pair for pair in lower if pair[0] not in out and not pair[0].startswith(b"x-lethe-")]


def _named(headers: Headers) -> frozenset[bytes]:
    """What the `connection` headers name as belonging to this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    if not values or values == [b"keep-alive"]:
        return frozenset()
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))


def accept_encoding(value: bytes | None, identity: bool) -> bytes:
    """What to accept from the upstream: of what the client accepts, that which can be read along.

    `value` is the client's header, None where it sent none; `identity` is true where the stream is
    edited. Weights and order stay as they came. Nothing left to accept means `identity`.
    """
    if identity or value is None:
        return b"identity"
    if value in _READABLE_LISTS:
        return value
    items = (item.strip() for item in value.split(b","))
    kept = [item for item in items if item.partition(b";")[0].strip().lower() in _READABLE]
    return b", ".join(kept) or b"identity"


def credential(named: Mapping[bytes, bytes]) -> bytes | None:
    """The key that the client calls with, without its `Bearer` scheme; None where it sends none.
    `named` has the last value of every header.

    One key is one credential, whichever header carries it: `authorization`, else `api-key`, else
    `x-api-key`. A `Basic` or any other scheme is kept with its name.
    """
    for name in _CREDENTIALS:
        value = named.get(name, b"").strip()
        scheme, _, token = value.partition(b" ")
        if key := token.strip() if scheme.lower() == b"bearer" else value:
            return key
    return None
