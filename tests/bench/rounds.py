"""The rounds: every contender in turn under the same load, several times over, in one run."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import contenders, system
from tests.bench.bodies import SIZES, Size
from tests.bench.contenders import SHARED, Contender

PLAIN, STREAMED, ALONE = "plain", "streamed", "alone"
CHUNKS, CHUNKS_ASKED = "chunks", "chunks, usage asked"
STREAMS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds of each kind, and how long one lasts in seconds."""

    rounds: int = 5
    seconds: float = 1.0
    streamed: int = 3
    alone: int = 5
    alone_seconds: float = 0.8
    chunks: int = 3
    events: int = 2_000


FULL = Plan()
QUICK = Plan(2, 0.4, 1, 2, 0.3, 1, 500)


@dataclass(frozen=True, slots=True)
class Round:
    """One contender in one round. `cpu` (None for the upstream itself) and `waits` are in seconds.

    `firsts` are the waits of requests that begin a conversation, left out of `waits`. `forwarded`
    counts the bytes of bodies that reached the upstream, `marks` events, `reads` what they came in.
    """

    seconds: float
    cpu: float | None
    waits: list[float]
    firsts: list[float]
    sent: int
    forwarded: int
    broken: int
    marks: int
    reads: int

    @property
    def requests(self) -> int:
        return len(self.waits) + len(self.firsts)


@dataclass(slots=True)
class Results:
    """Rounds by kind, size and contender, in order; memory as (now, at most), and when it had
    begun.

    `others` is the share of all cores that was taken by whatever else ran meanwhile.
    """

    rounds: dict[tuple[str, str], dict[str, list[Round]]] = field(default_factory=dict)
    memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)
    others: float = 0.0

    def add(self, kind: str, size: str, name: str, round: Round) -> None:
        self.rounds.setdefault((kind, size), {}).setdefault(name, []).append(round)


class Rig:
    """The upstream and the load, both running."""

    def __init__(self, upstream: int, load: subprocess.Popen[bytes]) -> None:
        self.upstream = upstream
        self._load = load

    def run(self, contender: Contender, opened: dict[str, Any], run: dict[str, Any]) -> Round:
        """One round of one lane, opened where it is new."""
        name = f"{contender.port} {sorted(opened.items())}"
        pids = contender.pids()
        before, cpu = self._forwarded(), system.cpu(pids)
        found = self._ask({"lane": name, "open": {"port": contender.port, **opened}, "run": run})
        spent = system.cpu(pids) - cpu if pids else None
        return Round(cpu=spent, forwarded=self._forwarded() - before, **found)

    def forget(self) -> None:
        """Let go of all lanes: those that they lead to are about to stop."""
        self._say({"forget": True})

    def _say(self, command: dict[str, Any]) -> None:
        assert self._load.stdin is not None
        self._load.stdin.write(json.dumps(command).encode() + b"\n")
        self._load.stdin.flush()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._load.stdout is not None
        self._say(command)
        line = self._load.stdout.readline()
        if not line:
            raise RuntimeError("the load has ended; what it said is above")
        found: dict[str, Any] = json.loads(line)
        return found

    def _forwarded(self) -> int:
        asked = http.client.HTTPConnection("127.0.0.1", self.upstream)
        asked.request("GET", "/counts")
        count: int = json.loads(asked.getresponse().read())["bytes"]
        asked.close()
        return count


@contextmanager
def rig(core: int, folder: Path) -> Iterator[Rig]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": None}
    module = [sys.executable, "-m"]
    with (
        contenders.running([*module, "tests.bench.upstream"], folder / "up", core, **pipes) as up,
        contenders.running([*module, "tests.bench.load"], folder / "load", core, **pipes) as load,
    ):
        assert up.stdout is not None
        yield Rig(int(up.stdout.readline()), load)


def run(plan: Plan, say: Callable[[str], None]) -> Results:
    """All of it."""
    own, theirs = system.cores()
    os.sched_setaffinity(0, {own})
    results = Results()
    before, own_before = system.busy(), system.spent()
    with tempfile.TemporaryDirectory(prefix="bench-") as name, rig(own, Path(name)) as found:
        for size in SIZES:
            with contenders.started(found.upstream, own, theirs, Path(name)) as all:
                _size(found, plan, size, all, results, say)
                found.forget()
    busy, total = (after - b for after, b in zip(system.busy(), before, strict=True))
    results.others = max(0.0, busy - (system.spent() - own_before)) / total
    return results


def _size(
    rig: Rig, plan: Plan, size: Size, all: list[Contender], results: Results,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """One size: whole replies, streams, one connection alone; with the smallest, long streams."""
    connections = 8 if size.bytes > 500_000 else 16
    proxies = [each for each in all if each.pid]
    if size is SIZES[-1]:
        results.idle = {each.name: system.memory(each.pids()[-1])[0] for each in proxies}

    def stage(
        kind: str, rounds: int, seconds: float, chosen: list[Contender], **opened: Any
    ) -> None:
        say(f"{size.name}: {kind}")
        lane = {"size": size.name, "connections": connections, "events": 0, "asks": False, **opened}
        least = 1 if lane["events"] else 2
        for each in chosen:
            rig.run(each, lane, {"seconds": 0, "rounds": least})
        for number in range(rounds):
            for each in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
                found = rig.run(each, lane, {"seconds": seconds, "rounds": 1})
                results.add(kind, size.name, each.name, found)

    stage(PLAIN, plan.rounds, plan.seconds, all)
    if size is SIZES[-1]:
        results.memory = {each.name: system.memory(each.pids()[-1]) for each in proxies}
    stage(STREAMED, plan.streamed, plan.seconds, proxies, events=20)
    if size is not SIZES[0]:
        stage(ALONE, plan.alone, plan.alone_seconds, all, connections=1)
        return
    stream = {"connections": STREAMS, "events": plan.events}
    alone = [each for each in proxies if each.name != SHARED]
    stage(CHUNKS_ASKED, plan.chunks, 0, alone, asks=True, **stream)
    stage(CHUNKS, plan.chunks, 0, alone, **stream)


def as_json(results: Results) -> dict[str, Any]:
    """The rounds with their waits summed up."""
    rounds = {
        f"{kind}, {size}": {name: [_row(r) for r in each] for name, each in by_name.items()}
        for (kind, size), by_name in results.rounds.items()
    }
    return {
        "rounds": rounds,
        "memory": results.memory,
        "memory_idle": results.idle,
        "others": results.others,
    }


def _row(round: Round) -> dict[str, Any]:
    row = asdict(round)
    row["waits"] = [quantile(round.waits, 0.5), quantile(round.waits, 0.99)]
    row["firsts"] = quantile(round.firsts, 0.5)
    return {"requests": round.requests, **row}


def quantile(values: list[float], share: float) -> float:
    """The value below which that share of the values lies; NaN of nothing."""
    if not values:
        return float("nan")
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]
