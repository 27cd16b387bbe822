"""The HTTP server's edge: how much a request's headers may hold, how long a client may take to send
a request, and what of the server's own log is told.

uvicorn on httptools has no bound for either. Bytes are counted for each read, not for each header,
and one timer a connection looks by now and then, so that a request that is in order costs next to
nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.corked import Corked
from proxy.cycle import Cycle
from proxy.errors import HeadersTooLarge, ProxyError, RequestTooSlow

HEADERS_LIMIT = 64 * 1024
"""Bytes of a request line and its headers; above it 431. It holds for all that is not a body: chunk
extensions and trailers too may not go on for longer."""
HEADERS_SECONDS = 30.0
"""From a request's first byte (of a new connection: from its beginning) to the end of its headers;
above it 408."""
BODY_SECONDS = 60.0
"""Without a byte of a body that we wait for; above it 408."""
_LOOK_EVERY = 5.0
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 4 << 20
# ": " and the line's end.
_AROUND = 4


class _Phase(Enum):
    IDLE = "between two requests"
    HEAD = "headers"
    BODY = "body"


class Protocol(HttpToolsProtocol):
    """One connection of a client. The limits are attributes of the class, seconds and bytes."""

    headers_seconds: ClassVar[float] = HEADERS_SECONDS
    body_seconds: ClassVar[float] = BODY_SECONDS
    look_every: ClassVar[float] = _LOOK_EVERY
    # uvicorn's protocol only reads and sets what ours has too.
    cycle: Cycle | None  # type: ignore[assignment]
    pipeline: deque[tuple[Cycle, Any]]  # type: ignore[assignment]
    scope: Any

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._phase = _Phase.IDLE
        # Bytes that were read since the last that a request came of: its headers or some body.
        self._silent = 0
        self._looks = 0
        self._too_large: HeadersTooLarge | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._running: Cycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        self._timer = self.loop.call_later(self.look_every, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        running, self._running = self._running, None
        if running is not None and running is not self.cycle:
            running.leave()
        if self.cycle is not None:
            self.cycle.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._silent += len(data)
        super().data_received(data)
        if self._silent > HEADERS_LIMIT:
            self._refuse(_headers_too_large())

    def on_message_begin(self) -> None:
        self._phase, self._looks = _Phase.HEAD, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # Nothing silent: the whole head came in a read that had ended another request.
        if (self._silent > HEADERS_LIMIT or not self._silent) and self._size() > HEADERS_LIMIT:
            self._too_large = _headers_too_large()
            raise self._too_large
        self._phase, self._looks, self._silent = _Phase.BODY, 0, 0
        self._complete_scope()
        keep_alive = self.scope["http_version"] != "1.0" and self.parser.should_keep_alive()
        before = self.cycle
        self.cycle = Cycle(self, self.scope, keep_alive, self.expect_100_continue)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            # Asked before the one before it is answered: it waits its turn.
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _complete_scope(self) -> None:
        """What is known of a request when its headers are in."""
        scope = self.scope
        raw_path, query = _parted(self.url)
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        path = raw_path.decode("latin-1")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = raw_path
        scope["query_string"] = query

    def _start_asgi_task(self, cycle: Cycle, app: Any) -> None:  # type: ignore[override]
        self._running = cycle
        task = self.loop.create_task(cycle.run(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        self._looks = self._silent = 0
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.came(body)

    def on_message_complete(self) -> None:
        self._phase, self._looks, self._silent = _Phase.IDLE, 0, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser gave up: on what it could not read, or because `on_headers_complete` did."""
        self._silent = 0
        if self._too_large is None:
            super().send_400_response(msg)
        else:
            self._refuse(self._too_large)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + _AROUND for name, value in self.headers)

    def _look(self) -> None:
        self._timer = self.loop.call_later(self.look_every, self._look)
        if not self._client_is_due():
            return
        self._looks += 1
        seconds = self.body_seconds if self._phase is _Phase.BODY else self.headers_seconds
        if self._looks * self.look_every > seconds:
            self._refuse(
                RequestTooSlow(f"the request's {self._phase.value} did not come for {seconds:g} s")
            )

    def _client_is_due(self) -> bool:
        """Whether it is the client that has to send, not we that have to read or to answer."""
        if self._phase is _Phase.BODY:
            waits = self.cycle is not None and self.cycle.waiting_for_100_continue
            return not self.flow.read_paused and not waits
        answered = self.cycle is None or self.cycle.response_complete
        return answered and (self._phase is _Phase.HEAD or self.timeout_keep_alive_task is None)

    def _refuse(self, error: ProxyError) -> None:
        """Answer with the error where that is this request's to have, and close."""
        self._silent = 0
        if not self._may_answer():
            self.transport.close()
            return
        self.transport.write(_response(error))
        self.flow.resume_reading()
        # Whoever reads this request hears now that no more of it will come.
        self.connection_lost(error)
        # Whatever was written before this moment leaves first.
        self.transport.set_protocol(_Lingering(self.transport, self.loop))

    def _may_answer(self) -> bool:
        match self._phase:
            case _Phase.IDLE:
                return False
            case _Phase.HEAD:
                return self.cycle is None or self.cycle.response_complete
            case _Phase.BODY:
                started = self.cycle is not None and self.cycle.response_started
                return not started and not self.pipeline


def _parted(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target (RFC 9112 § 3.2), a whole URL included."""
    if not target.startswith(b"/"):
        whole = urlsplit(target)
        return whole.path or b"/", whole.query
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return path, query


class _Lingering(asyncio.Protocol):
    """Reads on for a moment after the last word: closing with bytes unread resets the connection,
    and the client would lose the word (RFC 9112 § 9.6).
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._left = _LINGER_BYTES
        self._timer = loop.call_later(_LINGER_SECONDS, transport.abort)
        transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"the request's line and headers are larger than {HEADERS_LIMIT} bytes")


def _response(error: ProxyError) -> bytes:
    """A whole response in the shape of an OpenAI error, as `account.answer` sends it."""
    told = {"message": str(error), "type": error.type, "param": None, "code": error.code}
    body = orjson.dumps({"error": told})
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-lethe-error: {error.code}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


# The server


class Server(uvicorn.Server):
    """uvicorn's server; it sleeps until it is told to `end`. Signals are the business of whoever
    starts it, since several of them run in one process.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ends = asyncio.Event()

    def end(self, at_once: bool = False) -> None:
        """Take no more, and be over when what has begun is; `at_once`: wait for nothing."""
        self.should_exit, self.force_exit = True, at_once
        self._ends.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # uvicorn's looks ten times a second whether it should stop, and what time it is.
        await self.on_tick(0)
        await self._ends.wait()


# What the server logs


@contextmanager
def quiet() -> Iterator[None]:
    """Within it uvicorn's log tells nothing of what we do on purpose, and no message text."""
    log, only_faults = logging.getLogger("uvicorn.error"), _OnlyFaults()
    log.addFilter(only_faults)
    try:
        yield
    finally:
        log.removeFilter(only_faults)


class _OnlyFaults(logging.Filter):
    """A reply that breaks off where the upstream did, or where we stop, is counted and no fault.

    What is one is told by its kind and place: an exception's own words may hold what it choked on.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == "ASGI callable returned without completing response.":
            return False
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            return False
        if error is not None:
            record.msg, record.args, record.exc_info = f"lethe: fault: {_place(error)}", (), None
        return True


_FRAMES = 8


def _place(error: BaseException) -> str:
    """`KeyError at prune.py:80 prune, exchange.py:151 _ready, …`: the innermost frames first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = [
        f"{Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} at {', '.join(frames[: -_FRAMES - 1 : -1])}"
