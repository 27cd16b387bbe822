"""Bars of tokens, one a turn: where each stands, how high it is, and what it says in words.

Across, places are shares of the width in per cent, so that the drawing fits any window; up, they
are pixels. A bar is, from below: what was read from the cache, what was written to it, what was
new, and above that, lighter, the reasoning that was left out. Where the provider did not tell what
it read, the whole input is one piece of its own kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.ledger.contract import Conversation
from proxy.page import plain, told
from proxy.page.causes import words
from proxy.page.shown import prefix_of
from proxy.page.told import Account

HEIGHT = 168
"""Pixels of the highest bar."""
TOP = 18
"""Pixels above it, for marks."""
_LEAST = 24
# A conversation that has just begun does not fill the width: its bars stay bars.
_LABELS = 10


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a bar: `y` is its upper edge."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    turn: int
    slot: float
    x: float
    middle: float
    pieces: tuple[Piece, ...]
    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`ticks` pairs a height and its text, `labels` a place and a turn's number."""

    bars: tuple[Bar, ...]
    slot: float
    width: float
    ticks: tuple[tuple[float, str], ...]
    labels: tuple[tuple[float, int], ...]
    kinds: frozenset[str]
    summary: str
    height: int = HEIGHT
    top: int = TOP


def chart(it: Conversation) -> Chart:
    accounts, first = it.outcomes, told.first_turn(it)
    top = _ceiling(max((sum(n for _, n in _parts(a)) for a in accounts), default=0))
    slot = 100 / max(len(accounts), _LEAST)
    gap = 0.24 if len(accounts) <= 120 else 0
    bars = tuple(_bar(first + n, n, a, slot, gap, top) for n, a in enumerate(accounts))
    return Chart(
        bars=bars,
        slot=round(slot, 4),
        width=round(slot * (1 - gap), 4),
        ticks=tuple((TOP + HEIGHT * (1 - share), _tick(top * share)) for share in (1, 0.5, 0)),
        labels=tuple(_labels(bars)),
        kinds=frozenset(piece.kind for bar in bars for piece in bar.pieces),
        summary=_summary(it),
    )


def _tick(tokens: float) -> str:
    return plain.short(tokens).replace(".0", "")


def _parts(account: Account) -> list[tuple[str, int]]:
    """Tokens by kind, from below; kinds without any are left out."""
    whole, read = told.tokens(account, "input"), told.tokens(account, "cache_read")
    if read is None:
        parts = [("unknown", whole)]
    else:
        written = told.tokens(account, "cache_write")
        parts = [("cached", read), ("written", written), ("new", told.new_tokens(account))]
    parts.append(("dropped", told.dropped(account)))
    return [(kind, number) for kind, number in parts if number]


def _ceiling(most: int) -> int:
    """A round number that is not less: 1, 2, 4, 5 or 8 and zeros."""
    size = 10
    while size * 10 <= most:
        size *= 10
    return next(size * n for n in (1, 2, 4, 5, 8, 10) if size * n >= most)


def _bar(number: int, place: int, account: Account, slot: float, gap: float, top: int) -> Bar:
    prefix = prefix_of(account)
    pieces, floor = [], float(TOP + HEIGHT)
    for kind, count in _parts(account):
        height = count / top * HEIGHT
        floor -= height
        pieces.append(Piece(kind, round(floor, 2), round(height, 2)))
    start = place * slot
    return Bar(
        turn=number,
        slot=round(start, 4),
        x=round(start + slot * gap / 2, 4),
        middle=round(start + slot / 2, 4),
        pieces=tuple(pieces),
        tone=prefix.tone,
        text=_words(number, prefix.word, account),
    )


def _words(number: int, prefix: str, account: Account) -> str:
    """A bar in words."""
    count = plain.count
    parts = [
        f"{count(told.tokens(account, 'input'))} input",
        f"{count(told.tokens(account, 'cache_read'))} cached",
        f"{count(told.tokens(account, 'cache_write'))} written",
        f"{count(told.new_tokens(account))} new",
        f"~{count(told.dropped(account))} dropped",
    ]
    return f"Turn {number} · {prefix} · " + " · ".join(parts)


def _labels(bars: Sequence[Bar]) -> Iterator[tuple[float, int]]:
    """Some turns' numbers, at round steps."""
    step = 1
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if len(bars) <= step * _LABELS:
            break
    for at, bar in enumerate(bars):
        if at == 0 or bar.turn % step == 0:
            yield bar.middle, bar.turn


def _summary(it: Conversation) -> str:
    """The drawing for those who do not see it."""
    accounts = it.outcomes
    if not accounts:
        return "No turn is told."
    inputs = [n for a in accounts if (n := told.tokens(a, "input")) is not None]
    sums = told.totals(accounts)
    grown = (
        f"Input went from {plain.count(inputs[0])} to {plain.numbered(inputs[-1], 'token')}."
        if inputs
        else "The provider did not report tokens."
    )
    read = sums["hit_ratio"]
    cached = "What was read from a cache is unknown."
    if read is not None:
        cached = f"{plain.percent(read)} of it was read from the cache."
    return f"{plain.numbered(len(accounts), 'turn')}. {grown} {cached} {_breaks(it)}"


def _breaks(it: Conversation) -> str:
    first = told.first_turn(it)
    found = [
        f"{words(told.cause(account))} at turn {turn}"
        for turn, account in enumerate(it.outcomes, first)
        if told.is_break(account)
    ]
    if not found:
        return "No break of the prefix."
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{plain.numbered(len(found), 'break')}: {', '.join(found[:3])}{more}."
