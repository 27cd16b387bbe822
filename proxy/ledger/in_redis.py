"""The ledger that workers and replicas share: Redis 7 and 8, Valkey, Sentinel, Cluster.

    settle     one script in one exchange; on a Cluster one more, for what has the scope's hash tag
    keep       one script in one exchange; what the store does not take in time is queued
    remember   queued, written in the background: one pipeline for many turns, one EXPIRE a key
    known      from this worker's memory: a verdict, once seen, holds for ever

The store is never needed. Where it does not answer within `timeout` this worker's own memory
settles the turn, and a breaker keeps later requests from waiting; what was settled and sent
meanwhile is queued, within bounds, and put when the store is back, where it knows of nothing else.
A store that lost its data in mid-conversation is told again what stood. Nothing raises for the
store's trouble.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from msgspec.structs import replace
from redis import exceptions as trouble

from proxy.errors import SettingsError
from proxy.ledger import codec
from proxy.ledger.address import parse
from proxy.ledger.breaker import Breaker
from proxy.ledger.browse import Browser, Place
from proxy.ledger.codec import Codec
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
from proxy.ledger.pending import Job, Late, Note, Pending, Untaken
from proxy.ledger.remembering import Remembering
from proxy.ledger.scripts import KEEP, SETTLE, Command, Keys, Script
from proxy.ledger.settling import Settling
from proxy.ledger.store import TROUBLE, Store, later, opened, raise_later

_ROUNDS = 4
_BATCH, _BATCH_BYTES = 64, 512 * 1024
_MIB = 1024 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Options:
    url: str = field(repr=False)
    """Where the store is; see `store` for the forms."""

    ttl: float = 7 * 86_400
    """Seconds that a conversation is kept after its last turn."""

    timeout: float = 0.050
    """Seconds that a request waits for the store."""

    history: Literal["full", "digests"] = "full"
    """`digests` leaves no message text at rest. The text of a REPLACE is part of its verdict."""

    encryption_key: str | None = field(default=None, repr=False)
    """32 bytes in base64 or hex: verdicts, records, messages and outcomes are encrypted at rest."""

    prefix: str = "lethe"
    """What every key begins with."""

    max_queue: int = 10_000
    """Writes that wait while the store is away; the oldest are let go first."""

    max_queue_bytes: int = 64 * _MIB
    """Bytes of these."""

    max_known: int = 100_000
    """Conversations that this worker remembers by itself."""

    max_known_bytes: int = 64 * _MIB
    """Bytes of these, estimated from above."""

    max_listed: int = 100_000
    """Conversations in each index that lists are read from."""

    breaker_first: float = 1.0
    """Seconds until the second probe of a store that does not answer; doubled each time."""

    breaker_most: float = 10.0
    """The most seconds between probes."""

    connect_timeout: float = 2.0
    """Seconds to connect. No request waits for that."""

    write_timeout: float = 5.0
    """Seconds for one write in the background, and for what the control plane reads."""

    drain: float = 2.0
    """Seconds to write what is queued when the ledger closes."""


class InRedis(Recalling):
    """`clock` gives seconds since the epoch. Raises SettingsError for what cannot be used."""

    def __init__(self, options: Options, clock: Callable[[], float]) -> None:
        if min(options.ttl, options.timeout, options.max_queue, options.max_known) <= 0:
            raise SettingsError("the ledger's ttl, timeout and bounds must be above 0")
        self._options, self._clock = options, clock
        self._ttl = math.ceil(options.ttl)
        self._keys = Keys(options.prefix)
        self._codec = Codec(options.encryption_key)
        self._memory = Memory(options.max_known, options.max_known_bytes, options.ttl, clock)
        self._remembering = Remembering(
            self._memory, self._codec, self._keys, self._ttl, options.max_listed
        )
        self._lessons = Lessons(clock)
        self._pending = Pending(options.max_queue, options.max_queue_bytes)
        self._writing: list[Job] = []
        self._failures: Counter[str] = Counter()
        self._breaker = Breaker(options.breaker_first, options.breaker_most)
        self._tripped, self._wanted = asyncio.Event(), asyncio.Event()
        self._store: Store = opened(parse(options.url), self._lost, options.connect_timeout)
        self._browser = Browser(self._read, self._keys, self._codec)
        self._work: asyncio.Task[None] | None = None

    # Life.

    async def open(self) -> None:
        """Connect, for a bounded time; without the store, go on without it."""
        if not await self._probe():
            self._tripped.set()
        # Held here and awaited in `close`: it lives as long as the ledger.
        self._work = asyncio.create_task(self._run())  # noqa: TID251

    async def close(self) -> None:
        """Write what is queued, for a bounded time, and let go."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
            self._work = None
        with suppress(*TROUBLE):
            async with asyncio.timeout(self._options.drain):
                while self._pending and not self._breaker.open:
                    await self._write()
        self._failures["unwritten"] += len(self._pending)
        await self._store.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_connected())
            group.create_task(self._keep_writing())

    async def _keep_connected(self) -> None:
        while True:
            await self._tripped.wait()
            await asyncio.sleep(self._breaker.wait())
            self._tripped.clear()
            if await self._probe():
                self._wanted.set()
            else:
                self._tripped.set()

    async def _probe(self) -> bool:
        try:
            await self._store.connect(self._options.timeout)
        except Exception as error:
            # Whatever comes of connecting to something strange: the probes go on.
            self._breaker.probe_failed(self._count(error) == "timeout")
            return False
        self._breaker.probe_worked()
        return True

    def _lost(self) -> None:
        """A connection broke: connect again before a request needs it."""
        self._breaker.trip(slow=False)
        self._tripped.set()

    def _count(self, error: Exception) -> str:
        match error:
            case TimeoutError() | trouble.TimeoutError():
                kind = "timeout"
            case (
                trouble.ConnectionError() | trouble.RedisClusterException() | OSError() | EOFError()
            ):
                kind = "connection"
            case _:
                kind = "refused"
        self._failures[kind] += 1
        return kind

    # Settle.

    async def settle(self, ask: Ask) -> Settled:
        if self._breaker.open:
            return self._settle_alone(ask)
        settling = Settling(ask, self._memory, self._codec, self._keys, self._ttl)
        try:
            await self._settle_shared(settling)
        except TROUBLE as error:
            self._troubled(error)
            return self._settle_alone(ask)
        self._breaker.worked()
        if settling.lost is not None:
            self._failures["lost"] += 1
            self._push(settling.lost)
        self._failures["unreadable"] += settling.unreadable
        self._failures["diverged"] += settling.diverged
        return settling.settled()

    async def _settle_shared(self, settling: Settling) -> None:
        deadline = self._deadline()
        if self._store.apart:
            await self._settle_apart(settling, deadline)
            return
        for _ in range(_ROUNDS):
            if not settling.take(await self._call(settling.command(), deadline)):
                break

    async def _settle_apart(self, settling: Settling, deadline: float) -> None:
        """Two exchanges, one a node; a third only where a hint alone leads to a record."""
        within = self._left(deadline)
        replies = await self._store.many(settling.scope_commands(), within)
        raise_later(replies)
        led = settling.take_scope(replies)
        for _ in range(_ROUNDS):
            if not settling.take_root(await self._call(settling.root_command(), deadline)):
                break
        for place, link, key in led:
            if not settling.wants_hint:
                break
            command = settling.hint_command(link, key)
            settling.take_hint(place, await self._call(command, deadline))

    async def _call(self, command: Command, deadline: float, script: Script = SETTLE) -> Any:
        try:
            return await self._store.call(command, self._left(deadline))
        except trouble.NoScriptError:
            return await self._store.call(script.in_full(command), self._left(deadline))

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.timeout

    def _left(self, deadline: float) -> float:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left

    def _settle_alone(self, ask: Ask) -> Settled:
        """By this worker's own memory; what is put there is put in the store when it is back."""
        standing, echoes = self._memory.standing, self._memory.echoes
        fresh = tuple(offer for offer in ask.offers if standing(offer.links) is None)
        known = echoes.echoed([echo.link for echo in ask.echoes])
        pinned = echoes.pinned(ask.conversation) if ask.pins else {}
        settled = self._memory.settle(ask)
        put = tuple(offer for offer in fresh if offer.verdict is not None) if settled.won else ()
        found = {link: it for link, it in settled.echoes.items() if link not in known}
        pins = {name: it for name, it in settled.pins.items() if name not in pinned}
        if put or found or pins:
            self._push(Late(ask.root, ask.conversation, put, found, pins))
        self._failures["alone"] += 1
        return replace(settled, shared=False)

    def _troubled(self, error: Exception) -> None:
        kind = self._count(error)
        if kind != "refused":
            self._breaker.trip(slow=kind == "timeout")
            self._tripped.set()

    # Keep, and learn.

    async def keep(self, kept: Kept) -> bool:
        id, reply = self._codec.reply(kept.reply)
        held = self._memory.keep(kept, id)
        try:
            taken = await self._keep(self._remembering.keep(kept, id, reply))
        except asyncio.CancelledError:
            # Its client has left, and may come back to another worker.
            self._push(Untaken(kept, held))
            raise
        if not taken:
            self._failures["untaken"] += 1
            self._push(Untaken(kept, held))
        held.stored = taken
        return taken

    async def _keep(self, command: Command) -> bool:
        if self._breaker.open:
            return False
        try:
            await self._call(command, self._deadline(), KEEP)
        except TROUBLE as error:
            self._troubled(error)
            return False
        self._breaker.worked()
        return True

    async def lesson(self, name: str) -> bytes | None:
        raw = await self._waited(("GET", self._keys.lesson(name)))
        if isinstance(raw, bytes):
            read = self._codec.read_lesson(name, raw)
            if read is not None:
                self._lessons.put(name, *read)
            self._failures["unreadable"] += read is None
        return self._lessons.get(name)

    async def learn(self, name: str, value: bytes, seconds: float) -> bool:
        until = self._clock() + seconds
        self._lessons.put(name, value, until)
        lesson, lasts = self._codec.lesson(name, value, until), max(1, math.ceil(seconds))
        return bool(await self._waited(("SET", self._keys.lesson(name), lesson, "EX", lasts)))

    async def _waited(self, command: Command) -> Any:
        """One plain command, for no longer than a request waits; None where it did not work."""
        if self._breaker.open:
            return None
        try:
            return await self._store.call(command, self._options.timeout)
        except TROUBLE as error:
            self._troubled(error)
            return None

    # Remember.

    def remember(self, record: Record) -> None:
        thread = self._memory.remember(record)
        entries = record.entries if self._options.history == "full" else ()
        sent = thread.trail.last or record.sent
        kept = replace(record, sent=sent, entries=entries, outcome=b"")
        self._push(Note(kept, self._codec.outcome(record.outcome)))
        self._memory.shrink(thread)

    def _push(self, job: Job) -> None:
        self._failures["let_go"] += self._pending.push(job)
        self._wanted.set()

    async def _keep_writing(self) -> None:
        wait = 0.0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                while self._pending and not self._breaker.open:
                    await self._write()
                    wait = 0.0
            except Exception as error:
                # Whatever it was, what is queued stays queued and is tried again.
                self._troubled(error)
                wait = min(max(2 * wait, self._options.breaker_first), self._options.breaker_most)
                await asyncio.sleep(wait)
                self._wanted.set()

    async def _write(self) -> None:
        """Write the oldest; what was not written is queued again. Raises TROUBLE."""
        jobs = self._writing = self._pending.take(_BATCH, _BATCH_BYTES)
        try:
            lines = [(job, self._commands(job)) for job in jobs]
            commands = [command for _, own in lines for command in own]
            replies = iter(await self._store.many(commands, self._options.write_timeout))
            done = [(job, [next(replies) for _ in own]) for job, own in lines]
            jobs = [job for job, own in done if not self._is_written(job, own)]
            if any(isinstance(r, trouble.NoScriptError) for _, own in done for r in own):
                await self._store.load(self._options.write_timeout)
            raise_later([reply for _, own in done for reply in own])
        finally:
            self._writing = []
            for job in jobs:
                self._remembering.stored(job.conversation, None)
            self._failures["let_go"] += self._pending.put_back(jobs)

    def _commands(self, job: Job) -> list[Command]:
        """None for what cannot be encoded: it is let go, not all that is queued after it."""
        try:
            match job:
                case Late():
                    return self._remembering.late(job)
                case Untaken():
                    reply = self._codec.reply(job.held.reply)
                    return [self._remembering.keep(job.kept, *reply)]
                case Note():
                    return self._remembering.note(job, self._clock())
        except Exception:
            self._failures["unencodable"] += 1
            return []

    def _is_written(self, job: Job, replies: Sequence[Any]) -> bool:
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if any(isinstance(error, trouble.NoScriptError) or later(error) for error in errors):
            return False
        for error in errors:
            self._count(error)
        match job:
            case Late() if replies and not errors:
                self._failures["diverged"] += self._remembering.disagreeing(job, replies[0])
            case Untaken() if replies and not errors:
                job.held.stored = True
            case Note():
                # 0: the record that this one was written against is not there; it is written whole.
                return not replies or replies[0] != 0
        return True

    # The control plane.

    async def _read(self, commands: Sequence[Command]) -> list[Any]:
        """Raises TROUBLE, the server's own errors among them."""
        replies = await self._store.many(commands, self._options.write_timeout)
        if any(isinstance(reply, trouble.NoScriptError) for reply in replies):
            await self._store.load(self._options.write_timeout)
            replies = await self._store.many(commands, self._options.write_timeout)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _or(self, otherwise: _T, reading: Awaitable[_T]) -> _T:
        try:
            return await reading
        except TROUBLE as error:
            self._count(error)
            return otherwise

    async def set_policy(self, scope: bytes, policy: str) -> bool:
        command = ("SET", self._keys.policy(scope), codec.policy(policy))
        if not await self._waited(command):
            return False
        self._memory.set_setting(scope, policy)
        return True

    async def recall(self, conversation: bytes, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        return await self._or({}, self._recall(conversation, digests))

    async def _recall(self, conversation: bytes, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        thread = self._memory.threads.get(conversation)
        place = Place(thread.root, conversation) if thread else None
        place = place or await self._browser.find(conversation.hex())
        if place is None or not digests:
            return {}
        wanted = set(digests)
        queued = self._pending.entries(place.root, conversation)
        found = {entry.digest: entry for entry in queued if entry.digest in wanted}
        return {**await self._browser.entries(place, digests), **found}

    async def conversations(
        self, scope: bytes | None, limit: int, before: float | None = None
    ) -> list[Summary]:
        since = self._clock() - self._ttl
        return await self._or([], self._browser.listed(scope, limit, before, since))

    async def conversation(self, id: str) -> Conversation | None:
        return await self._or(None, self._browser.opened(id))

    async def accounts(self, ids: Sequence[str]) -> list[tuple[Mapping[str, Any], ...]]:
        return await self._or([() for _ in ids], self._browser.accounts(ids))

    async def labelled(self, scope: bytes | None, task: str, limit: int) -> list[Summary]:
        since = self._clock() - self._ttl
        return await self._or([], self._browser.labelled(scope, task, limit, since))

    async def grade(self, scope: bytes | None, id: str, grade: Grade) -> str | None:
        return await self._or(None, self._grade(scope, id, grade))

    async def _grade(self, scope: bytes | None, id: str, grade: Grade) -> str | None:
        place = await self._browser.find(id)
        if place is None or not await self._browser.grade(place, scope, grade):
            return None
        return place.conversation.hex()

    async def forget(self, id: str) -> bool:
        return await self._or(False, self._forget(id))

    async def _forget(self, id: str) -> bool:
        place = await self._browser.find(id)
        if place is None:
            return False
        self._pending.drop(place.conversation)
        self._memory.forget(place.conversation)
        return await self._browser.forget(place)

    def health(self) -> Health:
        state = "up" if not self._breaker.open else "slow" if self._breaker.slow else "down"
        failures = {kind: count for kind, count in self._failures.items() if count}
        return Health(state, len(self._pending) + len(self._writing), failures, shared=True)
