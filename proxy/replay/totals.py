"""Adds up what the sessions came to: sums, and by task what the intervals are made of.

Sums are whole numbers and decimals, so the order in which they are added does not matter. By task
are kept the bills, a number for each policy, cache rule and price: about 200 bytes a task.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b

from proxy.core.operations import Work
from proxy.replay.plan import Plan
from proxy.replay.rows import Row, Served, Skipped, Under
from proxy.replay.sources import TOLD

Place = tuple[int, int, int]
"""Of a policy, a cache rule and a price sheet in the plan."""


@dataclass(slots=True)
class Sum:
    """Under one policy and one cache rule; bills in dollars, in the order of the plan's prices."""

    bills: list[Decimal]
    read: int = 0
    rebuilt: int = 0
    new: int = 0
    positions: int = 0
    pairs: int = 0
    compared: int = 0
    exact: int = 0
    foretold_reads: int = 0
    recorded_reads: int = 0

    def add(self, it: Served) -> None:
        self.read += it.read
        self.rebuilt += it.rebuilt
        self.new += it.new
        self.positions += it.positions
        self.pairs += it.pairs
        self.compared += it.compared
        self.exact += it.exact
        self.foretold_reads += it.foretold_reads
        self.recorded_reads += it.recorded_reads
        self.bills = [a + b for a, b in zip(self.bills, it.bills, strict=True)]


@dataclass(slots=True)
class UnderPolicy:
    """Under one policy; `served` in the order of the plan's cache rules."""

    served: list[Sum]
    input: int = 0
    dropped: int = 0
    breaks: Counter[str] = field(default_factory=Counter)

    def add(self, it: Under) -> None:
        self.input += it.input
        self.dropped += it.dropped
        self.breaks.update(it.breaks)
        for sum_, served in zip(self.served, it.served, strict=True):
            sum_.add(served)


@dataclass(slots=True)
class Skips:
    """What was not replayed: all counted, the first named."""

    count: int = 0
    told: list[Skipped] = field(default_factory=list)

    def add(self, rows: Iterable[Skipped], count: int) -> None:
        self.count += count
        self.told += list(rows)[: TOLD - len(self.told)]


class Totals:
    """Of a whole replay."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sessions = self.requests = self.unread = self.steps = self.output = self.reasoning = 0
        self.estimated_output = self.anchored = self.foretold = self.near = 0
        self.recorded = self.modelled = 0
        self.formats: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.skips = Skips()
        self.under = [UnderPolicy(self._empty()) for _ in plan.policies]
        self._tasks: dict[bytes, int] = {}
        self._bills: dict[Place, array[float]] = {place: array("d") for place in self._places()}

    def _empty(self) -> list[Sum]:
        return [Sum([Decimal(0)] * len(self.plan.prices)) for _ in self.plan.caches]

    def _places(self) -> list[Place]:
        plan = self.plan
        rules, prices = range(len(plan.caches)), range(len(plan.prices))
        return [(p, c, s) for p in range(len(plan.policies)) for c in rules for s in prices]

    def add(self, row: Row) -> None:
        self.sessions += 1
        self.requests += row.requests
        self.unread += row.unread
        self.steps += row.steps
        self.output += row.output
        self.reasoning += row.reasoning
        self.estimated_output += row.estimated_output
        self.anchored += row.anchored
        self.foretold += row.foretold
        self.near += row.near
        self.recorded += row.recorded
        self.modelled += row.modelled
        self.formats[row.format] += 1
        self.models[row.model or "unknown"] += 1
        for sum_, it in zip(self.under, row.under, strict=True):
            sum_.add(it)
        self._add_bills(row)

    def _add_bills(self, row: Row) -> None:
        name = row.label.task.encode("utf-8", "surrogatepass")
        key = blake2b(name, digest_size=12).digest()
        task = self._tasks.setdefault(key, len(self._tasks))
        for (policy, cache, price), column in self._bills.items():
            if task == len(column):
                column.append(0.0)
            column[task] += float(row.under[policy].served[cache].bills[price])

    @property
    def estimated(self) -> bool:
        """Whether any size rests on something else than recorded counts."""
        return self.anchored < self.requests or self.estimated_output > 0

    @property
    def tasks(self) -> int:
        return len(self._tasks)

    def bills(self, place: Place) -> array[float]:
        """Dollars by task."""
        return self._bills[place]

    def bill(self, place: Place) -> Decimal:
        policy, cache, price = place
        return self.under[policy].served[cache].bills[price]

    def work(self, policy: int, cache: int) -> Work:
        it = self.under[policy].served[cache]
        return Work(it.positions, it.pairs, self.output)
