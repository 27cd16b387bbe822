"""Sums over conversations: by what, of what is known, in which order."""

from __future__ import annotations

from typing import Any

from proxy.report.groups import By, Key, grouped
from proxy.report.run import Amount, Run
from tests.report.words import run


def keys(runs: list[Run], by: By) -> list[tuple[str, str, str]]:
    return [(it.key.task, it.key.model, it.key.policy) for it in grouped(runs, by)]


RUNS = [
    run("a", "drop", model="dear", task="one", cost=Amount(5.0, 10)),
    run("b", "keep", model="dear", task="two", cost=Amount(4.0, 10)),
    run("c", "keep", model="cheap", task="two", cost=Amount(0.1, 10)),
    run("d", "drop", model="cheap", cost=Amount(0.2, 10)),
]


def test_rows_are_by_what_was_asked_the_dearest_first_and_keep_before_the_others():
    assert [
        ("", "dear", "keep"), ("", "dear", "drop"), ("", "cheap", "keep"), ("", "cheap", "drop"),
    ] == keys(RUNS, By.POLICY)  # fmt: skip
    assert [("", "dear", ""), ("", "cheap", "")] == keys(RUNS, By.MODEL)
    assert [
        ("one", "dear", "drop"), ("two", "dear", "keep"), ("two", "cheap", "keep"),
        ("", "cheap", "drop"),
    ] == keys(RUNS, By.TASK)  # fmt: skip


def test_where_nothing_has_a_price_the_most_steps_come_first():
    free: dict[str, Any] = {"cost": Amount(), "priced": 0}
    runs = [run("a", model="short", steps=3, **free), run("b", model="long", steps=30, **free)]

    assert ["long", "short"] == [it.key.model for it in grouped(runs, By.MODEL)]
    assert [None, None] == [it.cost for it in grouped(runs, By.MODEL)]


def test_means_are_over_what_is_known():
    runs = [
        run("a", success=True, score=1.0, output=Amount(100.0, 10), reasoning=Amount()),
        run("b", success=False, output=Amount(500.0, 10), reasoning=Amount(50.0, 5)),
        run("c", output=Amount(), reasoning=Amount(), cost=Amount(9.0, 10), unpriced=2),
        run("d", output=Amount(), reasoning=Amount(), cost=Amount(), keep=0.0, priced=0),
    ]

    (it,) = grouped(runs, By.POLICY)

    assert (Key(model="m", policy="keep"), 4, 40) == (it.key, it.conversations, it.steps)
    assert (2, 1, 0.5, 1.0) == (it.graded, it.succeeded, it.success, it.score)
    assert (30.0, 10.0) == (it.output, it.reasoning)
    assert (11.0, 11.0 / 30, 2) == (it.cost, it.cost_per_step, it.unpriced)
    assert -8.0 == it.saving


def test_the_share_read_from_a_cache_is_of_those_that_tell_both():
    runs = [run("a", input=Amount(100.0, 1), cache_read=Amount(80.0, 1)),
            run("b", input=Amount(900.0, 1), cache_read=Amount())]  # fmt: skip

    assert [0.8] == [it.hit for it in grouped(runs, By.POLICY)]


def test_what_nobody_tells_is_unknown():
    bare: dict[str, Any] = dict.fromkeys(
        ("output", "reasoning", "input", "cache_read", "cost"), Amount()
    )
    bare |= {"keep": 0.0, "priced": 0}

    (it,) = grouped([run("a", **bare)], By.POLICY)

    assert (None,) * 7 == (
        it.output, it.reasoning, it.hit, it.cost, it.cost_per_step, it.saving, it.success,
    )  # fmt: skip
