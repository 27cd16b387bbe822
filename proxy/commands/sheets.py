"""The price sheets that a replay is billed by: by name, from the price list, or from a file.

`sonnet-5.5`, `fable-5.1` and `deepseek-v3.2` are built in; `provider/model` is looked up in
genai-prices, as of today or of `@2026-11-30`; a TOML file has `[[price]]` tables as the
configuration has them, and each is a sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import msgspec

from proxy import pricefile
from proxy.commands.given import SHEETS
from proxy.core import tariff
from proxy.core.pricing import MILLION
from proxy.core.tariff import Rate, Rates, Unpriced
from proxy.errors import SettingsError
from proxy.pricefile import PriceRow
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


def priced(names: Sequence[str], today: date) -> tuple[Priced, ...]:
    """The sheets of all names, in order. Raises SettingsError."""
    found = [sheet for name in names for sheet in _priced(name, today)]
    if len({sheet.name for sheet in found}) < len(found):
        raise SettingsError("--prices: the same name came twice")
    return tuple(found)


def _priced(name: str, today: date) -> list[Priced]:
    if name in _BUILT_IN:
        return [Priced(name, _BUILT_IN[name])]
    if name.endswith(".toml") or Path(name).is_file():
        return _from_file(Path(name))
    provider, slash, model = name.partition("/")
    if not slash:
        raise SettingsError(
            f"--prices: got {name[:60]!r}; wanted one of {', '.join(_BUILT_IN)}, provider/model as "
            "genai-prices has them, or a TOML file with [[price]] tables"
        )
    return [Priced(name, _listed(name, provider, model, today))]


def _from_file(file: Path) -> list[Priced]:
    rows, complaints = pricefile.read(file)
    if complaints or not rows:
        raise SettingsError("--prices: " + ("\n".join(complaints) or f"{file} has no [[price]]"))
    return [Priced(row.model, _rates(row)) for row in rows]


def _rates(row: PriceRow) -> Rates:
    read, write, hour = (
        None if price is None else Rate(price)
        for price in (row.cache_read, row.cache_write, row.cache_write_1h)
    )
    return Rates(Rate(row.input), Rate(row.output), read, write, hour)


def _listed(name: str, provider: str, model: str, today: date) -> Rates:
    model, _, day = model.partition("@")
    at = _moment(name, day) if day else datetime.combine(today, time(12), UTC).timestamp()
    try:
        from proxy import pricelist
    except ImportError:
        raise SettingsError(
            f"--prices {name}: the price list needs genai-prices: pip install genai-prices"
        ) from None
    raw = msgspec.json.encode(pricelist.extract({}, {"it": provider}, today))
    found = tariff.read_extract(raw).find("it", model)
    if found is Unpriced.PROVIDER:
        known = ", ".join(pricelist.names())
        raise SettingsError(f"--prices {name}: provider {provider!r} is unknown; known: {known}")
    if isinstance(found, Unpriced):
        raise SettingsError(f"--prices {name}: {provider} has no price for {model[:60]!r}")
    return found.row(at).rates


def _moment(name: str, day: str) -> float:
    try:
        return datetime.combine(date.fromisoformat(day), time(12), UTC).timestamp()
    except ValueError:
        raise SettingsError(f"--prices {name}: got {day!r}; wanted a day: 2026-11-30") from None
