"""How the ledger talks to Redis: one pipelined connection for what is waited for, one for the rest.

A request waits for `call`: it goes out at once on a connection that others share, and its reply is
whichever comes next in line, so nobody waits for a connection, and a reply that comes too late is
merely dropped. What is not waited for goes through `many` on a second connection, so that a long
write holds up no request. redis-py does the rest: URLs, TLS, Sentinel, the errors, all of Cluster.
Its own client takes three times the CPU per command that a bare connection with hiredis takes.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import hiredis
from redis import exceptions as trouble
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import RedisError, ResponseError

from proxy.ledger.address import Address
from proxy.ledger.scripts import SCRIPTS, Command

TROUBLE = (RedisError, trouble.RedisClusterException, OSError, EOFError)
"""Whatever a store that is away, slow or unwilling raises."""

_ERRORS: dict[str, type[RedisError]] = {
    "NOSCRIPT": trouble.NoScriptError,
    "READONLY": trouble.ReadOnlyError,
    "LOADING": trouble.BusyLoadingError,
    "OOM": trouble.OutOfMemoryError,
    "NOAUTH": trouble.AuthenticationError,
    "WRONGPASS": trouble.AuthenticationError,
    "NOPERM": trouble.NoPermissionError,
    "MASTERDOWN": trouble.MasterDownError,
    "CLUSTERDOWN": trouble.ClusterDownError,
    "TRYAGAIN": trouble.TryAgainError,
}
_LATER = (
    trouble.ReadOnlyError,
    trouble.ConnectionError,
    trouble.OutOfMemoryError,
    trouble.ClusterError,
    trouble.TimeoutError,
)
_LOADS: list[Command] = [("SCRIPT", "LOAD", script.text) for script in SCRIPTS]
_LATER_CODES = ("MISCONF", "NOREPLICAS", "BUSY ")


def later(error: Exception) -> bool:
    """Whether the store refuses everything just now, rather than this one command."""
    return isinstance(error, _LATER) or str(error).startswith(_LATER_CODES)


def raise_later(replies: Sequence[Any]) -> None:
    """Raise the first of these that says that the store refuses everything just now."""
    for reply in replies:
        if isinstance(reply, Exception) and later(reply):
            raise reply


def _reply_error(message: str) -> RedisError:
    kind = _ERRORS.get(message.split(" ", 1)[0])
    return ResponseError(message) if kind is None else kind(message)


class Store(Protocol):
    """`apart` says that keys of different hash tags are not reached by one command."""

    apart: bool

    async def connect(self, within: float) -> None:
        """Connect whatever is not; see that an answer comes `within` seconds. Raises TROUBLE."""
        ...

    async def call(self, command: Command, within: float) -> Any:
        """One script, waited for. Raises TROUBLE, the server's own errors among them."""
        ...

    async def many(self, commands: Sequence[Command], within: float) -> list[Any]:
        """Any commands, in order; the server's errors stand in their places. Raises TROUBLE."""
        ...

    async def load(self, within: float) -> None:
        """Give the server its scripts again. Raises TROUBLE."""
        ...

    async def close(self) -> None: ...


def opened(address: Address, lost: Callable[[], None], connect_timeout: float) -> Store:
    """A store that is not connected yet. `lost` is called when a connection breaks."""
    if address.kind == "cluster":
        return Cluster(address, connect_timeout)
    return Single(address, lost, connect_timeout)


@dataclass(slots=True)
class _Waiting:
    future: asyncio.Future[list[Any]]
    wanted: int
    replies: list[Any] = field(default_factory=list)


