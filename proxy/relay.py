"""Bytes to the client untouched while a tap reads along; closes both ends. Takes the body in.

A piece is written at once, as it came. The write waits while the client is slow, and nothing is
read from the upstream meanwhile. The tap hears of a piece after it was written.

A watch hears of a client that leaves. When it does, the task that serves it is
cancelled where it stands, the silence before the reply included, and the upstream is cut off at
once. A cancellation from outside, the server stopping, goes on as what it is when both ends are
closed: the caller counts it as DRAINING. Closing waits for nothing, so no second cancellation can
cut it short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

from proxy.cycle import Client
from proxy.errors import BodyTooLarge, ClientGone

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

# RFC 9110 § 8.6: these may name a length and have no body; the server would wait for one.
_NO_BODY = frozenset({204, 304})


class Ending(Enum):
    """How an exchange ended. DRAINING is the word of whoever was cancelled from outside."""

    COMPLETE = "complete"
    CLIENT_GONE = "client_gone"
    UPSTREAM_GONE = "upstream_gone"
    DRAINING = "draining"


class Tap(Protocol):
    """Reads along. When `feed` raises, it is counted in `failures` and the tap hears no more."""

    failures: int

    def feed(self, chunk: bytes) -> None: ...


class Edit(Protocol):
    """Changes what passes. `feed` gives what may go on of all that came so far, `close` the rest.

    When `feed` raises, what it held back is taken with `close`, the piece and all that follows go
    on as they came, and it is counted in `failures`.
    """

    failures: int

    def feed(self, chunk: bytes) -> bytes: ...

    def close(self) -> bytes: ...


class Keeper(Protocol):
    """Keeps a reply before its end is let go; see `keeping.Keeper`."""

    def due(self, whole: bool) -> bool: ...

    async def keep(self) -> None: ...


class Reply(Protocol):
    """What is relayed; see `upstream.Reply`."""

    @property
    def ended(self) -> str | None: ...

    @property
    def chunks(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class Watch:
    """Cancels the task standing inside when the client leaves, and raises ClientGone there."""

    __slots__ = ("_before", "_client", "_gone", "_task")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._gone = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        if self._client.gone:
            raise ClientGone(_LEFT)
        self._client.when_gone(self._left)
        return self

    def _left(self) -> None:
        self._gone = True
        self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if not self._gone:
            return
        ours = self._task.uncancel() <= self._before
        if ours and error is not None:
            raise ClientGone(_LEFT) from error

    def stop(self) -> None:
        """The client may leave now: all but the end of its reply has been written."""
        self._client.when_gone(None)


_LEFT = "the client left before its reply was over"


async def relay(
    send: Send,
    client: Client,
    reply: Reply,
    headers: Headers,
    status: int,
    tap: Tap | None,
    edit: Edit | None = None,
    first: Callable[[], None] | None = None,
) -> Ending:
    """`relay_watched` under a watch of its own; a client that left is an ending, not an error."""
    try:
        async with Watch(client) as watch:
            return await relay_watched(watch, send, reply, headers, status, tap, edit, first)
    except ClientGone:
        return Ending.CLIENT_GONE


async def relay_watched(
    watch: Watch,
    send: Send,
    reply: Reply,
    headers: Headers,
    status: int,
    tap: Tap | None,
    edit: Edit | None = None,
    first: Callable[[], None] | None = None,
    keeper: Keeper | None = None,
) -> Ending:
    """Pass the reply on, under a watch that stood since before the request was forwarded.

    `headers` and `status` are what the client gets; `content-length` is left out where the body is
    edited. `first` is called once, after the first piece was written. With a `keeper` the tap hears
    a piece before it is written, and the last one waits until the reply is kept. Gives COMPLETE or
    UPSTREAM_GONE; after the latter the response is left unfinished, which makes the server cut the
    connection: no client can take the half for the whole. The reply is closed in every case.
    """
    try:
        await send(_start(status, headers, edit is not None))
        await _pass_on(send, reply, tap, _Guarded(edit) if edit else None, first, keeper)
        watch.stop()
        if reply.ended != "complete":
            return Ending.UPSTREAM_GONE
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return Ending.COMPLETE
    except OSError as error:
        # ASGI's word for a write to a client that has gone, from servers that say so.
        raise ClientGone("the client left while its reply was written") from error
    finally:
        await reply.aclose()


def _start(status: int, headers: Headers, edited: bool) -> Message:
    if edited or status in _NO_BODY:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _pass_on(
    send: Send,
    reply: Reply,
    tap: Tap | None,
    edit: _Guarded | None,
    first: Callable[[], None] | None,
    keeper: Keeper | None,
) -> None:
    feed: Callable[[bytes], None] = tap.feed if tap else _deaf
    async for chunk in reply.chunks:
        if keeper is not None:
            feed = _heard(feed, chunk, tap)
            if keeper.due(reply.ended is not None):
                await keeper.keep()
        out = edit.feed(chunk) if edit else chunk
        if out:
            await send({"type": "http.response.body", "body": out, "more_body": True})
        if first:
            first()
            first = None
        if keeper is None:
            feed = _heard(feed, chunk, tap)
    if keeper is not None:
        await keeper.keep()
    if edit and (out := edit.close()):
        await send({"type": "http.response.body", "body": out, "more_body": True})


def _heard(feed: Callable[[bytes], None], chunk: bytes, tap: Tap | None) -> Callable[[bytes], None]:
    """Let the tap hear a piece; who hears the next one."""
    try:
        feed(chunk)
    except Exception:
        return _failed(tap)
    return feed


def _deaf(chunk: bytes) -> None:
    pass


def _failed(tap: Tap | None) -> Callable[[bytes], None]:
    if tap:
        tap.failures += 1
    return _deaf


class _Guarded:
    """An edit that cannot hurt: after its first failure everything goes on as it came."""

    __slots__ = ("_edit", "_trusted")

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self._trusted = True

    def feed(self, chunk: bytes) -> bytes:
        if not self._trusted:
            return chunk
        try:
            return self._edit.feed(chunk)
        except Exception:
            self._edit.failures += 1
            return self.close() + chunk

    def close(self) -> bytes:
        trusted, self._trusted = self._trusted, False
        try:
            return self._edit.close() if trusted else b""
        except Exception:
            self._edit.failures += 1
            return b""


async def read_body(receive: Receive, limit: int, declared: bytes | None = None) -> bytes:
    """The whole request body, at most `limit` bytes; `declared` is its `content-length`, if given.

    Raises BodyTooLarge, before anything is read where the declared length says so (a client that
    asked with `expect: 100-continue` then sends nothing), and ClientGone where the body breaks off.
    """
    if declared is not None and int(declared) > limit:
        raise _too_large(limit)
    message = await _piece(receive)
    body = bytes(message.get("body", b""))
    if message.get("more_body"):
        pieces, size = [body], len(body)
        while message.get("more_body"):
            message = await _piece(receive)
            pieces.append(bytes(message.get("body", b"")))
            size += len(pieces[-1])
            if size > limit:
                raise _too_large(limit)
        body = b"".join(pieces)
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _piece(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone("the client left before its request was over")
    return message


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request's body is larger than {limit} bytes (max_body_bytes)")


class BodyChunks:
    """A request body that passes through, piece by piece; raises ClientGone where it breaks off."""

    __slots__ = ("_more", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while self._more:
            message = await _piece(self._receive)
            self._more = message.get("more_body", False)
            if chunk := message.get("body"):
                return bytes(chunk)
        raise StopAsyncIteration
