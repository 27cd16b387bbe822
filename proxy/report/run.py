"""One conversation as a report sees it: sums over its requests, and whether it succeeded.

It is read from one row of `/lethe/conversations?sums=true`. What is not there is unknown, which is
not 0: a number that no request reported is None, and averages are over the steps that it is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Json = Mapping[str, Any]

SEVERAL = "several"
"""The name of a conversation's policy, or model, that changed while it lived."""
UNKNOWN = "unknown"
_NONE: Json = {}


class Amount(msgspec.Struct, frozen=True, gc=False):
    """Tokens or dollars, and how many steps they are of."""

    sum: float = 0.0
    steps: int = 0


class Run(msgspec.Struct, frozen=True):
    """`steps` counts the requests that were answered to their end. `cost` is in dollars, `keep`
    what the same requests would have come to under that policy, mechanically; `estimated` says that
    this rests on estimated tokens. `breaks` of the prefix, `own` those that the policy itself made.
    """

    id: str
    at: float
    task: str
    model: str
    policy: str
    steps: int
    output: Amount
    reasoning: Amount
    input: Amount
    cache_read: Amount
    dropped: float
    cost: Amount
    keep: float
    priced: int
    unpriced: int
    estimated: bool
    breaks: int
    own: int
    success: bool | None
    score: float | None


def read(row: Json) -> Run:
    sums = _part(row, "sums")
    tokens, money, breaks = (_part(sums, name) for name in ("tokens", "dollars", "breaks"))
    graded = _part(row, "outcome")
    return Run(
        id=str(row.get("id") or ""),
        at=float(row.get("last_at") or 0.0),
        task=str(sums.get("task") or ""),
        model=_one(_part(sums, "models")),
        policy=_one(_part(sums, "policies")),
        steps=int(sums.get("steps") or 0),
        output=_amount(tokens, "output"),
        reasoning=_amount(tokens, "reasoning"),
        input=_amount(tokens, "input"),
        cache_read=_amount(tokens, "cache_read"),
        dropped=_amount(tokens, "dropped_estimated").sum,
        cost=Amount(float(money.get("cost") or 0.0), int(money.get("steps") or 0)),
        keep=float(money.get("keep") or 0.0),
        priced=int(money.get("priced") or 0),
        unpriced=int(money.get("unpriced") or 0),
        estimated=bool(money.get("estimated")),
        breaks=sum(map(int, breaks.values())),
        own=int(breaks.get("proxy") or 0),
        success=graded.get("success"),
        score=graded.get("score"),
    )


def _part(found: Json, name: str) -> Json:
    it = found.get(name)
    return it if isinstance(it, dict) else _NONE


def _amount(found: Json, name: str) -> Amount:
    it = _part(found, name)
    return Amount(float(it.get("sum") or 0), int(it.get("steps") or 0))


def _one(names: Json) -> str:
    found = [str(name) for name in names if name]
    return UNKNOWN if not found else found[0] if len(found) == 1 else SEVERAL
