"""Keeps a reply before its end is let go: a tool may answer at once, and the next turn, on whatever
worker, must find what the client is about to lose.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core import echo, fingerprint
from proxy.core.turn import Turn
from proxy.doors import Doors
from proxy.ledger.contract import Kept
from proxy.tap import Tap


class Keeper:
    """The reply to one turn, kept once. `failed` is called where it cannot be read."""

    def __init__(self, doors: Doors, it: Turn, tap: Tap, failed: Callable[[], None]) -> None:
        self._doors, self._turn, self._tap, self._failed = doors, it, tap, failed
        self._done = False
        tap.watch()

    def due(self, whole: bool) -> bool:
        """Whether what came last, which the tap has heard, may be the end; `whole`: it is."""
        return not self._done and (whole or self._tap.ends)

    async def keep(self) -> None:
        """Waits for the ledger as long as settling may take, and hurts nobody."""
        if self._done:
            return
        try:
            kept = self._kept()
        except Exception:
            self._done = True
            self._failed()
            return
        if kept is not None:
            self._done = True
            await self._doors.ledger.keep(kept)

    def _kept(self) -> Kept | None:
        """None where the reply is not whole yet, or has nothing to lose."""
        it, seen = self._turn, self._tap.so_far()
        reply = echo.reply_of(seen)
        if reply is None:
            return None
        before = it.messages[-1].link if it.messages else fingerprint.root_of(it.scope)
        keys = echo.keys_of_reply(before, seen)
        return Kept(it.scope, it.root, it.conversation, keys, reply) if keys else None
