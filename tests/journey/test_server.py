"""What a client may send before it is a request: raw bytes over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from proxy.server import HEADERS_LIMIT, Protocol, quiet
from tests.doors.scripted import served

GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
OVER = b"a" * (HEADERS_LIMIT + 1)


class Quick(Protocol):
    headers_seconds = 0.2
    body_seconds = 0.2
    look_every = 0.1


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and says how long it was. Paths may be late, break off or fall."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message["body"])
        more = message["more_body"]
    if scope["path"] == "/falls":
        raise ValueError("secret words")
    if scope["path"] == "/late":
        await asyncio.sleep(0.6)
    body = b"%d" % length
    headers = [(b"content-length", b"%d" % (len(body) + (scope["path"] == "/breaks")))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    more = scope["path"] == "/breaks"
    await send({"type": "http.response.body", "body": body, "more_body": more})


@asynccontextmanager
async def serving(protocol: type[Protocol] = Protocol) -> AsyncIterator[int]:
    with quiet():
        async with served(echo, protocol) as port:
            yield port


@dataclass(frozen=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.01)

    async def reply(self) -> tuple[int, bytes]:
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            return int(head.split()[1]), await self.reader.readexactly(int(length))

    async def rest(self) -> bytes:
        """Until the server closes."""
        async with asyncio.timeout(5):
            return await self.reader.read()


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def code(body: bytes) -> str:
    return str(json.loads(body)["error"]["code"])


TOO_LARGE = {
    "one header": (GET + b"x: " + OVER + b"\r\n\r\n",),
    "many headers": (GET + b"x: y\r\n" * 20_000 + b"\r\n",),
    "the line": (b"GET /" + OVER + b" HTTP/1.1\r\n\r\n",),
    "a value that never ends": (GET + b"x: ", *[b"a" * 30_000] * 5),
    "a name that never ends": (GET, *[b"a" * 30_000] * 5),
    "trailers": (CHUNKED, b"0\r\n", *[b"x: y\r\n" * 4_000] * 5),
}


@pytest.mark.parametrize("kind", TOO_LARGE)
async def test_headers_above_the_limit_are_refused_and_the_connection_is_closed(kind: str) -> None:
    async with serving() as port, client(port) as it:
        await it.send(*TOO_LARGE[kind])
        status, body = await it.reply()
        rest = await it.rest()

    assert (431, "headers_too_large", b"") == (status, code(body), rest)


async def test_the_second_of_two_requests_in_one_read_is_bounded_too() -> None:
    async with serving() as port, client(port) as it:
        await it.send(GET + b"\r\n" + GET + b"x: " + OVER + b"\r\n\r\n")
        rest = await it.rest()

    assert rest.count(b" 200 OK") <= 1


async def test_headers_within_the_limit_pass_on_a_connection_that_is_used_often() -> None:
    large = GET + b"x: " + b"a" * (HEADERS_LIMIT - 100) + b"\r\n\r\n"
    async with serving() as port, client(port) as it:
        for _ in range(3):
            await it.send(large[:40_000], large[40_000:])
            assert 200 == (await it.reply())[0]


async def test_a_body_above_the_limit_of_headers_passes_whole_or_in_chunks() -> None:
    size = 5 * HEADERS_LIMIT
    piece = b"%x\r\n%s\r\n" % (HEADERS_LIMIT, b"a" * HEADERS_LIMIT)
    async with serving() as port, client(port) as it:
        await it.send(POST + b"content-length: %d\r\n\r\n" % size, b"a" * size)
        whole = await it.reply()
        await it.send(CHUNKED, *[piece] * 5, b"0\r\n\r\n")
        chunked = await it.reply()

    assert (200, b"%d" % size) == whole == chunked


TOO_SLOW = {
    "headers": GET + b"x: ",
    "a body": POST + b"content-length: 5\r\n\r\nab",
}


@pytest.mark.parametrize("kind", TOO_SLOW)
async def test_a_request_that_does_not_come_is_answered_and_closed(kind: str) -> None:
    async with serving(Quick) as port, client(port) as it:
        await it.send(TOO_SLOW[kind])
        status, body = await it.reply()
        rest = await it.rest()

    assert (408, "request_too_slow", b"") == (status, code(body), rest)


async def test_headers_that_drip_are_not_waited_for() -> None:
    async with serving(Quick) as port, client(port) as it:
        await it.send(GET + b"x: ", *[b"a"] * 40)

        assert 408 == (await it.reply())[0]


@pytest.mark.parametrize("said", [b"", b"\r\n"])
async def test_a_connection_without_a_request_is_closed_without_a_word(said: bytes) -> None:
    async with serving(Quick) as port, client(port) as it:
        await it.send(said)

        assert b"" == await it.rest()


async def test_a_body_that_drips_an_answer_that_is_late_and_a_pause_between_are_no_fault() -> None:
    async with serving(Quick) as port, client(port) as it:
        await it.send(POST + b"content-length: 40\r\n\r\n", *[b"a"] * 40)
        dripped = await it.reply()
        await it.send(b"GET /late HTTP/1.1\r\nhost: x\r\n\r\n")
        late = await it.reply()
        await asyncio.sleep(0.5)
        await it.send(GET + b"\r\n")
        after = await it.reply()

    assert [(200, b"40"), (200, b"0"), (200, b"0")] == [dripped, late, after]


async def test_a_reply_that_breaks_off_is_no_line_and_a_fault_tells_its_place_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with serving() as port:
            for path in (b"breaks", b"falls"):
                async with client(port) as it:
                    await it.send(b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n" % path)
                    await it.reader.readuntil(b"\r\n\r\n")
                    it.writer.close()

    said = [row for row in caplog.text.splitlines() if row]
    assert 1 == len(said)
    assert "fault: ValueError at test_server.py:" in said[0]
    assert "secret" not in said[0]
