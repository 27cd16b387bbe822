"""What one worker knows of replies, of what their echoes were found to be, and of pins.

A reply lies on the shelf of the conversation that it was kept under: of a first turn, that is the
root's, where the turns that grow from it look too. What is found is put on the shelf of the
conversation that asked, and goes with it. So it is with pins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.core.replies import Reply
from proxy.ledger.contract import Ask
from proxy.ledger.thread import SHELF, Held, Shelf, Thread

# A first message that many begin with gathers replies that nothing echoes: they are bounded, in
# number and in what they take of all memory.
MAX_FIRST_REPLIES = 2_000
_FIRST_SHARE = 4


class Standing(NamedTuple):
    """What stands for the echoes and pins of a turn; how many of the echoes were new misses."""

    found: dict[bytes, Reply | None]
    missed: int
    pins: dict[str, bytes]


class Echoes:
    """`weigh` is told what a conversation came to hold more, in bytes; `max_bytes` is the bound of
    all.
    """

    def __init__(
        self, threads: Mapping[bytes, Thread], weigh: Callable[[Thread, int], None], max_bytes: int
    ) -> None:
        self._threads, self._weigh = threads, weigh
        self._max_first_bytes = max_bytes // _FIRST_SHARE
        self._found: dict[bytes, Reply | None] = {}

    # What is known.

    def echoed(self, links: Sequence[bytes]) -> dict[bytes, Reply | None]:
        found = self._found
        return {link: found[link] for link in links if link in found}

    def pinned(self, conversation: bytes) -> Mapping[str, bytes]:
        shelf = self._shelf_of(conversation)
        return {} if shelf is None else dict(shelf.pins)

    def held(self, ask: Ask, keys: Sequence[bytes]) -> Held | None:
        """The reply kept under the strongest of these keys that has one."""
        shelves = [self._shelf_of(name) for name in (ask.conversation, ask.root)]
        for key in keys:
            for shelf in shelves:
                if shelf is not None and key in shelf.by_key:
                    return shelf.by_key[key]
        return None

    def offered(self, ask: Ask) -> dict[str, bytes | None]:
        """What this worker offers for each pin: the first turn's, where it knows that."""
        first = self.pinned(ask.root)
        return {name: first.get(name, value) for name, value in ask.pins.items()}

    def standing(self, conversation: bytes) -> Standing:
        """All that stands in this conversation."""
        shelf = self._shelf_of(conversation)
        return Standing(dict(shelf.found), 0, dict(shelf.pins)) if shelf else Standing({}, 0, {})

    # What is added.

    def keep(self, thread: Thread, held: Held) -> None:
        shelf = self._shelf(thread)
        self._weigh(thread, shelf.keep(held))
        if thread.conversation == thread.root:
            self._weigh(thread, -shelf.trim(MAX_FIRST_REPLIES, self._max_first_bytes))

    def find(self, thread: Thread, link: bytes, reply: Reply | None) -> Reply | None:
        """Know what was found for an echo. What is known already stays, and comes back."""
        if link not in self._found:
            self._found[link] = reply
            self._weigh(thread, self._shelf(thread).find(link, reply))
        return self._found[link]

    def pin(self, thread: Thread, name: str, value: bytes) -> bytes:
        """Know what is pinned. What is known already stays, and comes back."""
        shelf = self._shelf(thread)
        if name not in shelf.pins:
            self._weigh(thread, shelf.pin(name, value))
        return shelf.pins[name]

    def settle(self, thread: Thread, ask: Ask) -> Standing:
        """Settle by this worker alone."""
        found, missed = self.echoed([echo.link for echo in ask.echoes]), 0
        for echo in ask.echoes:
            if echo.link not in found:
                held = self.held(ask, echo.keys)
                found[echo.link] = self.find(thread, echo.link, held.reply if held else None)
                missed += held is None
        pins = dict(self.pinned(ask.conversation))
        for name, value in self.offered(ask).items():
            if value is not None:
                pins[name] = self.pin(thread, name, value)
        return Standing(found, missed, {name: pins[name] for name in ask.pins if name in pins})

    # What goes.

    def drop(self, thread: Thread) -> None:
        for link in thread.shelf.found if thread.shelf else ():
            self._found.pop(link, None)

    def forget(self, thread: Thread) -> None:
        """Take what this conversation found from what was kept under its root."""
        root = self._threads.get(thread.root)
        if root is None or root.shelf is None or thread.shelf is None:
            return
        gone = thread.shelf.replies()
        for held in {id(held): held for held in root.shelf.by_key.values()}.values():
            if held.reply in gone:
                self._weigh(root, -root.shelf.let_go(held))

    def _shelf_of(self, conversation: bytes) -> Shelf | None:
        thread = self._threads.get(conversation)
        return None if thread is None else thread.shelf

    def _shelf(self, thread: Thread) -> Shelf:
        if thread.shelf is None:
            thread.shelf = Shelf()
            self._weigh(thread, SHELF)
        return thread.shelf
