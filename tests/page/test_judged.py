"""What policies weighed, and what others would have done, as people read it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from proxy.page import judged, told
from proxy.page.terminal import show_view, why_view
from tests.page.talk import account
from tests.page.test_told import conversation

WEIGHED = {
    "step": 3, "verdict": "keep", "before": 20_000, "reasoning": 2_000, "action": 7,
    "counted": True, "unit": "positions", "horizon": 504.014, "expected": 320, "from": "policy",
    "samples": 0,
}  # fmt: skip


def printed(view: RenderableType) -> str:
    out = io.StringIO()
    Console(width=120, file=out).print(view)
    return out.getvalue()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "kept: 7 positions of action, horizon 504, 320 expected"),
        ({"verdict": "drop", "expected": 900.5}, "dropped: 7 positions of action, horizon 504, "
         "900 expected"),
        ({"counted": False}, "kept: ~7 positions of action, horizon 504, 320 expected"),
        ({"unit": "requests", "horizon": 12.34, "expected": 8, "from": "learned", "samples": 1},
         "kept: 7 tokens of action, horizon 12.3 requests, 8 expected (by 1 past conversation)"),
        ({"from": "learned", "samples": 12},
         "kept: 7 positions of action, horizon 504, 320 expected (by 12 past conversations)"),
        ({"expected": None, "from": "unknown"},
         "kept: 7 positions of action, horizon 504, what is to come not known"),
        ({"horizon": 0, "verdict": "drop"},
         "dropped: 7 positions of action, horizon 0: pays at once, 320 expected"),
        ({"horizon": None}, "kept: 7 positions of action, which never pays, 320 expected"),
        ({"lacks": "cache_rule"}, "kept: no cache rule is known: name a contract "
         "(lethe contracts)"),
        ({"lacks": "price"}, "kept: no price is known (lethe price)"),
        ({"lacks": "\x1b[31m", "verdict": "odd"}, "settled: ␛[31m"),
    ],
)  # fmt: skip
def test_the_numbers_that_decided_a_step_are_told_in_words(
    more: dict[str, Any], expected: str
) -> None:
    assert expected == judged.words({**WEIGHED, **more})


def test_steps_that_were_weighed_are_found_with_their_turn() -> None:
    it = conversation(account(1), account(2, horizon=[WEIGHED]), account(3, horizon="odd"))

    (found,) = told.weighed(it)

    assert (2, 3, 504.014) == (found["turn"], found["step"], found["horizon"])


def test_lethe_why_and_lethe_show_say_what_decided() -> None:
    it = conversation(*(account(turn, horizon=[WEIGHED]) for turn in range(1, 31)))
    found = {**told.listed(it.summary), "findings": [], "history": "full"}

    for some in (
        printed(why_view({**found, "weighed": told.weighed(it)}, False)),
        printed(show_view(told.conversation(it), False, False)),
    ):
        assert 20 == some.count("kept: 7 positions of action, horizon 504, 320 expected")
        assert "turn 30" in some
        assert "the last 20 of 30" in some
    everything = printed(why_view({**found, "weighed": told.weighed(it)}, True))
    assert 30 == everything.count("horizon 504")
    assert "horizon" not in printed(why_view(found, False))


# Shadows


def shadow(**more: Any) -> dict[str, Any]:
    row = {"dropped": 1, "estimated": False, "input": 60, "cache_read": 30, "dollars": 0.5}
    return {**row, **more}


def paid(turn: int, **shadows: Any) -> dict[str, Any]:
    tokens = {"input": 100, "cache_read": 50, "output": 5}
    return account(turn, tokens=tokens, dollars={"cost": 1.0}, shadow=shadows)


def test_a_shadow_is_summed_over_the_turns_that_tell_of_it() -> None:
    it = conversation(
        account(1), paid(2, drop=shadow()), paid(3, drop=shadow(dropped=2, estimated=True))
    )

    assert [
        {
            "policy": "drop", "turns": 2, "dropped": 2, "estimated": True, "input": 120,
            "sent": 200, "cache_read": 60, "hit_ratio": 0.5, "dollars": 1.0, "paid": 2.0,
        }
    ] == told.conversation(it)["shadows"]  # fmt: skip
    assert "shadows" not in told.conversation(conversation(account(1)))


def test_what_a_shadow_is_not_told_of_is_unknown_and_not_nothing() -> None:
    silent = shadow(input=None, cache_read=None)
    del silent["dollars"]
    it = conversation(paid(1, drop=silent, random={}))

    (drop,) = [row for row in judged.shadows(it.outcomes) if row["policy"] == "drop"]
    assert {None} == {drop[name] for name in ("input", "sent", "hit_ratio", "dollars", "paid")}
    shown = printed(show_view(told.conversation(it), False, False))
    assert "drop" in shown
    assert "–" in shown


def test_lethe_show_lays_shadows_beside_what_was_paid() -> None:
    it = conversation(paid(1, drop=shadow(dollars=0.75), **{"keep_latest:1": shadow(dollars=1.5)}))

    shown = printed(show_view(told.conversation(it), False, False))

    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert ["drop", "1", "60", "100", "50", "%", "$0.75", "$1.00", "−25.0", "%"] == rows["drop"]
    assert ["+50.0", "%"] == rows["keep_latest:1"][-2:]


def test_an_account_of_another_version_is_read() -> None:
    odd = conversation({"shadow": 3, "horizon": [3]}, {"shadow": {"drop": None}})

    assert [] == told.weighed(odd)
    assert [("drop", 0)] == [(it["policy"], it["turns"]) for it in judged.shadows(odd.outcomes)]
