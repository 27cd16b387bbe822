"""What is said of the cache, beside what a real engine does: expected, missed, rebuilt."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.engine.test_engine import Engine, client, engine
from tests.journey.proxy_server import Running, running, settings_for

__all__ = ["client", "engine"]
KEY = {"authorization": "Bearer sk-audit"}
pytest.importorskip("xllamacpp", reason="the engine is not installed (extra: engine)")


@asynccontextmanager
async def audited(engine: Engine, folder: Path, restore: str = "never") -> AsyncIterator[Running]:
    """Nothing is put back, so that what the client loses is a break."""
    file = folder / "lethe.toml"
    file.write_text(
        f'[[upstream]]\nurl = "{engine.url}"\ncontract = "llama.cpp"\nrestore = "{restore}"\n'
    )
    async with running(settings_for(None, file)) as proxy:  # type: ignore[arg-type]
        yield proxy


class Talk:
    """The scripted agent, step by step; what came back is fed back."""

    def __init__(self, client: httpx.AsyncClient, proxy: Running, engine: Engine, policy: str):
        self._client, self._proxy, self._script = client, proxy, engine.play
        self._policy = policy
        self.history = self._script.messages(uuid4().hex)
        self.tools = copy.deepcopy(self._script.TOOLS)
        self.usage: dict[str, Any] = {}
        self.headers: httpx.Headers = httpx.Headers()

    async def ask(self) -> dict[str, Any]:
        body = {
            "model": "agent", "messages": self.history, "tools": self.tools, "temperature": 0,
            "max_tokens": 400,
        }  # fmt: skip
        reply = await self._client.post(
            f"{self._proxy.url}/v1/chat/completions", json=body,
            headers={**KEY, "x-lethe-policy": self._policy},
        )  # fmt: skip
        assert 200 == reply.status_code, reply.text
        self.usage, self.headers = reply.json()["usage"], reply.headers
        message: dict[str, Any] = reply.json()["choices"][0]["message"]
        return message

    async def play(self, steps: int) -> None:
        for step in range(steps):
            message = await self.ask()
            call = message["tool_calls"][0]
            result = {"role": "tool", "tool_call_id": call["id"]}
            self.history += [message, {**result, "content": self._script.STEPS[step][2]}]

    async def told(self) -> dict[str, Any]:
        """The account of the last turn."""
        found = await self._proxy.doors.ledger.conversation(self.headers["x-lethe-conversation"])
        assert found is not None
        outcome: dict[str, Any] = json.loads(json.dumps(found.outcomes[-1]))
        return outcome

    @property
    def processed(self) -> int:
        """Prompt tokens that the engine did not have."""
        cached: int = self.usage["prompt_tokens_details"]["cached_tokens"]
        return int(self.usage["prompt_tokens"]) - cached


@pytest.mark.parametrize("policy", ["keep", "drop"])
async def test_expected_cached_tokens_are_the_reported_ones_at_every_step(
    engine: Engine, client: httpx.AsyncClient, tmp_path: Path, policy: str
) -> None:
    async with audited(engine, tmp_path) as proxy:
        talk = Talk(client, proxy, engine, policy)
        for _ in range(12):
            await _one(talk)
            cache = (await talk.told())["cache"]
            if cache["expected"] is not None:
                assert cache["expected"] == cache["reported"]
                assert cache["cause"] is None
        told = await talk.told()
    assert told["cache"]["expected"] is not None
    assert "extended" == told["prefix"]["cause"]


async def _one(talk: Talk) -> None:
    """The next step of the script."""
    step = sum(m["role"] == "assistant" for m in talk.history)
    message = await talk.ask()
    if calls := message.get("tool_calls"):
        result = {"role": "tool", "tool_call_id": calls[0]["id"]}
        talk.history += [message, {**result, "content": talk._script.STEPS[step][2]}]


async def test_what_a_template_drops_at_a_new_user_message_is_told(
    engine: Engine, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    async with audited(engine, tmp_path) as proxy:
        talk = Talk(client, proxy, engine, "keep")
        await talk.play(12)
        talk.history.append(await talk.ask())
        talk.history.append({"role": "user", "content": "Now look at the formatter."})
        await talk.ask()
        told = await talk.told()

    assert "extended" == told["prefix"]["cause"]
    assert "template" == told["cache"]["cause"]
    assert told["cache"]["missed_tokens"] > 100


def _edit_system(talk: Talk) -> None:
    talk.history[0] = {**talk.history[0], "content": talk.history[0]["content"] + " Be brief."}


def _reorder_tools(talk: Talk) -> None:
    talk.tools.reverse()


def _edit_message(talk: Talk) -> None:
    talk.history[3] = {**talk.history[3], "content": "LICENSE\n" + talk.history[3]["content"]}


def _cut_the_middle(talk: Talk) -> None:
    del talk.history[4:10]


def _strip_reasoning(talk: Talk) -> None:
    talk.history = [
        {k: v for k, v in m.items() if k != "reasoning_content"} if at > 4 else m
        for at, m in enumerate(talk.history)
    ]


@pytest.mark.parametrize(
    ("change", "cause", "path"),
    [
        (_edit_system, "system_changed", "$.messages[0].content"),
        (_reorder_tools, "tools_reordered", "$.tools[0]"),
        (_edit_message, "message_edited", "$.messages[3].content"),
        (_cut_the_middle, "messages_dropped", "$.messages[4]"),
        (_strip_reasoning, "reasoning_stripped", "$.messages[6].reasoning_content"),
    ],
)
async def test_a_break_made_on_purpose_is_named_and_its_cost_estimated(
    engine: Engine,
    client: httpx.AsyncClient,
    tmp_path: Path,
    change: Callable[[Talk], None],
    cause: str,
    path: str,
) -> None:
    async with audited(engine, tmp_path) as proxy:
        talk = Talk(client, proxy, engine, "keep")
        await talk.play(9)
        change(talk)
        await talk.ask()
        told = await talk.told()
        rebuilt = talk.processed - await _processed_without_a_break(client, proxy, engine)

    assert f"broken; cause={cause}" == talk.headers["x-lethe-prefix"]
    assert cause == told["prefix"]["cause"]
    assert "client" == told["prefix"]["by"]
    assert told["prefix"]["path"].startswith(path)
    assert told["prefix"]["fix"]
    assert rebuilt == pytest.approx(told["prefix"]["rebuilt_tokens"], rel=0.10)


async def _processed_without_a_break(
    client: httpx.AsyncClient, proxy: Running, engine: Engine
) -> int:
    """What the engine processes at this step when nothing was changed: only what is new."""
    talk = Talk(client, proxy, engine, "keep")
    await talk.play(9)
    await talk.ask()
    return talk.processed
