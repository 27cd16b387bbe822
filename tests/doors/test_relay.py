"""Both ends of an exchange over real sockets: raw client, uvicorn, relay, scripted upstream.

The application under test is the smallest that is whole: it takes the body in, forwards it, relays
the reply, and notes how the exchange ended, as an account would.
"""

from __future__ import annotations

import asyncio
import gzip
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from proxy.core import headers
from proxy.cycle import CLIENT
from proxy.errors import BodyTooLarge, ClientGone
from proxy.relay import (
    BodyChunks,
    Edit,
    Ending,
    Message,
    Receive,
    Send,
    Watch,
    read_body,
    relay,
    relay_watched,
)
from proxy.upstream import Upstream
from proxy.ways import Target
from tests.client import http_client
from tests.doors.scripted import Dialled, Script, Scripted, Wire, dialled, on_every_loop, served

LIMIT = 1 << 20


class Reader:
    """A tap that keeps what it hears; it fails at the piece that says so."""

    def __init__(self) -> None:
        self.failures = 0
        self.heard: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        if chunk == b"poison":
            raise ValueError(chunk)
        self.heard.append(chunk)


@dataclass
class App:
    """The least application. `endings` has one entry an exchange: an error's code if it raised."""

    upstream: Upstream
    target: Target
    edit: Callable[[], Edit] | None = None
    passing: bool = False
    endings: list[str] = field(default_factory=list)
    taps: list[Reader] = field(default_factory=list)
    firsts: int = 0
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        ending = "draining"
        try:
            ending = (await self.exchange(scope, receive, send)).value
        except (ClientGone, BodyTooLarge) as error:
            ending = error.code
        finally:
            self.endings.append(ending)
            self.changed.set()

    async def exchange(self, scope: dict[str, Any], receive: Receive, send: Send) -> Ending:
        url = f"{self.target.base}{scope['path']}"
        sent = headers.forwarded(scope["headers"])
        declared = dict(scope["headers"]).get(b"content-length")
        body: bytes | BodyChunks
        if self.passing:
            body = BodyChunks(receive)
        else:
            body = await read_body(receive, LIMIT, declared)
        tap = Reader()
        self.taps.append(tap)
        edit = self.edit() if self.edit else None
        async with Watch(scope["extensions"][CLIENT]) as watch:
            reply = await self.upstream.send(self.target, scope["method"], url, sent, body)
            back = headers.returned(reply.headers)
            return await relay_watched(
                watch, send, reply, back, reply.status, tap, edit, self.first_byte
            )

    def first_byte(self) -> None:
        self.firsts += 1

    async def ended(self, count: int = 1) -> list[str]:
        while len(self.endings) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.endings


@asynccontextmanager
async def running(
    script: Script, *, head_first: bool = False, **options: Any
) -> AsyncIterator[tuple[Scripted, App, Dialled]]:
    """All four, and a first connection of the client."""
    async with Scripted(script, head_first=head_first) as server:
        target = Target("main", server.base, first_byte_timeout=20.0, connect_timeout=20.0)
        upstream = Upstream([target], clock=lambda: 0.0, proxies=dict)
        await upstream.open()
        app = App(upstream, target, **options)
        try:
            async with served(app) as port, dialled(port) as client:
                yield server, app, client
        finally:
            await upstream.close()


async def post(client: Dialled, body: bytes = b"{}") -> int:
    await client.ask("POST", "/chat/completions", body=body)
    return await client.head()


async def silence(wire: Wire) -> None:
    await wire.gone.wait()


async def words_then_silence(wire: Wire) -> None:
    await wire.head(200, ("content-type", "text/event-stream"))
    await wire.chunk(b"data: 1\n\n")
    await wire.gone.wait()


# bytes


