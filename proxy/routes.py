"""The HTTP surface: what is pruned, what passes, what we answer ourselves.

The main port is a plain ASGI callable with nothing before it: every microsecond here is paid on
every request. The admin port is FastAPI.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from proxy import api, exchange
from proxy.core import headers
from proxy.doors import Doors
from proxy.errors import KeyDenied, KeyUnknown, ProxyError
from proxy.observe import CONTENT_TYPE
from proxy.page import session, surface
from proxy.relay import Receive, Send

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def main(doors: Doors) -> App:
    """The port that clients call."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await _refuse_websocket(scope, receive, send)
        path: bytes = scope["raw_path"].partition(b"?")[0]
        if path in _OWN:
            return await _health(doors, path, send)
        request = exchange.Request(
            scope["method"], path, scope["query_string"], scope["headers"], dict(scope["headers"])
        )
        if request.method == "POST" and path.endswith(b"/chat/completions"):
            return await exchange.chat(doors, request, receive, send)
        await exchange.passed(doors, request, receive, send)

    return app


_OWN = frozenset({b"/healthz", b"/readyz"})


async def _health(doors: Doors, path: bytes, send: Send) -> None:
    ready = path == b"/healthz" or not doors.state.draining
    body = b"ok\n" if ready else b"draining\n"
    fields = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    status = 200 if ready else 503
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})


def admin(doors: Doors) -> FastAPI:
    """The port of those who run the proxy: metrics, health, conversations, and a page of them."""
    app = FastAPI(title="Lethe", docs_url=None, redoc_url=None, openapi_url="/lethe/openapi.json")
    app.add_exception_handler(ProxyError, _as_error)
    guard = _Guard(doors)

    @app.middleware("http")
    async def checked_host(request: Request, onward: Any) -> Response:
        if not _host_allowed(doors, request.headers.get("host", "")):
            return _error(
                KeyDenied("Host is not one of this listener's names (admin.allowed_hosts)")
            )
        found: Response = await onward(request)
        return found

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        health = doors.ledger.health()
        draining = doors.state.draining
        told = {"ready": not draining, "ledger": health.state, "ledger_queued": health.queued}
        return JSONResponse(told, 503 if draining else 200)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        guard.operator(request)
        told = await asyncio.to_thread(doors.observer.exposition, doors.observer.own())
        return Response(told, media_type=CONTENT_TYPE)

    app.include_router(api.router(doors, guard.scope))
    app.include_router(surface.router(doors, guard.scope))
    return app


class _Guard:
    """Who may see what: the operator's token all, a client's own credential its own scope."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    def operator(self, request: Request) -> None:
        """Raises KeyUnknown unless the token was sent, or none is needed here."""
        token = self._doors.settings.admin.token
        sent = request.headers.get("authorization", "")
        if token and not _same(sent, f"Bearer {token}"):
            raise KeyUnknown("send the admin token: Authorization: Bearer …")

    def scope(self, request: Request) -> bytes | None:
        """The scope that the caller may see; None for all of them."""
        token = self._doors.settings.admin.token
        sent = request.headers.get("authorization", "")
        if token and _same(sent, f"Bearer {token}"):
            return None
        if (passed := self._signed_in(request, token)) is not None:
            return passed.scope
        credential = headers.credential(request.headers.raw)
        if credential is None and not token:
            return None
        if credential is None:
            raise KeyUnknown("send the admin token, or the key whose conversations you want")
        return self._doors.keyring.caller(dict(request.headers.raw), trusted=False).scope

    def _signed_in(self, request: Request, token: str | None) -> session.Pass | None:
        """What the page's cookie opens, where no credential was sent beside it."""
        cookie = request.cookies.get(session.COOKIE)
        if not token or not cookie or headers.credential(request.headers.raw) is not None:
            return None
        return session.read(token, cookie, self._doors.clock())


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())


def _host_allowed(doors: Doors, host: str) -> bool:
    """Guards against a web page that has its own name resolve to this address (DNS rebinding)."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    admin = doors.settings.admin
    return name.strip("[]") in {"127.0.0.1", "::1", "localhost", admin.host, *admin.allowed_hosts}


async def _as_error(request: Request, error: Exception) -> Response:
    return _error(error) if isinstance(error, ProxyError) else Response(status_code=500)


def _error(error: ProxyError) -> JSONResponse:
    told = {"message": str(error), "type": error.type, "param": None, "code": error.code}
    return JSONResponse({"error": told}, error.status)
