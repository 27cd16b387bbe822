"""Lays every policy beside `keep`, over the tasks: what the bill would have changed by, and how
sure that is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from proxy.replay.statistics import Interval, ratios
from proxy.replay.totals import Place, Totals


def changes(it: Totals, seed: int, resamples: int) -> dict[Place, Interval | None]:
    """The change of the bill as a share (-0.2: a fifth less), of every policy but `keep`, under
    every cache rule and price; None where `keep` costs nothing.
    """
    plan = it.plan
    places = [
        (policy, cache, price)
        for cache in plan.shown
        for price in range(len(plan.prices))
        for policy in range(1, len(plan.policies))
    ]
    if not it.sessions:
        return {}
    found = ratios([_pair(it, place) for place in places], seed, resamples)
    return dict(zip(places, found, strict=True))


def _pair(it: Totals, place: Place) -> tuple[Sequence[float], Sequence[float]]:
    keep = it.bills((0, *place[1:]))
    ours = it.bills(place)
    return array("d", [a - b for a, b in zip(ours, keep, strict=True)]), keep
