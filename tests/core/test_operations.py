"""Operations: what is processed, what is attended, and what a position is worth in pairs."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.architecture import (
    Architecture,
    Attention,
    FeedForward,
    Latent,
    Layers,
    Linear,
    parse,
)
from proxy.core.cachemodel import Segment, Segments, size
from proxy.core.contract import CacheRule, Reuse
from proxy.core.open_models import MODELS, find
from proxy.core.operations import Price, Work, at_rate, operations, total, work, works

UNIT = Price(Fraction(1), Fraction(0))
"""Counts positions."""

rules = st.builds(CacheRule, st.sampled_from(Reuse), st.integers(1, 8), st.integers(0, 12))
segments = st.builds(Segment, st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 9))
rows = st.lists(segments, max_size=5).map(tuple)
conversations = st.lists(st.tuples(rows, rows), max_size=5)
prices = st.builds(Price, st.fractions(0, 1000), st.fractions(0, 10))
counts = st.integers(0, 10**6)
some_work = st.builds(Work, counts, counts, counts)


def row(**parts: int) -> Segments:
    return tuple(Segment(name.encode(), tokens) for name, tokens in parts.items())


# The case that is worked out in the literature: 16,000 tokens are cached, then a step of 2,000 of
# reasoning and 100 of action; the next request brings 500 new ones and generates 100.
BEFORE = row(before=16_000)
STEP = row(reasoning=2_000, action=100)
NEXT = row(result=500)
ANSWER = row(answer=100)


@pytest.mark.parametrize(
    ("reuse", "keeps", "positions"),
    [
        (Reuse.GENERATED, True, 600),
        (Reuse.GENERATED, False, 700),
        (Reuse.PROMPT, True, 2_700),
        (Reuse.PROMPT, False, 700),
        (Reuse.NONE, True, 18_700),
        (Reuse.NONE, False, 16_700),
    ],
)
def test_positions_of_a_step_kept_and_dropped(reuse: Reuse, keeps: bool, positions: int) -> None:
    prompt = (*BEFORE, *(STEP if keeps else STEP[1:]), *NEXT)
    taken = works(CacheRule(reuse), [(BEFORE, STEP), (prompt, ANSWER)])[1]

    assert (positions, 100) == (taken.new, taken.generated)
    assert positions == operations(taken, UNIT)


def test_a_premium_is_paid_for_what_was_generated_only() -> None:
    taken = Work(new=700, pairs=10, generated=100)

    assert 700 + 100 == operations(taken, UNIT, Fraction(2))
    assert 700 * 5 + 10 * 3 + (4 - 1) * 5 * 100 == operations(
        taken, Price(Fraction(5), Fraction(3)), Fraction(4)
    )


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_every_position_attends_those_up_to_itself(read: int, more: int, generated: int) -> None:
    taken = work(read, read + more, generated)
    end = read + more + generated

    assert sum(range(read + 1, end + 1)) == taken.pairs
    assert (end - read, generated) == (taken.new, taken.generated)


@given(rules, conversations)
def test_what_is_read_and_what_is_processed_are_prompt_and_answer(
    rule: CacheRule, served: list[tuple[Segments, Segments]]
) -> None:
    for taken, (prompt, generated) in zip(works(rule, served), served, strict=True):
        whole = size(prompt) + size(generated)
        read = whole - taken.new

        assert 0 <= read <= size(prompt)
        assert size(generated) == taken.generated <= taken.new
        assert sum(range(read + 1, whole + 1)) == taken.pairs


@given(st.lists(some_work), prices, st.fractions(1, 10))
def test_operations_are_additive(taken: list[Work], price: Price, premium: Fraction) -> None:
    assert operations(total(taken), price, premium) == sum(
        operations(it, price, premium) for it in taken
    )


@given(some_work, st.fractions("1/100", 1000), st.fractions("1/100", 10), st.fractions(1, 10))
def test_between_policies_only_the_exchange_rate_counts(
    taken: Work, position: Fraction, pair: Fraction, premium: Fraction
) -> None:
    price = Price(position, pair)
    assert price.exchange_rate is not None

    in_pairs = operations(taken, at_rate(price.exchange_rate), premium)

    assert operations(taken, price, premium) == pair * in_pairs


def test_an_exchange_rate_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="got -1; wanted 0 or more"):
        at_rate(Fraction(-1))


# Architectures


def test_a_layer_s_weights_are_those_of_its_matrices() -> None:
    attention, inside = Attention(heads=4, kv_heads=2, head=8), FeedForward(inner=96)
    matrices = 4 * 8 * 32 + 2 * 2 * 8 * 32 + 32 * 4 * 8 + 3 * 32 * 96
    price = Architecture("it", 32, (Layers(3, attention, inside),)).price

    assert Price(Fraction(3 * 2 * matrices), Fraction(3 * 4 * 4 * 8)) == price


def test_only_active_experts_the_shared_one_and_the_router_are_counted() -> None:
    inside = FeedForward(inner=8, active=2, shared=16, experts=64)

    assert 3 * 32 * (2 * 8 + 16) + 32 * 64 == inside.weights(32)


def test_latent_attention_pays_for_keys_and_values_of_their_own_sizes() -> None:
    latent = Latent(heads=2, q_rank=6, kv_rank=4, plain=3, rotary=1, value=5)
    queries, keys, unfolded, out = 10 * 6 + 6 * 2 * 4, 10 * (4 + 1), 4 * 2 * (3 + 5), 2 * 5 * 10

    assert queries + keys + unfolded + out == latent.weights(10)
    assert (2 * 2 * (3 + 1 + 5), 0) == (latent.pair, latent.steady)


def test_linear_and_windowed_layers_cost_no_pairs() -> None:
    windowed = Attention(heads=4, kv_heads=2, head=8, window=16)
    linear = Linear(key_heads=2, value_heads=4, key=8, value=8)

    assert (0, 0) == (windowed.pair, linear.pair)
    assert (16 * Attention(4, 2, 8).pair, 6 * 4 * 8 * 8) == (windowed.steady, linear.steady)


def test_a_model_without_pairs_has_no_exchange_rate() -> None:
    linear = Layers(2, Linear(2, 4, 8, 8), FeedForward(64))

    assert Architecture("it", 32, (linear,)).price.exchange_rate is None


# Parameters that a position goes through, as the models' cards give them, in billions: without the
# embedding for the Qwen3 models, with it and the output head for the others (left out here).
@pytest.mark.parametrize(
    ("name", "billions", "left_out"),
    [
        ("Qwen3-8B", 6.95, 0),
        ("Qwen3-32B", 31.2, 0),
        ("Llama-3.1-8B-Instruct", 8.03, 2 * 128_256 * 4096),
        ("Llama-3.1-70B-Instruct", 70.6, 2 * 128_256 * 8192),
        ("gpt-oss-120b", 5.13, 201_088 * 2880),
        ("gpt-oss-20b", 3.61, 201_088 * 2880),
        ("DeepSeek-V3", 37, 2 * 129_280 * 7168),
        ("Qwen3-30B-A3B", 3.3, 2 * 151_936 * 2048),
    ],
)
def test_a_position_goes_through_the_active_parameters(
    name: str, billions: float, left_out: int
) -> None:
    model = find(name)
    steady = sum(it.count * it.attention.steady for it in model.layers)
    active = (model.price.position - steady) / 2 + left_out

    assert pytest.approx(billions, rel=0.02) == float(active) / 1e9


def test_exchange_rates_are_of_the_known_size() -> None:
    assert Fraction(23_552) == find("Qwen3-8B").price.exchange_rate
    rate = find("qwen/qwen3.5-27b").price.exchange_rate
    assert rate is not None
    assert 124 == round(rate / 1000)


def test_every_model_names_its_source_and_is_found_by_its_short_name() -> None:
    assert all(model.source for model in MODELS)
    assert list(MODELS) == [find(model.name.partition("/")[2]) for model in MODELS]


def test_an_unknown_model_is_told_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'GPT-9' is known; known: Qwen3-8B, "):
        find("GPT-9")


def test_an_architecture_can_be_written_down() -> None:
    written = parse("hidden=4096,layers=36,heads=32,kv_heads=8,ffn=12288")

    assert find("Qwen3-8B").price == written.price
    sparse = parse(
        "hidden=2048,layers=48,heads=32,kv_heads=4,head_size=128,ffn=768,active=8,experts=128"
    )
    assert find("Qwen3-30B-A3B").price == sparse.price


def test_layers_without_full_attention_are_counted_among_all() -> None:
    full = parse("hidden=64,layers=8,heads=4,ffn=128")
    hybrid = parse("hidden=64,layers=8,heads=4,ffn=128,linear=4,sliding=2,window=16")

    assert full.price.pair == 4 * hybrid.price.pair


def test_windowed_layers_are_those_of_the_table() -> None:
    written = parse(
        "hidden=2880,layers=24,heads=64,kv_heads=8,head_size=64,ffn=2880,active=4,experts=32,"
        "sliding=12,window=128"
    )

    assert find("gpt-oss-20b").price == written.price


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hidden=64", r"lacks layers, heads, ffn \(above 0\); wanted hidden=N,layers=N"),
        ("hidden=64,layers=2,heads=0,ffn=9", "lacks heads"),
        ("hidden=64,depth=2", "got 'depth=2'; wanted hidden=N"),
        ("hidden=x", "got 'hidden=x'"),
        ("hidden=64,layers=2,heads=4,ffn=9,linear=3", "counted among layers"),
        ("hidden=64,layers=2,heads=4,ffn=9,sliding=1", "sliding and window go together"),
    ],
)
def test_what_is_no_architecture_is_told_with_what_is(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(text)
