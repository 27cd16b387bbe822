"""`lethe price`: what a model costs, where that is from, and how old it is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy import prices
from proxy.commands import options
from proxy.commands.telling import told
from proxy.core import pricing
from proxy.core.pricing import Sheet
from proxy.core.tariff import Row, Tariff
from proxy.errors import SettingsError
from proxy.loading import load
from proxy.page.plain import numbered
from proxy.reading import known_are

if TYPE_CHECKING:
    from rich.table import Table

_MODEL = typer.Option(metavar="NAME", help="The model, as a client asks for it.")
_PROVIDER = typer.Option(
    metavar="ID", help="At this provider only; names that are close are told where it has none."
)
_PROVIDERS = typer.Option("--providers", help="List the providers that the price list knows.")
_KINDS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
_DAY = 86_400


def price(
    model: Annotated[str, _MODEL] = "",
    provider: Annotated[str | None, _PROVIDER] = None,
    providers: Annotated[bool, _PROVIDERS] = False,
    config: Annotated[Path | None, options.CONFIG] = None,
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """What a model costs, where that is from and how old it is.

    Your own prices first (those in the file that `prices` names in the configuration), then those
    of the price list, at each provider that has the model.

    \b
      lethe price --model gpt-5
    """
    from proxy import pricelist  # only here: its data is large

    with told():
        names = pricelist.names()
        if providers:
            _print_providers(names, as_json)
            return
        found = _found(model, provider, names, config, pricelist.answer)
        _print(found, time.time(), as_json)  # noqa: TID251  (a command: here the clock is read)


def _found(
    model: str, provider: str | None, names: dict[str, str], config: Path | None,
    answer: prices.Answer,
) -> tuple[Tariff, ...]:  # fmt: skip
    """Raises SettingsError for what cannot be looked up, and where nothing is known."""
    if not model:
        raise SettingsError("no model: give --model NAME, or --providers for all that are known")
    if provider is not None and provider not in names:
        raise SettingsError(f"no provider is {provider}; {known_are(provider, names)}")
    settings = load({}, os.environ, config, serving=False)
    file = Path(settings.prices) if settings.prices else None
    found = prices.listed(model, [provider] if provider else names, file, answer)
    if not found:
        raise SettingsError(_unknown(model, provider, answer))
    return found


def _unknown(model: str, provider: str | None, answer: prices.Answer) -> str:
    where = f" at {provider}" if provider else " at any provider"
    ids: list[str] = []
    if provider:
        question = json.dumps({"bases": {}, "named": {provider: provider}}).encode()
        listed = json.loads(answer(question))["providers"].get(provider, [])
        ids = [row["id"] for row in listed]
    close = get_close_matches(model, ids, 5, 0.5)
    meant = f"; close to it: {', '.join(close)}" if close else ""
    return (
        f"no price for {model[:100]!r}{where}{meant}. Its exchanges count as unpriced; a [[price]] "
        "table in the file that `prices` names gives it one"
    )


# What is told


def _print_providers(names: dict[str, str], as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    if as_json:
        print(json.dumps(names, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("provider")
    for id, name in sorted(names.items()):
        table.add_row(id, name)
    Console().print(table, markup=False)


def _print(found: Sequence[Tariff], now: float, as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        print(json.dumps([_as_json(one, now) for one in found], indent=2))
        return
    console = Console()
    console.print(_table(found, now), markup=False)
    ages = {f" {one.source} is not older than {one.date}" for one in found if one.provider}
    age = "".join(f"{told} ({_age(told[-10:], now)})." for told in sorted(ages))
    console.print(f"Dollars a million tokens. Output includes reasoning.{age}", markup=False)


def _table(found: Sequence[Tariff], now: float) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("provider/model", overflow="fold")
    for name in ("input", "cache read", "write 5 m", "write 1 h", "output"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        for row in _rows(one, now):
            table.add_row(*row)
    return table


def _rows(one: Tariff, now: float) -> Iterator[tuple[str, ...]]:
    """One for a model whose price is always the same; else its name, and one for each case."""
    name = f"{one.provider}/{one.model}" if one.provider else f"yours: {one.model}"
    lines = [(when, map(_plain, _amounts(it).values())) for when, it in _lines(one, now)]
    if len(lines) == 1 and lines[0][0] == "now":
        yield name, *lines[0][1]
    else:
        yield (name,)
        yield from ((f"  {when}", *costs) for when, costs in lines)
    if origin := _origin(one, now):
        yield (f"  {origin}",)


def _lines(one: Tariff, now: float) -> Iterator[tuple[str, Sheet]]:
    """What holds now by the length of the input, and what else holds at some hour of the day."""
    holds, rows = one.row(now), _of_today(one, now)
    for row in sorted(rows, key=lambda row: row is not holds):
        for start in _starts(row):
            yield _when(row, start, row is holds), row.rates.sheet(start + 1)


def _of_today(one: Tariff, now: float) -> tuple[Row, ...]:
    """The row that holds all day, and those behind it that hold for some hours."""
    all_day = (at for at, row in enumerate(one.rows) if row.between is None and row.holds(now))
    first = max(all_day, default=0)
    return (one.rows[first], *(row for row in one.rows[first + 1 :] if row.between))


def _starts(row: Row) -> list[int]:
    """The lengths of input from which on a price differs."""
    rates = row.rates
    kinds = (rates.input, rates.output, rates.cache_read, rates.cache_write, rates.cache_write_1h)
    return sorted({0, *(start for kind in kinds if kind for start, _ in kind.above)})


def _when(row: Row, start: int, holds: bool) -> str:
    words = ["now"] if holds else []
    if row.between:
        first, last = (f"{s // 3600:02d}:{s % 3600 // 60:02d}" for s in row.between)
        words.append(f"{first} to {last} UTC")
    elif not holds:
        words.append("else")
    if start:
        words.append(f"input above {start:,}")
    return ", ".join(words)


def _amounts(sheet: Sheet) -> dict[str, Any]:
    """Dollars a million tokens, by kind."""
    each = (sheet.input, sheet.cache_read, sheet.cache_write, sheet.hour, sheet.output)
    return {kind: amount * pricing.MILLION for kind, amount in zip(_KINDS, each, strict=True)}


def _plain(amount: Any) -> str:
    """All digits, and no more zeros than cents have."""
    text = f"{amount.normalize():f}"
    whole, _, rest = text.partition(".")
    return f"{whole}.{rest:0<2}"


def _origin(one: Tariff, now: float) -> str:
    """What is not told of the whole list."""
    since = one.row(now).since
    if not one.provider:
        age = f", {one.date} ({_age(one.date, now)})" if one.date else ""
        return f"from {one.source}{age}"
    return f"since {_day(since)}" if since else ""


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _age(date: str, now: float) -> str:
    days = int((now - datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()) // _DAY)
    return numbered(days, "day")


def _as_json(one: Tariff, now: float) -> dict[str, Any]:
    """Money as strings, with all digits."""
    since = one.row(now).since
    return {
        "provider": one.provider or None,
        "model": one.model,
        "source": one.source,
        ("not_older_than" if one.provider else "date"): one.date or None,
        "since": _day(since) if since else None,
        "prices": [
            {"when": when, **{k: f"{v.normalize():f}" for k, v in _amounts(sheet).items()}}
            for when, sheet in _lines(one, now)
        ],
    }
