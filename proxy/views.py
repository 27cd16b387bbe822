"""What the command line shows of a running proxy: `lethe why`, `lethe show`, `lethe top`.

A client of the admin listener's API and of nothing else. What it prints may hold message text,
which is hostile: every character that could steer a terminal is made visible before it is printed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.commands import options
from proxy.commands.asking import Unanswered, admin_at, asking
from proxy.commands.telling import told
from proxy.page import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Json = Mapping[str, Any]

LATEST = "latest"
_MOST = 1_000


_NONE_YET = "no conversation yet: point an agent at the proxy"
_STORE_AWAY = "the store does not answer, so no conversation can be shown; is Redis running?"


def resolved(ask: Callable[..., Json], name: str) -> str:
    """The id behind what was typed: all of an id, its beginning, or `latest`. Raises Unanswered."""
    wanted = name.strip().lower()
    if len(wanted) == 32:
        return wanted
    told = ask("/lethe/conversations", limit=_MOST)
    rows = told["conversations"]
    found = [it["id"] for it in rows if wanted == LATEST or it["id"].startswith(wanted)]
    if not rows:
        raise Unanswered(_NONE_YET if told["ledger"] == "up" else _STORE_AWAY)
    if not found:
        raise Unanswered(f"no conversation {plain.line(name)[:64]!r}; lethe top lists them")
    if wanted != LATEST and len(found) > 1:
        some = ", ".join(id[:12] for id in found[:4])
        raise Unanswered(
            f"{len(found)} conversations begin with {wanted!r}: {some} …; type more of it"
        )
    return str(found[0])


# The commands

_CONVERSATION = typer.Argument(
    metavar="ID", help="A conversation: its id, the beginning of it, or `latest`."
)
Conversation = Annotated[str, _CONVERSATION]
AdminUrl = Annotated[str | None, options.ADMIN]
Config = Annotated[Path | None, options.CONFIG]
AsJson = Annotated[bool, options.JSON]


def register(cli: typer.Typer) -> None:
    """Add the commands to the command line."""
    cli.command()(top)
    cli.command()(show)
    cli.command()(why)


def why(
    conversation: Conversation = LATEST,
    notes: Annotated[
        bool, typer.Option("--all", help="Also what costs nothing: forks, retries, cold starts.")
    ] = False,
    admin: AdminUrl = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Why the cached prefix broke, what it cost, what to do.

    Each break of one conversation: in which turn, where in the request, by whom.
    """
    with told(), asking(admin_at(admin, config, os.environ)) as ask:
        id = resolved(ask, conversation)
        found = ask(f"/lethe/conversations/{id}/findings", notes=notes)
        _print(found, as_json, lambda: terminal().why_view(found, notes))


def show(
    conversation: Conversation = LATEST,
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Also the last request's messages, what left them marked."),
    ] = False,
    whole: Annotated[
        bool, typer.Option("--all", help="Every turn, not the last 20 only; texts uncut.")
    ] = False,
    admin: AdminUrl = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show one conversation, turn by turn.

    For each turn what the provider read from its cache, what was new, and what was left out.

    \b
      lethe show latest --messages
    """
    with told(), asking(admin_at(admin, config, os.environ)) as ask:
        id = resolved(ask, conversation)
        found = ask(f"/lethe/conversations/{id}", text=messages)
        _print(found, as_json, lambda: terminal().show_view(found, messages, whole))


def top(
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two looks.")
    ] = 2.0,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=_MOST, help="Conversations at most (else what fits)."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    admin: AdminUrl = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Watch conversations as they live, the latest first.

    Ctrl-C ends it.
    """
    console = _console()
    with told(), asking(admin_at(admin, config, os.environ)) as ask:
        if as_json:
            print(json.dumps(_look(ask, limit or _MOST), indent=2))
        elif once or not console.is_terminal:
            found = _look(ask, limit or _MOST)
            console.print(terminal().top_view(found, _now(), console.width))
        else:
            _watch(console, ask, limit, interval)


def _watch(console: Console, ask: Callable[..., Json], limit: int | None, interval: float) -> None:
    """A table that lives, until Ctrl-C."""
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                rows = limit or max(1, console.size.height - 6)
                found = _look(ask, rows)
                live.update(terminal().top_view(found, _now(), console.width), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            return


def _now() -> float:
    return time.time()  # noqa: TID251  (a command of its own: here the clock is read)


def _look(ask: Callable[..., Json], limit: int) -> Json:
    return {
        **ask("/lethe/stats"),
        "rows": ask("/lethe/conversations", limit=limit)["conversations"],
    }


def _print(found: Json, as_json: bool, view: Callable[[], RenderableType]) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _console().print(view())


def _console() -> Console:
    from rich.console import Console  # not for `lethe serve`, which carries all that is imported

    return Console()


def terminal() -> ModuleType:
    """What draws on a terminal."""
    from proxy.page import terminal

    return terminal
