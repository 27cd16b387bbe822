"""What a ledger promises: verdicts are offered once and hold for ever; what left is remembered.

Two verbs serve every turn. `settle` offers verdicts and learns what stands, in one exchange: for
every offer, if any of its links bears a verdict, the one on the latest link stands; else the
offered verdict is put on the offer's last link. `remember` notes what left and what came back, off
the client's path. A link is globally unique (its root carries the scope), and a verdict is
immutable, so every cache of a verdict is valid for ever.

Where replies are restored, `keep` stores one before its client has its end, and a later `settle`
finds it for the message that echoes it. What was found is settled like a verdict, and so is a miss:
it stands on the echo's link, whoever asks. So it is with a pin, a small value of the conversation's
own: the first one offered under a name stands. `lesson` and `learn` are of no conversation, and
what they share expires. The rest serves the control plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from proxy.core.replies import Reply
from proxy.core.sent import Sent
from proxy.core.verdict import Verdict


class Offer(msgspec.Struct, frozen=True, gc=False):
    """One step: the links of its visible messages in chain order, and the verdict proposed for it.

    Without a verdict the step only asks what stands, and nothing is put.
    """

    links: tuple[bytes, ...]
    verdict: Verdict | None


class Echo(msgspec.Struct, frozen=True, gc=False):
    """An assistant message that this worker has no finding for.

    `link` is its own. `keys` (16 bytes each) are those under which the reply that it echoes may
    have been kept, strongest first. A key covers the link before the message, and so scope and
    conversation: it is as unique as a link. Without a key nothing is found.
    """

    link: bytes
    keys: tuple[bytes, ...]


class Kept(msgspec.Struct, frozen=True):
    """A reply to keep, under each of `keys` that no earlier reply has, strongest first.

    `root` and `conversation` are those of the turn that it answers, as that turn's `Ask` had them:
    of a first turn both are the root.
    """

    scope: bytes
    root: bytes
    conversation: bytes
    keys: tuple[bytes, ...]
    reply: Reply


class Ask(msgspec.Struct, frozen=True):
    """What one turn asks of the ledger.

    `root` is the link of the first message, `conversation` that of the first assistant message
    (equal to `root` where there is none yet). Both are 16
    bytes. `chain` holds the link of every message, oldest first. `hints` are digests of session ids
    and tool-call ids within the scope, strongest first, under which a branch whose early history
    changed can be found. `setting` is the set policy (see `Settled`) under which the offers were
    made: where the store holds another, no verdict is put, and the answer tells it, so that the
    turn can be judged anew. `echoes` and `pins` are settled all the same. `pins` maps short ASCII
    names to what is to stand under them if nothing does, a few KB at most; None only asks.
    """

    scope: bytes
    root: bytes
    conversation: bytes
    chain: tuple[bytes, ...]
    offers: tuple[Offer, ...]
    hints: tuple[bytes, ...] = ()
    setting: str | None = None
    echoes: tuple[Echo, ...] = ()
    pins: Mapping[str, bytes | None] = {}


class Settled(msgspec.Struct, frozen=True):
    """What holds. `verdicts` maps the first link of each offered step to the verdict in force; a
    step that only asked and bears none is absent.

    `won` counts the offers that were put by this very call, `put` has their first links.
    `last_sent` is the record at the deepest link of the chain that has one, else the one found
    by a hint (`by_hint` is then true), else None. `setting` is the policy that the scope's key
    last set with `x-lethe-set-policy`, None where it set none. `shared` is false where the store
    did not answer and only this worker's own memory speaks. `tip` is the record that the
    conversation sent last of all, where that is not `last_sent`.

    `echoes` maps the link of each asked echo to the reply that was found for it, None for a miss;
    `missed` counts those that this very call settled as a miss. `pins` has what stands under each
    asked name; one under which nothing does is absent.
    """

    verdicts: Mapping[bytes, Verdict]
    won: int
    last_sent: Sent | None
    by_hint: bool
    setting: str | None
    shared: bool
    tip: Sent | None = None
    put: frozenset[bytes] = frozenset()
    echoes: Mapping[bytes, Reply | None] = {}
    missed: int = 0
    pins: Mapping[str, bytes] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One message at rest: as it left, and as it came where that differs. JSON text, UTF-8
    bytes.
    """

    digest: bytes
    left: bytes
    came: bytes | None = None


