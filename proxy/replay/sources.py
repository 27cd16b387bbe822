"""Where sessions come from: files, cut into chunks that processes work on side by side.

A file holds one session (JSON), one session a line (JSON Lines), or one exchange a line. The first
are taken together until they are worth a process's while; the second are cut at byte offsets, and a
line belongs to the chunk in which it begins; the third are gone through once to learn which lines
are one conversation, and then cut by conversation. So memory holds a session at a time, and of a
file of exchanges one number for each of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.wire import chat
from proxy.errors import SettingsError
from proxy.replay.readers import exchanges, session_of
from proxy.replay.rows import Skipped
from proxy.replay.sessions import Asked, Label, Session, Unusable

CHUNK = 8 << 20
"""Bytes that a process takes at a time."""
MOST_FILES = 256
"""Files of one session each that it takes at a time."""
LONGEST_LINE = 512 << 20
"""Bytes of one line or of a file with one session; what is longer is skipped."""
TOLD = 20
"""Of what is skipped, so many are named; all are counted."""
_LINES = frozenset({".jsonl", ".ndjson"})
_READ = frozenset({".json", *_LINES})


class Conversation(msgspec.Struct, frozen=True):
    """The exchanges of one conversation: the line of the first, the offset and length of each."""

    line: int
    spans: tuple[tuple[int, int], ...]


class Chunk(msgspec.Struct, frozen=True):
    """What is worked on at a time, one of three: `files` of one session each; the lines that begin
    from `start` to before `end` of a file; or `conversations` of a file of exchanges. `size` is in
    bytes.
    """

    files: tuple[str, ...]
    size: int
    start: int = 0
    end: int = 0
    conversations: tuple[Conversation, ...] = ()


class Sources(msgspec.Struct, frozen=True):
    """All that is to be replayed, in order; and what was found unusable on the way here."""

    chunks: tuple[Chunk, ...]
    skipped: tuple[Skipped, ...]
    skipped_count: int


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and those below the folders that are. Raises SettingsError."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = sorted(it for it in path.rglob("*") if it.suffix in _READ and it.is_file())
            found |= dict.fromkeys(below)
        elif path.is_file():
            found[path] = None
        else:
            raise SettingsError(f"replay: {path} is neither a file nor a folder")
    if not found:
        raise SettingsError("replay: no .json, .jsonl or .ndjson file is there")
    return list(found)


def sources(files: Sequence[Path], chunk: int = CHUNK) -> Sources:
    """Cut the files. Those of exchanges are read once. Raises SettingsError for what is unread."""
    chunks: list[Chunk] = []
    skipped: list[Skipped] = []
    count, single = 0, list[tuple[str, int]]()
    for path in files:
        try:
            size, lines = path.stat().st_size, _is_lines(path)
            if not lines:
                single.append((str(path), size))
                continue
            if _holds_exchanges(path):
                grouped, wrong = _grouped(path)
                chunks += _cut_conversations(str(path), grouped, chunk)
                skipped += wrong.told[: TOLD - len(skipped)]
                count += wrong.count
            else:
                chunks += _cut_lines(str(path), size, chunk)
        except OSError as error:
            raise SettingsError(f"replay: {path} cannot be read: {error.strerror}") from error
    return Sources((*_together(single, chunk), *chunks), tuple(skipped), count)


def _is_lines(path: Path) -> bool:
    """By its name; else whether its first line is a whole JSON object and another follows."""
    if path.suffix in _LINES or path.suffix == ".json":
        return path.suffix in _LINES
    with path.open("rb") as file:
        first, more = file.readline(CHUNK), file.readline(CHUNK).strip()
    return bool(more) and isinstance(_decoded(first), dict)


def _decoded(raw: bytes) -> Any:
    try:
        return chat.decode(raw)
    except ValueError:
        return None


def _holds_exchanges(path: Path) -> bool:
    """By its first line that can be read."""
    with path.open("rb") as file:
        rows = (_decoded(line) for line in iter(lambda: file.readline(LONGEST_LINE), b""))
        return exchanges.claims(next((row for row in rows if row is not None), None))


def _together(files: Sequence[tuple[str, int]], chunk: int) -> Iterator[Chunk]:
    taken: list[str] = []
    size = 0
    for name, bytes_ in files:
        if taken and (size + bytes_ > chunk or len(taken) == MOST_FILES):
            yield Chunk(tuple(taken), size)
            taken, size = [], 0
        taken.append(name)
        size += bytes_
    if taken:
        yield Chunk(tuple(taken), size)


def _cut_lines(name: str, size: int, chunk: int) -> Iterator[Chunk]:
    for start in range(0, size, chunk):
        end = min(start + chunk, size)
        yield Chunk((name,), end - start, start, end)


# Exchanges


class _Wrong:
    """What is skipped: all of it counted, the first of it named."""

    def __init__(self) -> None:
        self.told: list[Skipped] = []
        self.count = 0

    def add(self, it: Skipped) -> None:
        self.count += 1
        if len(self.told) < TOLD:
            self.told.append(it)


def _grouped(path: Path) -> tuple[Iterator[Conversation], _Wrong]:
    """The conversations of a file of exchanges, in the order in which they begin."""
    grouping, wrong = exchanges.Grouping(), _Wrong()
    rows: list[array[int]] = []
    for number, at, raw in _lines_of(path):
        try:
            group = grouping.of(exchanges.names(_exchange(raw)))
        except Unusable as error:
            wrong.add(Skipped(str(path), number, str(error)))
            continue
        if group == len(rows):
            rows.append(array("Q", [number]))
        rows[group].extend((at, len(raw)))
    return (_conversation(row) for row in rows), wrong


def _conversation(row: array[int]) -> Conversation:
    line, *places = row
    return Conversation(line, tuple(zip(places[::2], places[1::2], strict=True)))


def _exchange(raw: bytes) -> dict[str, Any]:
    record = _decoded(raw)
    if not isinstance(record, dict) or not exchanges.claims(record):
        raise Unusable("no JSON" if record is None else "no request with its response")
    return record


def _lines_of(
    path: Path, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, bytes]]:
    """Lines that are not blank, with their numbers from 1 and offsets, of those that begin from
    `start` to before `end`. One that is too long is given as far as it may go.
    """
    size = path.stat().st_size if end is None else end
    with path.open("rb") as file:
        file.seek(max(start - 1, 0))
        if start:
            _pass(file)
        number = 0
        while (at := file.tell()) < size:
            raw = file.readline(LONGEST_LINE)
            if not raw:
                return
            if not raw.endswith(b"\n"):
                _pass(file)
            number += 1
            if raw.strip():
                yield number, at, raw


def _pass(file: Any) -> None:
    """Go on to the next line."""
    while (rest := file.readline(CHUNK)) and not rest.endswith(b"\n"):
        pass


def _cut_conversations(name: str, rows: Iterable[Conversation], chunk: int) -> Iterator[Chunk]:
    taken: list[Conversation] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += sum(length for _, length in row.spans)
        if size >= chunk:
            yield Chunk((name,), size, conversations=tuple(taken))
            taken, size = [], 0
    if taken:
        yield Chunk((name,), size, conversations=tuple(taken))


# What a chunk holds


class Found(msgspec.Struct, frozen=True):
    """One session, or why there is none. `line` counts from the chunk's first line where the chunk
    is a piece of a file, else from the file's; 0 is the whole file.
    """

    file: str
    line: int
    session: Session | None
    why: str = ""


def found_in(chunk: Chunk) -> Iterator[Found]:
    """The sessions of a chunk, one at a time."""
    if chunk.conversations:
        return map(lambda it: _of_exchanges(chunk.files[0], it), chunk.conversations)
    if chunk.end:
        return _of_lines(chunk)
    return map(_of_file, chunk.files)


def _of_file(name: str) -> Found:
    path = Path(name)
    try:
        if path.stat().st_size > LONGEST_LINE:
            return Found(name, 0, None, f"longer than {LONGEST_LINE >> 20} MB")
        return _read(name, 0, path.read_bytes(), path.name)
    except OSError as error:
        return Found(name, 0, None, f"cannot be read: {error.strerror}")


def _of_lines(chunk: Chunk) -> Iterator[Found]:
    path = Path(chunk.files[0])
    for number, at, raw in _lines_of(path, chunk.start, chunk.end):
        yield _read(str(path), number, raw, f"{path.name}@{at}")


def _read(file: str, line: int, raw: bytes, name: str) -> Found:
    try:
        record = chat.decode(raw)
    except ValueError:
        return Found(file, line, None, "no JSON")
    try:
        return Found(file, line, session_of(record, name))
    except Unusable as error:
        return Found(file, line, None, str(error))


def _of_exchanges(file: str, it: Conversation) -> Found:
    path = Path(file)
    try:
        first = _exchange(_at(path, *it.spans[0]))
    except (Unusable, OSError) as error:
        return Found(file, it.line, None, str(error) or "cannot be read")

    def requests() -> Iterator[Asked]:
        for span in it.spans:
            yield exchanges.asked(_exchange(_at(path, *span)))

    label, model = exchanges.label(first), exchanges.model(first)
    name = f"{path.name}:{it.line}"
    return Found(file, it.line, Session(name, exchanges.FORMAT, model, label, requests))


def _at(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def lines_in(chunk: Chunk) -> int:
    """How many lines begin in a piece of a file, blank ones too; 0 for other chunks."""
    if not chunk.end or chunk.conversations:
        return 0
    count, at = 0, chunk.start
    with Path(chunk.files[0]).open("rb") as file:
        file.seek(max(at - 1, 0))
        first = file.read(1) if at else b"\n"
        count += first == b"\n"
        while at < chunk.end and (block := file.read(min(1 << 20, chunk.end - at))):
            at += len(block)
            count += block.count(b"\n", 0, len(block) - (at == chunk.end))
    return count


def labelled(label: Label, name: str, groups: Mapping[str, str | None]) -> Label:
    """What a record does not say of itself, its file's path does, by the groups that were found in
    it; else each session is a task of its own.
    """
    own = name.removesuffix(".json").removesuffix(".traj")
    return replace(
        label,
        task=label.task or groups.get("task") or own,
        arm=label.arm or groups.get("arm") or "",
    )
