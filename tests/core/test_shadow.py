"""Shadows: what a policy would have sent and what a cache would have served of it, laid beside the
same conversation under that very policy and a cache that is simulated apart from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core import artifact, cachemodel, fingerprint, policy, shade, shadow, turn
from proxy.core.cachemodel import Segment, Segments, Split
from proxy.core.contract import CacheRule, Drops, Reuse, UserTurn
from proxy.core.ratio import Ratio
from proxy.core.sent import Element, Sent, Shadowed
from proxy.core.shade import Gone, Left, Shade
from proxy.core.thought import Thought
from proxy.core.turn import Sealed, Turn
from proxy.core.usage import Usage
from proxy.core.verdict import DROP, KEEP, Verdict
from proxy.replay.lane import Lane
from tests.core.both_sides import ONE

SCOPE = bytes(16)
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """One reply and what the client makes of it. `early`: it asks once before the last result is
    there; `again`: it sends its next request twice.
    """

    thought: str
    command: str
    results: tuple[str, ...]
    early: bool = False
    again: bool = False
    spoken: bool = False

    def reply(self, at: int) -> dict[str, Any]:
        function = {"name": "bash", "arguments": json.dumps({"command": self.command})}
        calls = [
            {"id": f"call-{at}-{n}", "type": "function", "function": function}
            for n in range(len(self.results))
        ]
        thought = {"reasoning_content": self.thought} if self.thought else {}
        return {"role": "assistant", "content": "", **thought, "tool_calls": calls}

    def answers(self, at: int) -> Messages:
        rows: Messages = [
            {"role": "tool", "tool_call_id": f"call-{at}-{n}", "content": text}
            for n, text in enumerate(self.results)
        ]
        return [*rows, {"role": "user", "content": "Go on."}] if self.spoken else rows


steps = st.builds(
    Step, st.text("abc ", max_size=300), st.sampled_from(("ls", "echo hi > out.txt", "cat a.py")),
    st.lists(st.sampled_from(("ok", "Error: no such file", "x" * 90)), min_size=1, max_size=2)
    .map(tuple), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
runs = st.lists(steps, min_size=1, max_size=7)
rules = st.builds(
    CacheRule, st.sampled_from(Reuse), st.sampled_from((1, 16, 64)), st.sampled_from((0, 300))
)
APPEND_ONLY = ("drop", "after_artifact", "random:0.5")


def requests(run: Sequence[Step]) -> list[tuple[Messages, dict[str, Any] | None]]:
    """Every request of the agent, with the reply to it; None where it comes again."""
    history: Messages = [{"role": "user", "content": "Work on it. " * 9}]
    rows = []
    for at, step in enumerate(run):
        reply = step.reply(at)
        rows += [(list(history), reply)] * (1 + step.again)
        history = [*history, reply, *step.answers(at)]
        if step.early and len(step.results) > 1:
            rows.append((history[: len(history) - 1 - step.spoken], {"role": "assistant"}))
    return [*rows, (history, {"role": "assistant", "content": "done"})]


def read(messages: Messages) -> Turn:
    return turn.read(json.dumps({"model": "m", "messages": messages}).encode(), SCOPE)


def element(message: Mapping[str, Any]) -> Element:
    raw = json.dumps(message).encode()
    return fingerprint.read(raw, 0, len(raw), b"").kept


def segments(elements: Sequence[Element]) -> Segments:
    """A token for each byte that is rendered, reasoning first."""
    rows = []
    for e in elements:
        rows.append(Segment(e.digest + b"r", e.reasoning))
        rows.append(Segment(e.said, e.size - e.reasoning))
    return tuple(row for row in rows if row.tokens)


def front(it: Turn) -> tuple[Element, ...]:
    return turn.front_of(it, (), False, ())


@dataclass
class Served:
    """A provider: it has a cache by a rule, and counts."""

    rule: CacheRule
    rows: list[Segments] = field(default_factory=list)

    def split(self, elements: Sequence[Element], reply: Segments) -> Split:
        prompt = segments(elements)
        found = cachemodel.split(self.rule, self.rows[-cachemodel.BRANCHES :], prompt)
        self.rows.append(cachemodel.held(self.rule, prompt, reply))
        return found


def really(run: Sequence[Step], name: str, rule: CacheRule) -> list[Split]:
    """The agent under that very policy."""
    lane, served, found = Lane(policy.parse(name), artifact.judge), Served(rule), []
    for messages, reply in requests(run):
        it = read(messages)
        sealed = lane.seal(it, front(it), tuple(m.link for m in it.messages))
        found.append(served.split(sealed.elements, segments([element(reply or {})])))
    return found


@dataclass(frozen=True)
class Told:
    """One exchange under `observe`, and what was told of a shadow."""

    left: Left
    shade: Shade
    gone: Gone
    alike: Usage
    usage: Usage


def say(name: str) -> shade.Say:
    rule = policy.parse(name)
    return lambda it, settled: turn.propose(it, rule, artifact.judge, settled)


def observed(
    run: Sequence[Step], name: str, rule: CacheRule, reads: bool = True, counts: bool = True,
    records: bool = True, ratio: Ratio = ONE,
) -> list[Told]:  # fmt: skip
    last: Sent | None = None
    served, found = Served(rule), list[Told]()
    for messages, reply in requests(run):
        it = read(messages)
        standing: dict[int, Verdict] = dict.fromkeys(range(len(it.steps)), KEEP)
        sealed = turn.seal(it, standing, front(it), last)
        echo = element(reply or {})
        split = served.split(sealed.elements, segments([echo]))
        usage = Usage(split.input, split.read if reads else None, output=echo.size)
        left = left_of(it, sealed)
        one = shade.shade(left, policy.parse(name), say(name), Drops.ANY)
        gone = shade.gone(left, one, ratio)
        both = shadow.used(left, gone, usage, rule, UserTurn.KEEPS)
        assert both is not None
        found.append(Told(left, one, gone, *both))
        last = Sent(
            it.messages[-1].link, b"", sealed.elements, 0.0, "up", split.input, echo.size, None,
            echo.digest, reasoning_tokens=echo.reasoning if counts else None,
            shadows=(shade.recorded(one, gone),) if records else (),
        )  # fmt: skip
    return found


def left_of(it: Turn, sealed: Sealed) -> Left:
    intact = sealed.finding.cause.value in ("extended", "retry")
    return Left(it, sealed.elements, sealed.basis, intact)


def used(found: Sequence[Told]) -> list[tuple[int | None, int | None]]:
    return [(one.usage.input, one.usage.cache_read) for one in found]


@given(runs, rules, st.sampled_from(APPEND_ONLY), st.booleans())
def test_a_shadow_is_told_what_the_policy_itself_would_have_used(
    run: list[Step], rule: CacheRule, name: str, reads: bool
) -> None:
    expected = [(split.input, split.read) for split in really(run, name, rule)]

    found = observed(run, name, rule, reads, ratio=Ratio(4, 1))

    assert expected == used(found)
    assert not any(one.gone.total.estimated for one in found)


@given(runs, rules, st.integers(1, 3), st.booleans())
def test_it_is_so_for_a_policy_that_takes_out_what_it_had_sent(
    run: list[Step], rule: CacheRule, window: int, reads: bool
) -> None:
    """All steps are whole when they are first sent: what is undecided cannot be first seen open."""
    run = [Step(one.thought, one.command, one.results, False, one.again) for one in run]
    name = f"keep_latest:{window}"
    expected = [(split.input, split.read) for split in really(run, name, rule)]

    found = observed(run, name, rule, reads, ratio=Ratio(4, 1))

    assert expected == used(found)
    assert not any(one.gone.total.estimated for one in found)
    assert expected == used(observed(run, name, rule, reads, counts=False))


@given(runs, rules, st.sampled_from(APPEND_ONLY))
def test_where_nothing_was_recorded_all_is_derived_from_the_history_and_estimated(
    run: list[Step], rule: CacheRule, name: str
) -> None:
    run = [Step(one.thought, one.command, one.results) for one in run]
    known, derived = observed(run, name, rule), observed(run, name, rule, records=False)

    assert used(known) == used(derived)
    for one in derived:
        assert one.gone.total.estimated == any(at < one.left.known for at in one.shade.gone)


@given(runs, rules, st.sampled_from(APPEND_ONLY))
def test_what_no_provider_counted_is_told_as_an_estimate(
    run: list[Step], rule: CacheRule, name: str
) -> None:
    counted, estimated = observed(run, name, rule), observed(run, name, rule, counts=False)

    assert used(counted) == used(estimated)
    for one in estimated:
        assert one.gone.total.estimated == bool(one.shade.gone)


@given(runs, rules, st.sampled_from((*APPEND_ONLY, "keep_latest:1")))
def test_a_verdict_is_counted_once(run: list[Step], rule: CacheRule, name: str) -> None:
    found = observed(run, name, rule)

    dropped = sum(one.shade.fresh.get("drop", 0) for one in found)
    assert len(found[-1].shade.steps) == dropped
    if name != "keep_latest:1":
        settled = sum(sum(one.shade.fresh.values()) for one in found)
        assert len(found[-1].left.turn.steps) == settled


@given(runs, rules, st.integers(0, 3000), st.integers(0, 3000))
def test_read_written_and_uncached_input_are_all_input(
    run: list[Step], rule: CacheRule, read: int, written: int
) -> None:
    for one in observed(run, "drop", rule):
        total = one.alike.input or 0
        reported = Usage(total, min(read, total), min(written, total - min(read, total)), None, 9)
        both = shadow.used(one.left, one.gone, reported, rule, UserTurn.KEEPS)

        assert both is not None
        it = both[1]
        assert it.input == (it.cache_read or 0) + (it.cache_write or 0) + (it.uncached or 0)
        assert 0 <= (it.cache_read or 0) <= (it.input or 0)


# One step after a prompt: what the provider reports comes first.

ONE_STEP = [Step("t" * 400, "ls", ("x" * 200,))]
PROMPTS, GENERATED = CacheRule(Reuse.PROMPT), CacheRule(Reuse.GENERATED)


def again(
    one: Told, rule: CacheRule | None, user_turn: UserTurn = UserTurn.KEEPS, **more: Any
) -> Usage:
    """The shadow of the same exchange, had the provider reported something else."""
    both = shadow.used(one.left, one.gone, replace(one.alike, **more), rule, user_turn)
    assert both is not None
    return both[1]


def test_what_was_not_reported_is_not_known() -> None:
    one = observed(ONE_STEP, "drop", PROMPTS)[-1]

    assert shadow.used(one.left, one.gone, Usage(output=5), PROMPTS, UserTurn.KEEPS) is None


def test_a_cache_without_a_known_rule_is_taken_to_hold_prompts() -> None:
    one = observed(ONE_STEP, "drop", PROMPTS)[-1]

    assert one.usage == again(one, None)


def test_where_less_was_read_the_shadow_would_have_been_read_no_further() -> None:
    last = observed(ONE_STEP, "drop", GENERATED)[-1]

    assert 0 == again(last, GENERATED, cache_read=0).cache_read
    assert 50 == again(last, GENERATED, cache_read=50).cache_read
    assert last.usage.cache_read == again(last, GENERATED, cache_read=600).cache_read


def test_where_more_was_read_it_is_read_as_far_as_both_are_alike() -> None:
    first, last = observed(ONE_STEP, "drop", PROMPTS)
    prompt = first.alike.input

    assert prompt == last.usage.cache_read
    assert prompt == again(last, PROMPTS, cache_read=(prompt or 0) + 450).cache_read


def test_a_read_in_the_middle_is_less_all_that_was_left_out_before_it() -> None:
    run = [*ONE_STEP, Step("u" * 100, "ls", ("y" * 300,))]
    *_, before, last = observed(run, "drop", GENERATED)
    whole = before.alike.input or 0

    assert whole - 20 - 400 == again(last, GENERATED, cache_read=whole - 20).cache_read


def test_where_the_shadow_leaves_nothing_out_it_reads_all_that_was_read() -> None:
    last = observed(ONE_STEP, "random:0", PROMPTS)[-1]
    whole = last.alike.input or 0

    assert whole - 1 == again(last, PROMPTS, cache_read=whole - 1).cache_read


def test_where_the_shadow_alone_rewrites_its_prompt_a_longer_read_is_none_of_it() -> None:
    run = [*ONE_STEP, Step("u" * 100, "ls", ("y" * 300,))]
    last = observed(run, "keep_latest:1", PROMPTS)[-1]

    assert last.usage == again(last, PROMPTS, cache_read=(last.alike.cache_read or 0) + 100)


@pytest.mark.parametrize(("inside", "read"), [(10, 10), (32, 32), (40, 0), (500, 100)])
def test_what_comes_before_the_reasoning_of_an_element_is_still_alike(
    inside: int, read: int
) -> None:
    """A frame of 32 bytes comes first; reasoning that was read in part counts as read."""
    run = [*ONE_STEP, Step("u" * 100, "ls", ("y" * 300,))]
    first, _, last = observed(run, "drop", GENERATED)
    start = first.alike.input or 0

    assert (
        max(0, start + (read or inside - 400))
        == again(last, GENERATED, cache_read=start + inside).cache_read
    )


def test_a_read_in_whole_blocks_stays_one() -> None:
    rule = CacheRule(Reuse.PROMPT, 64)
    run = [*ONE_STEP, Step("u" * 100, "ls", ("y" * 300,))]
    first, _, last = observed(run, "drop", rule)
    part = (first.alike.input or 0) // 64 * 64 + 512

    assert (part - 400) // 64 * 64 == again(last, rule, cache_read=part).cache_read


def test_a_count_that_reasoning_cannot_be_is_not_taken_for_it() -> None:
    """Of hidden reasoning only a summary comes: it is shorter than what was counted."""
    last = observed(ONE_STEP, "drop", PROMPTS)[-1]
    assert last.left.last is not None
    for told, intact in ((401, True), (400, False)):
        sent = replace(last.left.last, reasoning_tokens=told)
        left = Left(last.left.turn, last.left.elements, sent, intact)

        assert Thought(100, True) == shade.gone(left, last.shade, Ratio(4, 1)).total
    assert Thought(400) == shade.gone(last.left, last.shade, Ratio(4, 1)).total


def test_a_conversation_without_a_past_is_read_as_far_as_it_was() -> None:
    (first, _) = observed(ONE_STEP, "drop", PROMPTS)

    assert 30 == again(first, PROMPTS, cache_read=30).cache_read
    assert 0 == again(first, PROMPTS, cache_read=None).cache_read


def test_nothing_that_is_held_nowhere_is_read() -> None:
    nothing = CacheRule(Reuse.NONE)

    assert [0, 0] == [one.usage.cache_read for one in observed(ONE_STEP, "drop", nothing)]


# What a template leaves out, and what a client changes


def spoken(run: Sequence[Step], name: str = "drop") -> Told:
    """The request in which a user speaks after the last step."""
    *rest, last = run
    return observed([*rest, replace_step(last)], name, GENERATED)[-1]


def replace_step(step: Step) -> Step:
    return Step(step.thought, step.command, step.results, spoken=True)


def test_what_a_template_leaves_out_anyway_is_in_neither_prompt() -> None:
    one = spoken(ONE_STEP)

    left, kept = (again(one, GENERATED, turns) for turns in (UserTurn.DROPS, UserTurn.KEEPS))

    assert one.alike.input == left.input
    assert (one.alike.input or 0) - 400 == kept.input


def test_a_shadow_has_nothing_to_lose_where_the_template_takes_old_reasoning_out() -> None:
    """The prompt that left showed reasoning that a new user message hides; the shadow had none."""
    run = [*ONE_STEP, Step("u" * 100, "ls", ("y" * 300,))]
    one = spoken(run)

    dropped = again(one, PROMPTS, UserTurn.DROPS, cache_read=None)
    shown = again(spoken(run, "random:0"), PROMPTS, UserTurn.DROPS, cache_read=None)

    assert (dropped.cache_read or 0) > (shown.cache_read or 0)


def test_what_the_template_had_left_out_of_the_last_prompt_is_in_neither_of_these() -> None:
    first = Step("t" * 400, "ls", ("x" * 200,), spoken=True)
    *_, before, last = observed([first, Step("u" * 100, "ls", ("y",))], "drop", PROMPTS)

    one = again(last, PROMPTS, UserTurn.DROPS)

    assert (last.alike.input or 0) - 100 == one.input
    assert before.alike.input == one.cache_read


def changed(name: str, at: int, **more: Any) -> tuple[Told, Usage]:
    """The last request of two steps again, with a member of an earlier message changed; reads are
    modelled.
    """
    run = [*ONE_STEP, Step("u" * 100, "ls", ("y" * 300,))]
    *_, last = observed(run, name, GENERATED)
    history, _ = requests(run)[-1]
    it = read([{**row, **(more if n == at else {})} for n, row in enumerate(history)])
    sent = Sent(
        b"", b"", tuple(last.left.elements[:-1]), 0.0, "up", 1000, 50, None, b"",
        shadows=(shade.recorded(last.shade, last.gone),),
    )  # fmt: skip
    sealed = turn.seal(it, dict.fromkeys(range(len(it.steps)), KEEP), front(it), sent)
    left = left_of(it, sealed)
    one = shade.shade(left, policy.parse(name), say(name), Drops.ANY)
    gone = shade.gone(left, one, ONE)
    both = shadow.used(left, gone, Usage(1400, None, output=5), GENERATED, UserTurn.KEEPS)
    assert both is not None
    return Told(left, one, gone, *both), both[1]


def test_reasoning_that_a_client_changes_breaks_no_shadow_that_left_it_out() -> None:
    one, dropped = changed("drop", 1, reasoning_content="other" * 80)
    _, kept = changed("random:0", 1, reasoning_content="other" * 80)

    assert not one.left.intact
    assert one.gone.total.estimated
    assert (kept.cache_read or 0) < 400 < (dropped.cache_read or 0)


def test_what_a_client_edits_breaks_the_shadow_where_it_breaks_the_prompt() -> None:
    one, dropped = changed("drop", 0, content="Work on another.")

    assert 0 < (one.alike.cache_read or 0) == (dropped.cache_read or 0) < 40


# What may not go


def shaded(
    messages: Messages, name: str, drops: Drops = Drops.ANY, last: Sent | None = None,
    standing: Mapping[int, Verdict] | None = None,
) -> tuple[Left, Shade]:  # fmt: skip
    it = read(messages)
    sealed = turn.seal(it, standing or {}, front(it), last)
    left = left_of(it, sealed)
    return left, shade.shade(left, policy.parse(name), say(name), drops)


def history(count: int = 2) -> Messages:
    rows, _ = requests([Step(f"{at}" * 40, "ls", ("ok",)) for at in range(count)])[-1]
    return rows


def test_a_contract_that_forbids_to_drop_forbids_it_to_a_shadow() -> None:
    _, never = shaded(history(), "drop", Drops.NEVER)
    _, some = shaded(history(), "random:1", Drops.ALL_OR_NOTHING)
    _, all_of_it = shaded(history(), "drop", Drops.ALL_OR_NOTHING)

    assert ((), {"keep": 2}) == (never.gone, dict(never.fresh)) == (some.gone, dict(some.fresh))
    assert {"drop": 2} == dict(all_of_it.fresh)


def test_what_a_conversation_has_begun_with_goes_on_under_all_or_nothing() -> None:
    rows = history(2)
    left, one = shaded(rows[:3], "drop", Drops.ALL_OR_NOTHING)
    sent = Sent(
        b"", b"", tuple(left.elements), 0.0, "up", shadows=(Shadowed("drop", b"\x00", 0, False),)
    )

    _, two = shaded(rows, "drop", Drops.ALL_OR_NOTHING, sent)

    assert {"drop": 1} == dict(one.fresh)
    assert {"keep": 1} == dict(two.fresh)


def test_signed_reasoning_stays_and_what_was_dropped_before_stays_dropped() -> None:
    rows = history(3)
    details = [{"type": "reasoning.text", "text": "x" * 40, "signature": "c2ln"}]
    rows[1] = {**rows[1], "reasoning_content": None, "reasoning_details": details}
    left, one = shaded(rows, "drop", standing={1: DROP})

    assert {0, 1, 2} == one.steps
    assert [left.places([2])[0]] == list(one.gone)
    assert 40 == left.elements[one.gone[0]].reasoning


def test_reasoning_that_was_put_back_for_the_client_can_go() -> None:
    rows = history(1)
    left, _ = shaded(rows, "drop")
    bare = read([{**row, "reasoning_content": ""} for row in rows])
    restored = Left(bare, left.elements, None, False)

    assert [left.front + 1] == list(restored.places([0]))


@given(st.frozensets(st.integers(0, 300), max_size=40))
def test_steps_are_read_from_their_bits(steps: frozenset[int]) -> None:
    assert steps == shade.steps_in(shade.bits_of(steps))


def test_nothing_is_left_out_of_nothing() -> None:
    left, one = shaded([{"role": "user", "content": "Hi"}], "drop")

    assert Gone({}, {}, Thought(), {}, ()) == shade.gone(left, one, ONE)
    assert Shadowed("drop", b"", 0, False) == shade.recorded(one, shade.gone(left, one, ONE))
