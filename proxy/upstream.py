"""Forwards a sealed request and opens the reply. The only room with the data path's HTTP client.

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
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.request import getproxies_environment
from urllib.request import proxy_bypass_environment as bypass  # type: ignore[attr-defined]

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from proxy.errors import (
    BadHeader,
    ProxyError,
    SettingsError,
    UpstreamTimeout,
    UpstreamUnreachable,
)

Headers = list[tuple[bytes, bytes]]
Body = bytes | AsyncIterator[bytes] | None

# Just under the 60 s after which load balancers (AWS's by default) drop an idle connection.
_KEEP_ALIVE = 55.0
# A server that lets go of an idle connection answers our bytes with a reset within a round trip.
# One that breaks later was at work on the request, and its work is not asked for again.
_CLOSED_WHILE_IDLE = 1.0
# Many servers (those on uvicorn) close what was idle for 5 s, and several kept connections at once.
_SENDS = 3
# Providers put long cookies and policies into headers; the library's own bound is 8 KiB a line.
_HEADER_LINE = 65536
_HEADER_COUNT = 512
# A reasoning model may be silent for minutes: probes keep middleboxes from forgetting the
# connection and find a peer that has vanished, after 60 + 5 * 15 s.
_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 5))
# RFC 9110 § 9.2.2. The client library repeats these by itself, once, on the same grounds.
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


@dataclass(frozen=True, slots=True)
class Target:
    """One upstream as configured. Times in seconds, files as paths."""

    name: str
    base: str
    """Absolute URL without a trailing slash; `core.paths` says what is appended."""
    first_byte_timeout: float
    """How long the upstream may leave us waiting, until the reply's headers. Models may think for
    minutes before their first byte; the time a client takes to send a streamed body is not in it.
    """
    connect_timeout: float
    """To a usable connection; the wait for a free one under `max_connections` is part of it."""
    ca_file: str | None = None
    """PEM bundle to trust instead of the system's."""
    client_cert: str | None = None
    client_key: str | None = None
    trust_env: bool = True
    """Whether `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are honoured."""
    max_connections: int = 0
    """Connections of one worker to this upstream; 0 for no bound."""


