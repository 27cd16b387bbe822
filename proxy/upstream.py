"""Forwards a sealed request and opens the reply, over connections that `http1` speaks on.

Bytes in, bytes out: a body leaves as it was given, a reply is handed on as it came, compressed or
not, never collected. One pool of connections a target; redirects, cookies and the client library's
own headers are off, so that what the upstream sees is what the client said.

What may be sent again:

- a request that found no connection, once: nothing of it had left;
- a request that went out on a kept connection which the server was just closing, where it is
  harmless to repeat: no byte of a reply had come, and the end came sooner than any work is done.
  The next kept one may be closing too: three sends at the most.

Nothing is repeated after the first byte of a reply.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self
from urllib.request import getproxies_environment

from proxy.core.headers import Headers
from proxy.errors import BadHeader, UpstreamTimeout, UpstreamUnreachable
from proxy.http1 import Connection, Cut, Incoming, NotHttp
from proxy.ways import Target, checked, way_to

Body = bytes | AsyncIterator[bytes] | None

# Just under the 60 s after which load balancers (AWS's by default) drop an idle connection.
_KEEP_ALIVE = 55.0
# A server that lets go of an idle connection answers our bytes with a reset within a round trip.
# One that breaks later was at work on the request, and its work is not asked for again.
_CLOSED_WHILE_IDLE = 1.0
# Many servers (those on uvicorn) close what was idle for 5 s, and several kept connections at once.
_SENDS = 3
# RFC 9110 § 9.2.2.
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
# Without a body, these say nothing of one.
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Reply:
    """A reply whose headers are here and whose body is still to come.

    `status` and `headers` are the wire's, names and order as they came. Iterating gives each piece
    of the body as it came, undecoded. The upstream's trouble does not raise: the pieces stop and
    `ended`, None until then, says "complete" or "upstream_gone".
    """

    __slots__ = ("_incoming", "_sending", "ended", "headers", "status")

    def __init__(self, incoming: Incoming, sending: asyncio.Task[None] | None) -> None:
        self._incoming, self._sending = incoming, sending
        self.status, self.headers = incoming.status, incoming.headers
        self.ended: str | None = None

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if chunk := await self._incoming.read():
            return chunk
        self.ended = self._incoming.ended
        self._stop_sending()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go. What has not come yet is cancelled at once: the connection is cut, not pooled.

        Waits for nothing, so that a cancelled caller cannot cut it short, and raises nothing. After
        the end of the body there is nothing to do: the connection went back to its pool by itself.
        """
        self._incoming.drop()
        self._stop_sending()

    def _stop_sending(self) -> None:
        """A reply that is over before its request is: nobody wants the rest."""
        if self._sending is not None:
            self._sending.cancel()


