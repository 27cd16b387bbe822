"""The promise of the mechanical saving, over real sockets: what an agent paid, and what it is told
to have saved, come to the bill of the same agent with all its reasoning kept.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.core import cachemodel
from proxy.core.cachemodel import Segment, Segments
from proxy.core.contract import CacheRule, Reuse
from proxy.settings import Settings
from tests.client import http_client
from tests.journey.provider import Answer, Came, completion, providing
from tests.journey.proxy_server import Running, running, settings_for

STEPS = 6
PRICES = 'model = "m"\ninput = 2\ncache_read = 0.1\ncache_write = 2.5\noutput = 10\n'


def reasoning(step: int) -> str:
    return f"{step}" * (300 + 37 * step)


def segments(messages: list[dict[str, Any]]) -> Segments:
    """A token a character: of reasoning, then of what was said."""
    rows = []
    for at, message in enumerate(messages):
        said = (message.get("content") or "") + json.dumps(message.get("tool_calls") or "")
        name = f"{at}{message['role']}".encode()
        rows.append(Segment(b"r" + name, len(message.get("reasoning_content") or "")))
        rows.append(Segment(b"s" + name, len(said)))
    return tuple(row for row in rows if row.tokens)


class Engine:
    """Serves prompts from a cache by a rule, one for each conversation."""

    def __init__(self, rule: CacheRule) -> None:
        self._rule = rule
        self._rows: dict[str, list[Segments]] = {}

    def answer(self, came: Came) -> Answer:
        messages = came.json()["messages"]
        step = sum(message["role"] == "assistant" for message in messages)
        call = {"name": "write_file", "arguments": f'{{"path": "f{step}"}}'}
        reply = {
            "reasoning_content": reasoning(step),
            "tool_calls": [{"id": f"call-{step}", "type": "function", "function": call}],
        }
        whole = [*messages, {"role": "assistant", "content": "", **reply}]
        prompt = segments(messages)
        generated = segments(whole)[len(prompt) :]
        rows = self._rows.setdefault(messages[0]["content"], [])
        split = cachemodel.split(self._rule, rows, prompt)
        rows.append(cachemodel.held(self._rule, prompt, generated))
        body = json.loads(completion("", **reply).chunks[0])
        body["usage"] = {
            "prompt_tokens": split.input,
            "completion_tokens": cachemodel.size(generated),
            "prompt_tokens_details": {"cached_tokens": split.read},
            "completion_tokens_details": {"reasoning_tokens": len(reasoning(step))},
        }
        return Answer(chunks=(json.dumps(body).encode(),))


async def agent(proxy: Running, policy: str) -> None:
    """Echoes every reply as it came, and answers its tool."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Go, {policy}.".ljust(300)}]
    async with http_client(30) as client:
        for step in range(STEPS):
            reply = await client.post(
                f"{proxy.url}/v1/chat/completions",
                json={"model": "m", "messages": messages},
                headers={"x-lethe-policy": policy},
            )
            messages.append(reply.json()["choices"][0]["message"])
            messages.append(
                {"role": "tool", "tool_call_id": f"call-{step}", "content": "ok." * (20 + step)}
            )


def toy(
    folder: Path, url: str, rule: CacheRule, prices: str, more: str = "", redis: str | None = None
) -> Settings:
    """Of a proxy that knows its provider's cache, and logs to a file."""
    (folder / "prices.toml").write_text(prices)
    cache = f'{{ reuse = "{rule.reuse.value}", block = {rule.block} }}'
    (folder / "providers.toml").write_text(
        f'[[contract]]\nname = "toy"\ncache = {cache}\nsource = "a test"\ndate = "2026-11"\n'
    )
    (folder / "lethe.toml").write_text(
        f'log = "{folder}/log"\nprices = "{folder}/prices.toml"\n'
        f'providers = "{folder}/providers.toml"\n{more}'
        f'[[upstream]]\nurl = "{url}"\ncontract = "toy"\n'
    )
    return settings_for(None, folder / "lethe.toml", log=None, redis=redis)  # type: ignore[arg-type]


@asynccontextmanager
async def proxied(
    rule: CacheRule, folder: Path
) -> AsyncIterator[tuple[Running, Callable[[], Any]]]:
    async with providing(Engine(rule).answer) as provider:
        settings = toy(folder, provider.url, rule, f"[[price]]\n{PRICES}")
        async with running(settings) as proxy:
            yield proxy, lambda: list(map(json.loads, (folder / "log").read_text().splitlines()))


@pytest.mark.parametrize("reuse", list(Reuse))
@pytest.mark.parametrize("block", [1, 64])
@pytest.mark.parametrize("policy", ["drop", "random:0.5"])
async def test_what_was_paid_and_what_was_saved_come_to_the_bill_of_keep(
    tmp_path: Path, reuse: Reuse, block: int, policy: str
) -> None:
    async with proxied(CacheRule(reuse, block), tmp_path) as (proxy, told):
        await agent(proxy, "keep")
        await agent(proxy, policy)

    lines = told()
    kept = [line["dollars"]["cost"] for line in lines if line["policy"] == "keep"]
    assert kept == [line["dollars"]["keep"] for line in lines if line["policy"] == policy]
    assert not any(line["dollars"]["estimated"] for line in lines)


async def test_what_was_counted_longer_ago_than_the_last_reply_is_told_as_an_estimate(
    tmp_path: Path,
) -> None:
    async with proxied(CacheRule(Reuse.PROMPT), tmp_path) as (proxy, told):
        await agent(proxy, "keep_latest:1")

    lines = told()
    assert [False, False, *[True] * 4] == [line["dollars"]["estimated"] for line in lines]
    assert [False, False, *[True] * 4] == [line["reasoning_tokens"]["estimated"] for line in lines]
