"""What an exchange costs by its parts, and what a break costs. Money is `Decimal`, in dollars, and
is rounded only where it is shown.

Costs are additive over exchanges, and over the kinds of tokens of one: read + write + uncached
input is all input. A kind that the provider did not report makes the cost unknown, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from proxy.core.usage import Usage

NOTHING = Decimal(0)
MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Sheet:
    """Prices in dollars a token, each of them all that such a token costs. `cache_write` is for
    what is kept 5 minutes, or as long as the provider keeps it where nothing else is said;
    `cache_write_1h` for an hour, the same where it is None.
    """

    input: Decimal
    cache_read: Decimal
    cache_write: Decimal
    output: Decimal
    cache_write_1h: Decimal | None = None

    @property
    def hour(self) -> Decimal:
        return self.cache_write if self.cache_write_1h is None else self.cache_write_1h


@dataclass(frozen=True, slots=True)
class Cost:
    """One exchange by its parts, in dollars."""

    input: Decimal
    cache_read: Decimal
    cache_write_5m: Decimal
    cache_write_1h: Decimal
    output: Decimal

    @property
    def total(self) -> Decimal:
        return (
            self.input + self.cache_read + self.cache_write_5m + self.cache_write_1h + self.output
        )


PARTS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")


def sheet(
    input: Decimal,
    cache_read: Decimal | None,
    cache_write: Decimal | None,
    output: Decimal,
    cache_write_1h: Decimal | None = None,
) -> Sheet:
    """A sheet of prices given in dollars a million tokens. None: billed as input, or for an hour as
    any other write.
    """
    read = input if cache_read is None else cache_read
    write = input if cache_write is None else cache_write
    hour = write if cache_write_1h is None else cache_write_1h
    return Sheet(*(price / MILLION for price in (input, read, write, output, hour)))


def cost(usage: Usage, prices: Sheet) -> Cost | None:
    """What the provider's own counts come to; None where it did not report input or output.

    Cached tokens that are not reported are taken as none: the cost is then an upper bound.
    """
    if usage.input is None or usage.uncached is None or usage.output is None:
        return None
    read = min(usage.cache_read or 0, usage.input)
    write = min(usage.cache_write or 0, usage.input - read)
    hour = min(usage.cache_write_1h or 0, write)
    return Cost(
        (usage.input - read - write) * prices.input,
        read * prices.cache_read,
        (write - hour) * prices.cache_write,
        hour * prices.hour,
        usage.output * prices.output,
    )


def rebuilt(tokens: int, usage: Usage, prices: Sheet) -> Decimal:
    """What it costs that tokens which were cached are processed anew: written to the cache where
    this exchange wrote to one, else as input.
    """
    return tokens * (anew(usage, prices) - prices.cache_read)


def anew(usage: Usage, prices: Sheet) -> Decimal:
    """The price of one more token of input that no cache serves, by what this exchange did."""
    if not usage.cache_write:
        return prices.input
    return prices.hour if usage.cache_write_1h == usage.cache_write else prices.cache_write
