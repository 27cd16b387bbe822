"""A report for a terminal: the verdicts first, the table, and how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proxy.report import cells
from proxy.report.cells import Column
from proxy.report.heading import heading, span
from proxy.report.notes import notes, nothing
from proxy.report.whole import Report
from proxy.report.words import Verdict, verdicts

_TONES = {"good": "green", "bad": "red", "mixed": "yellow", "calm": "", "unknown": "dim", "": ""}
_NAME = 16
"""Characters that a column of names is given at least."""


def view(it: Report, width: int = 120) -> RenderableType:
    """`width` is in characters."""
    if not it.runs:
        first, *others = nothing(it.since is not None)
        return Lines(Text(first, "bold"), *(Text(f"  {line}") for line in others))
    told = verdicts(it)
    return Lines(
        Text.assemble(("lethe report", "bold"), f"  {heading(it)}"),
        Text(span(it), "dim"),
        Text(),
        *(line for verdict in told for line in _verdict(verdict, _has_models(told))),
        *_table(it, width),
        *(Text(f"• {note}", "dim") for note in notes(it)),
    )


def _has_models(told: Sequence[Verdict]) -> bool:
    return len({it.model for it in told}) > 1


def _verdict(it: Verdict, with_model: bool) -> Iterator[RenderableType]:
    model = f"{cells.name(it.model)}  " if with_model else ""
    yield Text.assemble(
        model, (cells.name(it.policy), "bold"), ": ", (it.headline, _TONES[it.tone])
    )
    yield from (Padding(Text(sentence), (0, 0, 0, 2)) for sentence in it.sentences)
    yield Text()


def _table(it: Report, width: int) -> Iterator[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = _fitting(cells.columns(it), width)
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.number else "left", overflow="fold",
            no_wrap=not column.shrinks, min_width=8 if column.shrinks else None,
        )  # fmt: skip
    for row in cells.rows(it):
        table.add_row(*(Text(c.text(it, row), _TONES[c.tone(it, row)]) for c in columns))
    yield table
    if more := cells.hidden(it):
        yield Text(more, "dim")
    yield Text()


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Those that there is room for, beside names that take some of it."""
    left = width - _NAME * sum(column.shrinks for column in columns)
    return [column for column in columns if left >= column.wanted]
