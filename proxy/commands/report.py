"""`lethe report`: what each policy came to over the conversations that a running proxy holds."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.commands import options
from proxy.commands.asking import admin_at, asking
from proxy.commands.telling import told
from proxy.errors import SettingsError

if TYPE_CHECKING:
    from proxy.report.groups import By
    from proxy.report.whole import Report

_SINCE = typer.Option(
    metavar="WHEN",
    help="Only conversations active since then: 90m, 24h, 7d, 2w, or a date (2026-11-30, UTC).",
)
_BY = typer.Option(metavar="WHAT", help="What a row stands for: policy, model or task.")
_MARKDOWN = typer.Option("--markdown", help="Print it as Markdown, for an issue or a wiki.")
_HTML = typer.Option("--html", metavar="FILE", help="Write it into FILE as one page, with plots.")

_PATIENCE = 60.0
"""Seconds for one page of the API: the proxy adds up every request of its conversations."""
_SPAN = re.compile(r"([0-9]{1,6})(m|h|d|w)")
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def report(
    admin: Annotated[str | None, options.ADMIN] = None,
    config: Annotated[Path | None, options.CONFIG] = None,
    since: Annotated[str | None, _SINCE] = None,
    by: Annotated[str, _BY] = "policy",
    as_json: Annotated[bool, options.JSON] = False,
    markdown: Annotated[bool, _MARKDOWN] = False,
    html: Annotated[Path | None, _HTML] = None,
) -> None:
    """Compare policies over the conversations of a running proxy.

    What each policy cost, saved and achieved, beside keep. That takes conversations under keep and
    under others: by x-lethe-policy of a request, or by a key's policy. Tasks are known by
    x-lethe-task, their ends by POST /lethe/outcomes.
    """
    from proxy.report import whole  # only here: serving has no use for it
    from proxy.report.gather import gathered

    with told():
        _only_one(as_json, markdown, html)
        now = time.time()  # noqa: TID251  (a command of its own: here the clock is read)
        rows, start = _by(by), _since(since, now) if since is not None else None
        with asking(admin_at(admin, config, os.environ), _PATIENCE) as ask, _counting() as tick:
            runs = gathered(ask, start, tick)
        _print(whole.report(runs, rows, now, start), as_json, markdown, html)


def _only_one(as_json: bool, markdown: bool, html: Path | None) -> None:
    """Raises SettingsError, before any work is done."""
    if as_json + markdown + (html is not None) > 1:
        raise SettingsError("--json, --markdown, --html: give one of them, or none for a table")
    if html is not None and not html.parent.is_dir():
        raise SettingsError(f"--html {html}: its folder does not exist")


def _by(text: str) -> By:
    """Raises SettingsError."""
    from proxy.report.groups import By

    try:
        return By(text)
    except ValueError:
        known = ", ".join(it.value for it in By)
        raise SettingsError(f"--by: got {text[:40]!r}; wanted one of: {known}") from None


def _since(text: str, now: float) -> float:
    """Seconds since the epoch. Raises SettingsError."""
    if found := _SPAN.fullmatch(text.strip()):
        return now - int(found[1]) * _SECONDS[found[2]]
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise SettingsError(
            f"--since: got {text[:40]!r}; wanted a span (90m, 24h, 7d, 2w) or a date (2026-11-30, "
            "2026-11-30T12:00, in UTC unless it says otherwise)"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


@contextmanager
def _counting() -> Iterator[Callable[[int], None]]:
    """How many conversations were read so far, on stderr, where somebody looks."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda count: None
        return
    with console.status("reading conversations") as status:
        yield lambda count: status.update(f"reading conversations: {count:,}")


def _print(it: Report, as_json_wanted: bool, markdown_wanted: bool, html_file: Path | None) -> None:
    from rich.console import Console

    from proxy.report import as_json, html, markdown, terminal

    if as_json_wanted:
        print(json.dumps(as_json.as_json(it), indent=2))
    elif markdown_wanted:
        print(markdown.text(it), end="")
    elif html_file is not None:
        _write(html_file, html.page(it))
    else:
        console = Console()
        console.print(terminal.view(it, console.width))


def _write(file: Path, text: str) -> None:
    """Raises SettingsError where it cannot be written."""
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise SettingsError(f"--html {file}: cannot be written: {error.strerror}") from error
    typer.echo(f"written: {file}", err=True)
