"""Lays the conversations of one policy beside those of the baseline, for one model.

Who ran what is not ours to choose, so the most is made of what is the same on both sides:

    paired         at least `LEAST` labelled tasks ran in both arms: only these count, each once,
                   however often it ran
    tasks          tasks are drawn with all their runs, since runs of one task resemble each other;
                   a conversation without a label is a task by itself
    conversations  too few tasks are labelled: each conversation stands for itself

A change is told as one where at least `LEAST` of these stand in each arm and 0 is outside of the
interval. Models cost and think differently, so arms of different models are never compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from proxy.replay.statistics import Interval
from proxy.report.intervals import BUDGET, NOTHING, Kind, Unit, Value, changes
from proxy.report.measures import MEASURES, Measure
from proxy.report.run import Run

LEAST = 10
BASELINES = ("keep", "observe")
"""What others are compared with: the first of these that there is. `observe` forwards as `keep`."""


class Design(Enum):
    PAIRED = "paired"
    TASKS = "tasks"
    CONVERSATIONS = "conversations"


class Change(msgspec.Struct, frozen=True):
    """One measure: its value in our arm and in theirs, and how far apart they are. The interval is
    a share of theirs (-0.1: a tenth less), or a difference where the measure is one. `units` counts
    those that tell it, in our arm and in theirs.
    """

    ours: float | None
    theirs: float | None
    interval: Interval | None
    units: tuple[int, int]

    @property
    def enough(self) -> bool:
        return min(self.units) >= LEAST

    @property
    def certain(self) -> bool:
        return self.enough and self.interval is not None and self.interval.certain


class Comparison(msgspec.Struct, frozen=True):
    """`ours` and `theirs` count the conversations that were compared. `forgets` says that this
    policy dropped any reasoning at all.
    """

    model: str
    policy: str
    baseline: str
    design: Design
    ours: int
    theirs: int
    units: int
    forgets: bool
    changes: Mapping[str, Change]


def compared(
    model: str, policy: str, baseline: str, ours: Sequence[Run], theirs: Sequence[Run],
    budget: int = BUDGET,
) -> Comparison:  # fmt: skip
    """`budget` counts the values that may be drawn for it."""
    design = _design(ours, theirs)
    if design is Design.PAIRED:
        both = _tasks(ours) & _tasks(theirs)
        ours, theirs = ([run for run in arm if run.task in both] for arm in (ours, theirs))
    units = _units(ours, theirs, design)
    found = changes(units, [it.kind for it in MEASURES], budget=budget)
    rows = zip(MEASURES, found, strict=True)
    told = {it.name: _change(units, at, it, found) for at, (it, found) in enumerate(rows)}
    forgets = any(run.dropped for run in ours)
    return Comparison(
        model, policy, baseline, design, len(ours), len(theirs), len(units), forgets, told
    )


def _tasks(runs: Sequence[Run]) -> set[str]:
    return {run.task for run in runs if run.task}


def _design(ours: Sequence[Run], theirs: Sequence[Run]) -> Design:
    if len(_tasks(ours) & _tasks(theirs)) >= LEAST:
        return Design.PAIRED
    arms = [arm for arm in (ours, theirs) if arm]
    labelled = any(map(_tasks, arms))
    if labelled and all(len({_key(run) for run in arm}) >= LEAST for arm in arms):
        return Design.TASKS
    return Design.CONVERSATIONS


def _key(run: Run) -> tuple[str, str]:
    """What names its unit, where tasks are drawn."""
    return (run.task, "") if run.task else ("", run.id)


_Arms = tuple[list[Run], list[Run]]


def _units(ours: Sequence[Run], theirs: Sequence[Run], design: Design) -> list[Unit]:
    by_key: defaultdict[tuple[str, str], _Arms] = defaultdict(lambda: ([], []))
    for at, arm in enumerate((ours, theirs)):
        for run in arm:
            key = ("", run.id) if design is Design.CONVERSATIONS else _key(run)
            by_key[key][at].append(run)
    return [_unit(by_key[key], design is Design.PAIRED) for key in sorted(by_key)]


def _unit(arms: _Arms, paired: bool) -> Unit:
    """Of a pair, a measure that one side does not tell is of no use on the other."""
    sides = [[_brought(runs, it, paired) for it in MEASURES] if runs else None for runs in arms]
    ours, theirs = sides
    if paired and ours and theirs:
        rows = list(zip(MEASURES, ours, theirs, strict=True))
        known = [it.kind is Kind.ALONE or (a != NOTHING and b != NOTHING) for it, a, b in rows]
        ours = [a if one else NOTHING for one, a in zip(known, ours, strict=True)]
        theirs = [b if one else NOTHING for one, b in zip(known, theirs, strict=True)]
    return Unit(ours, theirs)


def _brought(runs: Sequence[Run], measure: Measure, mean: bool) -> Value:
    """The sum over the runs that tell it, or the mean."""
    values = [value for run in runs if (value := measure.read(run)) is not None]
    if not values:
        return NOTHING
    over, under = (sum(column) for column in zip(*values, strict=True))
    count = len(values) if mean else 1
    return over / count, under / count


def _change(units: Sequence[Unit], at: int, measure: Measure, found: Interval | None) -> Change:
    ours = [unit.ours[at] for unit in units if unit.ours and unit.ours[at] != NOTHING]
    theirs = [unit.theirs[at] for unit in units if unit.theirs and unit.theirs[at] != NOTHING]
    alone = measure.kind is Kind.ALONE
    counts = (len(ours), len(ours) if alone else len(theirs))
    return Change(_ratio(ours), None if alone else _ratio(theirs), found, counts)


def _ratio(values: Sequence[Value]) -> float | None:
    under = sum(value[1] for value in values)
    return sum(value[0] for value in values) / under if under else None
