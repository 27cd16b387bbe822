"""Where a client's path leads at the upstream: the only place that puts an outgoing URL together.

The client's path without its leading `/v1` is appended to the base path of the upstream, so that
`/api/paas/v4`, `/v1beta/openai`, `/openai/v1` and Azure's deployments are one configured URL each.
An empty base path gets `/v1`. A client that was given the upstream's own path (the Azure client
writes `/openai/deployments/…` itself) is not sent there twice. Scheme, host and base path are
configured and cannot be left: the client's path only ever follows them, its dot segments resolved.
Percent-encoding and query are not touched.
"""

from __future__ import annotations

import re
from functools import lru_cache

_BASE = re.compile(r"(?P<origin>[a-z][a-z0-9+.-]*://[^/?#]+)(?P<path>[^?#]*)", re.IGNORECASE)
# An encoded dot is a dot: RFC 3986 § 6.2.2.2, unreserved characters.
_DOT_SEGMENT = re.compile(rb"/(?:\.|%2e){1,2}(?=/|$)", re.IGNORECASE)


def url_for(base_url: str, path: str | bytes, query: bytes) -> str:
    """`made` for what is short enough to be remembered."""
    if len(path) + len(query) < _SHORT:
        return _remembered(base_url, path, query)
    return made(base_url, path, query)


_SHORT = 100


def made(base_url: str, path: str | bytes, query: bytes) -> str:
    """The upstream URL of one request. `path` is as it came on the wire, percent-encoded.

    Raises ValueError where `base_url` is not an absolute URL.
    """
    base = _BASE.match(base_url)
    if base is None:
        raise ValueError("the upstream's base URL has no scheme and host")
    raw = path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path
    url = base["origin"] + _mapped(base["path"].rstrip("/"), _ascii(_resolved(raw)))
    return f"{url}?{_ascii(query)}" if query else url


_remembered = lru_cache(256)(made)


def _mapped(base_path: str, path: str) -> str:
    if base_path and _below(path, base_path):
        return path
    return (base_path or "/v1") + (path[3:] if _below(path, "/v1") else path)


def _below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent + "/")


def _resolved(path: bytes) -> bytes:
    """RFC 3986 § 5.2.4, so that no `..` leaves the base path; a path without dots as it came."""
    if not path.startswith(b"/"):
        path = b"/" + path
    if (b"." not in path and b"%" not in path) or _DOT_SEGMENT.search(path) is None:
        return path
    kept: list[bytes] = []
    segments = path[1:].split(b"/")
    for segment in segments:
        match _dots(segment):
            case 0:
                kept.append(segment)
            case 2 if kept:
                kept.pop()
    if _dots(segments[-1]):
        kept.append(b"")
    return b"/" + b"/".join(kept)


def _dots(segment: bytes) -> int:
    """1 for `.`, 2 for `..`, in either spelling; 0 for a segment that is a name."""
    plain = segment.lower().replace(b"%2e", b".")
    return len(plain) if plain in (b".", b"..") else 0


def _ascii(raw: bytes) -> str:
    """As it came; bytes that no URL may hold (not ASCII) percent-encoded, which says the same."""
    if raw.isascii():
        return raw.decode("ascii")
    return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)
