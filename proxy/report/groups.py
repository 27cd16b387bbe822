"""Adds conversations up by model and policy, by model, or by task, model and policy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from math import fsum

import msgspec

from proxy.report.run import Amount, Run


class By(Enum):
    """What a row of the report is of. Policies are always told for each model by itself."""

    POLICY = "policy"
    MODEL = "model"
    TASK = "task"


class Key(msgspec.Struct, frozen=True, order=True):
    """Empty is what the row is not told apart by; an empty task is that of no label too."""

    task: str = ""
    model: str = ""
    policy: str = ""


class Group(msgspec.Struct, frozen=True):
    """Sums over conversations. Dollars; `keep` is what the same requests would have come to under
    that policy, mechanically. `graded` conversations have an outcome that was posted. A mean that
    nothing is known of is None.
    """

    key: Key
    conversations: int
    graded: int
    succeeded: int
    score: float | None
    steps: int
    output: float | None
    reasoning: float | None
    hit: float | None
    cost: float | None
    cost_per_step: float | None
    keep: float
    estimated: bool
    unpriced: int
    breaks: int
    own: int

    @property
    def success(self) -> float | None:
        return self.succeeded / self.graded if self.graded else None

    @property
    def saving(self) -> float | None:
        return None if self.cost is None else self.keep - self.cost

    @property
    def steps_per_conversation(self) -> float:
        return self.steps / self.conversations


def key(run: Run, by: By) -> Key:
    match by:
        case By.POLICY:
            return Key(model=run.model, policy=run.policy)
        case By.MODEL:
            return Key(model=run.model)
        case By.TASK:
            return Key(run.task, run.model, run.policy)


def split(runs: Iterable[Run], by: By) -> dict[Key, list[Run]]:
    found: defaultdict[Key, list[Run]] = defaultdict(list)
    for run in runs:
        found[key(run, by)].append(run)
    return dict(found)


def grouped(runs: Sequence[Run], by: By) -> list[Group]:
    """The dearest first, where bills are known: tasks, in them models, in them policies."""
    groups = [added(key, own) for key, own in split(runs, by).items()]
    tasks, models = (_bills(groups, at) for at in (1, 2))

    def place(it: Group) -> tuple[float, str, float, str, bool, int, str]:
        task, model = it.key.task, it.key.model
        return (
            -tasks[task,], task, -models[task, model], model,
            it.key.policy != "keep", -it.conversations, it.key.policy,
        )  # fmt: skip

    return sorted(groups, key=place)


def _bills(groups: Sequence[Group], depth: int) -> dict[tuple[str, ...], float]:
    """What tasks, or models of tasks, came to; where nothing is priced their steps stand for it."""
    priced = any(it.cost is not None for it in groups)
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for it in groups:
        name = (it.key.task, it.key.model)[:depth]
        sums[name] += (it.cost or 0.0) if priced else it.steps
    return sums


def added(key: Key, runs: Sequence[Run]) -> Group:
    graded = [run for run in runs if run.success is not None]
    scores = [run.score for run in runs if run.score is not None]
    priced = [run for run in runs if run.priced]
    cost = fsum(run.cost.sum for run in priced) if priced else None
    both = [run for run in runs if run.cache_read.steps == run.input.steps]
    return Group(
        key=key,
        conversations=len(runs),
        graded=len(graded),
        succeeded=sum(bool(run.success) for run in graded),
        score=fsum(scores) / len(scores) if scores else None,
        steps=sum(run.steps for run in runs),
        output=_mean(run.output for run in runs),
        reasoning=_mean(run.reasoning for run in runs),
        hit=_share([run.cache_read for run in both], [run.input for run in both]),
        cost=cost,
        cost_per_step=_mean(run.cost for run in priced),
        keep=fsum(run.keep for run in priced),
        estimated=any(run.estimated for run in runs),
        unpriced=sum(run.unpriced for run in runs),
        breaks=sum(run.breaks for run in runs),
        own=sum(run.own for run in runs),
    )


def _mean(amounts: Iterable[Amount]) -> float | None:
    """A step, over the steps that tell it."""
    known = list(amounts)
    steps = sum(it.steps for it in known)
    return fsum(it.sum for it in known) / steps if steps else None


def _share(parts: Sequence[Amount], wholes: Sequence[Amount]) -> float | None:
    whole = fsum(it.sum for it in wholes)
    return fsum(it.sum for it in parts) / whole if whole else None
