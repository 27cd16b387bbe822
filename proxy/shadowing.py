"""The shadow policies of one exchange: what each would have said of the request when it leaves, and
what that would have come to when the reply is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.core import policy, pricing, shade, shadow, turn
from proxy.core.contract import Contract, Drops
from proxy.core.policy import Policy
from proxy.core.prefix import INTACT
from proxy.core.pricing import Cost
from proxy.core.ratio import Ratio
from proxy.core.shade import Left, Shade
from proxy.core.shadow import Shadow
from proxy.core.tariff import Tariff
from proxy.core.turn import Judge, Sealed, Turn
from proxy.core.usage import Usage
from proxy.core.verdict import Verdict
from proxy.weighing import Weigher


def left_of(it: Turn, sealed: Sealed) -> Left:
    return Left(it, sealed.elements, sealed.basis, sealed.finding.cause in INTACT)


def shades(
    names: Sequence[str], left: Left, drops: Drops, judge: Judge, weigher: Weigher
) -> tuple[Shade, ...]:
    """What each policy says. `drops` is what the contract allows; `weigher` is asked by `horizon`
    alone.
    """
    rules = map(policy.parse, names)
    return tuple([shade.shade(left, it, partial(_said, it, judge, weigher), drops) for it in rules])


def _said(
    rule: Policy, judge: Judge, weigher: Weigher, it: Turn, settled: Callable[[int], bool]
) -> Mapping[int, Verdict | None]:
    return turn.propose(it, rule, judge, settled, partial(weigher.pays, rule))


@dataclass(frozen=True, slots=True)
class Reckoning:
    """By what the shadows of one exchange are counted: what it used, as it was reported, and what
    that costs at this moment, in seconds since the epoch (`tariff` None: nobody knows).
    """

    left: Left
    usage: Usage
    contract: Contract
    ratio: Ratio
    tariff: Tariff | None
    now: float

    def shadow(self, it: Shade) -> Shadow:
        """What that policy would have made of the exchange."""
        gone = shade.gone(self.left, it, self.ratio)
        record = shade.recorded(it, gone)
        contract = self.contract
        both = shadow.used(self.left, gone, self.usage, contract.cache, contract.user_turn)
        if both is None:
            return Shadow(record, it.fresh, len(it.gone))
        paid, alike, other = map(self._cost, (self.usage, *both))
        if paid is None or alike is None or other is None:
            return Shadow(record, it.fresh, len(it.gone), *both)
        # What was really paid stands; reads that are only modelled count on both sides.
        saving = alike.total - other.total
        return Shadow(record, it.fresh, len(it.gone), *both, paid.total - saving, saving)

    def _cost(self, usage: Usage) -> Cost | None:
        if self.tariff is None:
            return None
        return pricing.cost(usage, self.tariff.sheet(usage.input or 0, self.now))
