"""Makes an extract of genai-prices: what models cost at the providers that are asked for. The only
room that knows that package.

Its data takes 5 MB of memory and a tenth of a second in which nothing else runs: no worker that
serves should pay for that. So this is a program: a worker runs it once, off the path, and keeps
what comes out of it, some kilobytes a provider.

    stdin   {"bases": {"default": "https://api.example.com/v1"}, "named": {"other": "openai"}}:
            upstreams by name, known by their base URL or by a provider's id
    stdout  an extract (proxy.core.tariff.Extract), as JSON

A model that is billed by what no usage report tells (a fee a request, reasoning or citations apart
from output) stands there without prices: too little is not a price.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import genai_prices
from genai_prices import types
from genai_prices.data import providers as _PROVIDERS

_RATES = {
    "input_mtok": "input",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_mtok": "output",
}
_UNTOLD = frozenset({"requests_kcount", "output_reasoning_mtok", "output_citation_mtok"})
_NAMED = {
    types.ClauseStartsWith: "starts_with",
    types.ClauseEndsWith: "ends_with",
    types.ClauseContains: "contains",
    types.ClauseRegex: "regex",
    types.ClauseEquals: "equals",
}


def names() -> dict[str, str]:
    """All providers: how people call each, by its id."""
    return {provider.id: provider.name for provider in _PROVIDERS}


def provider_at(base: str) -> str | None:
    """The id of the provider whose API has this base URL; None for what is nobody's."""
    return next((p.id for p in _PROVIDERS if re.match(p.api_pattern, base)), None)


def extract(bases: Mapping[str, str], named: Mapping[str, str], today: date) -> dict[str, Any]:
    """What is known of some upstreams, by their names: of a base URL, or of a provider's id."""
    found = {name: provider_at(base) for name, base in bases.items()} | dict(named)
    by_id = {provider.id: provider for provider in _PROVIDERS}
    used = {id for id in found.values() if id in by_id}
    return {
        "version": genai_prices.__version__,
        "newest": _newest(today),
        "upstreams": {name: id for name, id in found.items() if id in used},
        "providers": {id: list(_models(by_id[id], by_id)) for id in sorted(used)},
    }


def _models(
    provider: types.Provider, by_id: Mapping[str, types.Provider]
) -> Iterable[dict[str, Any]]:
    """Its own models, then those of the providers whose models it offers."""
    others = [by_id[id] for id in provider.fallback_model_providers or () if id in by_id]
    for each in (provider, *others):
        yield from map(_model, each.models)


def _model(model: types.ModelInfo) -> dict[str, Any]:
    told = [_row(row) for row in _rows(model)]
    return {
        "id": model.id,
        "match": _clause(model.match),
        "prices": told if None not in told else [],
    }


def _rows(model: types.ModelInfo) -> list[types.ConditionalPrice]:
    prices = model.prices
    if isinstance(prices, types.ModelPrice):
        return [types.ConditionalPrice(prices=prices)]
    return prices


def _row(row: types.ConditionalPrice) -> dict[str, Any] | None:
    """One row of prices; None where usage does not tell what is billed."""
    given = {key: value for key, value in vars(row.prices).items() if value is not None}
    if not {"input_mtok", "output_mtok"} <= given.keys() or _UNTOLD & given.keys():
        return None
    rates = {name: _rate(given[key]) for key, name in _RATES.items() if key in given}
    return {"rates": rates, **_condition(row.constraint)}


def _rate(value: Any) -> dict[str, Any]:
    if isinstance(value, Decimal):
        return {"base": str(value)}
    return {"base": str(value.base), "above": [[t.start, str(t.price)] for t in value.tiers]}


def _condition(constraint: Any) -> dict[str, Any]:
    if isinstance(constraint, types.StartDateConstraint):
        start = datetime.combine(constraint.start_date, time(), UTC)
        return {"since": start.timestamp()}
    if isinstance(constraint, types.TimeOfDateConstraint):
        return {"between": [_seconds(constraint.start_time), _seconds(constraint.end_time)]}
    return {}


def _seconds(at: time) -> int:
    """Seconds since midnight, UTC; a time that names no zone is in it."""
    if at.tzinfo is not None:
        at = datetime.combine(date(1970, 1, 2), at).astimezone(UTC).time()
    return at.hour * 3600 + at.minute * 60 + at.second


def _clause(clause: Any) -> dict[str, Any]:
    if isinstance(clause, types.ClauseOr):
        return {"kind": "or", "parts": list(map(_clause, clause.or_))}
    if isinstance(clause, types.ClauseAnd):
        return {"kind": "and", "parts": list(map(_clause, clause.and_))}
    kind = _NAMED[type(clause)]
    return {"kind": kind, "text": getattr(clause, kind)}


def _newest(today: date) -> str:
    """The latest day from which a price holds that has come: the data is no older than that."""
    days = [
        row.constraint.start_date
        for provider in _PROVIDERS
        for model in provider.models
        for row in _rows(model)
        if isinstance(row.constraint, types.StartDateConstraint)
    ]
    return max((day for day in days if day <= today), default=date.min).isoformat()


def answer(question: bytes) -> bytes:
    """The extract that is asked for, both as JSON. Raises ValueError for what is no question."""
    asked = json.loads(question)
    today = datetime.now(UTC).date()  # noqa: TID251  (a program of its own: nobody hands it a clock)
    return json.dumps(extract(asked["bases"], asked["named"], today)).encode()


def main() -> None:
    sys.stdout.buffer.write(answer(sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