@on_every_loop
async def test_a_byte_in_is_a_byte_out_and_the_tap_hears_them_all():
    pieces = ["data: é🙂\r\n\r\n".encode()[at : at + 3] for at in range(0, 16, 3)]

    async def script(wire: Wire) -> None:
        await wire.head(200, ("content-type", "text/event-stream"), ("x-request-id", "r"))
        for piece in pieces:
            await wire.chunk(piece)
            await asyncio.sleep(0)
        await wire.end()

    async with running(script) as (_, app, client):
        assert 200 == await post(client)
        assert b"r" == client.headers[b"x-request-id"]
        assert b"".join(pieces) == await client.rest()
        assert ["complete"] == await app.ended()

    assert b"".join(pieces) == b"".join(app.taps[0].heard)
    assert 1 == app.firsts


@on_every_loop
async def test_each_piece_is_written_before_the_next_one_comes():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        for piece in (b"one", b"two"):
            await wire.chunk(piece)
            await more.wait()
            more.clear()
        await wire.end()

    more = asyncio.Event()
    async with running(script) as (_, app, client):
        assert 200 == await post(client)
        assert b"one" == await client.chunk()
        more.set()
        assert b"two" == await client.chunk()
        more.set()
        assert b"" == await client.chunk()
        assert ["complete"] == await app.ended()


@on_every_loop
async def test_the_status_is_passed_on_before_the_first_piece_comes():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        await read.wait()
        await wire.end()

    read = asyncio.Event()
    async with running(script) as (_, app, client):
        assert 200 == await post(client)
        read.set()
        assert b"" == await client.rest()
        assert ["complete"] == await app.ended()

    assert 0 == app.firsts


@on_every_loop
async def test_a_compressed_body_and_its_length_are_passed_on_as_they_are():
    body = gzip.compress(b"data: 1\n\n")

    async def script(wire: Wire) -> None:
        await wire.reply(body, ("content-encoding", "gzip"))

    async with running(script) as (_, app, client):
        assert 200 == await post(client)
        assert (b"gzip", str(len(body)).encode()) == (
            client.headers[b"content-encoding"],
            client.headers[b"content-length"],
        )
        assert body == await client.reader.readexactly(len(body))
        assert ["complete"] == await app.ended()


@pytest.mark.parametrize("status", [204, 304])
@on_every_loop
async def test_a_reply_that_has_no_body_is_complete_without_one(status: int) -> None:
    async def script(wire: Wire) -> None:
        length = [("content-length", "7")] if status == 304 else []
        await wire.head(status, *length, chunked=False)

    async with running(script) as (_, app, client):
        assert (status, status) == (await post(client), await post(client))
        assert ["complete"] * 2 == await app.ended(2)


@on_every_loop
async def test_a_head_request_gets_the_length_and_no_body():
    async def script(wire: Wire) -> None:
        await wire.head(200, ("content-length", "7"), chunked=False)

    async with running(script) as (_, app, client):
        for _ in range(2):
            await client.ask("HEAD", "/models")
            assert (200, b"7") == (await client.head(), client.headers[b"content-length"])
        assert ["complete"] * 2 == await app.ended(2)


@on_every_loop
async def test_a_client_that_gets_its_last_byte_has_not_left():
    async def script(wire: Wire) -> None:
        await wire.reply(b"{}")

    async with running(script) as (server, app, client):
        for _ in range(50):
            assert 200 == await post(client)
            assert b"{}" == await client.reader.readexactly(2)
        assert ["complete"] * 50 == await app.ended(50)
        assert (1, 0) == (server.connections, server.disconnects)


# the tap and the edit


@on_every_loop
async def test_a_tap_that_fails_is_counted_and_costs_no_byte():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        for piece in (b"one", b"poison", b"poison", b"two"):
            await wire.chunk(piece)
            await wire.heard()
        await wire.end()

    async with running(script) as (server, app, client):
        assert 200 == await post(client)
        pieces = []
        while piece := await client.chunk():
            pieces.append(piece)
            server.wires[0].go_on()
        assert ["complete"] == await app.ended()

    assert [b"one", b"poison", b"poison", b"two"] == pieces
    assert (1, [b"one"]) == (app.taps[0].failures, app.taps[0].heard)


