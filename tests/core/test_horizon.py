"""The retention horizon: how much must still come for forgetting to pay."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.cachemodel import Segment
from proxy.core.contract import CacheRule, Reuse
from proxy.core.horizon import (
    NOT_KNOWN,
    Expectation,
    Lacks,
    Remaining,
    Source,
    Step,
    Terms,
    Unit,
    Weighed,
    expected,
    pays,
    positions,
    requests,
)
from proxy.core.operations import at_rate, operations, total, works

RATE = Fraction(124_000)
steps = st.builds(Step, st.integers(1, 5000), st.integers(1, 300), st.integers(0, 200))
rates = st.fractions(0, 200_000)


@pytest.mark.parametrize(
    ("action", "exact", "about"),
    [(7, Fraction(504_014, 1000), 504), (4_000, Fraction(292_001), 292_001)],
)
def test_the_horizons_that_are_known(action: int, exact: Fraction, about: int) -> None:
    horizon = positions(Step(20_000, 2_000, action), RATE, Reuse.GENERATED)

    assert exact == horizon
    assert about == round(exact)


@given(steps, rates, st.integers(1, 400), st.integers(1, 50))
def test_the_horizon_is_where_the_operations_of_both_are_equal(
    step: Step, rate: Fraction, result: int, answer: int
) -> None:
    """A request behind the step, under an engine that re-uses what it generated."""
    before = (Segment(b"before", step.before),)
    written = (Segment(b"reasoning", step.reasoning), Segment(b"action", step.action))
    after, said = (Segment(b"result", result),), (Segment(b"answer", answer),)
    rule, price = CacheRule(Reuse.GENERATED), at_rate(rate)

    def cost(kept: tuple[Segment, ...]) -> Fraction:
        served = [(before, written), ((*before, *kept, *after), said)]
        return operations(total(works(rule, served)), price)

    horizon = positions(step, rate, Reuse.GENERATED)
    saved = cost(written) - cost(written[1:])

    assert horizon is not None
    assert step.reasoning * (result + answer - horizon) == saved


@given(steps, st.integers(1, 300), st.integers(0, 100), st.integers(1, 20))
def test_the_horizon_of_a_bill_is_where_both_bills_are_equal(
    step: Step, anew: int, read: int, later: int
) -> None:
    anew += read
    kept = later * step.reasoning * read + step.action * read
    dropped = step.action * anew
    horizon = requests(step, Decimal(anew), Decimal(read), Reuse.GENERATED)

    if not read:
        assert horizon is None
    else:
        assert horizon is not None
        assert (later >= horizon) == (kept >= dropped)


@given(steps, rates, st.sampled_from([Reuse.PROMPT, Reuse.NONE]))
def test_where_nothing_generated_is_held_forgetting_pays_at_once(
    step: Step, rate: Fraction, reuse: Reuse
) -> None:
    assert 0 == positions(step, rate, reuse) == requests(step, Decimal(5), Decimal(1), reuse)


@pytest.mark.parametrize("reuse", Reuse)
def test_a_step_without_reasoning_has_nothing_to_forget(reuse: Reuse) -> None:
    step = Step(10, 0, 10)

    assert positions(step, RATE, reuse) is None
    assert requests(step, Decimal(5), Decimal(1), reuse) is None


def test_a_model_whose_pairs_cost_nothing_never_gains() -> None:
    assert positions(Step(10, 10, 10), None, Reuse.GENERATED) is None


def test_prices_at_which_a_read_is_dearer_than_new_input_pay_at_once() -> None:
    assert 0 == requests(Step(10, 10, 10), Decimal(1), Decimal(2), Reuse.GENERATED)


def test_sizes_below_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="0 tokens or more"):
        Step(10, -1, 10)


def test_what_is_expected_is_learned_from_those_that_came_further() -> None:
    assert Expectation(Fraction(25), 2) == expected([10, 50, 60, 30], 30)
    assert expected([10, 30], 30) is None
    assert expected([], 0) is None


@given(st.lists(st.integers(0, 1000)), st.integers(0, 1000))
def test_what_is_expected_is_more_than_nothing(past: list[int], now: int) -> None:
    found = expected(past, now)

    assert found is None or (0 < found.mean <= 1000 and 0 < found.samples <= len(past))


@pytest.mark.parametrize(
    ("remaining", "horizon", "expect"),
    [
        (Fraction(11), Fraction(10), True),
        (Fraction(10), Fraction(10), False),
        (None, Fraction(10), False),
        (None, Fraction(0), True),
        (Fraction(11), None, False),
    ],
)
def test_it_pays_where_more_is_expected_than_the_horizon_or_at_once(
    remaining: Fraction | None, horizon: Fraction | None, expect: bool
) -> None:
    assert expect == pays(remaining, horizon)


# A step in front of the policy

STEP = Step(20_000, 2_000, 7)


@given(steps, rates, st.integers(1, 300), st.integers(0, 100), st.sampled_from(Reuse))
def test_a_horizon_is_in_the_unit_of_its_terms(
    step: Step, rate: Fraction, anew: int, read: int, reuse: Reuse
) -> None:
    in_positions = Terms(reuse, Unit.POSITIONS, rate)
    in_requests = Terms(reuse, Unit.REQUESTS, None, Decimal(anew), Decimal(read))

    assert positions(step, rate, reuse) == in_positions.horizon(step)
    assert requests(step, Decimal(anew), Decimal(read), reuse) == in_requests.horizon(step)


@pytest.mark.parametrize(("remaining", "expected"), [(504, False), (505, True), (None, False)])
def test_a_step_is_forgotten_where_more_is_to_come_than_its_horizon(
    remaining: int | None, expected: bool
) -> None:
    amount = None if remaining is None else Fraction(remaining)
    terms = Terms(Reuse.GENERATED, Unit.POSITIONS, RATE)
    it = Weighed(3, STEP, True, terms, Remaining(amount, Source.POLICY))

    assert expected is it.pays
    assert Fraction(504_014, 1000) == it.horizon


def test_without_terms_there_is_no_horizon_and_nothing_pays() -> None:
    it = Weighed(3, STEP, True, None, Remaining(Fraction(10**9)), Lacks.CACHE_RULE)

    assert it.horizon is None
    assert not it.pays
    assert NOT_KNOWN == Weighed(3, STEP, True, None).remaining
