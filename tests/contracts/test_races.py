"""Tools that answer at once, with the next turn on the other worker; and a store that is slow, away
or back in between.

Two workers on one real store, before an upstream that holds to its contract. The client loses all
reasoning. It asks again as soon as it has seen the end of a reply, be that in the middle of the
stream, and every turn goes to the other worker. What is compared is what the upstream received.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contracts.agents import CLIENTS, Message, assembled, tool_results
from tests.contracts.families import FAMILIES
from tests.contracts.strict import Strict
from tests.contracts.task import SYSTEM, TASK, TOOLS, TURNS
from tests.doors import redis_server as servers
from tests.doors.scripted import Dialled, dialled
from tests.journey.provider import Answer, Came, providing
from tests.journey.proxy_server import Running, running, settings_for

CONVERSATIONS = 50
FEWER = 20
"""Where a store fails, every turn may wait for it."""
LOSES = CLIENTS["openai-agents"].echo
PATIENT = "timeout = 10.0"
"""In one process with all the others a worker may wait for itself."""


@pytest.fixture
def store() -> Iterator[servers.Server]:
    with servers.running(servers.valkey()) as server:
        yield server


@dataclass(slots=True)
class Upstream:
    """A strict upstream that gives its events one by one. `bodies` are what it received, by caller
    and worker, in order.
    """

    strict: Strict
    bodies: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    given: int = 0

    def __call__(self, came: Came) -> Answer:
        if came.path.endswith("/chat/completions"):
            caller = came.headers["authorization"].removeprefix("Bearer ")
            self.bodies.setdefault((caller, came.headers["x-worker"]), []).append(came.body)
            self.given += 1
        answer = self.strict(came)
        return replace(answer, pause=0.0005) if len(answer.chunks) > 1 else answer


@dataclass(frozen=True, slots=True)
class Pair:
    upstream: Upstream
    workers: tuple[Running, Running]


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


# A client without patience


@dataclass(slots=True)
class Hasty:
    """One conversation. Every turn goes to the other worker, before the last reply is read to its
    end.
    """

    pair: Pair
    caller: str
    stream: bool
    policy: str = "keep"
    statuses: list[int] = field(default_factory=list)
    history: list[Message] = field(default_factory=lambda: [{"role": "system", "content": SYSTEM}])
    asked: int = 0

    async def work(self) -> None:
        """The whole task."""
        for turn in TURNS:
            self.history.append({"role": "user", "content": turn})
            while (message := await self.ask()) is not None:
                self.history += LOSES(message)
                if not message.get("tool_calls"):
                    break
                self.history += tool_results(message)

    async def ask(self) -> Message | None:
        """The reply as far as its end can be seen; None where it is none."""
        number, self.asked = self.asked % 2, self.asked + 1
        port = int(self.pair.workers[number].url.rpartition(":")[2])
        async with dialled(port) as line:
            key = ("authorization", f"Bearer {self.caller}"), ("x-worker", str(number))
            policy = ("x-lethe-policy", self.policy)
            await line.ask("POST", "/v1/chat/completions", *key, policy, body=self.body())
            self.statuses.append(await line.head())
            if self.statuses[-1] != 200:
                return None
            return await (_streamed(line) if self.stream else _whole(line))

    def body(self) -> bytes:
        body: dict[str, Any] = {
            "model": "m", "messages": self.history, "stream": self.stream, "tools": TOOLS
        }  # fmt: skip
        return json.dumps(body, separators=(",", ":")).encode()


async def _whole(line: Dialled) -> Message:
    message: Message = json.loads(await line.rest())["choices"][0]["message"]
    return message


async def _streamed(line: Dialled) -> Message:
    """Until the event that says why the reply ended; what follows is not waited for."""
    chunks: list[Any] = []
    text = b""
    while True:
        text += await line.chunk()
        *events, text = text.split(b"\n\n")
        chunks += [json.loads(event[6:]) for event in events if event[6:7] == b"{"]
        if any(c["choices"] and c["choices"][0]["finish_reason"] for c in chunks):
            return assembled(chunks)


async def all_work(pair: Pair, stream: bool, count: int, *policies: str) -> list[Hasty]:
    """So many conversations at once."""
    clients = [
        Hasty(pair, f"k{number}", stream, policies[number % len(policies)])
        for number in range(count)
    ]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.work())
    return clients


# What the upstream received


def history_of(body: bytes) -> bytes:
    """The bytes of a request to the end of its last message."""
    return body.partition(b'],"stream":')[0]


def grown(bodies: list[bytes]) -> bool:
    """Whether each began with the whole one before."""
    heads = [history_of(body) for body in bodies]
    return all(b.startswith(a) for a, b in zip(heads, heads[1:], strict=False))


def thoughts(body: bytes) -> list[str]:
    rows = json.loads(body)["messages"]
    return [row["reasoning_content"] for row in rows if row["role"] == "assistant"]


GENERATED = [step.reasoning for step in TASK]
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@BOTH
@pytest.mark.parametrize("family", ["deepseek-v4", "kimi-k3"])
async def test_the_other_worker_puts_back_what_this_one_heard_a_moment_ago(
    store: servers.Server, tmp_path: Path, family: str, stream: bool
) -> None:
    async with paired(family, store, tmp_path, PATIENT) as pair:
        clients = await all_work(pair, stream, CONVERSATIONS, "keep")
        numbers = [await metrics(worker) for worker in pair.workers]

    bodies = pair.upstream.bodies
    for client in clients:
        assert [200] * len(TASK) == client.statuses
        sent = [bodies[client.caller, str(at)] for at in (0, 1)]
        by_turn = [body for both in zip(*sent, strict=True) for body in both]
        assert [GENERATED[:turn] for turn in range(len(TASK))] == list(map(thoughts, by_turn))
        assert grown(by_turn)
    assert [0, 0] == [total(text, "lethe_echoes_missed_total") for text in numbers]


@BOTH
async def test_what_is_dropped_or_kept_is_so_on_both_workers(
    store: servers.Server, tmp_path: Path, stream: bool
) -> None:
    async with paired("deepseek-v4", store, tmp_path, PATIENT) as pair:
        clients = await all_work(pair, stream, FEWER, "drop", "after_artifact", "random:0.5")

    for client in clients:
        sent = [pair.upstream.bodies[client.caller, str(at)] for at in (0, 1)]
        by_turn = [body for both in zip(*sent, strict=True) for body in both]
        assert [200] * len(TASK) == client.statuses
        assert grown(by_turn)
        read = thoughts(by_turn[-1])
        if client.policy == "drop":
            assert [""] * len(read) == read
        assert all(got in ("", whole) for got, whole in zip(read, GENERATED, strict=False))


@BOTH
async def test_a_request_that_is_sent_again_leaves_the_same_on_both_workers(
    store: servers.Server, tmp_path: Path, stream: bool
) -> None:
    async with paired("kimi-k2", store, tmp_path, PATIENT) as pair:
        client = Hasty(pair, "k0", stream)
        await client.work()
        del client.history[-1]
        for _ in range(4):
            await client.ask()

    again = [pair.upstream.bodies["k0", str(at)][-2:] for at in (0, 1)]
    (body,) = {history_of(body) for both in again for body in both}
    assert GENERATED[: len(TASK) - 1] == thoughts(body + b"]}")


# A store that is slow, away, and back


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (a count, told by nobody)
            await asyncio.sleep(0.001)


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
            working = group.create_task(all_work(pair, stream, FEWER, "keep", "after_artifact"))
            for number, step in enumerate(steps, 1):
                await until(lambda number=number: pair.upstream.given >= number * every)  # type: ignore[misc]
                await asyncio.to_thread(step)
        clients = working.result()
        numbers = [await metrics(worker) for worker in pair.workers]

    assert all(client.statuses == [200] * len(TASK) for client in clients)
    strict = pair.upstream.strict
    assert [] == [client.caller for client in clients if strict.talk(client.caller).refused]
    assert [] == [who for who, bodies in pair.upstream.bodies.items() if not grown(bodies)]
    told = [thoughts(body) for bodies in pair.upstream.bodies.values() for body in bodies]
    assert all(got in ("", GENERATED[at]) for row in told for at, got in enumerate(row))

    counted = [sum(total(text, *name) for text in numbers) for name in COUNTED]
    assert FEWER * len(TASK) == counted[0]
    assert 0 < counted[1]
    kept = [thoughts(pair.upstream.bodies[client.caller, "1"][-1]) for client in clients[::2]]
    assert counted[2] or all(row == GENERATED[: len(row)] for row in kept)


COUNTED = (
    ("lethe_requests_total", 'route="chat"'),
    ("lethe_ledger_failures_total",),
    ("lethe_echoes_missed_total",),
)


async def metrics(worker: Running) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{worker.admin}/metrics")).text


def total(text: str, name: str, having: str = "") -> float:
    """The sum of a metric over all its series with these labels."""
    rows = [row for row in text.splitlines() if row.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(row.rpartition(" ")[2]) for row in rows if having in row)