class WithoutUsage:
    """Takes the lines out that begin with `usage`; a line may come in pieces."""

    def __init__(self) -> None:
        self.failures = 0
        self.held = b""

    def feed(self, chunk: bytes) -> bytes:
        if chunk == b"poison":
            raise ValueError(chunk)
        *lines, self.held = (self.held + chunk).split(b"\n")
        return b"".join(line + b"\n" for line in lines if not line.startswith(b"usage"))

    def close(self) -> bytes:
        held, self.held = self.held, b""
        return held


class Broken(WithoutUsage):
    def close(self) -> bytes:
        raise ValueError


@on_every_loop
async def test_an_edit_takes_out_what_it_must_and_the_tap_hears_it_all_the_same():
    body = b"one\nusage 7\ntwo"

    async def script(wire: Wire) -> None:
        await wire.head(200, ("content-length", str(len(body))), chunked=False)
        await wire.send(body[:6], body[6:])

    async with running(script, edit=WithoutUsage) as (_, app, client):
        assert 200 == await post(client)
        assert b"content-length" not in client.headers
        assert b"one\ntwo" == await client.rest()
        assert ["complete"] == await app.ended()

    assert body == b"".join(app.taps[0].heard)


@pytest.mark.parametrize("edit", [WithoutUsage, Broken])
@on_every_loop
async def test_an_edit_that_fails_lets_everything_through_from_there_on(
    edit: Callable[[], WithoutUsage],
) -> None:
    edits = [edit()]

    async def script(wire: Wire) -> None:
        await wire.head(200)
        for piece in (b"one\nheld", b"poison", b"usage\n"):
            await wire.chunk(piece)
            await wire.heard()
        await wire.end()

    async with running(script, edit=lambda: edits[0]) as (server, app, client):
        assert 200 == await post(client)
        body = b""
        while piece := await client.chunk():
            body += piece
            server.wires[0].go_on()
        assert ["complete"] == await app.ended()

    lost = b"" if edit is Broken else b"held"
    assert b"one\n" + lost + b"poisonusage\n" == body
    assert (2 if edit is Broken else 1) == edits[0].failures


@on_every_loop
async def test_what_an_edit_holds_is_given_out_when_the_upstream_breaks_off():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        await wire.chunk(b"one\nhalf a li")
        wire.close()

    async with running(script, edit=WithoutUsage) as (_, app, client):
        assert 200 == await post(client)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.rest()
        assert ["upstream_gone"] == await app.ended()


# endings


@on_every_loop
async def test_a_client_that_leaves_in_the_silence_before_the_reply_cancels_the_upstream():
    async with running(silence) as (server, app, client):
        await client.ask("POST", "/chat/completions", body=b"{}")
        await server.until(lambda s: len(s.requests) == 1)
        client.leave()
        await server.until(lambda s: s.disconnects == 1)

        assert ["client_gone"] == await app.ended()


@on_every_loop
async def test_a_client_that_leaves_in_the_silence_between_pieces_cancels_the_upstream():
    async with running(words_then_silence) as (server, app, client):
        assert 200 == await post(client)
        assert b"data: 1\n\n" == await client.chunk()
        client.leave()
        await server.until(lambda s: s.disconnects == 1)

        assert ["client_gone"] == await app.ended()
        assert [b"data: 1\n\n"] == app.taps[0].heard


@on_every_loop
async def test_a_client_that_closes_politely_has_left_too():
    async with running(words_then_silence) as (server, app, client):
        assert 200 == await post(client)
        client.writer.close()
        await server.until(lambda s: s.disconnects == 1)

        assert ["client_gone"] == await app.ended()


@on_every_loop
async def test_a_client_that_does_not_read_holds_the_upstream_back_and_loses_nothing():
    async def script(wire: Wire) -> None:
        await wire.head(200, ("content-length", str(size)), chunked=False)
        for _ in range(size >> 16):
            await wire.send(bytes(1 << 16))
            sent.append(1 << 16)

    size, sent = 64 << 20, list[int]()
    async with running(script) as (server, app, client):
        assert 200 == await post(client)
        await server.wires[0].paused.wait()
        for _ in range(50):
            await asyncio.sleep(0.001)
        held_back = sum(sent)
        read = 0
        while read < size:
            read += len(await client.reader.read(1 << 20))

        assert held_back < size // 2
        assert size == read
        assert ["complete"] == await app.ended()


