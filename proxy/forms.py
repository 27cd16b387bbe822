"""The forms that messages take (`core.form`), each worked out once: old messages are the same on
every turn of a conversation.
"""

from __future__ import annotations

from msgspec.structs import replace
from xxhash import xxh3_128_digest

from proxy.core import form
from proxy.core.fingerprint import Message
from proxy.core.form import Shape, Wire
from proxy.core.replies import Reply
from proxy.core.verdict import Kind

_MOST = 4_000
"""Forms that are remembered. One holds the reasoning that it puts back, some KB."""
_MOST_WIRES = 1_000
_Key = tuple[bytes, Kind, Reply | None, Wire]


class Forms:
    """What one process remembers of them. `seed` keeps others from finding collisions."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._found: dict[_Key, Shape | None] = {}
        self._wires: dict[bytes, Wire] = {}

    def wire(self, raw: bytes) -> Wire:
        """A pinned wire; there are few of them, and every exchange reads one."""
        found = self._wires.get(raw)
        if found is None:
            if len(self._wires) >= _MOST_WIRES:
                self._wires.clear()
            found = self._wires[raw] = form.unpacked(raw, Wire())
        return found

    def shape(
        self, body: bytes, message: Message, kind: Kind, reply: Reply | None, wire: Wire
    ) -> Shape | None:
        """As `form.shape` gives it."""
        raw = body[message.start : message.end]
        key = (xxh3_128_digest(raw, self._seed), kind, reply, wire)
        if key not in self._found:
            if len(self._found) >= _MOST:
                self._found.clear()
            apart = replace(message, start=0, end=len(raw))
            self._found[key] = form.shape(raw, apart, kind, reply, wire)
        shape = self._found[key]
        return shape and _at(shape, message.start)


def _at(shape: Shape, place: int) -> Shape:
    """The shape with its edits where the message stands."""
    edits = [replace(e, start=e.start + place, end=e.end + place) for e in shape.edits]
    return replace(shape, edits=tuple(edits))
