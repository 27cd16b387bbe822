"""Which conversations are compared, and when a difference is one."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.replay.statistics import Interval
from proxy.report.compare import LEAST, Change, Comparison, Design, compared
from proxy.report.run import Amount, Run
from tests.report.words import arm, run


def against_keep(ours: list[Run], theirs: list[Run]) -> Comparison:
    return compared("m", ours[0].policy, "keep", ours, theirs)


def cost(it: Comparison) -> Change:
    return it.changes["cost_per_step"]


def interval(it: Change) -> Interval:
    assert it.interval is not None
    return it.interval


def test_with_enough_tasks_in_both_arms_only_these_count():
    keep = arm("keep", 15, tasks=True)
    drop = [*arm("drop", 12, 0.8, seed=2, tasks=True), run("other", "drop", task="hard")]

    found = against_keep(drop, keep)

    assert (Design.PAIRED, 12, 12, 12) == (found.design, found.units, found.ours, found.theirs)
    assert cost(found).certain
    assert -0.2 == pytest.approx(interval(cost(found)).value, abs=0.05)


def test_a_paired_task_counts_once_however_often_it_ran():
    keep = arm("keep", 10, tasks=True)
    drop = [
        run(f"d{number}", "drop", task=f"task-{number}", cost=Amount(2.0, 10))
        for number in range(10)
    ]
    often = [run(f"again{n}", "drop", task="task-0", cost=Amount(2.0, 10)) for n in range(50)]

    assert cost(against_keep(drop, keep)).ours == cost(against_keep(drop + often, keep)).ours
    once, more = (interval(cost(against_keep(it, keep))) for it in (drop, drop + often))
    assert once.value == pytest.approx(more.value)


def test_tasks_that_ran_in_one_arm_each_are_drawn_with_all_their_runs():
    def runs(policy: str, bills: list[float]) -> list[Run]:
        return [
            run(f"{policy}{number}-{again}", policy, task=f"{policy}{number}",
                cost=Amount(bill, 10))
            for number, bill in enumerate(bills)
            for again in range(20)
        ]  # fmt: skip

    keep, drop = runs("keep", [1.0, 1.4] * 5), runs("drop", [0.9, 1.3] * 5)
    found = against_keep(drop, keep)

    assert (Design.TASKS, 20, 200) == (found.design, found.units, found.ours)
    assert (10, 10) == cost(found).units
    assert not cost(found).certain


def test_few_labels_leave_each_conversation_to_itself():
    keep = [run(f"k{n}", task="bench", cost=Amount(1.0 + n % 2 / 10, 10)) for n in range(20)]
    drop = [run(f"d{n}", "drop", task="bench", cost=Amount(0.5, 10)) for n in range(20)]

    found = against_keep(drop, keep)

    assert (Design.CONVERSATIONS, 40) == (found.design, found.units)
    assert cost(found).certain


@pytest.mark.parametrize(("ours", "theirs"), [(LEAST - 1, 50), (50, LEAST - 1)])
def test_too_few_in_either_arm_are_no_finding(ours: int, theirs: int):
    found = against_keep(arm("drop", ours, 0.1), arm("keep", theirs))

    assert interval(cost(found)).certain
    assert not cost(found).enough
    assert not cost(found).certain


def test_a_measure_that_few_tell_is_no_finding_and_the_others_are():
    keep, drop = arm("keep", 20), arm("drop", 20, 0.5, seed=2)
    keep = [run(it.id, success=n < 1 or None, cost=it.cost) for n, it in enumerate(keep)]

    found = against_keep(drop, keep)

    assert cost(found).certain
    assert (0, 1) == found.changes["success"].units
    assert not found.changes["success"].enough


def test_equal_arms_are_not_told_apart():
    found = against_keep(arm("drop", 40, seed=2), arm("keep", 40, seed=3))

    assert cost(found).enough
    assert not cost(found).certain


def test_success_differs_in_points():
    keep = [run(f"k{n}", success=n % 2 == 0) for n in range(40)]
    drop = [run(f"d{n}", "drop", success=n % 20 != 0) for n in range(40)]

    it = against_keep(drop, keep).changes["success"]

    assert (0.95, 0.5) == (it.ours, it.theirs)
    assert it.certain
    assert 0.45 == pytest.approx(interval(it).value)


def test_what_has_no_price_is_compared_in_all_but_money():
    free: dict[str, Any] = {"cost": Amount(), "keep": 0.0, "priced": 0, "unpriced": 10}
    keep = [run(f"k{n}", **free) for n in range(20)]
    drop = [run(f"d{n}", "drop", output=Amount(2000.0 + n, 10), **free) for n in range(20)]

    found = against_keep(drop, keep)

    assert cost(found).interval is None
    assert found.changes["mechanical"].interval is None
    assert found.changes["output_per_step"].certain


def test_a_bill_with_a_hole_in_it_is_no_bill_of_a_conversation():
    keep = [run(f"k{n}", unpriced=1) for n in range(20)]

    found = against_keep(arm("drop", 20), keep)

    assert (20, 0) == found.changes["cost_per_conversation"].units
    assert (20, 20) == cost(found).units


def test_the_mechanical_change_needs_no_other_arm():
    drop = [run(f"d{n}", "drop", cost=Amount(0.8, 10), keep=1.0) for n in range(12)]

    it = compared("m", "drop", "keep", drop, ()).changes["mechanical"]

    assert -0.2 == pytest.approx(interval(it).value)
    assert it.certain


def test_the_order_of_conversations_does_not_matter():
    keep, drop = arm("keep", 30), arm("drop", 30, 0.9, seed=2)

    assert against_keep(drop, keep) == against_keep(drop[::-1], keep[::-1])
