"""An upstream that does exactly what a test says, byte by byte, and a server and a client to match.

    async def script(wire):
        await wire.head(200, ("content-type", "text/event-stream"))
        await wire.chunk(b"data: 1\\n\\n")
        await wire.gone.wait()                      # until the proxy lets go

    async with Scripted(script) as upstream: ...    # upstream.base, .requests, .disconnects

Everything runs over real sockets on loopback, on both event loops (`on_every_loop`). Nothing here
measures time: a test waits for what it expects, and a bound of its own catches what never comes.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, cast

import pytest
import uvicorn
import uvloop

from proxy import server as server_edge

Headers = list[tuple[bytes, bytes]]
Script = Callable[["Wire"], Awaitable[None]]


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_every_loop(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on asyncio's own event loop and on uvloop, for at most 30 s."""

    def run(loop: str, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(asyncio.wait_for(scenario(**fixtures), 30))

    run.__name__, run.__doc__ = scenario.__name__, scenario.__doc__
    wanted = inspect.signature(scenario).parameters.values()
    first = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([first, *wanted])  # type: ignore[attr-defined]
    on_each: Callable[..., None] = pytest.mark.parametrize("loop", LOOPS)(run)
    return on_each


def listening() -> socket.socket:
    """A socket on a free port. asyncio turns Nagle's delay off only where the protocol is named."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came. `raw` is its head, byte for byte; `body` has chunks taken apart."""

    method: str
    target: str
    headers: Headers
    body: bytes
    raw: bytes

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


class Wire(asyncio.Protocol):
    """One connection. A script gets it with `request` set and may do to it what it likes."""

    request: Request
    transport: asyncio.Transport

    def __init__(self, upstream: Scripted) -> None:
        self.upstream = upstream
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._heard = asyncio.Event()
        self.gone = asyncio.Event()
        self.paused = asyncio.Event()
        self.finished = False
        self.received = 0

    # what the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.upstream.connected(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self.received += len(data)
        self._arrived.set()

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.gone.is_set():
            self.gone.set()
            self._arrived.set()
            self._writable.set()
            self.upstream.disconnected(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        self.paused.set()

    def resume_writing(self) -> None:
        self._writable.set()

    # what a script does

    async def send(self, *pieces: bytes) -> None:
        """Each piece in a write of its own. Waits while the other side does not read."""
        for piece in pieces:
            if self.gone.is_set() or self.transport.is_closing():
                raise ConnectionResetError
            self.transport.write(piece)
            await self._writable.wait()
            await asyncio.sleep(0)

    async def head(self, status: int, *headers: tuple[str, str], chunked: bool = True) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
        if chunked:
            lines.append("transfer-encoding: chunked")
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def chunk(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.send(b"%x\r\n%s\r\n" % (len(piece), piece))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def reply(self, body: bytes, *headers: tuple[str, str], status: int = 200) -> None:
        """A whole reply with its length."""
        await self.head(status, *headers, ("content-length", str(len(body))), chunked=False)
        await self.send(body)

    async def heard(self) -> None:
        """Wait until the test says `go_on`, so that the next piece comes by itself."""
        await self._heard.wait()
        self._heard.clear()

    def go_on(self) -> None:
        self._heard.set()

    def half_close(self) -> None:
        self.transport.write_eof()

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """End with RST, as a crashed process does."""
        opened: socket.socket = self.transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def stop_reading(self) -> None:
        self.transport.pause_reading()

    def read_on(self) -> None:
        self.transport.resume_reading()

    # requests, read when a script is through with the last one

    async def next_request(self, head_only: bool = False) -> Request | None:
        """None where the other side is gone."""
        raw = await self._until(b"\r\n\r\n")
        if raw is None:
            return None
        first, *lines = raw[:-4].split(b"\r\n")
        method, target, _ = first.decode("latin-1").split(" ")
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        found = Request(method, target, headers, b"", raw)
        body = b"" if head_only else await self.body(found)
        return None if body is None else Request(method, target, headers, body, raw)

    async def body(self, request: Request) -> bytes | None:
        if request.header(b"transfer-encoding") == b"chunked":
            return await self._chunked_body()
        return await self.exactly(int(request.header(b"content-length") or 0))

    async def _chunked_body(self) -> bytes | None:
        body = b""
        while (line := await self._until(b"\r\n")) is not None:
            piece = await self.exactly(int(line, 16) + 2)
            if piece is None:
                break
            if piece == b"\r\n":
                return body
            body += piece[:-2]
        return None

    async def _until(self, mark: bytes) -> bytes | None:
        while (at := self._buffer.find(mark)) < 0:
            if not await self._more():
                return None
        return self._taken(at + len(mark))

    async def exactly(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not await self._more():
                return None
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _more(self) -> bool:
        if self.gone.is_set():
            return False
        self._arrived.clear()
        await self._arrived.wait()
        return True


class Scripted:
    """Listens on loopback and runs `script` once a request.

    `requests` are those that came whole, `connections` counts those accepted, `disconnects` those
    that the other side ended while a script was still at it. `head_first` runs the script when the
    head of a request is there and leaves its body to it (`await wire.body(wire.request)`).
    """

    def __init__(
        self, script: Script, tls: ssl.SSLContext | None = None, head_first: bool = False
    ) -> None:
        self._script = script
        self._tls = tls
        self._head_first = head_first
        self._changed = asyncio.Event()
        self.requests: list[Request] = []
        self.connections = 0
        self.disconnects = 0
        self.wires: list[Wire] = []

    @property
    def base(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        listener = listening()
        self.port: int = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Wire(self), sock=listener, ssl=self._tls)
        self._serving: list[asyncio.Task[None]] = []
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        for wire in self.wires:
            wire.transport.abort()
        await self._group.__aexit__(kind, error, trace)

    def connected(self, wire: Wire) -> None:
        self.connections += 1
        self.wires.append(wire)
        self._serving.append(self._group.create_task(self._serve(wire)))

    def disconnected(self, wire: Wire) -> None:
        if hasattr(wire, "request") and not wire.finished:
            self.disconnects += 1
        self._changed.set()

    async def _serve(self, wire: Wire) -> None:
        try:
            while request := await wire.next_request(self._head_first):
                wire.request, wire.finished = request, False
                self.requests.append(request)
                self._changed.set()
                await self._script(wire)
                wire.finished = True
        except ConnectionResetError:
            pass

    async def until(self, true: Callable[[Scripted], bool]) -> None:
        """Wait until something holds of what came or went."""
        while not true(self):
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def served(
    app: Any, protocol: type[asyncio.Protocol] | Literal["httptools"] = server_edge.Protocol
) -> AsyncIterator[int]:
    """Serve an ASGI callable with uvicorn on a port of its own, in this very loop. At the end it
    waits for nobody: connections are torn.
    """
    listener = listening()
    config = uvicorn.Config(
        app, http=protocol, lifespan="off", log_config=None, access_log=False, ws="none"
    )
    config.load()
    server = uvicorn.Server(config)
    # Started by its parts: `serve` looks only ten times a second whether it should stop.
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield listener.getsockname()[1]
    finally:
        for running in server.servers:
            running.close()
        for connection in server.server_state.connections:
            connection.transport.abort()
        if tasks := server.server_state.tasks:
            await asyncio.wait(tasks)


@dataclass(slots=True)
class Dialled:
    """A client's end of one connection, read piece by piece."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    headers: dict[bytes, bytes] = field(default_factory=dict)

    async def ask(
        self, method: str, target: str, *headers: tuple[str, str], body: bytes = b""
    ) -> None:
        lines = [f"{method} {target} HTTP/1.1", "host: lethe"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body:
            lines.append(f"content-length: {len(body)}")
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def head(self) -> int:
        """The status; `headers` has the rest, names in lower case."""
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw[:-4].split(b"\r\n")
        pairs = (line.partition(b": ") for line in lines)
        self.headers = {name.lower(): value for name, _, value in pairs}
        return int(first.split(b" ")[1])

    async def chunk(self) -> bytes:
        """One chunk as it was written; b"" is the end. Raises IncompleteReadError where cut off."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def rest(self) -> bytes:
        """The rest of a chunked body, put together."""
        body = b""
        while piece := await self.chunk():
            body += piece
        return body

    def leave(self) -> None:
        self.writer.transport.abort()


async def connected(port: int) -> Dialled:
    """To be left by who asked for it."""
    return Dialled(*await asyncio.open_connection("127.0.0.1", port))


@asynccontextmanager
async def dialled(port: int) -> AsyncIterator[Dialled]:
    line = await connected(port)
    try:
        yield line
    finally:
        line.leave()
