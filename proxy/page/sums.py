"""What all requests of one conversation came to, for reports over many conversations.

A step is a request that was answered to its end: each brings one message of the model. What a
provider did not report is left out of the sum and of the steps that the sum is of, so that an
average is always one over what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import fsum

from proxy.page.told import Account, Found, dropped, is_break, part, tokens

_COMPLETE = "complete"


def sums(accounts: Sequence[Account], turns: int) -> Found:
    """`turns` counts all of the conversation's; those whose account is gone are `untold`."""
    steps = [it for it in accounts if it.get("ending", _COMPLETE) == _COMPLETE]
    return {
        "requests": len(accounts),
        "untold": max(0, turns - len(accounts)),
        "steps": len(steps),
        "task": next((str(it["task"]) for it in reversed(accounts) if it.get("task")), None),
        "policies": _counted(accounts, "policy"),
        "models": _counted(accounts, "model"),
        "tokens": {
            "input": _of(steps, lambda it: tokens(it, "input")),
            "cache_read": _of(steps, lambda it: tokens(it, "cache_read")),
            "output": _of(steps, lambda it: tokens(it, "output")),
            "reasoning": _of(steps, lambda it: tokens(it, "reasoning")),
            "dropped_estimated": _of(steps, dropped),
        },
        "breaks": _breaks(accounts),
        "dollars": _dollars(accounts),
    }


def _counted(accounts: Sequence[Account], name: str) -> dict[str, int]:
    """How many requests bore each name."""
    return dict(Counter(str(it.get(name) or "") for it in accounts))


def _of(steps: Sequence[Account], read: Callable[[Account], int | None]) -> Found:
    """A sum, and of how many steps it is."""
    known = [number for number in map(read, steps) if number is not None]
    return {"sum": sum(known), "steps": len(known)}


def _breaks(accounts: Sequence[Account]) -> dict[str, int]:
    """Breaks of the prefix by whose doing they were."""
    broken = filter(is_break, accounts)
    return dict(Counter(str(part(it, "prefix").get("by") or "") for it in broken))


def _dollars(accounts: Sequence[Account]) -> Found:
    """`keep` is what the priced requests would have come to under it, mechanically; `estimated`:
    that rests on estimated tokens. `priced` and `unpriced` count requests, `steps` the priced ones
    that were answered to their end.
    """
    priced = [it for it in accounts if part(it, "dollars").get("cost") is not None]
    paid = [part(it, "dollars") for it in priced]
    cost = fsum(it["cost"] for it in paid)
    saving = fsum(it.get("mechanical_saving") or 0.0 for it in paid)
    return {
        "cost": cost,
        "keep": cost + saving,
        "mechanical_saving": saving,
        "estimated": any(it.get("estimated") for it in paid),
        "rebuilt_estimated": fsum(it.get("rebuilt_estimated") or 0.0 for it in paid),
        "priced": len(priced),
        "steps": sum(it.get("ending", _COMPLETE) == _COMPLETE for it in priced),
        "unpriced": len(accounts) - len(priced),
    }
