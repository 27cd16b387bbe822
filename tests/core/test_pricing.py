"""Money: additive, exact, and never rounded before it is shown."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from proxy.core import pricing
from proxy.core.pricing import PARTS, Cost, Sheet
from proxy.core.usage import Usage

SONNET = pricing.sheet(Decimal(2), Decimal("0.10"), Decimal("2.50"), Decimal(10), Decimal(4))
PLAIN = pricing.sheet(Decimal("0.28"), Decimal("0.028"), None, Decimal("0.42"))
tokens = st.integers(0, 10**9)
prices = st.decimals(0, 1000, places=6)
sheets = st.builds(
    pricing.sheet, prices, st.none() | prices, st.none() | prices, prices, st.none() | prices
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """What a provider may report, each part or not at all."""
    uncached, read, write, output = (draw(tokens) for _ in range(4))
    hour = draw(st.none() | st.integers(0, write))
    return Usage(uncached + read + write, read, write, hour, output)


def summed(a: Usage, b: Usage) -> Usage:
    """Two exchanges as if they were one."""
    return Usage(
        (a.input or 0) + (b.input or 0),
        (a.cache_read or 0) + (b.cache_read or 0),
        (a.cache_write or 0) + (b.cache_write or 0),
        (a.cache_write_1h or 0) + (b.cache_write_1h or 0),
        (a.output or 0) + (b.output or 0),
    )


def of(usage: Usage, sheet: Sheet) -> Cost:
    found = pricing.cost(usage, sheet)
    assert found is not None
    return found


@given(usages())
def test_read_written_and_uncached_input_are_all_input(usage: Usage) -> None:
    found = of(usage, Sheet(*[Decimal(1)] * 5))

    written = found.cache_write_5m + found.cache_write_1h
    assert usage.input == found.input + found.cache_read + written
    assert [usage.uncached, usage.cache_read, usage.cache_write, usage.output] == [
        found.input, found.cache_read, written, found.output
    ]  # fmt: skip
    assert (usage.cache_write_1h or 0) == found.cache_write_1h


@given(usages(), usages(), sheets)
def test_cost_is_additive_over_exchanges_part_by_part(a: Usage, b: Usage, sheet: Sheet) -> None:
    one, two, both = of(a, sheet), of(b, sheet), of(summed(a, b), sheet)

    for part in PARTS:
        assert getattr(both, part) == getattr(one, part) + getattr(two, part)
    assert both.total == one.total + two.total


@given(usages(), sheets)
def test_the_total_is_the_sum_of_the_parts(usage: Usage, sheet: Sheet) -> None:
    found = of(usage, sheet)

    assert found.total == sum(getattr(found, part) for part in PARTS)


@given(tokens, tokens, tokens, tokens, sheets)
def test_a_report_that_contradicts_itself_is_not_billed_beyond_its_input(
    total: int, read: int, write: int, hour: int, sheet: Sheet
) -> None:
    flat = Sheet(*[Decimal(1)] * 5)

    assert total == of(Usage(total, read, write, hour, 0), flat).total


def test_a_price_far_below_a_cent_is_not_rounded() -> None:
    sheet = pricing.sheet(Decimal("1.32"), Decimal("0.003625"), None, Decimal("3.96"))

    assert Decimal("0.000000003625") == of(Usage(1, 1, 0, None, 0), sheet).total
    assert Decimal("0.000000007250") == of(Usage(2, 2, 0, None, 0), sheet).total


def test_what_is_written_for_an_hour_has_a_price_of_its_own() -> None:
    found = of(Usage(1000, 0, 1000, 400, 0), SONNET)

    assert [600 * Decimal("2.50"), 400 * Decimal(4)] == [
        found.cache_write_5m * 1_000_000, found.cache_write_1h * 1_000_000
    ]  # fmt: skip


def test_a_kind_of_input_without_a_price_is_billed_as_input() -> None:
    million = Decimal(1_000_000)
    sheet = pricing.sheet(Decimal(3), None, None, Decimal(9))

    assert {3 / million} == {sheet.input, sheet.cache_read, sheet.cache_write, sheet.hour}
    assert Decimal("2.50") / million == pricing.sheet(
        Decimal(2), None, Decimal("2.50"), Decimal(9)
    ).hour  # fmt: skip


def test_what_was_not_reported_has_no_cost() -> None:
    assert pricing.cost(Usage(None, None, None, None, 5), SONNET) is None
    assert pricing.cost(Usage(5, None, None, None, None), SONNET) is None


def test_cached_tokens_that_are_not_reported_cost_as_input() -> None:
    assert Decimal(2) == of(Usage(1_000_000, None, None, None, 0), SONNET).total


def test_a_rebuild_costs_what_it_takes_anew_less_what_a_read_would_have() -> None:
    wrote, hour, plain = (
        Usage(5000, 0, 900, None, 1), Usage(5000, 0, 900, 900, 1), Usage(5000, 0, 0, None, 1)
    )  # fmt: skip

    assert Decimal("0.0024") == pricing.rebuilt(1000, wrote, SONNET)
    assert Decimal("0.0039") == pricing.rebuilt(1000, hour, SONNET)
    assert Decimal("0.0019") == pricing.rebuilt(1000, plain, SONNET)
    assert Decimal("0.000252") == pricing.rebuilt(1000, plain, PLAIN)
