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
    """The tokens that `keep` would have sent in addition: their sum, and what makes it up. `sizes`
    are bytes by element; those that the last request had take `share` tokens a byte, `new` is the
    others'.
    """

    sizes: Sequence[int]
    share: float
    new: Sequence[Thought]
    total: Thought

    @property
    def by_element(self) -> Sequence[float]:
        """Tokens, element by element."""
        old = len(self.sizes) - len(self.new)
        return [
            *[size * self.share for size in self.sizes[:old]],
            *[one.tokens for one in self.new],
        ]


def gone(sides: Sides, ratio: Ratio) -> Gone:
    """The reasoning that did not leave, in tokens."""
    pairs = zip(sides.kept, sides.sent, strict=True)
    sizes = [kept.reasoning - sent.reasoning if kept is not sent else 0 for kept, sent in pairs]
    known = sides.known
    size = sum(sizes[:known])
    old = _old(sides, size, ratio)
    new = [_new(sides, at, sizes[at], ratio) for at in range(known, len(sizes))]
    whole = old.tokens + sum([one.tokens for one in new])
    estimated = old.estimated or any([one.estimated for one in new])
    return Gone(sizes, old.tokens / size if size else 0.0, new, Thought(whole, estimated))


_NONE = Thought()


def _old(sides: Sides, size: int, ratio: Ratio) -> Thought:
    """Of elements that the last request had: as they were counted then, where it still extends."""
    if size == 0:
        return _NONE
    last = sides.last
    if last is not None and last.dropped_tokens is not None and sides.intact:
        return Thought(last.dropped_tokens, last.dropped_estimated)
    return Thought(ratio.estimated(size), True)


def _new(sides: Sides, at: int, size: int, ratio: Ratio) -> Thought:
    """Of an element that is new: the reply to the last request was counted by who made it."""
    if size == 0:
        return _NONE
    counted = sides.last.reasoning_tokens if sides.last and at == sides.known else None
    if counted is None or not sides.intact or not is_whole(sides.kept[at].reasoning, counted):
        return Thought(ratio.estimated(size), True)
    left = sides.sent[at].reasoning
    return Thought(counted - ratio.estimated(left), left > 0)
