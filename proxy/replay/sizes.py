"""How many tokens each element of a prompt is: by the counts that were recorded, else estimated.

A provider counts prompts, not messages. But two prompts of which one extends the other differ by
what is new, and of that the reply's own count is known too (reasoning apart, where it is told). So:

    the reply            output tokens, those of its reasoning apart
    what else is new     this prompt's count less that of all that is known, by size in bytes

The sum over a recorded prompt is then its recorded count. Where no count was recorded, or the
counts contradict themselves (less than nothing is left for what is new), bytes are divided by what
a token of this session has had so far: an estimate, and told as one.

Before a count is taken in, it is foretold from all earlier ones: how well is a measure of the
model (`Foretold`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.cachemodel import Segment, Segments
from proxy.core.sent import Element, Part
from proxy.core.usage import Usage

BYTES_A_TOKEN = 4.0
"""Of a model that nothing is known of."""
_PRIOR = 500.0
"""Tokens that the first ratio weighs against what a session shows."""
_UNRENDERED = frozenset({Part.MODEL, Part.PARAMS})


class Foretold(msgspec.Struct, frozen=True):
    """A prompt's tokens as foretold one step ahead, and as recorded."""

    tokens: int
    recorded: int


class Sizes:
    """The sizes of one session's elements. `ratio` is what a token of its model has in bytes."""

    def __init__(self, ratio: float = BYTES_A_TOKEN) -> None:
        self._said: dict[bytes, int] = {}
        self._thought: dict[bytes, int] = {}
        self._segments: dict[bytes, Segments] = {}
        self._first = ratio * _PRIOR
        self._bytes, self._tokens = self._first, _PRIOR
        self._anchored = False
        self._last: tuple[tuple[Element, ...], int] = ((), 0)

    @property
    def ratio(self) -> float:
        """Bytes a token, by what was seen so far."""
        return self._bytes / self._tokens

    @property
    def weighed(self) -> tuple[float, float]:
        """Bytes and tokens that recorded counts were laid beside."""
        return self._bytes - self._first, self._tokens - _PRIOR

    @property
    def total(self) -> int:
        """The size of the last prompt that was taken in."""
        return self._last[1]

    def take_reply(self, reply: Element, usage: Usage) -> None:
        """Learn from what a reply used; `reply` is the element that it becomes when it comes back
        with its reasoning.
        """
        if usage.output is None:
            return
        thought = usage.reasoning
        if thought is None:
            thought = round(usage.output * reply.reasoning / max(reply.size, 1))
        thought = min(thought, usage.output)
        self._said.setdefault(reply.said, usage.output - thought)
        if reply.reasoning:
            self._thought.setdefault(reply.digest, thought)

    def take_prompt(
        self, elements: tuple[Element, ...], usage: Usage
    ) -> tuple[bool, Foretold | None]:
        """Learn from the count of a prompt that left so. Whether it could be taken in, and how it
        was foretold; nothing is before a first count.
        """
        known, later = self._begun(elements)
        fresh = {e.said: e for e in later if self._is_new(e)}
        known += sum(self._known(e) for e in later)
        sizes = [e.size - e.reasoning for e in fresh.values()]
        recorded = usage.input
        estimate = known + sum(round(size / self.ratio) for size in sizes)
        foretold = Foretold(estimate, recorded) if recorded and self._anchored else None
        left = (recorded or 0) - known
        fits = recorded is not None and left >= len(fresh)
        if fits and any(sizes):
            self._bytes, self._tokens = self._bytes + sum(sizes), self._tokens + left
        shares = shared(left, sizes) if fits else [round(size / self.ratio) for size in sizes]
        self._said |= dict(zip(fresh, shares, strict=True))
        self._anchored = self._anchored or recorded is not None
        self._last = elements, known + sum(shares)
        return fits, foretold

    def _begun(self, elements: tuple[Element, ...]) -> tuple[int, tuple[Element, ...]]:
        """Tokens of what the last prompt had too, and the rest; where it did not only grow, all."""
        last, tokens = self._last
        if elements[: len(last)] == last:
            return tokens, elements[len(last) :]
        return 0, elements

    def _is_new(self, e: Element) -> bool:
        return e.said not in self._said and e.part not in _UNRENDERED

    def _known(self, e: Element) -> int:
        if e.part in _UNRENDERED:
            return 0
        return self._said.get(e.said, 0) + self._reasoning(e)

    def _reasoning(self, e: Element) -> int:
        if not e.reasoning:
            return 0
        if e.digest not in self._thought:
            self._thought[e.digest] = round(e.reasoning / self.ratio)
        return self._thought[e.digest]

    def segments(self, e: Element) -> Segments:
        """An element in tokens: its reasoning, which is rendered first, and what it says."""
        found = self._segments.get(e.digest)
        if found is None:
            found = self._segments[e.digest] = self._made(e)
        return found

    def _made(self, e: Element) -> Segments:
        if e.part in _UNRENDERED:
            return (Segment(e.digest, 0),)
        if e.said not in self._said:
            self._said[e.said] = round((e.size - e.reasoning) / self.ratio)
        said = Segment(e.said, self._said[e.said])
        return (Segment(e.digest, self._reasoning(e)), said) if e.reasoning else (said,)


def shared(total: int, sizes: Sequence[int]) -> list[int]:
    """A total shared out by sizes, in whole numbers whose sum it is; evenly where all are 0."""
    weights = list(sizes) if any(sizes) else [1] * len(sizes)
    whole, at, given, shares = sum(weights), 0, 0, []
    for weight in weights:
        at += weight
        upto = round(total * at / whole)
        shares.append(upto - given)
        given = upto
    return shares
