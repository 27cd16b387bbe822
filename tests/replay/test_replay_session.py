"""One session under several policies: what leaves, what the cache gives, what it costs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core import cachemodel
from proxy.core.tariff import Rate, Rates
from proxy.replay.plan import Plan, Priced
from proxy.replay.readers import session_of
from proxy.replay.replaying import replay
from proxy.replay.sessions import Asked, Label, Session, Unusable
from tests.replay.recorded import (
    ACTION,
    PREAMBLE,
    REASONING,
    RESULT,
    history,
    plan,
    replayed,
    step,
    trajectory,
    under,
)

STEPS = 4


def test_keep_sends_what_was_recorded():
    it = plan()
    row = replayed(trajectory(STEPS), it)
    a_step = REASONING + ACTION + RESULT

    assert sum(PREAMBLE + at * a_step for at in range(STEPS)) == under(row, it, "keep").input
    assert STEPS == row.requests == row.anchored


def test_drop_sends_the_recorded_prompts_less_the_reasoning():
    it = plan("drop")
    row = replayed(trajectory(STEPS), it)

    assert REASONING * (0 + 1 + 2 + 3) == under(row, it, "drop").dropped
    assert sum(PREAMBLE + at * (ACTION + RESULT) for at in range(STEPS)) == (
        under(row, it, "drop").input
    )


def test_a_cache_that_holds_what_was_generated_rebuilds_each_action_behind_dropped_reasoning():
    it = plan("drop")
    keep, drop = (under(replayed(trajectory(2), it), it, name) for name in ("keep", "drop"))
    generated, prompt, none = drop.served

    assert PREAMBLE + REASONING + ACTION - 1 == keep.served[0].read
    assert (PREAMBLE, ACTION - 1) == (generated.read, generated.rebuilt)
    assert (PREAMBLE, 0) == (prompt.read, prompt.rebuilt)
    assert 0 == none.read


def test_the_bill_is_reads_writes_and_output_at_the_sheets_prices():
    it = plan("drop", caches=("prompt", "none"))
    prompt, none = under(replayed(trajectory(2), it), it, "keep").served
    output = 2 * (REASONING + ACTION)
    anew = PREAMBLE + REASONING + ACTION + RESULT
    million = Decimal(1_000_000)

    assert prompt.bills[0] * million == (
        PREAMBLE * Decimal("0.1") + anew * Decimal("2.5") + output * 10
    )
    assert none.bills[0] * million == (PREAMBLE + anew) * 2 + output * 10


def test_a_prompt_below_the_minimum_is_not_written_to_the_cache():
    it = plan(caches=(f"prompt:1:{PREAMBLE + 1}",))
    served = under(replayed(trajectory(1), it), it, "keep").served[0]

    assert served.bills[0] * 1_000_000 == PREAMBLE * 2 + (REASONING + ACTION) * 10


def test_prices_with_tiers_are_those_of_each_prompts_length():
    tier = PREAMBLE + 1
    rates = Rates(Rate(Decimal(1), ((tier - 1, Decimal(5)),)), Rate(Decimal(0)))
    it = Plan(("keep",), (cachemodel.parse("none"),), (Priced("tiers", rates),))
    served = under(replayed(trajectory(2), it), it, "keep").served[0]
    second = PREAMBLE + REASONING + ACTION + RESULT

    assert served.bills[0] * 1_000_000 == PREAMBLE * 1 + second * 5


def test_requests_that_cannot_be_read_are_left_out_and_counted():
    good = session_of(trajectory(2), "id")
    mixed = replace(good, requests=lambda: iter([Asked(b"{}"), *good.requests()]))
    row = replay(mixed, "file", plan())

    assert (2, 1) == (row.requests, row.unread)


def test_a_reply_that_was_not_recorded_is_what_the_next_request_echoes():
    it, good = plan("drop"), session_of(trajectory(STEPS), "id")
    silent = replace(
        good, requests=lambda: (replace(asked, reply=b"") for asked in good.requests())
    )

    assert replay(good, "f", it).under == replay(silent, "f", it).under


def test_another_model_reads_nothing_of_what_was_sent_to_one():
    it, good = plan(), session_of(trajectory(2), "id")
    first, second = good.requests()
    other = replace(second, body=second.body.replace(b"model-1", b"model-2"))

    same, switched = (
        under(replay(replace(good, requests=lambda rows=rows: iter(rows)), "f", it), it, "keep")
        for rows in ([first, second], [first, other])
    )

    assert [PREAMBLE + REASONING + ACTION - 1, PREAMBLE, 0] == [it.read for it in same.served]
    assert [0, 0, 0] == [it.read for it in switched.served]


def test_a_window_rewrites_the_prefix_once_steps_leave_it():
    it = plan("keep_latest:1")
    found = under(replayed(trajectory(STEPS), it), it, "keep_latest:1")

    assert {"self": STEPS - 2} == found.breaks
    assert found.served[1].rebuilt > 0


def test_a_step_that_wrote_is_dropped_after_its_artifact():
    messages = history(1) + step(1, command="echo done > out.txt") + step(2)
    it = plan("after_artifact")
    found = under(replayed({"messages": messages}, it), it, "after_artifact")
    everything = under(replayed({"messages": messages}, plan("drop")), plan("drop"), "drop")

    assert 0 < found.dropped < everything.dropped


def test_counts_of_a_session_that_ran_without_its_reasoning_size_what_keep_would_have_sent():
    kept, it = trajectory(STEPS), plan("drop")
    recorded = replayed(trajectory(STEPS, kept=False, policy="drop"), it)
    whole = replayed(kept, it)

    assert "drop" == recorded.policy
    assert under(whole, it, "keep").input == under(recorded, it, "keep").input
    assert under(whole, it, "drop").input == under(recorded, it, "drop").input


def test_without_counts_sizes_are_estimated_and_said_to_be():
    row = replayed({"messages": history(STEPS)}, plan())

    assert 0 == row.anchored
    assert row.output == row.estimated_output > 0


def test_positions_and_pairs_are_what_must_be_computed():
    it = plan("drop")
    keep = under(replayed(trajectory(2), it), it, "keep")
    answer = REASONING + ACTION
    first = PREAMBLE + answer
    second = first + RESULT + answer

    assert first + RESULT + answer == keep.served[0].positions
    assert second * (second + 1) // 2 == keep.served[0].pairs
    assert keep.served[2].positions == first + second


def test_a_session_recorded_under_no_known_policy_cannot_be_replayed():
    with pytest.raises(Unusable, match="policy"):
        replayed(trajectory(2, policy="forgetful"), plan())


@pytest.mark.parametrize("label", [{"policy": "horizon:40"}, {"arm": "horizon"}])
def test_a_session_whose_verdicts_do_not_follow_from_it_cannot_be_replayed(label: Any):
    with pytest.raises(Unusable, match="recorded under: policy horizon.*replay keep and drop"):
        replayed(trajectory(2, **label), plan())


def test_what_observe_sent_is_what_keep_sends():
    it = plan("observe")
    row = replayed(trajectory(STEPS, policy="observe"), it)

    assert under(row, it, "keep") == under(row, it, "observe")


def test_an_arm_bears_its_policy_in_its_name_or_is_given_it():
    named = replayed(trajectory(2, arm="drop"), plan())
    given = replayed(trajectory(2, arm="blue"), plan(arms={"blue": "keep_latest:2"}))
    unknown = replayed(trajectory(2, arm="blue"), plan())

    assert ("drop", "keep_latest:2", "keep") == (named.policy, given.policy, unknown.policy)


def test_replaying_twice_gives_the_same():
    it = plan("drop", "after_artifact", "keep_latest:1")

    assert replayed(trajectory(STEPS), it) == replayed(trajectory(STEPS), it)


def test_a_session_whose_requests_cannot_be_read_is_unusable():
    broken = Session("id", "exchanges", "m", Label(), lambda: iter([Asked(b"{}")]))

    with pytest.raises(Unusable, match="none of its requests"):
        replay(broken, "file", plan())