@on_every_loop
async def test_a_client_that_leaves_without_having_read_cancels_the_upstream():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        while True:
            await wire.chunk(bytes(1 << 16))

    async with running(script) as (server, app, client):
        assert 200 == await post(client)
        await server.wires[0].paused.wait()
        client.leave()
        await server.until(lambda s: s.disconnects == 1)

        assert ["client_gone"] == await app.ended()


@pytest.mark.parametrize("how", [Wire.close, Wire.reset])
@on_every_loop
async def test_half_a_stream_is_never_taken_for_a_whole_one(how: Callable[[Wire], None]) -> None:
    async def script(wire: Wire) -> None:
        await wire.head(200)
        await wire.chunk(b"data: 1\n\n")
        await read.wait()
        how(wire)

    read = asyncio.Event()
    async with running(script) as (_, app, client):
        assert 200 == await post(client)
        assert b"data: 1\n\n" == await client.chunk()
        read.set()
        with pytest.raises(asyncio.IncompleteReadError) as cut:
            await client.chunk()
        assert b"" == cut.value.partial
        assert ["upstream_gone"] == await app.ended()


@pytest.mark.parametrize("length", [[], [("content-length", "100")]])
@on_every_loop
async def test_an_ordinary_client_is_told_that_the_body_is_not_whole(
    length: list[tuple[str, str]],
) -> None:
    async def script(wire: Wire) -> None:
        await wire.head(200, *length, chunked=not length)
        await (wire.send(b"{") if length else wire.chunk(b"{"))
        wire.close()

    async with running(script) as (_, app, client), http_client() as http:
        port = client.writer.get_extra_info("peername")[1]
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete|without sending"):
            await http.post(f"http://127.0.0.1:{port}/chat/completions", content=b"{}")
        assert ["upstream_gone"] == await app.ended()


@on_every_loop
async def test_a_server_that_stops_closes_both_ends_and_the_cancellation_goes_on():
    async with running(words_then_silence) as (server, app, client):
        assert 200 == await post(client)
        assert b"data: 1\n\n" == await client.chunk()
        app.tasks[0].cancel()
        await server.until(lambda s: s.disconnects == 1)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.chunk()

        assert ["draining"] == await app.ended()


@on_every_loop
async def test_every_exchange_ends_once_whoever_leaves_first():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        await wire.chunk(b"data: 1\n\n")
        if wire.request.body == b"upstream":
            wire.reset()
        else:
            await wire.gone.wait()

    async with running(script) as (server, app, first):
        port = first.writer.get_extra_info("peername")[1]
        for count, name in enumerate(("upstream", "client", "both") * 4, 1):
            async with dialled(port) as client:
                assert 200 == await post(client, name.encode())
                if name == "both":
                    server.wires[-1].reset()
                if name != "upstream":
                    client.leave()
                await app.ended(count)

        assert ["upstream_gone", "client_gone"] * 4 == [
            ending for at, ending in enumerate(app.endings) if at % 3 < 2
        ]
        assert 12 == len(app.endings)


# the parts by themselves


class Told:
    """What was sent, without a server, and a client that leaves on demand."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.gone = False
        self.call: Callable[[], None] | None = None

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def when_gone(self, call: Callable[[], None] | None) -> None:
        self.call = call

    def leave(self) -> None:
        self.gone = True
        if self.call is not None:
            asyncio.get_running_loop().call_soon(self.call)


class OwnPieces(ABC):
    """A reply that is its own pieces."""

    def __init__(self) -> None:
        self.ended: str | None = None
        self.closed = 0

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    @abstractmethod
    async def __anext__(self) -> bytes: ...


class SlowToClose(OwnPieces):
    """A reply whose closing takes several turns of the loop."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told

    async def __anext__(self) -> bytes:
        self.told.leave()
        await asyncio.Event().wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        self.closed += 1


async def test_closing_runs_to_its_end_in_an_exchange_that_was_cancelled():
    told = Told()
    reply = SlowToClose(told)

    assert Ending.CLIENT_GONE is await relay(told.send, told, reply, [], 200, None)
    assert 1 == reply.closed
    assert ["http.response.start"] == [message["type"] for message in told.sent]


