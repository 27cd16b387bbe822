"""Gets the chunks of a replay done: by several processes, and so that it can be taken up again.

What is done is written to a file beside the work, one line a chunk, as soon as it is there: a
replay that was cut off goes on with what is missing. The file begins with a digest of all that the
results depend on; where that differs, it begins anew. Results are read back from the file in the
order of the chunks, whoever was done first, so the number of processes changes nothing in them.
Memory holds what is under way and one offset a chunk.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from hashlib import blake2b
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import msgspec
from msgspec.structs import replace

from proxy import __version__
from proxy.errors import ProxyError, SettingsError
from proxy.replay.plan import Plan
from proxy.replay.replaying import replay
from proxy.replay.rows import Row, Skipped
from proxy.replay.sessions import Session, Unusable
from proxy.replay.sources import TOLD, Chunk, Found, found_in, labelled, lines_in

Tick = Callable[[int, int], None]
"""Told of every finished chunk: bytes and sessions."""


class Interrupted(ProxyError):
    """A process of the replay ended; what was done is kept."""

    code = "replay_interrupted"


class Done(msgspec.Struct, frozen=True):
    """One chunk: its sessions in order; of what was skipped the first, and how many. `lines` begin
    in it, where it is a piece of a file.
    """

    chunk: int
    lines: int
    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    skipped_count: int


class _Begun(msgspec.Struct, frozen=True):
    digest: str


_encoder = msgspec.json.Encoder(decimal_format="string")
_done = msgspec.json.Decoder(Done)
_begun = msgspec.json.Decoder(_Begun)


def do(plan: Plan, number: int, chunk: Chunk) -> tuple[int, bytes]:
    """One chunk: how many sessions, and the line that is written of it."""
    rows: list[Row] = []
    skipped: list[Skipped] = []
    count = 0
    for found in found_in(chunk):
        try:
            rows.append(_replayed(found, plan))
        except Unusable as error:
            count += 1
            skipped += [Skipped(found.file, found.line, str(error))] if count <= TOLD else []
    done = Done(number, lines_in(chunk), tuple(rows), tuple(skipped), count)
    return len(rows), _encoder.encode(done)


def _replayed(found: Found, plan: Plan) -> Row:
    if found.session is None:
        raise Unusable(found.why)
    return replay(_labelled(found.session, found.file, plan), found.file, plan)


def _labelled(session: Session, file: str, plan: Plan) -> Session:
    groups = re.search(plan.label, Path(file).as_posix()) if plan.label else None
    named = groups.groupdict() if groups else {}
    return replace(session, label=labelled(session.label, session.id, named))


class Progress:
    """The file of what is done. With `resume` it is taken up where it fits, else begun anew.

    Raises SettingsError where it cannot be written.
    """

    def __init__(self, path: Path, digest: str, resume: bool) -> None:
        self.path = path
        self._places: dict[int, int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            end = self._taken_up(digest) if resume and path.is_file() else 0
            self._file = path.open("r+b" if end else "w+b")
        except OSError as error:
            raise SettingsError(f"replay: {path} cannot be written: {error.strerror}") from error
        self._file.truncate(end)
        self._file.seek(end)
        if not end:
            self._file.write(msgspec.json.encode(_Begun(digest)) + b"\n")

    def _taken_up(self, digest: str) -> int:
        """Learn what is there, up to the first line that is not whole; where that begins."""
        with self.path.open("rb") as file:
            try:
                if _begun.decode(file.readline()).digest != digest:
                    return 0
                end = file.tell()
                while (line := file.readline()).endswith(b"\n"):
                    self._places[_done.decode(line).chunk] = end
                    end = file.tell()
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            return end if self._places else 0

    def __contains__(self, chunk: int) -> bool:
        return chunk in self._places

    def add(self, chunk: int, line: bytes) -> None:
        self._places[chunk] = self._file.tell()
        self._file.write(line + b"\n")
        self._file.flush()

    def results(self, chunks: Sequence[Chunk]) -> Iterator[Done]:
        """What is done, in the order of the chunks; line numbers are those of the files."""
        file, before = "", 0
        for at in sorted(self._places):
            self._file.seek(self._places[at])
            it = _done.decode(self._file.readline())
            before = before if chunks[at].files[0] == file else 0
            file = chunks[at].files[0]
            yield replace(it, skipped=tuple([_moved(row, before, it.lines) for row in it.skipped]))
            before += it.lines

    def close(self) -> None:
        self._file.close()


def _moved(row: Skipped, base: int, lines: int) -> Skipped:
    return replace(row, line=row.line + base) if lines else row


def digest_of(plan: Plan, files: Sequence[Path]) -> str:
    """Of all that results depend on: the plan, the files as they are now, the version."""
    hashed = blake2b(digest_size=16)
    hashed.update(f"{__version__}\n".encode() + _encoder.encode(plan))
    for path in files:
        about = path.stat()
        hashed.update(f"\n{path.resolve()}\t{about.st_size}\t{about.st_mtime_ns}".encode())
    return hashed.hexdigest()


def work(plan: Plan, chunks: Sequence[Chunk], progress: Progress, jobs: int, tick: Tick) -> None:
    """Get done what is not done yet. Raises Interrupted where a process ended by itself."""
    missing = [(at, chunk) for at, chunk in enumerate(chunks) if at not in progress]
    if min(jobs, len(missing)) <= 1:
        for at, chunk in missing:
            _take(progress, at, chunk, *do(plan, at, chunk), tick)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _let_parent_decide) as pool:
        try:
            _spread(pool, plan, missing, progress, 2 * jobs, tick)
        except BrokenProcessPool as error:
            raise Interrupted(
                "a process of the replay ended (out of memory?); what was done is kept: "
                "--resume goes on, --jobs 1 takes less memory"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _let_parent_decide() -> None:
    """An interrupt from the terminal reaches all processes; one of them ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _spread(
    pool: ProcessPoolExecutor, plan: Plan, missing: Sequence[tuple[int, Chunk]],
    progress: Progress, most: int, tick: Tick,
) -> None:  # fmt: skip
    """Keep the processes busy, with no more handed out than they soon need."""
    rest = iter(missing)
    under_way: dict[Future[tuple[int, bytes]], tuple[int, Chunk]] = {}
    while True:
        for at, chunk in islice(rest, most - len(under_way)):
            under_way[pool.submit(do, plan, at, chunk)] = (at, chunk)
        if not under_way:
            return
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            _take(progress, *under_way.pop(future), *future.result(), tick)


def _take(
    progress: Progress, at: int, chunk: Chunk, sessions: int, line: bytes, tick: Tick
) -> None:
    progress.add(at, line)
    tick(chunk.size, sessions)
