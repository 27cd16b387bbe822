"""What another policy would have made of an exchange that was sent with its reasoning (policy
`observe`): the way to look before one leaps.

A shadow is *mechanical*: it holds the continuation fixed, and asks what this very exchange would
have used had that policy been in force from the conversation's beginning. What left and what the
shadow would have sent differ in reasoning alone (`shade`), so its prompt is the provider's own
count less that reasoning. What of it would have been read from the cache follows from the cache
rule over the shadow's last prompt: an append-only policy's prompt begins with all of that one; a
retroactive one parts from it where a step has just left its window. Where the cache holds what was
generated, it holds the reply too, but behind its reasoning: only where that stays is it read.

What the provider reports comes first, as in `saving`: where it read less than the rule promises the
shadow would have been read no further than to the same place, where it read more at least to there.
What a model's template leaves out at a new user message is in neither prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import msgspec

from proxy.core.contract import CacheRule, UserTurn
from proxy.core.sent import Shadowed
from proxy.core.served import FRAME, PROMPTS, Cache, last_user
from proxy.core.shade import Gone, Left
from proxy.core.usage import Usage


class Shadow(msgspec.Struct, frozen=True):
    """What one policy would have made of an exchange.

    `fresh` counts its new verdicts by name, `dropped` the steps whose reasoning it would not have
    sent; `record` has the tokens of that, and goes on to the next request. `usage` is what it would
    have used, and `sent` what was used, to be priced alike; None where the provider reported no
    input. `saving` is in dollars: what left cost more by that; a loss is negative. None without a
    price.
    """

    record: Shadowed
    fresh: Mapping[str, int]
    dropped: int
    sent: Usage | None = None
    usage: Usage | None = None
    cost: Decimal | None = None
    saving: Decimal | None = None

    @property
    def policy(self) -> str:
        return self.record.policy


def used(
    left: Left, found: Gone, usage: Usage, rule: CacheRule | None, user_turn: UserTurn
) -> tuple[Usage, Usage] | None:
    """What the exchange used, and what the shadow would have used, to be priced alike; None where
    its input is not known. Where reads are not reported, both have the modelled ones.
    """
    if usage.input is None:
        return None
    rendered = _rendered(left, found, user_turn)
    return _Other(left, rule or PROMPTS, usage.input, rendered).both(usage)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """What templates render: tokens by element that the shadow has less, in this prompt and in the
    last one; where those begin that the last one had; and the elements from the first to the last
    whose reasoning the last prompt showed and this one does not, since a user spoke.
    """

    now: Mapping[int, float]
    then: Mapping[int, float]
    starts: Mapping[int, int]
    hidden: range


def _rendered(left: Left, found: Gone, user_turn: UserTurn) -> _Rendered:
    if user_turn is UserTurn.KEEPS:
        return _Rendered(found.now, found.then, found.starts, range(0))
    now = last_user(left.elements)
    then = last_user(left.last.elements if left.last else ())
    return _Rendered(
        {place: tokens for place, tokens in found.now.items() if place > now},
        {place: tokens for place, tokens in found.then.items() if place > then},
        found.starts,
        range(then + 1, now),
    )


class _Other(Cache):
    """The other prompt is the shadow's, after the shadow's last one."""

    def __init__(self, left: Left, rule: CacheRule, sent: int, less: _Rendered) -> None:
        total = max(0, sent - round(sum(less.now.values())))
        super().__init__(left.elements, left.last, left.intact, rule, sent, total, less.hidden)
        self._less = less

    def other(self) -> int | None:
        common, then = self._other_common(), self._less.then
        less = round(sum(tokens for place, tokens in then.items() if place < common))
        echo = 0 if self._known in self._less.now else self._echoed(self._elements, 0)
        return self._served(common, -less, echo, self.total)

    def _other_common(self) -> int:
        """What the shadow leaves out of both does not part them, what it leaves out of one does."""
        now, then = self._less.now.keys(), self._less.then.keys()
        common = self._alike(now & then)
        shown = (at for at in self._hidden if self._elements[at].reasoning and at not in then)
        return min((*shown, *(now - then), common))

    def _begun(self, common: int, tokens: int) -> int:
        known = self._less.starts.get(common)
        return super()._begun(common, tokens) if known is None else known

    def _place(self, read: int) -> int:
        """No further than to where they part for the first time."""
        less, end = 0.0, read
        for place, start, frame in self._starts():
            if start + frame >= read:
                break
            if place >= self._known:
                end = round(start)
                break
            less += self._less.now[place]
        return self._in_blocks(max(0, end - round(less)), read)

    def _starts(self) -> list[tuple[int, float, float]]:
        """Where each element begins that the shadow has less of, and what comes in it before its
        reasoning.
        """
        starts, scales = self._positions()
        sizes = [min(FRAME, element.size) for element in self._elements]
        return [(at, starts[at], sizes[at] * scales[at]) for at in sorted(self._less.now)]
