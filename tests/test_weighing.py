"""How a step is weighed: its sizes, the terms of its upstream and model, what is to come."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.core import policy, turn
from proxy.core.contract import UNKNOWN, CacheRule, Contract, Reuse
from proxy.core.horizon import Lacks, Source, Step, Unit, Weighed
from proxy.core.turn import Turn
from proxy.core.verdict import DROP, KEEP
from proxy.outlook import OVER, Life, Outlook, Whose
from proxy.prices import Prices
from proxy.ratios import Ratios
from proxy.settings import HorizonSettings, Settings, UpstreamSettings
from proxy.weighing import MOST_TOLD, Weigher

PRICE = '[[price]]\nmodel = "m"\ninput = 2\ncache_read = 0.5\ncache_write = 2.5\noutput = 10\n'
GENERATED = Contract("generated", cache=CacheRule(Reuse.GENERATED))
UP = UpstreamSettings(url="http://127.0.0.1:1", name="up")
NOW = 10_000.0


def read(steps: int = 2, model: str = "m", thought: str = "t" * 400) -> Turn:
    """A prompt, then steps with 400 bytes of reasoning each."""
    said = {"role": "assistant", "content": "a" * 168, "reasoning_content": thought}
    step = [said, {"role": "user", "content": "r" * 68}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "p" * 968}, *step * steps]
    return turn.read(json.dumps({"model": model, "messages": messages}).encode(), b"s" * 16)


@pytest.fixture
def doors(tmp_path: Path) -> Any:
    file = tmp_path / "prices.toml"
    file.write_text(PRICE)
    settings = Settings(upstreams=(UP,), prices=str(file))
    return SimpleNamespace(
        settings=settings,
        prices=Prices(settings),
        state=SimpleNamespace(ratios=Ratios(), outlook=Outlook()),
        clock=lambda: NOW,
    )


def weigher(
    doors: Any, it: Turn, contract: Contract = GENERATED, task: str = "", **standing: Any
) -> Weigher:
    known = {int(at.removeprefix("s")): verdict for at, verdict in standing.items()}
    return Weigher(doors, it, (), UP, contract, task, known)


def weighed(doors: Any, it: Turn, index: int = 1, name: str = "horizon", **more: Any) -> Weighed:
    found = weigher(doors, it, **more)
    found.pays(policy.parse(name), index)
    return found.found[index]


def unpriced(doors: Any, **settings: Any) -> Any:
    """The same without a price, and with other settings of `horizon`."""
    own = replace(doors.settings, horizon=HorizonSettings(**settings))
    return SimpleNamespace(**{**vars(doors), "settings": own, "prices": Prices(Settings())})


def whose(it: Turn, task: str = "") -> Whose:
    return Whose(it.scope, task, it.root, it.conversation)


# Sizes


def test_sizes_are_estimated_from_bytes_where_nobody_counted_them(doors: Any) -> None:
    """32 bytes frame each message; four bytes are a token until more is known."""
    it = weighed(doors, read())

    assert Step((1000 + 600 + 100) // 4, 100, 50) == it.step
    assert not it.counted


def test_what_was_dropped_before_stands_no_longer_before_it(doors: Any) -> None:
    assert Step((1000 + 200 + 100) // 4, 100, 50) == weighed(doors, read(), s0=DROP).step
    assert Step((1000 + 600 + 100) // 4, 100, 50) == weighed(doors, read(), s0=KEEP).step


def test_the_reply_that_this_worker_saw_is_as_long_as_its_provider_counted(doors: Any) -> None:
    it = read()
    life = Life(it.messages[2].link, 2, 700, 190, 120, 0, NOW)
    doors.state.outlook.note(whose(it), life)

    found = weighed(doors, it)

    assert (Step(700, 120, 70), True) == (found.step, found.counted)


@pytest.mark.parametrize("reasoning", [None, 401])
def test_reasoning_that_was_not_counted_is_estimated_beside_the_rest_that_was(
    doors: Any, reasoning: int | None
) -> None:
    it = read()
    life = Life(it.messages[2].link, 2, 700, 190, reasoning, 0, NOW)
    doors.state.outlook.note(whose(it), life)

    found = weighed(doors, it)

    assert (Step(700, 100, 90), False) == (found.step, found.counted)


def test_the_record_of_another_branch_counts_for_nothing(doors: Any) -> None:
    it = read()
    doors.state.outlook.note(whose(it), Life(b"elsewhere", 2, 700, 190, 120, 0, NOW))

    assert not weighed(doors, it).counted


def test_a_step_without_reasoning_is_kept_and_not_told_of(doors: Any) -> None:
    found = weigher(doors, read(thought=""))

    assert not found.pays(policy.parse("horizon:1000"), 1)
    assert {} == found.found


# Terms


def test_a_model_with_a_price_is_weighed_on_the_bill(doors: Any) -> None:
    """R* = (a/r)(anew - read)/read, what is processed anew being written to the cache."""
    found = weighed(doors, read(), name="horizon:3")

    assert found.terms is not None
    assert Unit.REQUESTS is found.terms.unit
    assert Fraction(50, 100) * 4 == found.horizon
    assert found.pays
    assert not weighed(doors, read(), name="horizon:2").pays


def test_a_model_without_a_price_is_weighed_in_operations(doors: Any) -> None:
    found = weighed(unpriced(doors, exchange_rate=1000), read(), name="horizon:740")

    assert found.terms is not None
    assert Unit.POSITIONS is found.terms.unit
    assert Fraction(1, 2) * (1000 + 425 + Fraction(51, 2)) == found.horizon
    assert found.pays
    assert not weighed(unpriced(doors, exchange_rate=1000), read(), name="horizon:725").pays


def test_operations_can_be_chosen_for_a_model_with_a_price(doors: Any) -> None:
    own = replace(doors.settings, horizon=HorizonSettings(by="operations"))
    doors = SimpleNamespace(**{**vars(doors), "settings": own})

    found = weighed(doors, read())

    assert found.terms is not None
    assert (Unit.POSITIONS, Fraction(124_000)) == (found.terms.unit, found.terms.rate)


def test_without_a_cache_rule_or_a_wanted_price_nothing_is_known_and_the_step_kept(
    doors: Any,
) -> None:
    ruleless = weighed(doors, read(), name="horizon:900", contract=UNKNOWN)
    priceless = weighed(unpriced(doors, by="bill"), read(), name="horizon:900")

    assert [Lacks.CACHE_RULE, Lacks.PRICE] == [ruleless.lacks, priceless.lacks]
    assert not ruleless.pays
    assert not priceless.pays


def test_while_the_price_list_is_read_no_unit_is_taken_for_another(doors: Any) -> None:
    up = UpstreamSettings(url="https://api.example.com", name="up")
    doors = unpriced(doors)
    doors.prices = Prices(Settings(upstreams=(up,)))

    assert Lacks.PRICE is weighed(doors, read(), name="horizon:900000").lacks


@pytest.mark.parametrize("reuse", [Reuse.PROMPT, Reuse.NONE])
def test_where_nothing_generated_is_held_it_pays_at_once_whatever_comes(
    doors: Any, reuse: Reuse
) -> None:
    found = weighed(doors, read(), contract=Contract("c", cache=CacheRule(reuse)))

    assert 0 == found.horizon
    assert found.pays
    assert Source.UNKNOWN is found.remaining.source


# What is to come


def test_what_is_said_with_the_policy_goes_before_the_settings_and_those_before_the_past(
    doors: Any,
) -> None:
    it = read()
    past = Whose(it.scope, "task", b"r", b"past")
    doors.state.outlook.note(past, Life(b"", 12, 9_000, 50, None, 0, NOW - OVER - 1))

    learned = weighed(doors, it, task="task").remaining
    set_ = weighed(unpriced(doors, remaining=7), it, task="task").remaining
    said = weighed(unpriced(doors, remaining=7), it, name="horizon:9", task="task").remaining
    unknown = weighed(doors, it).remaining

    assert (Fraction(10), Source.LEARNED, 1) == (learned.amount, learned.source, learned.samples)
    assert (Fraction(7), Source.SETTINGS) == (set_.amount, set_.source)
    assert (Fraction(9), Source.POLICY) == (said.amount, said.source)
    assert (None, Source.UNKNOWN) == (unknown.amount, unknown.source)


def test_a_step_stands_where_the_conversation_was_at_its_append_point(doors: Any) -> None:
    it = read(3)
    past = Whose(it.scope, "", b"r", b"past")
    doors.state.outlook.note(past, Life(b"", 12, 9_000, 50, None, 0, NOW - OVER - 1))

    assert [11, 10, 9] == [weighed(doors, it, index).remaining.amount for index in range(3)]
    positions = [weighed(unpriced(doors), it, index).remaining.amount for index in range(3)]
    assert [9_050 - 1_600 // 4, 9_050 - 2_300 // 4, 9_050 - 3_000 // 4] == positions


def test_positions_that_were_counted_are_not_estimated(doors: Any) -> None:
    it = read()
    past = Whose(it.scope, "", b"r", b"past")
    doors.state.outlook.note(past, Life(b"", 12, 9_000, 50, None, 0, NOW - OVER - 1))
    doors.state.outlook.note(whose(it), Life(it.messages[2].link, 2, 700, 190, 120, 10, NOW))

    assert 9_050 - 900 == weighed(unpriced(doors), it).remaining.amount


# What is told


def test_only_what_this_request_has_settled_is_told_and_the_latest_of_it(doors: Any) -> None:
    found = weigher(doors, read(MOST_TOLD + 3))
    for index in range(MOST_TOLD + 3):
        found.pays(policy.parse("horizon:3"), index)

    told = found.told(dict.fromkeys(range(1, MOST_TOLD + 3), DROP))

    assert list(range(3, MOST_TOLD + 3)) == [it.index for it in told]
    assert {"drop"} == {it.verdict for it in told}
    assert () == found.told({})


def test_it_is_noted_how_far_conversations_come_from_the_first_use_on(doors: Any) -> None:
    assert not doors.state.outlook.awake
    weigher(doors, read())
    assert doors.state.outlook.awake
