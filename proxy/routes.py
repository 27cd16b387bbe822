"""The HTTP surface: what is pruned, what passes, what we answer ourselves.

The main port is a plain ASGI callable with nothing before it: every microsecond here is paid on
every request. So is the admin port's, up to what is loaded when it is asked for (`control`).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

import orjson

from proxy import exchange
from proxy.account import answer
from proxy.counting import Numbers
from proxy.cycle import CLIENT
from proxy.doors import Doors
from proxy.errors import KeyDenied, KeyUnknown, ProxyError
from proxy.forwarding import Request
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
        fields = scope["headers"]
        request = Request(
            scope["method"], path, scope["query_string"], fields, dict(fields),
            scope["extensions"][CLIENT],
        )  # fmt: skip
        if request.method == "POST" and path.endswith(b"/chat/completions"):
            return await exchange.chat(doors, request, receive, send)
        await exchange.passed(doors, request, receive, send)

    return app


_OWN = frozenset({b"/healthz", b"/readyz"})


async def _health(doors: Doors, path: bytes, send: Send) -> None:
    if path == b"/readyz" and doors.state.draining:
        return await _say(send, b"draining\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    await _say(send, b"ok\n")


async def _say(
    send: Send, body: bytes, kind: bytes = b"text/plain; charset=utf-8", status: int = HTTPStatus.OK
) -> None:
    fields = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})


def admin(doors: Doors) -> App:
    """The port of those who run the proxy: metrics, health, conversations, and a page of them."""
    control = _Control(doors)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await _refuse_websocket(scope, receive, send)
        named = dict(scope["headers"])
        try:
            if not _host_allowed(doors, named.get(b"host", b"").decode("latin-1")):
                raise KeyDenied("Host is not one of this listener's names (admin.allowed_hosts)")
            told = _TOLD.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
            if told is not None:
                return await told(doors, named, send)
        except ProxyError as error:
            return await answer(send, error)
        await (await control.app())(scope, receive, send)

    return app


class _Control:
    """What only some ask for, loaded when the first one does, beside the loop."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._loading = asyncio.Lock()
        self._app: App | None = None

    async def app(self) -> App:
        async with self._loading:
            if self._app is None:
                self._app = await asyncio.to_thread(self._load)
        return self._app

    def _load(self) -> App:
        from proxy.control import control  # only here: it is a fourth of a worker's memory

        return control(self._doors)


async def _healthz(doors: Doors, named: Mapping[bytes, bytes], send: Send) -> None:
    await _say(send, b"ok\n")


async def _readyz(doors: Doors, named: Mapping[bytes, bytes], send: Send) -> None:
    health, draining = doors.ledger.health(), doors.state.draining
    told = {"ready": not draining, "ledger": health.state, "ledger_queued": health.queued}
    status = HTTPStatus.SERVICE_UNAVAILABLE if draining else HTTPStatus.OK
    await _say(send, orjson.dumps(told), b"application/json", status)


async def _metrics(doors: Doors, named: Mapping[bytes, bytes], send: Send) -> None:
    """For the operator: the token, where one is set. Raises KeyUnknown."""
    token, sent = doors.settings.admin.token, named.get(b"authorization", b"")
    if token and not hmac.compare_digest(sent, f"Bearer {token}".encode()):
        raise KeyUnknown("send the admin token: Authorization: Bearer …")
    told, kind = await asyncio.to_thread(_exposed, doors, doors.observer.own())
    await _say(send, told, kind.encode())


def _exposed(doors: Doors, own: Numbers) -> tuple[bytes, str]:
    from proxy import exposition  # only here: whoever is not scraped does not carry it

    numbers = doors.observer.numbers(own)
    return exposition.text(numbers, doors.observer.gen_ai), exposition.CONTENT_TYPE


_TOLD = {"/healthz": _healthz, "/readyz": _readyz, "/metrics": _metrics}


def _host_allowed(doors: Doors, host: str) -> bool:
    """Guards against a web page that has its own name resolve to this address (DNS rebinding)."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    admin = doors.settings.admin
    return name.strip("[]") in {"127.0.0.1", "::1", "localhost", admin.host, *admin.allowed_hosts}
