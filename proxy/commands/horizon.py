"""`lethe horizon`: how much must still come for forgetting a step's reasoning to pay."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.commands import given, options
from proxy.commands.telling import told
from proxy.core import horizon as formulas
from proxy.core import open_models
from proxy.core.cachemodel import written
from proxy.core.contract import CacheRule
from proxy.core.horizon import Step
from proxy.core.operations import Price
from proxy.core.pricing import Sheet
from proxy.page.plain import numbered

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BEFORE = typer.Option(
    metavar="N", min=0, max=10_000_000, help="Tokens of the prompt before the step."
)
_REASONING = typer.Option(
    metavar="N", min=0, max=10_000_000, help="Tokens that the step thought: to be forgotten."
)
_ACTION = typer.Option(
    metavar="N",
    min=0,
    max=10_000_000,
    help="Tokens of the rest of its answer: they come anew where the reasoning before them goes.",
)
_ARCHITECTURE = typer.Option(
    metavar="NAME",
    help="One of the open models instead of all, or one of your own as "
    "hidden=N,layers=N,heads=N,ffn=N.",
)


@dataclass(frozen=True, slots=True)
class Compute:
    """A model's operations, and L*: positions that must still come. None: it never pays."""

    model: str
    price: Price
    positions: Fraction | None


@dataclass(frozen=True, slots=True)
class Bill:
    """A price sheet, and R*: requests that must still come. None: it never pays."""

    model: str
    sheet: Sheet
    requests: Fraction | None


def horizon(
    before: Annotated[int, _BEFORE] = 20_000,
    reasoning: Annotated[int, _REASONING] = 2_000,
    action: Annotated[int, _ACTION] = 100,
    architecture: Annotated[str | None, _ARCHITECTURE] = None,
    exchange_rate: Annotated[str | None, options.EXCHANGE_RATE] = None,
    cache: Annotated[str, options.CACHE] = given.HORIZON_CACHE,
    prices: Annotated[str | None, options.PRICES] = None,
    input: Annotated[str | None, options.INPUT] = None,
    cache_read: Annotated[str | None, options.CACHE_READ] = None,
    cache_write: Annotated[str | None, options.CACHE_WRITE] = None,
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """How much must still come for forgetting to pay.

    When a step has ended and its reasoning goes, what stood behind it has to be processed anew,
    once; every later request is shorter. This tells when both are even: after how many positions
    (tokens that an open model reads or writes) and, by prices, after how many requests.

    \b
      lethe horizon --before 50000 --reasoning 1500 --model openai/gpt-5
      lethe horizon --architecture Qwen3-32B
    """
    from rich.console import Console

    with told():
        step, rule = Step(before, reasoning, action), given.cache(cache)
        sheets = _sheets(prices, input, cache_read, cache_write)
        compute = [
            Compute(name, price, formulas.positions(step, price.exchange_rate, rule.reuse))
            for name, price in _prices(architecture, exchange_rate).items()
        ]
        bills = [
            Bill(name, it, formulas.requests(step, it.cache_write, it.cache_read, rule.reuse))
            for name, it in sheets.items()
        ]
        if as_json:
            print(json.dumps(_as_json(step, rule, compute, bills), indent=2))
        else:
            _show(Console(), step, rule, compute, bills)


def _prices(architecture: str | None, rate: str | None) -> dict[str, Price]:
    if rate is not None:
        return {"as given": given.at_rate(rate)}
    if architecture is not None:
        it = given.architecture(architecture)
        return {it.name: it.price}
    return {it.name: it.price for it in open_models.MODELS}


def _sheets(
    name: str | None, input: str | None, read: str | None, write: str | None
) -> dict[str, Sheet]:
    if not (name or input or read or write):
        return given.SHEETS
    from proxy.commands import one_sheet  # only here: serving has no use for it

    # Output is the same either way: its price has no say.
    called, sheet = one_sheet.chosen(name or "", (input, read, write, input), "--input")
    return {called: sheet}


# For people


def _show(
    console: Console, step: Step, rule: CacheRule, compute: list[Compute], bills: list[Bill]
) -> None:
    from rich.text import Text

    console.print()
    console.print(Text(_case(step, rule)))
    console.print()
    console.print(_compute_table(compute))
    console.print()
    console.print(_bill_table(bills))
    console.print(Text(_LEGEND, style="dim"))


_LEGEND = (
    "Forgetting pays once more than L* positions (tokens) or R* requests still come. What the "
    "agent then thinks again is not counted. c: one token's way through the model; β: one token "
    "that attends to one before it; read: input that comes from the cache."
)


def _case(step: Step, rule: CacheRule) -> str:
    return (
        f"A step after {numbered(step.before, 'token')} of prompt: {step.reasoning:,} of "
        f"reasoning, {step.action:,} of action. The cache holds: {written(rule)}."
    )


def _compute_table(rows: list[Compute]) -> Table:
    from proxy.replay.tables import titled

    table = titled("In operations", "model", "c, GFLOP", "β, MFLOP", "P* = c/β", "L*, positions")
    for row in rows:
        rate = row.price.exchange_rate
        table.add_row(
            row.model.rpartition("/")[2],
            f"{float(row.price.position) / 1e9:,.1f}",
            f"{float(row.price.pair) / 1e6:,.2f}",
            "–" if rate is None else f"{float(rate):,.0f}",
            _amount(row.positions, ",.0f"),
        )
    return table


def _bill_table(rows: list[Bill]) -> Table:
    from proxy.replay.tables import titled

    table = titled("On the bill", "prices", "new input $/M", "read $/M", "R*, requests")
    for row in rows:
        new, read = row.sheet.cache_write * 1_000_000, row.sheet.cache_read * 1_000_000
        table.add_row(row.model, f"{new:.2f}", f"{read:.3f}", _amount(row.requests, ",.1f"))
    return table


def _amount(horizon: Fraction | None, form: str) -> str:
    if horizon is None:
        return "never"
    return "at once" if horizon == formulas.AT_ONCE else format(float(horizon), form)


# For scripts


def _as_json(
    step: Step, rule: CacheRule, compute: list[Compute], bills: list[Bill]
) -> dict[str, Any]:
    return {
        "step": {"before": step.before, "reasoning": step.reasoning, "action": step.action},
        "cache": {"rule": rule.reuse.value, "block": rule.block, "minimum": rule.minimum},
        "operations": [
            {
                "model": it.model,
                "position": float(it.price.position),
                "pair": float(it.price.pair),
                "exchange_rate": _number(it.price.exchange_rate),
                "horizon_positions": _number(it.positions),
            }
            for it in compute
        ],
        "bill": [{"model": it.model, "horizon_requests": _number(it.requests)} for it in bills],
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
