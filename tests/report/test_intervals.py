"""Intervals of a change: seeded, paired where units ran in both arms, and as wide as they say."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from proxy.replay.statistics import Interval
from proxy.report.intervals import NOTHING, Kind, Unit, changes


def units(ours: Sequence[float], theirs: Sequence[float]) -> list[Unit]:
    """Two arms that share no unit; each value is over 1."""
    return [Unit([(value, 1.0)], None) for value in ours] + [
        Unit(None, [(value, 1.0)]) for value in theirs
    ]


def pairs(ours: Sequence[float], theirs: Sequence[float]) -> list[Unit]:
    return [Unit([(a, 1.0)], [(b, 1.0)]) for a, b in zip(ours, theirs, strict=True)]


def noise(seed: int, count: int, mean: float = 10.0) -> list[float]:
    random = Random(seed)
    return [random.gauss(mean, 2.0) for _ in range(count)]


def only(found: list[Interval | None]) -> Interval:
    (it,) = found
    assert it is not None
    assert it.low is not None
    assert it.high is not None
    return it


def width(it: Interval) -> float:
    assert it.low is not None
    assert it.high is not None
    return it.high - it.low


def test_a_change_is_of_the_ratio_of_sums():
    rows = [Unit([(3.0, 1.0), (1.0, 2.0)], None), Unit([(5.0, 3.0), (3.0, 2.0)], None),
            Unit(None, [(1.0, 1.0), (1.0, 4.0)]), Unit(None, [(3.0, 1.0), (1.0, 4.0)])]  # fmt: skip

    relative, difference = changes(rows, [Kind.RELATIVE, Kind.DIFFERENCE])

    assert relative is not None
    assert difference is not None
    assert (2.0 / 2.0 - 1, 1.0 - 0.25) == (relative.value, difference.value)


def test_the_same_seed_gives_the_same_interval_and_another_nearly_the_same():
    rows = units(noise(1, 40), noise(2, 40))
    a, b, c = (only(changes(rows, [Kind.RELATIVE], seed)) for seed in (1, 1, 2))

    assert a == b
    assert a != c
    assert a.low == pytest.approx(c.low, abs=0.01)


def test_pairing_makes_it_surer():
    base = noise(3, 40, 100.0)
    less = [value * 0.9 for value in base]

    paired = only(changes(pairs(less, base), [Kind.RELATIVE]))
    apart = only(changes(units(less, base), [Kind.RELATIVE]))

    assert paired.value == pytest.approx(-0.1)
    assert apart.value == pytest.approx(-0.1)
    assert width(paired) < 0.001 < width(apart)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("paired", [True, False])
def test_the_normal_interval_and_the_drawn_one_agree(kind: Kind, paired: bool):
    make = pairs if paired else units
    rows = make(noise(4, 60), noise(5, 60, 12.0))

    drawn = only(changes(rows, [kind]))
    normal = only(changes(rows, [kind], budget=0))

    assert ("bootstrap", "normal") == (drawn.method, normal.method)
    assert drawn.value == normal.value
    assert width(normal) == pytest.approx(width(drawn), rel=0.1)
    assert normal.low == pytest.approx(drawn.low, abs=0.15 * width(drawn))


def test_nineteen_of_twenty_intervals_hold_the_truth():
    held = 0
    for seed in range(400):
        rows = units(noise(2 * seed, 30, 9.0), noise(2 * seed + 1, 30, 10.0))
        it = only(changes(rows, [Kind.RELATIVE], budget=0))
        assert it.low is not None
        assert it.high is not None
        held += it.low <= -0.1 <= it.high

    assert 0.92 * 400 <= held <= 0.98 * 400


def test_what_one_unit_does_not_tell_is_left_out_of_that_measure_alone():
    rows = [Unit([(10.0, 1.0), NOTHING], None), Unit([(10.0, 1.0), (4.0, 1.0)], None)]
    rows += [Unit(None, [(20.0, 1.0), (2.0, 1.0)])] * 2

    cost, output = changes(rows, [Kind.RELATIVE, Kind.RELATIVE])

    assert cost is not None
    assert output is not None
    assert (-0.5, 1.0) == (cost.value, output.value)


def test_without_the_other_arm_only_what_stands_alone_is_told():
    rows = [Unit([(1.0, 4.0)] * 2, None), Unit([(1.0, 4.0)] * 2, None)]

    relative, alone = changes(rows, [Kind.RELATIVE, Kind.ALONE])

    assert relative is None
    assert alone is not None
    assert (0.25, 0.25, 0.25) == (alone.value, alone.low, alone.high)


def test_a_single_unit_tells_nothing_of_the_spread():
    assert [Interval(2.0, None, None, 1, "normal")] == changes(
        [Unit([(2.0, 1.0)], None)], [Kind.ALONE]
    )


def test_against_nothing_there_is_no_share():
    assert [None] == changes(units([1.0, 1.0], [0.0, 0.0]), [Kind.RELATIVE])
    assert [] == changes([], [])
    assert [None] == changes([], [Kind.ALONE])
