"""Signing in to the page: a cookie that says what its bearer may see, signed with the admin token.

A browser that follows a link sends no `Authorization`. So the page takes the token (or a client's
key) once and gives a cookie for it: when it ends, which scope it opens, and a keyed digest over
both. Nothing is stored; every worker and replica with the same token can check it, and another
token ends all of them.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256

COOKIE = "lethe_page"
LASTS = 12 * 3600.0
"""Seconds."""
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Pass:
    """What the bearer may see: one scope, or all of them where it is None."""

    scope: bytes | None


def issued(token: str, scope: bytes | None, until: float) -> str:
    """The cookie's value. `until` is in seconds since the epoch."""
    claim = f"{int(until)}.{_ALL if scope is None else scope.hex()}"
    return f"{claim}.{_signature(token, claim)}"


def read(token: str, cookie: str, now: float) -> Pass | None:
    """What a cookie opens; None where it is not one of ours, or over."""
    claim, _, signature = cookie.rpartition(".")
    if not hmac.compare_digest(_signature(token, claim).encode(), signature.encode()):
        return None
    until, _, scope = claim.partition(".")
    if float(until) <= now:
        return None
    return Pass(None if scope == _ALL else bytes.fromhex(scope))


def _signature(token: str, claim: str) -> str:
    return hmac.new(token.encode(), b"lethe page " + claim.encode(), sha256).hexdigest()