class Spoken(OwnPieces):
    """A reply that is all there."""

    def __init__(self, *chunks: bytes, ends: str = "complete") -> None:
        super().__init__()
        self._chunks = list(chunks)
        self._ends = ends

    async def __anext__(self) -> bytes:
        if self._chunks:
            return self._chunks.pop(0)
        self.ended = self._ends
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_server_that_reports_a_dead_client_by_an_error_is_believed():
    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise OSError

    told, reply = Told(), Spoken(b"one")

    assert Ending.CLIENT_GONE is await relay(send, told, reply, [], 200, None)
    assert 1 == reply.closed


async def test_the_messages_of_a_relay_are_the_pieces_and_an_end():
    told, reply = Told(), Spoken(b"one", b"two")
    given = [(b"x", b"y")]

    assert Ending.COMPLETE is await relay(told.send, told, reply, given, 201, None)
    assert [
        {"type": "http.response.start", "status": 201, "headers": given},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"two", "more_body": True},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ] == told.sent


async def test_a_reply_that_broke_off_is_left_without_an_end():
    told, reply = Told(), Spoken(b"one", ends="upstream_gone")

    assert Ending.UPSTREAM_GONE is await relay(told.send, told, reply, [], 200, None)
    assert [True] == [m["more_body"] for m in told.sent if m["type"] == "http.response.body"]
    assert 1 == reply.closed


async def test_a_piece_that_an_edit_holds_back_whole_is_no_message():
    told, reply = Told(), Spoken(b"no line yet", b"\nhalf")
    edit = WithoutUsage()

    assert Ending.COMPLETE is await relay(told.send, told, reply, [], 200, None, edit)
    assert [b"no line yet\n", b"half", b""] == [m["body"] for m in told.sent[1:]]


async def test_a_client_that_left_before_is_not_waited_for():
    told = Told()
    told.leave()
    with pytest.raises(ClientGone):
        async with Watch(told):
            await asyncio.Event().wait()


async def test_a_cancellation_from_outside_stays_one_also_when_the_client_leaves_meanwhile():
    told = Told()

    async def watched() -> None:
        async with Watch(told):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watched())
        await asyncio.sleep(0)
        task.cancel()
        told.leave()
    assert task.cancelled()


async def test_an_error_under_a_watch_comes_out_as_it_is_with_its_cause():
    told, cause = Told(), ValueError()

    async def failing() -> None:
        async with Watch(told):
            raise LookupError from cause

    with pytest.raises(LookupError) as raised:
        await failing()
    assert cause is raised.value.__cause__


async def test_an_error_on_the_way_out_of_a_client_that_left_does_not_hide_that_it_left():
    told = Told()

    async def failing() -> None:
        async with Watch(told):
            try:
                told.leave()
                await asyncio.Event().wait()
            finally:
                raise LookupError

    with pytest.raises(ClientGone):
        await failing()


async def test_a_client_may_leave_once_the_watch_is_over():
    told = Told()
    async with Watch(told) as watch:
        watch.stop()
        told.leave()
        for _ in range(5):
            await asyncio.sleep(0)

    task = asyncio.current_task()
    assert task is not None
    assert 0 == task.cancelling()


# the request's body


def saying(*messages: Message) -> Receive:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


