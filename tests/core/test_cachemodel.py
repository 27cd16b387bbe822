"""The cache model: what is read, what is rebuilt, what is new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.cachemodel import (
    Cache,
    Rule,
    Segment,
    Segments,
    Split,
    held,
    replayed,
    size,
    split,
)

ENGINE = Cache(Rule.PROMPT_AND_GENERATED)
PROMPT = Cache(Rule.PROMPT)
NONE = Cache(Rule.NONE)

# Few keys and small sizes, so that rows share beginnings, and the same key stands twice.
segments = st.builds(Segment, st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 9))
rows = st.lists(segments, max_size=6).map(tuple)
caches = st.builds(Cache, st.sampled_from(Rule), st.integers(1, 8), st.integers(0, 12))


def row(*parts: tuple[str, int]) -> Segments:
    return tuple(Segment(name.encode(), tokens) for name, tokens in parts)


def in_tokens(segments: Segments) -> list[tuple[bytes, int]]:
    """One by one: the same key and place, the same token."""
    return [(segment.key, at) for segment in segments for at in range(segment.tokens)]


def shared(a: Segments, b: Segments) -> int:
    """The common beginning, counted token by token, with segments that hold nothing as borders."""
    tokens = 0
    for one, other in zip(a, b, strict=False):
        if one.key != other.key:
            break
        tokens += min(one.tokens, other.tokens)
        if one.tokens != other.tokens:
            break
    return tokens


@given(caches, st.lists(rows, max_size=4), rows)
def test_read_and_rebuilt_and_new_are_the_whole_input(
    cache: Cache, held_rows: list[Segments], prompt: Segments
) -> None:
    found = split(cache, held_rows, prompt)

    assert size(prompt) == found.input == found.read + found.uncached
    assert min(found.read, found.rebuilt, found.new) >= 0


@given(caches, st.lists(rows, min_size=1, max_size=4), rows)
def test_whole_blocks_of_the_longest_common_beginning_are_read(
    cache: Cache, held_rows: list[Segments], prompt: Segments
) -> None:
    common = max(shared(it, prompt) for it in held_rows)
    whole = min(common, max(0, size(prompt) - 1)) // cache.block * cache.block

    assert (whole if whole >= cache.minimum else 0) == split(cache, held_rows, prompt).read


@given(caches, rows, rows)
def test_nothing_is_rebuilt_that_was_not_held(
    cache: Cache, one: Segments, prompt: Segments
) -> None:
    found = split(cache, [one], prompt)

    assert found.read + found.rebuilt <= size(one)


@given(caches, rows)
def test_a_cache_that_holds_nothing_is_not_read(cache: Cache, prompt: Segments) -> None:
    assert Split(0, 0, size(prompt)) == split(cache, [], prompt)


@given(rows, rows, st.integers(1, 8))
def test_a_prompt_that_grows_is_read_to_the_end_of_the_last_one(
    prompt: Segments, more: Segments, block: int
) -> None:
    cache = Cache(Rule.PROMPT, block)
    grown = (*prompt, Segment(b"new", 1), *more)

    assert size(prompt) // block * block == split(cache, [prompt], grown).read


@given(rows, rows)
def test_the_last_generated_token_is_not_held(prompt: Segments, generated: Segments) -> None:
    kept = held(ENGINE, prompt, generated)

    assert in_tokens((*prompt, *generated))[: size(kept)] == in_tokens(kept)
    assert size(prompt) + max(0, size(generated) - 1) == size(kept)


@given(rows)
def test_the_last_token_of_a_prompt_is_always_processed(prompt: Segments) -> None:
    assert max(0, size(prompt) - 1) == split(ENGINE, [prompt], prompt).read


def test_without_a_cache_all_is_new() -> None:
    prompt = row(("system", 10), ("user", 5))

    assert () == held(NONE, prompt, row(("answer", 7)))


def test_what_is_shorter_than_the_minimum_is_not_held() -> None:
    cache = Cache(Rule.PROMPT, minimum=16)

    assert () == held(cache, row(("system", 15)), ())
    assert row(("system", 16)) == held(cache, row(("system", 16)), ())


def test_the_youngest_of_rows_that_share_as_much_tells_what_was_lost() -> None:
    older, younger = row(("a", 4), ("x", 3)), row(("a", 4), ("y", 5))

    assert Split(4, 5, 1) == split(ENGINE, [older, younger], row(("a", 4), ("z", 1), ("y", 5)))


def test_a_lost_segment_is_rebuilt_once() -> None:
    lost = row(("a", 4), ("x", 3), ("end", 1))
    prompt = row(("a", 4), ("end", 1), ("new", 2), ("end", 1))

    assert Split(4, 1, 3) == split(ENGINE, [lost], prompt)


# An agent's step: reasoning, action, what the tool brings. Sizes are those of a worked example:
# 16,000 tokens cached, 2,000 of reasoning, 100 of action, then 500 new ones.
BEFORE = row(("before", 16_000))
ANSWER = row(("reasoning", 2_000), ("action", 100))
KEPT = (*BEFORE, *ANSWER, *row(("result", 500)))
DROPPED = (*BEFORE, *ANSWER[1:], *row(("result", 500)))


@pytest.mark.parametrize(
    ("cache", "prompt", "expected"),
    [
        (ENGINE, KEPT, Split(18_099, 0, 501)),
        (ENGINE, DROPPED, Split(16_000, 99, 501)),
        (PROMPT, KEPT, Split(16_000, 0, 2_600)),
        (PROMPT, DROPPED, Split(16_000, 0, 600)),
        (NONE, KEPT, Split(0, 0, 18_600)),
        (NONE, DROPPED, Split(0, 0, 16_600)),
    ],
)
def test_what_a_step_costs_with_and_without_its_reasoning(
    cache: Cache, prompt: Segments, expected: Split
) -> None:
    assert expected == replayed(cache, [(BEFORE, ANSWER), (prompt, ())])[1]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9), st.integers(1, 30)), max_size=8))
def test_the_laws_of_an_engine_that_reuses_what_it_generated(
    steps: list[tuple[int, int, int]],
) -> None:
    kept = dropped = row(("before", 100))
    keep, drop = [], []
    for k, (reasoning, action, result) in enumerate(steps):
        answer = row((f"reasoning {k}", reasoning), (f"action {k}", action))
        keep.append((kept, answer))
        drop.append((dropped, answer))
        kept = (*kept, *answer, *row((f"result {k}", result)))
        dropped = (*dropped, *answer[1:], *row((f"result {k}", result)))

    reads = [it.read for it in replayed(ENGINE, keep)]
    reads_of_drop = [it.read for it in replayed(ENGINE, drop)]

    assert [size(p) + size(g) - 1 for p, g in keep[:-1]] == reads[1:]
    assert [size(p) for p, _ in drop[:-1]] == reads_of_drop[1:]
