"""Money: additive, exact, and losses told as losses."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import pricing
from proxy.core.expect import CacheRule, Reuse
from proxy.core.known_rules import RULES
from proxy.core.pricing import Dropped, Sheet
from proxy.core.usage import Usage

SONNET = pricing.sheet(Decimal(2), Decimal("0.10"), Decimal("2.50"), Decimal(10))
FREE_WRITES = pricing.sheet(Decimal("0.28"), Decimal("0.028"), Decimal(0), Decimal("0.42"))
tokens = st.integers(0, 10**7)


@given(tokens, tokens, tokens, tokens)
def test_read_write_and_uncached_input_are_all_input(a: int, b: int, c: int, out: int) -> None:
    usage = Usage(a + b + c, b, c, None, out, None, None)
    flat = Sheet(Decimal(1), Decimal(1), Decimal(1), Decimal(1))

    found = pricing.cost(usage, flat)

    assert found is not None
    assert a + b + c + out == found.total
    assert [a, b, c] == [int(found.input), int(found.cache_read), int(found.cache_write)]


@given(tokens, tokens, tokens, tokens)
def test_cost_is_additive_over_exchanges(a: int, b: int, c: int, d: int) -> None:
    one = pricing.cost(Usage(a + b, b, 0, None, c, None, None), SONNET)
    two = pricing.cost(Usage(c + d, d, 0, None, a, None, None), SONNET)
    both = pricing.cost(Usage(a + b + c + d, b + d, 0, None, a + c, None, None), SONNET)

    assert one is not None
    assert two is not None
    assert both is not None
    assert both.total == one.total + two.total


def test_a_price_far_below_a_cent_is_not_rounded() -> None:
    prices = pricing.sheet(Decimal("1.32"), Decimal("0.003625"), Decimal(0), Decimal("3.96"))

    found = pricing.cost(Usage(1, 1, 0, None, 0, None, None), prices)

    assert found is not None
    assert Decimal("0.000000003625") == found.total


def test_what_was_not_reported_has_no_cost() -> None:
    assert pricing.cost(Usage(None, None, None, None, 5, None, None), SONNET) is None
    assert pricing.cost(Usage(5, None, None, None, None, None, None), SONNET) is None


def test_cached_tokens_that_are_not_reported_cost_as_input() -> None:
    found = pricing.cost(Usage(1_000_000, None, None, None, 0, None, None), SONNET)

    assert found is not None
    assert Decimal(2) == found.total


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (None, "0.0026"),
        (RULES["deepseek"], "0.0026"),
        (RULES["llama.cpp"], "-0.00028"),
        (CacheRule("none", Reuse.NONE), "0.004"),
    ],
)
def test_what_forgetting_saves_is_decided_by_what_the_cache_holds(
    rule: CacheRule | None, expected: str
) -> None:
    dropped = Dropped(before=1000, now=1000, behind=200)

    assert Decimal(expected) == pricing.saving(dropped, rule, SONNET)


def test_where_writing_is_free_a_rebuild_costs_the_difference_to_a_read() -> None:
    assert Decimal("0.000252") == pricing.rebuilt(1000, FREE_WRITES)
    assert Decimal("0.0024") == pricing.rebuilt(1000, SONNET)
