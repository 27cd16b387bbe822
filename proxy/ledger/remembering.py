"""What a turn leaves behind, as commands for the shared store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.replies import Reply
from proxy.core.sent import Sent
from proxy.ledger.codec import NO_PARENT, Body, Codec
from proxy.ledger.contract import Kept, Record
from proxy.ledger.local import MAX_OUTCOMES, Memory
from proxy.ledger.pending import Late, Note
from proxy.ledger.scripts import INDEX, KEEP, REMEMBER, SETTLE, Command, Keys, told
from proxy.ledger.trail import REBASE, Patch, difference, whole


@dataclass(frozen=True, slots=True)
class Remembering:
    """`memory` is asked, and told, which record of a conversation the store holds.

    `ttl` is in seconds, `max_listed` counts the conversations of an index.
    """

    memory: Memory
    codec: Codec
    keys: Keys
    ttl: int
    max_listed: int

    def disagreeing(self, job: Late, reply: Sequence[Any]) -> int:
        """How many of these came too late: another stands. `reply` is the script's."""
        rows = zip(job.offers, reply[2], reply[3], strict=True)
        read = self.codec.read_verdict
        verdicts: list[bool] = [
            place > 0 and read(offer.links[place - 1], value) != offer.verdict
            for offer, value, place in rows
        ]
        return sum(verdicts) + (self._others(job, *reply[7:]) if job.found or job.pins else 0)

    def _others(self, job: Late, echoes: Sequence[Any], pins: Sequence[Any]) -> int:
        """How many of these findings and pins came too late."""
        ids = [self.codec.reply(reply)[0] if reply else b"" for reply in job.found.values()]
        found: list[bool] = [row[1][1:] != id for id, row in zip(ids, echoes, strict=True)]
        read = self.codec.read_pin
        pinned = [
            raw is not None and read(job.root, name, raw) != value
            for (name, value), raw in zip(job.pins.items(), pins, strict=True)
        ]
        return sum(found) + sum(pinned)

    def late(self, job: Late) -> list[Command]:
        """Offer what was settled without the store, as `settle` would have.

        It was told already: so an echo goes without its keys, and nothing is taken from the root.
        """
        mine, outcomes, *_ = self.keys.all_of(job.root, job.conversation)
        offers: list[bytes] = []
        for offer in job.offers:
            if offer.verdict is not None:
                last = offer.links[-1]
                offers += (b"".join(offer.links), self.codec.verdict(last, offer.verdict))
        count = len(offers) // 2
        more = told([self._found(*found) for found in job.found.items()], self._pins(job))
        keys = [mine, outcomes, mine]
        return [SETTLE.command(keys, self.ttl, b"", b"", b"", b"", 0, count, *offers, *more)]

    def _found(self, link: bytes, reply: Reply | None) -> tuple[bytes, bytes, bytes, bytes]:
        return (link, b"", *(self.codec.reply(reply) if reply else (b"", b"")))

    def _pins(self, job: Late) -> list[tuple[bytes, bytes]]:
        form = self.codec.pin
        return [(name.encode(), form(job.root, name, v)) for name, v in job.pins.items()]

    def keep(self, kept: Kept, id: bytes, reply: bytes) -> Command:
        """Keep a reply, given its id and its form at rest."""
        key = self.keys.conversation(kept.root, kept.conversation)
        return KEEP.command([key], self.ttl, id, reply, *kept.keys)

    def note(self, job: Note, now: float) -> list[Command]:
        """The turn under its root, its place in the indexes, and how it can be found again."""
        it, keys, ttl = job.record, self.keys, self.ttl
        at, grown = repr(it.sent.at), it.root != it.conversation
        root, member = it.root + it.root, it.conversation + it.root
        found = keys.hint_value(it.root, it.conversation, it.sent.link)
        hints = [keys.hint(it.scope, hint) for hint in it.hints]
        index = (
            ttl, self.max_listed, at, member, root if grown else b"",
            repr(now - ttl), found,
        )  # fmt: skip
        indexes = [keys.index(None)]
        if it.task:
            indexes.append(keys.task(self.codec.label(it.task)))
        return [
            self._remember(it, job.outcome, at),
            INDEX.command([keys.index(it.scope), *hints], *index),
            *(INDEX.command([key], *index) for key in indexes),
            ("SET", keys.root_of(it.conversation), it.root, "EX", ttl),
        ]

    def _remember(self, it: Record, outcome: bytes, at: str) -> Command:
        form, sent = self.codec, it.sent
        parent, depth, patch = self._grown(it.conversation, sent)
        pairs: list[bytes] = []
        if parent != sent.outgoing:
            body = form.body(sent.outgoing, Body(parent or NO_PARENT, depth, patch))
            pairs += (b"d" + sent.outgoing, body)
        for entry in it.entries:
            pairs += (b"e" + entry.digest, form.entry(entry))
        self.stored(it.conversation, (sent, depth))
        return REMEMBER.command(
            self.keys.all_of(it.root, it.conversation), self.ttl, MAX_OUTCOMES, at, outcome,
            it.scope, it.conversation, parent, b"s" + sent.link, form.head(sent), *pairs,
        )  # fmt: skip

    def _grown(self, conversation: bytes, sent: Sent) -> tuple[bytes, int, Patch]:
        """The record in the store that these elements grew from, if any, and what is new."""
        thread = self.memory.threads.get(conversation)
        base, depth = (thread and thread.stored) or (None, 0)
        if base is None or depth >= REBASE:
            return b"", 0, whole(sent.elements)
        if base.outgoing != sent.outgoing:
            depth += 1
        return base.outgoing, depth, difference(base.elements, sent.elements)

    def stored(self, conversation: bytes, stored: tuple[Sent, int] | None) -> None:
        """Note what the store holds now; None where that is not known any more."""
        thread = self.memory.threads.get(conversation)
        if thread is not None:
            thread.stored = stored
