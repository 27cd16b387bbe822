"""A provider that plays a script: a real HTTP server with a modelled prompt cache.

It listens on a loopback port and speaks chat completions, streamed and not, with reasoning, tool
calls and a usage that is counted from the prompt as it arrived: what left the proxy is measured.
The k-th answer of a conversation is the k-th of the script, k being the number of assistant
messages in the request, so a retry gets the same answer. Each credential has its own cache.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson
import uvicorn

from proxy.core.cachemodel import BRANCHES, Segments, Split, held, size, split
from proxy.core.contract import CacheRule
from proxy.relay import Receive, Send
from proxy.replay.scripted_wire import Answer, body_of, events_of, rendered, spoken, usage_of
from proxy.server import Server

_SSE = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_JSON = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class Served:
    """One request: its prompt and answer in segments, and what the cache gave of the prompt."""

    prompt: Segments
    generated: Segments
    split: Split

    @property
    def output(self) -> int:
        """Tokens."""
        return size(self.generated)


class ScriptedProvider:
    """`async with ScriptedProvider(script, cache) as url`; `served` says by credential what came.

    `piece` is the number of characters in one event of a stream. Beyond the end of a script its
    last answer is given again. With `record` the request bodies are kept too, in `bodies`.
    """

    def __init__(
        self, script: Sequence[Answer], cache: CacheRule, piece: int = 64, record: bool = False
    ) -> None:
        self.served: defaultdict[str, list[Served]] = defaultdict(list)
        self.bodies: defaultdict[str, list[bytes]] = defaultdict(list)
        self._script, self._cache, self._piece, self._record = script, cache, piece, record
        self._open = AsyncExitStack()

    async def __aenter__(self) -> str:
        return await self._open.enter_async_context(_hosted(self))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        raw = await _whole(receive)
        if (scope["method"], scope["path"]) != ("POST", "/v1/chat/completions"):
            return await _refuse(send, 404, "unknown path")
        try:
            body = orjson.loads(raw)
            model, prompt = body["model"], rendered(body)
        except (ValueError, TypeError, AttributeError, KeyError):
            return await _refuse(send, 400, "this is no chat completion request")
        caller = _credential(scope["headers"])
        if self._record:
            self.bodies[caller].append(raw)
        answer = self._answer(body["messages"])
        usage = usage_of(self._serve(caller, prompt, answer).split, answer)
        if not body.get("stream"):
            return await _reply(send, 200, _JSON, [body_of(model, answer, usage)])
        asked = (body.get("stream_options") or {}).get("include_usage")
        events = events_of(model, answer, usage if asked else None, self._piece)
        await _reply(send, 200, _SSE, events)

    def _answer(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        said = sum(1 for message in messages if message["role"] == "assistant")
        return self._script[min(said, len(self._script) - 1)]

    def _serve(self, caller: str, prompt: Segments, answer: Answer) -> Served:
        before = self.served[caller]
        rows = [held(self._cache, it.prompt, it.generated) for it in before[-BRANCHES:]]
        it = Served(prompt, spoken(answer), split(self._cache, rows, prompt))
        before.append(it)
        return it


# HTTP


async def _whole(receive: Receive) -> bytes:
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


def _credential(headers: Sequence[tuple[bytes, bytes]]) -> str:
    return dict(headers).get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")


async def _refuse(send: Send, status: int, message: str) -> None:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    await _reply(send, status, _JSON, [orjson.dumps({"error": error})])


async def _reply(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], pieces: Iterable[bytes]
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def _hosted(app: Any) -> AsyncIterator[str]:
    """The base URL of the app, served on a loopback port until the block ends."""
    listener = _listening()
    config = uvicorn.Config(
        app, http="httptools", loop="none", lifespan="off", ws="none", log_config=None,
        access_log=False, server_header=False, timeout_graceful_shutdown=1, timeout_keep_alive=75,
    )  # fmt: skip
    server = Server(config)
    with listener:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            finally:
                server.end()


def _listening() -> socket.socket:
    # TCP is named: where a socket does not tell, asyncio leaves TCP_NODELAY off.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener
