"""Conversations to look at: posted through the real proxy, or put into its ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from proxy.core import fingerprint
from proxy.core.sent import Element, Part, Sent
from proxy.ledger.contract import Record
from tests.client import http_client
from tests.journey.provider import Answer, Came, completion
from tests.journey.proxy_server import Running

Messages = list[dict[str, Any]]
SAID = {"role": "assistant", "content": "done"}
SYSTEM = "You are an agent that mends parsers."


def answers(came: Came) -> Answer:
    """A provider that reports what it read from its cache."""
    return completion()


def silent(came: Came) -> Answer:
    """A provider that says nothing of caches or of reasoning."""
    body = {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }  # fmt: skip
    return Answer(chunks=(json.dumps(body).encode(),))


def step(number: int, tool: str = "bash", result: str = "ok") -> Messages:
    """One step: a thought, a call, its result."""
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": tool, "arguments": json.dumps({"cmd": f"ls {number}"})},
    }
    return [
        {"role": "assistant", "content": f"Step {number}.",
         "reasoning_content": f"Thought {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{result} {number}"},
    ]  # fmt: skip


def history(steps: int, goal: str = "Mend it.", system: str = SYSTEM) -> Messages:
    rows: Messages = [{"role": "system", "content": system}, {"role": "user", "content": goal}]
    for number in range(steps):
        rows += step(number)
    return rows


async def post(
    proxy: Running, messages: Messages, key: str = "sk-one", model: str = "m", **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"model": model, "messages": messages}).encode()
    sent = {"authorization": f"Bearer {key}", "content-type": "application/json", **named}
    async with http_client() as client:
        reply = await client.post(f"{proxy.url}/v1/chat/completions", content=body, headers=sent)
    assert 200 == reply.status_code, reply.text
    return reply


async def talk(
    proxy: Running, turns: Sequence[Messages], key: str = "sk-one", model: str = "m", **headers: str
) -> str:
    """Post the turns one after the other; the conversation's id."""
    for messages in turns:
        reply = await post(proxy, messages, key, model, **headers)
    return reply.headers["x-lethe-conversation"]


async def grow(proxy: Running, steps: int, goal: str = "Mend it.", **more: str) -> str:
    """A conversation of one turn, and one more for each step."""
    return await talk(proxy, [history(count, goal) for count in range(steps + 1)], **more)


def account(turn: int = 1, **more: Any) -> dict[str, Any]:
    """What is told of one exchange."""
    return {
        "exchange": f"x{turn}", "at": 1_796_000_000.0 + turn, "model": "m", "policy": "drop",
        "ending": "complete", "prefix": {"cause": "extended", "by": "nobody"},
        "tokens": {"input": 100 * turn, "uncached": 40, "cache_read": 100 * turn - 40,
                   "cache_write": None, "output": 10, "reasoning": None},
        "reasoning_bytes": {"dropped": 40 * turn, "kept": 0},
        "steps": {"total": turn, "fresh": {"drop": 1}}, "ms": {"total": 12.5}, **more,
    }  # fmt: skip


def put(proxy: Running, conversations: int, turns: int = 1) -> None:
    """Put conversations into the ledger as if so many had been."""
    element = Element(Part.MESSAGE, bytes(16), bytes(16), bytes(8), 10, 0, "user")
    scope = fingerprint.digest(b"a scope")
    for number in range(conversations):
        link = fingerprint.digest(b"conversation %d" % number)
        for turn in range(1, turns + 1):
            at = 1_000.0 * number + turn
            last = fingerprint.digest(link, b"%d" % turn)
            sent = Sent(last, last, (element,), proxy.doors.clock() - 2e6 + at, "default")
            told = account(turn, model=f"model-{number % 7}", key=f"key-{number % 11}")
            proxy.doors.ledger.remember(Record(scope, link, link, sent, orjson.dumps(told)))
