"""What the verdicts say: what is sure, what is not, and what there is too little of."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.replay.statistics import Interval
from proxy.report import figures
from proxy.report.groups import By
from proxy.report.notes import notes, nothing
from proxy.report.run import Amount, Run
from proxy.report.whole import Report, report
from proxy.report.words import Verdict, verdicts
from tests.report.words import AT, arm, run


def made(*arms: list[Run], by: By = By.POLICY) -> Report:
    return report([run for runs in arms for run in runs], by, AT)


def only(*arms: list[Run]) -> Verdict:
    (it,) = verdicts(made(*arms))
    return it


def said(it: Verdict) -> str:
    return " ".join(it.sentences)


def drop(count: int = 30, cost: float = 0.88, **more: Any) -> list[Run]:
    return arm("drop", count, cost, seed=2, dropped=100.0, **more)


def test_a_saving_is_told_with_its_interval_and_on_what_it_rests():
    it = only(arm("keep", 30, tasks=True), drop(tasks=True))

    assert ("drop", "keep", "cheaper per step", "good") == (
        it.policy, it.baseline, it.headline, it.tone,
    )  # fmt: skip
    assert "drop costs 12 % less (95 %: 9 to 15) than keep per step." in it.sentences
    assert "Compared on the 30 tasks that ran under both, each counted once" in said(it)


def test_a_loss_is_told_as_one():
    it = only(arm("keep", 30), drop(cost=1.3))

    assert ("dearer per step", "bad") == (it.headline, it.tone)
    assert "drop costs 30 % more" in said(it)
    assert "they may have worked on different things" in said(it)


def test_more_output_means_that_the_agent_re_derives():
    it = only(arm("keep", 30), drop(output=1_400.0))

    assert "Output per step rose 40 % (95 %: 36 to 44) under drop: the agent re-derives" in said(it)


def test_more_output_of_a_policy_that_forgot_nothing_is_no_re_deriving():
    it = only(arm("keep", 30), arm("random:0", 30, output=1_400.0, seed=2))

    assert "Output per step rose 40 %" in said(it)
    assert "re-derives" not in said(it)


def test_what_is_not_sure_is_not_told_as_a_finding():
    it = only(arm("keep", 30), drop(cost=1.0))

    assert ("no difference of the bill can be told", "calm") == (it.headline, it.tone)
    assert (
        "Whether drop costs more or less than keep per step cannot be told: as much (95 %: 3 % "
        "less to 3.1 % more)."
    ) in it.sentences
    assert "Output per step is not told apart from keep's" in said(it)


def test_too_little_is_not_enough_data_and_says_how_much_it_takes():
    it = only(arm("keep", 9), drop(9, cost=0.1))

    assert ("not enough data", "unknown") == (it.headline, it.tone)
    assert (
        "Not enough data on what a step costs: 9 conversations under drop and 9 under keep tell "
        "it; it takes 10 in each."
    ) in it.sentences
    assert "less" not in it.headline


def test_without_keep_there_is_the_mechanical_change_and_the_way_to_more():
    it = only(drop(12, keep=1.1))

    assert "nothing to compare with: no conversation under keep" == it.headline
    assert "Mechanically, with all that the agent said held fixed" in said(it)
    assert "x-lethe-policy: keep" in said(it)


def test_a_bill_that_nothing_changed_is_the_same_and_not_lower():
    ours = [run(f"d{n}", "drop", cost=Amount(1.0, 10), keep=1.0) for n in range(4)]

    assert "its bill is the same as under keep." in said(only(ours))


def test_observe_stands_for_keep_where_that_is_missing():
    it = only(arm("observe", 30), drop())

    assert "drop costs 12 % less" in said(it)
    assert "than observe per step" in said(it)


def test_success_is_told_in_points():
    keep = [run(f"k{n}", success=n % 2 == 0) for n in range(40)]
    ours = [run(f"d{n}", "drop", success=n % 20 != 0) for n in range(40)]

    better, worse = only(keep, ours), only([_as(it, "keep") for it in ours], _as_all(keep, "drop"))

    assert "It succeeds more often: 95 % against 50 %, +45 points (95 %: +28 to" in said(better)
    assert ("no difference of the bill can be told, and succeeds more often", "good") == (
        better.headline, better.tone,
    )  # fmt: skip
    assert "It succeeds less often: 50 % against 95 %" in said(worse)
    assert "bad" == worse.tone


def _as(it: Run, policy: str) -> Run:
    return run(it.id, policy, success=it.success, cost=it.cost)


def _as_all(runs: list[Run], policy: str) -> list[Run]:
    return [_as(it, policy) for it in runs]


def test_cheaper_and_succeeding_less_often_is_mixed():
    keep = [run(f"k{n}", success=n % 20 != 0) for n in range(40)]
    ours = [run(f"d{n}", "drop", success=n % 2 == 0, cost=Amount(0.5, 10)) for n in range(40)]

    it = only(keep, ours)

    assert ("cheaper per step, and succeeds less often", "mixed") == (it.headline, it.tone)


def test_cheaper_steps_and_more_of_them_may_be_dearer():
    keep = arm("keep", 30)
    ours = [
        run(f"d{n}", "drop", steps=20 + n % 2, cost=Amount(1.6 + n % 2 / 10, 20 + n % 2))
        for n in range(30)
    ]

    it = only(keep, ours)

    assert ("cheaper per step, dearer per conversation", "mixed") == (it.headline, it.tone)
    assert "A conversation costs 65 % more" in said(it)
    assert "A conversation takes 10" in said(it)


def test_no_outcome_is_told_as_unknown_and_how_to_post_one():
    assert "no outcome was posted to /lethe/outcomes" in said(only(arm("keep", 30), drop()))


def test_what_the_agent_did_differently_is_told_beside_the_mechanical_change():
    ours = [
        run(f"d{n}", "drop", task=f"task-{n}", cost=Amount(0.9, 10), keep=1.2, estimated=True)
        for n in range(12)
    ]

    told = said(only(arm("keep", 12, tasks=True), ours))

    assert "its bill is 25 % (95 %: 25 to 25) lower than under keep" in told
    assert "what the agent did differently makes +1" in told


def test_breaks_that_the_policy_itself_made_are_told():
    ours = [run(f"l{n}", "keep_latest:1", breaks=9, own=9) for n in range(12)]

    told = said(only(arm("keep", 12), ours))

    assert "keep_latest:1 itself broke the cached prefix 108 times in 120 steps." in told


def test_models_are_never_compared_with_each_other():
    cheap = arm("drop", 30, 0.01, model="small")

    told = verdicts(made(arm("keep", 30, model="large"), cheap))

    assert [("small", "unknown")] == [(it.model, it.tone) for it in told]
    assert "Models cost and think differently" in " ".join(notes(made(arm("keep", 1), cheap)))


@pytest.mark.parametrize("name", ["several", "unknown"])
def test_what_has_no_one_policy_or_model_is_compared_with_nothing(name: str):
    assert [] == verdicts(made(arm("keep", 20), arm(name, 20)))
    assert [] == verdicts(made(arm("keep", 20, model=name), arm("drop", 20, model=name)))


def test_rows_by_task_are_compared_where_both_arms_have_enough():
    def runs(policy: str, count: int, task: str) -> list[Run]:
        return [run(f"{task}{policy}{n}", policy, task=task) for n in range(count)]

    it = made(runs("keep", 10, "a"), runs("drop", 10, "a"), runs("keep", 10, "b"),
              runs("drop", 9, "b"), by=By.TASK)  # fmt: skip

    assert [("a", "drop")] == [(key.task, key.policy) for key in it.beside]
    assert ["drop"] == [key.policy for key in it.comparisons]


def test_the_notes_say_what_is_mechanical_what_is_a_finding_and_what_has_no_price():
    told = " ".join(notes(made(arm("keep", 3, unpriced=4))))

    assert "The mechanical saving holds the continuation fixed" in told
    assert "at least 10 conversations" in told
    assert "does not hold 0" in told
    assert "12 requests have no price" in told
    assert "has no price" not in " ".join(notes(made(arm("keep", 3))))


def test_where_there_is_nothing_the_next_step_is_told():
    assert any("OPENAI_BASE_URL" in line for line in nothing(since=False))
    assert any("--since 30d" in line for line in nothing(since=True))


@pytest.mark.parametrize(
    ("value", "low", "high", "told"),
    [
        (-0.12, -0.15, -0.08, "12 % less (95 %: 8 to 15)"),
        (0.4, 0.25, 0.55, "40 % more (95 %: 25 to 55)"),
        (0.034, -0.02, 0.1, "3.4 % more (95 %: 2 % less to 10 % more)"),
        (-0.5, None, None, "50 % less"),
    ],
)
def test_a_change_is_read_as_a_sentence(
    value: float, low: float | None, high: float | None, told: str
):
    assert told == figures.much(Interval(value, low, high, 10, "bootstrap"))


def test_a_change_in_a_cell_is_marked_where_it_is_not_sure():
    found = Interval(-0.12, -0.15, 0.08, 10, "bootstrap")

    assert "-12 % (-15 to +8) ?" == figures.change(found, False)
    assert "-12 % (-15 to +8)" == figures.change(found, True)
    assert "–" == figures.change(None, False)


def test_a_loss_in_dollars_has_a_sign_and_an_unknown_sum_none():
    assert ["-$0.25", "~$1.50", "–"] == [
        figures.dollars(-0.25), figures.dollars(1.5, True), figures.dollars(None),
    ]  # fmt: skip
    assert ["$0.10", "$0.00", "$0.00012"] == [figures.dollars(it) for it in (0.1, 0.0, 0.00012)]


def test_one_of_anything_is_told_as_one():
    odd = run("a", "keep", unpriced=1), run("b", "several")
    ours = [run("d", "keep_latest:1", breaks=1, own=1, steps=1)]
    told = " ".join(notes(made(list(odd), ours))) + said(only(arm("keep", 12), ours))

    for part in (
        "1 request has no price and is in no bill", "1 conversation in which", "1 time in 1 step.",
        "1 conversation under keep_latest:1 and 12 under keep",
    ):  # fmt: skip
        assert part in told


def test_one_point_is_one():
    assert ["+1 point", "-1 point", "+2 points", "0 points"] == [
        figures.points(share) for share in (0.01, -0.01, 0.02, 0.0)
    ]
