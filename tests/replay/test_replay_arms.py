"""Two recordings of one task: what forgetting did, and what the agent did then."""

from __future__ import annotations

import pytest

from proxy.replay.arms import Against, Arms
from tests.replay.recorded import plan, replayed, trajectory, under

SEED, RESAMPLES = 1, 200


def compared(*records: object) -> tuple[list[Against], Arms]:
    it = plan("drop", caches=("prompt",))
    arms = Arms(it)
    for record in records:
        arms.add(replayed(record, it))
    return arms.against_keep(SEED, RESAMPLES), arms


def both(task: str, kept: int, forgot: int) -> tuple[object, object]:
    return (
        trajectory(kept, task, task=task, arm="keep", success=True),
        trajectory(forgot, task, kept=False, task=task, arm="drop", success=task == "a"),
    )


def test_what_changed_is_what_was_forgotten_and_what_was_done_then():
    rows, _ = compared(*both("a", 3, 4), *both("b", 5, 5), *both("c", 4, 3))
    (it,) = rows
    assert it.total
    assert it.mechanical
    assert it.behavioural
    assert 3 == it.tasks
    assert it.total.value == pytest.approx(it.mechanical.value + it.behavioural.value)
    assert it.mechanical.value < 0


def test_the_mechanical_part_is_the_kept_runs_under_the_other_policy():
    kept, _ = pair = both("a", 4, 6)
    rows, _ = compared(*pair)
    it = plan("drop", caches=("prompt",))
    row = replayed(kept, it)
    keep, drop = (float(under(row, it, name).served[0].bills[0]) for name in ("keep", "drop"))

    assert rows[0].mechanical
    assert drop / keep - 1 == pytest.approx(rows[0].mechanical.value)


def test_runs_of_one_arm_count_by_their_mean():
    one, _ = compared(*both("a", 4, 6), *both("b", 4, 6))
    two, _ = compared(*both("a", 4, 6), *both("b", 4, 6), *both("b", 4, 6))

    assert one[0].total
    assert two[0].total
    assert one[0].total.value == pytest.approx(two[0].total.value)


def test_success_stands_beside_the_cost():
    rows, _ = compared(*both("a", 3, 3), *both("b", 3, 3))

    assert rows[0].success
    assert -0.5 == rows[0].success.value


def test_tasks_with_one_arm_only_do_not_count():
    rows, _ = compared(*both("a", 3, 3), trajectory(3, task="alone", arm="keep"))

    assert 1 == rows[0].tasks


def test_an_arm_whose_policy_was_not_replayed_is_told():
    _, arms = compared(both("a", 3, 3)[0], trajectory(3, task="a", arm="keep_latest:2"))

    assert ["keep_latest:2"] == arms.missing()


def test_without_an_arm_under_keep_there_is_nothing_to_compare_with():
    rows, _ = compared(both("a", 3, 3)[1])

    assert [] == rows
