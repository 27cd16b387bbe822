"""A whole report as one value: rows of sums, and every policy beside the baseline."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import msgspec

from proxy.report.compare import BASELINES, LEAST, Comparison, compared
from proxy.report.groups import By, Group, Key, grouped, split
from proxy.report.intervals import BUDGET
from proxy.report.run import SEVERAL, UNKNOWN, Run


class Report(msgspec.Struct, frozen=True):
    """`made` and `since` are in seconds since the epoch; `since` is None where all that the ledger
    holds was asked for. `arms` are the rows by model and policy, whatever `rows` are by.
    `comparisons` has every policy that could be compared, by model and policy; `beside` those of
    the rows, by their key.
    """

    made: float
    since: float | None
    by: By
    runs: Sequence[Run]
    rows: Sequence[Group]
    arms: Sequence[Group]
    comparisons: Mapping[Key, Comparison]
    beside: Mapping[Key, Comparison]


def report(runs: Sequence[Run], by: By, made: float, since: float | None = None) -> Report:
    """Pure, and the same for the same conversations: draws are seeded."""
    arms = split(runs, By.POLICY)
    pairs = list(_pairs(arms, 0))
    tasks = split(runs, By.TASK) if by is By.TASK else {}
    of_tasks = list(_pairs(tasks, LEAST))
    budget = BUDGET // max(1, len(pairs) + len(of_tasks))
    comparisons = _compared(arms, pairs, budget)
    beside = _compared(tasks, of_tasks, budget) if by is By.TASK else comparisons
    return Report(
        made, since, by, runs, grouped(runs, by), grouped(runs, By.POLICY), comparisons, beside
    )  # fmt: skip


def baseline(keys: Container[Key], key: Key) -> Key | None:
    """The arm that others of the same model, and task, are compared with."""
    rows = (Key(key.task, key.model, policy) for policy in BASELINES)
    return next((row for row in rows if row in keys), None)


_Pair = tuple[Key, Key | None]


def _pairs(arms: Mapping[Key, Sequence[Run]], least: int) -> Iterator[_Pair]:
    """Every arm with its baseline, where both have that many conversations; with none where there
    is none, if that does.
    """
    for key, runs in arms.items():
        base = baseline(arms, key)
        if key.policy in (*BASELINES, SEVERAL, UNKNOWN) or key.model in (SEVERAL, UNKNOWN):
            continue
        if min(len(runs), len(arms[base]) if base else 0) >= least:
            yield key, base


def _compared(
    arms: Mapping[Key, Sequence[Run]], pairs: Sequence[_Pair], budget: int
) -> dict[Key, Comparison]:
    return {
        key: compared(
            key.model, key.policy, base.policy if base else BASELINES[0],
            arms[key], arms[base] if base else (), budget,
        )
        for key, base in pairs
    }  # fmt: skip
