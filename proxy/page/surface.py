"""The page's addresses below `/lethe/ui`: whole pages, and the pieces that its script asks for.

Everything works without the script; with it pages stay as they live, and long ones come piece by
piece. What has to be laid out is laid out off the event loop, which belongs to the clients.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from proxy import __version__
from proxy.doors import Doors
from proxy.errors import KeyUnknown, LedgerError
from proxy.ledger.contract import Conversation, Summary
from proxy.page import assets, chart, messages, session, shown, told
from proxy.page.access import Listed, Scoped, listed, owned
from proxy.page.assets import html

FIRST_ROWS = 50
"""Conversations in the page itself; its script fetches the others."""
MOST_ROWS = 500
_RECENT = 50
MESSAGES = 20
"""Messages in one piece."""
_FORM = 8 * 1024
_Before = Annotated[float | None, Query(allow_inf_nan=False)]
_Since = Annotated[float | None, Query(allow_inf_nan=False)]
_Message = Annotated[int | None, Query(ge=0)]
_Place = Annotated[int, Query(ge=0, le=1_000_000)]


def router(doors: Doors, scoped: Scoped) -> APIRouter:
    """`/lethe/ui` and below; `/` leads there."""
    page = APIRouter(prefix="/lethe/ui", include_in_schema=False)
    own = assets.read()
    _add_signing_in(page, doors, own, scoped)
    _add_list(page, doors, own, scoped)
    _add_conversation(page, doors, own, scoped)
    whole = APIRouter(include_in_schema=False)
    whole.add_api_route("/", _home)
    whole.include_router(page)
    return whole


async def _home() -> Response:
    return RedirectResponse("/lethe/ui", 307)


def _common(
    doors: Doors, scope: bytes | None, request: Request, state: str | None = None
) -> dict[str, Any]:
    """What every whole page shows. `state` is the ledger's, where it was read."""
    settings = doors.settings
    health = doors.ledger.health()
    return {
        "release": __version__,
        "signed_in": session.COOKIE in request.cookies,
        "own_only": scope is not None,
        "history": settings.ledger.history,
        "ledger": state or health.state,
        "shared": health.shared,
        "address": f"http://127.0.0.1:{settings.port or 4100}/v1",
    }


def _gate(own: assets.Assets, doors: Doors, refused: bool = False) -> Response:
    """Where somebody is asked who they are."""
    token_env = doors.settings.admin.token_env
    return html(own.render("gate.html", refused=refused, token_env=token_env), 401)


# The list


def _add_list(page: APIRouter, doors: Doors, own: assets.Assets, scoped: Scoped) -> None:
    @page.get("")
    async def conversations(request: Request, before: _Before = None) -> Response:
        try:
            scope = scoped(request)
        except KeyUnknown:
            return _gate(own, doors)
        found, state = await listed(doors.ledger, scope, FIRST_ROWS, before)
        text = await asyncio.to_thread(
            own.render, "list.html", rows=_rows(found, doors.clock()), before=before,
            next=_next(found, FIRST_ROWS), **_common(doors, scope, request, state),
        )  # fmt: skip
        return html(text)

    @page.get("/rows")
    async def rows(request: Request, before: _Before = None, since: _Since = None) -> Response:
        """More of the list: older than `before`, or active after `since`."""
        scope = scoped(request)
        if since is not None:
            found, state = await _after(doors, scope, since)
            if not found:
                return Response(status_code=204, headers={"x-lethe-ledger": state})
        else:
            found, state = await listed(doors.ledger, scope, MOST_ROWS, before)
        following = _next(found, MOST_ROWS) if since is None else None
        text = await asyncio.to_thread(own.render, "rows.html", rows=_rows(found, doors.clock()))
        more = {"x-lethe-next": repr(following)} if following is not None else {}
        return html(text, headers={"x-lethe-ledger": state, **more})


def _rows(found: list[Summary], now: float) -> list[shown.Row]:
    return [shown.row(it, now) for it in found]


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


# One conversation


