"""Usage: what each provider reports, in its own shape, and law 10."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.usage import MOST_TOKENS, NOTHING, Usage, merge, read_usage

REPORTS: dict[str, tuple[dict[str, Any], Usage]] = {
    "openai": (
        {
            "prompt_tokens": 1500,
            "completion_tokens": 90,
            "total_tokens": 1590,
            "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 128},
            "completion_tokens_details": {"reasoning_tokens": 64, "audio_tokens": 0},
        },
        Usage(1500, 1024, 128, None, 90, 64),
    ),
    "responses": (
        {
            "input_tokens": 1500,
            "input_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 0},
            "output_tokens": 90,
            "output_tokens_details": {"reasoning_tokens": 64},
            "total_tokens": 1590,
        },
        Usage(1500, 1024, 0, None, 90, 64),
    ),
    "anthropic leaves cached tokens out of input_tokens": (
        {
            "input_tokens": 7,
            "cache_read_input_tokens": 4000,
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 30},
        },
        Usage(4307, 4000, 300, 100, 50, 30),
    ),
    "anthropic without a cache": ({"input_tokens": 7, "output_tokens": 5}, Usage(7, output=5)),
    "anthropic with nulls": (
        {"input_tokens": 7, "cache_read_input_tokens": None, "output_tokens": 5},
        Usage(7, output=5),
    ),
    "anthropic, only by age": (
        {
            "input_tokens": 7,
            "cache_creation": {"ephemeral_5m_input_tokens": 20},
            "output_tokens": 5,
        },
        Usage(27, None, 20, None, 5),
    ),
    "deepseek": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_cache_hit_tokens": 64,
            "prompt_cache_miss_tokens": 36,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        Usage(100, 64, output=20),
    ),
    "hit and miss alone": (
        {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        Usage(100, 64),
    ),
    "moonshot": (
        {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 80},
        Usage(100, 80, output=20),
    ),
    "mistral": ({"prompt_tokens": 100, "num_cached_tokens": 48}, Usage(100, 48)),
    "vllm": (
        {"prompt_tokens": 96, "prompt_tokens_details": {"created_cache_tokens": 32}},
        Usage(96, None, 32),
    ),
    "vllm without details": (
        {"prompt_tokens": 96, "completion_tokens": 3, "prompt_tokens_details": None},
        Usage(96, output=3),
    ),
    "dashscope": (
        {
            "prompt_tokens": 2000,
            "prompt_tokens_details": {
                "cached_tokens": 0,
                "cache_creation_input_tokens": 1900,
                "cache_creation": {"ephemeral_5m_input_tokens": 1900},
            },
        },
        Usage(2000, 0, 1900),
    ),
    "sglang": (
        {"prompt_tokens": 9, "completion_tokens": 8, "reasoning_tokens": 6},
        Usage(9, output=8, reasoning=6),
    ),
    "gateway that fills the names it does not know with 0": (
        {
            "prompt_tokens": 5000,
            "prompt_tokens_details": {"cached_tokens": 0},
            "cache_read_input_tokens": 4096,
            "cache_creation_input_tokens": 0,
        },
        Usage(5000, 4096, 0),
    ),
    "gateway that fills prompt_tokens with 0": (
        {"prompt_tokens": 0, "input_tokens": 12, "output_tokens": 5, "completion_tokens": 0},
        Usage(12, output=5),
    ),
    "gateway with all names": (
        {"prompt_tokens": 12, "input_tokens": 12, "completion_tokens": 5, "output_tokens": 5},
        Usage(12, output=5),
    ),
    "cached tokens that do not fit were left out": (
        {
            "prompt_tokens": 50,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        Usage(114, 64, output=5),
    ),
    "cached tokens that the total adds were left out": (
        {
            "prompt_tokens": 200,
            "completion_tokens": 5,
            "total_tokens": 269,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        Usage(264, 64, output=5),
    ),
    "read and write that do not fit together were left out": (
        {
            "prompt_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 30},
        },
        Usage(120, 40, 30),
    ),
    "xai leaves reasoning out of completion_tokens": (
        {
            "prompt_tokens": 165,
            "completion_tokens": 2,
            "total_tokens": 292,
            "prompt_tokens_details": {"cached_tokens": 125},
            "completion_tokens_details": {"reasoning_tokens": 125},
            "cost_in_usd_ticks": 731000,
        },
        Usage(165, 125, None, None, 127, 125, Decimal("0.0000731")),
    ),
    "reasoning that does not fit was left out": (
        {
            "prompt_tokens": 28,
            "completion_tokens": 9,
            "total_tokens": 37,
            "completion_tokens_details": {"reasoning_tokens": 69},
        },
        Usage(28, output=78, reasoning=69),
    ),
    "google tells thoughts in the total alone": (
        {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109},
        Usage(35, output=74),
    ),
    "a total that is too small says nothing": (
        {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 12},
        Usage(35, output=12),
    ),
    "an excess beside known reasoning says nothing": (
        {
            "prompt_tokens": 35,
            "completion_tokens": 12,
            "total_tokens": 50,
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        Usage(35, output=12, reasoning=0),
    ),
    "openrouter": ({"prompt_tokens": 9, "cost": 8.5e-05}, Usage(9, cost=Decimal("0.000085"))),
    "perplexity": (
        {"prompt_tokens": 9, "cost": {"total_cost": 0.00501, "request_cost": 0.005}},
        Usage(9, cost=Decimal("0.00501")),
    ),
    "a cost of nothing": ({"prompt_tokens": 9, "cost": 0}, Usage(9, cost=Decimal(0))),
    "whole floats": ({"prompt_tokens": 9.0, "completion_tokens": 2.0}, Usage(9, output=2)),
    "an empty object": ({}, NOTHING),
    "a usage within a body": (
        {"id": "x", "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
        Usage(9, output=2),
    ),
    "groq": (
        {"x_groq": {"id": "r", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}},
        Usage(9, output=2),
    ),
    "groq, both": (
        {"usage": {"prompt_tokens": 9}, "x_groq": {"usage": {"prompt_tokens": 8}}},
        Usage(9),
    ),
    "groq, none": ({"usage": None, "x_groq": {"id": "r"}}, NOTHING),
    "llama.cpp": (
        {
            "usage": {"prompt_tokens": 139, "completion_tokens": 58},
            "timings": {"cache_n": 59, "prompt_n": 80, "predicted_n": 58, "prompt_ms": 2.5},
        },
        Usage(139, 59, output=58),
    ),
    "llama.cpp, timings alone": (
        {"timings": {"cache_n": 59, "prompt_n": 80, "predicted_n": 58}},
        Usage(139, 59, output=58),
    ),
}

JUNK = [
    True,
    False,
    "12",
    -1,
    1.5,
    float("nan"),
    float("inf"),
    MOST_TOKENS + 1,
    None,
    [1],
    {"a": 1},
]
COUNTS = [
    "prompt_tokens",
    "input_tokens",
    "completion_tokens",
    "output_tokens",
    "total_tokens",
    "cached_tokens",
    "prompt_cache_hit_tokens",
    "prompt_cache_miss_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "reasoning_tokens",
    "cost",
    "cost_in_usd_ticks",
]
DETAILS = [
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
    "total_cost",
]
GROUPS = ["prompt_tokens_details", "input_tokens_details", "completion_tokens_details"]
GROUPS += ["cache_creation", "timings", "usage", "x_groq"]

values = st.integers(0, 400) | st.sampled_from(JUNK) | st.integers(0, MOST_TOKENS)
reports = st.dictionaries(
    st.sampled_from(COUNTS + GROUPS),
    values | st.dictionaries(st.sampled_from(DETAILS), values, max_size=4),
    max_size=10,
)


def assert_lawful(usage: Usage) -> None:
    """Law 10, and no part larger than its whole."""
    if usage.input is not None:
        assert usage.uncached is not None
        parts = (usage.cache_read or 0) + (usage.cache_write or 0) + usage.uncached
        assert usage.input == parts
    if usage.cache_write_1h is not None:
        assert usage.cache_write is not None
        assert usage.cache_write_1h <= usage.cache_write
    if usage.output is not None and usage.reasoning is not None:
        assert usage.reasoning <= usage.output
    for count in (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning):
        assert count is None or count >= 0
    assert usage.cost is None or usage.cost >= 0


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_read_the_same_way_whoever_sent_it(name: str) -> None:
    report, expected = REPORTS[name]

    assert expected == read_usage(report)
    assert_lawful(expected)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_count_is_unknown(junk: object) -> None:
    report = dict.fromkeys([*COUNTS, "prompt_tokens_details", "cache_creation", "x_groq"], junk)

    usage = read_usage({**report, "cost": None, "cost_in_usd_ticks": None, "timings": junk})

    assert NOTHING == usage


@pytest.mark.parametrize("junk", [True, "0.5", -0.5, float("nan"), float("inf"), None, [], {}])
def test_what_is_no_amount_is_no_cost(junk: object) -> None:
    assert read_usage({"cost": junk, "cost_in_usd_ticks": junk}).cost is None


@given(reports)
def test_read_and_write_and_uncached_are_the_input(report: dict[str, Any]) -> None:
    assert_lawful(read_usage(report))


@given(reports, reports)
def test_the_parts_of_merged_reports_are_the_input_too(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    assert_lawful(merge(read_usage(a), read_usage(b)))


@given(reports)
def test_nothing_merged_with_a_report_is_that_report(report: dict[str, Any]) -> None:
    usage = read_usage(report)

    assert usage == merge(NOTHING, usage)
    assert usage == merge(usage, NOTHING)
    assert usage == merge(usage, usage)


def test_the_last_known_value_of_each_field_holds() -> None:
    early = Usage(20, 16, None, None, 1, None, Decimal(1))
    late = Usage(None, 0, 3, 2, 5, 4, None)

    assert Usage(20, 0, 3, 2, 5, 4, Decimal(1)) == merge(early, late)


def test_what_stays_an_hour_is_never_more_than_what_was_written() -> None:
    early, late = Usage(100, None, 50, 40), Usage(100, None, 10)

    assert Usage(100, None, 10, 10) == merge(early, late)


def test_a_relay_that_repeats_input_tokens_without_the_cache_does_not_shrink_the_input() -> None:
    start = read_usage({"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 1})
    end = read_usage({"input_tokens": 3, "output_tokens": 40})

    assert Usage(103, 100, output=40) == merge(start, end)


def test_uncached_input_is_unknown_where_the_input_is() -> None:
    assert Usage(cache_read=5).uncached is None
    assert 7 == Usage(input=7).uncached
    assert 0 == Usage(input=7, cache_read=9).uncached
