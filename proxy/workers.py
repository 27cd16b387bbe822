"""Several worker processes on the same two sockets: starts them, starts anew those that die, stops
them all. And what tells a worker to stop, alone or under a master.

A stop comes in many ways: to the master alone, to its whole group (Ctrl-C), to every process there
is (systemd). Workers live in sessions of their own and take a stop that is said twice for one; that
they should wait for nothing only the master tells them. Where it is gone, they drain.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from socket import socket
from types import FrameType
from typing import Protocol

from proxy.errors import ProxyError, SettingsError

# A worker that dies sooner than this would die again: the pause grows with each such death.
_SOON = 5.0
_LONGEST_PAUSE = 30.0
_GLANCE = 0.2
# Starts of each worker before we give up, where none ever came to serve.
_TRIES = 3
# One event may be told twice: by the terminal and by a parent that passes signals on.
_SAME_EVENT = 1.0
# What a worker has to close its doors when it is to wait for nothing.
_AT_ONCE = 5.0
_AT_ONCE_SIGNAL = signal.SIGQUIT
_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGHUP)


class Overseer(Protocol):
    """Who tells a worker to stop. `gone` where it went without a word: what it would have put away
    is the worker's to put away.
    """

    gone: bool

    def heed(self, drain: Callable[[], None], at_once: Callable[[], None]) -> None:
        """In the running loop of a worker that serves: call these when it is told so."""


Work = Callable[[list[socket], Overseer], None]


class Stops:
    """What signals have said so far: `asked` to stop; `again`, to wait for nothing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first: float | None = None
        self.again = False

    @property
    def asked(self) -> bool:
        return self._first is not None

    def say(self) -> None:
        now = self._clock()
        if self._first is None:
            self._first = now
        elif now - self._first > _SAME_EVENT:
            self.again = True


class Alone:
    """The worker is the whole process: it is told by signals."""

    gone = False

    def heed(self, drain: Callable[[], None], at_once: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        stops = Stops(loop.time)

        def on_signal() -> None:
            stops.say()
            if stops.again:
                at_once()
            else:
                drain()

        for number in _stop_signals():
            loop.add_signal_handler(number, on_signal)


class _Master:
    """The process that started this one: told that we serve, heard, and missed when it is gone."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self.gone = False

    def heed(self, drain: Callable[[], None], at_once: Callable[[], None]) -> None:
        loop, parent = asyncio.get_running_loop(), multiprocessing.parent_process()
        assert parent is not None

        def orphaned() -> None:
            loop.remove_reader(parent.sentinel)
            self.gone = True
            drain()

        loop.add_signal_handler(signal.SIGTERM, drain)
        loop.add_signal_handler(_AT_ONCE_SIGNAL, at_once)
        loop.add_reader(parent.sentinel, orphaned)
        with suppress(OSError):
            self._line.send(None)


def _stop_signals() -> Sequence[signal.Signals]:
    """SIGHUP is not among them where whoever started us (nohup) wants it ignored."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))


# In a worker


def _enter(work: Work, sockets: list[socket], line: Connection) -> None:
    """A worker's life. Settings that cannot be used are told to the master and nobody else."""
    os.setsid()
    for number in _NOT_FOR_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_WORKERS)
    refused = ""
    try:
        work(sockets, _Master(line))
    except* SettingsError as group:
        refused = "\n".join(str(error) for error in _alone(group))
    if refused:
        line.send(refused)
        sys.exit(2)


