"""The forms that messages take (`core.form`), each worked out once: old messages are the same on
every turn of a conversation.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace
from xxhash import xxh3_128_digest

from proxy.core import dialect, form
from proxy.core.dialect import Wire
from proxy.core.fingerprint import Message
from proxy.core.form import Shape
from proxy.core.replies import Reply
from proxy.core.verdict import Kind

MOST_BYTES = 8 << 20
"""What all forms may hold: texts that are put in, and what they are known by."""
_LARGEST = 64 * 1024
"""One that holds more is worked out each time."""
_FORM = 600
_MOST_WIRES = 1_000
_Key = tuple[bytes, Kind, Reply | None, Wire]


class Forms:
    """What one process remembers of them. `seed` keeps others from finding collisions."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._found: OrderedDict[_Key, tuple[Shape | None, int]] = OrderedDict()
        self._held = 0
        self._wires: dict[bytes, Wire] = {}

    def wire(self, raw: bytes) -> Wire:
        """A pinned wire; there are few of them, and every exchange reads one."""
        found = self._wires.get(raw)
        if found is None:
            if len(self._wires) >= _MOST_WIRES:
                self._wires.clear()
            found = self._wires[raw] = dialect.unpacked(raw, Wire())
        return found

    def shape(
        self, body: bytes, message: Message, kind: Kind, reply: Reply | None, wire: Wire
    ) -> Shape | None:
        """As `form.shape` gives it."""
        raw = body[message.start : message.end]
        key = (xxh3_128_digest(raw, self._seed), kind, reply, wire)
        known = self._found.get(key)
        if known is not None:
            self._found.move_to_end(key)
            shape = known[0]
        else:
            apart = replace(message, start=0, end=len(raw))
            shape = form.shape(raw, apart, kind, reply, wire)
            self._keep(key, shape)
        return shape and _at(shape, message.start)

    def _keep(self, key: _Key, shape: Shape | None) -> None:
        edits, reply = shape.edits if shape else (), key[2]
        weight = _FORM + sum(len(edit.text) + _EDIT for edit in edits)
        weight += reply.weight if reply else 0
        if weight > _LARGEST:
            return
        self._found[key] = (shape, weight)
        self._held += weight
        while self._held > MOST_BYTES:
            self._held -= self._found.popitem(last=False)[1][1]


_EDIT = 100


def _at(shape: Shape, place: int) -> Shape:
    """The shape with its edits where the message stands."""
    edits = [replace(e, start=e.start + place, end=e.end + place) for e in shape.edits]
    return replace(shape, edits=tuple(edits))
