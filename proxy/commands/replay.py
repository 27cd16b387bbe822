"""`lethe replay`: what recorded sessions would have cost under other policies, caches, prices.

Only its options: what it does is imported when it is called, so that serving never holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.commands import given, options
from proxy.commands.telling import told

_SESSIONS = typer.Argument(
    metavar="PATH", help="Recorded sessions: .json and .jsonl files, or folders with such."
)
_POLICY = typer.Option(
    "--policy",
    metavar="NAME",
    help="A policy to compare with keep, again for more (without it: drop, after_artifact, "
    "keep_latest:1).",
)
_PRICES = typer.Option(
    "--prices",
    metavar="NAME",
    help="Whose prices, again for more: sonnet-5.5, fable-5.1 or deepseek-v3.2; PROVIDER/NAME of "
    "the price list, or NAME alone where all that have it charge the same; or a TOML file with "
    "[[price]] tables (without it: sonnet-5.5, deepseek-v3.2).",
)
_CACHE = typer.Option(
    "--cache",
    metavar="RULE",
    help="What the cache holds, again for more: prompt+generated, prompt or none; behind that, if "
    "wanted, the block and the minimum in tokens, as in prompt:128:1024 (without it, all three).",
)
_SWEEP = typer.Option(
    "--sweep",
    metavar="AXIS",
    help="How the results move along an axis, again for more: exchange-rate, decode-premium, "
    "read-price, block. With --json they are told, with --plot drawn.",
)
_LABEL = typer.Option(
    metavar="REGEX",
    help="How a path names its task and its arm (what it was recorded under), as two groups: "
    "(?P<task>…) and (?P<arm>…).",
)
_ARM = typer.Option(
    "--arm",
    metavar="ARM=POLICY",
    help="The policy that an arm was recorded under, again for more: blue=drop.",
)
_OUT = typer.Option(
    metavar="FILE", help="Write every result into FILE as Parquet (needs the extra parquet)."
)
_PLOT = typer.Option(
    metavar="FILE",
    help="Draw the sweeps (exchange-rate where none is named) into FILE (.png, .svg; needs the "
    "extra plots).",
)
_JOBS = typer.Option(metavar="N", min=1, max=1024, help="Processes (as many as there are cores).")
_RESUME = typer.Option("--resume", help="Go on where this very replay was stopped.")
_SEED = typer.Option(metavar="N", help="What the resamples behind the intervals are drawn by.")
_MARKDOWN = typer.Option("--markdown", help="Print the bills as a Markdown table.")


def replay(
    paths: Annotated[list[Path], _SESSIONS],
    policies: Annotated[list[str] | None, _POLICY] = None,
    prices: Annotated[list[str] | None, _PRICES] = None,
    caches: Annotated[list[str] | None, _CACHE] = None,
    decode_premium: Annotated[str, options.DECODE_PREMIUM] = "1",
    architecture: Annotated[str, options.ARCHITECTURE] = given.DEFAULT_MODEL,
    exchange_rate: Annotated[str | None, options.EXCHANGE_RATE] = None,
    sweeps: Annotated[list[str] | None, _SWEEP] = None,
    label: Annotated[str, _LABEL] = "",
    arms: Annotated[list[str] | None, _ARM] = None,
    out: Annotated[Path | None, _OUT] = None,
    plot: Annotated[Path | None, _PLOT] = None,
    jobs: Annotated[int | None, _JOBS] = None,
    resume: Annotated[bool, _RESUME] = False,
    seed: Annotated[int, _SEED] = 1,
    as_json: Annotated[bool, options.JSON] = False,
    as_markdown: Annotated[bool, _MARKDOWN] = False,
) -> None:
    """What recorded sessions would have cost under other policies.

    Under other caches and prices, too, and with the same replies, whatever is forgotten. It reads
    what `lethe show ID --messages --json` prints, .traj.json of mini-swe-agent, OpenAI message
    lists, and JSON Lines of requests with response and usage.

    \b
      lethe replay recorded/ --policy drop --prices openai/gpt-5
    """
    from proxy.commands.replay_run import Asked, run

    with told():
        run(
            Asked(
                paths, policies or (), prices or (), caches or (), decode_premium, architecture,
                exchange_rate, sweeps or (), label, arms or (), out, plot, jobs, resume, seed,
                as_json, as_markdown,
            )
        )  # fmt: skip
