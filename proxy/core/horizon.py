"""How much must still come for forgetting a step's reasoning to pay: the retention horizon.

The step has just ended: `before` positions (H), then `reasoning` (r), then its `action` (a: what
else of the step was generated). Where a cache holds what was generated, the action is held only
behind the reasoning. To forget is to process it anew, a positions at the end of H: that takes
ca + β(aH + a(a+1)/2). Every later position then attends r positions fewer, which saves βr. So it
pays after

    L* = (a/r)(P* + H + (a+1)/2)    later positions, P* = c/β.

On a bill the same holds by requests: the action is paid as new instead of as read, once, and each
later request, that one too, reads r tokens fewer: R* = (a/r)(anew - read)/read later requests.

Where a cache holds prompts only, or nothing, the action is processed anew in any case and so would
be the reasoning: there the horizon is 0, forgetting pays at once. Blocks are left out: they move
it by less than one. Nothing here says whether the agent will think again what was forgotten.

How much will still come is not known; what came in past conversations is. The expectation is their
mean excess over where this one stands, of those that came further.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction

from proxy.core.contract import Reuse

AT_ONCE = Fraction(0)


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens: of the prompt before it (H), of its reasoning (r), and of what else it generated (a).
    Raises ValueError for sizes below 0.
    """

    before: int
    reasoning: int
    action: int

    def __post_init__(self) -> None:
        if min(self.before, self.reasoning, self.action) < 0:
            raise ValueError(f"a step's sizes are 0 tokens or more: {self}")


def positions(step: Step, exchange_rate: Fraction | None, reuse: Reuse) -> Fraction | None:
    """L*, in positions still to be processed. None where it never pays: nothing to forget, or
    pairs that cost nothing (no `exchange_rate`).
    """
    if reuse is not Reuse.GENERATED:
        return AT_ONCE if step.reasoning else None
    if exchange_rate is None or not step.reasoning:
        return None
    a, each = step.action, exchange_rate + step.before + Fraction(step.action + 1, 2)
    return Fraction(a, step.reasoning) * each


def requests(step: Step, anew: Decimal, read: Decimal, reuse: Reuse) -> Fraction | None:
    """R*, in requests still to come, by prices of a token: processed `anew` and `read` from the
    cache. None where it never pays: nothing to forget, or reads that cost nothing.
    """
    if reuse is not Reuse.GENERATED:
        return AT_ONCE if step.reasoning else None
    if not step.reasoning or not read:
        return None
    once = max(Fraction(anew) - Fraction(read), AT_ONCE)
    return Fraction(step.action, step.reasoning) * once / Fraction(read)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is still to come, by `samples` past conversations that came further than this one."""

    mean: Fraction
    samples: int


def expected(past: Iterable[int], now: int) -> Expectation | None:
    """From where past conversations ended and where this one stands, in positions or requests.
    None where none came as far: there is nothing to learn from.
    """
    excess = [end - now for end in past if end > now]
    return Expectation(Fraction(sum(excess), len(excess)), len(excess)) if excess else None


def pays(remaining: Fraction | None, horizon: Fraction | None) -> bool:
    """Whether to forget, asked with the next request at hand: where it pays at once, or more is
    expected than the horizon. What is not known is no reason to.
    """
    if horizon is None:
        return False
    return horizon == AT_ONCE or (remaining is not None and remaining > horizon)


# A step in front of the policy


class Unit(Enum):
    """What is counted of what comes still: by prices requests, by operations positions."""

    REQUESTS = "requests"
    POSITIONS = "positions"


class Source(Enum):
    """Where it is known from what comes still."""

    POLICY = "policy"
    SETTINGS = "settings"
    LEARNED = "learned"
    UNKNOWN = "unknown"


class Lacks(Enum):
    """What has to be known of an upstream and model, and is not."""

    CACHE_RULE = "cache_rule"
    PRICE = "price"


@dataclass(frozen=True, slots=True)
class Terms:
    """By what a horizon is reckoned: the cache's rule, and either the prices of a token processed
    `anew` and `read` from the cache, or the exchange rate P* (None: pairs cost nothing).
    """

    reuse: Reuse
    unit: Unit
    rate: Fraction | None = None
    anew: Decimal = Decimal(0)
    read: Decimal = Decimal(0)

    def horizon(self, step: Step) -> Fraction | None:
        """In the unit. None where forgetting never pays."""
        if self.unit is Unit.REQUESTS:
            return requests(step, self.anew, self.read, self.reuse)
        return positions(step, self.rate, self.reuse)


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is expected to come still, in the unit of the terms; of so many past conversations,
    where it was learned.
    """

    amount: Fraction | None = None
    source: Source = Source.UNKNOWN
    samples: int = 0


NOT_KNOWN = Remaining()


@dataclass(frozen=True, slots=True)
class Weighed:
    """One step, by its index, and what decided it. `counted`: its sizes are the provider's counts,
    else estimates. Without terms there is no horizon; `lacks` says what is missing then. `verdict`
    names what stands.
    """

    index: int
    step: Step
    counted: bool
    terms: Terms | None
    remaining: Remaining = NOT_KNOWN
    lacks: Lacks | None = None
    verdict: str = ""

    @property
    def horizon(self) -> Fraction | None:
        """None where forgetting never pays, or nobody knows."""
        return self.terms.horizon(self.step) if self.terms else None

    @property
    def pays(self) -> bool:
        return pays(self.remaining.amount, self.horizon)
