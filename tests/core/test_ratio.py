"""Bytes a token, learned from what providers count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ratio import Ratio

sizes = st.integers(1, 10**6)


def test_until_more_is_known_four_bytes_are_a_token() -> None:
    assert 250 == Ratio().estimated(1000)


def test_a_few_replies_outweigh_what_was_assumed() -> None:
    ratio = Ratio()
    for _ in range(10):
        ratio = ratio.learned(6000, 2000)

    assert 325 <= ratio.estimated(1000) <= 334


@given(st.lists(st.tuples(sizes, sizes), max_size=60), sizes)
def test_an_estimate_lies_between_what_was_seen(seen: list[tuple[int, int]], size: int) -> None:
    ratio = Ratio()
    for text, tokens in seen:
        ratio = ratio.learned(text, tokens)

    shares = [0.25, *(tokens / text for text, tokens in seen if tokens <= text)]
    # Halving what is remembered rounds a little.
    assert min(shares) * size * 0.99 - 1 <= ratio.estimated(size) <= max(shares) * size * 1.01 + 1


def test_a_text_shorter_than_its_tokens_is_not_all_of_them() -> None:
    ratio = Ratio()

    assert ratio is ratio.learned(10, 5000)
    assert ratio is ratio.learned(0, 0)


def test_the_past_fades() -> None:
    ratio = Ratio()
    for _ in range(100):
        ratio = ratio.learned(40_000, 10_000)
    for _ in range(100):
        ratio = ratio.learned(20_000, 10_000)

    assert 490 <= ratio.estimated(1000) <= 500
