"""The one price sheet that a command counts by: prices given as options, else a sheet's name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from proxy.commands import given, sheets
from proxy.core import pricing
from proxy.core.pricing import Sheet
from proxy.errors import SettingsError

OPTIONS = ("--input", "--cache-read", "--cache-write", "--output")
GIVEN = "as given"
Texts = tuple[str | None, str | None, str | None, str | None]
"""What came for each option."""


def chosen(name: str, texts: Texts, needed: str = "--input and --output") -> tuple[str, Sheet]:
    """The prices where any is given ($ a million tokens; the middle ones are the input's where they
    are not), else those of a name, for short prompts; and what they are called. `needed` are the
    options that the command cannot do without. Raises SettingsError.
    """
    prices = [
        None if text is None else given.number(option, text)
        for option, text in zip(OPTIONS, texts, strict=True)
    ]
    match prices:
        case [None, None, None, None]:
            return _named(name)
        case [Decimal() as new, read, write, Decimal() as output]:
            return GIVEN, pricing.sheet(new, read, write, output)
    raise SettingsError(f"prices: got some of them; wanted {needed} at least")


def _named(name: str) -> tuple[str, Sheet]:
    """By the names that `lethe replay` knows, as of today. Raises SettingsError."""
    found = sheets.priced([name], _today())
    if len(found) > 1:
        names = ", ".join(sheet.name for sheet in found)
        raise SettingsError(f"--prices: {name} has several sheets ({names}); wanted one")
    return found[0].name, found[0].rates.sheet(0)


def _today() -> date:
    return datetime.now(UTC).date()  # noqa: TID251  (a command line has no clock but this)
