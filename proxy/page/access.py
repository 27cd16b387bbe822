"""What the control plane reads of the ledger: who may see it, and whether it was all there.

A ledger gives less rather than raise where its store does not answer. Nobody is to take that for
an empty one, so what is read here comes with what the ledger said of itself meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastapi import Request

from proxy.errors import LedgerError
from proxy.ledger.contract import Conversation, Grade, Ledger, Summary
from proxy.page.sums import sums

Scoped = Callable[[Request], bytes | None]
"""The scope that a caller may see; None for all. Raises KeyUnknown for a caller that is nobody."""

_AT_ONCE = 10
_PAUSES = (0.0, 0.1, 0.3)


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
        raise _unanswered()
    if found is None or (scope is not None and found.summary.scope != scope):
        return None
    return found


async def summed(ledger: Ledger, found: Sequence[Summary]) -> list[dict[str, Any]]:
    """What all requests of each of these came to. Raises LedgerError where the store did not say.

    A few conversations at a time are held and read, so that neither memory nor the clients of the
    same process feel it.
    """
    failures, rows = _failures(ledger), []
    for start in range(0, len(found), _AT_ONCE):
        some = found[start : start + _AT_ONCE]
        accounts = await ledger.accounts([it.id for it in some])
        if not all(accounts) and _failures(ledger) > failures:
            raise _unanswered()
        rows += [sums(own, it.turns) for it, own in zip(some, accounts, strict=True)]
        await asyncio.sleep(0)
    return rows


async def graded(ledger: Ledger, scope: bytes | None, id: str, grade: Grade) -> str | None:
    """The public id of the conversation that took the grade; None where the caller sees none.

    What another worker has just told is on its way to a shared store: it is waited for a moment.
    Raises LedgerError where the store did not answer.
    """
    failures = _failures(ledger)
    for pause in _PAUSES if ledger.health().shared else _PAUSES[:1]:
        await asyncio.sleep(pause)
        if (kept := await ledger.grade(scope, id, grade)) is not None:
            return kept
        if _failures(ledger) > failures:
            raise _unanswered()
    return None


async def labelled(ledger: Ledger, scope: bytes | None, task: str, most: int) -> list[Summary]:
    """The conversations that bear the label and that the caller may see. Waits for one without a
    grade, and raises, as `graded` does.
    """
    failures, found = _failures(ledger), list[Summary]()
    for pause in _PAUSES if ledger.health().shared else _PAUSES[:1]:
        await asyncio.sleep(pause)
        found = await ledger.labelled(scope, task, most)
        if _failures(ledger) > failures:
            raise _unanswered()
        if any(it.grade is None for it in found):
            break
    return found


def _unanswered() -> LedgerError:
    return LedgerError("the ledger's store did not answer in time; try again")


# Of the kinds that a ledger counts, those which say that its store was not there.
_AWAY = ("timeout", "connection", "refused", "alone")


def _failures(ledger: Ledger) -> int:
    failures = ledger.health().failures
    return sum(failures.get(kind, 0) for kind in _AWAY)
