"""The JSON API of the admin listener: conversations, findings, statistics, outcomes; forgetting.

The admin token sees all. A client's own credential sees its own scope, and to it any other is not
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import orjson
from fastapi import APIRouter, Query, Request, Response

from proxy import __version__
from proxy.doors import Doors
from proxy.ledger.contract import Grade, Summary
from proxy.page import outcomes, told
from proxy.page.access import Scoped, graded, labelled, listed, owned, summed
from proxy.page.outcomes import Posted

MOST = 1_000
"""Conversations in one answer."""
MOST_SUMMED = 200
"""Those whose every request is added up for it."""
ACTIVE = 300.0
"""Seconds since its last turn in which a conversation counts as active."""
_Limit = Annotated[int, Query(ge=1, le=MOST)]
_Time = Annotated[float | None, Query(allow_inf_nan=False)]


def router(doors: Doors, scoped: Scoped) -> APIRouter:
    """`/lethe/conversations` and below, `/lethe/outcomes`, `/lethe/stats`."""
    api, it = APIRouter(prefix="/lethe"), _Handlers(doors, scoped)
    api.add_api_route("/conversations", it.conversations)
    api.add_api_route("/conversations/{id}", it.conversation)
    api.add_api_route("/conversations/{id}/findings", it.findings)
    api.add_api_route("/conversations/{id}", it.forget, methods=["DELETE"], status_code=204)
    api.add_api_route("/outcomes", it.outcome, methods=["POST"])
    api.add_api_route("/stats", it.stats)
    return api


class _Handlers:
    """What answers; FastAPI reads each one's parameters and what it says of itself."""

    def __init__(self, doors: Doors, scoped: Scoped) -> None:
        self._doors, self._scoped = doors, scoped

    async def conversations(
        self, request: Request, limit: _Limit = 100, before: _Time = None, since: _Time = None,
        sums: bool = False,
    ) -> Response:  # fmt: skip
        """The most recently active first; `before` (the last `last_at`) gives the next page. With
        `since` only those active then or later; with `sums` also what all their requests came to.
        """
        most = min(limit, MOST_SUMMED) if sums else limit
        found, state = await listed(self._doors.ledger, self._scoped(request), most, before)
        following = found[-1].last_at if len(found) == most else None
        if since is not None and found and found[-1].last_at < since:
            found, following = [it for it in found if it.last_at >= since], None
        rows = list(map(_listed, found))
        if sums:
            whole = await summed(self._doors.ledger, found)
            rows = [row | {"sums": own} for row, own in zip(rows, whole, strict=True)]
        return _json({"conversations": rows, "next": following, **_how(self._doors, state)})

    async def conversation(self, request: Request, id: str, text: bool = False) -> Response:
        """One conversation with its turns; with `text` also the messages of its last request."""
        it = await owned(self._doors.ledger, self._scoped(request), id)
        if it is None:
            return _not_found(id)
        more = {"messages": told.messages(it)} if text else {}
        return _json({**told.conversation(it), **_outcome(it.summary), **more, **_how(self._doors)})

    async def findings(self, request: Request, id: str, notes: bool = False) -> Response:
        """Breaks and cache misses, oldest first; with `notes` also what costs nothing. `weighed`
        has the numbers that decided steps under `horizon`.
        """
        it = await owned(self._doors.ledger, self._scoped(request), id)
        if it is None:
            return _not_found(id)
        found = {"findings": told.findings(it, notes), "weighed": told.weighed(it)}
        return _json({**told.listed(it.summary), **found, **_how(self._doors)})

    async def forget(self, request: Request, id: str) -> Response:
        it = await owned(self._doors.ledger, self._scoped(request), id)
        if it is None:
            return _not_found(id)
        await self._doors.ledger.forget(it.summary.id)
        return Response(status_code=204)

    async def outcome(self, request: Request) -> Response:
        """Keep whether a conversation, or what bears a task's label, succeeded."""
        scope = self._scoped(request)
        posted = outcomes.read(request.headers, await outcomes.body(request))
        grade = Grade(posted.success, posted.score, self._doors.clock())
        if posted.task is not None:
            return await _grade_task(self._doors, scope, posted, grade)
        id = posted.conversation or ""
        kept = await graded(self._doors.ledger, scope, id, grade)
        return _not_found(id) if kept is None else _json({"conversations": [kept]})

    async def stats(self, request: Request) -> Response:
        """Of the conversations that the caller may see; with the admin token also of the proxy."""
        scope = self._scoped(request)
        found, state = await listed(self._doors.ledger, scope, MOST)
        own = {"proxy": _proxy(self._doors)} if scope is None else {}
        return _json({**_seen(found, self._doors.clock()), **own, **_how(self._doors, state)})


async def _grade_task(doors: Doors, scope: bytes | None, posted: Posted, grade: Grade) -> Response:
    """Runs of one task follow each other: only what bears its label and has no outcome yet takes
    this one. `standing` counts those that have theirs.
    """
    label = outcomes.label(posted.task or "")
    found = await labelled(doors.ledger, scope, label, MOST)
    if not found:
        return _not_labelled(label)
    fresh = [it.id for it in found if it.grade is None]
    kept = [id for id in fresh if await graded(doors.ledger, scope, id, grade) is not None]
    return _json({"conversations": kept, "standing": len(found) - len(fresh)})


def _listed(it: Summary) -> dict[str, Any]:
    return {**told.listed(it), **_outcome(it)}


def _outcome(it: Summary) -> dict[str, Any]:
    """How it ended, where that was posted."""
    return {"outcome": None if it.grade is None else msgspec.structs.asdict(it.grade)}


def _how(doors: Doors, state: str | None = None) -> dict[str, Any]:
    """What the reader has to know to read the rest."""
    state = doors.ledger.health().state if state is None else state
    return {"history": doors.settings.ledger.history, "ledger": state}


def _seen(found: Sequence[Summary], now: float) -> dict[str, Any]:
    """Tokens are those of each conversation's last turn."""
    last = told.totals([it.last for it in found])
    return {
        "conversations": {
            "listed": len(found),
            "more": len(found) == MOST,
            "active": sum(now - it.last_at < ACTIVE for it in found),
            "turns": sum(it.turns for it in found),
        },
        "last_turns": last,
    }


def _proxy(doors: Doors) -> dict[str, Any]:
    """All workers' counters since they began."""
    numbers = doors.observer.numbers()
    health = doors.ledger.health()
    return {
        "version": __version__,
        "in_flight": sum(numbers["lethe_in_flight"].values()),
        "exchanges": sum(numbers["lethe_requests_total"].values()),
        "tokens": _by_label(numbers["lethe_tokens_total"], 0),
        "findings": _by_label(numbers["lethe_prefix_findings_total"], 0),
        "ledger": {
            "state": health.state,
            "queued": health.queued,
            "failures": dict(health.failures),
            "shared": health.shared,
        },
    }


def _by_label(series: Mapping[tuple[str, ...], Any], place: int) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, number in series.items():
        sums[labels[place]] = sums.get(labels[place], 0) + number
    return sums


def _json(value: Any, status: int = 200) -> Response:
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(orjson.dumps(value), status, headers, "application/json")


def _not_found(id: str) -> Response:
    return _missing(f"no conversation {id[:64]!r}; GET /lethe/conversations lists them")


def _not_labelled(task: str) -> Response:
    return _missing(
        f"no conversation bears the label {task!r}; requests get it with the header x-lethe-task"
    )


def _missing(message: str) -> Response:
    return _json(
        {"error": {"message": message, "type": "not_found", "param": None, "code": "not_found"}},
        404,
    )