class Record(msgspec.Struct, frozen=True):
    """What one exchange leaves behind. `outcome` is its account, a JSON object in UTF-8 (no text,
    no key), `task` the label in it.

    `entries` holds the elements that were new on this branch; empty under `history = "digests"`.
    """

    scope: bytes
    root: bytes
    conversation: bytes
    sent: Sent
    outcome: bytes
    entries: tuple[Entry, ...] = ()
    hints: tuple[bytes, ...] = ()
    task: str = ""


class Grade(msgspec.Struct, frozen=True, gc=False):
    """Whether what a conversation was for succeeded, as somebody told it at `at` (seconds since the
    epoch); `score` is a number on that one's own scale, if there is one.
    """

    success: bool
    score: float | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """One conversation in a list. `id` is the public id: 32 hex digits of its link."""

    id: str
    scope: bytes
    turns: int
    first_at: float
    last_at: float
    last: Mapping[str, Any]
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, its outcomes oldest first, the last request's elements, its messages by
    digest.
    """

    summary: Summary
    outcomes: tuple[Mapping[str, Any], ...]
    last_sent: Sent | None
    entries: Mapping[bytes, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Health:
    """`state` is "up", "slow" or "down"; `queued` counts writes that wait; `failures` counts by
    kind.
    """

    state: str
    queued: int
    failures: Mapping[str, int]
    shared: bool


class Ledger(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None:
        """Write what is queued, for a bounded time, and let go."""

    def known(self, links: Sequence[bytes]) -> Mapping[bytes, Verdict]:
        """Verdicts that this worker knows already, by link. No I/O."""
        ...

    def setting(self, scope: bytes) -> str | None:
        """The set policy of a scope as this worker last saw it. No I/O."""
        ...

    def echoed(self, links: Sequence[bytes]) -> Mapping[bytes, Reply | None]:
        """What was found for echoes, as far as this worker knows already, by link; None: a miss.
        No I/O.
        """
        ...

    def pinned(self, root: bytes, conversation: bytes) -> Mapping[str, bytes]:
        """What this worker knows to be pinned to the conversation. No I/O.

        The pins of the first turn, under the root, are among them once a turn of the conversation
        itself has asked for them.
        """
        ...

    async def settle(self, ask: Ask) -> Settled:
        """Never raises for the store's trouble: without it, the offers stand (law 6) and `shared`
        is false. An echo is then what this worker kept itself, or a miss; a pin what it knows, or
        what was offered.
        """
        ...

    async def keep(self, kept: Kept) -> bool:
        """Keep a reply, within the ledger's timeout; this worker has it before the first await.

        False where the store did not take it in time: it is then queued. Never raises for the
        store's trouble.
        """
        ...

    async def lesson(self, name: str) -> bytes | None:
        """What was last learned under a name and has not expired. Where the store does not answer
        within the timeout, or has nothing, what this worker learned or read itself.
        """
        ...

    async def learn(self, name: str, value: bytes, seconds: float) -> bool:
        """Share a small value for so long, in the place of an earlier one. False where the store
        did not take it: then only this worker has it.
        """
        ...

    def remember(self, record: Record) -> None:
        """Queue what left; written off the path. Bounded: the oldest is let go and counted."""

    async def recall(self, conversation: bytes, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        """Messages at rest, by element digest. Control plane and breaks only."""
        ...

    async def set_policy(self, scope: bytes, policy: str) -> bool:
        """Keep the policy that a key set for itself. False where the store did not take it."""
        ...

    async def conversations(
        self, scope: bytes | None, limit: int, before: float | None = None
    ) -> list[Summary]:
        """The most recently active first; of one scope or of all; `before` pages by `last_at`."""
        ...

    async def conversation(self, id: str) -> Conversation | None:
        """By public id, or by the id of a root (then the latest conversation that grew from it)."""
        ...

    async def accounts(self, ids: Sequence[str]) -> list[tuple[Mapping[str, Any], ...]]:
        """The outcomes of each of these conversations, oldest first; none of one that is not
        there. For a few at a time: an account takes some KB.
        """
        ...

    async def labelled(self, scope: bytes | None, task: str, limit: int) -> list[Summary]:
        """Conversations that last bore a task's label, the most recently active first; of one
        scope or of all.
        """
        ...

    async def grade(self, scope: bytes | None, id: str, grade: Grade) -> str | None:
        """Keep with a conversation, as long as that one, how it ended; in the place of an earlier
        grade. Its public id; None where there is none, or none of this scope.
        """
        ...

    async def forget(self, id: str) -> bool:
        """Delete one conversation with all that it holds. False where there is none."""
        ...

    def health(self) -> Health: ...
