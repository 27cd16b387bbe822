"""What several commands read from their options: numbers, cache rules, architectures.

Options are texts that are checked here, so that a complaint says what came and what is wanted. All
raise SettingsError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from proxy.core import cachemodel, open_models, operations, pricing
from proxy.core.architecture import Architecture
from proxy.core.architecture import parse as parse_architecture
from proxy.core.contract import CacheRule
from proxy.core.operations import Price
from proxy.core.pricing import Sheet
from proxy.errors import SettingsError

T = TypeVar("T")

SHEETS: dict[str, Sheet] = {
    name: pricing.sheet(*map(Decimal, prices))
    for name, prices in {
        "sonnet-5.5": ("2", "0.10", "2.50", "10"),
        "fable-5.1": ("10", "0.25", "12.50", "50"),
    }.items()
}
"""Price sheets by name, $ a million tokens: input, read, write, output. Those for which figures of
an agent of forty steps have been published.
"""

SIMULATED_CACHE = "prompt"
"""What paid APIs hold, and what the published bills of `SHEETS` rest on."""

HORIZON_CACHE = "prompt+generated"
"""What most engines hold; under prompts alone forgetting pays at once, and there is no horizon."""

DEFAULT_MODEL = "Qwen3-8B"
"""Whose operations are counted where no model is named."""


def checked(option: str, read: Callable[[str], T], text: str) -> T:
    """What `read` makes of the text; its complaint bears the option's name."""
    try:
        return read(text)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}") from error


_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(%?)")


def number(option: str, text: str, least: int = 0, most: int | None = None) -> Decimal:
    """A decimal number, written as such or as a percentage (`40%`)."""
    found = _NUMBER.fullmatch(text.strip())
    value = Decimal(found[1]) / (100 if found[2] else 1) if found else Decimal(-1)
    if value < least or (most is not None and value > most):
        wanted = f"from {least} to {most}" if most is not None else f"of {least} or more"
        raise SettingsError(f"{option}: got {text[:40]!r}; wanted a number {wanted}")
    return value


def cache(text: str) -> CacheRule:
    return checked("--cache", cachemodel.parse, text)


def architecture(name: str) -> Architecture:
    """A known open model, or one as it is described."""
    read = parse_architecture if "=" in name else open_models.find
    return checked("--architecture", read, name)


def price(name: str, rate: str | None) -> Price:
    """Of an architecture, or from the exchange rate where that is given."""
    return architecture(name).price if rate is None else at_rate(rate)


def at_rate(rate: str) -> Price:
    return operations.at_rate(Fraction(number("--exchange-rate", rate)))
