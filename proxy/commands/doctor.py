"""`lethe doctor`: finds out by asking what an upstream does with reasoning and its prompt cache."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from proxy.commands import options
from proxy.commands.telling import told
from proxy.errors import ProxyError, SettingsError

if TYPE_CHECKING:
    from proxy.doctor.probes import Estimate
    from proxy.doctor.record import Record

KEY_ENV = "LETHE_DOCTOR_KEY"
INTERRUPTED = 130

_MODEL = typer.Option(metavar="NAME", help="The model to ask.")
_KEY = typer.Option(
    metavar="NAME", help=f"The environment variable that holds the upstream's key ({KEY_ENV})."
)
_YES = typer.Option("--yes", help="Do not ask before spending tokens.")
_OUT = typer.Option(metavar="FILE", help="Write the contract into FILE (TOML).")
_FORCE = typer.Option("--force", help="With --out: overwrite FILE where it is there already.")


def doctor(
    upstream: Annotated[str, options.UPSTREAM],
    model: Annotated[str, _MODEL],
    key_env: Annotated[str | None, _KEY] = None,
    yes: Annotated[bool, _YES] = False,
    out: Annotated[Path | None, _OUT] = None,
    force: Annotated[bool, _FORCE] = False,
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """Ask an upstream what it does with reasoning and its cache.

    Some thirty small requests, after a question whether to spend their tokens. What comes out is a
    table of findings and a contract for this upstream and model; it says how to use that.

    \b
      export LETHE_DOCTOR_KEY=sk-…
      lethe doctor --upstream https://api.example.com --model NAME --out own.toml
    """
    with told():
        _writable(out, force)
        key = key_from(os.environ, key_env)
        _announce(checked_url(upstream), model, key, key_env)
        if not yes and not allowed(sys.stdin.isatty(), _confirmed):
            raise typer.Exit(1)
        _examine(upstream, model, key, out, as_json)


def _writable(out: Path | None, force: bool) -> None:
    """Raises SettingsError where it is not: before anything is spent."""
    if out is None:
        return
    if out.exists() and not (force and out.is_file()):
        raise SettingsError(f"--out {out}: is there already; another name, or --force to overwrite")
    if not out.absolute().parent.is_dir():
        raise SettingsError(f"--out {out}: its folder does not exist")


def key_from(environ: Mapping[str, str], name: str | None) -> str:
    """The key in the variable, empty where the default one is unset. Raises SettingsError."""
    key = environ.get(name or KEY_ENV, "").strip()
    if name is not None and not key:
        raise SettingsError(
            f"--key-env: {name} is not set, or empty; export {name}=… first, or leave --key-env "
            "out where the upstream wants no key"
        )
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"{name or KEY_ENV}: a key is printable ASCII; what is in there is not")
    return key


def checked_url(upstream: str) -> str:
    """Raises SettingsError where it is no URL, or one with a password in it."""
    parts = urlsplit(upstream)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"--upstream: got {upstream!r}; wanted a URL: https://api.example.com/v1"
        )
    if parts.username or parts.password:
        raise SettingsError("--upstream: a URL with a password is not used; --key-env NAME is")
    return upstream


def allowed(interactive: bool, confirm: Callable[[str], bool]) -> bool:
    """Whether tokens may be spent. Raises SettingsError where there is nobody to ask."""
    if not interactive:
        raise SettingsError("nobody is there to be asked (no terminal): add --yes to go on")
    return confirm("Go on?")


def _confirmed(question: str) -> bool:
    return typer.confirm(question, err=True)  # stdout is for the findings


def _announce(upstream: str, model: str, key: str, key_env: str | None) -> None:
    from proxy.doctor.probes import MOST, USUAL  # only here: serving has no use for it

    sent = f"the key in {key_env or KEY_ENV}" if key else f"no key ({KEY_ENV} is not set)"
    rows = (
        f"lethe doctor asks {upstream} about {model}, with {sent}.",
        f"  usually {_told(USUAL)}",
        f"  at most {_told(MOST)}",
    )
    print("\n".join(rows), file=sys.stderr, flush=True)


def _told(it: Estimate) -> str:
    return (
        f"{it.requests} requests, about {it.prompt:,} prompt and {it.generated:,} generated tokens"
    )


def _examine(upstream: str, model: str, key: str, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from proxy import providers
    from proxy.doctor import told as telling
    from proxy.doctor.contract_text import Examined, known_before
    from proxy.doctor.findings import conclude

    table, names = providers.load(), list[str]()
    record = _asked(upstream, model, key, names.append)
    found = conclude(record, bool(key))
    examined = Examined(upstream, model, _today().isoformat())
    known = known_before(table, examined, record.listed.owned_by)
    report = telling.Report(found, examined, known, len(names), out)
    if as_json:
        print(json.dumps(telling.as_json(report), indent=2))
    else:
        telling.show(Console(), report)
    if report.contract is None:
        raise typer.Exit(1)
    if out is not None:
        _write(out, report.toml)
    print("\n".join(telling.what_next(report)), file=sys.stderr)


def _write(out: Path, toml: str) -> None:
    """Raises ProxyError, with the contract, which was paid for, on stdout."""
    try:
        out.write_text(toml, "utf-8")
    except OSError as error:
        print(toml, end="")
        raise ProxyError(f"--out {out}: cannot be written: {error.strerror}") from error
    print(f"written: {out}", file=sys.stderr)


def _today() -> date:
    return datetime.now(UTC).date()  # noqa: TID251  (a command line has no clock but this)


def _asked(upstream: str, model: str, key: str, count: Callable[[str], None]) -> Record:
    """All answers. Ctrl-C ends it with what to say and the shell's own exit code."""
    from proxy.doctor.probes import MOST

    with _progress(MOST.requests) as tick:

        def question(name: str) -> None:
            count(name)
            tick(name)

        try:
            return asyncio.run(_visited(upstream, model, key, question))
        except KeyboardInterrupt:
            print("lethe doctor: stopped; nothing was written", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


async def _visited(upstream: str, model: str, key: str, tick: Callable[[str], None]) -> Record:
    import httpx

    from proxy.conflicts import is_loopback
    from proxy.doctor.door import Door
    from proxy.doctor.probes import examine

    own = is_loopback(urlsplit(upstream).hostname or "")
    async with httpx.AsyncClient(timeout=None, trust_env=not own) as client:
        door = Door(client, upstream, key, asyncio.sleep)
        return await examine(door, model, secrets.token_hex(4), tick)


@contextmanager
def _progress(requests: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while questions are asked; gone when they are answered."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=requests)
        yield lambda name: progress.update(bar, advance=1, description=name)