class Upstream:
    """The pools of all targets. `clock` counts seconds from any start, monotonically."""

    def __init__(
        self,
        targets: Iterable[Target],
        *,
        clock: Callable[[], float],
        proxies: Callable[[], Mapping[str, str]] = getproxies_environment,
    ) -> None:
        self._targets = tuple(targets)
        self._clock = clock
        self._proxies = proxies
        self._pools: dict[str, _Pool] = {}

    async def open(self) -> None:
        """Read certificates and the proxy environment. Raises SettingsError for unusable ones."""
        proxies = self._proxies()
        for target in self._targets:
            self._pools[target.name] = _Pool(target, proxies if target.trust_env else {})

    async def close(self) -> None:
        """Cut what is open. Draining is the caller's, and over by now."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    async def send(
        self,
        target: Target,
        method: str,
        url: str,
        headers: Headers,
        body: Body,
        *,
        repeatable: bool = False,
    ) -> Reply:
        """Send one request and wait for the headers of its reply.

        `url` is sent as it is (`core.paths.url_for`). A body of bytes gets its length written; one
        that streams is chunked unless `headers` bring its `content-length`. `repeatable` says that
        doing the request twice harms nobody, which is true of a completion and not of an upload.

        Raises UpstreamUnreachable where no connection came about or it was lost before the headers,
        UpstreamTimeout where they were late, BadHeader for a header that no request may carry, and
        whatever ProxyError a streaming body raised. Messages name the host, never path or header.
        """
        pool = self._pools[target.name]
        again = (repeatable or method in _IDEMPOTENT) and isinstance(body, bytes | None)
        for left in range(_SENDS - 1, -1, -1):
            sent_at = self._clock()
            try:
                return await pool.attempt(method, url, headers, body)
            except _NothingSent as nothing:
                if left < _SENDS - 1:
                    raise UpstreamUnreachable(str(nothing)) from nothing.__cause__
            except _Lost as lost:
                kept = lost.kept and self._clock() - sent_at < _CLOSED_WHILE_IDLE
                if not (again and kept and left):
                    raise UpstreamUnreachable(str(lost)) from lost.__cause__
        raise AssertionError("the last send either answers or raises")


class _NothingSent(Exception):
    """No connection, so not a byte of the request has left."""


class _Lost(Exception):
    """The connection was lost before a byte of the reply had come; `kept` where it was not new."""

    def __init__(self, message: str, kept: bool) -> None:
        super().__init__(message)
        self.kept = kept


class _Pool:
    """The connections to one target, the latest used first."""

    def __init__(self, target: Target, proxies: Mapping[str, str]) -> None:
        self._target = target
        base = checked(target)
        self._host = base.hostname or ""
        self._origin = base.netloc.encode()
        self._way = way_to(target, base, proxies)
        self._deadlines = _Deadlines(target.first_byte_timeout)
        self._free: list[tuple[Connection, float]] = []
        self._open: set[Connection] = set()
        self._busy: set[Connection] = set()
        self._turns = asyncio.Semaphore(target.max_connections) if target.max_connections else None

    async def close(self) -> None:
        self._deadlines.close()
        for connection in tuple(self._open):
            connection.abort()

    async def attempt(self, method: str, url: str, headers: Headers, body: Body) -> Reply:
        """Send it once. Raises a ProxyError, _NothingSent or _Lost."""
        head = self._head(method, url, headers, body)
        connection = self._kept() if self._turns is None else None
        kept = connection is not None
        if connection is None:
            connection, kept = await self._opened()
        sending: asyncio.Task[None] | None = None
        try:
            with _Wait(self._deadlines) as wait:
                incoming = connection.begin(method == "HEAD")
                if body is None or isinstance(body, bytes):
                    connection.write(head, body or b"")
                else:
                    sending = _sending(connection, incoming, head, headers, body, wait)
                await incoming.here
                return Reply(incoming, sending)
        except BaseException as error:
            connection.abort()
            if sending is not None:
                sending.cancel()
            if isinstance(error, TimeoutError | NotHttp | Cut | OSError):
                raise self._told(error, kept) from error
            raise

    def _told(self, error: Exception, kept: bool) -> Exception:
        match error:
            case TimeoutError():
                wait = f"{self._target.first_byte_timeout} s (first_byte_timeout)"
                return UpstreamTimeout(f"no first byte from {self._host} after {wait}")
            case NotHttp():
                return UpstreamUnreachable(f"{self._host} answered what is not HTTP")
            case Cut(begun=True):
                return UpstreamUnreachable(f"{self._host} broke off while it answered")
            case _:
                return _Lost(f"{self._host} closed the connection before it answered", kept)

    def _head(self, method: str, url: str, headers: Headers, body: Body) -> bytes:
        """The request's first bytes. Raises BadHeader."""
        target = self._way.target(url)
        lines = [b"%b %b HTTP/1.1" % (method.encode(), target), b"Host: %b" % self._origin]
        lines += [b"%b: %b" % pair for pair in headers]
        lines += self._way.extra
        if isinstance(body, bytes) and body:
            lines.append(b"Content-Length: %d" % len(body))
        elif not body and method not in _BODILESS:
            # RFC 9110 § 8.6: some servers refuse a POST that says nothing of its length.
            lines.append(b"Content-Length: 0")
        elif body and not _has_length(headers):
            lines.append(b"Transfer-Encoding: chunked")
        if _control.search(b" ".join(lines)):
            raise BadHeader("a header of the request holds a control character")
        return b"\r\n".join([*lines, b"\r\n"])

    # Connections.

    def _kept(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._free:
            connection, since = self._free.pop()
            if now - since < _KEEP_ALIVE and connection.is_clear:
                return connection
            connection.abort()
        return None

    def _idle(self, connection: Connection) -> None:
        self._turn_over(connection)
        now = connection.loop.time()
        self._free.append((connection, now))
        if now - self._free[0][1] >= _KEEP_ALIVE:
            self._free.pop(0)[0].abort()

    def _turn_over(self, connection: Connection) -> None:
        if self._turns is not None and connection in self._busy:
            self._busy.discard(connection)
            self._turns.release()

    def _gone(self, connection: Connection) -> None:
        self._turn_over(connection)
        self._open.discard(connection)
        self._free = [row for row in self._free if row[0] is not connection]

    async def _opened(self) -> tuple[Connection, bool]:
        """A connection, and whether it is a kept one. Raises UpstreamUnreachable, _NothingSent."""
        host = self._host
        try:
            async with asyncio.timeout(self._target.connect_timeout):
                connection, kept = await self._in_turn()
        except TimeoutError as error:
            wait = f"{self._target.connect_timeout} s (connect_timeout)"
            raise UpstreamUnreachable(f"no connection to {host} within {wait}") from error
        except ssl.SSLCertVerificationError as error:
            message = f"the certificate of {host} is not trusted (ca_file)"
            raise UpstreamUnreachable(message) from error
        except ssl.SSLError as error:
            raise _NothingSent(f"no TLS with {host}: {error.reason}") from error
        except socket.gaierror as error:
            raise _NothingSent(f"no address is known for {host}") from error
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise _NothingSent(f"no connection to {host}: {reason.lower()}") from error
        return connection, kept

    async def _in_turn(self) -> tuple[Connection, bool]:
        if self._turns is not None:
            await self._turns.acquire()
        try:
            kept = self._kept()
            connection = kept or await self._way.open(lambda: Connection(self._idle, self._gone))
        except BaseException:
            if self._turns is not None:
                self._turns.release()
            raise
        self._open.add(connection)
        self._busy.add(connection)
        return connection, kept is not None


class _Deadlines:
    """Cancels what waits longer than `limit` seconds. One timer for all that wait.

    Setting a timer and taking it back costs uvloop more than sending the request. One limit for all
    keeps those who wait in the order in which they are due.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[_Wait, float] = {}

    def add(self, wait: _Wait) -> None:
        due = self._waiting[wait] = self._loop.time() + self._limit
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._due)

    def remove(self, wait: _Wait) -> None:
        self._waiting.pop(wait, None)

    def _due(self) -> None:
        self._timer = None
        while self._waiting:
            wait, due = next(iter(self._waiting.items()))
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self._due)
                return
            del self._waiting[wait]
            wait.expire()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Wait:
    """`asyncio.timeout` on a shared timer: TimeoutError where the task inside was cancelled so."""

    __slots__ = ("_before", "_deadlines", "_expired", "_task")

    def __init__(self, deadlines: _Deadlines) -> None:
        self._deadlines: _Deadlines | None = deadlines
        self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hold()
        self._deadlines = None
        ours = self._expired and self._task.uncancel() <= self._before
        if ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def begin(self) -> None:
        """From now on; nothing where the wait is over."""
        if self._deadlines is not None:
            self._deadlines.add(self)

    def hold(self) -> None:
        if self._deadlines is not None:
            self._deadlines.remove(self)

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()


def _sending(
    connection: Connection, incoming: Incoming, head: bytes, headers: Headers,
    body: AsyncIterator[bytes], wait: _Wait,
) -> asyncio.Task[None]:  # fmt: skip
    """Writes a streaming body beside the reply, which may come before all is written.

    The reply holds the task and cancels it at its end. A body that fails fails the reply.
    """
    frame = _counted if _has_length(headers) else _chunked
    wait.hold()
    connection.unfinished(True)
    connection.write(head)
    writing = _written(connection, body, frame, wait)
    task = connection.loop.create_task(writing)

    def over(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            incoming.fail(error)

    task.add_done_callback(over)
    return task


async def _written(
    connection: Connection, body: AsyncIterator[bytes], frame: Callable[[bytes], bytes], wait: _Wait
) -> None:
    """The upstream's time runs while it has to take a piece and after the last one, not while we
    wait for the client.
    """
    try:
        async for piece in body:
            if piece:
                wait.begin()
                connection.write(frame(piece))
                await connection.drain()
                wait.hold()
    finally:
        if close := getattr(body, "aclose", None):
            await close()
    if frame is _chunked:
        connection.write(b"0\r\n\r\n")
    connection.unfinished(False)
    wait.begin()


def _chunked(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _counted(piece: bytes) -> bytes:
    return piece


def _has_length(headers: Headers) -> bool:
    return any(name.lower() == b"content-length" for name, _ in headers)


_control = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
