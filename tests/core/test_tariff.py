"""What a model costs: held equal to the price list's own look-up, model by model."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import genai_prices
import msgspec
import pytest
from genai_prices.data import providers

from proxy import pricelist
from proxy.core import pricing, tariff
from proxy.core.tariff import Clause, Extract, Rate, Rates, Row, Tariff, Unpriced
from proxy.core.usage import Usage

NOW = datetime.datetime(2026, 11, 30, 12, 30, tzinfo=datetime.UTC)
IDS = ("anthropic", "deepseek", "openai", "openrouter", "azure", "google", "x-ai", "zai", "aws")


@pytest.fixture(scope="module")
def whole() -> Extract:
    named = {id: id for id in pricelist.names()}
    return tariff.read_extract(msgspec.json.encode(pricelist.extract({}, named, NOW.date())))


@pytest.mark.untraced
def test_every_model_of_every_provider_is_found_as_the_list_finds_it(whole: Extract) -> None:
    for provider in providers:
        for model in provider.models:
            for name in (model.id, f"{model.id}-20261130", model.id.upper()):
                theirs = provider.find_model(name, all_providers=providers)
                ours = tariff.find(whole.providers[provider.id], name)
                assert (theirs.id if theirs else None) == (ours.id if ours else None), name


@pytest.mark.untraced
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("hours", [0, 6, 12, 18])
@pytest.mark.parametrize("size", [1_000, 250_000, 600_000])
def test_every_model_costs_what_the_list_says(
    whole: Extract, id: str, hours: int, size: int
) -> None:
    at = NOW + datetime.timedelta(hours=hours)
    usage = Usage(size, size // 2, size // 10, size // 50, 700)
    theirs = genai_prices.Usage(
        input_tokens=size, cache_read_tokens=size // 2, cache_write_tokens=size // 10,
        cache_write_1h_tokens=size // 50, output_tokens=700,
    )  # fmt: skip
    priced = 0
    for model in whole.providers[id]:
        found = whole.find(id, model.id)
        if isinstance(found, Unpriced) or found.model != model.id:
            continue
        expected = genai_prices.calc_price(
            theirs, model.id, provider_id=id, genai_request_timestamp=at
        )
        cost = pricing.cost(usage, found.sheet(size, at.timestamp()))
        assert cost is not None
        assert expected.total_price == cost.total, model.id
        priced += 1
    assert priced > 3


def test_what_usage_does_not_tell_is_not_priced(whole: Extract) -> None:
    odd = [model for provider in providers for model in provider.models if _untold(model)]

    assert odd
    for provider in providers:
        for model in provider.models:
            if _untold(model) and tariff.find(whole.providers[provider.id], model.id):
                assert Unpriced.MODEL is whole.find(provider.id, model.id)


def _untold(model: Any) -> bool:
    prices = model.prices if isinstance(model.prices, list) else [model]
    given = [{k for k, v in vars(row.prices).items() if v is not None} for row in prices]
    return any({"requests_kcount", "output_reasoning_mtok"} & keys for keys in given)


def test_what_no_list_knows_says_what_it_does_not_know(whole: Extract) -> None:
    assert Unpriced.PROVIDER is whole.find("nobody", "gpt-5")
    assert Unpriced.MODEL is whole.find("deepseek", "a-model-of-nobody")


RATES = Rates(Rate(Decimal(1)), Rate(Decimal(5)))
DEAR = Rates(Rate(Decimal(2)), Rate(Decimal(10)))


def a_tariff(*rows: Row) -> Tariff:
    return Tariff("m", "p", rows, "list")


@pytest.mark.parametrize(
    ("at", "dear"),
    [("00:59", False), ("01:00", True), ("15:59", True), ("16:00", False)],
)
def test_a_price_may_hold_at_some_hours_alone(at: str, dear: bool) -> None:
    found = a_tariff(Row(RATES), Row(DEAR, between=(3600, 16 * 3600)))
    hour, minute = map(int, at.split(":"))
    when = NOW.replace(hour=hour, minute=minute).timestamp()

    assert (DEAR if dear else RATES) is found.row(when).rates


def test_hours_may_span_midnight() -> None:
    night = Row(DEAR, between=(22 * 3600, 6 * 3600))

    assert [True, True, False] == [
        night.holds(NOW.replace(hour=hour).timestamp()) for hour in (23, 5, 12)
    ]


def test_a_price_holds_from_its_day_on_and_the_first_where_none_holds() -> None:
    start = NOW.timestamp()
    found = a_tariff(Row(RATES), Row(DEAR, since=start))

    assert RATES is found.row(start - 1).rates
    assert DEAR is found.row(start).rates
    assert DEAR is a_tariff(Row(DEAR, since=start)).row(start - 1).rates


def test_a_tier_is_a_cliff_for_every_token() -> None:
    rate = Rate(Decimal(1), ((200_000, Decimal(2)), (500_000, Decimal(3))))

    assert [1, 1, 2, 2, 3] == [rate.at(n) for n in (0, 200_000, 200_001, 500_000, 500_001)]


def test_a_clause_that_this_version_does_not_know_matches_nothing() -> None:
    assert not Clause("sounds_like", "m").matches("m")


def test_what_is_no_extract_is_refused() -> None:
    with pytest.raises(ValueError, match="missing"):
        tariff.read_extract(b"{}")