class Reply:
    """A reply whose headers are here and whose body is still to come.

    `status` and `headers` are the wire's, names and order as they came. Iterating gives each piece
    of the body as it came, undecoded. The upstream's trouble does not raise: the pieces stop and
    `ended`, None until then, says "complete" or "upstream_gone".
    """

    __slots__ = ("_response", "ended", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Headers = list(response.raw_headers)
        self.ended: str | None = None

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            if chunk := await self._response.content.readany():
                return chunk
            self.ended = "complete"
        except (aiohttp.ClientError, OSError, RuntimeError):
            # RuntimeError: the library's word for a read on a connection that is no more.
            if chunk := self._last_words():
                return chunk
            self.ended = "upstream_gone"
            self._response.close()
        raise StopAsyncIteration

    def _last_words(self) -> bytes:
        """What came before the break: the library tells of the break first and would drop it."""
        content = self._response.content
        broken = content.exception()
        content.set_exception(None)  # type: ignore[arg-type]
        chunk = content.read_nowait()
        if broken is not None:
            content.set_exception(broken)
        return chunk

    async def aclose(self) -> None:
        """Let go. What has not come yet is cancelled at once: the connection is cut, not pooled.

        Waits for nothing, so that a cancelled caller cannot cut it short, and raises nothing. After
        the end of the body there is nothing to do: the connection went back to its pool by itself.
        """
        response = self._response
        if response.closed:
            return
        connection = response.connection
        if connection is not None and connection.transport is not None:
            # close() would first flush what a stalled upstream does not read, and say bye in TLS.
            connection.transport.abort()
        response.close()


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
        again = repeatable and method not in _IDEMPOTENT and isinstance(body, bytes | None)
        for left in range(_SENDS - 1, -1, -1):
            line, sent_at = _Line(), self._clock()
            _line.set(line)
            try:
                return await pool.attempt(method, url, headers, body)
            except _NothingSent as nothing:
                if left < _SENDS - 1:
                    raise UpstreamUnreachable(str(nothing)) from nothing.__cause__
            except _Lost as lost:
                kept = not line.new and self._clock() - sent_at < _CLOSED_WHILE_IDLE
                if not (again and kept and left):
                    raise UpstreamUnreachable(str(lost)) from lost.__cause__
        raise AssertionError("the last send either answers or raises")


class _Line:
    """The connection of one send; `new` where it was opened for it, not kept from an earlier
    one.
    """

    __slots__ = ("new",)

    def __init__(self) -> None:
        self.new = False


# The library opens connections in tasks of its own, which inherit the context of the send.
_line: ContextVar[_Line] = ContextVar("line")


class _NothingSent(Exception):
    """No connection, so not a byte of the request has left."""


class _Lost(Exception):
    """The connection was lost before a byte of the reply had come."""


class _Pool:
    """The connections to one target."""

    def __init__(self, target: Target, proxies: Mapping[str, str]) -> None:
        self._target = target
        base = _checked(target)
        self._host = base.host
        self._extra, self._options = _proxied(base, proxies)
        self._deadlines = _Deadlines(target.first_byte_timeout)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=target.max_connections,
                keepalive_timeout=_KEEP_ALIVE,
                ssl=_tls(target),
                socket_factory=self._socket,
            ),
            timeout=aiohttp.ClientTimeout(total=None, connect=target.connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
            max_line_size=_HEADER_LINE,
            max_field_size=_HEADER_LINE,
            max_headers=_HEADER_COUNT,
        )

    async def close(self) -> None:
        self._deadlines.close()
        await self.session.close()

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        if (line := _line.get(None)) is not None:
            line.new = True
        opened = socket.socket(family=info[0], type=info[1], proto=info[2])
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBES:
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return opened

    async def attempt(self, method: str, url: str, headers: Headers, body: Body) -> Reply:
        """Send it once. Raises a ProxyError, _NothingSent or _Lost."""
        payload: _Payload | None = None
        try:
            with _Wait(self._deadlines) as wait:
                payload = _payload(body, wait)
                response = await self.session.request(
                    method,
                    URL(url, encoded=True),
                    headers=_texts(headers) + self._extra,
                    data=payload,
                    allow_redirects=False,
                    **self._options,
                )
                return Reply(response)
        except BaseException as error:
            if payload is not None:
                payload.cut()
            if isinstance(error.__cause__, ProxyError):
                raise error.__cause__ from None
            if isinstance(error, (aiohttp.ClientError, OSError, ValueError)):
                raise self._told(error) from error
            raise

    def _told(self, error: aiohttp.ClientError | OSError | ValueError) -> Exception:
        """The client library's failure as one of ours."""
        host, target = self._host, self._target
        match error:
            case aiohttp.ConnectionTimeoutError():
                wait = f"{target.connect_timeout} s (connect_timeout)"
                return UpstreamUnreachable(f"no connection to {host} within {wait}")
            case TimeoutError():
                wait = f"{target.first_byte_timeout} s (first_byte_timeout)"
                return UpstreamTimeout(f"no first byte from {host} after {wait}")
            case aiohttp.ClientConnectorCertificateError():
                return UpstreamUnreachable(f"the certificate of {host} is not trusted (ca_file)")
            case aiohttp.ClientConnectorDNSError():
                return _NothingSent(f"no address is known for {host}")
            case aiohttp.ClientConnectorSSLError():
                return _NothingSent(f"no TLS with {host}: {error.os_error.strerror}")
            case aiohttp.ClientConnectorError():
                reason = os.strerror(error.os_error.errno or 0)
                return _NothingSent(f"no connection to {host}: {reason.lower()}")
            case aiohttp.ClientHttpProxyError():
                return UpstreamUnreachable(f"the proxy on the way to {host} said {error.status}")
            case aiohttp.ClientConnectionError() | OSError():
                return _Lost(f"{host} closed the connection before it answered")
            case aiohttp.ClientError():
                return UpstreamUnreachable(f"{host} answered what is not HTTP")
            case ValueError():
                return BadHeader("a header of the request holds a control character")


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


