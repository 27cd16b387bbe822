"""The control plane: conversations as JSON and as a page, for those who run the proxy.

FastAPI serves it. It is loaded when it is first asked for something: a worker that nobody looks
into does not carry it in its memory.
"""

from __future__ import annotations

import hmac

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from proxy import api
from proxy.core import headers
from proxy.doors import Doors
from proxy.errors import KeyUnknown, ProxyError
from proxy.page import session, surface


def control(doors: Doors) -> FastAPI:
    """`/lethe/…` and the page."""
    app = FastAPI(title="Lethe", docs_url=None, redoc_url=None, openapi_url="/lethe/openapi.json")
    app.add_exception_handler(ProxyError, _as_error)
    guard = _Guard(doors)
    app.include_router(api.router(doors, guard.scope))
    app.include_router(surface.router(doors, guard.scope))
    return app


class _Guard:
    """Who may see what: the operator's token all, a client's own credential its own scope."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    def scope(self, request: Request) -> bytes | None:
        """The scope that the caller may see; None for all of them."""
        token = self._doors.settings.admin.token
        sent = request.headers.get("authorization", "")
        if token and _same(sent, f"Bearer {token}"):
            return None
        if (passed := self._signed_in(request, token)) is not None:
            return passed.scope
        credential = headers.credential(dict(request.headers.raw))
        if credential is None and not token:
            return None
        if credential is None:
            raise KeyUnknown(
                "send the admin token, or the key whose conversations you want: "
                "Authorization: Bearer …"
            )
        return self._doors.keyring.caller(dict(request.headers.raw), trusted=False).scope

    def _signed_in(self, request: Request, token: str | None) -> session.Pass | None:
        """What the page's cookie opens, where no credential was sent beside it."""
        cookie = request.cookies.get(session.COOKIE)
        if not token or not cookie or headers.credential(dict(request.headers.raw)) is not None:
            return None
        return session.read(token, cookie, self._doors.clock())


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())


async def _as_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ProxyError):
        return Response(status_code=500)
    told = {"message": str(error), "type": error.type, "param": None, "code": error.code}
    return JSONResponse({"error": told}, error.status)
