"""The reasoning that did not leave with a request, in tokens: element by element, and in sum.

It is counted by the provider where it told the reasoning tokens of the reply, else estimated from
its bytes, and then marked. The sum goes on from request to request with the record of what was
sent, so that a step is counted once, when it is dropped, by whichever worker sees that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proxy.core.ratio import Ratio, is_whole
from proxy.core.sent import Element, Sent


class Thought(msgspec.Struct, frozen=True, gc=False):
    """Tokens of reasoning that did not leave; `estimated` where no provider counted all of them."""

    tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Sides:
    """One prompt as it left, and as `keep` would have sent it, element by element; `last` is the
    request that it was compared with, and `intact` says that it extends or repeats that one.
    """

    sent: Sequence[Element]
    kept: Sequence[Element]
    last: Sent | None
    intact: bool

    @property
    def known(self) -> int:
        """Elements of the last request."""
        return len(self.last.elements) if self.last else 0


@dataclass(frozen=True, slots=True)
class Gone:
    """The tokens that `keep` would have sent in addition: `old` of elements that the last request
    had, `new` of each that it had not, and all of them.
    """

    sides: Sides
    old: Thought
    new: Sequence[Thought]
    total: Thought

    @property
    def by_element(self) -> Sequence[float]:
        """Tokens, element by element; those of the old ones by their bytes."""
        sizes = _sizes(self.sides, 0, self.sides.known)
        whole = sum(sizes)
        share = self.old.tokens / whole if whole else 0.0
        return [*[size * share for size in sizes], *[one.tokens for one in self.new]]


def gone(sides: Sides, ratio: Ratio) -> Gone:
    """The reasoning that did not leave, in tokens."""
    known = sides.known
    old = _old(sides, ratio)
    sizes = _sizes(sides, known, len(sides.sent))
    new = [_new(sides, known + at, size, ratio) for at, size in enumerate(sizes)]
    whole = old.tokens + sum([one.tokens for one in new])
    estimated = old.estimated or any([one.estimated for one in new])
    return Gone(sides, old, new, Thought(whole, estimated))


def _sizes(sides: Sides, first: int, stop: int) -> list[int]:
    """Bytes of reasoning that did not leave, of some of the elements."""
    pairs = zip(sides.kept[first:stop], sides.sent[first:stop], strict=True)
    return [kept.reasoning - sent.reasoning if kept is not sent else 0 for kept, sent in pairs]


_NONE = Thought()


def _old(sides: Sides, ratio: Ratio) -> Thought:
    """Of elements that the last request had: as they were counted then, where it still extends."""
    last = sides.last
    if last is not None and last.dropped_tokens is not None and sides.intact:
        return (
            Thought(last.dropped_tokens, last.dropped_estimated) if last.dropped_tokens else _NONE
        )
    size = sum(_sizes(sides, 0, sides.known))
    return Thought(ratio.estimated(size), True) if size else _NONE


def _new(sides: Sides, at: int, size: int, ratio: Ratio) -> Thought:
    """Of an element that is new: the reply to the last request was counted by who made it."""
    if size == 0:
        return _NONE
    counted = sides.last.reasoning_tokens if sides.last and at == sides.known else None
    if counted is None or not sides.intact or not is_whole(sides.kept[at].reasoning, counted):
        return Thought(ratio.estimated(size), True)
    left = sides.sent[at].reasoning
    return Thought(counted - ratio.estimated(left), left > 0)
