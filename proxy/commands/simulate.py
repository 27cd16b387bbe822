"""`lethe simulate`: what each policy costs an agent whose steps are all alike."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.commands import given
from proxy.commands.telling import told

if TYPE_CHECKING:
    pass

_STEPS = typer.Option(min=1, max=500, help="Steps, a request each.")
_REASONING = typer.Option(min=0, max=1_000_000, help="Tokens of reasoning a step.")
_ACTION = typer.Option(min=0, max=1_000_000, help="Tokens of the rest of an answer.")
_OBSERVATION = typer.Option(min=0, max=1_000_000, help="Tokens of a tool result.")
_PREAMBLE = typer.Option(min=0, max=10_000_000, help="Tokens before the first step.")
_ARTIFACTS = typer.Option(metavar="P", help="Share of steps that leave an artifact (0 to 1).")
_POLICY = typer.Option("--policy", metavar="NAME", help="Repeat for several.")
_GROWTH = typer.Option(
    metavar="G", help="How much more a step thinks once anything is forgotten: 0.4 or 40%."
)
_CACHE = typer.Option(metavar="RULE", help="prompt, prompt+generated or none[:block[:minimum]].")
_PRICES = typer.Option(
    "--prices", "--model", metavar="NAME", help="sonnet-5.5, fable-5.1, provider/model or a file."
)
_INPUT = typer.Option(metavar="$", help="Price of a million input tokens, instead of a sheet.")
_READ = typer.Option(metavar="$", help="The same read from the cache (as input).")
_WRITE = typer.Option(metavar="$", help="The same written to the cache (as input).")
_OUTPUT = typer.Option(metavar="$", help="Price of a million output tokens.")
_OPERATIONS = typer.Option("--operations", help="Count operations instead of dollars.")
_ARCHITECTURE = typer.Option(metavar="NAME", help="Open model, or hidden=…,layers=…: lethe horizon")
_RATE = typer.Option(metavar="P*", help="Pairs that cost as much as a position, instead.")
_PREMIUM = typer.Option(metavar="W", help="How often a generated position costs a position.")
_PLOT = typer.Option(metavar="FILE", help="Draw cost over growth (.png, .svg).")
_JSON = typer.Option("--json", help="All numbers, for scripts.")


def simulate(
    steps: Annotated[int, _STEPS] = 40,
    reasoning: Annotated[int, _REASONING] = 1_500,
    action: Annotated[int, _ACTION] = 150,
    observation: Annotated[int, _OBSERVATION] = 1_200,
    preamble: Annotated[int, _PREAMBLE] = 20_000,
    artifacts: Annotated[str, _ARTIFACTS] = "0.5",
    policies: Annotated[list[str] | None, _POLICY] = None,
    growth: Annotated[str, _GROWTH] = "0",
    cache: Annotated[str, _CACHE] = "prompt",
    prices: Annotated[str, _PRICES] = "sonnet-5.5",
    input: Annotated[str | None, _INPUT] = None,
    cache_read: Annotated[str | None, _READ] = None,
    cache_write: Annotated[str | None, _WRITE] = None,
    output: Annotated[str | None, _OUTPUT] = None,
    operations: Annotated[bool, _OPERATIONS] = False,
    architecture: Annotated[str | None, _ARCHITECTURE] = None,
    exchange_rate: Annotated[str | None, _RATE] = None,
    decode_premium: Annotated[str, _PREMIUM] = "1",
    plot: Annotated[Path | None, _PLOT] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """What keeping, dropping and rewriting would cost an agent whose steps are all alike."""
    from rich.console import Console

    # only here: serving has no use for them
    from proxy.commands import one_sheet
    from proxy.replay import simulation
    from proxy.replay import simulation_report as report

    with told():
        share = given.number("--artifacts", artifacts, most=1)
        agent = simulation.Agent(steps, reasoning, action, observation, preamble, share)
        names = policies or simulation.COMPARED
        chosen = [given.checked("--policy", simulation.named, name) for name in names]
        more = Fraction(given.number("--growth", growth, most=100))
        rule = given.cache(cache)
        if operations:
            premium = Fraction(given.number("--decode-premium", decode_premium, least=1))
            costs = report.operations(rule, given.price(architecture, exchange_rate), premium)
        else:
            own = (input, cache_read, cache_write, output)
            costs = report.bill(rule, one_sheet.chosen(prices, own)[1])
        asked = report.Asked(agent, chosen, more, costs)
        found = report.cases(asked, plot)
        if as_json:
            print(json.dumps(report.as_json(asked, found), indent=2))
        else:
            report.show(Console(), asked, found)
