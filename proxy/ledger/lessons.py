"""What this worker learned or read of lessons: small values by name, each with its end; bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MAX_LESSONS = 1_000


class Lessons:
    """`clock` gives seconds since the epoch, as do the ends."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lessons: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def get(self, name: str) -> bytes | None:
        """None where nothing was learned under this name, or its time is over."""
        until, value = self._lessons.get(name, (0.0, b""))
        if until <= self._clock():
            self._lessons.pop(name, None)
            return None
        return value

    def put(self, name: str, value: bytes, until: float) -> None:
        """Beyond the bound, what was put first is let go."""
        self._lessons[name] = (until, value)
        self._lessons.move_to_end(name)
        while len(self._lessons) > MAX_LESSONS:
            self._lessons.popitem(last=False)
