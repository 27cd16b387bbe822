"""What the accounts of a conversation say, laid out for the API, the page and the command line.

An account is what `core.outcome.as_line` made of one exchange. It is read with care: one that was
written by an older or newer version may lack members, and what is not there is unknown, which is
not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from proxy.core.prefix import NOT_BREAKS
from proxy.core.sent import Part
from proxy.ledger.contract import Conversation, Entry, Summary
from proxy.page import judged
from proxy.page.differing import differing

Account = Mapping[str, Any]
Found = dict[str, Any]

BYTES_A_TOKEN = 4
"""By which tokens of reasoning are estimated."""
KINDS = ("input", "uncached", "cache_read", "cache_write", "output", "reasoning")
_NONE: Account = {}
_QUIET = frozenset({"extended", ""})
_HARMLESS = frozenset({"unreported", "below_minimum"})
_NO_BREAKS = frozenset(cause.value for cause in NOT_BREAKS)


def part(account: Account, name: str) -> Mapping[str, Any]:
    """A member that is a mapping; empty where it is none."""
    found = account.get(name)
    return found if isinstance(found, dict) else _NONE


def tokens(account: Account, kind: str) -> int | None:
    return part(account, "tokens").get(kind)


def new_tokens(account: Account) -> int | None:
    """Input that was neither read from a cache nor written to one; None where reads are unknown."""
    known = tokens(account, "cache_read") is not None
    return tokens(account, "uncached") if known else None


def hit_ratio(account: Account) -> float | None:
    """The share of the input that was read from the cache; None where either is unknown."""
    read, whole = tokens(account, "cache_read"), tokens(account, "input")
    return None if read is None or not whole else read / whole


def dropped(account: Account) -> int | None:
    """Tokens of reasoning that this request left without: as it was told, else estimated."""
    told: int | None = part(account, "reasoning_tokens").get("dropped")
    if told is not None:
        return told
    found = part(account, "reasoning_bytes").get("dropped")
    return None if found is None else found // BYTES_A_TOKEN


def cause(account: Account) -> str:
    """What happened to the prefix; empty where that is not known."""
    return str(part(account, "prefix").get("cause") or "")


def shortfall(account: Account) -> str:
    """Why the provider read less than it could have; empty where it did not."""
    return str(part(account, "cache").get("cause") or "")


def is_shortfall(account: Account) -> bool:
    """Whether it read so little that it is worth a look."""
    return bool(shortfall(account)) and shortfall(account) not in _HARMLESS


def is_break(account: Account) -> bool:
    prefix = part(account, "prefix")
    told = prefix.get("broken")
    if isinstance(told, bool):
        return told
    name = prefix.get("cause")
    return bool(name) and name not in _NO_BREAKS


def first_turn(it: Conversation) -> int:
    """The number of the oldest turn that is still told; the first turn has 1."""
    return max(0, it.summary.turns - len(it.outcomes)) + 1


def listed(it: Summary) -> Found:
    """One conversation in a list; tokens, cache and prefix are those of its last turn."""
    last = it.last
    return {
        "id": it.id,
        "key": last.get("key") or None,
        "task": last.get("task") or None,
        "model": last.get("model") or None,
        "policy": last.get("policy") or None,
        "upstream": last.get("upstream") or None,
        "turns": it.turns,
        "first_at": it.first_at,
        "last_at": it.last_at,
        "root": last.get("root"),
        "last": {
            "broken": is_break(last),
            "prefix": last.get("prefix"),
            "cache": last.get("cache"),
            "hit_ratio": hit_ratio(last),
            "tokens": last.get("tokens"),
            "dropped_tokens_estimated": dropped(last),
        },
    }


def totals(accounts: Sequence[Account]) -> Found:
    """Sums over what was reported; None where nothing was."""
    sums: Found = {kind: _sum(tokens(it, kind) for it in accounts) for kind in KINDS}
    both = [it for it in accounts if hit_ratio(it) is not None]
    whole = _sum(tokens(it, "input") for it in both)
    read = _sum(tokens(it, "cache_read") for it in both)
    return {
        "tokens": sums,
        "hit_ratio": read / whole if whole and read is not None else None,
        "dropped_tokens_estimated": _sum(map(dropped, accounts)),
        "breaks": sum(map(is_break, accounts)),
        "rebuilt_tokens": _sum(_rebuilt(it) for it in accounts if is_break(it)),
        "dollars": _dollars(accounts),
    }


def _dollars(accounts: Sequence[Account]) -> Found | None:
    """What the priced turns came to, and how many answered ones have no price; None where none was
    ever priced.
    """
    priced = [part(it, "dollars") for it in accounts if part(it, "dollars")]
    if not priced:
        return None
    return {
        "cost": sum(it.get("cost") or 0.0 for it in priced),
        "mechanical_saving": sum(it.get("mechanical_saving") or 0.0 for it in priced),
        "estimated": any(it.get("estimated") for it in priced),
        "unpriced_turns": sum(bool(it.get("unpriced")) for it in accounts),
    }


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _rebuilt(account: Account) -> int | None:
    """Tokens that a break cost; estimated from bytes where no better number is told."""
    prefix = part(account, "prefix")
    told: int | None = prefix.get("rebuilt_tokens")
    stale: int | None = prefix.get("stale_bytes")
    return told if told is not None else None if stale is None else stale // BYTES_A_TOKEN


def conversation(it: Conversation) -> Found:
    """One conversation with its turns, oldest first; without text."""
    first = first_turn(it)
    turns = [{"turn": turn, **account} for turn, account in enumerate(it.outcomes, first)]
    shadows = judged.shadows(it.outcomes)
    more = {"shadows": shadows} if shadows else {}
    return {**listed(it.summary), "totals": totals(it.outcomes), **more, "timeline": turns}


# Findings


def findings(it: Conversation, notes: bool = False) -> list[Found]:
    """Breaks, and replies that read too little; with `notes` also what costs nothing."""
    return [
        found
        for turn, account in enumerate(it.outcomes, first_turn(it))
        for found in found_in(turn, account, it.entries)
        if notes or found["kind"] != "note"
    ]


def weighed(it: Conversation) -> list[Found]:
    """The steps that were weighed by their horizon, with the numbers that decided them."""
    return judged.weighed(it.outcomes, first_turn(it))


def found_in(turn: int, account: Account, entries: Mapping[bytes, Entry]) -> Iterator[Found]:
    """`kind` is `break`, `cache` (the provider read too little) or `note` (no harm done)."""
    at = {"turn": turn, "at": account.get("at"), "exchange": account.get("exchange")}
    if cause(account) not in _QUIET:
        yield at | _of_prefix(account, entries)
    if shortfall(account):
        yield at | _of_cache(account)


def _of_prefix(account: Account, entries: Mapping[bytes, Entry]) -> Found:
    prefix, broken = part(account, "prefix"), is_break(account)
    return {
        "kind": "break" if broken else "note",
        "cause": cause(account),
        "by": prefix.get("by"),
        "message": prefix.get("message"),
        "path": prefix.get("path"),
        "offset": prefix.get("offset"),
        "removed": prefix.get("removed"),
        "tokens": _rebuilt(account) if broken else None,
        "dollars": part(account, "dollars").get("rebuilt_estimated") if broken else None,
        "confidence": prefix.get("confidence"),
        "fix": prefix.get("fix"),
        "difference": _difference(prefix, entries) if broken else None,
    }


def _of_cache(account: Account) -> Found:
    cache = part(account, "cache")
    return {
        "kind": "note" if shortfall(account) in _HARMLESS else "cache",
        "cause": shortfall(account),
        "by": cache.get("by") or "provider",
        "expected": cache.get("expected"),
        "reported": cache.get("reported"),
        "tokens": cache.get("missed_tokens"),
        "confidence": cache.get("confidence"),
        "fix": cache.get("fix"),
    }


def _difference(prefix: Mapping[str, Any], entries: Mapping[bytes, Entry]) -> Found | None:
    """Where the element's text parts, as far as both of its forms are kept."""
    was, now = (_text(prefix.get(name), entries) for name in ("before", "after"))
    return None if was == now else differing(was, now)


def _text(digest: Any, entries: Mapping[bytes, Entry]) -> str | None:
    if not isinstance(digest, str):
        return None
    try:
        entry = entries.get(bytes.fromhex(digest))
    except ValueError:
        return None
    return None if entry is None else entry.left.decode("utf-8", "replace")


# Messages


def messages(it: Conversation) -> list[Found]:
    """The elements of the last request in prompt order.

    `message` is the index in the wire's `messages`. `came` is what the client sent and `left` what
    the provider saw, as JSON text; None where it is not kept.
    """
    rows, index = [], 0
    for element in it.last_sent.elements if it.last_sent else ():
        entry = it.entries.get(element.digest)
        at = index if element.part in (Part.SYSTEM, Part.MESSAGE) else None
        index += at is not None
        left = entry.left.decode("utf-8", "replace") if entry else None
        came = entry.came.decode("utf-8", "replace") if entry and entry.came else left
        rows.append(
            {
                "message": at,
                "part": element.part.name.lower(),
                "role": element.role or None,
                "bytes": element.size,
                "reasoning_bytes": element.reasoning,
                "digest": element.digest.hex(),
                "came": came,
                "left": left,
            }
        )
    return rows
