"""Keeps requests from waiting for a store that does not answer. Told what happened, and asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Breaker:
    """Open from the start: it closes when the store has answered for the first time.

    While it is open nobody asks the store but one probe: at once after the first trip, since most
    troubles are over by then, then `first` seconds later, twice as long each time, up to `most`.
    Only a request that was served resets the growth: an answer to a probe may be a lucky one.
    """

    first: float
    most: float
    open: bool = True
    slow: bool = False
    _trips: int = 0

    def trip(self, slow: bool) -> None:
        """The store did not answer: in time if `slow`, at all if not."""
        if not self.open:
            self._trips += 1
        self.open, self.slow = True, slow

    def wait(self) -> float:
        """Seconds until the next probe."""
        if self._trips <= 1:
            return 0.0
        return min(self.first * 2.0 ** min(self._trips - 2, 30), self.most)

    def probe_failed(self, slow: bool) -> None:
        self._trips = max(self._trips, 1) + 1
        self.slow = slow

    def probe_worked(self) -> None:
        self.open = False

    def worked(self) -> None:
        """A request was served."""
        self._trips = 0
