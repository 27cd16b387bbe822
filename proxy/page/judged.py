"""What policies weighed and what others would have done, out of the accounts of a conversation: the
numbers behind verdicts of `horizon`, and the shadows of `observe`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Any

from proxy.page import plain

Account = Mapping[str, Any]
Found = dict[str, Any]

_LACKING = {
    "cache_rule": "no cache rule is known: name a contract (lethe contracts)",
    "price": "no price is known (lethe price)",
}


def weighed(accounts: Sequence[Account], first: int) -> list[Found]:
    """The steps that were weighed, oldest first; `first` is the number of the first turn."""
    return [
        {"turn": turn, **row}
        for turn, account in enumerate(accounts, first)
        for row in _in(account)
    ]


def _in(account: Account) -> Iterator[Account]:
    rows = account.get("horizon")
    yield from (row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def words(row: Account) -> str:
    """`kept: 7 positions of action, horizon 504, 320 expected`; sizes that nobody counted are
    marked.
    """
    verdict = {"drop": "dropped", "keep": "kept"}.get(str(row.get("verdict")), "settled")
    if row.get("lacks"):
        return f"{verdict}: {_LACKING.get(str(row['lacks']), plain.line(str(row['lacks'])))}"
    positions = row.get("unit") == "positions"
    mark = "" if row.get("counted") else "~"
    action = mark + plain.numbered(row.get("action"), "position" if positions else "token")
    unit = "" if positions else "request"
    return f"{verdict}: {action} of action, {_horizon(row, unit)}, {_expected(row)}"


def _horizon(row: Account, unit: str) -> str:
    horizon = row.get("horizon")
    if horizon is None:
        return "which never pays"
    if horizon == 0:
        return "horizon 0: pays at once"
    return f"horizon {_amount(horizon)}" + (f" {plain.noun(horizon, unit)}" if unit else "")


def _expected(row: Account) -> str:
    expected, source = row.get("expected"), row.get("from")
    if expected is None:
        return "what is to come not known"
    samples = row.get("samples") or 0
    past = plain.numbered(samples, "past conversation")
    return f"{_amount(expected)} expected" + (f" (by {past})" if source == "learned" else "")


def _amount(number: float) -> str:
    """A whole number, but for small ones with a fraction."""
    return f"{number:.1f}" if number < 100 and number != round(number) else plain.count(number)


# Shadows


def shadows(accounts: Sequence[Account]) -> list[Found]:
    """What each shadow policy would have come to, over the turns that tell of it, beside what was
    sent and paid on the same turns. None is what nobody reported.
    """
    names = dict.fromkeys(name for it in accounts for name in _part(it, "shadow"))
    return [_shadow(name, accounts) for name in names]


def _part(account: Account, name: str) -> Account:
    found = account.get(name)
    return found if isinstance(found, dict) else {}


def _shadow(name: str, accounts: Sequence[Account]) -> Found:
    told = [(it, row) for it in accounts if (row := _part(_part(it, "shadow"), name))]
    sized = [(it, row) for it, row in told if row.get("input") is not None]
    priced = [(it, row) for it, row in sized if row.get("dollars") is not None]
    whole, read = (sum(row.get(kind) or 0 for _, row in sized) for kind in ("input", "cache_read"))
    return {
        "policy": name,
        "turns": len(told),
        "dropped": told[-1][1].get("dropped") if told else None,
        "estimated": any(row.get("estimated") for _, row in told),
        "input": whole if sized else None,
        "sent": sum(_part(it, "tokens").get("input") or 0 for it, _ in sized) if sized else None,
        "cache_read": read if sized else None,
        "hit_ratio": read / whole if whole else None,
        "dollars": fsum(row["dollars"] for _, row in priced) if priced else None,
        "paid": fsum(_part(it, "dollars").get("cost") or 0.0 for it, _ in priced)
        if priced
        else None,
    }
