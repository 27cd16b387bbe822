"""How sure a difference is: bootstrap intervals, paired and clustered by task.

Runs of one task resemble each other, so tasks are drawn, not runs: a task comes with all that is
known of it, under every policy and in every arm, which is what makes the comparison paired. A
statistic is a sum over the drawn tasks divided by another (a mean where that counts them); its
interval are the 2.5th and 97.5th percentile of 10,000 draws. The draws are seeded and the same for
all statistics.

Where there are so many tasks that drawing would take minutes, the interval is the normal one, by
linearisation of the ratio: with many tasks the two are the same within a per cent of their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from random import Random

import msgspec

RESAMPLES = 10_000
LEVEL = 0.95
MOST_DRAWN = 400_000_000
"""Values that are drawn and added before the normal interval takes over: some ten seconds."""
_NORMAL = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""

Column = Sequence[float]


class Interval(msgspec.Struct, frozen=True):
    """`low` and `high` are None where a single task tells nothing of its spread. `method` is
    `bootstrap` or `normal`.
    """

    value: float
    low: float | None
    high: float | None
    tasks: int
    method: str

    @property
    def certain(self) -> bool:
        """Whether 0 is outside of it."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def ratios(
    pairs: Sequence[tuple[Column, Column]], seed: int, resamples: int = RESAMPLES
) -> list[Interval | None]:
    """The ratio of two sums over tasks, for each pair of columns, a value a task; None where the
    divisor is 0. All columns are of the same tasks, in the same order.
    """
    tasks = len(pairs[0][0]) if pairs else 0
    if tasks < 2 or 2 * len(pairs) * tasks * resamples > MOST_DRAWN:
        return [_normal(*pair) for pair in pairs]
    drawn = _drawn([column for pair in pairs for column in pair], seed, resamples)
    return [_percentiles(*pair, drawn[2 * at], drawn[2 * at + 1]) for at, pair in enumerate(pairs)]


def means(
    columns: Sequence[Column], seed: int, resamples: int = RESAMPLES
) -> list[Interval | None]:
    """The mean over tasks of each column."""
    return ratios([(column, [1.0] * len(column)) for column in columns], seed, resamples)


def _drawn(columns: Sequence[Column], seed: int, resamples: int) -> list[list[float]]:
    """The sums of each column over every draw of tasks. Equal columns are added up once."""
    random, tasks = Random(seed), range(len(columns[0]))
    distinct = {id(column): column for column in columns}
    sums: dict[int, list[float]] = {key: [] for key in distinct}
    for _ in range(resamples):
        draw = random.choices(tasks, k=len(tasks))
        for key, column in distinct.items():
            sums[key].append(sum(map(column.__getitem__, draw)))
    return [sums[id(column)] for column in columns]


def _percentiles(over: Column, under: Column, overs: Column, unders: Column) -> Interval | None:
    if not sum(under):
        return None
    found = sorted(a / b for a, b in zip(overs, unders, strict=True) if b)
    tail = (1 - LEVEL) / 2
    low, high = quantile(found, tail), quantile(found, 1 - tail)
    return Interval(sum(over) / sum(under), low, high, len(over), "bootstrap")


def quantile(ordered: Column, share: float) -> float:
    """Between the two nearest values, by a straight line."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def _normal(over: Column, under: Column) -> Interval | None:
    tasks, divisor = len(over), sum(under)
    if not divisor:
        return None
    value = sum(over) / divisor
    if tasks < 2:
        return Interval(value, None, None, tasks, "normal")
    squares = sum((a - value * b) ** 2 for a, b in zip(over, under, strict=True))
    spread = _NORMAL * sqrt(squares * tasks / (tasks - 1)) / abs(divisor)
    return Interval(value, value - spread, value + spread, tasks, "normal")
