"""The page's addresses below `/lethe/ui`: whole pages, and the pieces that its script asks for.

Everything works without the script; with it pages stay as they live, and long ones come piece by
piece. What has to be laid out is laid out off the event loop, which belongs to the clients.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from proxy.doors import Doors
from proxy.errors import KeyUnknown
from proxy.ledger.contract import Summary
from proxy.page import assets, gate, one, shown
from proxy.page.access import Listed, Scoped, listed
from proxy.page.assets import html
from proxy.page.frame import Frame

FIRST_ROWS = 50
"""Conversations in the page itself; its script fetches the others."""
MOST_ROWS = 500
_RECENT = 50
_Time = Annotated[float | None, Query(allow_inf_nan=False)]


def router(doors: Doors, scoped: Scoped) -> APIRouter:
    """`/lethe/ui` and below; `/` leads there."""
    frame = Frame(doors, assets.read(), scoped)
    page = APIRouter(prefix="/lethe/ui", include_in_schema=False)
    _add_static(page, frame)
    gate.add(page, frame)
    _add_list(page, frame)
    one.add(page, frame)
    whole = APIRouter(include_in_schema=False)
    whole.add_api_route("/", _home)
    whole.include_router(page)
    return whole


async def _home() -> Response:
    return RedirectResponse("/lethe/ui", 307)


def _add_static(page: APIRouter, frame: Frame) -> None:
    @page.get("/static/{name}")
    async def static(name: str) -> Response:
        return frame.assets.file(name) or Response(status_code=404)


def _add_list(page: APIRouter, frame: Frame) -> None:
    doors = frame.doors

    @page.get("")
    async def conversations(request: Request, before: _Time = None) -> Response:
        try:
            scope = frame.scoped(request)
        except KeyUnknown:
            return frame.gate()
        found, state = await listed(doors.ledger, scope, FIRST_ROWS, before)
        common = frame.common(scope, request, state)
        page = {"before": before, "next": _next(found, FIRST_ROWS), **common}
        text = await frame.laid("list.html", lambda: {**_rows(found, doors.clock()), **page})
        return html(text)

    @page.get("/rows")
    async def rows(request: Request, before: _Time = None, since: _Time = None) -> Response:
        """More of the list: older than `before`, or active after `since`."""
        scope = frame.scoped(request)
        if since is not None:
            found, state = await _after(doors, scope, since)
            if not found:
                return Response(status_code=204, headers={"x-lethe-ledger": state})
        else:
            found, state = await listed(doors.ledger, scope, MOST_ROWS, before)
        following = _next(found, MOST_ROWS) if since is None else None
        text = await frame.laid("rows.html", lambda: _rows(found, doors.clock()))
        more = {"x-lethe-next": repr(following)} if following is not None else {}
        return html(text, headers={"x-lethe-ledger": state, **more})


def _rows(found: list[Summary], now: float) -> dict[str, list[shown.Row]]:
    return {"rows": [shown.row(it, now) for it in found]}


def _next(found: list[Summary], limit: int) -> float | None:
    return found[-1].last_at if len(found) == limit else None


async def _after(doors: Doors, scope: bytes | None, since: float) -> Listed:
    """The conversations that were active after a time, the latest first."""
    limit = _RECENT
    while True:
        found, state = await listed(doors.ledger, scope, limit)
        if len(found) < limit or found[-1].last_at <= since or limit >= MOST_ROWS:
            return Listed([it for it in found if it.last_at > since], state)
        limit = MOST_ROWS
