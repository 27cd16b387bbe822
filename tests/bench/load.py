"""The load: connections in closed loop, each walking a conversation of its own that grows.

Requests leave in bursts of half the connections: whoever is through first waits for as many more.
A proxy that is faster than this load would otherwise sleep between any two requests and pay for
waking up, and the fastest, whom all are measured by, would pay the most.

Run as a process: a JSON command a line on stdin, a JSON answer a line on stdout. Lanes keep their
connections and conversations from round to round, so that only the first round meets histories that
were never seen.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import partial
from time import perf_counter
from typing import Any, cast

import uvloop

from tests.bench.bodies import SIZES, Conversation, Pools, pools
from tests.bench.upstream import MARK

PATIENCE = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_BROKEN = b"\r\nx-lethe-prefix: broken"
_HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: application/json\r\n"
    "accept-encoding: gzip, deflate\r\nuser-agent: OpenAI/Python 2.20.0\r\n"
    "x-stainless-lang: python\r\nx-stainless-os: Linux\r\nx-stainless-arch: x64\r\n"
    "x-stainless-runtime: CPython\r\nx-stainless-retry-count: 0\r\n"
    "authorization: Bearer bench\r\ncontent-type: application/json\r\n"
)


class Lane:
    """Some connections to one port with requests of one size. `events` 0: replies in one piece."""

    def __init__(
        self,
        port: int,
        size: str,
        connections: int,
        events: int,
        asks: bool,
        first: int,
        made: Pools,
    ) -> None:
        """`first` is the number of its first connection; no number is used twice."""
        self.port, self.events = port, events
        self.head = _HEAD.format(port=port) + (f"x-bench-events: {events}\r\n" if events else "")
        sized = next(s for s in SIZES if s.name == size)
        tail = b',"stream":true' if events else b""
        tail += b',"stream_options":{"include_usage":true}' if asks else b""
        self._talks = [
            Conversation(sized, made, first + n, n / connections, tail) for n in range(connections)
        ]
        self._clients: list[Client] = []

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for talk in self._talks:
            client = Client(self, talk)
            await loop.create_connection(partial(_same, client), "127.0.0.1", self.port)
            self._clients.append(client)

    async def run(self, seconds: float, rounds: int) -> dict[str, Any]:
        """For so many seconds, and at least so many requests a connection."""
        self.waits: list[float] = []
        self.firsts: list[float] = []
        self.broken = self.sent = self.marks = self.reads = 0
        began = perf_counter()
        self._until, self._rounds = began + seconds, rounds
        self._idle = 0
        self._waiting: list[Client] = []
        self._burst = max(1, len(self._clients) // 2)
        self._over = asyncio.get_running_loop().create_future()
        for client in self._clients:
            client.begin()
        await asyncio.wait_for(self._over, seconds + PATIENCE)
        return {
            "seconds": perf_counter() - began, "waits": self.waits, "firsts": self.firsts,
            "broken": self.broken, "sent": self.sent, "marks": self.marks, "reads": self.reads,
        }  # fmt: skip

    def next(self, client: Client) -> None:
        """One connection is through with its request: what now?"""
        self._waiting.append(client)
        if len(self._waiting) + self._idle < self._burst:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.done < self._rounds or perf_counter() < self._until:
                each.send()
            else:
                self._idle += 1
        if self._idle == len(self._clients):
            self._over.set_result(None)

    def failed(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_exception(ConnectionError(reason))


def _same(client: Client) -> Client:
    return client


class Client(asyncio.Protocol):
    """One connection: a request, its reply to the last byte, the next request."""

    def __init__(self, lane: Lane, talk: Conversation) -> None:
        self._lane, self._talk = lane, talk
        self._left = -1
        self._head = self._end = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport to isinstance().
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lane.failed(f"a connection was closed: {exc or 'by the other side'}")

    def begin(self) -> None:
        self.done = 0
        self.send()

    def send(self) -> None:
        lane, talk = self._lane, self._talk
        self._first = talk.fresh
        text, tail = talk.next()
        size = len(text) + len(tail)
        lane.sent += size
        head = f"{lane.head}content-length: {size}\r\n\r\n".encode()
        request = b"".join((head, text, tail))
        self._at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            self._head += data
            head, blank, data = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            self._begun(head)
        if self._lane.events:
            self._streamed(data)
        else:
            self._left -= len(data)
            if self._left == 0:
                self._ended()

    def _begun(self, head: bytes) -> None:
        self._head = b""
        if not head.startswith(b"HTTP/1.1 200"):
            self._lane.failed(f"answered {head[:40]!r}")
        self._lane.broken += _BROKEN in head
        length = _LENGTH.search(head)
        self._left = int(length[1]) if length else 0

    def _streamed(self, data: bytes) -> None:
        lane = self._lane
        lane.reads += 1
        lane.marks += data.count(MARK)
        self._end = (self._end + data)[-5:]
        if self._end == b"0\r\n\r\n":
            self._end = b""
            self._ended()

    def _ended(self) -> None:
        lane = self._lane
        (lane.firsts if self._first else lane.waits).append(perf_counter() - self._at)
        self._left = -1
        self.done += 1
        lane.next(self)


def main() -> None:
    made = pools(1)
    lanes: dict[str, Lane] = {}
    connections = 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            command = json.loads(line)
            if "forget" in command:
                lanes.clear()
                continue
            name, opened = command["lane"], command["open"]
            if name not in lanes:
                lanes[name] = Lane(**opened, first=connections, made=made)
                connections += opened["connections"]
                runner.run(lanes[name].open())
            print(json.dumps(runner.run(lanes[name].run(**command["run"]))), flush=True)


if __name__ == "__main__":
    main()