class _Wire(asyncio.Protocol):
    """One connection. Commands go out as they come; replies come back in the same order."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._reader = hiredis.Reader(replyError=_reply_error, notEnoughData=self)
        self._waiting: deque[_Waiting] = deque()
        self._transport: asyncio.Transport | None = None

    @property
    def up(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, commands: Sequence[Command], within: float) -> list[Any]:
        """The replies, errors among them. Raises ConnectionError and TimeoutError."""
        if self._transport is None or not self.up:
            raise trouble.ConnectionError("not connected")
        if not commands:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append(_Waiting(future, len(commands)))
        self._transport.write(b"".join(map(hiredis.pack_command, commands)))
        timer = loop.call_later(within, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not self:
                self._take(reply)
        except (hiredis.HiredisError, IndexError):
            # No Redis speaks so: nothing that follows on this connection can be trusted.
            self.abort()

    def _take(self, reply: Any) -> None:
        waiting = self._waiting[0]
        waiting.replies.append(reply)
        if len(waiting.replies) == waiting.wanted:
            self._waiting.popleft()
            if not waiting.future.done():
                waiting.future.set_result(waiting.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        while self._waiting:
            future = self._waiting.popleft().future
            if not future.done():
                future.set_exception(trouble.ConnectionError("connection lost"))
        self._lost()


def _give_up(future: asyncio.Future[list[Any]]) -> None:
    # A reply that is there already wins, however late this worker came to look.
    if not future.done():
        future.set_exception(TimeoutError("no answer in time"))


class Single:
    """One server, or the master that Sentinel names."""

    apart = False

    def __init__(self, address: Address, lost: Callable[[], None], connect_timeout: float) -> None:
        self._address, self._lost, self._connect_timeout = address, lost, connect_timeout
        self._tls = address.context()
        self._fast: _Wire | None = None
        self._bulk: _Wire | None = None

    async def connect(self, within: float) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout):
                self._fast = self._fast if self._fast and self._fast.up else await self._wire()
                self._bulk = self._bulk if self._bulk and self._bulk.up else await self._wire()
            for wire in (self._fast, self._bulk):
                _checked(await wire.ask([("PING",)], within))
        except BaseException:
            # What may be half open is opened anew the next time; with Sentinel, elsewhere.
            await self.close()
            raise

    async def _wire(self) -> _Wire:
        loop = asyncio.get_running_loop()
        make = partial(_Wire, self._lost)
        if self._address.path:
            _, wire = await loop.create_unix_connection(make, self._address.path)
        else:
            host, port = await self._host()
            name = host if self._tls else None
            transport, wire = await loop.create_connection(
                make, host, port, ssl=self._tls, server_hostname=name
            )
            if (sock := transport.get_extra_info("socket")) is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            await self._greet(wire)
        except BaseException:
            wire.abort()
            raise
        return wire

    async def _greet(self, wire: _Wire) -> None:
        it = self._address
        login = [part for part in (it.username, it.password) if part is not None]
        commands: list[Command] = [("AUTH", *login)] if login else []
        if it.db:
            commands.append(("SELECT", it.db))
        commands += _LOADS
        _checked(await wire.ask(commands, self._connect_timeout))

    async def _host(self) -> tuple[str, int]:
        if self._address.kind != "sentinel":
            return self._address.nodes[0]
        options: dict[str, Any] = {"socket_timeout": self._connect_timeout}
        if self._address.sentinel_password:
            options["password"] = self._address.sentinel_password
        # redis-py gives its Sentinel no types.
        sentinel: Any = Sentinel(self._address.nodes, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        try:
            host, port = await sentinel.discover_master(self._address.service)
        finally:
            # Its own `aclose` is younger than the redis-py that we ask for.
            for client in sentinel.sentinels:
                await client.aclose()
        return host, port

    async def call(self, command: Command, within: float) -> Any:
        if self._fast is None:
            raise trouble.ConnectionError("not connected")
        replies = await self._fast.ask([command], within)
        self._leave_replica(replies)
        return _checked(replies)[0]

    async def many(self, commands: Sequence[Command], within: float) -> list[Any]:
        if self._bulk is None:
            raise trouble.ConnectionError("not connected")
        try:
            replies = await self._bulk.ask(commands, within)
        except TimeoutError:
            self._bulk.abort()
            raise
        self._leave_replica(replies)
        return replies

    def _leave_replica(self, replies: Sequence[Any]) -> None:
        """A master that became a replica is left, so that its successor is looked for."""
        if any(isinstance(reply, trouble.ReadOnlyError) for reply in replies):
            for wire in (self._fast, self._bulk):
                if wire is not None:
                    wire.abort()

    async def load(self, within: float) -> None:
        _checked(await self.many(_LOADS, within))

    async def close(self) -> None:
        for wire in (self._fast, self._bulk):
            if wire is not None:
                wire.abort()
        self._fast = self._bulk = None
        # A transport is only gone in the loop's next round.
        await asyncio.sleep(0)


def _checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


class Cluster:
    """Redis Cluster: redis-py's own client, which knows which node has what."""

    apart = True

    def __init__(self, address: Address, connect_timeout: float) -> None:
        self._address, self._connect_timeout = address, connect_timeout
        self._client: RedisCluster | None = None

    async def connect(self, within: float) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout):
                if self._client is None:
                    self._client = self._made()
                    await self._client.initialize()
                    await self.load(self._connect_timeout)
            async with asyncio.timeout(within):
                await self._client.ping(target_nodes=RedisCluster.PRIMARIES)
        except BaseException:
            await self.close()
            raise

    def _made(self) -> RedisCluster:
        it = self._address
        tls = {} if it.tls is None else {"ssl": True, **dict(it.tls)}
        return RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in it.nodes],
            username=it.username,
            password=it.password,
            protocol=2,
            socket_timeout=self._connect_timeout,
            socket_connect_timeout=self._connect_timeout,
            **tls,
        )

    async def call(self, command: Command, within: float) -> Any:
        if self._client is None:
            raise trouble.ConnectionError("not connected")
        async with asyncio.timeout(within):
            return await self._client.execute_command(*command)

    async def many(self, commands: Sequence[Command], within: float) -> list[Any]:
        if self._client is None:
            raise trouble.ConnectionError("not connected")
        async with asyncio.timeout(within):
            pipeline = self._client.pipeline()
            for command in commands:
                pipeline.execute_command(*command)
            return list(await pipeline.execute(raise_on_error=False))

    async def load(self, within: float) -> None:
        if self._client is None:
            raise trouble.ConnectionError("not connected")
        async with asyncio.timeout(within):
            for script in SCRIPTS:
                await self._client.script_load(script.text)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(*TROUBLE):
                await client.aclose()
