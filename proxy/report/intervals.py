"""How sure a change is: two arms compared over units that are drawn again, seeded.

A unit is a task with all its runs, or a conversation by itself. Units that ran in both arms come
with both when they are drawn, which is what pairs them; the others are drawn within their own arm,
so that no draw leaves an arm empty. A value is a sum over the units divided by another; a change
compares the values of two arms. The interval goes from the 2.5th to the 97.5th percentile of 10,000
draws. Where there are so many units that drawing takes long, it is the normal one, by linearisation
of the same statistic: with many units the two agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from math import sqrt
from random import Random

import msgspec

from proxy.replay.statistics import LEVEL, RESAMPLES, Interval, quantile

SEED = 1
BUDGET = 60_000_000
"""Values that are drawn and added for a whole report: a few seconds."""
_NORMAL = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""

Value = tuple[float, float]
"""What is summed over the units, and what that is divided by."""
NOTHING: Value = (0.0, 0.0)
"""Of a unit of which it is not known."""


class Kind(Enum):
    """What is told: by which share the value of our arm is above the other's, by how much it is, or
    our value alone.
    """

    RELATIVE = "relative"
    DIFFERENCE = "difference"
    ALONE = "alone"


class Unit(msgspec.Struct, frozen=True):
    """What it brings to each measure, in either arm; None where it did not run in that one."""

    ours: Sequence[Value] | None
    theirs: Sequence[Value] | None


def changes(
    units: Sequence[Unit], kinds: Sequence[Kind], seed: int = SEED, budget: int = BUDGET
) -> list[Interval | None]:
    """One interval for each measure, in the order of `kinds`; None where nothing can be divided."""
    strata = [_columns(stratum, len(kinds)) for stratum in _strata(units)]
    normal = 4 * len(kinds) * len(units) * RESAMPLES > budget or len(units) < 2
    drawn = [] if normal else [_drawn(it, seed * 4 + at) for at, it in enumerate(strata)]
    found: list[Interval | None] = []
    for at, kind in enumerate(kinds):
        sums = _added(strata, at)
        value = _value(kind, sums)
        if value is None:
            found.append(None)
        elif normal:
            found.append(_normal(kind, value, sums, strata, at))
        else:
            found.append(_percentiles(kind, value, drawn, at, len(units)))
    return found


# The columns of a stratum: four for each measure, ours over and under, theirs over and under.

_Columns = list[list[float]]
_Sums = tuple[float, float, float, float]


def _strata(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Units in both arms, in ours alone, in theirs alone."""
    for has in ((True, True), (True, False), (False, True)):
        found = [it for it in units if (it.ours is not None, it.theirs is not None) == has]
        if found:
            yield found


def _columns(units: Sequence[Unit], measures: int) -> _Columns:
    nothing = [NOTHING] * measures
    sides = [[it.ours or nothing for it in units], [it.theirs or nothing for it in units]]
    return [
        [values[measure][place] for values in side]
        for measure in range(measures)
        for side in sides
        for place in (0, 1)
    ]


def _added(strata: Sequence[_Columns], at: int) -> _Sums:
    a, b, c, d = (sum(sum(columns[4 * at + n]) for columns in strata) for n in range(4))
    return a, b, c, d


def _value(kind: Kind, sums: _Sums) -> float | None:
    over, under, their_over, their_under = sums
    if not under:
        return None
    if kind is Kind.ALONE:
        return over / under
    if not their_under:
        return None
    theirs = their_over / their_under
    if kind is Kind.DIFFERENCE:
        return over / under - theirs
    return over / under / theirs - 1 if theirs else None


# By drawing


def _drawn(columns: _Columns, seed: int) -> _Columns:
    """The sums of each column over every draw of units."""
    random, size = Random(seed), len(columns[0])
    places = range(size)
    sums: _Columns = [[] for _ in columns]
    wanted = [(at, column) for at, column in enumerate(columns) if any(column)]
    for at, column in enumerate(columns):
        if not any(column):
            sums[at] = [0.0] * RESAMPLES
    for _ in range(RESAMPLES):
        draw = random.choices(places, k=size)
        for at, column in wanted:
            sums[at].append(sum(map(column.__getitem__, draw)))
    return sums


def _percentiles(
    kind: Kind, value: float, drawn: Sequence[_Columns], at: int, units: int
) -> Interval:
    each = [zip(*columns[4 * at : 4 * at + 4], strict=True) for columns in drawn]
    sums = (_together(rows) for rows in zip(*each, strict=True))
    found = sorted(it for row in sums if (it := _value(kind, row)) is not None)
    tail = (1 - LEVEL) / 2
    return Interval(value, quantile(found, tail), quantile(found, 1 - tail), units, "bootstrap")


def _together(rows: Sequence[_Sums]) -> _Sums:
    if len(rows) == 1:
        return rows[0]
    a, b, c, d = map(sum, zip(*rows, strict=True))
    return a, b, c, d


# By linearisation


def _normal(kind: Kind, value: float, sums: _Sums, strata: Sequence[_Columns], at: int) -> Interval:
    variance, units = 0.0, 0
    for columns in strata:
        rows = zip(*columns[4 * at : 4 * at + 4], strict=True)
        pulls = [_pull(kind, sums, row) for row in rows]
        size, units = len(pulls), units + len(pulls)
        mean = sum(pulls) / size
        variance += sum((pull - mean) ** 2 for pull in pulls) * size / max(size - 1, 1)
    if units < 2:
        return Interval(value, None, None, units, "normal")
    spread = _NORMAL * sqrt(variance)
    return Interval(value, value - spread, value + spread, units, "normal")


def _pull(kind: Kind, sums: _Sums, row: _Sums) -> float:
    """How much one unit moves the value, to first order."""
    over, under, their_over, their_under = sums
    ours = (row[0] - over / under * row[1]) / under
    if kind is Kind.ALONE:
        return ours
    ratio = their_over / their_under
    theirs = (row[2] - ratio * row[3]) / their_under
    if kind is Kind.DIFFERENCE:
        return ours - theirs
    return ours / ratio - over / under / ratio**2 * theirs
