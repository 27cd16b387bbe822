"""The spine with a ledger that fits in one dict: what a worker does with a request, in two halves.

The halves lie on either side of the ledger exchange, so that a test can interleave workers as it
likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core import artifact, policy, turn
from proxy.core.sent import Sent
from proxy.core.turn import Sealed, Turn
from proxy.core.verdict import Verdict
from proxy.memo import Memo

SCOPE = b"scope".ljust(16, b"\0")
RENDERED = ("reasoning_effort", "tool_choice")
Links = tuple[bytes, ...]
Store = dict[bytes, Verdict]
Settle = Callable[[Store, Sequence[tuple[Links, Verdict | None]]], dict[bytes, Verdict]]


def first_writer_wins(
    store: Store, offers: Sequence[tuple[Links, Verdict | None]]
) -> dict[bytes, Verdict]:
    """By the ledger's contract: the verdict on the latest link stands, else the offered is put."""
    standing = {}
    for links, verdict in offers:
        held = next((store[link] for link in reversed(links) if link in store), None)
        if held is None and verdict is not None:
            held = store[links[-1]] = verdict
        if held is not None:
            standing[links[0]] = held
    return standing


@dataclass
class Ledger:
    """Verdicts by link, and what was last sent by the link of its last message."""

    verdicts: Store = field(default_factory=dict)
    sent: dict[bytes, Sent] = field(default_factory=dict)

    def last_sent(self, it: Turn) -> Sent | None:
        return next((self.sent[m.link] for m in reversed(it.messages) if m.link in self.sent), None)


@dataclass
class Worker:
    """One process: its policy, the ledger that it shares, and what it remembers of bodies."""

    rule: str
    ledger: Ledger = field(default_factory=Ledger)
    memo: Memo | None = None
    settle: Settle = first_writer_wins
    pays: turn.Pays = turn.unknown

    def proposed(self, body: bytes) -> tuple[Turn, Mapping[int, Verdict | None]]:
        it = self.memo.read(body, SCOPE) if self.memo else turn.read(body, SCOPE)
        rule = policy.parse(self.rule)
        return it, turn.propose(it, rule, artifact.judge, lambda _: False, self.pays)

    def sealed(self, it: Turn, proposal: Mapping[int, Verdict | None]) -> Sealed:
        rows = [(it.links(it.steps[index]), verdict) for index, verdict in proposal.items()]
        by_link = self.settle(self.ledger.verdicts, rows)
        standing = {
            index: by_link[links[0]]
            for index, (links, _) in zip(proposal, rows, strict=True)
            if links[0] in by_link
        }
        front = turn.front_of(it, RENDERED, False, turn.tools_element(it.fields.get("tools", b"")))
        last = self.ledger.last_sent(it)
        sealed = turn.seal(it, standing, front, last, untouched=self.rule == "off")
        link = it.messages[-1].link if it.messages else it.root
        self.ledger.sent[link] = Sent(link, sealed.outgoing, sealed.elements, 0.0, "")
        return sealed

    def send(self, body: bytes) -> Sealed:
        return self.sealed(*self.proposed(body))
