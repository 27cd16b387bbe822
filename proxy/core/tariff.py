"""What a model costs at a provider: which row of a price list is it, and what it says now, for a
prompt of this length.

A list is an extract of genai-prices; its rules are followed to the letter, and a test holds them
equal to that package's own. A model's row is the first one whose clause matches its name in lower
case (a compact date such as `-20261130` is read as `-2026-11-30` where nothing else fits). Of its
prices the last one that holds at that moment counts, else the first. A price with tiers is a cliff:
above a length of input, the tier's price holds for every token.

Prices are dollars a million tokens here, and dollars a token in the `Sheet` that comes out. Where
nothing is said of a kind of input, it is billed as input; what is written to a cache for an hour
as what is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum

import msgspec

from proxy.core import pricing
from proxy.core.pricing import Sheet

_DAY = 86_400


class Unpriced(Enum):
    """Why an exchange has no price."""

    PENDING = "pending"
    """The price list is not read yet."""
    NO_LIST = "no_list"
    """It could not be read."""
    PROVIDER = "unknown_provider"
    """It knows no provider at the upstream's host."""
    MODEL = "unknown_model"
    """It has no price for the model there."""
    USAGE = "unreported"
    """The provider did not report what it takes to tell."""


class Rate(msgspec.Struct, frozen=True, gc=False):
    """Dollars a million tokens. `above` has the tiers: from more than so many input tokens on."""

    base: Decimal
    above: tuple[tuple[int, Decimal], ...] = ()

    def at(self, tokens: int) -> Decimal:
        """The price where the input has so many tokens."""
        tiers = (price for start, price in reversed(self.above) if tokens > start)
        return next(tiers, self.base)


class Rates(msgspec.Struct, frozen=True):
    """A model's prices by kind; None is a kind of which nothing is said."""

    input: Rate
    output: Rate
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None

    def sheet(self, tokens: int) -> Sheet:
        """What holds where the input has so many tokens."""
        read, write, hour = (
            None if rate is None else rate.at(tokens)
            for rate in (self.cache_read, self.cache_write, self.cache_write_1h)
        )
        return pricing.sheet(self.input.at(tokens), read, write, self.output.at(tokens), hour)


class Row(msgspec.Struct, frozen=True):
    """Prices and when they hold: `since` seconds since the epoch, `between` two times of the day in
    seconds since midnight, UTC.
    """

    rates: Rates
    since: float | None = None
    between: tuple[int, int] | None = None

    def holds(self, at: float) -> bool:
        if self.since is not None and at < self.since:
            return False
        if self.between is None:
            return True
        start, end = self.between
        now = at % _DAY
        return start <= now < end if start <= end else now >= start or now < end


class Tariff(msgspec.Struct, frozen=True):
    """All prices of one model at one provider. `source` says where they are from, `date` of when
    (empty where that is not told).
    """

    model: str
    provider: str
    rows: tuple[Row, ...]
    source: str
    date: str = ""

    def row(self, at: float) -> Row:
        """What holds at that moment, in seconds since the epoch."""
        return next((row for row in reversed(self.rows) if row.holds(at)), self.rows[0])

    def sheet(self, tokens: int, at: float) -> Sheet:
        """The prices of an exchange with so many input tokens."""
        return self.row(at).rates.sheet(tokens)


class Clause(msgspec.Struct, frozen=True):
    """How a model's name is known: a test of its text, or several of them."""

    kind: str
    text: str = ""
    parts: tuple[Clause, ...] = ()

    def matches(self, name: str) -> bool:
        """`name` is in lower case."""
        match self.kind:
            case "starts_with":
                return name.startswith(self.text.lower())
            case "ends_with":
                return name.endswith(self.text.lower())
            case "contains":
                return self.text.lower() in name
            case "equals":
                return name == self.text.lower()
            case "regex":
                return re.search(self.text, name) is not None
            case "or":
                return any(part.matches(name) for part in self.parts)
            case "and":
                return all(part.matches(name) for part in self.parts)
            case _:
                return False


class Model(msgspec.Struct, frozen=True):
    """One model of a list. Without `prices` it is known and its price is not."""

    id: str
    match: Clause
    prices: tuple[Row, ...]


class Extract(msgspec.Struct, frozen=True):
    """What a price list says of some upstreams. `upstreams` has the provider of each by its name,
    `providers` their models in order. `newest` is the latest day that a price names: the list is no
    older.
    """

    version: str
    newest: str
    upstreams: Mapping[str, str]
    providers: Mapping[str, tuple[Model, ...]]

    def find(self, upstream: str, model: str) -> Tariff | Unpriced:
        """What a model costs at an upstream, or why that is not known."""
        provider = self.upstreams.get(upstream)
        if provider is None:
            return Unpriced.PROVIDER
        found = find(self.providers[provider], model)
        if found is None or not found.prices:
            return Unpriced.MODEL
        source = f"genai-prices {self.version}"
        return Tariff(found.id, provider, found.prices, source, self.newest)


def read_extract(raw: bytes) -> Extract:
    """Raises ValueError for what is none."""
    return _decoder.decode(raw)


_decoder = msgspec.json.Decoder(Extract)


def find(models: Sequence[Model], name: str) -> Model | None:
    """The first model that the name is one of."""
    name = name.lower()
    found = _first(models, name)
    dashed = _COMPACT.sub(r"\1\2-\3-\4", name)
    return _first(models, dashed) if found is None and dashed != name else found


_COMPACT = re.compile(r"(-)(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


def _first(models: Sequence[Model], name: str) -> Model | None:
    return next((model for model in models if model.match.matches(name)), None)
