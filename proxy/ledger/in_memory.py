"""The ledger of one worker by itself: bounded, shared with nobody, gone with the process.

`Settled.shared` is true here: the store is this memory, and it answers. `Health.shared` is false:
no other worker sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from proxy.errors import SettingsError
from proxy.ledger.contract import (
    Ask,
    Conversation,
    Entry,
    Grade,
    Health,
    Kept,
    Record,
    Settled,
    Summary,
)
from proxy.ledger.lessons import Lessons
from proxy.ledger.local import Memory, Recalling
from proxy.ledger.thread import Thread


@dataclass(frozen=True, slots=True)
class Options:
    max_entries: int = 100_000
    """Conversations; the least recently used go first."""

    max_bytes: int = 32 * 1024 * 1024
    """Bytes of all that is kept, estimated from above."""

    history: Literal["full", "digests"] = "full"
    """`digests` keeps no message text."""

    ttl: float = 7 * 86_400
    """Seconds that a conversation is kept after its last turn."""


class InMemory(Recalling):
    """`clock` gives seconds since the epoch. Raises SettingsError for bounds that hold nothing."""

    def __init__(self, options: Options, clock: Callable[[], float]) -> None:
        if min(options.max_entries, options.max_bytes, options.ttl) <= 0:
            raise SettingsError("the ledger's max_entries, max_bytes and ttl must be above 0")
        self._options = options
        self._memory = Memory(options.max_entries, options.max_bytes, options.ttl, clock)
        self._lessons, self._clock = Lessons(clock), clock

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def settle(self, ask: Ask) -> Settled:
        return self._memory.settle(ask)

    async def keep(self, kept: Kept) -> bool:
        self._memory.keep(kept)
        return True

    async def lesson(self, name: str) -> bytes | None:
        return self._lessons.get(name)

    async def learn(self, name: str, value: bytes, seconds: float) -> bool:
        self._lessons.put(name, value, self._clock() + seconds)
        return True

    def remember(self, record: Record) -> None:
        thread = self._memory.remember(record)
        if self._options.history == "full":
            self._memory.add_entries(thread, record.entries)
        self._memory.add_outcome(thread, record.sent.at, record.outcome)
        self._memory.add_task(thread, record.task)
        self._memory.shrink(thread)

    async def recall(self, conversation: bytes, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        thread = self._memory.threads.get(conversation)
        if thread is None:
            return {}
        entries = self._entries(thread)
        return {digest: entries[digest] for digest in digests if digest in entries}

    async def set_policy(self, scope: bytes, policy: str) -> bool:
        self._memory.set_setting(scope, policy)
        return True

    async def conversations(
        self, scope: bytes | None, limit: int, before: float | None = None
    ) -> list[Summary]:
        found = self._listed(scope, lambda it: before is None or it.last_at < before)
        return [_summary(thread) for thread in found[:limit]]

    def _listed(self, scope: bytes | None, wanted: Callable[[Thread], bool]) -> list[Thread]:
        """The most recently active first."""
        listed = [
            thread
            for thread in self._memory.threads.values()
            if thread.listed and (scope is None or thread.scope == scope) and wanted(thread)
        ]
        return sorted(listed, key=lambda thread: thread.last_at, reverse=True)

    async def accounts(self, ids: Sequence[str]) -> list[tuple[Mapping[str, Any], ...]]:
        return [_outcomes(thread) if thread else () for thread in map(self._thread, ids)]

    async def labelled(self, scope: bytes | None, task: str, limit: int) -> list[Summary]:
        found = self._listed(scope, lambda it: it.task == task)
        return [_summary(thread) for thread in found[:limit]]

    async def grade(self, scope: bytes | None, id: str, grade: Grade) -> str | None:
        thread = self._thread(id)
        if thread is None or not thread.turns or scope not in (None, thread.scope):
            return None
        self._memory.add_grade(thread, grade)
        return thread.conversation.hex()

    async def conversation(self, id: str) -> Conversation | None:
        thread = self._thread(id)
        if thread is None or not thread.turns:
            return None
        return Conversation(
            summary=_summary(thread),
            outcomes=_outcomes(thread),
            last_sent=thread.trail.last,
            entries=self._entries(thread),
        )

    async def forget(self, id: str) -> bool:
        thread = self._thread(id)
        if thread is None:
            return False
        self._memory.forget(thread.conversation)
        if thread.root not in self._memory.grown:
            # What the root holds goes with the last conversation that grew from it.
            self._memory.drop(thread.root)
        return True

    def health(self) -> Health:
        let_go = self._memory.let_go
        return Health("up", 0, {"let_go": let_go} if let_go else {}, False)

    def _thread(self, id: str) -> Thread | None:
        """By public id, or the latest that grew from a root of that id."""
        try:
            link = bytes.fromhex(id)
        except ValueError:
            return None
        threads = self._memory.threads
        grown = [threads[conversation] for conversation in self._memory.grown.get(link, ())]
        return max(grown, key=lambda thread: thread.last_at, default=threads.get(link))

    def _entries(self, thread: Thread) -> dict[bytes, Entry]:
        """What was said, the first request's under the root included."""
        root = self._memory.threads.get(thread.root)
        return {**(root.entries if root else {}), **thread.entries}


def _outcomes(thread: Thread) -> tuple[Mapping[str, Any], ...]:
    return tuple(orjson.loads(outcome) for _, outcome in thread.outcomes)


def _summary(thread: Thread) -> Summary:
    last: Mapping[str, Any] = orjson.loads(thread.outcomes[-1][1]) if thread.outcomes else {}
    return Summary(
        thread.conversation.hex(), thread.scope, thread.turns, thread.first_at, thread.last_at,
        last, thread.grade,
    )  # fmt: skip
