"""`lethe simulate`: what each policy costs an agent whose steps are all alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.commands import given, options
from proxy.commands.telling import told
from proxy.core.contract import CacheRule
from proxy.core.policy import Policy
from proxy.errors import SettingsError

if TYPE_CHECKING:
    from proxy.commands.one_sheet import Texts
    from proxy.replay.simulation import Agent
    from proxy.replay.simulation_report import Costs

_STEPS = typer.Option(metavar="N", min=1, max=500, help="Steps of the agent, a request each.")
_REASONING = typer.Option(
    metavar="N", min=0, max=1_000_000, help="Tokens that it thinks in each step."
)
_ACTION = typer.Option(
    metavar="N", min=0, max=1_000_000, help="Tokens of the rest of each answer: text, tool calls."
)
_OBSERVATION = typer.Option(
    metavar="N", min=0, max=1_000_000, help="Tokens of the tool results of each step."
)
_PREAMBLE = typer.Option(
    metavar="N", min=0, max=10_000_000, help="Tokens before the first step: tools, system, task."
)
_ARTIFACTS = typer.Option(
    metavar="SHARE",
    help="Of how many steps something durable stays, as a file that was written (0 to 1): policy "
    "after_artifact drops the reasoning of those.",
)
_POLICY = typer.Option(
    "--policy", metavar="NAME", help="A policy to look at, again for more (without it, five)."
)
_GROWTH = typer.Option(
    metavar="SHARE",
    help="How much more the agent thinks in each step once something is forgotten: 0.4 or 40%.",
)
_OUTPUT = typer.Option(metavar="$", help="Dollars a million output tokens, beside --input.")
_OPERATIONS = typer.Option(
    "--operations",
    help="Count what an engine computes, not dollars; the three options below are for that.",
)
_PLOT = typer.Option(
    metavar="FILE", help="Draw cost over growth into FILE (.png, .svg; needs the extra plots)."
)


def simulate(
    steps: Annotated[int, _STEPS] = 40,
    reasoning: Annotated[int, _REASONING] = 1_500,
    action: Annotated[int, _ACTION] = 150,
    observation: Annotated[int, _OBSERVATION] = 1_200,
    preamble: Annotated[int, _PREAMBLE] = 20_000,
    artifacts: Annotated[str, _ARTIFACTS] = "0.5",
    policies: Annotated[list[str] | None, _POLICY] = None,
    growth: Annotated[str, _GROWTH] = "0",
    cache: Annotated[str, options.CACHE] = given.SIMULATED_CACHE,
    prices: Annotated[str, options.PRICES] = "sonnet-5.5",
    input: Annotated[str | None, options.INPUT] = None,
    cache_read: Annotated[str | None, options.CACHE_READ] = None,
    cache_write: Annotated[str | None, options.CACHE_WRITE] = None,
    output: Annotated[str | None, _OUTPUT] = None,
    operations: Annotated[bool, _OPERATIONS] = False,
    architecture: Annotated[str, options.ARCHITECTURE] = given.DEFAULT_MODEL,
    exchange_rate: Annotated[str | None, options.EXCHANGE_RATE] = None,
    decode_premium: Annotated[str, options.DECODE_PREMIUM] = "1",
    plot: Annotated[Path | None, _PLOT] = None,
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """What each policy would cost an agent whose steps are alike.

    A step is one request: the agent thinks, acts and is told what came of it. Costs are dollars, or
    with --operations what an engine computes: a position is one token's way through the model, a
    pair is one token that attends to one before it.

    \b
      lethe simulate --steps 100 --model openai/gpt-5
      lethe simulate --operations --architecture Qwen3-32B
    """
    from rich.console import Console

    from proxy.replay import simulation_report as report  # only here: serving has no use for it

    with told():
        rule = given.cache(cache)
        engine = (architecture, exchange_rate, decode_premium)
        own = (input, cache_read, cache_write, output)
        costs = _operations(rule, *engine) if operations else _bill(rule, prices, own, engine)
        agent = _agent((steps, reasoning, action, observation, preamble), artifacts)
        more = Fraction(given.number("--growth", growth, most=100))
        asked = report.Asked(agent, _chosen(policies), more, costs)
        found = report.cases(asked, plot)
        if as_json:
            print(json.dumps(report.as_json(asked, found), indent=2))
        else:
            report.show(Console(), asked, found)


def _agent(sizes: tuple[int, int, int, int, int], artifacts: str) -> Agent:
    from proxy.replay.simulation import Agent

    return Agent(*sizes, given.number("--artifacts", artifacts, most=1))


def _chosen(names: Sequence[str] | None) -> list[Policy]:
    from proxy.replay import simulation

    return [
        given.checked("--policy", simulation.named, name) for name in names or simulation.COMPARED
    ]


_Engine = tuple[str, str | None, str]
_NO_ENGINE: _Engine = (given.DEFAULT_MODEL, None, "1")


def _operations(rule: CacheRule, architecture: str, rate: str | None, premium: str) -> Costs:
    from proxy.replay import simulation_report as report

    factor = Fraction(given.number("--decode-premium", premium, least=1))
    return report.operations(rule, given.price(architecture, rate), factor)


def _bill(rule: CacheRule, prices: str, own: Texts, engine: _Engine) -> Costs:
    from proxy.commands import one_sheet
    from proxy.replay import simulation_report as report

    if engine != _NO_ENGINE:
        raise SettingsError(
            "--architecture, --exchange-rate and --decode-premium have no say in a bill: add "
            "--operations to count what an engine computes"
        )
    _, sheet = one_sheet.chosen(prices, own)
    return report.bill(rule, sheet)
