"""What the control plane reads of a ledger: all of it, or that it was not all there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.errors import LedgerError
from proxy.ledger.contract import Conversation, Grade, Health, Summary
from proxy.page import access

AWAY = ("timeout", "connection", "refused", "alone")
OWN = ("let_go", "outcome", "unreadable", "oversized")
SCOPE, ID = b"s" * 16, "ab" * 16
ONE = Summary(ID, SCOPE, 1, 1.0, 2.0, {})


class Failing:
    """A ledger that gives nothing, or `one`, and counts a failure of a kind with every answer."""

    def __init__(self, kind: str, one: Summary | None = None) -> None:
        self._kind, self._one, self._count = kind, one, 3

    def health(self) -> Health:
        return Health("up", 0, {self._kind: self._count}, False)

    async def conversations(self, *which: Any) -> list[Summary]:
        self._count += 1
        return [self._one] if self._one else []

    async def conversation(self, id: str) -> Conversation | None:
        self._count += 1
        return Conversation(self._one, (), None) if self._one else None

    async def accounts(self, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        self._count += 1
        return [() for _ in ids]

    async def grade(self, scope: bytes | None, id: str, grade: Grade) -> str | None:
        self._count += 1
        return self._one.id if self._one else None

    async def labelled(self, *which: Any) -> list[Summary]:
        self._count += 1
        return [self._one] if self._one else []


def ledger(kind: str, one: Summary | None = None) -> Any:
    return Failing(kind, one)


@pytest.mark.parametrize("kind", AWAY)
async def test_a_store_that_was_away_is_not_taken_for_an_empty_one(kind: str) -> None:
    assert ("down", []) == ((await access.listed(ledger(kind), None, 10))[::-1])
    for asked in (
        access.owned(ledger(kind), None, ID),
        access.summed(ledger(kind), [ONE]),
        access.graded(ledger(kind), None, ID, Grade(True)),
        access.labelled(ledger(kind), None, "task", 10),
    ):
        with pytest.raises(LedgerError, match="did not answer in time; try again"):
            await asked


@pytest.mark.parametrize("kind", OWN)
async def test_a_failure_of_another_kind_does_not_say_that_the_store_was_away(kind: str) -> None:
    assert ("up", []) == ((await access.listed(ledger(kind), None, 10))[::-1])
    assert None is await access.owned(ledger(kind), None, ID)
    assert 1 == len(await access.summed(ledger(kind), [ONE]))
    assert None is await access.graded(ledger(kind), None, ID, Grade(True))
    assert [] == await access.labelled(ledger(kind), None, "task", 10)


async def test_what_was_found_is_given_though_the_store_stumbled() -> None:
    found = await access.owned(ledger("timeout", ONE), None, ID)

    assert found is not None
    assert ONE == found.summary
    assert ID == await access.graded(ledger("timeout", ONE), None, ID, Grade(True))
    assert ("down", [ONE]) == ((await access.listed(ledger("timeout", ONE), None, 10))[::-1])


async def test_another_s_conversation_is_none() -> None:
    assert None is await access.owned(ledger("let_go", ONE), b"t" * 16, ID)
    assert None is not await access.owned(ledger("let_go", ONE), SCOPE, ID)