class _Payload(Payload):
    """A request body for the client library, which knows the connection that it was written to.

    The library's own kind for bytes warns above 1 MiB, and none of its kinds can be cut off: a
    closed connection first sends what it still holds, to an upstream that may not be reading.
    """

    _shared_headers = CIMultiDict({"Content-Type": "application/octet-stream"})

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None

    @property
    def headers(self) -> CIMultiDict[str]:
        """Never sent (`skip_auto_headers`); the library wants some."""
        return self._shared_headers

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a body on its way is bytes")

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)


class _Whole(_Payload):
    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._body = body

    @property
    def size(self) -> int:
        return len(self._body)

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        self._transport = writer.transport
        await writer.write(self._body)


class _Streaming(_Payload):
    """Written piece by piece as it comes. The upstream's time runs while it has to take a piece and
    after the last one, not while we wait for the client.
    """

    def __init__(self, body: AsyncIterator[bytes], wait: _Wait) -> None:
        super().__init__()
        self._body = body
        self._wait = wait
        wait.hold()

    @property
    def size(self) -> None:
        return None

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        self._transport = writer.transport
        try:
            async for piece in self._body:
                self._wait.begin()
                await writer.write(piece)
                self._wait.hold()
        finally:
            if close := getattr(self._body, "aclose", None):
                await close()
        self._wait.begin()


def _payload(body: Body, wait: _Wait) -> _Payload | None:
    if not body:
        return None
    return _Whole(body) if isinstance(body, bytes) else _Streaming(body, wait)


def _texts(headers: Headers) -> list[tuple[str, str]]:
    """The library writes headers as UTF-8: what is UTF-8 leaves as it came, else it is Latin-1."""
    try:
        return [(name.decode(), value.decode()) for name, value in headers]
    except UnicodeDecodeError:
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _checked(target: Target) -> URL:
    base = URL(target.base)
    if base.scheme not in ("http", "https") or not base.host or base.user:
        raise SettingsError(
            f"upstream '{target.name}': want http(s)://host…, without a user name in it"
        )
    return base


def _tls(target: Target) -> ssl.SSLContext | bool:
    """The library's own context (system trust) unless the target brings certificates."""
    if not (target.ca_file or target.client_cert):
        return True
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
        context.set_alpn_protocols(["http/1.1"])
        if target.client_cert:
            context.load_cert_chain(target.client_cert, target.client_key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (target.ca_file, target.client_cert, target.client_key)))
        raise SettingsError(
            f"upstream '{target.name}': no certificates in {files}: {error.strerror}"
        ) from error
    return context


def _proxied(base: URL, proxies: Mapping[str, str]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """What the proxy environment adds: headers of each request, and options of the client library.

    A tunnel (TLS upstream) takes the proxy's credential in its own request, else it goes with each.
    """
    found = proxies.get(base.scheme) or proxies.get("all")
    if not found or bypass(f"{base.host}:{base.port}", dict(proxies)):
        return [], {}
    proxy = URL(found if "://" in found else f"http://{found}")
    if proxy.scheme not in ("http", "https"):
        raise SettingsError(
            f"a {proxy.scheme} proxy is named by the environment; http and https work"
        )
    headers = {}
    if proxy.user is not None:
        pair = f"{proxy.user}:{proxy.password or ''}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(pair).decode()}"
    options = {"proxy": proxy.with_user(None)}
    if base.scheme == "https":
        return [], options | {"proxy_headers": headers}
    return list(headers.items()), options
