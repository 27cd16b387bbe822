"""What a ledger promises: verdicts are offered once and hold for ever; what left is remembered.

Two verbs serve traffic. `settle` offers verdicts and learns what stands, in one exchange: for every
offer, if any of its links bears a verdict, the one on the latest link stands; else the offered
verdict is put on the offer's last link. `remember` notes what left and what came back, off the
client's path. The rest serves the control plane. A link is globally unique (its root carries the
scope), and a verdict is immutable, so every cache of a verdict is valid for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from proxy.core.sent import Sent
from proxy.core.verdict import Verdict


class Offer(msgspec.Struct, frozen=True, gc=False):
    """One step: the links of its visible messages in chain order, and the verdict proposed for it.

    Without a verdict the step only asks what stands, and nothing is put.
    """

    links: tuple[bytes, ...]
    verdict: Verdict | None


class Ask(msgspec.Struct, frozen=True):
    """What one turn asks of the ledger.

    `root` is the link of the first message, `conversation` that of the first assistant message
    (equal to `root` where there is none yet). Both are 16
    bytes. `chain` holds the link of every message, oldest first. `hints` are digests of session ids
    and tool-call ids within the scope, strongest first, under which a branch whose early history
    changed can be found. `setting` is the set policy (see `Settled`) under which the offers were
    made: where the store holds another, nothing is put, and the answer tells it, so that the turn
    can be judged anew.
    """

    scope: bytes
    root: bytes
    conversation: bytes
    chain: tuple[bytes, ...]
    offers: tuple[Offer, ...]
    hints: tuple[bytes, ...] = ()
    setting: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """What holds. `verdicts` maps the first link of each offered step to the verdict in force; a
    step that only asked and bears none is absent.

    `won` counts the offers that were put by this very call, `put` has their first links.
    `last_sent` is the record at the deepest link of the chain that has one, else the one found
    by a hint (`by_hint` is then true), else None. `setting` is the policy that the scope's key
    last set with `x-lethe-set-policy`, None where it set none. `shared` is false where the store
    did not answer and only this worker's own memory speaks.
    """

    verdicts: Mapping[bytes, Verdict]
    won: int
    last_sent: Sent | None
    by_hint: bool
    setting: str | None
    shared: bool
    tip: Sent | None = None
    put: frozenset[bytes] = frozenset()


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One message at rest: as it left, and as it came where that differs. JSON text, UTF-8
    bytes.
    """

    digest: bytes
    left: bytes
    came: bytes | None = None


class Record(msgspec.Struct, frozen=True):
    """What one exchange leaves behind. `outcome` is a JSON-able account of the exchange (no text,
    no key).

    `entries` holds the elements that were new on this branch; empty under `history = "digests"`.
    """

    scope: bytes
    root: bytes
    conversation: bytes
    sent: Sent
    outcome: Mapping[str, Any]
    entries: tuple[Entry, ...] = ()
    hints: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """One conversation in a list. `id` is the public id: 32 hex digits of its link."""

    id: str
    scope: bytes
    turns: int
    first_at: float
    last_at: float
    last: Mapping[str, Any]


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

    async def settle(self, ask: Ask) -> Settled:
        """Never raises for the store's trouble: without it, the offers stand (law 6) and `shared`
        is false.
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

    async def forget(self, id: str) -> bool:
        """Delete one conversation with all that it holds. False where there is none."""
        ...

    def health(self) -> Health: ...
