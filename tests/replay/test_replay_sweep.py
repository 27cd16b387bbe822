"""Sweeps: what would pay if the server or its prices were others."""

from __future__ import annotations

from fractions import Fraction

import pytest

from proxy.core.operations import at_rate, operations
from proxy.replay import sweep
from proxy.replay.comparison import changes
from proxy.replay.plan import Plan
from proxy.replay.sweep import Curve, Sweep
from proxy.replay.totals import Totals
from tests.replay.recorded import plan, replayed, trajectory

PRICE = at_rate(Fraction(20_000))


def totals(it: Plan) -> Totals:
    found = Totals(it)
    for task in ("a", "b"):
        found.add(replayed(trajectory(6, task, task=task), it))
    return found


def curve(swept: Sweep, policy: str, cache: str) -> Curve:
    return next(it for it in swept.curves if (policy, cache) == (it.policy, it.cache))


def at(it: Curve, x: float) -> float:
    return dict(it.points)[x]


def test_at_a_rate_the_change_is_that_of_the_operations():
    found = totals(plan("drop"))
    swept = sweep.swept("exchange-rate", found, 0, PRICE, Fraction(3))
    ours, keep = (
        operations(found.work(policy, 0), PRICE, Fraction(3)) for policy in (1, 0)
    )  # fmt: skip

    assert at(curve(swept, "drop", "prompt+generated"), 20_000) == pytest.approx(
        float(ours / keep) - 1
    )


def test_the_more_a_generated_token_costs_the_less_forgetting_changes():
    swept = sweep.swept("decode-premium", totals(plan("drop")), 0, PRICE, Fraction(1))
    changes_ = [abs(change) for _, change in curve(swept, "drop", "prompt").points]

    assert sorted(changes_, reverse=True) == changes_


def test_at_the_sheets_own_read_price_the_change_is_that_of_the_bill():
    found = totals(plan("drop"))
    swept = sweep.swept("read-price", found, 0, PRICE, Fraction(1))
    bill = changes(found, 1, 10)[1, 1, 0]
    assert bill

    assert at(curve(swept, "drop", "prompt"), 0.05) == pytest.approx(bill.value)


def test_blocks_have_a_point_for_each_size():
    it = plan("drop", caches=("prompt",))
    wide = Plan(it.policies, sweep.with_blocks(it.caches), it.prices, asked=1)
    swept = sweep.swept("block", totals(wide), 0, PRICE, Fraction(1))

    assert list(sweep.BLOCKS) == [x for x, _ in curve(swept, "drop", "prompt").points]


def test_other_sweeps_and_tables_leave_the_blocks_out():
    it = plan("drop", caches=("prompt",))
    wide = Plan(it.policies, sweep.with_blocks(it.caches), it.prices, asked=1)
    found = totals(wide)

    assert 1 == len(sweep.swept("exchange-rate", found, 0, PRICE, Fraction(1)).curves)
    assert {(1, 0, 0)} == set(changes(found, 1, 10))
