"""One conversation in a worker's memory, and its shelf: replies, what was found of them, pins.

A reply is kept under several keys and the first one under a key stays. What was found for an echo
is known by the echo's link. Only a conversation that has any of this has a shelf.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from proxy.core.replies import Reply
from proxy.core.sent import Sent
from proxy.ledger.contract import Entry, Grade
from proxy.ledger.trail import Trail

# What the objects take, measured with tracemalloc and rounded up: good for a bound.
_THREAD, _KEY, _FINDING, _PIN = 1600, 150, 200, 250
SHELF = 700

MAX_PINS = 1_000


@dataclass(slots=True, eq=False)
class Held:
    """A reply that this worker keeps. `id` is its name in the shared store, where there is one;
    `stored` says that the store is known to have it.
    """

    keys: tuple[bytes, ...]
    reply: Reply
    id: bytes = b""
    stored: bool = False


class Shelf:
    """Every verb gives what it adds to the weight, in bytes; those that let go, what it loses."""

    __slots__ = ("_replies", "by_key", "found", "pins", "weight")

    def __init__(self) -> None:
        self.by_key: dict[bytes, Held] = {}
        self.found: dict[bytes, Reply | None] = {}
        self.pins: dict[str, bytes] = {}
        self.weight = 0
        self._replies: dict[int, Reply] = {}

    def keep(self, held: Held) -> int:
        """Put a reply under those of its keys that are free."""
        fresh = [key for key in held.keys if key not in self.by_key]
        self.by_key.update(dict.fromkeys(fresh, held))
        return self._added(len(fresh) * _KEY + (self._weighed(held.reply) if fresh else 0))

    def find(self, link: bytes, reply: Reply | None) -> int:
        """Know what was found for an echo; None: nothing."""
        self.found[link] = reply
        return self._added(_FINDING + (0 if reply is None else self._weighed(reply)))

    def pin(self, name: str, value: bytes) -> int:
        """Know what is pinned under a name; beyond a bound the oldest is let go."""
        lost = 0
        if name not in self.pins and len(self.pins) >= MAX_PINS:
            first = next(iter(self.pins))
            lost = _pin_weight(first, self.pins.pop(first))
        self.pins[name] = value
        return self._added(_pin_weight(name, value) - lost)

    def trim(self, most: int, most_bytes: int) -> int:
        """Let go the oldest replies, as long as there are too many of them, or too large ones."""
        before = self.weight
        while self.by_key and (len(self._replies) > most or self.weight > most_bytes):
            self.let_go(next(iter(self.by_key.values())))
        return before - self.weight

    def let_go(self, held: Held) -> int:
        """Let one reply go; what was found stays found."""
        mine = [key for key in held.keys if self.by_key.get(key) is held]
        for key in mine:
            del self.by_key[key]
        lost = len(mine) * _KEY
        if not any(reply is held.reply for reply in self.found.values()):
            lost += held.reply.weight if self._replies.pop(id(held.reply), None) else 0
        self.weight -= lost
        return lost

    def witness(self) -> bytes:
        """The field of the store's that was put last."""
        if self.found:
            return b"w" + next(reversed(self.found))
        return b"q" + next(reversed(self.pins)).encode() if self.pins else b""

    def replies(self) -> tuple[Reply, ...]:
        return tuple(self._replies.values())

    def _weighed(self, reply: Reply) -> int:
        if id(reply) in self._replies:
            return 0
        self._replies[id(reply)] = reply
        return reply.weight

    def _added(self, more: int) -> int:
        self.weight += more
        return more


def _pin_weight(name: str, value: bytes) -> int:
    return _PIN + len(name) + len(value)


@dataclass(slots=True)
class Thread:
    """One conversation. `borne` says of every link with a known verdict whether it stands there.

    The others were found to be decided by an earlier link of their step: nothing can be put on them
    any more, so that is as final as a verdict. `stored` is what the shared store holds, where there
    is one: the last record written, and how many parents it has there.
    """

    scope: bytes
    root: bytes
    conversation: bytes
    borne: dict[bytes, bool] = field(default_factory=dict)
    trail: Trail = field(default_factory=Trail)
    hints: set[tuple[bytes, bytes]] = field(default_factory=set)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    outcomes: deque[tuple[float, bytes]] = field(default_factory=deque)
    turns: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    listed: bool = False
    task: str = ""
    grade: Grade | None = None
    used_at: float = 0.0
    stored: tuple[Sent, int] | None = None
    shelf: Shelf | None = None
    weight: int = _THREAD
