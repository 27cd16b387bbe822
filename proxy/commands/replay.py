"""`lethe replay`: what recorded sessions would have cost under other policies, caches, prices.

Only its options: what it does is imported when it is called, so that serving never holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.telling import told

_SESSIONS = typer.Argument(metavar="FILE|DIR…", help="Recorded sessions: .json, .jsonl.")
_POLICY = typer.Option("--policy", metavar="NAME", help="Repeat for several; keep is compared.")
_PRICES = typer.Option("--prices", metavar="NAME|FILE", help="Repeat: sonnet-5.5, openai/gpt-5 …")
_CACHE = typer.Option(
    "--cache", metavar="RULE", help="Repeat: prompt+generated|prompt|none[:block]."
)
_PREMIUM = typer.Option(metavar="W", help="How much more a generated position costs (1).")
_ARCHITECTURE = typer.Option(metavar="MODEL", help="Whose operations are counted (Qwen3-8B).")
_RATE = typer.Option(metavar="P", help="Pairs that cost as much as a position, in its place.")
_SWEEP = typer.Option(
    "--sweep", metavar="AXIS", help="Repeat: exchange-rate, decode-premium, read-price, block."
)
_LABEL = typer.Option(metavar="REGEX", help="Finds task and arm in a path: (?P<task>…)(?P<arm>…).")
_ARM = typer.Option("--arm", metavar="ARM=POLICY", help="Repeat: what an arm was recorded under.")
_OUT = typer.Option(metavar="FILE", help="All results as Parquet (extra parquet).")
_PLOT = typer.Option(metavar="FILE", help="The sweeps as PNG or SVG (extra plots).")
_JOBS = typer.Option(min=1, max=1024, help="Processes (as many as there are cores).")
_RESUME = typer.Option("--resume", help="Go on where the same replay was cut off.")
_JSON = typer.Option("--json", help="All numbers, for scripts.")
_MARKDOWN = typer.Option("--markdown", help="The bills as a Markdown table.")


def replay(
    paths: Annotated[list[Path], _SESSIONS],
    policies: Annotated[list[str] | None, _POLICY] = None,
    prices: Annotated[list[str] | None, _PRICES] = None,
    caches: Annotated[list[str] | None, _CACHE] = None,
    decode_premium: Annotated[str, _PREMIUM] = "1",
    architecture: Annotated[str | None, _ARCHITECTURE] = None,
    exchange_rate: Annotated[str | None, _RATE] = None,
    sweeps: Annotated[list[str] | None, _SWEEP] = None,
    label: Annotated[str, _LABEL] = "",
    arms: Annotated[list[str] | None, _ARM] = None,
    out: Annotated[Path | None, _OUT] = None,
    plot: Annotated[Path | None, _PLOT] = None,
    jobs: Annotated[int | None, _JOBS] = None,
    resume: Annotated[bool, _RESUME] = False,
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 1,
    as_json: Annotated[bool, _JSON] = False,
    as_markdown: Annotated[bool, _MARKDOWN] = False,
) -> None:
    """What recorded sessions would have cost under other policies, caches and prices."""
    from proxy.commands.replay_run import Asked, run

    with told():
        run(
            Asked(
                paths, policies or (), prices or (), caches or (), decode_premium, architecture,
                exchange_rate, sweeps or (), label, arms or (), out, plot, jobs, resume, seed,
                as_json, as_markdown,
            )
        )  # fmt: skip
