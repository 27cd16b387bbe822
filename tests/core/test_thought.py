"""The reasoning that did not leave, in tokens: counted where a provider did, else estimated."""

from __future__ import annotations

from proxy.core import thought
from proxy.core.ratio import Ratio
from proxy.core.sent import Sent
from proxy.core.thought import Sides, Thought
from tests.core.both_sides import message, prompt, steps


def of_reply(counted: int | None, size: int = 400) -> Thought:
    run = steps((size, 100, 50, True))
    before = Sent(
        b"", b"", prompt(run, 0, 400, False), 0.0, "up", 1000, 500, reasoning_tokens=counted
    )
    sides = Sides(prompt(run, 1, 400, False), prompt(run, 1, 400, True), before, True)
    return thought.gone(sides, Ratio(4, 1)).total


def test_reasoning_counts_as_its_provider_counted_it_else_it_is_estimated_and_marked() -> None:
    assert Thought(90, estimated=False) == of_reply(90)
    assert Thought(100, estimated=True) == of_reply(None)


def test_a_summary_is_not_what_was_counted() -> None:
    assert Thought(100, estimated=True) == of_reply(5000)


def test_an_estimate_once_told_stays_in_every_sum() -> None:
    run = steps((400, 100, 500, True), (400, 100, 50, True))
    before = Sent(
        b"", b"", prompt(run, 1, 400, False), 0.0, "up", 1000, 500,
        reasoning_tokens=70, dropped_tokens=110, dropped_estimated=True,
    )  # fmt: skip
    sides = Sides(prompt(run, 2, 400, False), prompt(run, 2, 400, True), before, True)

    assert Thought(180, estimated=True) == thought.gone(sides, Ratio(4, 1)).total


def test_reasoning_that_was_replaced_counts_less_what_took_its_place() -> None:
    run = steps((400, 100, 50, True))
    sent = list(prompt(run, 1, 400, False))
    sent[1] = message("a0", "assistant", 100, 40)
    before = Sent(b"", b"", prompt(run, 0, 400, False), 0.0, "up", 1000, 500, reasoning_tokens=100)
    sides = Sides(sent, prompt(run, 1, 400, True), before, True)

    assert Thought(90, estimated=True) == thought.gone(sides, Ratio(4, 1)).total
