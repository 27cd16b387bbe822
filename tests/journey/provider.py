"""A provider on a loopback socket that keeps what it was sent and answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.doors.scripted import served


@dataclass(frozen=True, slots=True)
class Came:
    """One request as the provider saw it."""

    method: str
    path: str
    query: bytes
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    """`chunks` are written one by one, with a pause before each where `pause` is set."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = (b"{}",)
    pause: float = 0.0


Script = Callable[[Came], Answer]


@dataclass(slots=True)
class Provider:
    url: str
    came: list[Came]
    left: list[str]
    """What ended early: one word for each client that went away."""
    asked: list[Came] = field(default_factory=list)
    """What the proxy asked on its own account, which no script answers."""

    @property
    def last(self) -> Came:
        return self.came[-1]


@asynccontextmanager
async def providing(script: Script, *, all_of_it: bool = False) -> AsyncIterator[Provider]:
    """`all_of_it`: the script answers also what the proxy asks on its own account."""
    provider = Provider("", [], [])
    async with served(_app(provider, script, all_of_it), "httptools") as port:
        provider.url = f"http://127.0.0.1:{port}"
        yield provider


def _app(provider: Provider, script: Script, all_of_it: bool) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        came = await _read(scope, receive)
        own = not all_of_it and came.headers.get("user-agent", "").startswith("lethe/")
        (provider.asked if own else provider.came).append(came)
        answer = Answer(404, chunks=(b"{}",)) if own else script(came)
        await _write(provider, answer, receive, send)

    return app


async def _read(scope: Any, receive: Any) -> Came:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["raw_path"].decode()
    return Came(scope["method"], path, scope["query_string"], headers, body)


async def _write(
    provider: Provider, answer: Answer, receive: Any, send: Callable[[Any], Awaitable[None]]
) -> None:
    headers = {"content-type": "application/json", **answer.headers}
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    for chunk in answer.chunks:
        if answer.pause and await _left_within(receive, answer.pause):
            provider.left.append("gone")
            return
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _left_within(receive: Any, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
    except TimeoutError:
        return False


def completion(text: str = "done", **more: Any) -> Answer:
    """A whole chat completion."""
    message = {"role": "assistant", "content": text, **more}
    body = {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
                  "prompt_tokens_details": {"cached_tokens": 60}},
    }  # fmt: skip
    return Answer(chunks=(json.dumps(body).encode(),))


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event(
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
    )


USAGE = event(
    {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
     "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
               "prompt_tokens_details": {"cached_tokens": 60}}}
)  # fmt: skip
DONE = b"data: [DONE]\n\n"


def stream(*chunks: bytes, usage: bool = True, pause: float = 0.0) -> Answer:
    """A streamed chat completion; reports usage at its end as most providers do."""
    rows = (*chunks, chunk({}, "stop"), *((USAGE,) if usage else ()), DONE)
    return Answer(headers={"content-type": "text/event-stream"}, chunks=rows, pause=pause)
