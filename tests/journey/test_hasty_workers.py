"""Tools that answer at once before `lethe serve --workers 2` as it is run, on one store that stops,
dies and comes back.

The upstream holds to DeepSeek's contract and the clients lose all reasoning (`hasty`). Every turn
is on a new connection, while the last one is still open, so that either worker process may take it;
who did is told by the name of the exchange. What is compared is what the upstream received.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.contracts.families import FAMILIES
from tests.contracts.hasty import (
    GENERATED,
    Hasty,
    Upstream,
    all_work,
    by_worker,
    grown,
    thoughts,
)
from tests.contracts.strict import Strict
from tests.contracts.task import TASK
from tests.doors import redis_server as servers
from tests.journey.processes import Workers, total, two_workers, until, until_counted
from tests.journey.provider import providing

CONVERSATIONS = 30
TURNS = CONVERSATIONS * len(TASK)
PATIENT = "timeout = 10.0"
"""Where the store does not fail, a busy machine is no reason to go on without it."""
KEPT = ("--appendonly", "yes")
"""A store that has its data again after it was killed."""


@pytest.fixture
def store(options: Sequence[str]) -> Iterator[servers.Server]:
    with servers.running(servers.valkey(), options) as server:
        yield server


@dataclass(slots=True)
class Pace:
    """No conversation goes beyond turn `last`, until it is raised."""

    last: int = len(TASK)
    _raised: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __call__(self, turn: int) -> None:
        async with self._raised:
            await self._raised.wait_for(lambda: turn <= self.last)

    async def until(self, last: int) -> None:
        async with self._raised:
            self.last = last
            self._raised.notify_all()


@dataclass(frozen=True, slots=True)
class Run:
    upstream: Upstream
    workers: Workers
    clients: Sequence[Hasty]
    pace: Pace

    def sent(self, client: Hasty) -> list[bytes]:
        return self.upstream.bodies[client.caller]

    async def work(self) -> None:
        await all_work(self.clients)

    async def numbers(self, turns: int = TURNS) -> str:
        """The metrics, once both workers told of so many turns, and have had the store since."""
        chat = ("lethe_requests_total", 'route="chat"')
        return await until_counted(
            self.workers.admin,
            lambda text: total(text, *chat) == turns and total(text, "lethe_ledger_up") == 1,
        )


@asynccontextmanager
async def run(
    store: servers.Server, folder: Path, policies: Sequence[str], *ledger: str
) -> AsyncIterator[Run]:
    """Two worker processes, and conversations that are yet to begin; half of them are streamed."""
    upstream = Upstream(Strict(FAMILIES["deepseek-v4"], TASK))
    async with providing(upstream) as provider:
        file = folder / "lethe.toml"
        rows = ["[[upstream]]", f'url = "{provider.url}"', 'contract = "deepseek-v4"']
        file.write_text("\n".join([*rows, "[ledger]", *ledger]))
        async with two_workers(provider.url, store.url, "--config", str(file)) as workers:
            pace = Pace()
            clients = [
                Hasty(
                    [workers.port], f"k{n}", n % 2 == 0, policies[n // 2 % len(policies)],
                    lingers=True, pace=pace,
                )
                for n in range(CONVERSATIONS)
            ]  # fmt: skip
            yield Run(upstream, workers, clients, pace)


POLICIES = ("keep", "drop", "after_artifact")
INTACT = {b"cold_start", b"extended"}


def on_both(it: Run) -> int:
    """How many conversations had turns on both workers."""
    return sum(len(set(client.workers)) == 2 for client in it.clients)


@pytest.mark.parametrize("options", [()], ids=["calm"])
async def test_whichever_process_takes_a_turn_it_begins_with_the_bytes_of_the_last_one(
    store: servers.Server, tmp_path: Path
) -> None:
    async with run(store, tmp_path, POLICIES, PATIENT) as it:
        await it.work()
        numbers = await it.numbers()

    for client in it.clients:
        sent = it.sent(client)
        assert [200] * len(TASK) == client.statuses
        assert grown(sent)
        assert {told[b"x-lethe-prefix"] for told in client.told} <= INTACT
        if client.policy == "keep":
            assert [GENERATED[:turn] for turn in range(len(TASK))] == list(map(thoughts, sent))
    assert 2 == len({worker for client in it.clients for worker in client.workers})
    assert on_both(it) > CONVERSATIONS // 2
    assert 0 == total(numbers, "lethe_echoes_missed_total")


# A store that stops, dies and comes back


STOPPED, AGAIN, DEAD = 4, 7, 9
"""The last turn of every conversation while the store is stopped, before both workers have it again
and while it is dead.
"""


async def troubled(it: Run, store: servers.Server) -> None:
    """All the work, with the store stopped for a second, killed and started again meanwhile."""
    upstream, pace = it.upstream, it.pace
    pace.last = STOPPED
    async with asyncio.TaskGroup() as group:
        group.create_task(it.work())
        await until(lambda: upstream.given > 2 * CONVERSATIONS)
        await asyncio.to_thread(store.pause)
        await asyncio.sleep(1)
        await asyncio.to_thread(store.resume)
        await pace.until(AGAIN)
        await it.numbers((AGAIN + 1) * CONVERSATIONS)
        await pace.until(DEAD)
        await until(lambda: upstream.given > (AGAIN + 1) * CONVERSATIONS)
        await asyncio.to_thread(store.kill)
        await until(lambda: upstream.given == (DEAD + 1) * CONVERSATIONS)
        await asyncio.to_thread(store.start)
        await it.numbers((DEAD + 1) * CONVERSATIONS)
        await pace.until(len(TASK))


def without_thoughts(body: bytes) -> bytes:
    """The same request, with every thought left empty."""
    request = json.loads(body)
    for row in request["messages"]:
        if "reasoning_content" in row:
            row["reasoning_content"] = ""
    return json.dumps(request, separators=(",", ":")).encode()


@pytest.mark.parametrize("options", [(), KEPT], ids=["comes back empty", "has its data again"])
async def test_a_store_that_fails_takes_nothing_back_that_a_worker_sent(
    store: servers.Server, tmp_path: Path, options: Sequence[str]
) -> None:
    """Law 6: what a policy decides that looks at the append point alone is the same with another
    store or none. It cannot hold of reasoning that is put back: a worker that never heard it knows
    of nothing where the store does not tell it. So there growth holds for each worker by itself,
    nothing but that reasoning differs (law 3), and a break of it is told as `self`.
    """
    async with run(store, tmp_path, POLICIES, "timeout = 0.5") as it:
        await troubled(it, store)
        numbers = await it.numbers()

    strict = it.upstream.strict
    for client in it.clients:
        sent = it.sent(client)
        assert [200] * len(TASK) == client.statuses
        assert [] == strict.talk(client.caller).refused
        assert all(map(grown, by_worker(client, sent)))
        assert grown(sent if client.policy == "drop" else map(without_thoughts, sent))
        told = {told[b"x-lethe-prefix"] for told in client.told}
        assert told <= ({*INTACT, b"broken; cause=self"} if client.policy != "drop" else INTACT)
        rows = list(map(thoughts, sent))
        assert all(got in ("", GENERATED[at]) for row in rows for at, got in enumerate(row))
        if client.policy == "keep":
            assert GENERATED[DEAD + 1 : -1] == rows[-1][DEAD + 1 :]
    assert on_both(it) > CONVERSATIONS // 2
    assert 0 < total(numbers, "lethe_echoes_missed_total")
    assert 0 < total(numbers, "lethe_ledger_failures_total", "timeout")
    assert 0 < total(numbers, "lethe_ledger_failures_total", "connection")
    assert options == KEPT or 0 < total(numbers, "lethe_ledger_failures_total", "lost")
