"""Reads the prices that the configuration gives: a file of `[[price]]` tables, which go before the
price list.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from proxy.reading import Kind, Reading, Spot, text, wanted


def _price(value: Any) -> Decimal:
    if isinstance(value, Decimal) and value.is_finite() and 0 <= value <= _HIGHEST:
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and exponent >= -_DIGITS:
            return value
    if type(value) is int and 0 <= value <= _HIGHEST:
        return Decimal(value)
    small = isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 15
    shown = float(value) if small else str(value)[:40] if isinstance(value, Decimal) else value
    raise wanted(shown, "dollars a million tokens, 0 to 1,000,000, with at most 12 decimals")


_HIGHEST = 1_000_000
_DIGITS = 12


Price = Annotated[Decimal, Kind(_price)]
Pattern = Annotated[str, text("a pattern (`*`, `?`, `[…]`)", r".+")]
Word = Annotated[str, text("a text", r".{0,200}")]
Day = Annotated[str, text("a day as in 2026-11-30", r"(\d{4}-\d{2}-\d{2})?")]


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What a model costs, in dollars a million tokens. The first row that fits counts."""

    model: Pattern
    """Model name pattern (`*`, `?`, `[…]`)."""

    input: Price
    """Input that is neither read from a cache nor written to one."""

    output: Price
    """Output, reasoning included."""

    upstream: Pattern = "*"
    """Pattern of the names of the upstreams where it costs that."""

    cache_read: Price | None = None
    """Input read from a cache; as `input` where it is not given."""

    cache_write: Price | None = None
    """Input written to a cache, for 5 minutes or as long as the provider keeps it; as `input` where
    it is not given."""

    cache_write_1h: Price | None = None
    """Input written to a cache for an hour; as `cache_write` where it is not given."""

    source: Word = ""
    """Where the price is from, for `lethe price` to tell."""

    date: Day = ""
    """The day on which it held."""


@dataclass(frozen=True, slots=True)
class PriceFile:
    """The file's tables."""

    prices: tuple[PriceRow, ...] = ()


def read(file: Path | None) -> tuple[tuple[PriceRow, ...], list[str]]:
    """The rows in order, and every complaint at once."""
    if file is None:
        return (), []
    reading = Reading({}, {}, file)
    try:
        # Digit for digit as they are written: no price goes through a binary fraction.
        raw = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return (), [f"{file}: cannot be read: {reason}"]
    except (ValueError, RecursionError) as error:
        return (), [f"{file}: is not TOML: {error}"]
    return reading.table(PriceFile, raw, Spot()).prices, reading.complaints
