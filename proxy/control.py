"""The control plane: conversations as JSON and as a page, for those who run the proxy.

FastAPI serves it. It is loaded when it is first asked for something: a worker that nobody looks
into does not carry it in its memory.
"""

from __future__ import annotations

import hmac

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from proxy import api
from proxy.core import headers
from proxy.doors import Doors
from proxy.errors import KeyUnknown, ProxyError
from proxy.page import session, surface


def control(doors: Doors) -> FastAPI:
    """`/lethe/…` and the page."""
    app = FastAPI(title="Lethe", docs_url=None, redoc_url=None, openapi_url="/lethe/openapi.json")
    app.add_exception_handler(ProxyError, _as_error)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
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
    assert isinstance(error, ProxyError)
    return _told(error.status, str(error), error.type, error.code)


async def _refused(request: Request, error: Exception) -> Response:
    """What the router itself answers: no such path, or no such method there."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            message, code = f"nothing is here; {_THERE_IS}", "not_found"
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            message, code = f"got {request.method}; wanted {allowed}", "method_not_allowed"
        case _:
            message, code = str(error.detail), "invalid_request_error"
    answer = _told(error.status_code, message, "invalid_request_error", code)
    answer.headers.update(error.headers or {})
    return answer


_THERE_IS = (
    "there are /metrics, /healthz, /readyz, the page at /lethe/ui, and what "
    "/lethe/openapi.json lists"
)


async def _not_valid(request: Request, error: Exception) -> Response:
    """A query or a path that cannot be read; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    rows = error.errors()
    names = [".".join(map(str, row["loc"][1:])) for row in rows]
    said = "; ".join(
        f"{name}: {row['msg'][:1].lower()}{row['msg'][1:]}"
        for name, row in zip(names, rows, strict=True)
    )
    return _told(422, said, "invalid_request_error", "invalid_request", names[0])


def _told(
    status: int, message: str, kind: str, code: str, param: str | None = None
) -> JSONResponse:
    """An error in the shape of OpenAI's."""
    told = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": told}, status)
