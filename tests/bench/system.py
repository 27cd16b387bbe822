"""What the operating system tells of processes: their CPU time, memory and children (Linux)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def ticks(pid: int) -> float:
    """Seconds of CPU (user, system, reaped children) that a process took, by /proc/<pid>/stat."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu(pids: Iterable[int]) -> float:
    """The same of several processes by the kernel's clocks: to the microsecond, not to 10 ms."""
    return sum(time.clock_gettime(_clock(pid)) for pid in pids)


def _clock(pid: int) -> int:
    """clock_getcpuclockid(3): the complement of the pid, and 2 for the scheduler's count."""
    return (~pid << 3) | 2


def busy() -> tuple[float, float]:
    """Seconds that all cores were at work, and that there were in all, since the machine
    started.
    """
    found = list(map(int, (_PROC / "stat").read_text().splitlines()[0].split()[1:9]))
    hertz = os.sysconf("SC_CLK_TCK")
    idle = found[3] + found[4]
    return (sum(found) - idle) / hertz, sum(found) / hertz


def spent() -> float:
    """Seconds of CPU that this process and those that it has seen to their end took."""
    return sum(os.times()[:4])


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = dict(_parents())
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def _parents() -> Iterable[tuple[int, int]]:
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), int(_stat(int(folder.name))[1])
            except OSError:  # it has ended meanwhile
                continue


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold blanks and brackets: state, parent, …"""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def memory(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: now, and at most so far."""
    lines = (_PROC / str(pid) / "status").read_text().splitlines()
    rows = {name: value for name, _, value in (line.partition(":") for line in lines)}
    now, most = (int(rows[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def cores() -> tuple[int, int]:
    """A core for the bench itself, one for the proxy alone; the same where there is one only."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]
