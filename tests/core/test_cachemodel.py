"""The cache model: what is read, what is rebuilt, what is new."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.cachemodel import (
    Segment,
    Segments,
    Split,
    held,
    parse,
    replayed,
    size,
    split,
    written,
)
from proxy.core.contract import CacheRule, Reuse

ENGINE = CacheRule(Reuse.GENERATED)
PROMPT = CacheRule(Reuse.PROMPT)
NONE = CacheRule(Reuse.NONE)

# Few keys and small sizes, so that rows share beginnings, and the same key stands twice.
segments = st.builds(Segment, st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 9))
rows = st.lists(segments, max_size=6).map(tuple)
caches = st.builds(CacheRule, st.sampled_from(Reuse), st.integers(1, 8), st.integers(0, 12))


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
    cache: CacheRule, held_rows: list[Segments], prompt: Segments
) -> None:
    found = split(cache, held_rows, prompt)

    assert size(prompt) == found.input == found.read + found.uncached
    assert min(found.read, found.rebuilt, found.new) >= 0


@given(caches, st.lists(rows, min_size=1, max_size=4), rows)
def test_whole_blocks_of_the_longest_common_beginning_are_read(
    cache: CacheRule, held_rows: list[Segments], prompt: Segments
) -> None:
    common = max(shared(it, prompt) for it in held_rows)
    whole = min(common, max(0, size(prompt) - 1)) // cache.block * cache.block

    assert (whole if whole >= cache.minimum else 0) == split(cache, held_rows, prompt).read


@given(caches, rows, rows)
def test_nothing_is_rebuilt_that_was_not_held(
    cache: CacheRule, one: Segments, prompt: Segments
) -> None:
    found = split(cache, [one], prompt)

    assert found.read + found.rebuilt <= size(one)


@given(caches, rows)
def test_a_cache_that_holds_nothing_is_not_read(cache: CacheRule, prompt: Segments) -> None:
    assert Split(0, 0, size(prompt)) == split(cache, [], prompt)


@given(rows, rows, st.integers(1, 8))
def test_a_prompt_that_grows_is_read_to_the_end_of_the_last_one(
    prompt: Segments, more: Segments, block: int
) -> None:
    cache = CacheRule(Reuse.PROMPT, block)
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


@given(rows, rows)
def test_booked_whole_all_that_was_generated_is_held(prompt: Segments, generated: Segments) -> None:
    assert (*prompt, *generated) == held(ENGINE, prompt, generated, whole=True)


def test_without_a_cache_all_is_new() -> None:
    prompt = row(("system", 10), ("user", 5))

    assert () == held(NONE, prompt, row(("answer", 7)))


def test_what_is_shorter_than_the_minimum_is_not_held() -> None:
    cache = CacheRule(Reuse.PROMPT, minimum=16)

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
    cache: CacheRule, prompt: Segments, expected: Split
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


# llama.cpp's server with a small Qwen3 model that plays an agent of twelve steps and a closing
# answer, whatever it is shown of its reasoning. Tokens as the engine counted them: the reasoning
# (with its marks), the call behind it, and what stands between that and the next generated token.
REASONING = (43, 44, 47, 44, 43, 46, 44, 39, 37, 40, 40, 47)
CALL = (22, 34, 33, 25, 32, 26, 46, 29, 29, 25, 40, 23)
RESULT = (24, 42, 39, 44, 37, 55, 13, 32, 23, 43, 26, 34)
GENERATED = (65, 78, 80, 69, 75, 72, 90, 68, 66, 65, 80, 70, 68)
HEAD = 3
"""Tokens that every conversation of that template begins with."""

Keeps = Callable[[int, int], bool]
"""Whether a step's reasoning stands in the history, from the step and the number of steps."""

HISTORIES: dict[str, Keeps] = {
    "keep": lambda step, steps: True,
    "drop": lambda step, steps: False,
    "keep the latest": lambda step, steps: step == steps - 1,
    "drop all once, at step 6": lambda step, steps: step >= 6 or steps < 6,
}


def history(keeps: Keeps, steps: int, before: int) -> Segments:
    rows = [("head", HEAD), ("before", before - HEAD)]
    for k in range(steps):
        thought = [(f"reasoning {k}", REASONING[k])] if keeps(k, steps) else []
        rows += [*thought, (f"call {k}", CALL[k]), (f"result {k}", RESULT[k])]
    return row(*rows)


def engine_s(keeps: Keeps, before: int) -> list[tuple[Segments, Segments]]:
    """The thirteen requests: each prompt and what was generated behind it."""
    answers = [
        row((f"reasoning {k}", REASONING[k]), (f"call {k}", CALL[k])) for k in range(len(CALL))
    ]
    answers.append(row(("closing", GENERATED[-1])))
    return [(history(keeps, k, before), answer) for k, answer in enumerate(answers)]


def test_what_the_engine_generated_is_reasoning_and_call() -> None:
    assert list(GENERATED[:-1]) == [sum(pair) for pair in zip(REASONING, CALL, strict=True)]


@pytest.mark.parametrize(
    ("name", "before", "warm", "sums"),
    [
        ("keep", 300, False, (12_394, 11_670, 724)),
        ("drop", 300, True, (9_008, 7_935, 1_073)),
        ("keep the latest", 301, True, (9_535, 7_292, 2_243)),
        ("drop all once, at step 6", 301, True, (10_538, 9_459, 1_079)),
    ],
)
def test_the_sums_of_a_real_engine_are_predicted(
    name: str, before: int, warm: bool, sums: tuple[int, int, int]
) -> None:
    """Prompt, cached and uncached tokens over the thirteen requests. `before` is the first prompt;
    `warm`: the engine had served another conversation, so the head of the first was cached.
    """
    earlier = [(row(("head", HEAD), ("another", 9)), ())] if warm else []
    served = replayed(ENGINE, [*earlier, *engine_s(HISTORIES[name], before)])[len(earlier) :]

    assert sums == (
        sum(it.input for it in served),
        sum(it.read for it in served),
        sum(it.uncached for it in served),
    )


@pytest.mark.parametrize(("name", "uncached"), [("keep", 832), ("drop", 56)])
def test_a_template_that_forgets_by_itself_costs_only_those_who_kept(
    name: str, uncached: int
) -> None:
    """A new user message: Qwen3's template then leaves out all earlier reasoning. The closing
    answer's text and that message are 56 tokens.
    """
    asked = (*history(HISTORIES["drop"], len(CALL), 300), *row(("closing text and question", 56)))
    served = [*engine_s(HISTORIES[name], 300), (asked, ())]

    assert uncached == replayed(ENGINE, served)[-1].uncached


@given(caches)
def test_a_rule_is_read_as_it_is_written(cache: CacheRule) -> None:
    assert cache == parse(written(cache))


def test_a_rule_is_written_as_short_as_it_can_be() -> None:
    rules = ["prompt", "prompt+generated:64", "prompt:1:1024", "none"]

    assert rules == [written(parse(rule)) for rule in rules]


@pytest.mark.parametrize("text", ["", "prompts", "prompt:", "prompt:x", "prompt:1:2:3", "none:-1"])
def test_what_is_no_rule_is_told_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"prompt\+generated, prompt, none.*prompt:128:1024"):
        parse(text)


def test_a_block_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a block has 1 token or more"):
        parse("prompt:0")
