"""The command line: reads arguments, makes one call, tells people what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from proxy import __version__, app, views
from proxy.commands import contracts as contracts_command
from proxy.commands import doctor as doctor_command
from proxy.commands import horizon as horizon_command
from proxy.commands import options
from proxy.commands import price as price_command
from proxy.commands import replay as replay_command
from proxy.commands import report as report_command
from proxy.commands import simulate as simulate_command
from proxy.commands.telling import told
from proxy.contracts import Contracts
from proxy.core import policy
from proxy.loading import load
from proxy.settings import DEFAULT_POLICY, Settings

cli = typer.Typer(
    name="lethe",
    help=(
        "A proxy that forgets an agent's old reasoning in flight and keeps the prompt cache warm."
        "\n\nTo begin: lethe demo, then lethe serve --upstream URL. What a running proxy did: top, "
        "show, why, report. What would come of it, without a proxy: simulate, horizon, replay."
        "\n\nWhat each command takes: lethe COMMAND --help"
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # frames and columns leave too little room in 80 columns
)


def main() -> None:
    """The console entry. Ends the process: 0, 1 for what failed, 2 for what cannot be used."""
    cli()


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lethe {__version__}")
        raise typer.Exit


@cli.callback()
def _lethe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """What all commands have in common."""


# lethe serve


# All are texts that `settings` checks, so that whatever is wrong is told at once.
_HOST = typer.Option(metavar="ADDRESS", help="Where clients call (127.0.0.1).")
_PORT = typer.Option(metavar="N", help="The port that clients call (4100).")
_POLICY = typer.Option(
    metavar="NAME", help="What holds where nothing names another (after_artifact): lethe policies."
)
_REDIS = typer.Option(
    metavar="URL", help="Redis or Valkey that holds the conversations, else this process does."
)
_WORKERS = typer.Option(metavar="N", help="Worker processes (1); more than one need --redis.")
_CONFIG = typer.Option(
    metavar="FILE", help="Configuration file (TOML); options go before it.", envvar="LETHE_CONFIG"
)
_ADMIN_HOST = typer.Option(metavar="ADDRESS", help="Where page and metrics are (127.0.0.1).")
_ADMIN_PORT = typer.Option(metavar="N", help="The port of page and metrics (4101).")
_LOG = typer.Option(
    metavar="WHERE", help="A line for each exchange: to stdout (as it is), stderr, off or a file."
)


@cli.command()
def serve(
    upstream: Annotated[str | None, options.UPSTREAM] = None,
    host: Annotated[str | None, _HOST] = None,
    port: Annotated[str | None, _PORT] = None,
    policy: Annotated[str | None, _POLICY] = None,
    redis: Annotated[str | None, _REDIS] = None,
    workers: Annotated[str | None, _WORKERS] = None,
    config: Annotated[Path | None, _CONFIG] = None,
    admin_host: Annotated[str | None, _ADMIN_HOST] = None,
    admin_port: Annotated[str | None, _ADMIN_PORT] = None,
    log: Annotated[str | None, _LOG] = None,
) -> None:
    """Run the proxy: forward requests, leave out old reasoning.

    More than the options here can be set in a file: config/lethe.toml of the project has every key
    and what it means.

    \b
      lethe serve --upstream https://api.deepseek.com
      lethe serve --config lethe.toml
    """
    given = {
        "upstream": upstream, "host": host, "port": port, "policy": policy, "redis": redis,
        "workers": workers, "admin_host": admin_host, "admin_port": admin_port, "log": log,
    }  # fmt: skip
    with told():
        settings = load(given, os.environ, config)
        app.serve(settings, lambda main, admin: announce(settings, main, admin))


def announce(settings: Settings, main: str, admin: str) -> None:
    """What runs where, for people, on stderr."""
    rows = (
        f"lethe {__version__}",
        f"  listens on  {main}",
        f"  forwards to {_forwards(settings)}",
        f"  policy      {settings.policy or DEFAULT_POLICY}: {_verdict(settings)}",
        f"  ledger      {_ledger(settings)}",
        f"  admin       {admin}  (/healthz, /readyz, /lethe/conversations …)",
        f"  page        {_callable(admin)}/lethe/ui",
        f"  metrics     {_callable(admin)}/metrics",
        *(f"  warning     {warning}" for warning in Contracts(settings).warnings()),
        "",
        "Point your agent here:",
        f"  export OPENAI_BASE_URL={_callable(main)}/v1",
    )
    print("\n".join(rows), file=sys.stderr, flush=True)


def _forwards(settings: Settings) -> str:
    first, *others = settings.upstreams
    return first.url + (f" and {len(others)} more by model or key" if others else "")


def _verdict(settings: Settings) -> str:
    head = (settings.policy or DEFAULT_POLICY).partition(":")[0]
    return next(it.verdict for it in policy.ABOUT if it.form.partition(":")[0] == head)


def _ledger(settings: Settings) -> str:
    if settings.ledger.redis is None:
        return (
            "in memory: not shared with other processes, forgotten when this one ends "
            "(--redis URL shares and keeps it)"
        )
    workers = "" if settings.workers == 1 else f", shared by {settings.workers} workers"
    return f"Redis at {_without_secret(settings.ledger.redis)}{workers}"


def _without_secret(url: str) -> str:
    """A URL may hold a password: only where it leads is told."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]


