"""From rounds to a table of ratios, each laid beside its aim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan, nan
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tests.bench.bodies import SIZES, Size
from tests.bench.contenders import DIRECT, LETHE, NGINX, SHARED
from tests.bench.rounds import (
    ALONE,
    CHUNKS,
    CHUNKS_ASKED,
    PLAIN,
    STREAMED,
    Results,
    Round,
    quantile,
)

CPU_AIMS = {"2 KB": 20.0, "100 KB": 14.0, "1 MB": 6.0}
"""CPU per request as a multiple of nginx's, with the ledger in memory."""
CHUNK_AIM = 3.0
WAIT_AIMS = {"100 KB": 0.0009, "1 MB": 0.003}
"""Seconds that the added p50 may lie above nginx's, at one connection."""
MEMORY_AIM = 90_000_000
QUIET = 0.05
"""Share of the machine that others may take before the waits are not to be believed."""

_REPLIES = {PLAIN: "whole replies", STREAMED: "streams of 20 events"}
Cost = Callable[[Round], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a text by contender, the aim, and whether Lethe holds it; None: no telling."""

    group: str
    what: str
    cells: dict[str, str]
    aim: str = ""
    held: bool | None = None
    values: dict[str, float] | None = None


def rows(results: Results) -> list[Row]:
    return [
        *(_cpu(results, PLAIN, size, CPU_AIMS[size.name]) for size in SIZES),
        *(_cpu(results, STREAMED, size, None) for size in SIZES),
        _chunks(results, CHUNKS_ASKED, "usage asked by client"),
        _chunks(results, CHUNKS, "usage asked by us"),
        *_waits(results),
        *(_throughput(results, kind, size) for kind in (PLAIN, STREAMED) for size in SIZES),
        _memory(results),
        _growth(results),
    ]


def per_request(round: Round) -> float:
    return nan if round.cpu is None or not round.requests else round.cpu / round.requests


def per_chunk(round: Round) -> float:
    return nan if round.cpu is None or not round.marks else round.cpu / round.marks


def ratio(results: Results, kind: str, size: str, name: str, cost: Cost) -> float:
    """The median over the rounds of what a contender took, relative to nginx in the same round."""
    rounds = results.rounds.get((kind, size), {})
    pairs = zip(rounds.get(name, ()), rounds.get(NGINX, ()), strict=False)
    return _middle([cost(ours) / cost(theirs) for ours, theirs in pairs if cost(theirs)])


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else nan


def _typical(results: Results, kind: str, size: str, name: str, cost: Cost) -> float:
    return _middle([cost(r) for r in results.rounds.get((kind, size), {}).get(name, ())])


def _ratios(
    results: Results, kind: str, size: str, cost: Cost
) -> tuple[dict[str, str], dict[str, float]]:
    """nginx by its time; the others as a multiple of it, or by time where there is no nginx."""
    cells, values = {}, {}
    for name in (NGINX, LETHE, SHARED):
        took = _typical(results, kind, size, name, cost)
        times = ratio(results, kind, size, name, cost)
        if isnan(took):
            continue
        values[name] = times
        cells[name] = _time(took) if name == NGINX or isnan(times) else f"{times:.1f} ×"
    return cells, values


def _cpu(results: Results, kind: str, size: Size, aim: float | None) -> Row:
    cells, values = _ratios(results, kind, size.name, per_request)
    group = f"CPU per request, {_REPLIES[kind]}"
    if aim is None:
        return Row(group, size.name, cells, values=values)
    held = _at_most(values.get(LETHE, nan), aim)
    return Row(group, size.name, cells, f"≤ {aim:.0f} ×", held, values)


def _chunks(results: Results, kind: str, what: str) -> Row:
    cells, values = _ratios(results, kind, SIZES[0].name, per_chunk)
    held = _at_most(values.get(LETHE, nan), CHUNK_AIM)
    return Row("CPU per SSE chunk", what, cells, f"≤ {CHUNK_AIM:.0f} ×", held, values)


def _waits(results: Results) -> Iterator[Row]:
    for size in SIZES[1:]:
        for share in (0.5, 0.99):
            yield _added(results, size.name, share, WAIT_AIMS[size.name] if share == 0.5 else None)


def _added(results: Results, size: str, share: float, aim: float | None) -> Row:
    def wait(round: Round) -> float:
        return quantile(round.waits, share)

    rounds = results.rounds.get((ALONE, size), {})
    base = rounds.get(DIRECT, ())
    values = {
        name: _middle([wait(a) - wait(b) for a, b in zip(each, base, strict=False)])
        for name, each in rounds.items()
        if name != DIRECT
    }
    cells = {name: f"{value * 1000:+.2f} ms" for name, value in values.items()}
    cells[DIRECT] = _time(_typical(results, ALONE, size, DIRECT, wait))
    group, what = "wait at one connection, added to direct", f"{size}, p{share * 100:.0f}"
    if aim is None:
        return Row(group, what, cells, values=values)
    held = _at_most(values.get(LETHE, nan), values.get(NGINX, nan) + aim)
    return Row(group, what, cells, f"≤ nginx + {aim * 1000:g} ms", held, values)


def _throughput(results: Results, kind: str, size: Size) -> Row:
    def rate(round: Round) -> float:
        return round.requests / round.seconds

    names = results.rounds.get((kind, size.name), {})
    values = {name: _typical(results, kind, size.name, name, rate) for name in names}
    cells = {name: f"{value:,.0f}" for name, value in values.items()}
    return Row(f"requests a second, {_REPLIES[kind]}", size.name, cells, values=values)


def _memory(results: Results) -> Row:
    values = {name: float(most) for name, (_, most) in results.memory.items()}
    cells = {name: f"{most / 1e6:.0f} MB" for name, most in values.items()}
    held = _at_most(values.get(LETHE, nan), MEMORY_AIM)
    return Row("memory of a worker, at most", "1 MB bodies", cells, "≤ 90 MB", held, values)


def _growth(results: Results) -> Row:
    """The history is ten times as long: how many times the cost of a byte that is new?"""
    small, large = SIZES[1], SIZES[2]
    values = {}
    for name in (LETHE, SHARED):
        a, b = (
            (_typical(results, PLAIN, size.name, name, per_request)
             - _typical(results, PLAIN, size.name, NGINX, per_request)) / size.step
            for size in (small, large)
        )  # fmt: skip
        if not isnan(b / a):
            values[name] = b / a
    cells = {name: f"{value:.1f} ×" for name, value in values.items()}
    group = "CPU beyond nginx's for each byte that is new"
    return Row(group, "1 MB to 100 KB", cells, "linear: 1", values=values)


def _at_most(value: float, aim: float) -> bool | None:
    return None if isnan(value) or isnan(aim) else value <= aim


def _time(seconds: float) -> str:
    if isnan(seconds):
        return ""
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.0001 else f"{seconds * 1000:.2f} ms"


WIDTH = 132
"""Characters that the table takes."""
COLUMNS = (DIRECT, NGINX, LETHE, SHARED)


def table(found: Sequence[Row]) -> Table:
    """nginx by its time; the proxies by the multiple of it, where a time is what is relative."""
    made = Table(title="Side by side over loopback, Lethe under policy drop", box=SIMPLE_HEAD)
    made.add_column("", no_wrap=True)
    for name in COLUMNS:
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("aim", no_wrap=True)
    made.add_column("", no_wrap=True)
    for group, members in groupby(found, key=lambda row: row.group):
        made.add_row(f"[bold]{group}[/]")
        for row in members:
            cells = [row.cells.get(name, "") for name in COLUMNS]
            made.add_row(f"  {row.what}", *cells, row.aim, _VERDICTS[row.held])
    return made


_VERDICTS = {True: "[green]held[/]", False: "[bold red]MISSED[/]", None: ""}


def notes(results: Results, found: Sequence[Row]) -> list[str]:
    """What has to be known to believe the table, and what was missed."""
    told = [_pruned(results, size) for size in SIZES]
    if NGINX not in results.rounds.get((PLAIN, SIZES[0].name), {}):
        told.append("nginx is not installed: no ratios, no verdicts")
    told += [f"{name}: {now / 1e6:.0f} MB of memory at start" for name, now in results.idle.items()]
    if results.others > QUIET:
        told.append(
            f"not a quiet machine: others took {results.others:.0%} of it; do not trust the waits"
        )
    broken = sum(r.broken for by in results.rounds.values() for each in by.values() for r in each)
    if broken:
        told.append(f"{broken} replies told of a broken prefix: none should")
    missed = [
        f"MISSED: {row.group}, {row.what}: {row.cells[LETHE]}, aim {row.aim}"
        for row in found
        if row.held is False
    ]
    return [*told, *missed]


def _pruned(results: Results, size: Size) -> str:
    rounds = results.rounds.get((PLAIN, size.name), {}).get(LETHE, [])
    sent, forwarded = sum(r.sent for r in rounds), sum(r.forwarded for r in rounds)
    if not rounds or not sent:
        return f"{size.name}: Lethe was not measured"
    requests = sum(r.requests for r in rounds)
    return (
        f"{size.name}, {size.messages} messages: {requests} requests of "
        f"{sent / requests:,.0f} bytes on the average; {forwarded / sent:.0%} of them went on"
    )
