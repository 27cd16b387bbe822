"""What one exchange came to: its price, its mechanical saving, or why it has none."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from proxy.bill import Bill, bill
from proxy.core.contract import CacheRule, Contract, Reuse, UserTurn
from proxy.core.prefix import Cause
from proxy.core.seen import Seen, ToolCall
from proxy.core.sent import Element, Part, Sent
from proxy.core.shade import Shade
from proxy.core.thought import Thought
from proxy.core.usage import Usage
from proxy.counting import Counts
from proxy.prices import Prices
from proxy.ratios import Ratios
from proxy.settings import Settings, UpstreamSettings

PRICE = '[[price]]\nmodel = "m"\ninput = 2\ncache_read = 0.1\noutput = 10\n'
PROMPTS = Contract("prompts", cache=CacheRule(Reuse.PROMPT))
USED = Usage(input=500, cache_read=400, output=100, reasoning=40)


def element(name: str, role: str, size: int, reasoning: int = 0) -> Element:
    said = name.encode().ljust(16, b".")
    whole = said[:15] + b"+" if reasoning else said
    return Element(Part.MESSAGE, whole, said, said[:8], size + reasoning, reasoning, role)


GO, RESULT = element("go", "user", 400), element("result", "tool", 60)
WHOLE, BARE = element("step", "assistant", 40, 160), element("step", "assistant", 40)


def pruning(*more: Element, rebuilt: int | None = None) -> Any:
    """One step, dropped as it came: 400 tokens were sent before it, and 40 of it are reasoning."""
    last = Sent(b"", b"", (GO,), 0.0, "up", 400, 60, None, reasoning_tokens=40)
    left = (GO, BARE, RESULT, *more)
    rows = [SimpleNamespace(kept=it) for it in (GO, WHOLE, RESULT, *more)]
    sealed = SimpleNamespace(
        elements=left, basis=last, finding=SimpleNamespace(cause=Cause.EXTENDED)
    )
    return SimpleNamespace(
        sealed=sealed,
        turn=SimpleNamespace(messages=rows, steps=()),
        explained=SimpleNamespace(rebuilt=rebuilt),
        done={},
        shades=(),
    )


@pytest.fixture
def doors(tmp_path: Path) -> Any:
    file = tmp_path / "prices.toml"
    file.write_text(PRICE)
    up = UpstreamSettings(url="http://127.0.0.1:1", name="up")
    prices = Prices(Settings(upstreams=(up,), prices=str(file)))
    observer = SimpleNamespace(counts=Counts())
    return SimpleNamespace(prices=prices, state=SimpleNamespace(ratios=Ratios()), observer=observer)


def billed(
    doors: Any, it: Any, usage: Usage = USED, contract: Contract = PROMPTS, model: str = "m"
) -> Bill:
    return bill(doors, it, Seen(usage=usage), contract, "up", model, 0.0)


def saved(found: Bill) -> Decimal:
    """In millionths of a dollar."""
    assert found.money is not None
    return found.money.saving * 1_000_000


def test_what_was_paid_and_what_keep_would_have_cost(doors: Any) -> None:
    found = billed(doors, pruning(rebuilt=10))

    assert Thought(40, estimated=False) == found.thought
    assert found.money is not None
    assert Decimal("0.00124") == found.money.cost.total
    assert 40 * 2 == saved(found)
    assert 10 * Decimal("1.9") == found.money.rebuilt * 1_000_000
    assert not found.money.estimated


def test_what_was_not_read_is_paid_and_saves_nothing(doors: Any) -> None:
    found = billed(doors, None, msgspec.structs.replace(USED, cost=Decimal("0.5")))

    assert found.thought is None
    assert found.money is not None
    assert Decimal("0.00124") == found.money.cost.total
    assert 0 == found.money.saving
    assert Decimal("0.5") == found.money.reported


def test_without_a_price_or_a_count_there_is_a_reason_and_the_tokens_all_the_same(
    doors: Any,
) -> None:
    assert Bill(Thought(40), None, "unknown_provider") == billed(doors, pruning(), model="n")
    assert Bill(Thought(40), None, "unreported") == billed(doors, pruning(), Usage(input=500))


NOTHING_GONE = Shade("drop", frozenset(), frozenset(), (), (), {"keep": 1}, None)


def test_a_shadow_has_tokens_and_a_price_as_far_as_they_are_known(doors: Any) -> None:
    it = pruning()
    it.shades = (NOTHING_GONE,)

    (priced,) = billed(doors, it).shadows
    (unpriced,) = billed(doors, it, model="n").shadows
    (uncounted,) = billed(doors, it, Usage(output=5)).shadows

    assert (500, Decimal("0.00124"), Decimal(0)) == (
        priced.usage and priced.usage.input,
        priced.cost,
        priced.saving,
    )
    assert (priced.usage, None) == (unpriced.usage, unpriced.cost)
    assert (None, None, {"keep": 1}) == (uncounted.usage, uncounted.cost, uncounted.fresh)


def test_a_shadow_that_cannot_be_counted_is_a_fault_and_the_bill_stands(doors: Any) -> None:
    it = pruning()
    it.shades = (None,)

    found = billed(doors, it)

    assert found.money is not None
    assert () == found.shadows
    assert 1 == doors.observer.counts.numbers["lethe_faults_total"][("shadow",)]


def test_a_zero_of_who_never_reports_reads_is_no_report(doors: Any) -> None:
    """As a report, 0 says that the last prompt was lost: then reasoning is input, all of it."""
    silent = msgspec.structs.replace(PROMPTS, reports_cache=False)
    usage = msgspec.structs.replace(USED, cache_read=0)
    old = pruning()
    old.sealed.basis = msgspec.structs.replace(
        old.sealed.basis, elements=(GO, BARE, RESULT), dropped_tokens=40
    )

    assert 40 * 2 == saved(billed(doors, old, usage))
    assert 40 * Decimal("0.1") == saved(billed(doors, old, usage, silent))


def test_what_the_template_leaves_out_anyway_saves_nothing(doors: Any) -> None:
    dropping = msgspec.structs.replace(PROMPTS, user_turn=UserTurn.DROPS)
    user = element("and now", "user", 10)

    assert [0, 80] == [
        saved(billed(doors, pruning(user), USED, contract)) for contract in (dropping, PROMPTS)
    ]


def test_bytes_a_token_are_learned_from_reasoning_else_from_the_whole_reply() -> None:
    ratios = Ratios()
    call = ToolCall("1", "write", "x" * 95)
    whole = Seen(usage=Usage(output=200_000), text="y" * 299_900, tool_calls=(call,))
    thought = Seen(usage=Usage(output=200_000, reasoning=90_000), reasoning="z" * 180_000, text="!")

    ratios.learn("up", "whole", whole)
    ratios.learn("up", "thought", thought)
    ratios.learn("up", "cut", Seen(usage=Usage(output=9), text="y" * 90, truncated=True))

    assert 1990 <= ratios.of("up", "whole").estimated(3000) <= 2000
    assert 1490 <= ratios.of("up", "thought").estimated(3000) <= 1500
    assert 750 == ratios.of("up", "cut").estimated(3000)


def test_no_more_models_are_held_than_a_bound_and_the_oldest_goes_first() -> None:
    ratios = Ratios()
    seen = Seen(usage=Usage(output=1000), text="y" * 2000)
    for number in range(600):
        ratios.learn("up", f"m{number}", seen)

    assert 750 == ratios.of("up", "m0").estimated(3000)
    assert 750 < ratios.of("up", "m599").estimated(3000)
