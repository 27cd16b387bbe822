"""Files larger than memory: chunks, processes, what is kept of a replay that was cut off."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.errors import SettingsError
from proxy.replay import work
from proxy.replay.plan import Plan
from proxy.replay.replay_report import Report, as_json
from proxy.replay.rows import Row
from proxy.replay.sources import Chunk, Sources, files_in, found_in, sources
from proxy.replay.totals import Totals
from proxy.replay.work import Done, Interrupted, Progress, digest_of
from tests.replay.recorded import plan, trajectory, write_lines
from tests.replay.test_replay_sweep import PRICE

SMALL = 6_000
"""Bytes of a chunk: about two sessions."""


def many(folder: Path, sessions: int = 9) -> Path:
    rows = [trajectory(2 + at % 3, f"{at}") for at in range(sessions)]
    return write_lines(folder / "sessions.jsonl", rows)


def quiet(size: int, sessions: int) -> None:
    """Tells nobody."""


def done(it: Plan, found: Sources, path: Path, jobs: int = 1, resume: bool = False) -> list[Done]:
    progress = Progress(path, "digest", resume)
    try:
        work.work(it, found.chunks, progress, jobs, quiet)
        return list(progress.results(found.chunks))
    finally:
        progress.close()


def rows_of(results: Sequence[Done]) -> list[Row]:
    return [row for it in results for row in it.rows]


def told(it: Plan, results: Sequence[Done]) -> str:
    totals = Totals(it)
    for row in rows_of(results):
        totals.add(row)
    return json.dumps(as_json(Report(totals, {}, (), (), (), PRICE, (), 1)))


def test_one_process_and_two_give_the_same_numbers(tmp_path):
    it, found = plan("drop", "keep_latest:1"), sources([many(tmp_path)], SMALL)
    one = done(it, found, tmp_path / "one", jobs=1)
    two = done(it, found, tmp_path / "two", jobs=2)

    assert len(found.chunks) > 2
    assert 9 == len(rows_of(one))
    assert one == two
    assert told(it, one) == told(it, two)


def test_how_a_file_is_cut_changes_nothing(tmp_path):
    it, path = plan("drop"), many(tmp_path)
    whole = rows_of(done(it, sources([path]), tmp_path / "whole"))

    for size in (1, 100, 777, SMALL):
        assert whole == rows_of(done(it, sources([path], size), tmp_path / f"cut {size}"))


def test_a_replay_that_was_cut_off_goes_on_with_what_is_missing(tmp_path):
    it, found = plan("drop"), sources([many(tmp_path)], SMALL)
    state = tmp_path / "state"
    whole = done(it, found, state)
    lines = state.read_bytes().splitlines(keepends=True)
    state.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    progress = Progress(state, "digest", True)
    held = {at for at in range(len(found.chunks)) if at in progress}
    progress.close()

    assert {0, 1} == held
    assert whole == done(it, found, state, resume=True)


class Fatal:
    """A plan that ends the process that is handed it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_a_process_that_ends_by_itself_is_told_and_what_was_done_is_kept(tmp_path):
    it, found = plan("drop"), sources([many(tmp_path)], SMALL)
    state = tmp_path / "state"
    progress = Progress(state, "digest", False)
    progress.add(0, work.do(it, 0, found.chunks[0])[1])
    with pytest.raises(Interrupted, match="--resume"):
        work.work(cast(Plan, Fatal()), found.chunks, progress, 2, quiet)
    progress.close()

    assert done(it, found, tmp_path / "whole") == done(it, found, state, resume=True)


def test_what_was_done_of_another_replay_is_not_taken_up(tmp_path):
    it, found = plan("drop"), sources([many(tmp_path)], SMALL)
    state = tmp_path / "state"
    done(it, found, state)
    progress = Progress(state, "another digest", True)

    assert not any(at in progress for at in range(len(found.chunks)))
    progress.close()


def test_the_digest_tells_plans_and_files_apart(tmp_path):
    path = many(tmp_path)
    one, two = digest_of(plan("drop"), [path]), digest_of(plan("keep_latest:1"), [path])
    same = digest_of(plan("drop"), [path])
    many(tmp_path, 10)

    assert same == one != two
    assert one != digest_of(plan("drop"), [path])


def test_bad_lines_are_skipped_and_told_with_file_and_line_however_the_file_is_cut(tmp_path):
    good = json.dumps(trajectory(2))
    path = tmp_path / "mixed.jsonl"
    path.write_text(f"{good}\n\n{{broken\n{good}\n[]\n{good}\n")

    for size in (1, 2_000, 1 << 20):
        results = done(plan(), sources([path], size), tmp_path / f"state {size}")
        skipped = [(row.line, row.why) for it in results for row in it.skipped]

        assert 3 == len(rows_of(results))
        assert [(3, "no JSON"), (5, "no assistant message answers anything")] == skipped


def test_an_exchange_that_is_none_is_told_with_its_line(tmp_path):
    exchange = {"body": {"messages": trajectory(1)["messages"][:2]}, "usage": {}}
    path = write_lines(tmp_path / "log.jsonl", [exchange, {"other": 1}, exchange])
    found = sources([path])

    assert [(2, "no request with its response")] == [(s.line, s.why) for s in found.skipped]
    assert 2 == sum(len(chunk.conversations) for chunk in found.chunks)


def test_files_of_one_session_each_are_taken_together(tmp_path):
    for at in range(5):
        (tmp_path / f"{at}.traj.json").write_text(json.dumps(trajectory(2, f"{at}")))
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "notes.txt").write_text("not read")
    found = sources(files_in([tmp_path]))
    results = done(plan(), found, tmp_path / "state")

    assert 1 == len(found.chunks)
    assert ["0", "1", "2", "3", "4"] == [row.label.task for row in rows_of(results)]
    assert ["no JSON"] == [row.why for row in results[0].skipped]


def test_a_path_labels_what_does_not_label_itself(tmp_path):
    folder = tmp_path / "keep" / "runs"
    folder.mkdir(parents=True)
    (folder / "task-7.traj.json").write_text(json.dumps(trajectory(2)))
    it = plan(label=r"(?P<arm>\w+)/runs/(?P<task>[\w-]+)")
    (row,) = rows_of(done(it, sources(files_in([tmp_path])), tmp_path / "state"))

    assert ("task-7", "keep") == (row.label.task, row.label.arm)


def test_no_file_and_no_folder_are_told(tmp_path):
    with pytest.raises(SettingsError, match="neither a file nor a folder"):
        files_in([tmp_path / "none"])
    with pytest.raises(SettingsError, match="no .json"):
        files_in([tmp_path])


def test_a_chunk_holds_a_session_at_a_time(tmp_path):
    """What is read of a file is bounded by its longest line, whatever the size of the file."""
    rows = [trajectory(3, f"{at}") for at in range(300)]
    path = write_lines(tmp_path / "long.jsonl", rows)
    it, chunk = plan("drop"), Chunk((str(path),), 0, 0, path.stat().st_size)
    work.do(it, 0, sources([write_lines(tmp_path / "one.jsonl", rows[:1])]).chunks[0])
    tracemalloc.start()
    count = sum(1 for found in found_in(chunk) if found.session)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert 300 == count
    assert peak < path.stat().st_size / 4
