"""The price sheets that `--prices` names: built in, from the price list, or from a file.

`sonnet-5.5`, `fable-5.1` and `deepseek-v3.2` are built in; `provider/model` is looked up in
genai-prices, as of today or of `@2026-11-30`, and so is a model alone where all providers that have
it charge the same; a TOML file has `[[price]]` tables as the configuration has them, and each is a
sheet. It is called by its model, or by its file where it is for every model or another sheet is
called like it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path

from proxy import pricefile, prices
from proxy.commands.given import SHEETS
from proxy.core.pricing import MILLION
from proxy.core.tariff import Rate, Rates, Tariff
from proxy.errors import SettingsError
from proxy.pricefile import PriceRow
from proxy.reading import known_are
from proxy.replay.plan import Priced

DEFAULT = ("sonnet-5.5", "deepseek-v3.2")
_BUILT_IN = {
    **{
        name: Rates(
            Rate(it.input * MILLION), Rate(it.output * MILLION), Rate(it.cache_read * MILLION),
            Rate(it.cache_write * MILLION),
        )
        for name, it in SHEETS.items()
    },
    # api-docs.deepseek.com, "Models & Pricing", as of December 2025: deepseek-chat and
    # deepseek-reasoner alike; writing to the cache is not charged for.
    "deepseek-v3.2": Rates(Rate(Decimal("0.28")), Rate(Decimal("0.42")), Rate(Decimal("0.028"))),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Found:
    """`full` is what it is called where another is called `short`."""

    short: str
    full: str
    rates: Rates


def priced(names: Sequence[str], today: date) -> tuple[Priced, ...]:
    """The sheets of all names, in order. Raises SettingsError."""
    found = [sheet for name in names for sheet in _found(name, today)]
    times = Counter(it.short for it in found)
    called = [Priced(it.short if times[it.short] == 1 else it.full, it.rates) for it in found]
    for name, count in Counter(sheet.name for sheet in called).items():
        if count > 1:
            raise SettingsError(
                f"--prices: the same name came twice: {name!r}. Give each sheet once; where it is "
                "in two files, rename one of them"
            )
    return tuple(called)


def _found(name: str, today: date) -> Iterator[_Found]:
    file = Path(name)
    if name in _BUILT_IN:
        yield _Found(name, name, _BUILT_IN[name])
    elif name.endswith(".toml") or file.is_file():
        yield from map(partial(_of_file, file.stem), _rows(file))
    else:
        yield _Found(name, name, _listed(name, today))


def _rows(file: Path) -> Sequence[PriceRow]:
    rows, complaints = pricefile.read(file)
    if complaints or not rows:
        raise SettingsError("--prices: " + ("\n".join(complaints) or f"{file} has no [[price]]"))
    return rows


def _of_file(stem: str, row: PriceRow) -> _Found:
    where = "" if row.upstream == "*" else f" at {row.upstream}"
    short = stem if row.model == "*" else row.model
    return _Found(short, f"{stem}: {row.model}{where}", prices.rates_of(row))


# The price list


def _listed(name: str, today: date) -> Rates:
    """At the provider before the slash, else at all of them."""
    called, _, day = name.partition("@")
    at = _moment(name, day) if day else datetime.combine(today, time(12), UTC).timestamp()
    try:
        from proxy import pricelist  # only here: its data is large
    except ImportError:
        raise SettingsError(
            f"--prices {name}: the price list needs genai-prices: pip install genai-prices"
        ) from None
    providers = pricelist.names()
    provider, _, model = called.partition("/")
    if model and provider in providers:
        found = prices.listed(model, [provider], None, pricelist.answer)
    else:
        found = prices.listed(called, providers, None, pricelist.answer)
    if not found:
        raise SettingsError(_unknown(name, provider, model, providers))
    return _agreed(name, called, found, at)


def _agreed(name: str, called: str, found: Sequence[Tariff], at: float) -> Rates:
    rates = [one.row(at).rates for one in found]
    if any(it != rates[0] for it in rates):
        having = [one.provider for one in found]
        raise SettingsError(
            f"--prices {name}: it does not cost the same at {', '.join(having)}; say where, as in "
            f"--prices {having[0]}/{name} (lethe price --model {called} shows all of them)"
        )
    return rates[0]


def _unknown(name: str, provider: str, model: str, providers: Mapping[str, str]) -> str:
    if not model:
        return (
            f"--prices: got {name[:60]!r}; wanted one of {', '.join(_BUILT_IN)}, a model of the "
            "price list as PROVIDER/NAME (lethe price --model NAME looks for one), or a TOML file "
            "with [[price]] tables"
        )
    if provider in providers:
        return (
            f"--prices {name}: {provider} has no price for {model[:60]!r} (lethe price --provider "
            f"{provider} --model NAME looks for names that are close)"
        )
    return f"--prices {name}: provider {provider!r} is unknown; {known_are(provider, providers)}"


def _moment(name: str, day: str) -> float:
    try:
        return datetime.combine(date.fromisoformat(day), time(12), UTC).timestamp()
    except ValueError:
        raise SettingsError(f"--prices {name}: got {day!r}; wanted a day: 2026-11-30") from None