def _callable(address: str) -> str:
    """The address as a client on this machine can use it."""
    for everywhere, here in (("//0.0.0.0:", "//127.0.0.1:"), ("//[::]:", "//[::1]:")):
        address = address.replace(everywhere, here)
    return address


# lethe demo


@cli.command()
def demo(
    as_json: Annotated[bool, options.JSON] = False,
    steps: Annotated[
        int, typer.Option(metavar="N", min=2, max=200, help="Steps that the agent takes.")
    ] = 30,
    seed: Annotated[
        int, typer.Option(metavar="N", help="What the agent's texts are drawn by.")
    ] = 1,
) -> None:
    """See it work: a scripted agent, no key, no network.

    It goes through the real proxy, to a provider that is scripted too, once under each of four
    policies.
    """
    from rich.console import Console

    from proxy.replay import demo as demonstration  # only here: serving has no use for it
    from proxy.replay import demo_report

    names = demonstration.POLICIES
    # Its prices are its own, so that nobody has to be told that none is known.
    proxy = partial(app.running, tell=lambda line: None)
    with told(), _progress(len(names) * (steps + 1), not as_json) as tick:
        runs = asyncio.run(demonstration.measure(proxy, steps, seed, time.monotonic, tick))
    if as_json:
        print(json.dumps(demo_report.as_json(runs, steps, seed), indent=2))
    else:
        demo_report.show(Console(), runs)


@contextmanager
def _progress(requests: int, wanted: bool) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while requests are answered; gone when they are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    shown = wanted and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        bar = progress.add_task("", total=requests)
        yield lambda name: progress.update(bar, advance=1, description=name)


# lethe policies


@cli.command()
def policies(
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """List the policies: which reasoning goes, and when."""
    default = DEFAULT_POLICY
    rows = [
        {
            "policy": it.form,
            "verdict": it.verdict,
            "prefix": it.prefix,
            "default": it.form == default,
        }
        for it in policy.ABOUT
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print_policies(default)


def _print_policies(default: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    table.add_column("a finished step's reasoning")
    table.add_column("cached prefix")
    for it in policy.ABOUT:
        name = f"{it.form} (default)" if it.form == default else it.form
        table.add_row(name, it.verdict, it.prefix)
    console = Console()
    console.print(table)
    console.print(
        "append-only: what reaches the provider only grows, so its prompt cache stays warm. A step "
        "is an assistant message with the results that answer it.",
        style="dim",
        highlight=False,
    )


cli.command("contracts")(contracts_command.contracts)
cli.command("doctor")(doctor_command.doctor)
views.register(cli)
cli.command("report")(report_command.report)
cli.command("price")(price_command.price)
cli.command("simulate")(simulate_command.simulate)
cli.command("horizon")(horizon_command.horizon)
cli.command("replay")(replay_command.replay)
