"""The upstream door against a scripted server: each byte, each way to fail, what is sent again."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

from proxy.errors import (
    BadHeader,
    ClientGone,
    SettingsError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.upstream import Body, Reply, Upstream
from proxy.ways import Target
from tests.doors.scripted import Script, Scripted, Wire, on_every_loop

BODY = b'{"model":"m","messages":[]}'
KEY = (b"authorization", b"Bearer sk-secret")
PATH = "/chat/completions"
Ticks = Callable[[], float]
Ask = Callable[..., Coroutine[Any, Any, Reply]]


@asynccontextmanager
async def opened(
    target: Target, *, ticks: Ticks = lambda: 0.0, proxies: dict[str, str] | None = None
) -> AsyncIterator[Upstream]:
    upstream = Upstream([target], clock=ticks, proxies=lambda: proxies or {})
    await upstream.open()
    try:
        yield upstream
    finally:
        await upstream.close()


def target(base: str, **changed: Any) -> Target:
    return replace(Target("main", base, first_byte_timeout=20.0, connect_timeout=20.0), **changed)


@asynccontextmanager
async def between(
    script: Script, *, ticks: Ticks = lambda: 0.0, head_first: bool = False, **changed: Any
) -> AsyncIterator[tuple[Scripted, Ask]]:
    """A scripted upstream and the door to it; `ask` sends one request through."""
    async with Scripted(script, head_first=head_first) as server:
        to = target(server.base, **changed)
        async with opened(to, ticks=ticks) as upstream:

            async def ask(
                method: str = "POST",
                body: Body = BODY,
                headers: Sequence[tuple[bytes, bytes]] = (KEY,),
                repeatable: bool = False,
            ) -> Reply:
                url = server.base + PATH
                given = list(headers)
                return await upstream.send(to, method, url, given, body, repeatable=repeatable)

            yield server, ask


async def everything(reply: Reply) -> bytes:
    return b"".join([chunk async for chunk in reply.chunks])


async def ok(wire: Wire) -> None:
    await wire.reply(b"{}")


# what leaves


@on_every_loop
async def test_a_request_leaves_as_it_was_given():
    came = [KEY, (b"x-b", b"1"), (b"x-a", b"2"), (b"x-b", b"\xc3\xa9"), (b"cookie", b"a=b")]
    async with between(ok) as (server, ask):
        await everything(await ask(headers=came))
        request = server.requests[0]

    host = (b"Host", f"localhost:{server.port}".encode())
    assert ("POST", "/v1/chat/completions") == (request.method, request.target)
    assert [host, *came, (b"Content-Length", b"27")] == request.headers
    assert BODY == request.body


@on_every_loop
async def test_header_bytes_that_are_no_text_leave_as_they_came():
    async with between(ok) as (server, ask):
        await everything(await ask(headers=[(b"x-title", b"caf\xe9")]))

    assert b"caf\xe9" == server.requests[0].header(b"x-title")


@on_every_loop
async def test_path_and_query_leave_with_their_encoding_untouched():
    async with Scripted(ok) as server, opened(target(server.base)) as upstream:
        url = f"http://localhost:{server.port}/v1/a%2Fb%7e/..;x?q=%41+{{b}}|c"
        await everything(await upstream.send(target(server.base), "GET", url, [], None))

        assert "/v1/a%2Fb%7e/..;x?q=%41+{b}|c" == server.requests[0].target


@on_every_loop
async def test_a_get_has_no_body_and_no_length():
    async with between(ok) as (server, ask):
        await everything(await ask("GET", None, []))

    assert [b"Host"] == [name for name, _ in server.requests[0].headers]


@on_every_loop
async def test_a_post_without_a_body_says_so():
    async with between(ok) as (server, ask):
        await everything(await ask("POST", None, []))

    assert b"0" == server.requests[0].header(b"content-length")


@on_every_loop
async def test_a_body_of_many_megabytes_leaves_whole():
    body = bytes(range(256)) * 20_000
    async with between(ok) as (server, ask):
        await everything(await ask(body=body))

    assert body == server.requests[0].body


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


@on_every_loop
async def test_a_streamed_body_leaves_in_chunks_or_with_the_length_that_is_known():
    length = (b"content-length", b"6")
    async with between(ok) as (server, ask):
        await everything(await ask(body=pieces(b"abc", b"def")))
        await everything(await ask(body=pieces(b"abc", b"def"), headers=[length]))
    chunked, counted = server.requests

    assert (b"abcdef", b"chunked") == (chunked.body, chunked.header(b"transfer-encoding"))
    assert (b"abcdef", None) == (counted.body, counted.header(b"transfer-encoding"))


@on_every_loop
async def test_a_streamed_body_leaves_piece_by_piece_as_it_comes():
    seen = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await seen.wait()
        yield b"second"

    async def script(wire: Wire) -> None:
        assert b"5\r\nfirst\r\n" == await wire.exactly(10)
        seen.set()
        assert b"6\r\nsecond\r\n0\r\n\r\n" == await wire.exactly(16)
        await ok(wire)

    async with between(script, head_first=True) as (_, ask):
        assert b"{}" == await everything(await ask(body=body()))


@on_every_loop
async def test_a_header_that_no_request_may_carry_is_the_clients_own_mistake():
    async with between(ok) as (server, ask):
        with pytest.raises(BadHeader, match="control character"):
            await ask(headers=[(b"x-a", b"secret\x01")])

    assert [] == server.requests


# what comes back


@on_every_loop
async def test_status_and_headers_come_back_raw():
    async def script(wire: Wire) -> None:
        await wire.reply(b"", ("X-Odd", "1"), ("x-odd", "2"), ("Set-Cookie", "a=1"), status=429)

    async with between(script) as (_, ask):
        reply = await ask()
        await everything(reply)

    headers = [
        (b"X-Odd", b"1"),
        (b"x-odd", b"2"),
        (b"Set-Cookie", b"a=1"),
        (b"content-length", b"0"),
    ]
    assert (429, headers, "complete") == (reply.status, reply.headers, reply.ended)


@on_every_loop
async def test_each_piece_is_handed_on_before_the_next_one_comes():
    more = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.head(200)
        await wire.chunk(b"data: 1\n\n")
        await more.wait()
        await wire.chunk(b"data: 2\n\n")
        await wire.end()

    async with between(script) as (_, ask):
        reply = await ask()
        assert b"data: 1\n\n" == await anext(reply.chunks)
        assert reply.ended is None
        more.set()
        assert b"data: 2\n\n" == await everything(reply)
        assert "complete" == reply.ended


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"data: 1\n\n" * 9)),
        ("br", brotli.compress(b"data: 1\n\n" * 9)),
        ("zstd", zstandard.compress(b"data: 1\n\n" * 9)),
        ("dcb", b"\xff\x44\x43\x42"),
    ],
)
@on_every_loop
async def test_a_compressed_body_stays_compressed(coding, body):
    async def script(wire: Wire) -> None:
        await wire.head(200, ("content-encoding", coding))
        await wire.chunk(*(body[at : at + 5] for at in range(0, len(body), 5)))
        await wire.end()

    async with between(script) as (_, ask):
        assert body == await everything(await ask())


@on_every_loop
async def test_bytes_do_not_depend_on_how_they_were_cut():
    text = 'data: {"é": "🙂"}\r\n\r\n'.encode() * 3
    raw = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    raw += b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)

    async def script(wire: Wire) -> None:
        for at in range(0, len(raw), wire.request.body[0]):
            await wire.send(raw[at : at + wire.request.body[0]])
            await asyncio.sleep(0)

    async with between(script) as (_, ask):
        for size in (1, 2, 3, 7, 64, 255):
            assert text == await everything(await ask(body=bytes([size])))


@on_every_loop
async def test_interim_replies_are_not_the_reply():
    async def script(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await wire.send(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
        await ok(wire)

    async with between(script) as (_, ask):
        reply = await ask()

        assert (200, b"{}") == (reply.status, await everything(reply))


@on_every_loop
async def test_a_second_reply_that_nobody_asked_for_is_heard_by_nobody():
    async def script(wire: Wire) -> None:
        one = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
        await wire.send(one + b"HTTP/1.1 500 No\r\nx-a: b\r\ncontent-length: 2\r\n\r\nno")
        await wire.gone.wait()

    async with between(script) as (server, ask):
        for _ in range(2):
            reply = await ask()
            assert (200, b"{}", "complete") == (reply.status, await everything(reply), reply.ended)
            assert [(b"content-length", b"2")] == reply.headers

    assert 2 == server.connections


@on_every_loop
async def test_a_request_whose_reply_had_begun_is_not_sent_again():
    async def script(wire: Wire) -> None:
        if len(wire.upstream.requests) == 1:
            return await ok(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\nx-a")
        wire.close()
        await wire.gone.wait()

    async with between(script) as (server, ask):
        await everything(await ask())
        with pytest.raises(UpstreamUnreachable, match="^localhost broke off while it answered$"):
            await ask(repeatable=True)

    assert 2 == len(server.requests)


@on_every_loop
async def test_redirects_and_cookies_are_the_clients_business():
    async def script(wire: Wire) -> None:
        await wire.reply(b"", ("location", "/v1/other"), ("set-cookie", "a=b"), status=307)

    async with between(script) as (server, ask):
        statuses = [(await ask()).status, (await ask()).status]

    assert [307, 307] == statuses
    assert [None, None] == [request.header(b"cookie") for request in server.requests]


@on_every_loop
async def test_a_body_that_ends_with_its_connection_is_complete():
    async def script(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        wire.half_close()

    async with between(script) as (_, ask):
        reply = await ask()

        assert (b"all of it", "complete") == (await everything(reply), reply.ended)


@on_every_loop
async def test_long_and_many_headers_come_through():
    given = [("x-long", "v" * 30_000), *((f"x-{n}", "v") for n in range(300))]

    async def script(wire: Wire) -> None:
        await wire.reply(b"{}", *given)

    async with between(script) as (_, ask):
        reply = await ask()
        await everything(reply)

    assert [(name.encode(), value.encode()) for name, value in given] == reply.headers[:-1]


# how it breaks


async def cut_chunked(wire: Wire) -> None:
    await wire.head(200)
    await wire.chunk(b"data: 1\n\n")


async def cut_counted(wire: Wire) -> None:
    await wire.head(200, ("content-length", "100"), chunked=False)
    await wire.send(b"data: 1\n\n")


@pytest.mark.parametrize("how", [Wire.close, Wire.reset])
@pytest.mark.parametrize("start", [cut_chunked, cut_counted])
@on_every_loop
async def test_an_upstream_that_breaks_off_is_told_apart_from_one_that_ends(start, how):
    async def script(wire: Wire) -> None:
        await start(wire)
        await read.wait()
        how(wire)

    read = asyncio.Event()
    async with between(script) as (server, ask):
        reply = await ask(repeatable=True)
        assert b"data: 1\n\n" == await anext(reply.chunks)
        read.set()

        assert (b"", "upstream_gone") == (await everything(reply), reply.ended)
        assert 1 == len(server.requests)


@on_every_loop
async def test_what_came_before_the_break_is_handed_on_to_a_reader_who_is_late():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        await wire.chunk(b"data: 1\n\n", b"data: 2\n\n")
        wire.close()
        closed.set()

    closed = asyncio.Event()
    async with between(script) as (_, ask):
        reply = await ask()
        await closed.wait()
        for _ in range(20):
            await asyncio.sleep(0.001)

        assert b"data: 1\n\ndata: 2\n\n" == await everything(reply)
        assert "upstream_gone" == reply.ended


@on_every_loop
async def test_nobody_listening_is_unreachable_and_told_without_path_or_key():
    async with Scripted(ok) as server:
        to = target(server.base)
    async with opened(to) as upstream:
        with pytest.raises(UpstreamUnreachable) as refused:
            await upstream.send(to, "POST", to.base + PATH, [KEY], BODY)

    assert "no connection to localhost: connection refused" == str(refused.value)


@on_every_loop
async def test_an_unknown_host_is_unreachable():
    to = target("http://nowhere.invalid/v1")
    async with opened(to) as upstream:
        with pytest.raises(
            UpstreamUnreachable, match=r"^no address is known for nowhere\.invalid$"
        ):
            await upstream.send(to, "POST", to.base + PATH, [KEY], BODY)


@on_every_loop
async def test_headers_that_come_too_late_are_a_timeout_and_the_upstream_is_let_go():
    async def script(wire: Wire) -> None:
        await wire.gone.wait()

    async with between(script, first_byte_timeout=0.05) as (server, ask):
        late = r"^no first byte from localhost after 0\.05 s \(first_byte_timeout\)$"
        with pytest.raises(UpstreamTimeout, match=late):
            await ask(repeatable=True)
        await server.until(lambda s: s.disconnects == 1)

        assert 1 == len(server.requests)


@on_every_loop
async def test_one_late_reply_does_not_disturb_those_that_are_in_time():
    async def script(wire: Wire) -> None:
        if wire.request.body == b"late":
            await wire.gone.wait()
        else:
            await wire.head(200)
            await late.wait()
            await wire.chunk(b"in time")
            await wire.end()

    late = asyncio.Event()
    async with between(script, first_byte_timeout=0.05) as (_, ask):
        first = await ask(body=b"in time")
        with pytest.raises(UpstreamTimeout):
            await ask(body=b"late")
        second = await ask(body=b"in time")
        late.set()

        assert (b"in time", b"in time") == (await everything(first), await everything(second))


@on_every_loop
async def test_time_runs_for_the_upstream_and_not_while_the_client_sends():
    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.sleep(0.2)
        yield b"second"

    async def script(wire: Wire) -> None:
        if wire.request.body.startswith(b"first"):
            await ok(wire)
        await wire.gone.wait()

    async with between(script, first_byte_timeout=0.1) as (server, ask):
        assert b"{}" == await everything(await ask(body=body()))
    async with between(script, first_byte_timeout=0.1) as (server, ask):
        with pytest.raises(UpstreamTimeout):
            await ask(body=pieces(b"only"))
        await server.until(lambda s: s.disconnects == 1)


@on_every_loop
async def test_an_upstream_that_takes_no_more_of_a_body_is_let_go_with_what_is_unsent():
    async def script(wire: Wire) -> None:
        wire.stop_reading()
        await stuck.wait()
        wire.read_on()
        await wire.gone.wait()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)

    for body in (bytes(64 << 20), endless()):
        stuck = asyncio.Event()
        async with between(script, head_first=True, first_byte_timeout=0.1) as (server, ask):
            with pytest.raises(UpstreamTimeout):
                await ask(body=body)
            stuck.set()
            await server.wires[0].gone.wait()

            assert server.wires[0].received < 64 << 20


@on_every_loop
async def test_what_is_not_http_is_unreachable():
    async def script(wire: Wire) -> None:
        await wire.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await wire.gone.wait()

    async with between(script) as (_, ask):
        with pytest.raises(UpstreamUnreachable, match="^localhost answered what is not HTTP$"):
            await ask()


@on_every_loop
async def test_a_body_that_fails_on_its_way_fails_with_its_own_error_and_is_not_taken_for_whole():
    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        raise ClientGone("the client left")

    async def script(wire: Wire) -> None:
        raise AssertionError("half a request was taken for a whole one")

    async with between(script) as (server, ask):
        with pytest.raises(ClientGone):
            await ask(body=body())
        await server.wires[0].gone.wait()


@on_every_loop
async def test_a_streamed_body_is_closed_whether_it_was_wanted_to_its_end_or_not():
    closed = []

    class Body:
        def __init__(self, name: str) -> None:
            self.name, self.left = name, 1 if name == "whole" else 1 << 30

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return bytes(1 << 16)

        async def aclose(self) -> None:
            closed.append(self.name)

    async def script(wire: Wire) -> None:
        if wire.request.header(b"x-early"):
            await ok(wire)
            wire.stop_reading()
            await wire.gone.wait()
        else:
            await wire.body(wire.request)
            await ok(wire)

    async with between(script, head_first=True) as (_, ask):
        await everything(await ask(body=Body("whole")))
        early = await ask(body=Body("early"), headers=[(b"x-early", b"1")])
        assert b"{}" == await everything(early)
        while len(closed) < 2:  # noqa: ASYNC110  (the library cancels its writer in its own time)
            await asyncio.sleep(0)

    assert ["whole", "early"] == closed


# letting go


@on_every_loop
async def test_closing_a_reply_in_silence_cancels_the_upstream_at_once_and_pools_nothing():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        await wire.chunk(b"data: 1\n\n")
        await wire.gone.wait()

    async with between(script) as (server, ask):
        reply = await ask()
        assert b"data: 1\n\n" == await anext(reply.chunks)
        await reply.aclose()
        await server.until(lambda s: s.disconnects == 1)
        await reply.aclose()
        again = await ask()
        await again.aclose()

        assert 2 == server.connections
        assert reply.ended is None


@on_every_loop
async def test_closing_a_reply_that_floods_cancels_the_upstream_at_once():
    async def script(wire: Wire) -> None:
        await wire.head(200)
        while True:
            await wire.chunk(bytes(1 << 16))

    async with between(script) as (server, ask):
        reply = await ask()
        await server.wires[0].paused.wait()
        await reply.aclose()
        await server.until(lambda s: s.disconnects == 1)

        assert 1 == server.connections


@on_every_loop
async def test_a_reply_read_to_its_end_leaves_its_connection_to_the_next_request():
    async with between(ok) as (server, ask):
        for _ in range(3):
            reply = await ask()
            await everything(reply)
            await reply.aclose()

    assert (1, 3) == (server.connections, len(server.requests))


@on_every_loop
async def test_a_sender_that_is_cancelled_cancels_the_upstream():
    async def script(wire: Wire) -> None:
        await wire.gone.wait()

    async with between(script) as (server, ask), asyncio.TaskGroup() as group:
        sending = group.create_task(ask())
        await server.until(lambda s: len(s.requests) == 1)
        sending.cancel()
        await server.until(lambda s: s.disconnects == 1)

    assert sending.cancelled()


@on_every_loop
async def test_a_sender_that_is_cancelled_takes_back_what_a_stalled_upstream_has_not_read():
    async def script(wire: Wire) -> None:
        wire.stop_reading()
        await cancelled.wait()
        wire.read_on()
        await wire.gone.wait()

    cancelled = asyncio.Event()
    async with between(script, head_first=True) as (server, ask), asyncio.TaskGroup() as group:
        sending = group.create_task(ask(body=bytes(64 << 20)))
        await server.until(lambda s: len(s.requests) == 1)
        sending.cancel()
        await asyncio.wait([sending])
        cancelled.set()
        await server.wires[0].gone.wait()

        assert server.wires[0].received < 64 << 20


# what is sent again


def closing_kept_connections(closings: int) -> Script:
    """Answers once; then lets go of the connection instead of answering, so often; then answers."""
    left = [closings]

    async def script(wire: Wire) -> None:
        if len(wire.upstream.requests) > 1 and left[0]:
            left[0] -= 1
            wire.close()
            await wire.gone.wait()
        else:
            await ok(wire)

    return script


@on_every_loop
async def test_a_request_that_met_a_closing_connection_is_sent_once_more():
    async with between(closing_kept_connections(1)) as (server, ask):
        await everything(await ask())
        assert b"{}" == await everything(await ask(repeatable=True))

    assert [BODY] * 3 == [request.body for request in server.requests]
    assert 2 == server.connections


@pytest.mark.parametrize("repeatable", [True, False])
@on_every_loop
async def test_a_connection_of_its_own_is_the_last_try_and_only_for_what_is_harmless(repeatable):
    async with between(closing_kept_connections(9)) as (server, ask):
        await everything(await ask())
        lost = "^localhost closed the connection before it answered$"
        with pytest.raises(UpstreamUnreachable, match=lost):
            await ask(repeatable=repeatable)

    assert (3 if repeatable else 2) == len(server.requests)


@pytest.mark.parametrize(("kept", "answered"), [(2, True), (3, False)])
@on_every_loop
async def test_of_several_kept_connections_that_close_at_once_two_are_met(kept, answered):
    async def script(wire: Wire) -> None:
        if wire.request.body == BODY and wire in first:
            wire.close()
            await wire.gone.wait()
        else:
            first.append(wire)
            if len(first) == kept:
                all_here.set()
            await all_here.wait()
            await ok(wire)

    first, all_here = list[Wire](), asyncio.Event()
    async with between(script) as (server, ask):
        async with asyncio.TaskGroup() as group:
            replies = [group.create_task(ask(body=b"open a line")) for _ in range(kept)]
        for reply in replies:
            await everything(reply.result())
        if answered:
            assert b"{}" == await everything(await ask(repeatable=True))
        else:
            with pytest.raises(UpstreamUnreachable):
                await ask(repeatable=True)

    assert 3 == [request.body for request in server.requests].count(BODY)


@on_every_loop
async def test_a_request_that_was_being_worked_on_is_not_sent_again():
    ticks = iter([0.0, 10.0, 12.0])
    script = closing_kept_connections(1)
    async with between(script, ticks=lambda: next(ticks)) as (server, ask):
        await everything(await ask())
        with pytest.raises(UpstreamUnreachable):
            await ask(repeatable=True)

    assert 2 == len(server.requests)


@on_every_loop
async def test_a_request_on_a_new_connection_is_not_sent_again():
    async def script(wire: Wire) -> None:
        wire.close()
        await wire.gone.wait()

    async with between(script) as (server, ask):
        with pytest.raises(UpstreamUnreachable):
            await ask(repeatable=True)

    assert 1 == len(server.requests)


@on_every_loop
async def test_a_streamed_body_is_not_sent_again():
    async with between(closing_kept_connections(1)) as (server, ask):
        await everything(await ask())
        with pytest.raises(UpstreamUnreachable):
            await ask(body=pieces(b"a", b"b"), repeatable=True)

    assert 2 == len(server.requests)


@on_every_loop
async def test_no_free_connection_in_time_is_unreachable():
    async def script(wire: Wire) -> None:
        await wire.gone.wait()

    async with between(script, max_connections=1, connect_timeout=0.05) as (server, ask):
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(ask())
            await server.until(lambda s: len(s.requests) == 1)
            full = r"^no connection to localhost within 0\.05 s \(connect_timeout\)$"
            with pytest.raises(UpstreamUnreachable, match=full):
                await ask()
            holding.cancel()


# TLS and proxies


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself, and one for a client."""
    if which("openssl") is None:
        pytest.skip("openssl is absent: no certificates to test TLS with")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("localhost", "client"):
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]
        command += [
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-addext",
            f"subjectAltName=DNS:{name}",
        ]
        command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def tls_server(certificates: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "localhost.pem", certificates / "localhost.key")
    return context


