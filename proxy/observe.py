"""Counts and tells every exchange once, when it is over.

With several workers each writes its numbers to a file of its own once a second, and whichever
worker is scraped adds them all up, so a counter never depends on who answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import orjson

from proxy.core.outcome import Outcome, Route, as_line
from proxy.counting import Counts, Numbers, Vocabulary, add_up, count, count_gen_ai
from proxy.families import FAMILIES


class Observer:
    """Where exchanges are told. `folder` is shared by all workers; None where there is one."""

    def __init__(
        self,
        folder: Path | None,
        log: BinaryIO | None,
        model_labels: int = 50,
        key_labels: int = 50,
        gen_ai: bool = False,
        pid: int | None = None,
    ) -> None:
        self.counts = Counts()
        self.gen_ai = gen_ai
        self._models, self._keys = Vocabulary(model_labels), Vocabulary(key_labels)
        self._folder, self._log = folder, log
        self._pid = os.getpid() if pid is None else pid
        self._lines: list[bytes] = []
        self.in_flight = 0
        self.gauges: Callable[[Counts], None] = lambda counts: None

    def tell(self, outcome: Outcome) -> bytes:
        """Count one exchange and queue its log line, which is returned: a JSON object, one line."""
        count(self.counts, self._models, self._keys, outcome)
        # A copy: orjson hands out a buffer of 8 KB, however little is in it.
        line = bytes(memoryview(orjson.dumps(as_line(outcome))))
        if self.gen_ai and outcome.route is Route.CHAT:
            count_gen_ai(self.counts, outcome)
        if self._log is not None:
            if len(self._lines) < MAX_LINES:
                self._lines.append(line)
            else:
                self.counts.add("lethe_log_lines_lost_total")
        return line

    @property
    def queued(self) -> int:
        """Log lines that wait to be taken."""
        return len(self._lines)

    def taken_lines(self) -> list[bytes]:
        """The log lines that are queued, taken out of the queue. On the event loop."""
        lines, self._lines = self._lines, []
        return lines

    def write_lines(self, lines: list[bytes]) -> None:
        """Write log lines that were taken. May block: called off the event loop."""
        if not lines or self._log is None:
            return
        try:
            self._log.write(b"\n".join(lines) + b"\n")
            self._log.flush()
        except OSError:
            self.counts.add("lethe_log_lines_lost_total", (), len(lines))

    def own(self) -> Numbers:
        """A copy of this worker's numbers as they are. On the event loop, where they change."""
        self._gauge()
        return _still(self.counts.numbers)

    def save(self, numbers: Numbers) -> None:
        """Leave this worker's numbers where the others find them. May block, as above."""
        if self._folder is None:
            return
        path = self._path(self._folder)
        partial = path.with_suffix(".partial")
        try:
            partial.write_bytes(_encode(numbers))
            partial.replace(path)
        except (OSError, ValueError, TypeError):
            # A full disk is no reason to stop serving; the next second may write it.
            self.counts.add("lethe_faults_total", ("metrics",))

    def _path(self, folder: Path) -> Path:
        return folder / f"{self._pid}.numbers"

    def leave(self) -> None:
        """The worker ends: its counters stay, what it held does not."""
        self.in_flight = 0
        self.gauges = lambda counts: None
        self.counts.numbers = _without_gauges(self.counts.numbers)
        self.save(self.counts.numbers)

    def numbers(self, own: Numbers | None = None) -> Numbers:
        """This worker's numbers, with those that the others left."""
        return add_up([self.own() if own is None else own, *self._others()])

    def _gauge(self) -> None:
        self.counts.set("lethe_in_flight", self.in_flight)
        self.counts.set("lethe_workers", 1)
        self.gauges(self.counts)

    def _others(self) -> Iterator[Numbers]:
        """What the other workers left. One that was killed leaves its counters, which still hold;
        its gauges do not, and are known by a file that is not written any more while ours is.
        """
        if self._folder is None:
            return
        mine = self._path(self._folder)
        for path in sorted(self._folder.glob("*.numbers")):
            if path == mine:
                continue
            numbers = _decode(path)
            yield numbers if _together(mine, path) else _without_gauges(numbers)


MAX_LINES = 20_000
STALE = 5.0
"""Seconds after which a worker's gauges are let go; each writes them once a second."""


def _together(mine: Path, other: Path) -> bool:
    """Whether both were written at about one time; also where that cannot be told."""
    try:
        return abs(mine.stat().st_mtime - other.stat().st_mtime) <= STALE
    except OSError:
        return True


def _without_gauges(numbers: Numbers) -> Numbers:
    gauges = {family.name for family in FAMILIES if family.kind == "gauge"}
    return {name: {} if name in gauges else series for name, series in numbers.items()}


def _still(numbers: Numbers) -> Numbers:
    """A copy that does not grow while another thread reads it."""
    return {name: series.copy() for name, series in numbers.items()}


def _encode(numbers: Numbers) -> bytes:
    rows = [
        [name, list(map(list, series)), list(series.values())] for name, series in numbers.items()
    ]
    return msgspec.msgpack.encode(rows)


def _decode(path: Path) -> Numbers:
    """What another worker left; nothing where it cannot be read."""
    try:
        rows = msgspec.msgpack.decode(path.read_bytes())
        return {
            name: dict(zip(map(tuple, keys), values, strict=True)) for name, keys, values in rows
        }
    except (OSError, msgspec.DecodeError, ValueError, TypeError):
        return {}
