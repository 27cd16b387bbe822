"""Where the plots of a report stand: changes against keep, bills, spreads, success.

Across, places are per cent of the width, so that a drawing fits any window. A row is one line with
a name before it and a value behind it; what it shows is a bar, a box, a whisker or a dot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, log10, sqrt

import msgspec

from proxy.page import plain
from proxy.replay.statistics import quantile
from proxy.report import figures
from proxy.report.cells import name
from proxy.report.compare import Change, Comparison
from proxy.report.groups import By, Group, split
from proxy.report.intervals import Kind
from proxy.report.measures import COST, MEASURES, OUTPUT, Measure
from proxy.report.run import Run
from proxy.report.whole import Report

MOST_ARMS = 24
_NEAREST, _FARTHEST = 0.05, 2.0
"""The least and the most change that the scale goes to."""
_Z = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""


class Row(msgspec.Struct, frozen=True):
    """Pairs are a left and a right end in per cent of the width; `tone` is as in a verdict."""

    label: str
    text: str
    tone: str = ""
    head: str = ""
    bar: float | None = None
    box: tuple[float, float] | None = None
    whisker: tuple[float, float] | None = None
    dot: float | None = None


class Figure(msgspec.Struct, frozen=True):
    """`ticks` pair a place and its text; `zero` is where nothing changes."""

    title: str
    caption: str
    rows: Sequence[Row]
    ticks: Sequence[tuple[float, str]]
    zero: float | None = None


def drawn(it: Report) -> list[Figure]:
    """Those that have something to show."""
    arms = split(it.runs, By.POLICY)
    runs = [(_arm(it, row), arms[row.key]) for row in it.arms[:MOST_ARMS]]
    made = (
        _changes(it),
        _bills(it),
        _spread(COST, "Bill per step", figures.dollars, runs),
        _spread(OUTPUT, "Output tokens per step", plain.short, runs),
        _success(it),
    )
    return [figure for figure in made if figure is not None]


def _arm(it: Report, row: Group) -> str:
    several = len({arm.key.model for arm in it.arms}) > 1
    model = f"{name(row.key.model)}, " if several else ""
    return model + name(row.key.policy)


# Changes against the baseline


def _changes(it: Report) -> Figure | None:
    found = [(row, it.comparisons[row.key]) for row in it.arms if row.key in it.comparisons]
    told = [
        (_arm(it, row), measure, comparison.changes[measure.name])
        for row, comparison in found[:MOST_ARMS]
        for measure in MEASURES
        if measure.kind is Kind.RELATIVE and _is_drawn(comparison, measure)
    ]
    ends = [abs(end) for _, _, change in told for end in _ends(change)]
    if not ends:
        return None
    most = min(_FARTHEST, _ceiling(max(_NEAREST, *ends)))

    def place(share: float) -> float:
        return round(50 + 50 * max(-most, min(most, share)) / most, 3)

    return Figure(
        "Change against keep",
        "A dot is the change, the line its 95 % interval. Left of the middle is less. Grey: the "
        "interval holds 0, or there are too few to tell.",
        list(_headed(told, place)),
        [(place(at), f"{figures.signed(at)} %") for at in (-most, -most / 2, 0, most / 2, most)],
        50.0,
    )


def _is_drawn(it: Comparison, measure: Measure) -> bool:
    return bool(_ends(it.changes[measure.name]))


def _ends(change: Change) -> tuple[float, ...]:
    found = change.interval
    if found is None or found.low is None or found.high is None or min(change.units) < 2:
        return ()
    return found.low, found.high


def _headed(
    told: Sequence[tuple[str, Measure, Change]], place: Callable[[float], float]
) -> Iterator[Row]:
    last = ""
    for arm, measure, change in told:
        low, high = _ends(change)
        value = change.interval.value if change.interval else 0.0
        tone = ("good" if value < 0 else "bad") if change.certain else "unknown"
        yield Row(
            measure.title, figures.change(change.interval, change.certain), tone,
            arm if arm != last else "", whisker=(place(low), place(high)), dot=place(value),
        )  # fmt: skip
        last = arm


# Bills


def _bills(it: Report) -> Figure | None:
    rows = [row for row in it.arms if row.cost and row.cost_per_step is not None][:MOST_ARMS]
    if not rows:
        return None
    each = [(row, row.cost_per_step or 0.0, _as_keep(row)) for row in rows]
    top = _ceiling(max(max(paid, keep) for _, paid, keep in each))
    lines = []
    for row, paid, keep in each:
        tone = "good" if paid < keep else "bad" if paid > keep else ""
        lines.append(Row("paid", figures.dollars(paid), tone, _arm(it, row), bar=_share(paid, top)))
        estimated = figures.dollars(keep, row.estimated)
        lines.append(Row("keep, mechanically", estimated, "keep", bar=_share(keep, top)))
    return Figure(
        "What a step cost, and would have cost under keep",
        "Mechanical: the very same requests, the continuation held fixed. What the agent would "
        "have done otherwise is not in it.",
        lines,
        [(_share(at, top), figures.dollars(at)) for at in (0, top / 2, top)],
    )


def _as_keep(row: Group) -> float:
    return (row.cost_per_step or 0.0) * row.keep / row.cost if row.cost else 0.0


# Spreads


def _spread(
    measure: Measure, title: str, told: Callable[[float], str],
    arms: Sequence[tuple[str, Sequence[Run]]],
) -> Figure | None:  # fmt: skip
    """How conversations differ within each arm."""
    each = [(arm, sorted(_ratios(measure, runs))) for arm, runs in arms]
    each = [(arm, values) for arm, values in each if values]
    if not each:
        return None
    top = _ceiling(max(quantile(values, 0.95) for _, values in each)) or 1.0
    rows = []
    for arm, values in each:
        at = [_share(quantile(values, q), top) for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
        text = told(quantile(values, 0.5))
        rows.append(
            Row(arm, text, box=(at[1], at[3]), whisker=(at[0], at[4]), dot=at[2], tone="calm")
        )
    return Figure(
        f"{title}, from conversation to conversation",
        "The dot is the middle conversation, the box half of them, the line nine in ten.",
        rows,
        [(_share(at, top), told(at)) for at in (0, top / 2, top)],
    )


def _ratios(measure: Measure, runs: Sequence[Run]) -> Iterator[float]:
    for run in runs:
        value = measure.read(run)
        if value is not None and value[1]:
            yield value[0] / value[1]


# Success


def _success(it: Report) -> Figure | None:
    rows = [row for row in it.arms if row.graded][:MOST_ARMS]
    lines = []
    for row in rows:
        low, high = _wilson(row.succeeded, row.graded)
        text = f"{plain.percent(row.success)} of {plain.count(row.graded)}"
        lines.append(
            Row(
                _arm(it, row), text, "calm", whisker=(_share(low, 1), _share(high, 1)),
                dot=_share(row.success or 0.0, 1),
            )
        )  # fmt: skip
    if not lines:
        return None
    return Figure(
        "Success",
        "Of the conversations whose outcome was posted, with the 95 % interval of each share.",
        lines,
        [(at * 100, f"{at * 100:.0f} %") for at in (0, 0.5, 1)],
    )


def _wilson(succeeded: int, of: int) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927): it stays within 0 and 1."""
    share, square = succeeded / of, _Z**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    spread = _Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of**2))
    return max(0.0, middle - spread), min(1.0, middle + spread)


# Scales


def _share(value: float, top: float) -> float:
    return round(100 * min(1.0, value / top), 3) if top else 0.0


def _ceiling(most: float) -> float:
    """A round number that is not less: 1, 2, 4, 5 or 8 and a power of ten."""
    if most <= 0:
        return 0.0
    size = 10.0 ** floor(log10(most))
    return next(size * n for n in (1, 2, 4, 5, 8, 10) if size * n >= most * (1 - 1e-12))
