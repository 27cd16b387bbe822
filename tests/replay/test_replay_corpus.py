"""The cache model and the sizes, against what a provider reported of real agents' sessions."""

from __future__ import annotations

from itertools import starmap
from pathlib import Path

from proxy.replay.replaying import replay
from proxy.replay.rows import Row
from proxy.replay.sources import found_in, sources
from tests.replay import recorded
from tests.shared import need_shared

REASONERS = "mini-swe-agent--deepseek_reasoner*.json"


def rows() -> tuple[Row, ...]:
    it = recorded.plan("drop", "after_artifact", "keep_latest:1", caches=("prompt:64", "none"))
    folder = need_shared("corpus", "trajectories")
    return tuple(
        replay(found.session, found.file, it)
        for chunk in sources(sorted(Path(folder).glob(REASONERS))).chunks
        for found in found_in(chunk)
        if found.session
    )


def test_a_cache_of_prompts_in_blocks_of_64_tells_the_reads_that_deepseek_reported():
    served = [row.under[0].served[0] for row in rows()]
    exact, compared = sum(it.exact for it in served), sum(it.compared for it in served)
    foretold, reported = (
        sum(it.foretold_reads for it in served), sum(it.recorded_reads for it in served)
    )  # fmt: skip
    print(f"\n{exact} of {compared} steps exactly; {foretold:,} of {reported:,} tokens in sum")

    assert 245 == compared
    assert exact >= 241
    assert abs(foretold - reported) <= 0.002 * reported


def test_prompts_are_foretold_one_step_ahead_within_two_per_cent():
    found = rows()
    near, foretold = sum(row.near for row in found), sum(row.foretold for row in found)
    print(f"\n{near} of {foretold} prompts within 2 %")

    assert 245 == foretold
    assert near >= 0.9 * foretold


def test_what_keep_sends_is_what_was_recorded_to_the_token():
    for row in rows():
        assert row.recorded == row.modelled
        assert row.recorded == row.under[0].input
        assert row.requests == row.anchored


def test_every_input_token_is_read_rebuilt_or_new_under_every_policy():
    sums = [
        (under.input, served.read + served.rebuilt + served.new)
        for row in rows()
        for under in row.under
        for served in under.served
    ]

    assert len(sums) == 40
    assert all(starmap(int.__eq__, sums))


def test_what_is_dropped_is_what_keep_sends_more():
    for row in rows():
        keep = row.under[0].input

        assert all(keep == under.input + under.dropped for under in row.under)


def test_append_only_policies_break_no_prefix_and_a_window_breaks_many():
    found = rows()

    assert not any(under.breaks for row in found for under in row.under[:3])
    assert {"self"} == {cause for row in found for cause in row.under[3].breaks}


def test_every_recorded_trajectory_is_replayed():
    folder = need_shared("corpus", "trajectories")
    it = recorded.plan("drop", caches=("prompt",))
    chunks = sources(sorted(Path(folder).glob("*.json"))).chunks
    found = [one for chunk in chunks for one in found_in(chunk)]
    done = [replay(one.session, one.file, it) for one in found if one.session]

    assert [] == [one.why for one in found if not one.session]
    assert all(row.requests for row in done)


def test_recorded_requests_are_replayed_by_conversation():
    folder = need_shared("captures")
    it = recorded.plan("drop", caches=("prompt",))
    found = sources([folder / "mini.jsonl", folder / "opencode.jsonl", folder / "codex.jsonl"])
    done = [
        replay(one.session, one.file, it)
        for c in found.chunks
        for one in found_in(c)
        if one.session
    ]

    assert 9 == done[0].requests
    assert 9 + 12 == sum(row.requests for row in done)
    assert {"no chat completions request; only those are replayed"} == {
        row.why for row in found.skipped
    }
