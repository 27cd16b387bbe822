"""Tools that answer at once, with the next turn on the other worker; and a store that is slow, away
or back in between.

Two workers in this process on one real store, before an upstream that holds to its contract. Every
turn goes to the other worker (`hasty`). What is compared is what the upstream received. With
processes as they are run: `tests/journey/test_hasty_workers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
    history_of,
    thoughts,
)
from tests.contracts.strict import Strict
from tests.contracts.task import TASK
from tests.doors import redis_server as servers
from tests.journey.processes import metrics, total, until
from tests.journey.provider import providing
from tests.journey.proxy_server import Running, running, settings_for

CONVERSATIONS = 50
FEWER = 20
"""Where a store fails, every turn may wait for it."""
PATIENT = "timeout = 10.0"
"""In one process with all the others a worker may wait for itself."""


@pytest.fixture
def store() -> Iterator[servers.Server]:
    with servers.running(servers.valkey()) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Pair:
    upstream: Upstream
    workers: tuple[Running, Running]

    @property
    def ports(self) -> list[int]:
        return [int(worker.url.rpartition(":")[2]) for worker in self.workers]


@asynccontextmanager
async def paired(
    family: str, store: servers.Server, folder: Path, *ledger: str
) -> AsyncIterator[Pair]:
    """Two workers on one store before one upstream."""
    upstream = Upstream(Strict(FAMILIES[family], TASK))
    async with providing(upstream) as provider:
        file = folder / "lethe.toml"
        rows = ["[[upstream]]", f'url = "{provider.url}"']
        rows += [f'contract = "{FAMILIES[family].contract}"', "[ledger]", *ledger]
        file.write_text("\n".join(rows))
        settings = settings_for(provider.url, file, redis=store.url)
        async with running(settings) as one, running(settings) as other:
            yield Pair(upstream, (one, other))


async def all_turns(pair: Pair, stream: bool, count: int, *policies: str) -> list[Hasty]:
    """So many conversations at once, every turn on the other worker."""
    clients = [
        Hasty(pair.ports, f"k{number}", stream, policies[number % len(policies)])
        for number in range(count)
    ]
    await all_work(clients)
    return clients


BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@BOTH
@pytest.mark.parametrize("family", ["deepseek-v4", "kimi-k3"])
async def test_the_other_worker_puts_back_what_this_one_heard_a_moment_ago(
    store: servers.Server, tmp_path: Path, family: str, stream: bool
) -> None:
    async with paired(family, store, tmp_path, PATIENT) as pair:
        clients = await all_turns(pair, stream, CONVERSATIONS, "keep")
        numbers = [await metrics(worker.admin) for worker in pair.workers]

    for client in clients:
        sent = pair.upstream.bodies[client.caller]
        assert [200] * len(TASK) == client.statuses
        assert [len(TASK) // 2] * 2 == [len(bodies) for bodies in by_worker(client, sent)]
        assert [GENERATED[:turn] for turn in range(len(TASK))] == list(map(thoughts, sent))
        assert grown(sent)
    assert [0, 0] == [total(text, "lethe_echoes_missed_total") for text in numbers]


@BOTH
async def test_what_is_dropped_or_kept_is_so_on_both_workers(
    store: servers.Server, tmp_path: Path, stream: bool
) -> None:
    async with paired("deepseek-v4", store, tmp_path, PATIENT) as pair:
        clients = await all_turns(pair, stream, FEWER, "drop", "after_artifact", "random:0.5")

    for client in clients:
        sent = pair.upstream.bodies[client.caller]
        assert [200] * len(TASK) == client.statuses
        assert [len(TASK) // 2] * 2 == [len(bodies) for bodies in by_worker(client, sent)]
        assert grown(sent)
        read = thoughts(sent[-1])
        if client.policy == "drop":
            assert [""] * len(read) == read
        assert all(got in ("", whole) for got, whole in zip(read, GENERATED, strict=False))


@BOTH
async def test_a_request_that_is_sent_again_leaves_the_same_on_both_workers(
    store: servers.Server, tmp_path: Path, stream: bool
) -> None:
    async with paired("kimi-k2", store, tmp_path, PATIENT) as pair:
        client = Hasty(pair.ports, "k0", stream)
        await client.work()
        del client.history[-1]
        for _ in range(4):
            await client.ask()

    sent = by_worker(client, pair.upstream.bodies["k0"])
    (body,) = {history_of(body) for bodies in sent for body in bodies[-2:]}
    assert 2 == len(sent)
    assert GENERATED[: len(TASK) - 1] == thoughts(body + b"]}")


# A store that is slow, away, and back


def pauses(store: servers.Server) -> tuple[Callable[[], None], ...]:
    return store.pause, store.resume


def goes(store: servers.Server) -> tuple[Callable[[], None], ...]:
    return store.kill, store.start


def comes_late(store: servers.Server) -> tuple[Callable[[], None], ...]:
    """There, but not for long enough to be of use, twice, and then for good."""
    return store.pause, store.resume, store.pause, store.resume, store.kill, store.start


@BOTH
@pytest.mark.parametrize("trouble", [pauses, goes, comes_late])
async def test_a_store_that_fails_in_between_changes_nothing_that_a_worker_sent(
    store: servers.Server,
    tmp_path: Path,
    trouble: Callable[[servers.Server], tuple[Callable[[], None], ...]],
    stream: bool,
) -> None:
    async with paired("deepseek-v4", store, tmp_path) as pair:
        steps = trouble(store)
        every = FEWER * len(TASK) // (len(steps) + 2)
        async with asyncio.TaskGroup() as group:
            working = group.create_task(all_turns(pair, stream, FEWER, "keep", "after_artifact"))
            for number, step in enumerate(steps, 1):
                await until(lambda number=number: pair.upstream.given >= number * every)  # type: ignore[misc]
                await asyncio.to_thread(step)
        clients = working.result()
        numbers = [await metrics(worker.admin) for worker in pair.workers]

    assert all(client.statuses == [200] * len(TASK) for client in clients)
    strict = pair.upstream.strict
    assert [] == [client.caller for client in clients if strict.talk(client.caller).refused]
    sent = [it for c in clients for it in by_worker(c, pair.upstream.bodies[c.caller])]
    assert 2 * FEWER == len(sent)
    assert all(map(grown, sent))
    told = [thoughts(body) for bodies in sent for body in bodies]
    assert all(got in ("", GENERATED[at]) for row in told for at, got in enumerate(row))

    counted = [sum(total(text, *name) for text in numbers) for name in COUNTED]
    assert FEWER * len(TASK) == counted[0]
    assert 0 < counted[1]
    kept = [thoughts(pair.upstream.bodies[client.caller][-1]) for client in clients[::2]]
    assert counted[2] or all(row == GENERATED[: len(row)] for row in kept)


COUNTED = (
    ("lethe_requests_total", 'route="chat"'),
    ("lethe_ledger_failures_total",),
    ("lethe_echoes_missed_total",),
)
