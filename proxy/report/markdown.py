"""A report as Markdown (CommonMark with GitHub's tables): for an issue, a pull request, a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.report import cells
from proxy.report.heading import heading, span
from proxy.report.notes import notes, nothing
from proxy.report.whole import Report
from proxy.report.words import Verdict, verdicts

_marks = re.compile(r"([\\`*_\[\]<>|~&#])")


def text(it: Report) -> str:
    return "\n".join(_lines(it)) + "\n"


def _lines(it: Report) -> Iterator[str]:
    yield "# Lethe report"
    yield ""
    if not it.runs:
        first, *others = nothing(it.since is not None)
        yield from (first, "", "```text", *others, "```")
        return
    yield from (f"{heading(it)}  ", f"{span(it)}", "")
    told = verdicts(it)
    for verdict in told:
        yield from _verdict(verdict, len({it.model for it in told}) > 1)
    yield from _table(it)
    yield "## How to read it"
    yield ""
    yield from (f"- {_escaped(note)}" for note in notes(it))


def _verdict(it: Verdict, with_model: bool) -> Iterator[str]:
    model = f"{_escaped(cells.name(it.model))}, " if with_model else ""
    yield f"## {model}{_escaped(cells.name(it.policy))}: {_escaped(it.headline)}"
    yield ""
    yield from (f"- {_escaped(sentence)}" for sentence in it.sentences)
    yield ""


def _table(it: Report) -> Iterator[str]:
    columns = cells.columns(it)
    yield "## Numbers"
    yield ""
    yield _row(column.title for column in columns)
    yield _row("---:" if column.number else "---" for column in columns)
    for row in cells.rows(it):
        yield _row(_escaped(column.text(it, row)) for column in columns)
    yield ""
    if more := cells.hidden(it):
        yield from (_escaped(more), "")


def _row(texts: Iterator[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _escaped(shown: str) -> str:
    """Nothing in it is taken for a mark, a link or markup."""
    return _marks.sub(r"\\\1", shown)
