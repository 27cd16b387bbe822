"""The upstream: answers every POST with a canned completion, in one piece or as a paced stream.

`x-bench-events: N` asks for a stream of N events; all streams get their next one on every tick of a
millisecond, each in a write of its own, as tokens come from an engine. `GET /counts` tells how many
requests and body bytes came. Run as a process: prints its port.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import cast

import uvloop

TICK = 0.001
MARK = b"~"
"""Stands once in every event that counts."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENTS = re.compile(rb"\r\nx-bench-events: *(\d+)", re.IGNORECASE)
_USAGE: dict[str, object] = {
    "prompt_tokens": 25000,
    "completion_tokens": 240,
    "total_tokens": 25240,
    "prompt_tokens_details": {"cached_tokens": 24000},
    "completion_tokens_details": {"reasoning_tokens": 180},
}
_CALL = {"name": "bash", "arguments": json.dumps({"command": "ls -la src && sed -n 1,80p a.py"})}


def _whole() -> bytes:
    message: dict[str, object] = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I look at the file first, and then at its test. " * 15,
        "tool_calls": [{"id": "call_1", "type": "function", "function": _CALL}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = _dump({"object": "chat.completion", "choices": [choice], "usage": _USAGE})
    return _head(b"application/json", b"content-length: %d" % len(body)) + body


def _head(kind: bytes, framing: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n" % (kind, framing)


def _dump(value: dict[str, object]) -> bytes:
    common = {"id": "chatcmpl-bench", "created": 1_700_000_000, "model": "bench-1"}
    return json.dumps(common | value, separators=(",", ":")).encode()


def _event(delta: dict[str, object] | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    rest = {"choices": [], "usage": _USAGE} if delta is None else {"choices": [choice]}
    return _framed(b"data: " + _dump({"object": "chat.completion.chunk", **rest}))


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%b\n\n\r\n" % (len(event) + 2, event)


WHOLE = _whole()
STREAM = _head(b"text/event-stream", b"transfer-encoding: chunked")
THOUGHT = _event({"reasoning_content": " mark~"})
SAID = _event({"content": " word~"})
LAST = _event({}, "stop")
TOLD = _event(None)
END = _framed(b"data: [DONE]") + b"0\r\n\r\n"


class Upstream(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._buffer = bytearray(1 << 18)
        self._view = memoryview(self._buffer)
        self._head = b""
        self._left = self._events = 0
        self._first = self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport to isinstance().
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._app.streams.pop(self, None)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._last = bytes(self._view[max(0, nbytes - 200) : nbytes])
        if self._left:
            self._left -= nbytes
        else:
            self._head += self._view[:nbytes]
            head, blank, rest = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            self._begun(head, rest)
        if self._left <= 0:
            self._head = b""
            self._answer()

    def _begun(self, head: bytes, rest: bytes) -> None:
        if head.startswith(b"GET"):
            self._events = -1
            return
        length, events = _LENGTH.search(head), _EVENTS.search(head)
        size = int(length[1]) if length else 0
        self._app.requests += 1
        self._app.bytes += size
        self._first = rest[:200]
        self._events = int(events[1]) if events else 0
        self._left = size - len(rest)

    def _answer(self) -> None:
        if self._events == 0:
            self._transport.write(WHOLE)
        elif self._events < 0:
            body = b'{"requests":%d,"bytes":%d}' % (self._app.requests, self._app.bytes)
            framing = b"content-length: %d" % len(body)
            self._transport.write(_head(b"application/json", framing) + body)
        else:
            self._transport.write(STREAM)
            self._app.streams[self] = self._events

    def go_on(self, left: int) -> None:
        """Write one event, the `left`th before the end."""
        if left:
            self._transport.write(THOUGHT if left % 2 else SAID)
            return
        asked = b'"include_usage":true' in self._first + self._last
        self._transport.write(LAST + TOLD + END if asked else LAST + END)


class App:
    """What all connections share: the counts, and how many events each stream still has to get."""

    def __init__(self) -> None:
        self.requests = self.bytes = 0
        self.streams: dict[Upstream, int] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Upstream(self), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        while True:
            await asyncio.sleep(TICK)
            for stream, left in list(self.streams.items()):
                stream.go_on(left)
                if left:
                    self.streams[stream] = left - 1
                else:
                    del self.streams[stream]


if __name__ == "__main__":
    uvloop.run(App().run())
