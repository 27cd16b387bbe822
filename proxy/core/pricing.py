"""What an exchange costs, what a break costs, and what forgetting saved of it. Money is
`Decimal`, in dollars.

Costs are additive over exchanges, and over the kinds of tokens of one: read + write + uncached
input is all input. A kind that the provider did not report makes the cost unknown, never 0.

The saving is *mechanical*: it holds the continuation fixed, and says what the same request would
have cost with the reasoning still in it. Old dropped reasoning would have been read from the
cache. That of the latest step would have been read too where a cache holds what was generated,
else it would have been new input. On the other side, where a cache holds what was generated, it
holds the rest of that step only behind its reasoning, so that rest is processed anew, once.
Where the cache is not used at all, everything dropped would have been input.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from proxy.core.expect import CacheRule, Reuse
from proxy.core.usage import Usage

NOTHING = Decimal(0)
MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Sheet:
    """Prices in dollars a token."""

    input: Decimal
    cache_read: Decimal
    cache_write: Decimal
    output: Decimal


@dataclass(frozen=True, slots=True)
class Cost:
    """One exchange by its parts, in dollars."""

    input: Decimal
    cache_read: Decimal
    cache_write: Decimal
    output: Decimal

    @property
    def total(self) -> Decimal:
        return self.input + self.cache_read + self.cache_write + self.output


@dataclass(frozen=True, slots=True)
class Dropped:
    """Tokens of reasoning that left this request, estimated: of steps decided before, and of those
    that it decided; and the other tokens of the latter, which stand behind their reasoning.
    """

    before: int
    now: int
    behind: int


def sheet(input: Decimal, cache_read: Decimal, cache_write: Decimal, output: Decimal) -> Sheet:
    """A sheet of prices given in dollars a million tokens."""
    return Sheet(input / MILLION, cache_read / MILLION, cache_write / MILLION, output / MILLION)


def cost(usage: Usage, prices: Sheet) -> Cost | None:
    """What the provider's own counts come to; None where it did not report input or output.

    Cached tokens that are not reported are taken as none: the cost is then an upper bound.
    """
    uncached = usage.uncached if usage.cache_read is not None else usage.input
    if uncached is None or usage.output is None:
        return None
    return Cost(
        uncached * prices.input,
        (usage.cache_read or 0) * prices.cache_read,
        (usage.cache_write or 0) * prices.cache_write,
        usage.output * prices.output,
    )


def rebuilt(tokens: int, prices: Sheet) -> Decimal:
    """What it costs that tokens which were cached are processed anew."""
    return tokens * (_anew(prices) - prices.cache_read)


def saving(dropped: Dropped, rule: CacheRule | None, prices: Sheet) -> Decimal:
    """What forgetting saved on this request; a loss is negative.

    Without a rule the cache is taken to hold prompts only.
    """
    reuse = rule.reuse if rule else Reuse.PROMPT
    if reuse is Reuse.NONE:
        return (dropped.before + dropped.now) * prices.input
    if reuse is Reuse.PROMPT:
        return dropped.before * prices.cache_read + dropped.now * _anew(prices)
    carried = (dropped.before + dropped.now) * prices.cache_read
    return carried - rebuilt(dropped.behind, prices)


def _anew(prices: Sheet) -> Decimal:
    """Where a cache is written for a price, input that is not read from it is written to it."""
    return prices.cache_write or prices.input
