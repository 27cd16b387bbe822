"""The JSON API of the admin listener: conversations, findings, statistics; and forgetting.

The admin token sees all. A client's own credential sees its own scope, and to it any other is not
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from proxy import __version__
from proxy.doors import Doors
from proxy.ledger.contract import Summary
from proxy.page import told
from proxy.page.access import Scoped, listed, owned

MOST = 1_000
"""Conversations in one answer."""
ACTIVE = 300.0
"""Seconds since its last turn in which a conversation counts as active."""
_Limit = Annotated[int, Query(ge=1, le=MOST)]
_Before = Annotated[float | None, Query(allow_inf_nan=False)]


def router(doors: Doors, scoped: Scoped) -> APIRouter:
    """`/lethe/conversations` and below, `/lethe/stats`."""
    api = APIRouter(prefix="/lethe")

    @api.get("/conversations")
    async def conversations(
        request: Request, limit: _Limit = 100, before: _Before = None
    ) -> Response:
        """The most recently active first; `before` (the last `last_at`) gives the next page."""
        found, state = await listed(doors.ledger, scoped(request), limit, before)
        rows = [told.listed(it) for it in found]
        following = found[-1].last_at if len(found) == limit else None
        return _json({"conversations": rows, "next": following, **_how(doors, state)})

    @api.get("/conversations/{id}")
    async def conversation(request: Request, id: str, text: bool = False) -> Response:
        """One conversation with its turns; with `text` also the messages of its last request."""
        it = await owned(doors.ledger, scoped(request), id)
        if it is None:
            return _not_found(id)
        more = {"messages": told.messages(it)} if text else {}
        return _json({**told.conversation(it), **more, **_how(doors)})

    @api.get("/conversations/{id}/findings")
    async def findings(request: Request, id: str, notes: bool = False) -> Response:
        """Breaks and cache misses, oldest first; with `notes` also what costs nothing."""
        it = await owned(doors.ledger, scoped(request), id)
        if it is None:
            return _not_found(id)
        found = told.findings(it, notes)
        return _json({**told.listed(it.summary), "findings": found, **_how(doors)})

    @api.delete("/conversations/{id}", status_code=204)
    async def forget(request: Request, id: str) -> Response:
        it = await owned(doors.ledger, scoped(request), id)
        if it is None:
            return _not_found(id)
        await doors.ledger.forget(it.summary.id)
        return Response(status_code=204)

    @api.get("/stats")
    async def stats(request: Request) -> Response:
        """Of the conversations that the caller may see; with the admin token also of the proxy."""
        scope = scoped(request)
        found, state = await listed(doors.ledger, scope, MOST)
        own = {"proxy": _proxy(doors)} if scope is None else {}
        return _json({**_seen(found, doors.clock()), **own, **_how(doors, state)})

    return api


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
    message = f"no conversation {id[:64]!r}; GET /lethe/conversations lists them"
    return _json(
        {"error": {"message": message, "type": "not_found", "param": None, "code": "not_found"}},
        404,
    )
