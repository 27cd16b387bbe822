"""Two worker processes on one ledger, many conversations at once: one truth, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.client import http_client
from tests.doors import redis_server as servers
from tests.journey.processes import Workers, total, two_workers, until, until_counted
from tests.journey.provider import Answer, Came, completion, providing
from tests.journey.test_journey import KEY, steps

# The whole run of 200 conversations of 20 steps is `make soak`; what CI runs is a sample of it.
CONVERSATIONS = int(os.environ.get("SOAK_CONVERSATIONS", "24"))
STEPS = int(os.environ.get("SOAK_STEPS", "8"))
TURNS = CONVERSATIONS * (STEPS + 1)
CHAT = ("lethe_requests_total", 'route="chat"')


@dataclass
class Truth:
    """What a provider's cache sees: for every conversation the messages as they last came."""

    last: dict[str, list[Any]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    answered: int = 0

    def answer(self, came: Came) -> Answer:
        messages = json.loads(came.body)["messages"]
        name = messages[1]["content"]
        before = self.last.get(name, [])
        if before != messages[: len(before)]:
            self.broken.append(name)
        self.last[name] = messages
        self.answered += 1
        return completion()


@pytest.fixture
def redis_server() -> Iterator[servers.Server]:
    with servers.running(servers.valkey()) as server:
        yield server


@asynccontextmanager
async def working(store: servers.Server) -> AsyncIterator[tuple[Truth, Workers]]:
    """Both workers on one store, before a provider that tells whether one truth is sent."""
    truth = Truth()
    async with (
        providing(truth.answer) as provider,
        two_workers(provider.url, store.url) as workers,
    ):
        yield truth, workers


def named_steps(name: str, count: int) -> list[Any]:
    """A history whose ids are its own, as providers give them."""
    text = json.dumps(steps(count)).replace("call_", f"{name} call_")
    return [*json.loads(text)[:1], {"role": "user", "content": name}, *json.loads(text)[2:]]


async def converse(workers: Workers, name: str, policy: str, pause: asyncio.Event) -> None:
    """One conversation; a new connection for every request, so that either worker may take it."""
    for count in range(STEPS + 1):
        await pause.wait()
        history = named_steps(name, count)
        headers = {
            "authorization": f"Bearer sk-{policy}",
            "x-lethe-policy": policy,
            "connection": "close",
        }
        async with http_client(60) as client:
            reply = await client.post(
                f"{workers.url}/v1/chat/completions",
                json={"model": "m", "messages": history},
                headers=headers,
            )
        assert 200 == reply.status_code, reply.text
        assert not reply.headers["x-lethe-prefix"].startswith("broken"), reply.headers[
            "x-lethe-prefix"
        ]


async def converse_all(workers: Workers, policies: tuple[str, ...], pause: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(CONVERSATIONS):
            policy = policies[number % len(policies)]
            group.create_task(converse(workers, f"conversation {number}", policy, pause))


def all_told(numbers: str) -> bool:
    return total(numbers, *CHAT) >= TURNS


def going() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@pytest.mark.parametrize("policies", [("drop", "after_artifact"), ("keep", "random:0.5")])
async def test_no_prefix_breaks_and_no_exchange_is_lost(
    redis_server: servers.Server, policies: tuple[str, ...]
) -> None:
    async with working(redis_server) as (truth, workers):
        await converse_all(workers, policies, going())
        numbers = await until_counted(workers.admin, all_told)

    assert [] == truth.broken
    assert TURNS == truth.answered
    assert TURNS == total(numbers, *CHAT)
    assert CONVERSATIONS == total(numbers, "lethe_prefix_findings_total", "cold_start")


async def test_two_keys_with_other_policies_on_one_conversation_send_one_truth(
    redis_server: servers.Server,
) -> None:
    """The same conversation under turns of two policies: whoever came first decided each step."""
    async with working(redis_server) as (truth, workers):
        async with http_client(30) as client:
            for count in range(STEPS + 1):
                for policy in ("drop", "keep") if count % 2 else ("keep", "drop"):
                    reply = await client.post(
                        f"{workers.url}/v1/chat/completions",
                        json={"model": "m", "messages": steps(count)},
                        headers={**KEY, "x-lethe-policy": policy, "connection": "close"},
                    )
                    assert 200 == reply.status_code

    assert [] == truth.broken


async def test_a_store_that_is_killed_and_comes_back_empty_breaks_no_prefix(
    redis_server: servers.Server,
) -> None:
    async with working(redis_server) as (truth, workers):
        async with asyncio.TaskGroup() as group:
            talking = group.create_task(converse_all(workers, ("drop",), going()))
            await until(lambda: truth.answered >= CONVERSATIONS * STEPS // 3)
            await asyncio.to_thread(redis_server.kill)
            await until(lambda: truth.answered >= CONVERSATIONS * STEPS * 2 // 3)
            await asyncio.to_thread(redis_server.start)
            await talking
        numbers = await until_counted(workers.admin, all_told)

    assert [] == truth.broken
    assert TURNS == truth.answered
    assert total(numbers, "lethe_ledger_failures_total") > 0
