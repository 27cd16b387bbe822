"""Runs `lethe replay`: reads what is asked, has it worked on, tells what came of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from proxy.commands import given, sheets
from proxy.core.operations import Price
from proxy.errors import ProxyError, SettingsError
from proxy.replay import parquet, plots, plots_replay, replay_report, sweep, work
from proxy.replay.arms import Arms
from proxy.replay.comparison import changes
from proxy.replay.plan import KEEP, Plan, replayable
from proxy.replay.replay_report import Report
from proxy.replay.replaying import learned
from proxy.replay.sources import Sources, files_in, sources
from proxy.replay.statistics import RESAMPLES
from proxy.replay.totals import Totals
from proxy.settings import Settings

POLICIES = ("keep", "drop", "after_artifact", "keep_latest:1")
CACHES = ("prompt+generated", "prompt", "none")


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command, as they were typed; empty and None are the defaults."""

    paths: Sequence[Path]
    policies: Sequence[str]
    prices: Sequence[str]
    caches: Sequence[str]
    decode_premium: str
    architecture: str
    exchange_rate: str | None
    sweeps: Sequence[str]
    label: str
    arms: Sequence[str]
    out: Path | None
    plot: Path | None
    jobs: int | None
    resume: bool
    seed: int
    as_json: bool
    as_markdown: bool


_TAKEN = (
    "what can be read: `lethe show ID --messages --json`, mini-swe-agent's .traj.json, OpenAI "
    "message lists, JSON Lines of requests with response and usage"
)


class Unreplayable(ProxyError):
    """None of the files holds a session; the message says why and what would be one."""

    code = "unreplayable"


def run(asked: Asked) -> None:
    """Raises SettingsError for what cannot be used, Interrupted where a process ended."""
    axes = _axes(asked)
    price = given.price(asked.architecture, asked.exchange_rate)
    premium = Fraction(given.number("--decode-premium", asked.decode_premium, least=1))
    plan = _plan(asked, axes)
    if asked.out:
        parquet.usable(asked.out)
    files = files_in(asked.paths)
    found = sources(files)
    plan = learned(plan, found.chunks)
    totals, gathered = _worked(plan, found, work.digest_of(plan, files), asked)
    if not totals.sessions:
        raise Unreplayable(
            "\n".join(["no session was read", *replay_report.skipped(totals), _TAKEN])
        )
    it = _report(totals, gathered, axes, price, premium, asked.seed)
    for path in _drawn(asked.plot, it) if asked.plot else ():
        Console(stderr=True).print(f"drawn: {path}", markup=False, highlight=False)
    _tell(it, asked)


def _plan(asked: Asked, axes: Sequence[str]) -> Plan:
    named = [given.checked("--policy", replayable, name) for name in asked.policies or POLICIES]
    rules = tuple(dict.fromkeys(given.cache(text) for text in asked.caches or CACHES))
    try:
        re.compile(asked.label)
    except re.error as error:
        raise SettingsError(f"--label: no regular expression: {error}") from error
    return Plan(
        tuple(dict.fromkeys((KEEP, *map(str, named)))),
        sweep.with_blocks(rules) if "block" in axes else rules,
        sheets.priced(asked.prices or sheets.DEFAULT, _today()),
        asked.label,
        dict(map(_arm, asked.arms)),
        rendered=Settings().rendered_params,
        asked=len(rules),
    )


def _arm(text: str) -> tuple[str, str]:
    name, equals, under = text.partition("=")
    if not (name and equals):
        raise SettingsError(f"--arm: got {text[:60]!r}; wanted ARM=POLICY, as in forgetful=drop")
    return name, str(given.checked("--arm", replayable, under))


def _axes(asked: Asked) -> Sequence[str]:
    for name in asked.sweeps:
        if name not in sweep.NAMES:
            known = ", ".join(sweep.NAMES)
            raise SettingsError(f"--sweep: got {name[:60]!r}; wanted one of {known}")
    if asked.sweeps and not (asked.plot or asked.as_json):
        raise SettingsError("--sweep: add --json to have it told, or --plot FILE to have it drawn")
    if asked.plot:
        plots.usable(asked.plot)
    return tuple(dict.fromkeys(asked.sweeps or (["exchange-rate"] if asked.plot else [])))


def _today() -> date:
    return datetime.now(UTC).date()  # noqa: TID251  (a command line has no clock but this)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _state(out: Path | None, digest: str) -> Path:
    """Where what is done is written: beside the result, else among what may be deleted."""
    if out:
        return out.with_name(f"{out.name}.progress")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lethe" / f"replay-{digest}.progress"


def _worked(plan: Plan, found: Sources, digest: str, asked: Asked) -> tuple[Totals, Arms]:
    """Replay what is missing, add up what is there."""
    totals, gathered = Totals(plan), Arms(plan)
    totals.skips.add(found.skipped, found.skipped_count)
    state = _state(asked.out, digest)
    progress = work.Progress(state, digest, asked.resume)
    try:
        with _bar(found, progress) as tick, _kept():
            work.work(plan, found.chunks, progress, asked.jobs or _cores(), tick)
        with parquet.opened(asked.out, plan) if asked.out else nullcontext() as table:
            for done in progress.results(found.chunks):
                totals.skips.add(done.skipped, done.skipped_count)
                for row in done.rows:
                    totals.add(row)
                    gathered.add(row)
                    if table:
                        table.add(row)
    finally:
        progress.close()
    state.unlink(missing_ok=True)
    return totals, gathered


@contextmanager
def _kept() -> Iterator[None]:
    """What was done is not lost when somebody stops it."""
    try:
        yield
    except KeyboardInterrupt:
        raise work.Interrupted(
            "replay was stopped; what was done is kept: the same command with --resume goes on"
        ) from None


@contextmanager
def _bar(found: Sources, progress: work.Progress) -> Iterator[work.Tick]:
    """A bar on stderr while it goes: bytes, sessions, time that is left."""
    columns = (
        TextColumn("sessions: {task.fields[sessions]:,}"), BarColumn(), DownloadColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    before = sum(c.size for at, c in enumerate(found.chunks) if at in progress)
    sessions = 0
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        total = sum(chunk.size for chunk in found.chunks)
        task = bar.add_task("", total=total, completed=before, sessions=0)

        def tick(size: int, more: int) -> None:
            nonlocal sessions
            sessions += more
            bar.update(task, advance=size, sessions=sessions)

        yield tick


def _report(
    totals: Totals, gathered: Arms, axes: Sequence[str], price: Price, premium: Fraction, seed: int
) -> Report:
    swept = [sweep.swept(name, totals, 0, price, premium) for name in axes if totals.sessions]
    return Report(
        totals, changes(totals, seed, RESAMPLES), gathered.against_keep(seed, RESAMPLES),
        gathered.missing(), swept, price,
        (Fraction(1),) if premium == 1 else (Fraction(1), premium), seed,
    )  # fmt: skip


def _drawn(plot: Path, it: Report) -> list[Path]:
    several = len(it.sweeps) > 1
    return [
        path
        for swept in it.sweeps
        for path in plots_replay.draw(
            plots_replay.beside(plot, swept.name) if several else plot, swept
        )
    ]


def _tell(it: Report, asked: Asked) -> None:
    if asked.as_json:
        print(json.dumps(replay_report.as_json(it), indent=2))
    elif asked.as_markdown:
        print(replay_report.markdown(it))
    else:
        replay_report.show(Console(), it)
