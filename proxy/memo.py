"""Remembers what was parsed, by content, so that a growing conversation costs only what is new.

A body is known by a fast seeded hash of its beginning, taken at fixed offsets that grow with it; an
entry says where the known messages end and what they were. Edits fall back by themselves: other
bytes, other hash. It is private to one process, scoped by key, and bounded by the number of
messages held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from xxhash import xxh3_128, xxh3_128_digest

from proxy.core import turn
from proxy.core.fingerprint import Message
from proxy.core.sent import Element
from proxy.core.turn import Known, Turn

MAX_BYTES = 8 << 20
"""What all entries may hold, estimated from above: turns of one conversation share their
messages.
"""
_MESSAGE = 700
"""Bytes that one message takes: measured, and rounded up."""
_PIECE = 200
"""Bytes that one of its calls, edits or places takes, from the fifth on: most have no more."""
_TURN = 2_500
"""Bytes that a turn takes beside its messages and members: its hints above all."""
MAX_TOOLS = MAX_FRONTS = 256
LARGE_FRONT = 4_000
"""Bytes from which a front is not remembered: model, rendered members and elements."""
_ELEMENT = 350
"""Bytes that one element takes, with the digest that it is known by."""
FIRST_MARK = 256


def marks(limit: int) -> tuple[int, ...]:
    """The offsets at which a body's beginning is hashed: 256 bytes apart at first, then 1/8 of the
    way.
    """
    found, at = [], FIRST_MARK
    while at <= limit:
        found.append(at)
        at += max(FIRST_MARK, at // 8)
    return tuple(found)


_Key = tuple[bytes, bytes]
_Front = tuple[Any, ...]
# All that the elements before the messages come of.


class _Entry(msgspec.Struct, frozen=True):
    """The bytes up to the key's mark are known by the key, `rest` is the hash of those from there
    to the end of what is known. `before` is where the entry lies that this one grew from: its
    conversation's last turn.
    """

    known: Known
    rest: bytes
    weight: int
    before: _Key | None


class Memo:
    """What one process remembers of the bodies that it read. `seed` keeps others from finding
    collisions.
    """

    def __init__(self, seed: int, max_body: int, max_bytes: int = MAX_BYTES) -> None:
        self._seed = seed
        self._marks = marks(max_body)
        self._max = max_bytes
        self._held = 0
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._tools: OrderedDict[bytes, tuple[Element, ...]] = OrderedDict()
        self._fronts: OrderedDict[_Front, tuple[Element, ...]] = OrderedDict()

    def read(self, body: bytes, scope: bytes) -> Turn:
        """Read a request, beginning where a known one ends. Raises `Unreadable`."""
        hashes = self._hashes(body)
        at = self._find(body, scope, hashes)
        known = self._entries[at].known if at else None
        found = turn.read(body, scope, known)
        self._keep(turn.knowledge(found, known), found, hashes, at)
        return found

    def front(self, it: Turn, rendered: Sequence[str], system_first: bool) -> tuple[Element, ...]:
        """The elements before the messages; conversations that begin alike share them."""
        values = tuple([it.fields.get(name, b"") for name in rendered])
        tools = self._tools_of(it)
        known = tuple([e.digest for e in tools] + [message.kept.digest for message in it.leading])
        key = (it.model, rendered, system_first, values, len(tools), known)
        found = self._fronts.get(key)
        if found is None:
            found = turn.front_of(it, rendered, system_first, tools)
            if sum(map(len, values)) + len(it.model) + _ELEMENT * len(found) < LARGE_FRONT:
                self._fronts[key] = found
                if len(self._fronts) > MAX_FRONTS:
                    self._fronts.popitem(last=False)
        return found

    def _tools_of(self, it: Turn) -> tuple[Element, ...]:
        """The tools as elements, read once."""
        raw = it.fields.get("tools", b"") + it.fields.get("functions", b"")
        key = xxh3_128_digest(raw, self._seed)
        tools = self._tools.get(key)
        if tools is None:
            tools = self._tools[key] = turn.tools_element(raw)
            if len(self._tools) > MAX_TOOLS:
                self._tools.popitem(last=False)
        return tools

    def _hashes(self, body: bytes) -> list[tuple[int, bytes]]:
        """The hash of the body's beginning at every mark."""
        hashed, view, at, found = xxh3_128(seed=self._seed), memoryview(body), 0, []
        size = len(body)
        for mark in self._marks:
            if mark > size:
                break
            hashed.update(view[at:mark])
            found.append((mark, hashed.digest()))
            at = mark
        return found

    def _find(self, body: bytes, scope: bytes, hashes: list[tuple[int, bytes]]) -> _Key | None:
        for mark, digest in reversed(hashes):
            key = (scope, digest)
            entry = self._entries.get(key)
            if entry and self._goes_on_with(body, mark, entry):
                self._entries.move_to_end(key)
                return key
        return None

    def _goes_on_with(self, body: bytes, mark: int, entry: _Entry) -> bool:
        end = entry.known.head.end
        return end <= len(body) and self._rest(body, mark, end) == entry.rest

    def _rest(self, body: bytes, mark: int, end: int) -> bytes:
        return xxh3_128_digest(memoryview(body)[mark:end], self._seed)

    def _keep(
        self, known: Known | None, it: Turn, hashes: list[tuple[int, bytes]], grew: _Key | None
    ) -> None:
        """In the place of the turn before the last: a retry finds what it needs, and no
        conversation is held many times over.
        """
        if known is None:
            return
        end = known.head.end
        at = next((at for at in reversed(hashes) if at[0] <= end), None)
        if at is None:
            return
        (mark, digest), before = at, self._entries.get(grew) if grew else None
        weight, key = _weight(known, before), (it.scope, digest)
        last = before if grew != key else None
        if last is not None and last.before is not None:
            self._drop(self._entries.pop(last.before, None))
        self._drop(self._entries.pop(key, None))
        if weight > self._max // 4:
            return
        rest = self._rest(it.body, mark, end)
        self._entries[key] = _Entry(known, rest, weight, grew if last else None)
        self._held += weight
        while self._held > self._max and len(self._entries) > 1:
            self._drop(self._entries.popitem(last=False)[1])

    def _drop(self, entry: _Entry | None) -> None:
        if entry:
            self._held -= entry.weight


def _weight(known: Known, before: _Entry | None) -> int:
    """What a turn holds; what it shares with the one that it grew from is weighed already.

    The members before the messages are kept as they came, tools among them.
    """
    rows = (*known.leading, *known.messages)
    shared = (*before.known.leading, *before.known.messages) if before else ()
    if before and len(shared) <= len(rows) and shared[-1] is rows[len(shared) - 1]:
        return before.weight + sum(map(_message, rows[len(shared) :]))
    return _TURN + sum(map(len, known.head.fields.values())) + sum(map(_message, rows))


def _message(it: Message) -> int:
    pieces = len(it.calls) + len(it.edits) + len(it.slots)
    return _MESSAGE + _PIECE * max(0, pieces - 4)
