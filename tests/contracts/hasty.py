"""Clients without patience, which lose all reasoning, and what a strict upstream received of them.

Each asks again as soon as it has seen the end of a reply, be that in the middle of the stream, and
every turn goes out on a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.contracts.agents import CLIENTS, Message, assembled, tool_results
from tests.contracts.strict import Strict
from tests.contracts.task import SYSTEM, TASK, TOOLS, TURNS
from tests.doors.scripted import Dialled, connected
from tests.journey.provider import Answer, Came

LOSES = CLIENTS["openai-agents"].echo
GENERATED = [step.reasoning for step in TASK]


# The upstream


@dataclass(slots=True)
class Upstream:
    """A strict upstream that gives its events one by one. `bodies` are what it received, by caller,
    in order.
    """

    strict: Strict
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    given: int = 0

    def __call__(self, came: Came) -> Answer:
        if came.path.endswith("/chat/completions"):
            caller = came.headers["authorization"].removeprefix("Bearer ")
            self.bodies.setdefault(caller, []).append(came.body)
            self.given += 1
        answer = self.strict(came)
        return replace(answer, pause=0.0005) if len(answer.chunks) > 1 else answer


# A client


async def at_once(turn: int) -> None:
    """No wait before a turn."""


@dataclass(slots=True)
class Hasty:
    """One conversation; each turn goes to the next of `ports`.

    `lingers`: a connection stays open until the next turn was asked on another; else it is torn as
    soon as the reply's end was seen. `told` are the headers of every reply; `pace` is asked before
    each turn.
    """

    ports: Sequence[int]
    caller: str
    stream: bool
    policy: str = "keep"
    lingers: bool = False
    pace: Callable[[int], Awaitable[None]] = at_once
    statuses: list[int] = field(default_factory=list)
    told: list[dict[bytes, bytes]] = field(default_factory=list)
    history: list[Message] = field(default_factory=lambda: [{"role": "system", "content": SYSTEM}])
    _open: Dialled | None = None

    @property
    def workers(self) -> list[str]:
        """Who took each turn: the names of exchanges begin with one that a worker has to itself."""
        return [told[b"x-lethe-exchange"].decode().partition("-")[0] for told in self.told]

    async def work(self) -> None:
        """The whole task."""
        try:
            for turn in TURNS:
                self.history.append({"role": "user", "content": turn})
                while (message := await self.ask()) is not None:
                    self.history += LOSES(message)
                    if not message.get("tool_calls"):
                        break
                    self.history += tool_results(message)
        finally:
            self._leave(None)

    async def ask(self) -> Message | None:
        """The reply as far as its end can be seen; None where it is none."""
        asked = len(self.statuses)
        await self.pace(asked)
        line = await connected(self.ports[asked % len(self.ports)])
        try:
            key = ("authorization", f"Bearer {self.caller}"), ("x-lethe-policy", self.policy)
            await line.ask("POST", "/v1/chat/completions", *key, body=self.body())
            self._leave(line if self.lingers else None)
            self.statuses.append(await line.head())
            self.told.append(line.headers)
            if self.statuses[-1] != 200:
                return None
            return await (_streamed(line) if self.stream else _whole(line))
        finally:
            if line is not self._open:
                line.leave()

    def _leave(self, now: Dialled | None) -> None:
        """Let go of the connection before this one."""
        before, self._open = self._open, now
        if before is not None:
            before.leave()

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


async def all_work(clients: Sequence[Hasty]) -> None:
    """All at once."""
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.work())


# What the upstream received


def by_worker(client: Hasty, bodies: Sequence[bytes]) -> list[list[bytes]]:
    """The bodies of a conversation by the worker that sent them, each in order."""
    found: dict[str, list[bytes]] = {}
    for worker, body in zip(client.workers, bodies, strict=True):
        found.setdefault(worker, []).append(body)
    return list(found.values())


def history_of(body: bytes) -> bytes:
    """The bytes of a request to the end of its last message."""
    return body.partition(b'],"stream":')[0]


def grown(bodies: Iterable[bytes]) -> bool:
    """Whether each began with the whole one before."""
    heads = [history_of(body) for body in bodies]
    return all(b.startswith(a) for a, b in zip(heads, heads[1:], strict=False))


def thoughts(body: bytes) -> list[str]:
    rows = json.loads(body)["messages"]
    return [row["reasoning_content"] for row in rows if row["role"] == "assistant"]
