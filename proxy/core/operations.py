"""What serving costs in operations: C = cN + βQ, and with a decoding premium w + (w-1)cG.

N positions are processed anew, each for c operations (all that is done with a position by itself:
the weights it goes through). Q pairs are attended, each for β: a position at index i, counted from
1, attends the i positions up to and with itself. G of the N were generated, one after the other:
that uses a machine worse than a prompt does, w times as badly. c and β are a model's (see
`architecture`); what counts between policies is P* = c/β, the number of pairs that cost as much as
one position.

Every generated token is booked as a position of the request that generated it, the last one too,
although an engine processes that with the next request or never. So a cache that holds what was
generated holds the whole of it here; over a conversation that differs from the engine's own sums by
no more than that token a request (a block, where that token fills one).

Costs are additive: over requests, and over positions, pairs and premium.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from proxy.core.cachemodel import Segments, replayed, size
from proxy.core.contract import CacheRule

ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Price:
    """Operations for a `position` (c) and for a `pair` (β), in any one unit, FLOPs or other."""

    position: Fraction
    pair: Fraction

    @property
    def exchange_rate(self) -> Fraction | None:
        """P* = c/β: pairs that cost as much as a position; None where pairs cost nothing."""
        return self.position / self.pair if self.pair else None


@dataclass(frozen=True, slots=True)
class Work:
    """N, Q and G: positions processed anew, pairs attended, positions of N that were generated."""

    new: int = 0
    pairs: int = 0
    generated: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.new + other.new, self.pairs + other.pairs, self.generated + other.generated
        )


def at_rate(exchange_rate: Fraction) -> Price:
    """The price in units of one pair, from P* alone. Raises ValueError where P* is below 0."""
    if exchange_rate < 0:
        raise ValueError(f"exchange rate: got {float(exchange_rate):g}; wanted 0 or more")
    return Price(exchange_rate, ONE)


def work(read: int, prompt: int, generated: int) -> Work:
    """What a request takes, from its tokens: read from the cache, in the prompt, generated."""
    end = prompt + generated
    return Work(end - read, _attended(end) - _attended(read), generated)


def _attended(positions: int) -> int:
    """Pairs of a row that is processed from its beginning."""
    return positions * (positions + 1) // 2


def total(works: Iterable[Work]) -> Work:
    return sum(works, Work())


def works(rule: CacheRule, served: Sequence[tuple[Segments, Segments]]) -> tuple[Work, ...]:
    """What each request of a conversation takes; a request is a prompt and what it generated."""
    splits = replayed(rule, served, whole=True)
    return tuple(
        work(it.read, it.input, size(generated))
        for it, (_, generated) in zip(splits, served, strict=True)
    )


def operations(work: Work, price: Price, premium: Fraction = ONE) -> Fraction:
    """C, in the unit of the price. `premium` is w: 1 where a generated position costs as others."""
    positions = work.new + (premium - 1) * work.generated
    return price.position * positions + price.pair * work.pairs
