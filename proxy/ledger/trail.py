"""The records of what one conversation sent, each kept as what it changes in the one before it.

A conversation's prompts share nearly everything with the ones before, so a record keeps a `Patch`
against its parent instead of the whole list: memory is linear in what is new. Parents are followed
for at most `REBASE` steps; then a record is kept whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from proxy.core.sent import Element, Sent

REBASE = 64

_identity = attrgetter(*Element.__struct_fields__)


class Patch(msgspec.Struct, frozen=True, gc=False):
    """How a list of elements comes out of its parent's.

    It is `parent[:head] + fresh[:tail - head] + parent[tail:shared] + fresh[tail - head:]`: what
    was changed in place, and what was appended, are in `fresh`. A whole list has all three at 0.
    """

    head: int
    tail: int
    shared: int
    fresh: tuple[Element, ...]

    def applied(self, parent: tuple[Element, ...]) -> tuple[Element, ...] | None:
        """The list, or None where this patch was not made for that parent."""
        middle = self.tail - self.head
        if not 0 <= self.head <= self.tail <= self.shared <= len(parent):
            return None
        if middle > len(self.fresh):
            return None
        changed, appended = self.fresh[:middle], self.fresh[middle:]
        return parent[: self.head] + changed + parent[self.tail : self.shared] + appended


def whole(elements: tuple[Element, ...]) -> Patch:
    return Patch(0, 0, 0, elements)


def difference(parent: tuple[Element, ...], elements: tuple[Element, ...]) -> Patch:
    """The patch that makes `elements` out of `parent`."""
    shared = min(len(parent), len(elements))
    if parent[:shared] == elements[:shared]:
        return Patch(shared, shared, shared, elements[shared:])
    old = list(map(_identity, parent[:shared]))
    new = list(map(_identity, elements[:shared]))
    head = next(i for i in range(shared) if old[i] != new[i])
    tail = next(i for i in range(shared, 0, -1) if old[i - 1] != new[i - 1])
    return Patch(head, tail, shared, elements[head:tail] + elements[shared:])


class _Body(msgspec.Struct, frozen=True):
    parent: _Body | None
    depth: int
    patch: Patch

    def elements(self) -> tuple[Element, ...]:
        bodies = [self]
        while (parent := bodies[-1].parent) is not None:
            bodies.append(parent)
        elements: tuple[Element, ...] = ()
        for body in reversed(bodies):
            # A patch always fits the very parent that it was made from.
            elements = body.patch.applied(elements) or ()
        return elements


def _grown(parent: _Body | None, patch: Patch, elements: tuple[Element, ...]) -> _Body:
    if parent is None or parent.depth >= REBASE:
        return _Body(None, 0, whole(elements))
    return _Body(parent, parent.depth + 1, patch)


class Trail:
    """What one conversation sent, by the link of the last message. The latest is kept assembled."""

    __slots__ = ("_body", "_heads", "last")

    def __init__(self) -> None:
        self._heads: dict[bytes, tuple[Sent, _Body]] = {}
        self._body: _Body | None = None
        self.last: Sent | None = None

    def add(self, sent: Sent) -> tuple[Sent, int]:
        """Keep one record, in the place of an earlier one at the same link.

        The record comes back, its elements shared with the ones before it, and how many were new.
        """
        base = self.last.elements if self.last else ()
        grown = difference(base, sent.elements)
        # Made out of the parent's own elements, so that equal elements are one object.
        elements = grown.applied(base) or ()
        self._body = _grown(self._body, grown, elements)
        self._heads[sent.link] = (replace(sent, elements=()), self._body)
        self.last = replace(sent, elements=elements)
        return self.last, len(grown.fresh)

    def at(self, link: bytes) -> Sent | None:
        if self.last is not None and self.last.link == link:
            return self.last
        found = self._heads.get(link)
        return found and replace(found[0], elements=found[1].elements())

    def deepest(self, chain: Sequence[bytes]) -> tuple[int, Sent] | None:
        """The record at the deepest link of the chain that has one, with its place in the chain."""
        heads = self._heads
        for place in range(len(chain) - 1, -1, -1):
            if chain[place] in heads and (sent := self.at(chain[place])) is not None:
                return place, sent
        return None
