"""What one exchange came to, and what it would have come to under `keep`: when it is over."""

from __future__ import annotations

from decimal import Decimal

import msgspec
from msgspec.structs import replace

from proxy import shadowing
from proxy.core import pricing, saving, thought
from proxy.core.contract import Contract
from proxy.core.outcome import Money
from proxy.core.prefix import INTACT
from proxy.core.seen import Seen
from proxy.core.shadow import Shadow
from proxy.core.tariff import Tariff, Unpriced
from proxy.core.thought import Gone, Sides, Thought
from proxy.core.usage import Usage
from proxy.doors import Doors
from proxy.prune import Pruning


class Bill(msgspec.Struct, frozen=True):
    """`thought` is the reasoning that did not leave; None where no request was read. Either there
    is `money`, or `unpriced` says why not. `shadows` are what other policies would have made of it.
    """

    thought: Thought | None = None
    money: Money | None = None
    unpriced: str = ""
    shadows: tuple[Shadow, ...] = ()


NONE = Bill()
"""Of an exchange that was not answered well: it is not billed."""


def bill(
    doors: Doors,
    pruning: Pruning | None,
    seen: Seen,
    contract: Contract,
    upstream: str,
    model: str,
    now: float,
) -> Bill:
    """The bill of a chat exchange that was answered well. `upstream` is its name; `now` in seconds
    since the epoch.
    """
    doors.state.ratios.learn(upstream, model, seen)
    sides = _sides(pruning) if pruning else None
    gone = thought.gone(sides, doors.state.ratios.of(upstream, model)) if sides else None
    total = gone.total if gone else None
    tariff = doors.prices.of(upstream, model)
    usage = _reported(seen.usage, contract)
    shadows = _shadows(doors, pruning, usage, contract, upstream, model, tariff, now)
    if isinstance(tariff, Unpriced):
        doors.prices.missed(upstream, model, tariff)
        return Bill(total, None, tariff.value, shadows)
    paid = pricing.cost(usage, _sheet(tariff, usage, now))
    if paid is None:
        return Bill(total, None, Unpriced.USAGE.value, shadows)
    saved = _saved(tariff, usage, sides, gone, contract, now) if sides and gone else _NOTHING
    rebuilt = pricing.rebuilt(_rebuilt(pruning), usage, _sheet(tariff, usage, now))
    estimated = total is not None and total.estimated
    return Bill(total, Money(paid, saved, rebuilt, estimated, seen.usage.cost), "", shadows)


def _shadows(
    doors: Doors, it: Pruning | None, usage: Usage, contract: Contract, upstream: str, model: str,
    tariff: Tariff | Unpriced, now: float,
) -> tuple[Shadow, ...]:  # fmt: skip
    """What the shadow policies would have made of it; there are none but under `observe`."""
    if it is None or not it.shades:
        return ()
    left, ratio = shadowing.left_of(it.turn, it.sealed), doors.state.ratios.of(upstream, model)
    known = None if isinstance(tariff, Unpriced) else tariff
    reckoning = shadowing.Reckoning(left, usage, contract, ratio, known, now)
    try:
        return tuple([reckoning.shadow(shade) for shade in it.shades])
    except Exception:
        # What would have been is no reason to lose what was paid.
        doors.observer.counts.add("lethe_faults_total", ("shadow",))
        return ()


_NOTHING = Decimal(0)


def _sides(it: Pruning) -> Sides:
    sealed, rows = it.sealed, it.turn.messages
    front = len(sealed.elements) - len(rows)
    kept = (*sealed.elements[:front], *[row.kept for row in rows])
    if "restored" in it.done:
        # What was put back for the client `keep` would have sent too.
        pairs = zip(kept, sealed.elements, strict=True)
        kept = tuple([sent if sent.reasoning > came.reasoning else came for came, sent in pairs])
    return Sides(sealed.elements, kept, sealed.basis, sealed.finding.cause in INTACT)


def _reported(usage: Usage, contract: Contract) -> Usage:
    """A 0 of who never reports reads is no report."""
    if usage.cache_read == 0 and not contract.reports_cache:
        return replace(usage, cache_read=None)
    return usage


def _sheet(tariff: Tariff, usage: Usage, now: float) -> pricing.Sheet:
    return tariff.sheet(usage.input or 0, now)


def _saved(
    tariff: Tariff, usage: Usage, sides: Sides, gone: Gone, contract: Contract, now: float
) -> Decimal:
    """What `keep` would have cost more, each side at the prices of its own length."""
    if not gone.total.tokens:
        return _NOTHING
    both = saving.kept(usage, sides, gone, contract.cache, contract.user_turn) or (usage, usage)
    used, kept = (pricing.cost(one, _sheet(tariff, one, now)) for one in both)
    return kept.total - used.total if kept and used else _NOTHING


def _rebuilt(it: Pruning | None) -> int:
    return (it.explained.rebuilt or 0) if it else 0
