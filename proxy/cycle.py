"""One request on a client's connection and the response to it, as ASGI sees them.

It stands in the place of uvicorn's own, and does less: what it is told to send was made here or
came through a parser, so no header is looked at twice; and whoever serves the request may ask to be
called when the client leaves, which costs nothing while it stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

CLIENT = "lethe.client"
"""Where a `Client` is found in a scope's extensions."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]


class Client(Protocol):
    """Whoever sent a request."""

    @property
    def gone(self) -> bool:
        """Whether it left before its response was over."""
        ...

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Call this once, when it leaves; None: call nobody."""
        ...


class Connection(Protocol):
    """What a cycle needs of its connection: uvicorn's protocol on httptools has it."""

    transport: Any
    flow: Any
    logger: Any

    def on_response_complete(self) -> None: ...


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}
_NO_BODY = frozenset({204, 304})
_MOST_WAITING = 64 * 1024


class Cycle:
    """`more_body`, `message_event`, `disconnected` and `response_complete` are the protocol's to
    read and to set, `came` is its to call; the rest is the application's.
    """

    __slots__ = (
        "_call", "_chunked", "_connection", "_left", "_pieces", "_waiting", "disconnected",
        "keep_alive",
        "message_event", "more_body", "response_complete", "response_started", "scope",
        "waiting_for_100_continue",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, scope: Scope, keep_alive: bool, expects_continue: bool
    ) -> None:
        self._connection = connection
        self._call: Callable[[], None] | None = None
        self._chunked = False
        self._left = 0
        self.scope = scope
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue
        self.message_event = asyncio.Event()
        self._pieces: list[bytes] = []
        self._waiting = 0
        self.more_body = True
        self.disconnected = self.response_started = self.response_complete = False
        scope["extensions"] = {CLIENT: self}

    # The client.

    @property
    def gone(self) -> bool:
        return self.disconnected

    def when_gone(self, call: Callable[[], None] | None) -> None:
        self._call = call
        if call is not None:
            # Only who reads learns of an end.
            self._connection.flow.resume_reading()

    def leave(self) -> None:
        """The connection is lost."""
        if not self.response_complete:
            self.disconnected = True
        self.message_event.set()
        call, self._call = self._call, None
        if call is not None and self.disconnected:
            call()

    def came(self, piece: bytes) -> None:
        """A piece of the request's body. While too much waits to be taken, nothing is read."""
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting > _MOST_WAITING:
            self._connection.flow.pause_reading()
        self.message_event.set()

    # The application.

    async def run(self, app: Callable[..., Any]) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            self._connection.logger.error("Exception in ASGI application\n", exc_info=error)
            self._broken()
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
        else:
            if not self.response_complete and not self.disconnected:
                self._broken()
        finally:
            # It leads back here, and would keep both until the collector looks.
            self.scope.pop("extensions", None)

    def _broken(self) -> None:
        """Nobody can take a half for the whole: the connection ends."""
        if not self.response_started and not self.disconnected:
            self._connection.transport.write(_FAILED)
            self.response_started = self.response_complete = True
        self._connection.transport.close()

    async def receive(self) -> Message:
        connection = self._connection
        if self.waiting_for_100_continue and not connection.transport.is_closing():
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not (self.disconnected or self.response_complete):
            connection.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        pieces, self._pieces, self._waiting = self._pieces, [], 0
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        if self._connection.flow.write_paused and not self.disconnected:
            await self._connection.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message["headers"])
        else:
            self._body(message.get("body", b""), message.get("more_body", False))

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started, self.waiting_for_100_continue = True, False
        lines, framed = [_STATUS_LINES[status]], False
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
            lowered = name.lower()
            if lowered == b"content-length":
                self._left, framed = int(value), True
            elif lowered == b"transfer-encoding":
                self._chunked = framed = True
            elif lowered == b"connection" and b"close" in value.lower():
                self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if not framed and status not in _NO_BODY and self.scope["method"] != "HEAD":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._connection.transport.write(b"".join(lines))

    def _body(self, body: bytes, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            body, self._left = b"", 0
        elif self._chunked:
            body = _chunk(body, more)
        else:
            self._left -= len(body)
            if self._left < 0:
                raise RuntimeError("the response is longer than its content-length")
        if body:
            self._connection.transport.write(body)
        if not more:
            self._complete()

    def _complete(self) -> None:
        if self._left:
            raise RuntimeError("the response is shorter than its content-length")
        self.response_complete = True
        self._call = None
        self.message_event.set()
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.on_response_complete()


def _chunk(body: bytes, more: bool) -> bytes:
    piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return piece if more else piece + b"0\r\n\r\n"


_FAILED = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 21\r\nconnection: close\r\n\r\nInternal Server Error"
)
