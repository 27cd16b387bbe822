"""The promise, with equality: through the proxy, against a real engine that really caches."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.client import http_client
from tests.journey.proxy_server import running, settings_for
from tests.shared import need_shared

pytest.importorskip("xllamacpp", reason="the engine is not installed (extra: engine)")


@dataclass(frozen=True, slots=True)
class Engine:
    url: str
    play: ModuleType


@dataclass(frozen=True, slots=True)
class Counted:
    """One request: prompt, generated and cached tokens as the engine reports them."""

    prompt: int
    generated: int
    cached: int
    dropped_steps: int
    prefix: str


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    folder = need_shared("engine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        str(folder / "serve.py"),
        str(folder / "agent-qwen3.gguf"),
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_up(process, port)
        yield Engine(f"http://127.0.0.1:{port}", _script(folder / "conversation.py"))
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(150):
        assert process.poll() is None, "the engine ended at start"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the engine did not come up")


def _script(path: Any) -> ModuleType:
    spec = importlib.util.spec_from_file_location("conversation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(60) as opened:
        yield opened


async def play(
    client: httpx.AsyncClient, base: str, engine: Engine, policy: str, stream: bool
) -> list[Counted]:
    """The scripted agent from end to end, feeding back what the engine generated."""
    script = engine.play
    history = script.messages(uuid4().hex)
    counted = []
    for step in range(len(script.STEPS) + 1):
        body = {
            "model": "agent", "messages": history, "tools": script.TOOLS, "temperature": 0,
            "max_tokens": 400, "stream": stream,
        }  # fmt: skip
        if stream:
            body["stream_options"] = {"include_usage": True}
        headers = {"x-lethe-policy": policy}
        reply = await client.post(f"{base}/v1/chat/completions", json=body, headers=headers)
        assert 200 == reply.status_code, reply.text
        message, usage = _streamed(reply.text) if stream else _whole(reply.json())
        counted.append(
            Counted(
                usage["prompt_tokens"],
                usage["completion_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
                int(reply.headers["x-lethe-steps-dropped"]),
                reply.headers["x-lethe-prefix"],
            )  # fmt: skip
        )
        if step < len(script.STEPS):
            call = message["tool_calls"][0]
            assert script.expected(step)[1] == json.dumps(json.loads(call["function"]["arguments"]))
            result = {"role": "tool", "tool_call_id": call["id"], "content": script.STEPS[step][2]}
            history = [*history, message, result]
    return counted


def _whole(reply: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return reply["choices"][0]["message"], reply["usage"]


def _streamed(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": ""}
    calls: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                _add_call(calls, call)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message, usage


def _add_call(calls: dict[int, dict[str, Any]], delta: dict[str, Any]) -> None:
    empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    call = calls.setdefault(delta["index"], empty)
    call["id"] = delta.get("id") or call["id"]
    function = delta.get("function", {})
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_keep_re_uses_all_that_was_sent_and_generated(
    engine: Engine, client: httpx.AsyncClient, stream: bool
) -> None:
    async with running(settings_for(engine.url)) as proxy:
        rows = await play(client, proxy.url, engine, "keep", stream)

    assert [a.prompt + a.generated - 1 for a in rows[:-1]] == [b.cached for b in rows[1:]]
    assert {"extended"} == {row.prefix for row in rows[1:]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_drop_re_uses_all_that_was_sent(
    engine: Engine, client: httpx.AsyncClient, stream: bool
) -> None:
    async with running(settings_for(engine.url)) as proxy:
        rows = await play(client, proxy.url, engine, "drop", stream)

    assert [a.prompt for a in rows[:-1]] == [b.cached for b in rows[1:]]
    assert list(range(len(rows))) == [row.dropped_steps for row in rows]
    assert {"extended"} == {row.prefix for row in rows[1:]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_after_artifact_re_uses_by_its_verdict_on_each_step(
    engine: Engine, client: httpx.AsyncClient, stream: bool
) -> None:
    async with running(settings_for(engine.url)) as proxy:
        rows = await play(client, proxy.url, engine, "after_artifact", stream)

    for before, after in zip(rows, rows[1:], strict=False):
        dropped = after.dropped_steps > before.dropped_steps
        assert before.prompt + (0 if dropped else before.generated - 1) == after.cached
    assert 0 < rows[-1].dropped_steps < len(rows) - 1


async def test_keep_latest_shows_its_rebuilds(engine: Engine, client: httpx.AsyncClient) -> None:
    async with running(settings_for(engine.url)) as proxy:
        rows = await play(client, proxy.url, engine, "keep_latest:1", False)
        kept = await play(client, proxy.url, engine, "keep", False)

    assert ["broken; cause=self"] * (len(rows) - 2) == [row.prefix for row in rows[2:]]
    assert _new(rows) > 2 * _new(kept)
    assert sum(row.prompt for row in rows) < sum(row.prompt for row in kept)


def _new(rows: list[Counted]) -> int:
    return sum(row.prompt - row.cached for row in rows)
