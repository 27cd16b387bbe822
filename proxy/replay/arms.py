"""Where a task was really worked on in two ways: what forgetting did, and what the agent did then.

An arm is a way of working, recorded under its policy. With the first arm recorded under `keep`:

    ΔM  its own recording under the other arm's policy, less itself: the same continuation
    ΔB  the other arm's recording less that: what the agent did otherwise, at the same policy
    ΔC = ΔM + ΔB    what the bill really changed by

Each is a mean over the runs of an arm, then a difference a task; only tasks with both arms count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from proxy.replay.plan import KEEP, Plan
from proxy.replay.rows import Row
from proxy.replay.statistics import Interval, means, ratios


class Against(msgspec.Struct, frozen=True):
    """One arm against the one under `keep`, over the tasks that have both. Changes are shares of
    the other's bill (0.1 is a tenth more) at one cache rule and price; `success` is a difference of
    shares, over tasks where it is known in both, None where it is known in none; `output` and
    `steps` are shares too.
    """

    arm: str
    policy: str
    baseline: str
    cache: int
    price: int
    tasks: int
    total: Interval | None
    mechanical: Interval | None
    behavioural: Interval | None
    success: Interval | None
    output: Interval | None
    steps: Interval | None


@dataclass(slots=True)
class _Runs:
    """The runs of one task in one arm, as sums; `bills` by policy, cache rule and price."""

    policy: str
    count: int = 0
    output: int = 0
    steps: int = 0
    judged: int = 0
    succeeded: int = 0
    bills: defaultdict[tuple[int, int, int], float] = field(
        default_factory=lambda: defaultdict(float)
    )

    def add(self, row: Row) -> None:
        self.count += 1
        self.output += row.output
        self.steps += row.steps
        self.judged += row.label.success is not None
        self.succeeded += bool(row.label.success)
        for at, under in enumerate(row.under):
            for cache, served in enumerate(under.served):
                for price, bill in enumerate(served.bills):
                    self.bills[at, cache, price] += float(bill)

    def bill(self, policy: int, cache: int, price: int) -> float:
        return self.bills[policy, cache, price] / self.count


class Arms:
    """Gathers the sessions that bear an arm."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._runs: dict[str, dict[str, _Runs]] = {}

    def add(self, row: Row) -> None:
        if not row.label.arm:
            return
        tasks = self._runs.setdefault(row.label.arm, {})
        tasks.setdefault(row.label.task, _Runs(row.policy)).add(row)

    @property
    def names(self) -> Sequence[str]:
        return tuple(sorted(self._runs))

    def missing(self) -> Sequence[str]:
        """Policies that arms were recorded under and that were not replayed."""
        found = {runs.policy for tasks in self._runs.values() for runs in tasks.values()}
        return sorted(found - set(self._plan.policies)) if len(self._runs) > 1 else ()

    def against_keep(self, seed: int, resamples: int) -> list[Against]:
        """Every other arm against the arm under `keep`; none where no arm is."""
        policies = {name: _policy(tasks.values()) for name, tasks in sorted(self._runs.items())}
        baseline = next((name for name, policy in policies.items() if policy == KEEP), None)
        if baseline is None:
            return []
        return [
            self._against(baseline, arm, policy, cache, price, seed, resamples)
            for arm, policy in policies.items()
            if arm != baseline and policy in self._plan.policies
            for cache in self._plan.shown
            for price in range(len(self._plan.prices))
        ]

    def _against(
        self, baseline: str, arm: str, policy: str, cache: int, price: int, seed: int,
        resamples: int,
    ) -> Against:  # fmt: skip
        ours, theirs = self._runs[baseline], self._runs[arm]
        pairs = [(ours[task], theirs[task]) for task in sorted(ours.keys() & theirs.keys())]
        at, keep = self._plan.policies.index(policy), self._plan.policies.index(KEEP)
        kept = [a.bill(keep, cache, price) for a, _ in pairs]
        fixed = [a.bill(at, cache, price) for a, _ in pairs]
        real = [b.bill(at, cache, price) for _, b in pairs]
        output, steps = ([_mean(a, name) for a, _ in pairs] for name in ("output", "steps"))
        changed = [
            (_less(real, kept), kept), (_less(fixed, kept), kept), (_less(real, fixed), kept),
            (_less([_mean(b, "output") for _, b in pairs], output), output),
            (_less([_mean(b, "steps") for _, b in pairs], steps), steps),
        ]  # fmt: skip
        total, mechanical, behavioural, more, longer = (
            ratios(changed, seed, resamples) if pairs else [None] * 5
        )
        return Against(
            arm, policy, baseline, cache, price, len(pairs), total, mechanical, behavioural,
            _success(pairs, seed, resamples), more, longer,
        )  # fmt: skip


def _policy(runs: Iterable[_Runs]) -> str:
    """The policy of an arm; none where its runs are not agreed."""
    found = {it.policy for it in runs}
    return found.pop() if len(found) == 1 else ""


def _mean(runs: _Runs, name: str) -> float:
    return float(getattr(runs, name)) / runs.count


def _less(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _success(pairs: Sequence[tuple[_Runs, _Runs]], seed: int, resamples: int) -> Interval | None:
    known = [(a, b) for a, b in pairs if a.judged and b.judged]
    if not known:
        return None
    differences = [b.succeeded / b.judged - a.succeeded / a.judged for a, b in known]
    return means([differences], seed, resamples)[0]
