"""Speaks HTTP/1.1 on one connection at a time: a request out as bytes, a reply in as it comes.

`httptools` finds where heads, chunks and bodies end; all else of a reply is handed on as it is. A
piece of the body waits for its reader in memory, and while too much waits nothing is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from proxy.core.headers import Headers
from proxy.corked import Corked

# What waits for its reader before the upstream has to wait for us.
_MOST_WAITING = 256 * 1024
# Providers put long cookies and policies into headers.
_LONGEST_HEAD = 1 << 20


class NotHttp(Exception):
    """What came is no reply."""


class Cut(Exception):
    """The connection ended before the reply's headers were here; `begun` where a part of them
    was.
    """

    def __init__(self, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class Incoming:
    """The reply to one request, while it comes.

    `ended` is None until all is here ("complete") or nothing more will come ("upstream_gone").
    `here` is done when the headers are; it fails with NotHttp, Cut, or with what `fail` was given.
    """

    __slots__ = (
        "_bodiless", "_connection", "_interim", "_length", "_parser", "_pieces", "_reader", "_seen",
        "_waiting", "ended", "headers", "here", "status",
    )  # fmt: skip

    def __init__(self, connection: Connection, bodiless: bool) -> None:
        self._connection, self._bodiless = connection, bodiless
        self._parser = httptools.HttpResponseParser(self)
        self._interim = self._length = False
        self._seen = self._waiting = 0
        self._pieces: list[bytes] = []
        self._reader: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: Headers = []
        self.here: asyncio.Future[None] = connection.loop.create_future()
        self.ended: str | None = None

    # What the connection says.

    def feed(self, data: bytes) -> None:
        if self.ended is not None:
            return
        if not self.here.done():
            self._seen += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._broken(NotHttp())
        if self._seen > _LONGEST_HEAD and not self.here.done():
            self._broken(NotHttp())

    def lost(self) -> None:
        """Nothing more will come. A body without a length ends so."""
        if self.status and not self._length:
            self._end("complete")
        else:
            self._broken(Cut(self._seen > 0))

    def fail(self, error: BaseException) -> None:
        self._broken(error)

    def _broken(self, error: BaseException) -> None:
        self._connection.abort()
        if not self.here.done():
            self.here.set_exception(error)
        self._end("upstream_gone")

    # What the parser says.

    def on_message_begin(self) -> None:
        if self.ended is not None:
            # A second reply in the same breath as the first: nobody asked for it.
            self._connection.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.ended is None:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.ended is not None:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            self.headers = []
            return
        self.status = status
        self._length = any(n.lower() in _FRAMING for n, _ in self.headers)
        if not self.here.done():
            self.here.set_result(None)
        if self._bodiless:
            self._whole()

    def on_body(self, piece: bytes) -> None:
        if self.ended is not None:
            return
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting > _MOST_WAITING:
            self._connection.hold()
        self._wake()

    def on_message_complete(self) -> None:
        if not self._interim:
            self._whole()

    def _whole(self) -> None:
        if self.ended is None:
            keep = self._parser.should_keep_alive()
            self._end("complete")
            self._connection.through(keep)

    def _end(self, how: str) -> None:
        if self.ended is None:
            self.ended = how
            # It holds us by its callbacks: without it no garbage is left for the collector.
            del self._parser
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # What the reader asks.

    async def read(self) -> bytes:
        """What has come since, as one piece; waits where there is nothing, b"" at the end."""
        while not self._pieces and self.ended is None:
            self._reader = self._connection.loop.create_future()
            await self._reader
        pieces, self._pieces, self._waiting = self._pieces, [], 0
        if self.ended is None:
            self._connection.go_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def drop(self) -> None:
        """Nobody reads on: the connection is cut where more would come."""
        if self.ended is None:
            self._connection.abort()


_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Connection(asyncio.Protocol):
    """One connection. `idle` is called when it is free for the next request, `gone` when it is no
    more.
    """

    def __init__(
        self, idle: Callable[[Connection], None], gone: Callable[[Connection], None]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._idle, self._gone = idle, gone
        self._incoming: Incoming | None = None
        self._held = self._unsent = self._tunnel = False
        self._drained: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport to isinstance().
        self.transport = Corked(cast(asyncio.Transport, transport), self.loop)

    def data_received(self, data: bytes) -> None:
        if self._incoming is None:
            self.abort()  # nobody asked
        else:
            self._incoming.feed(data)

    def eof_received(self) -> None:
        self._over()

    def connection_lost(self, error: Exception | None) -> None:
        self._over()
        self._gone(self)

    def _over(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.lost()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def pause_writing(self) -> None:
        self._drained = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # Requests.

    def begin(self, bodiless: bool, tunnel: bool = False) -> Incoming:
        """A request is about to be written; `bodiless` says that its reply has no body (HEAD).

        After a `tunnel` (CONNECT) is open, the transport is handed to another protocol.
        """
        self._tunnel = tunnel
        self._incoming = Incoming(self, bodiless)
        return self._incoming

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self.transport.write(part)

    async def drain(self) -> None:
        """Until what was written may be followed by more. Raises ConnectionResetError."""
        self.transport.flush()
        if self._drained is not None:
            await self._drained
        if self.transport.is_closing():
            raise ConnectionResetError

    def unfinished(self, yes: bool) -> None:
        """Whether a request's body is still being written: such a connection is not used again."""
        self._unsent = yes

    # Replies.

    def through(self, keep: bool) -> None:
        """The reply is whole."""
        self._incoming = None
        self.go_on()
        if self._tunnel:
            return
        if keep and not self._unsent and not self.transport.is_closing():
            self._idle(self)
        else:
            self.abort()

    def hold(self) -> None:
        if not self._held and not self.transport.is_closing():
            self._held = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self._held:
            self._held = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    @property
    def is_clear(self) -> bool:
        """Whether it is open and all of the last request has left: a server may answer before it
        has read it.
        """
        transport = self.transport
        return not transport.is_closing() and transport.get_write_buffer_size() == 0

    def abort(self) -> None:
        """Cut it: what is unsent is thrown away, and no goodbye is said in TLS."""
        self.transport.abort()
