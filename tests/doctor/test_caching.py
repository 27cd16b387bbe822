"""What counts tell of a cache: pure conclusions over rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.contract import CacheRule, Reuse, UserTurn
from proxy.core.seen import Seen
from proxy.core.usage import Usage
from proxy.doctor import caching
from proxy.doctor.answers import NOT_ASKED, Answer
from proxy.doctor.caching import Echoed, Rung


def counted(
    prompt: int, cached: int | None = None, generated: int = 1, reasoning: str = ""
) -> Answer:
    usage = Usage(input=prompt, cache_read=cached, output=generated)
    return Answer(200, seen=Seen(usage=usage, reasoning=reasoning))


def chain(*pairs: tuple[int, int | None]) -> list[Rung]:
    """Rungs by what was sent before and what was read of it."""
    return [Rung(counted(common + 100, cached), common) for common, cached in pairs]


def climbed(block: int, minimum: int, tail: int = 0, error: int = 0) -> list[Rung]:
    """The chain that an upstream with this rule gives. `tail` tokens of every prompt are taken back
    in the next one; prompts miss the size that was wished for by `error`.
    """
    rungs = [Rung(counted(60, 0))]
    while (size := caching.next_size(rungs)) is not None:
        common = rungs[-1].answer.prompt or 0
        read = max(0, common - tail) // block * block
        rungs.append(Rung(counted(size + error, read if read >= minimum else 0), common))
    return rungs


@pytest.mark.parametrize("block", [1, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("minimum", [0, 1024, 2048, 4096])
@pytest.mark.parametrize("tail", [0, 3])
def test_block_and_minimum_are_those_of_the_cache(block: int, minimum: int, tail: int) -> None:
    rungs = climbed(block, minimum, tail)

    assert block == caching.block_of(rungs)
    assert minimum == caching.minimum_of(rungs, block)


@given(st.sampled_from([1, 64, 128]), st.integers(-6, 6), st.integers(0, 4))
def test_a_size_that_is_missed_by_a_little_changes_nothing(
    block: int, error: int, tail: int
) -> None:
    assert block == caching.block_of(climbed(block, 1024, tail, error))


def test_sizes_grow_and_end() -> None:
    sizes = [rung.answer.prompt or 0 for rung in climbed(1, 10**9)]

    assert sorted(set(sizes)) == sizes
    assert caching.RUNGS[-1] == sizes[-1]


def test_where_nothing_is_reported_the_climb_ends_early() -> None:
    rungs = [Rung(counted(60))]
    while (size := caching.next_size(rungs)) is not None:
        rungs.append(Rung(counted(size), rungs[-1].answer.prompt or 0))

    assert caching.UNREPORTED_RUNGS == len(rungs)


def test_what_has_no_answer_ends_the_climb() -> None:
    assert caching.next_size([Rung(counted(60)), Rung(NOT_ASKED, 60)]) is None


def test_two_hits_are_too_few_for_a_block() -> None:
    assert caching.block_of(chain((100, 64), (200, 192))) is None


def test_reports_that_fit_no_block_give_none() -> None:
    assert caching.block_of(chain((100, 90), (200, 119), (300, 241))) is None


def test_a_miss_beside_hits_of_smaller_prompts_is_no_minimum() -> None:
    rungs = chain((100, 64), (200, 192), (300, 0), (400, 384), (500, 448))

    assert 64 == caching.block_of(rungs)
    assert 0 == caching.minimum_of(rungs, 64)


def test_a_minimum_is_the_power_of_two_that_fits_or_the_least_that_was_read() -> None:
    assert 1024 == caching.minimum_of(chain((1000, 0), (1100, 1100)), 1)
    assert 1100 == caching.minimum_of(chain((1050, 0), (1100, 1100)), 1)


HITS = chain((100, 100), (200, 200), (300, 300))


def test_more_read_than_was_sent_was_generated() -> None:
    echoed = Echoed(counted(100, generated=50), counted(160, 149))

    assert Reuse.GENERATED is caching.reuse_of(HITS, [echoed], 1)


@pytest.mark.parametrize("cached", [100, 96, 64])
def test_generated_tokens_that_stand_again_and_are_not_read_mean_prompt_only(cached: int) -> None:
    echoed = Echoed(counted(100, generated=50), counted(160, cached))

    assert Reuse.PROMPT is caching.reuse_of(HITS, [echoed, echoed], 1)
    assert caching.reuse_of(HITS, [echoed], 1) is None


def test_a_reply_too_short_for_a_block_tells_nothing() -> None:
    echoed = Echoed(counted(100, generated=20), counted(130, 64))

    assert caching.reuse_of(HITS, [echoed] * 2, 64) is None


def test_reasoning_that_is_gone_from_the_prompt_tells_nothing() -> None:
    asked = counted(100, generated=50, reasoning="hm")
    behind_a_user = Echoed(asked, counted(160, 100), counted(120, 100), answered=False)
    not_rendered = Echoed(asked, counted(120, 100), counted(120, 100), answered=True)
    rendered = Echoed(asked, counted(160, 100), counted(120, 100), answered=True)

    assert [False, False, True] == [
        caching.reads_prompt_only(it, 1) for it in (behind_a_user, not_rendered, rendered)
    ]


def test_reasoning_that_cannot_be_sent_back_is_never_read() -> None:
    asked = counted(100, generated=50, reasoning="hm")
    echoed = Echoed(asked, counted(110, 100), answered=True, mute=True)

    assert caching.reads_prompt_only(echoed, 1)


def test_a_miss_of_the_echo_tells_nothing() -> None:
    assert not caching.reads_prompt_only(Echoed(counted(100, generated=50), counted(160, 0)), 1)


def test_nothing_ever_read_is_no_cache_only_where_it_is_reported() -> None:
    assert Reuse.NONE is caching.reuse_of(chain((100, 0), (4000, 0)), [], None)
    assert caching.reuse_of(chain((100, None), (4000, None)), [], None) is None


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ((Reuse.NONE, None, None), CacheRule(Reuse.NONE)),
        ((Reuse.PROMPT, 64, 0), CacheRule(Reuse.PROMPT, 64)),
        ((Reuse.PROMPT, None, None), None),
        ((None, 1, 0), None),
    ],
)
def test_half_a_rule_is_none(
    parts: tuple[Reuse | None, int | None, int | None], rule: CacheRule | None
) -> None:
    assert rule == caching.as_rule(*parts)


@pytest.mark.parametrize(
    ("plain", "carried", "rule", "expected"),
    [
        (counted(640, 590), counted(700, 0), (1, 0), UserTurn.KEEPS),
        (counted(640, 590), counted(641, 0), (1, 0), UserTurn.DROPS),
        (counted(640, 590), counted(641, 0), None, UserTurn.DROPS),
        (counted(640, 90), counted(641, 0), (1, 0), UserTurn.STUB),
        (counted(640, 0), counted(641, 0), (1, 0), UserTurn.DROPS),
        (counted(640, 0), counted(641, 0), (128, 256), UserTurn.STUB),
        (counted(640, 512), counted(641, 0), (128, 0), UserTurn.DROPS),
        (NOT_ASKED, NOT_ASKED, (1, 0), None),
    ],
)
def test_a_new_user_message_keeps_drops_or_renders_anew(
    plain: Answer, carried: Answer, rule: tuple[int, int] | None, expected: UserTurn | None
) -> None:
    assert expected is caching.user_turn_of(counted(600), plain, carried, 60, rule)


@pytest.mark.parametrize("block", [1, 16, 64, 128, 256])
@pytest.mark.parametrize("prompt", [200, 1111, 2047])
def test_room_for_a_reply_lies_high_in_a_block(prompt: int, block: int) -> None:
    size = caching.room_for_a_reply(prompt, block)

    assert prompt < size < prompt + 60 + block + 1
    assert block < 16 or 4 * block // 5 == size % block


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ((), 77),
        (((77, 117),), 100),
        (((50, 60), (100, 110)), 130),
        (((50, 60), (50, 60)), 200),
        (((5, 1000),), 12),
    ],
)
def test_words_follow_what_steps_took(seen: Sequence[tuple[int, int]], words: int) -> None:
    assert words == caching.words_for(140, seen)


def test_a_step_has_some_words_at_least() -> None:
    assert 6 == caching.words_for(-50, ())


@pytest.mark.parametrize(
    ("pairs", "doubtful"),
    [
        (((0, 0), (67, 0)), True),
        (((0, 0), (67, 0), (223, 192), (224, 0)), True),
        (((0, 0), (67, 0), (1000, 0)), False),
        (((0, 0), (67, 0), (223, 192), (230, 192), (300, 0)), False),
    ],
)
def test_a_miss_is_doubted_where_as_much_was_read_before(
    pairs: Sequence[tuple[int, int]], doubtful: bool
) -> None:
    assert doubtful is caching.is_doubtful(chain(*pairs))
