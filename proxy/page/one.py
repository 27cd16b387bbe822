"""The page of one conversation, and the pieces in which a long one comes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from proxy.errors import KeyUnknown, LedgerError
from proxy.ledger.contract import Conversation
from proxy.page import chart, messages, plain, shown, told
from proxy.page.access import owned
from proxy.page.assets import html
from proxy.page.frame import Frame

MESSAGES = 20
"""Messages in one piece."""
_RECENT = 50
_Message = Annotated[int | None, Query(ge=0)]
_Place = Annotated[int, Query(ge=0, le=1_000_000)]


def add(page: APIRouter, frame: Frame) -> None:
    it = _Handlers(frame)
    page.add_api_route("/{id}", it.conversation)
    page.add_api_route("/{id}/live", it.live)
    page.add_api_route("/{id}/turns", it.turns)
    page.add_api_route("/{id}/messages", it.pieces)
    page.add_api_route("/{id}/messages/{place}", it.message)


class _Handlers:
    """What answers; FastAPI reads each one's parameters."""

    def __init__(self, frame: Frame) -> None:
        self._frame, self._doors, self._scoped = frame, frame.doors, frame.scoped

    async def conversation(
        self, request: Request, id: str, m: _Message = None, p: _Place = 0, all: bool = False
    ) -> Response:
        """Messages begin at that with index `m`, or at place `p`; `all` unfolds the turns."""
        try:
            scope = self._scoped(request)
            it = await owned(self._doors.ledger, scope, id)
        except KeyUnknown:
            return self._frame.gate()
        except LedgerError:
            common = self._frame.common(None, request, "down")
            return html(await self._frame.laid("missing.html", lambda: common), 503)
        common = self._frame.common(scope, request)
        if it is None:
            return html(await self._frame.laid("missing.html", lambda: common), 404)
        now = self._doors.clock()
        text = await self._frame.laid(
            "conversation.html", lambda: common | _whole(it, m, p, all, now)
        )
        return html(text)

    async def live(self, request: Request, id: str, turns: _Place) -> Response:
        """What changed since `turns` turns; 204 where nothing did."""
        scope = self._scoped(request)
        recent = await self._doors.ledger.conversations(scope, _RECENT)
        mine = [s for s in recent if id in (s.id, s.last.get("root"))]
        if not any(s.turns > turns or s.id != id for s in mine):
            return Response(status_code=204)
        it = await owned(self._doors.ledger, scope, id)
        if it is None:
            return Response(status_code=404)
        if it.summary.id != id:
            return Response(status_code=204, headers={"x-lethe-moved": it.summary.id})
        now = self._doors.clock()
        text = await self._frame.laid("live.html", lambda: _fresh(it, turns, now) | self._history())
        return html(text, headers={"x-lethe-turns": str(it.summary.turns)})

    async def turns(self, request: Request, id: str, first: _Place, last: _Place) -> Response:
        it = await owned(self._doors.ledger, self._scoped(request), id)
        if it is None:
            return Response(status_code=404)
        known = {"id": it.summary.id, **self._history()}
        text = await self._frame.laid(
            "turns.html", lambda: {"turns": shown.turns(it, first, last), **known}
        )
        return html(text)

    async def pieces(self, request: Request, id: str, first: _Place = 0) -> Response:
        """A piece for the end of a page that has what is before it."""
        it = await owned(self._doors.ledger, self._scoped(request), id)
        if it is None:
            return Response(status_code=404)
        known = {"first": 0, "id": it.summary.id}
        return html(await self._frame.laid("messages.html", lambda: _piece(it, first) | known))

    async def message(self, request: Request, id: str, place: int) -> Response:
        """One message whole."""
        scope = self._scoped(request)
        it = await owned(self._doors.ledger, scope, id)
        found = messages.shown(it, place, place + 1, whole=True) if it else []
        if it is None or not found:
            return Response(status_code=404)
        common = self._frame.common(scope, request)
        known = {"id": it.summary.id, "message": found[0], **common}
        return html(await self._frame.laid("message.html", lambda: known))

    def _history(self) -> dict[str, str]:
        return {"history": self._doors.settings.ledger.history}


def _whole(it: Conversation, m: int | None, p: int, unfolded: bool, now: float) -> dict[str, Any]:
    first = p if m is None else messages.place_of(it, m)
    runs = {"chart": chart.chart(it), "runs": _runs(it, unfolded)}
    return {**_facts(it, now), **_piece(it, first), **runs}


def _fresh(it: Conversation, known: int, now: float) -> dict[str, Any]:
    fresh = {"chart": chart.chart(it), "fresh": shown.turns(it, known + 1)}
    return {**_facts(it, now), **fresh}


def _runs(it: Conversation, unfolded: bool) -> list[shown.Run]:
    turns = shown.turns(it)
    return [shown.Run(tuple(turns), False)] if unfolded else shown.runs(turns)


def _facts(it: Conversation, now: float) -> dict[str, Any]:
    return {
        "row": shown.row(it.summary, now),
        "id": it.summary.id,
        "turns": it.summary.turns,
        "first_turn": told.first_turn(it),
        "totals": (totals := told.totals(it.outcomes)),
        "money": plain.money(totals["dollars"]),
        "upstream": told.listed(it.summary)["upstream"],
        "began": it.summary.first_at,
    }


def _piece(it: Conversation, first: int) -> dict[str, Any]:
    """Messages from a place on."""
    count = len(messages.rows_of(it))
    end = min(first + MESSAGES, count)
    return {
        "messages": messages.shown(it, first, end),
        "message_count": count,
        "first": first,
        "later": end if end < count else None,
    }