@on_every_loop
async def test_a_bundle_of_ones_own_is_trusted_and_a_client_certificate_shown(certificates):
    context = tls_server(certificates)
    context.load_verify_locations(certificates / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async def script(wire: Wire) -> None:
        shown = wire.transport.get_extra_info("peercert")
        await wire.reply(str(shown["subject"]).encode())

    async with Scripted(script, tls=context) as server:
        to = target(
            server.base,
            ca_file=str(certificates / "localhost.pem"),
            client_cert=str(certificates / "client.pem"),
            client_key=str(certificates / "client.key"),
        )
        async with opened(to) as upstream:
            reply = await upstream.send(to, "POST", server.base + PATH, [KEY], BODY)

            assert b"'client'" in await everything(reply)


@on_every_loop
async def test_a_certificate_that_nobody_vouches_for_is_refused(certificates):
    async with Scripted(ok, tls=tls_server(certificates)) as server:
        to = target(server.base)
        async with opened(to) as upstream:
            with pytest.raises(
                UpstreamUnreachable, match="certificate of localhost is not trusted"
            ):
                await upstream.send(to, "POST", server.base + PATH, [KEY], BODY)

    assert [] == server.requests


@on_every_loop
async def test_a_connection_that_did_not_come_about_is_tried_once_more(certificates):
    refusals = [True, False]

    def refuse_once(*_: object) -> int | None:
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR if refusals.pop(0) else None

    context = tls_server(certificates)
    context.sni_callback = refuse_once
    async with Scripted(ok, tls=context) as server:
        to = target(server.base, ca_file=str(certificates / "localhost.pem"))
        async with opened(to) as upstream:
            reply = await upstream.send(to, "POST", server.base + PATH, [KEY], BODY)

            assert b"{}" == await everything(reply)

    assert ([], 1) == (refusals, len(server.requests))


@pytest.mark.parametrize("which_file", ["ca_file", "client_cert"])
@on_every_loop
async def test_a_bundle_that_cannot_be_read_is_told_at_start(which_file):
    to = target("https://localhost/v1", **{which_file: "no/such/file.pem"})
    with pytest.raises(SettingsError, match=r"'main': no certificates in no/such/file\.pem"):
        async with opened(to):
            pass


@pytest.mark.parametrize("base", ["ftp://h/v1", "h/v1", "http:///v1", "http://user:pass@h/v1"])
@on_every_loop
async def test_a_base_that_cannot_be_used_is_told_at_start(base: str) -> None:
    with pytest.raises(SettingsError, match="^upstream 'main': want http") as told:
        async with opened(target(base)):
            pass

    assert "pass" not in str(told.value)


@on_every_loop
async def test_a_proxy_of_the_environment_is_used_with_its_credential():
    async with Scripted(ok) as proxy:
        to = target("http://api.example/v1")
        proxies = {"http": f"http://us%65r:p%40ss@localhost:{proxy.port}"}
        async with opened(to, proxies=proxies) as upstream:
            await everything(await upstream.send(to, "POST", to.base + PATH, [KEY], BODY))
    request = proxy.requests[0]

    assert "http://api.example/v1/chat/completions" == request.target
    assert b"api.example" == request.header(b"host")
    assert b"Basic dXNlcjpwQHNz" == request.header(b"proxy-authorization")


@on_every_loop
async def test_a_tunnel_gets_the_proxys_credential_and_the_upstream_does_not(certificates):
    async def script(wire: Wire) -> None:
        await wire.reply(b"", status=403)

    async with Scripted(script) as proxy:
        to = target("https://api.example/v1")
        proxies = {"all": f"user:pass@localhost:{proxy.port}"}
        async with opened(to, proxies=proxies) as upstream:
            with pytest.raises(
                UpstreamUnreachable, match="proxy on the way to api.example said 403"
            ):
                await upstream.send(to, "POST", to.base + PATH, [KEY], BODY)
    request = proxy.requests[0]

    assert ("CONNECT", "api.example:443") == (request.method, request.target)
    assert b"Basic dXNlcjpwYXNz" == request.header(b"proxy-authorization")
    assert request.header(b"authorization") is None


@pytest.mark.parametrize(
    ("changed", "proxies"),
    [
        ({}, {"no": "localhost"}),
        ({}, {"no": "*"}),
        ({"trust_env": False}, {}),
        ({}, {"https": "http://nowhere.invalid:1"}),
    ],
)
@on_every_loop
async def test_a_proxy_is_passed_by_where_the_environment_or_the_target_says_so(changed, proxies):
    async with Scripted(ok) as server:
        to = target(server.base, **changed)
        given = proxies if "https" in proxies else proxies | {"http": "http://nowhere.invalid:1"}
        async with opened(to, proxies=given) as upstream:
            reply = await upstream.send(to, "POST", server.base + PATH, [KEY], BODY)

            assert b"{}" == await everything(reply)


@on_every_loop
async def test_a_proxy_of_a_kind_that_cannot_be_used_is_told_at_start():
    with pytest.raises(SettingsError, match="a socks5 proxy is named by the environment"):
        async with opened(target("http://h/v1"), proxies={"http": "socks5://localhost:1080"}):
            pass
