"""An agent's steps as elements and as tokens, with their reasoning and without: a token a byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.cachemodel import Segment, Segments
from proxy.core.ratio import Ratio
from proxy.core.sent import Element, Part

ONE = Ratio(1, 1)
"""A byte a token: so that what is estimated is exact."""


@dataclass(frozen=True)
class Step:
    """Tokens. `dropped` is its verdict."""

    reasoning: int
    action: int
    observation: int
    dropped: bool


def steps(*rows: tuple[int, int, int, bool]) -> tuple[Step, ...]:
    return tuple(Step(*row) for row in rows)


def digest(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def message(name: str, role: str, size: int, reasoning: int = 0) -> Element:
    said = digest(name)
    whole = digest(f"{name}+") if reasoning else said
    return Element(Part.MESSAGE, whole, said, said[:8], size + reasoning, reasoning, role)


def prompt(run: Sequence[Step], count: int, first: int, kept: bool) -> tuple[Element, ...]:
    """The elements of request `count`: a preamble, then the steps before it."""
    rows = [message("preamble", "user", first)]
    for at, step in enumerate(run[:count]):
        thought = step.reasoning if kept or not step.dropped else 0
        rows.append(message(f"a{at}", "assistant", step.action, thought))
        rows.append(message(f"o{at}", "tool", step.observation))
    return tuple(rows)


def segments(run: Sequence[Step], count: int, first: int, kept: bool) -> Segments:
    """The same as tokens: reasoning is a segment of its own, before what was said."""
    rows = [Segment(b"preamble", first)]
    for at, step in enumerate(run[:count]):
        name = str(at).encode()
        if kept or not step.dropped:
            rows.append(Segment(b"r" + name, step.reasoning))
        rows += [Segment(b"a" + name, step.action), Segment(b"o" + name, step.observation)]
    return tuple(row for row in rows if row.tokens)


def generated(run: Sequence[Step], at: int) -> Segments:
    if at >= len(run):
        return (Segment(b"end", 10),)
    name, step = str(at).encode(), run[at]
    rows = (Segment(b"r" + name, step.reasoning), Segment(b"a" + name, step.action))
    return tuple(row for row in rows if row.tokens)
