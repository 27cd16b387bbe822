"""Small words from which the ledger's tests are built: links, elements, asks, records."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from proxy.core.replies import Reply
from proxy.core.sent import Element, Part, Sent
from proxy.core.verdict import Verdict
from proxy.ledger.contract import Ask, Echo, Entry, Kept, Ledger, Offer, Record, Settled

SCOPE = b"scope-of-one-key"
OTHER = b"scope-of-another"
PATIENCE = 20.0
"""Seconds that something that happens in the background may take."""

NOW = 1_800_000_000.0


class Clock:
    """Seconds since the epoch, moved by hand."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def digest(*words: object, size: int = 16) -> bytes:
    return hashlib.blake2b(repr(words).encode(), digest_size=size).digest()


def links(count: int, branch: str = "main") -> tuple[bytes, ...]:
    """The chain of a history: a user message, then assistant and tool in turn."""
    return tuple(digest("link", branch, number) for number in range(count))


def fork(chain: Sequence[bytes], at: int, count: int, branch: str) -> tuple[bytes, ...]:
    """Another history with the same first `at` messages."""
    return (*chain[:at], *links(count, branch)[at:])


def element(name: object, role: str = "user", size: int = 120) -> Element:
    return Element(
        Part.MESSAGE, digest("digest", name), digest("said", name), digest("gist", name, size=8),
        size, 7, role,
    )  # fmt: skip


def elements(*names: object) -> tuple[Element, ...]:
    return tuple(element(name, role=f"role {name}") for name in names)


def sent(link: bytes, these: Sequence[Element], at: float = NOW, **more: Any) -> Sent:
    outgoing = digest("outgoing", [(e.digest, e.size, e.role) for e in these])
    return Sent(link, outgoing, tuple(these), at, "provider", **more)


def ask(
    chain: Sequence[bytes], *offers: Offer, hints: Sequence[bytes] = (), scope: bytes = SCOPE,
    setting: str | None = None, echoes: Sequence[Echo] = (), pins: Mapping[str, bytes | None] = {},
) -> Ask:  # fmt: skip
    """A turn of the history `chain`, which opens with one user message."""
    return Ask(
        scope, chain[0], conversation_of(chain), tuple(chain), offers, tuple(hints), setting,
        tuple(echoes), pins,
    )  # fmt: skip


def reply(name: object, size: int = 10) -> Reply:
    arguments = (f'{{"path":  "{name}"}}', "{}")
    return Reply("reasoning_content", f"thought of {name} " + "x" * size, b"", arguments)


def keys(*names: object) -> tuple[bytes, ...]:
    return tuple(digest("key", name) for name in names)


def kept(chain: Sequence[bytes], it: Reply, *names: object, scope: bytes = SCOPE) -> Kept:
    """The reply to the turn `chain`, under keys of these names."""
    return Kept(scope, chain[0], conversation_of(chain), keys(*names), it)


def echo(chain: Sequence[bytes], at: int, *names: object) -> Echo:
    """The message at a place of the history, looked for under keys of these names."""
    return Echo(chain[at], keys(*names))


def conversation_of(chain: Sequence[bytes]) -> bytes:
    return chain[1] if len(chain) > 1 else chain[0]


def offer(chain: Sequence[bytes], first: int, end: int, verdict: Verdict | None) -> Offer:
    return Offer(tuple(chain[first:end]), verdict)


def record(
    chain: Sequence[bytes], these: Sequence[Element], at: float = NOW,
    outcome: dict[str, Any] | None = None, entries: Sequence[Entry] = (),
    hints: Sequence[bytes] = (), scope: bytes = SCOPE, **more: Any,
) -> Record:  # fmt: skip
    return Record(
        scope, chain[0], conversation_of(chain), sent(chain[-1], these, at, **more),
        orjson.dumps(outcome or {"at": at}), tuple(entries), tuple(hints),
        (outcome or {}).get("task", ""),
    )  # fmt: skip


async def written(*ledgers: Ledger) -> None:
    """Wait until all that was remembered is where others find it."""
    async with asyncio.timeout(PATIENCE):
        while any(ledger.health().queued for ledger in ledgers):  # noqa: ASYNC110  (it is polled)
            await asyncio.sleep(0.002)


async def settled(ledger: Ledger, question: Ask) -> Settled:
    """Settle by the shared store, waiting until it is reached."""
    async with asyncio.timeout(PATIENCE):
        while not (answer := await ledger.settle(question)).shared:  # noqa: ASYNC110  (as turns do)
            await asyncio.sleep(0.002)
    return answer