def _alone(group: BaseExceptionGroup[SettingsError]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _alone(error)
        else:
            yield error


# In the master


@dataclass(slots=True)
class _Slot:
    """The place of one worker. `process` is None until `due`, by the clock of `run`."""

    due: float
    process: SpawnProcess | None = None
    line: Connection | None = None
    began: float = 0.0
    pause: float = 0.0
    serves: bool = False
    refused: str = ""

    def hear(self) -> None:
        """Take in what the worker said: None for "I serve", a text for why it cannot."""
        with suppress(EOFError, OSError):
            while self.line is not None and self.line.poll():
                told = self.line.recv()
                self.serves = told is None
                self.refused = told or ""

    def empty(self, due: float, pause: float) -> None:
        if self.line is not None:
            self.line.close()
        self.due, self.pause = due, pause
        self.process = self.line = None
        self.serves, self.refused = False, ""


class Workers:
    """`work` runs in each process, with the sockets. It must be picklable: a partial of a plain
    function. `grace` is how many seconds they have to end when told to.
    """

    def __init__(self, work: Work, sockets: list[socket], number: int, grace: float) -> None:
        self._work, self._sockets, self._number, self._grace = work, sockets, number, grace
        self._spawn = multiprocessing.get_context("spawn")
        self._slots: list[_Slot] = []
        self._one_served = False
        self._fallen = 0

    def run(self, ticks: Callable[[], float]) -> None:
        """Until a signal tells us to stop, and all of them have ended.

        Raises SettingsError, in a worker's words, where it cannot use its settings and no other
        one serves; ProxyError where none ever came to serve.
        """
        stops = Stops(ticks)
        self._slots = [_Slot(ticks()) for _ in range(self._number)]
        with _withheld():
            # Begun by itself with the first worker, it would undo what is withheld from that one.
            resource_tracker.ensure_running()
        with _told_by_signals(stops):
            try:
                while not stops.asked:
                    for slot in self._slots:
                        self._watch(slot, ticks())
                    wait(self._sentinels(), _GLANCE)
            finally:
                self._end(stops, ticks)

    def _sentinels(self) -> list[int]:
        return [slot.process.sentinel for slot in self._slots if slot.process is not None]

    def _watch(self, slot: _Slot, now: float) -> None:
        if slot.process is None:
            if now >= slot.due:
                self._start(slot, now)
            return
        alive = slot.process.is_alive()
        slot.hear()
        self._one_served = self._one_served or slot.serves
        if not alive:
            self._fell(slot, slot.process, now)

    def _start(self, slot: _Slot, now: float) -> None:
        slot.line, told = self._spawn.Pipe(duplex=False)
        process = self._spawn.Process(target=_enter, args=(self._work, self._sockets, told))
        with _withheld():
            process.start()
        told.close()
        slot.process, slot.began = process, now

    def _fell(self, slot: _Slot, process: SpawnProcess, now: float) -> None:
        refused = slot.refused
        pause = min(_LONGEST_PAUSE, slot.pause * 2 + 1) if now - slot.began < _SOON else 0.0
        slot.empty(now + pause, pause)
        if refused and not any(it.serves for it in self._slots):
            raise SettingsError(refused)
        self._fallen += 1
        if not self._one_served and self._fallen >= _TRIES * self._number:
            raise ProxyError(f"none of {self._fallen} workers that were started came to serve")
        # Where there is no terminal any more, there is nobody to tell.
        with suppress(OSError):
            print(_told(process, pause, refused), file=sys.stderr, flush=True)

    def _end(self, stops: Stops, ticks: Callable[[], float]) -> None:
        for listener in self._sockets:
            # As soon as the workers take no more, whoever calls is to be refused, not left waiting.
            listener.close()
        processes = [slot.process for slot in self._slots if slot.process is not None]
        for process in processes:
            process.terminate()
        deadline, hurried = ticks() + self._grace, False
        while left := [process for process in processes if process.is_alive()]:
            wait([process.sentinel for process in left], _GLANCE)
            if stops.again and not hurried:
                hurried, deadline = True, min(deadline, ticks() + _AT_ONCE)
                _hurry(left)
            if ticks() > deadline:
                for process in left:
                    process.kill()


def _hurry(processes: Sequence[SpawnProcess]) -> None:
    for process in processes:
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, _AT_ONCE_SIGNAL)


@contextmanager
def _told_by_signals(stops: Stops) -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        stops.say()

    before = {number: signal.signal(number, on_signal) for number in _stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _withheld() -> Iterator[None]:
    """A worker that begins here is out of reach for what is not for it, until it has said so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _told(process: SpawnProcess, pause: float, refused: str) -> str:
    when = f" in {pause:.0f} s" if pause else ""
    why = f" ({refused})" if refused else ""
    return f"lethe: worker {process.pid} ended with {process.exitcode}{why}; another starts{when}"