def part(body: bytes, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


async def test_a_body_is_put_together_from_its_parts():
    assert b"abc" == await read_body(saying(part(b"abc", False)), 3)
    assert b"abc" == await read_body(saying(part(b"a"), part(b""), part(b"bc", False)), 3, b"3")
    assert b"" == await read_body(saying({"type": "http.request"}), 3)


async def test_a_body_that_is_too_large_is_refused_as_soon_as_that_is_known():
    too_large = r"^the request's body is larger than 3 bytes \(max_body_bytes\)$"
    for receive, declared in (
        (saying(), b"4"),
        (saying(part(b"abcd", False)), None),
        (saying(part(b"abc"), part(b"d")), None),
    ):
        with pytest.raises(BodyTooLarge, match=too_large):
            await read_body(receive, 3, declared)


async def test_a_body_that_breaks_off_means_that_the_client_left():
    with pytest.raises(ClientGone):
        await read_body(saying(part(b"a"), GONE), 3)
    body = BodyChunks(saying(part(b"a"), GONE))
    assert b"a" == await anext(body)
    with pytest.raises(ClientGone):
        await anext(body)


@on_every_loop
async def test_a_client_that_asks_first_is_told_to_go_on():
    async def script(wire: Wire) -> None:
        assert wire.request.header(b"expect") is None
        await wire.reply(wire.request.body)

    async with running(script) as (_, app, client):
        asking = [("expect", "100-continue"), ("content-length", "2")]
        await client.ask("POST", "/chat/completions", *asking)
        assert 100 == await client.head()
        await client.send(b"{}")
        assert 200 == await client.head()
        assert b"{}" == await client.reader.readexactly(2)
        assert ["complete"] == await app.ended()


@on_every_loop
async def test_a_client_that_asks_first_with_too_much_is_not_told_to_go_on():
    async with running(silence) as (_, app, client):
        asking = [("expect", "100-continue"), ("content-length", str(LIMIT + 1))]
        await client.ask("POST", "/chat/completions", *asking)
        assert 500 == await client.head()
        assert ["body_too_large"] == await app.ended()


@on_every_loop
async def test_a_client_that_leaves_in_the_middle_of_its_body_reaches_no_upstream():
    async with running(silence) as (server, app, client):
        await client.ask("POST", "/chat/completions", ("content-length", "10"))
        await client.send(b"half")
        client.leave()

        assert ["client_gone"] == await app.ended()
        assert 0 == server.connections


@on_every_loop
async def test_a_body_that_passes_through_is_sent_on_as_it_comes():
    async def script(wire: Wire) -> None:
        assert b"5\r\nfirst\r\n" == await wire.exactly(10)
        seen.set()
        assert b"6\r\nsecond\r\n0\r\n\r\n" == await wire.exactly(16)
        await wire.reply(b"ok")

    seen = asyncio.Event()
    async with running(script, head_first=True, passing=True) as (_, app, client):
        await client.ask("POST", "/files", ("transfer-encoding", "chunked"))
        await client.send(b"5\r\nfirst\r\n")
        await seen.wait()
        await client.send(b"6\r\nsecond\r\n0\r\n\r\n")
        assert 200 == await client.head()
        assert ["complete"] == await app.ended()


@on_every_loop
async def test_a_client_that_leaves_in_the_middle_of_an_upload_breaks_it_off():
    async def script(wire: Wire) -> None:
        assert b"5\r\nfirst\r\n" == await wire.exactly(10)
        seen.set()
        assert await wire.exactly(1) is None
        broken.set()

    seen, broken = asyncio.Event(), asyncio.Event()
    async with running(script, head_first=True, passing=True) as (_, app, client):
        await client.ask("POST", "/files", ("transfer-encoding", "chunked"))
        await client.send(b"5\r\nfirst\r\n")
        await seen.wait()
        client.leave()
        await broken.wait()

        assert ["client_gone"] == await app.ended()


@on_every_loop
async def test_a_reply_that_comes_before_the_upload_is_over_is_passed_on():
    async def script(wire: Wire) -> None:
        await wire.reply(b"too large", ("connection", "close"), status=413)
        wire.close()

    async with running(script, head_first=True, passing=True) as (_, app, client):
        await client.ask("POST", "/files", ("content-length", "1000000"))
        await client.send(b"some of it")
        assert 413 == await client.head()
        assert b"too large" == await client.reader.readexactly(9)
        assert ["complete"] == await app.ended()


@on_every_loop
async def test_a_client_that_leaves_after_a_passed_body_cancels_the_upstream():
    async with running(words_then_silence, passing=True) as (server, app, client):
        assert 200 == await post(client)
        assert b"data: 1\n\n" == await client.chunk()
        client.leave()
        await server.until(lambda s: s.disconnects == 1)

        assert ["client_gone"] == await app.ended()
