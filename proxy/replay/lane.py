"""One policy's way through a session: the spine of live traffic, with a ledger of its own.

Read, propose, settle, seal, remember: the steps and the rooms are those of a request that is
forwarded (`proxy/prune.py`); only nothing is sent. All of a session is found under one hint, as
live under the header that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.core import turn
from proxy.core.policy import Name, Policy
from proxy.core.sent import Element, Sent
from proxy.core.turn import Judge, Sealed, Turn
from proxy.core.verdict import Verdict
from proxy.ledger.contract import Ask, Offer, Record, Settled
from proxy.ledger.local import Memory

_HINT = (bytes(16),)
_UNBOUNDED = 1 << 40
"""One session is let go as a whole when it is done."""


class Lane:
    """A session under one policy, request by request."""

    def __init__(self, policy: Policy, judge: Judge) -> None:
        self._policy, self._judge = policy, judge
        self._memory = Memory(_UNBOUNDED, _UNBOUNDED, float(_UNBOUNDED), lambda: 0.0)

    def seal(self, it: Turn, front: Sequence[Element], chain: tuple[bytes, ...]) -> Sealed:
        """The request as it would leave. `chain` has the links of its messages."""
        known = self._known(it)
        offers = turn.propose(it, self._policy, self._judge, known.__contains__)
        ask = Ask(
            it.scope, it.root, it.conversation, chain,
            tuple([Offer(it.links(it.steps[at]), verdict) for at, verdict in offers.items()]),
            _HINT,
        )  # fmt: skip
        settled = self._memory.settle(ask)
        standing = {**known, **_standing(it, offers, settled)}
        untouched = self._policy.name is Name.OFF
        sealed = turn.seal(
            it, standing, front, settled.last_sent, settled.by_hint, untouched, settled.tip
        )
        self._remember(it, sealed)
        return sealed

    def _known(self, it: Turn) -> dict[int, Verdict]:
        last = [it.messages[step.end - 1].link for step in it.steps]
        by_link = self._memory.known(last)
        return {at: by_link[link] for at, link in enumerate(last) if link in by_link}

    def _remember(self, it: Turn, sealed: Sealed) -> None:
        link = it.messages[-1].link if it.messages else it.root
        sent = Sent(link, sealed.outgoing, sealed.elements, 0.0, "", conversation=it.conversation)
        self._memory.remember(Record(it.scope, it.root, it.conversation, sent, b"", hints=_HINT))


def _standing(
    it: Turn, offered: Mapping[int, Verdict | None], settled: Settled
) -> dict[int, Verdict]:
    firsts = [(at, it.messages[it.steps[at].first].link) for at in offered]
    return {at: settled.verdicts[link] for at, link in firsts if link in settled.verdicts}
