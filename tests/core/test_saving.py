"""The mechanical saving: what an exchange would have used under `keep`, held against a cache that
is simulated apart from it, token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import cachemodel, pricing, saving, thought
from proxy.core.cachemodel import Split
from proxy.core.contract import CacheRule, Reuse, UserTurn
from proxy.core.sent import Sent
from proxy.core.thought import Sides, Thought
from proxy.core.usage import Usage
from tests.core.both_sides import ONE, Step, generated, message, prompt, segments, steps

SHEET = pricing.sheet(Decimal(2), Decimal("0.10"), Decimal("2.50"), Decimal(10), Decimal(4))
some_steps = st.lists(
    st.builds(Step, st.integers(0, 300), st.integers(1, 60), st.integers(1, 200), st.booleans()),
    min_size=1,
    max_size=7,
)
rules = st.builds(
    CacheRule, st.sampled_from(Reuse), st.sampled_from((1, 16, 64, 128)), st.sampled_from((0, 512))
)


def served(rule: CacheRule, run: Sequence[Step], first: int, kept: bool) -> tuple[Split, ...]:
    return cachemodel.replayed(
        rule,
        [(segments(run, at, first, kept), generated(run, at)) for at in range(len(run) + 1)],
    )


@dataclass(frozen=True)
class Told:
    """One exchange: what it used, and the two sides as they were found."""

    used: Usage
    alike: Usage
    kept: Usage
    gone: Thought


def told(rule: CacheRule, run: Sequence[Step], first: int, reads: bool = True) -> list[Told]:
    """A conversation through the proxy, one exchange after the other."""
    last: Sent | None = None
    found = []
    for at, split in enumerate(served(rule, run, first, kept=False)):
        left = prompt(run, at, first, False)
        sides = Sides(left, prompt(run, at, first, True), last, at > 0)
        reply = run[at] if at < len(run) else Step(0, 10, 0, False)
        output = reply.reasoning + reply.action
        used = Usage(split.input, split.read if reads else None, None, None, output)
        gone = thought.gone(sides, ONE)
        both = saving.kept(used, sides, gone, rule)
        assert both is not None
        found.append(Told(used, *both, gone.total))
        echo = message(f"a{at}", "assistant", reply.action, reply.reasoning).digest
        last = Sent(
            b"", b"", left, 0.0, "up", split.input, output, None, echo,
            reasoning_tokens=reply.reasoning,
            dropped_tokens=gone.total.tokens, dropped_estimated=gone.total.estimated,
        )  # fmt: skip
    return found


@given(some_steps, rules, st.integers(1, 2000), st.booleans())
def test_what_keep_would_have_used_is_what_it_does_use(
    run: list[Step], rule: CacheRule, first: int, reads: bool
) -> None:
    found = told(rule, run, first, reads)

    expected = [(split.input, split.read) for split in served(rule, run, first, kept=True)]
    assert expected == [(one.kept.input, one.kept.cache_read) for one in found]
    assert not any(one.gone.estimated for one in found)


@given(some_steps, rules, st.integers(1, 2000), st.integers(1, 3))
def test_it_is_so_for_a_policy_that_takes_out_what_it_had_sent(
    run: list[Step], rule: CacheRule, first: int, window: int
) -> None:
    """`keep_latest`: each step leaves whole until it falls out of the window."""
    bare = [replace(step, dropped=True) for step in run]
    whole = [replace(step, dropped=False) for step in run]
    rows = [
        [*bare[: max(0, at - window)], *whole[max(0, at - window) :]] for at in range(len(run) + 1)
    ]
    sent = cachemodel.replayed(
        rule, [(segments(row, at, first, False), generated(run, at)) for at, row in enumerate(rows)]
    )
    last: Sent | None = None
    for at, (row, split, expected) in enumerate(
        zip(rows, sent, served(rule, run, first, kept=True), strict=True)
    ):
        left = prompt(row, at, first, False)
        intact = last is not None and left[: len(last.elements)] == last.elements
        sides = Sides(left, prompt(row, at, first, True), last, intact)
        used = Usage(split.input, split.read, None, None, 9)
        both = saving.kept(used, sides, thought.gone(sides, ONE), rule)

        assert both is not None
        assert (expected.input, expected.read) == (both[1].input, both[1].cache_read)
        reply = run[at] if at < len(run) else Step(0, 10, 0, False)
        echo = message(f"a{at}", "assistant", reply.action, reply.reasoning).digest
        output = reply.reasoning + reply.action
        last = Sent(b"", b"", left, 0.0, "up", split.input, output, None, echo)


@given(some_steps, rules, st.integers(1, 2000))
def test_reads_that_are_not_reported_are_modelled(
    run: list[Step], rule: CacheRule, first: int
) -> None:
    known, modelled = told(rule, run, first), told(rule, run, first, reads=False)

    assert [one.used.cache_read for one in known] == [one.alike.cache_read for one in modelled]


@given(some_steps, rules, st.integers(1, 2000), st.integers(0, 3000), st.integers(0, 3000))
def test_read_written_and_uncached_input_are_all_input_on_both_sides(
    run: list[Step], rule: CacheRule, first: int, read: int, written: int
) -> None:
    for at in range(1, len(run) + 1):
        total = cachemodel.size(segments(run, at, first, kept=False))
        used = Usage(total, min(read, total), min(written, total - min(read, total)), None, 9)
        sides = Sides(prompt(run, at, first, False), prompt(run, at, first, True), None, False)
        both = saving.kept(used, sides, thought.gone(sides, ONE), rule)

        assert both is not None
        for one in both:
            assert one.input is not None
            assert one.uncached is not None
            assert one.input == (one.cache_read or 0) + (one.cache_write or 0) + one.uncached
        assert total + sum(s.reasoning for s in run[:at] if s.dropped) == both[1].input


@given(some_steps, rules, st.integers(1, 2000))
def test_where_nothing_went_nothing_was_saved(run: list[Step], rule: CacheRule, first: int) -> None:
    kept = [Step(one.reasoning, one.action, one.observation, False) for one in run]

    for one in told(rule, kept, first):
        assert Thought() == one.gone
        assert pricing.cost(one.alike, SHEET) == pricing.cost(one.kept, SHEET)


# One step dropped after 1,000 tokens of prompt: 400 of reasoning, 100 of action, 50 of result.
ONE_STEP = steps((400, 100, 50, True))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # Kept, the prompt alone is read again: the reasoning would have been new input.
        (CacheRule(Reuse.PROMPT), 400 * 2),
        # Kept, all but the last generated token is read: 99 of the action are processed anew.
        (CacheRule(Reuse.GENERATED), 400 * Decimal("0.1") - 99 * Decimal("1.9")),
        (CacheRule(Reuse.NONE), 400 * 2),
    ],
)
def test_a_step_is_saved_or_lost_by_what_the_cache_holds(
    rule: CacheRule, expected: Decimal
) -> None:
    last = told(rule, ONE_STEP, 1000)[-1]

    kept, paid = pricing.cost(last.kept, SHEET), pricing.cost(last.alike, SHEET)
    assert kept is not None
    assert paid is not None
    assert expected == (kept.total - paid.total) * 1_000_000


def two(
    read: int | None, rule: CacheRule | None, written: int = 0, hour: int = 0, **last: int
) -> Usage:
    """What `keep` would have used where the second request was read as far as `read`: a prompt of
    1,000 tokens before, two dropped steps of 400 tokens of reasoning each, one of them new.
    """
    run = steps((400, 100, 500, True), (400, 100, 50, True))
    before = Sent(
        b"", b"", prompt(run, 1, 400, False), 0.0, "up", last.get("prompt", 1000), 500, None,
        b"", reasoning_tokens=last.get("counted"), dropped_tokens=400,
    )  # fmt: skip
    sides = Sides(prompt(run, 2, 400, False), prompt(run, 2, 400, True), before, True)
    used = Usage(1150, read, written or None, hour or None, 70)
    both = saving.kept(used, sides, thought.gone(sides, ONE), rule)
    assert both is not None
    return both[1]


def test_where_the_provider_missed_the_kept_prompt_would_have_been_missed_too() -> None:
    assert (1950, 0) == (two(0, None).input, two(0, None).cache_read)
    # Read to the end of the preamble, which stands before all reasoning.
    assert 400 == two(400, None).cache_read


def test_where_it_read_more_than_the_rule_promises_so_much_is_read_of_the_kept_one() -> None:
    assert 1400 == two(1000, CacheRule(Reuse.PROMPT)).cache_read
    assert 1100 + 800 == two(1100, CacheRule(Reuse.PROMPT)).cache_read


def test_what_more_is_processed_is_written_where_this_exchange_wrote() -> None:
    rule = CacheRule(Reuse.PROMPT)

    assert 550 == two(1000, rule, written=150).cache_write
    assert 0 == two(1000, rule, written=150).uncached
    assert 550 == two(1000, rule, written=150, hour=150).cache_write_1h
    assert 40 == two(1000, rule, written=150, hour=40).cache_write_1h
    assert 0 == two(1000, rule).cache_write


def test_without_a_count_of_the_last_prompt_the_report_alone_decides() -> None:
    run = ONE_STEP
    sides = Sides(prompt(run, 1, 1000, False), prompt(run, 1, 1000, True), None, False)
    gone = thought.gone(sides, ONE)

    both = saving.kept(Usage(1150, 1000, None, None, 9), sides, gone, CacheRule(Reuse.GENERATED))

    assert both is not None
    assert (1550, 1000) == (both[1].input, both[1].cache_read)
    assert saving.kept(Usage(None, None, None, None, 9), sides, gone, None) is None


# Breaks


def test_a_break_of_our_own_would_not_have_been_one_under_keep() -> None:
    """A retroactive policy: the step left whole in the last request, and bare in this one."""
    run = steps((400, 100, 500, True), (400, 100, 50, False))
    before = Sent(
        b"", b"", prompt(run, 1, 400, True), 0.0, "up", 1400, 500, None,
        message("a1", "assistant", 100, 400).digest,
    )  # fmt: skip
    sides = Sides(prompt(run, 2, 400, False), prompt(run, 2, 400, True), before, False)
    gone = thought.gone(sides, ONE)
    used = Usage(1550, 400, None, None, 9)

    both = saving.kept(used, sides, gone, CacheRule(Reuse.PROMPT))

    assert both is not None
    assert Thought(400, estimated=True) == gone.total
    assert (1950, 1400) == (both[1].input, both[1].cache_read)


def test_a_break_of_the_client_breaks_the_kept_prompt_as_well() -> None:
    run = steps((400, 100, 500, True), (400, 100, 50, True))
    was = (message("another preamble", "user", 400), *prompt(run, 1, 400, False)[1:])
    before = Sent(b"", b"", was, 0.0, "up", 1000, 500)
    sides = Sides(prompt(run, 2, 400, False), prompt(run, 2, 400, True), before, False)

    both = saving.kept(
        Usage(1150, 0, None, None, 9), sides, thought.gone(sides, ONE), CacheRule(Reuse.GENERATED)
    )

    assert both is not None
    assert (1950, 0) == (both[1].input, both[1].cache_read)


@pytest.mark.parametrize(
    ("user_turn", "expected"),
    [
        (UserTurn.KEEPS, (1960, 1400)),
        # Kept, the last prompt showed reasoning behind the preamble, and this one does not.
        (UserTurn.DROPS, (1160, 400)),
        (UserTurn.STUB, (1160, 400)),
    ],
)
def test_what_a_template_leaves_out_at_a_user_message_is_in_neither_prompt(
    user_turn: UserTurn, expected: tuple[int, int]
) -> None:
    run = steps((400, 100, 500, True), (400, 100, 50, True))
    user = message("and now", "user", 10)
    sent, whole = (*prompt(run, 2, 400, False), user), (*prompt(run, 2, 400, True), user)
    before = Sent(b"", b"", prompt(run, 1, 400, False), 0.0, "up", 1000, 500, dropped_tokens=400)
    sides = Sides(sent, whole, before, True)
    gone = thought.gone(sides, ONE)

    both = saving.kept(
        Usage(1160, 1000, None, None, 9), sides, gone, CacheRule(Reuse.PROMPT), user_turn
    )

    assert both is not None
    assert Thought(800, estimated=True) == gone.total
    assert expected == (both[1].input, both[1].cache_read)
