"""Several worker processes on the same two sockets: starts them, starts anew those that die, stops
them all.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from socket import socket
from types import FrameType

Work = Callable[[list[socket]], None]

# A worker that dies sooner than this would die again: the pause grows with each such death.
_SOON = 5.0
_LONGEST_PAUSE = 30.0


class Workers:
    """`work` runs in each process, with the sockets. It must be picklable: a partial of a plain
    function.
    """

    def __init__(self, work: Work, sockets: list[socket], number: int, grace: float) -> None:
        self._work, self._sockets, self._number, self._grace = work, sockets, number, grace
        self._spawn = multiprocessing.get_context("spawn")
        self._stopping = threading.Event()
        self._processes: list[SpawnProcess] = []

    def run(self, ticks: Callable[[], float]) -> None:
        """Until a signal tells us to stop, and all of them have ended."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._processes = [self._started() for _ in range(self._number)]
        began = [ticks()] * self._number
        pause = 0.0
        while not self._stopping.wait(0.2):
            for slot, process in enumerate(self._processes):
                if process.is_alive() or self._stopping.is_set():
                    continue
                pause = min(_LONGEST_PAUSE, pause * 2 + 1) if ticks() - began[slot] < _SOON else 0.0
                print(_told(process, pause), file=sys.stderr, flush=True)
                if not self._stopping.wait(pause):
                    self._processes[slot], began[slot] = self._started(), ticks()
        self._end()

    def _started(self) -> SpawnProcess:
        process = self._spawn.Process(target=self._work, args=(self._sockets,))
        process.start()
        return process

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()

    def _end(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        for process in self._processes:
            process.join(self._grace)
            if process.is_alive():
                process.kill()
                process.join()


def _told(process: SpawnProcess, pause: float) -> str:
    when = f" in {pause:.0f} s" if pause else ""
    return f"lethe: worker {process.pid} ended with {process.exitcode}; another starts{when}"
