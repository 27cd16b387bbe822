"""Bootstrap intervals: paired, clustered, seeded; and the normal ones they turn into."""

from __future__ import annotations

from random import Random

import pytest

from proxy.replay.statistics import Interval, means, quantile, ratios

TASKS = 60


def column(seed: int, mean: float = 10.0) -> list[float]:
    random = Random(seed)
    return [random.gauss(mean, 3.0) for _ in range(TASKS)]


def found(rows: list[Interval | None]) -> Interval:
    (it,) = rows
    assert it is not None
    return it


def test_the_same_seed_gives_the_same_interval_and_another_nearly_the_same():
    values = column(1)
    a, b, c = (found(means([values], seed)) for seed in (1, 1, 2))

    assert a == b
    assert a != c
    assert a.low == pytest.approx(c.low, abs=0.1)


def test_the_interval_is_that_of_the_mean():
    values = column(2)
    it = found(means([values], 1))
    mean = sum(values) / TASKS
    error = (sum((v - mean) ** 2 for v in values) / TASKS) ** 0.5 / TASKS**0.5

    assert mean == pytest.approx(it.value)
    assert mean - 1.96 * error == pytest.approx(it.low, abs=0.05)
    assert mean + 1.96 * error == pytest.approx(it.high, abs=0.05)


def test_a_paired_difference_is_surer_than_its_parts():
    keep = column(3, 100.0)
    ours = [value - 1 for value in keep]
    difference = found(means([[a - b for a, b in zip(ours, keep, strict=True)]], 1, 500))

    assert (-1, -1, -1) == pytest.approx((difference.value, difference.low, difference.high))
    assert difference.certain


def test_a_ratio_is_of_sums_not_a_mean_of_ratios():
    it = found(ratios([([1.0, 9.0], [10.0, 10.0])], 1, 200))

    assert 0.5 == it.value
    assert (0.1, 0.9) == (it.low, it.high)


def test_one_task_tells_nothing_of_its_spread():
    assert Interval(2.0, None, None, 1, "normal") == found(means([[2.0]], 1))


def test_nothing_divided_by_nothing_is_nothing():
    assert [None] == ratios([([0.0, 0.0], [0.0, 0.0])], 1, 10)


def test_with_very_many_tasks_the_interval_is_the_normal_one_and_nearly_the_same():
    values = column(4)
    drawn = found(means([values], 1, 2_000))
    many = found(means([values], 1, 10**9))

    assert ("bootstrap", "normal") == (drawn.method, many.method)
    assert drawn.low == pytest.approx(many.low, abs=0.1)
    assert drawn.high == pytest.approx(many.high, abs=0.1)


def test_a_quantile_lies_between_its_neighbours():
    assert 2.5 == quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    assert 4.0 == quantile([1.0, 4.0], 1.0)
