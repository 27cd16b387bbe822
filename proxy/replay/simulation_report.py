"""What a simulation shows: a table, plain sentences, JSON, a plot. Losses are shown as losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.core.cachemodel import Split, written
from proxy.core.contract import CacheRule
from proxy.core.operations import Price, Work
from proxy.core.policy import Policy
from proxy.core.pricing import MILLION, Sheet
from proxy.page.plain import numbered
from proxy.replay import plots, simulation
from proxy.replay.plots import Line
from proxy.replay.simulation import KEEP, Agent, Measure, Run
from proxy.replay.tables import titled

POINTS = 13
"""Growths that a plot looks at."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run is measured by: a bill in dollars, or operations in positions."""

    rule: CacheRule
    measure: Measure
    unit: str
    told: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is simulated: an agent under policies, which thinks so much more once they forget."""

    agent: Agent
    policies: Sequence[Policy]
    growth: Fraction
    costs: Costs


@dataclass(frozen=True, slots=True)
class Case:
    """A policy: its run, what that costs, beside what `keep` costs, and its break-even."""

    run: Run
    tokens: Split
    work: Work
    cost: Fraction
    keep: Fraction
    sent_by_keep: int
    break_even: Fraction | None

    @property
    def change(self) -> Fraction:
        """Of the cost, against `keep`: -0.2 is a fifth less."""
        return change(self.cost, self.keep)

    @property
    def sent(self) -> Fraction:
        """Of the input tokens, against `keep`."""
        return change(Fraction(self.tokens.input), Fraction(self.sent_by_keep))


def change(value: Fraction, against: Fraction) -> Fraction:
    return value / against - 1 if against else Fraction(0)


def bill(rule: CacheRule, sheet: Sheet) -> Costs:
    def measure(run: Run) -> Fraction:
        return Fraction(simulation.bill(run, rule, sheet))

    names = ("input", "cache_read", "cache_write", "output")
    prices = {name: _plain(getattr(sheet, name) * MILLION) for name in names}
    told = ", ".join(f"{name.replace('_', ' ')} ${price}" for name, price in prices.items())
    return Costs(rule, measure, "usd", f"$ a million tokens: {told}", {"prices": prices})


def operations(rule: CacheRule, price: Price, premium: Fraction) -> Costs:
    """In positions: C/c, or C in pairs where a position costs nothing by itself."""
    unit = price.position or price.pair

    def measure(run: Run) -> Fraction:
        return simulation.cost(run, rule, price, premium) / unit

    rate = price.exchange_rate
    at = "pairs cost nothing" if rate is None else f"P* = {float(rate):,.0f} pairs a position"
    facts = {
        "position": float(price.position), "pair": float(price.pair),
        "exchange_rate": None if rate is None else float(rate), "decode_premium": float(premium),
    }  # fmt: skip
    told = f"{at}; a generated position costs {float(premium):g} times as much"
    return Costs(rule, measure, "positions" if price.position else "pairs", told, facts)


def cases(asked: Asked, drawn: Path | None = None) -> tuple[Case, ...]:
    """Each policy, in order, and a plot of them where a file for one is given. Raises SettingsError
    where it cannot be drawn.
    """
    if drawn:
        plots.usable(drawn)
    keep = simulation.play(KEEP, asked.agent)
    kept = asked.costs.measure(keep)
    sent = simulation.total(simulation.splits(keep, asked.costs.rule)).input
    found = tuple(_case(policy, asked, kept, sent) for policy in asked.policies)
    if drawn:
        plot(drawn, asked, found)
    return found


def _case(policy: Policy, asked: Asked, keep: Fraction, sent: int) -> Case:
    run, costs = simulation.play(policy, asked.agent, asked.growth), asked.costs
    return Case(
        run=run,
        tokens=simulation.total(simulation.splits(run, costs.rule)),
        work=simulation.work(run, costs.rule),
        cost=costs.measure(run),
        keep=keep,
        sent_by_keep=sent,
        break_even=simulation.break_even(policy, asked.agent, costs.measure),
    )


# For people


def show(console: Console, asked: Asked, found: Sequence[Case]) -> None:
    costs = asked.costs
    console.print()
    console.print(_table(asked, found))
    console.print(Text(f"Cache rule {written(costs.rule)}. {costs.told}.", style="dim"))
    console.print()
    for sentence in conclusion(found):
        console.print(Text(f"• {sentence}"))


def _table(asked: Asked, found: Sequence[Case]) -> Table:
    agent = asked.agent
    title = (
        f"{numbered(agent.steps, 'step')} of {agent.reasoning:,} reasoning, "
        f"{agent.action:,} action, {agent.observation:,} observation tokens"
    )
    shown = _of_bill if asked.costs.unit == "usd" else _of_operations
    table = titled(title, "policy", *shown(found[0]), "change", "break-even")
    for case in found:
        own = "" if case.run.policy == KEEP else _coloured(case.change)
        table.add_row(str(case.run.policy), *shown(case).values(), own, _growth(case.break_even))
    return table


def _of_bill(case: Case) -> dict[str, str]:
    it = case.tokens
    return {
        "sent": _short(it.input), "cached": _short(it.read), "rebuilt": _short(it.rebuilt),
        "new": _short(it.new), "output": _short(case.run.output),
        "bill": f"${float(case.cost):.4f}",
    }  # fmt: skip


def _of_operations(case: Case) -> dict[str, str]:
    it = case.work
    return {
        "sent": _short(case.tokens.input), "positions": _short(it.new),
        "generated": _short(it.generated), "pairs": f"{it.pairs / 1e6:,.0f}M",
        "cost": _short(round(case.cost)),
    }  # fmt: skip


def _short(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 10_000 else f"{tokens / 1000:,.0f}k"


def _coloured(share: Fraction) -> Text:
    return Text(_percent(share), "red" if share > 0 else "green" if share < 0 else "")


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):+.2f} %"


def _growth(share: Fraction | None) -> str:
    return "–" if share is None else f"{float(share * 100):+.1f} %"


def conclusion(found: Sequence[Case]) -> Iterator[str]:
    """What the numbers say, a sentence a policy."""
    for case in found:
        if case.run.policy == KEEP:
            continue
        yield f"{case.run.policy}: {_compared(case)}{_even(case)}"


def _compared(case: Case) -> str:
    sent = _than(case.sent, "more tokens than", "fewer tokens than", "as many tokens as")
    return f"sends {sent} keep, costs {_than(case.change, 'more', 'less', 'the same')}"


def _than(share: Fraction, more: str, less: str, same: str) -> str:
    if abs(share) < Fraction(1, 2_000):
        return same
    return f"{abs(float(share * 100)):.1f} % {more if share > 0 else less}"


def _even(case: Case) -> str:
    if case.break_even is not None:
        return (
            f"; as much as keep if the agent thinks {float(case.break_even * 100):.1f} % more "
            "a step."
        )
    return "." if case.change <= 0 else " from the start."


# For scripts


def as_json(asked: Asked, found: Sequence[Case]) -> dict[str, Any]:
    """All numbers; bills exact, as strings, in US dollars."""
    agent, costs = asked.agent, asked.costs
    return {
        "agent": {
            "steps": agent.steps, "reasoning": agent.reasoning, "action": agent.action,
            "observation": agent.observation, "preamble": agent.preamble,
            "artifacts": str(agent.artifacts), "growth": float(asked.growth),
        },
        "cache": {
            "rule": costs.rule.reuse.value, "block": costs.rule.block,
            "minimum": costs.rule.minimum,
        },
        "unit": costs.unit,
        **costs.facts,
        "policies": [_row(case, costs) for case in found],
    }  # fmt: skip


def _row(case: Case, costs: Costs) -> dict[str, Any]:
    it, work, even = case.tokens, case.work, case.break_even
    return {
        "policy": str(case.run.policy),
        "steps_dropped": case.run.dropped,
        "tokens": {
            "input": it.input, "cached": it.read, "rebuilt": it.rebuilt, "new": it.new,
            "output": case.run.output,
        },
        "operations": {"new": work.new, "pairs": work.pairs, "generated": work.generated},
        "cost": _plain(_decimal(case.cost)) if costs.unit == "usd" else float(case.cost),
        "change_percent": float(case.change * 100),
        "input_change_percent": float(case.sent * 100),
        "break_even_percent": None if even is None else float(even * 100),
    }  # fmt: skip


def _decimal(value: Fraction) -> Decimal:
    """Exact for a bill: prices have few digits."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _plain(value: Decimal) -> str:
    """All digits that there are, and no zeros behind them."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# As a plot


def plot(file: Path, asked: Asked, found: Sequence[Case]) -> None:
    """What each policy costs against `keep`, over how much more the agent thinks under it."""
    evens = [case.break_even for case in found if case.break_even is not None]
    most = max([Fraction(1, 2), *(even * Fraction(5, 4) for even in evens if even <= 4)])
    growths = [most * at / (POINTS - 1) for at in range(POINTS)]
    rows = [_line(case, asked, growths) for case in found if case.run.policy != KEEP]
    costs = asked.costs
    what = "bill" if costs.unit == "usd" else "operations"
    plots.lines(
        file,
        f"What forgetting costs when the agent thinks more, cache rule {written(costs.rule)}",
        "more reasoning a step than under keep, %",
        f"{what} against keep, %",
        rows,
        level=0,
    )


def _line(case: Case, asked: Asked, growths: Sequence[Fraction]) -> Line:
    policy, even = case.run.policy, case.break_even

    def against(growth: Fraction) -> float:
        cost = asked.costs.measure(simulation.play(policy, asked.agent, growth))
        return float(change(cost, case.keep) * 100)

    points = [(float(growth * 100), against(growth)) for growth in growths]
    if even is None or even > growths[-1]:
        return Line(str(policy), points)
    return Line(f"{policy}, even at {_growth(even)}", points, (float(even * 100), 0.0))
