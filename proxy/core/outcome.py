"""Everything that is worth telling of one exchange, when it is over: one log line and all metrics
come of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import msgspec

from proxy.core.expect import Cached
from proxy.core.explain import NONE, Explanation
from proxy.core.horizon import Weighed
from proxy.core.prefix import Finding
from proxy.core.pricing import PARTS, Cost
from proxy.core.shadow import Shadow
from proxy.core.thought import Thought
from proxy.core.usage import Usage


class Route(Enum):
    """What was done with a request: read and pruned, or passed on unread."""

    CHAT = "chat"
    PASS = "pass"


class Pruned(msgspec.Struct, frozen=True):
    """What was decided and carried out on one chat request.

    `fresh` counts this turn's new verdicts by their name, `adopted` those of a conversation met in
    mid-life. Steps and bytes are those that hold reasoning; tokens are estimated where the name
    says so. `forbidden` counts new verdicts that the contract did not allow as the policy said
    them. `done` counts by name what was done beside dropping: to messages (`restored`, `moved`,
    `placeholder`, `arguments`), and what was added on purpose (`additions`). `missed` counts
    messages whose reply was looked for in vain.
    `weighed` is what decided the new verdicts of policy `horizon`.
    """

    conversation: str
    root: str
    policy: str
    steps: int
    fresh: Mapping[str, int]
    adopted: int
    dropped: int
    kept: int
    dropped_bytes: int
    kept_bytes: int
    clamped: int
    finding: Finding
    shared: bool
    explained: Explanation = NONE
    cached: Cached | None = None
    forbidden: int = 0
    done: Mapping[str, int] = {}
    missed: int = 0
    weighed: tuple[Weighed, ...] = ()


class Timings(msgspec.Struct, frozen=True, gc=False):
    """Seconds. `recall` is the look at what stood where a break is. `overhead` is our own time
    until the request was forwarded; None where it never came so far.
    """

    read: float | None = None
    settle: float | None = None
    recall: float | None = None
    overhead: float | None = None
    first_byte: float | None = None
    total: float = 0.0


class Money(msgspec.Struct, frozen=True):
    """Dollars. `cost` is the provider's counts at the prices in force. `saving` is mechanical: with
    the continuation held fixed, what `keep` would have cost more; a loss is negative. `estimated`:
    it rests on reasoning tokens that no provider counted. `rebuilt` is what a break cost, always
    estimated. `reported` is what the provider itself says that it came to.
    """

    cost: Cost
    saving: Decimal
    rebuilt: Decimal
    estimated: bool = False
    reported: Decimal | None = None


class Outcome(msgspec.Struct, frozen=True):
    """One exchange. `ending` is from a closed list; `unread` says in a word why a chat body was not
    pruned, `unpriced` why one that was answered well has no `money`. `thought` is the reasoning
    that did not leave, in tokens. `shadows` are what other policies would have made of it.
    """

    id: str
    at: float
    route: Route
    status: int
    ending: str
    upstream: str = ""
    model: str = ""
    key: str = ""
    task: str = ""
    streamed: bool = False
    unread: str = ""
    error: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    retried: bool = False
    mended: str = ""
    pruned: Pruned | None = None
    usage: Usage | None = None
    finish: str = ""
    timings: Timings = msgspec.field(default_factory=Timings)
    faults: tuple[str, ...] = ()
    money: Money | None = None
    unpriced: str = ""
    thought: Thought | None = None
    shadows: tuple[Shadow, ...] = ()


def as_line(outcome: Outcome) -> dict[str, Any]:
    """The exchange as one JSON-able mapping: ids, counts and times; no message text, no key, no
    header.
    """
    line: dict[str, Any] = {
        "exchange": outcome.id,
        "at": round(outcome.at, 3),
        "route": outcome.route.value,
        "status": outcome.status,
        "ending": outcome.ending,
        "upstream": outcome.upstream,
        "model": outcome.model[:200],
        "key": outcome.key,
        "task": outcome.task,
        "streamed": outcome.streamed,
        "bytes_in": outcome.bytes_in,
        "bytes_out": outcome.bytes_out,
        "ms": _milliseconds(outcome.timings),
    }
    _add_odd(line, outcome)
    if outcome.pruned:
        _add_pruned(line, outcome.pruned)
    if outcome.usage:
        line["tokens"] = _tokens(outcome.usage)
    if outcome.thought:
        line["reasoning_tokens"] = {
            "dropped": outcome.thought.tokens,
            "estimated": outcome.thought.estimated,
        }
    if outcome.money:
        line["dollars"] = _dollars(outcome.money)
    if outcome.unpriced:
        line["unpriced"] = outcome.unpriced
    if outcome.shadows:
        line["shadow"] = {shadow.policy: _shadow(shadow) for shadow in outcome.shadows}
    return line


def _dollars(money: Money) -> dict[str, Any]:
    """Rounded here, for display, far below what the cheapest token costs."""
    told: dict[str, Any] = {
        "cost": _rounded(money.cost.total),
        "parts": {part: _rounded(getattr(money.cost, part)) for part in PARTS},
        "keep": _rounded(money.cost.total + money.saving),
        "mechanical_saving": _rounded(money.saving),
        "estimated": money.estimated,
        "rebuilt_estimated": _rounded(money.rebuilt),
    }
    return told if money.reported is None else told | {"reported": _rounded(money.reported)}


def _rounded(dollars: Decimal) -> float:
    return round(float(dollars), 12)


def _shadow(shadow: Shadow) -> dict[str, Any]:
    """What one policy would have made of it. Input and reads are the modelled ones; null where the
    provider reported too little.
    """
    usage, record = shadow.usage, shadow.record
    told: dict[str, Any] = {
        "fresh": dict(shadow.fresh),
        "dropped": shadow.dropped,
        "reasoning_tokens": record.tokens,
        "estimated": record.estimated,
        "input": usage.input if usage else None,
        "cache_read": usage.cache_read if usage else None,
    }
    if shadow.cost is None or shadow.saving is None:
        return told
    money = {"dollars": _rounded(shadow.cost), "mechanical_saving": _rounded(shadow.saving)}
    return told | money


def _weighed(it: Weighed) -> dict[str, Any]:
    """What decided a step under `horizon`: sizes in tokens; horizon and expectation in requests or
    positions, null where it never pays and where nothing is known.
    """
    step, remaining = it.step, it.remaining
    told: dict[str, Any] = {
        "step": it.index,
        "verdict": it.verdict,
        "before": step.before,
        "reasoning": step.reasoning,
        "action": step.action,
        "counted": it.counted,
    }
    if it.terms is None:
        return told | {"lacks": it.lacks.value if it.lacks else None}
    return told | {
        "unit": it.terms.unit.value,
        "horizon": _number(it.horizon),
        "expected": _number(remaining.amount),
        "from": remaining.source.value,
        "samples": remaining.samples,
    }


def _number(amount: Fraction | None) -> float | None:
    return None if amount is None else round(float(amount), 3)


def _add_odd(line: dict[str, Any], outcome: Outcome) -> None:
    """What most exchanges have not."""
    if outcome.unread:
        line["unread"] = outcome.unread
    if outcome.error:
        line["error"] = outcome.error
    if outcome.retried:
        line["retried"] = True
    if outcome.mended:
        line["mended"] = outcome.mended
    if outcome.finish:
        line["finish"] = outcome.finish
    if outcome.faults:
        line["faults"] = list(outcome.faults)


def _add_pruned(line: dict[str, Any], pruned: Pruned) -> None:
    line["conversation"] = pruned.conversation
    line["root"] = pruned.root
    line["policy"] = pruned.policy
    line["shared"] = pruned.shared
    line["steps"] = {
        "total": pruned.steps,
        "fresh": dict(pruned.fresh),
        "adopted": pruned.adopted,
        "dropped": pruned.dropped,
        "kept": pruned.kept,
        "clamped": pruned.clamped,
    }
    if pruned.forbidden:
        line["steps"]["forbidden"] = pruned.forbidden
    if pruned.done:
        line["additions"] = dict(pruned.done)
    if pruned.missed:
        line["echoes_missed"] = pruned.missed
    if pruned.weighed:
        line["horizon"] = list(map(_weighed, pruned.weighed))
    line["reasoning_bytes"] = {"dropped": pruned.dropped_bytes, "kept": pruned.kept_bytes}
    line["prefix"] = _prefix(pruned.finding, pruned.explained)
    if pruned.cached:
        line["cache"] = _cached(pruned.cached)


def _prefix(finding: Finding, explained: Explanation) -> dict[str, Any]:
    told: dict[str, Any] = {
        "cause": finding.cause.value,
        "by": finding.by.value,
        "broken": finding.is_break,
        "element": finding.element,
        "message": finding.message,
        "stale_bytes": finding.stale,
        "removed": finding.removed,
    }
    if explained is not NONE:
        told |= {
            "path": explained.path,
            "offset": explained.offset,
            "rebuilt_tokens": explained.rebuilt,
            "confidence": explained.confidence.value,
            "fix": explained.fix,
            "before": explained.before.hex(),
            "after": explained.after.hex(),
        }
    return told


def _cached(cached: Cached) -> dict[str, Any]:
    """Expected by the contract's rule beside reported; null where nothing can be said."""
    told = {
        "expected": cached.expected,
        "reported": cached.reported,
        "missed_tokens": cached.missed_tokens,
        "cause": cached.missed.value if cached.missed else None,
    }
    return told | {"fix": cached.fix} if cached.fix else told


def _tokens(usage: Usage) -> dict[str, int | None]:
    """By kind; null is what the provider did not report, which is not 0."""
    told = {
        "input": usage.input,
        "uncached": usage.uncached,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }
    hour = usage.cache_write_1h
    return told if hour is None else told | {"cache_write_1h": hour}


def _milliseconds(timings: Timings) -> dict[str, float | None]:
    return {
        "read": _ms(timings.read),
        "settle": _ms(timings.settle),
        "recall": _ms(timings.recall),
        "overhead": _ms(timings.overhead),
        "first_byte": _ms(timings.first_byte),
        "total": _ms(timings.total),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