def _add_conversation(page: APIRouter, doors: Doors, own: assets.Assets, scoped: Scoped) -> None:
    @page.get("/{id}")
    async def conversation(
        request: Request, id: str, m: _Message = None, p: _Place = 0, all: bool = False
    ) -> Response:
        """Messages begin at that with index `m`, or at place `p`; `all` unfolds the turns."""
        try:
            scope = scoped(request)
        except KeyUnknown:
            return _gate(own, doors)
        try:
            it = await owned(doors.ledger, scope, id)
        except LedgerError:
            values = _common(doors, scope, request, "down")
            return html(own.render("missing.html", **values), 503)
        values = _common(doors, scope, request)
        if it is None:
            return html(own.render("missing.html", **values), 404)
        text = await asyncio.to_thread(_whole, own, it, m, p, all, doors.clock(), values)
        return html(text)

    @page.get("/{id}/live")
    async def live(request: Request, id: str, turns: _Place) -> Response:
        """What changed since `turns` turns; 204 where nothing did."""
        scope = scoped(request)
        recent = await doors.ledger.conversations(scope, _RECENT)
        mine = [s for s in recent if id in (s.id, s.last.get("root"))]
        if not any(s.turns > turns or s.id != id for s in mine):
            return Response(status_code=204)
        it = await owned(doors.ledger, scope, id)
        if it is None:
            return Response(status_code=404)
        if it.summary.id != id:
            return Response(status_code=204, headers={"x-lethe-moved": it.summary.id})
        text = await asyncio.to_thread(_live, own, it, turns, doors.clock(), _named(doors, it))
        return html(text, headers={"x-lethe-turns": str(it.summary.turns)})

    @page.get("/{id}/turns")
    async def turns(request: Request, id: str, first: _Place, last: _Place) -> Response:
        it = await owned(doors.ledger, scoped(request), id)
        if it is None:
            return Response(status_code=404)
        values = {"turns": shown.turns(it, first, last), **_named(doors, it)}
        return html(await asyncio.to_thread(own.render, "turns.html", **values))

    @page.get("/{id}/messages")
    async def pieces(request: Request, id: str, first: _Place = 0) -> Response:
        it = await owned(doors.ledger, scoped(request), id)
        if it is None:
            return Response(status_code=404)
        return html(await asyncio.to_thread(_messages, own, it, first))

    @page.get("/{id}/messages/{place}")
    async def message(request: Request, id: str, place: int) -> Response:
        """One message whole."""
        scope = scoped(request)
        it = await owned(doors.ledger, scope, id)
        found = messages.shown(it, place, place + 1, whole=True) if it else []
        if it is None or not found:
            return Response(status_code=404)
        values = {"id": it.summary.id, "message": found[0], **_common(doors, scope, request)}
        return html(await asyncio.to_thread(own.render, "message.html", **values))


def _whole(
    own: assets.Assets, it: Conversation, m: int | None, p: int, whole: bool, now: float,
    values: dict[str, Any],
) -> str:  # fmt: skip
    first = p if m is None else messages.place_of(it, m)
    turns = shown.turns(it)
    runs = [shown.Run(tuple(turns), False)] if whole else shown.runs(turns)
    return own.render(
        "conversation.html", **values, **_facts(it, now), chart=chart.chart(it), runs=runs,
        **_piece(it, first),
    )  # fmt: skip


def _facts(it: Conversation, now: float) -> dict[str, Any]:
    return {
        "row": shown.row(it.summary, now),
        "id": it.summary.id,
        "turns": it.summary.turns,
        "first_turn": told.first_turn(it),
        "totals": told.totals(it.outcomes),
        "upstream": told.listed(it.summary)["upstream"],
        "began": it.summary.first_at,
    }


def _named(doors: Doors, it: Conversation) -> dict[str, Any]:
    return {"id": it.summary.id, "history": doors.settings.ledger.history}


def _live(
    own: assets.Assets, it: Conversation, known: int, now: float, values: dict[str, Any]
) -> str:
    fresh = shown.turns(it, known + 1)
    values = {**_facts(it, now), **values}
    return own.render("live.html", **values, chart=chart.chart(it), fresh=fresh)


def _places(it: Conversation) -> int:
    return len(messages.rows_of(it))


def _piece(it: Conversation, first: int) -> dict[str, Any]:
    count = _places(it)
    end = min(first + MESSAGES, count)
    return {
        "messages": messages.shown(it, first, end),
        "message_count": count,
        "first": first,
        "later": end if end < count else None,
    }


def _messages(own: assets.Assets, it: Conversation, first: int) -> str:
    """A piece for the end of a page that has what is before it."""
    return own.render("messages.html", id=it.summary.id, **{**_piece(it, first), "first": 0})


# Signing in


def _add_signing_in(page: APIRouter, doors: Doors, own: assets.Assets, scoped: Scoped) -> None:
    @page.get("/static/{name}")
    async def static(name: str) -> Response:
        return own.file(name) or Response(status_code=404)

    @page.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        """Takes the admin token or a client's key, and gives a cookie for it."""
        token = doors.settings.admin.token
        secret = await _field(request, "secret")
        if not token:
            return RedirectResponse("/lethe/ui", 303)
        if not secret:
            return _gate(own, doors, refused=True)
        try:
            scope = scoped(_as_if(request, secret))
        except KeyUnknown:
            return _gate(own, doors, refused=True)
        answer = RedirectResponse("/lethe/ui", 303)
        value = session.issued(token, scope, doors.clock() + session.LASTS)
        answer.set_cookie(
            session.COOKIE, value, max_age=int(session.LASTS), path="/lethe", httponly=True,
            samesite="strict", secure=_by_https(request),
        )  # fmt: skip
        return answer

    @page.post("/sign-out")
    async def sign_out() -> Response:
        answer = RedirectResponse("/lethe/ui", 303)
        answer.delete_cookie(session.COOKIE, path="/lethe")
        return answer


async def _field(request: Request, name: str) -> str:
    """A field of a small form; empty where it is not there, or the form is none."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM:
            return ""
    values = parse_qs(body.decode("utf-8", "replace")).get(name, [""])
    return values[0].strip()


def _as_if(request: Request, secret: str) -> Request:
    """The request as it would be with that credential, and no cookie."""
    gone = (b"authorization", b"api-key", b"x-api-key", b"cookie")
    kept = [(name, value) for name, value in request.headers.raw if name not in gone]
    credential = (b"authorization", b"Bearer " + secret.encode("utf-8", "replace"))
    return Request({**request.scope, "headers": [*kept, credential]})


def _by_https(request: Request) -> bool:
    forwarded = request.headers.get("x-forwarded-proto", request.url.scheme)
    return forwarded.partition(",")[0].strip() == "https"
