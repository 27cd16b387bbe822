"""What the control plane reads of the ledger: who may see it, and whether it was all there.

A ledger gives less rather than raise where its store does not answer. Nobody is to take that for
an empty one, so what is read here comes with what the ledger said of itself meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fastapi import Request

from proxy.errors import LedgerError
from proxy.ledger.contract import Conversation, Ledger, Summary

Scoped = Callable[[Request], bytes | None]
"""The scope that a caller may see; None for all. Raises KeyUnknown for a caller that is nobody."""


class Listed(NamedTuple):
    """`ledger` is the ledger's state while it was read: `up`, `slow` or `down`."""

    found: list[Summary]
    ledger: str


async def listed(
    ledger: Ledger, scope: bytes | None, limit: int, before: float | None = None
) -> Listed:
    """The most recently active conversations that the caller may see."""
    failures = _failures(ledger)
    found = await ledger.conversations(scope, limit, before)
    state = ledger.health().state
    failed = state == "up" and _failures(ledger) > failures
    return Listed(found, "down" if failed else state)


async def owned(ledger: Ledger, scope: bytes | None, id: str) -> Conversation | None:
    """The conversation, where the caller may see it; one of another scope is not told from none.

    Raises LedgerError where the store did not say whether there is one.
    """
    failures = _failures(ledger)
    found = await ledger.conversation(id)
    if found is None and _failures(ledger) > failures:
        raise LedgerError("the ledger's store did not answer in time; try again")
    if found is None or (scope is not None and found.summary.scope != scope):
        return None
    return found


# Of the kinds that a ledger counts, those which say that its store was not there.
_AWAY = ("timeout", "connection", "refused", "alone")


def _failures(ledger: Ledger) -> int:
    failures = ledger.health().failures
    return sum(failures.get(kind, 0) for kind in _AWAY)
