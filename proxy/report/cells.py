"""The table of a report as text, the same for a terminal, Markdown and HTML.

Names come from clients: what could steer a terminal is made visible here; each format escapes what
it must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from proxy.page import plain
from proxy.report import figures
from proxy.report.compare import BASELINES, Comparison
from proxy.report.groups import By, Group
from proxy.report.whole import Report

MOST_ROWS = 200
"""Rows that are shown; JSON has them all."""
_LONGEST = 60


class Column(msgspec.Struct, frozen=True):
    """`number` columns stand to the right; `tone` says how a cell is to be taken (`good`, `bad`,
    or nothing). A terminal of fewer characters than `wanted` does without it; the names in one
    that `shrinks` go over several lines there.
    """

    title: str
    number: bool
    text: Callable[[Report, Group], str]
    tone: Callable[[Report, Group], str] = lambda it, row: ""
    wanted: int = 0
    shrinks: bool = False


def columns(it: Report) -> list[Column]:
    """Those that tell something in this report."""
    named = {
        By.POLICY: [_MODEL, _POLICY], By.MODEL: [_MODEL], By.TASK: [_TASK, _MODEL, _POLICY]
    }[it.by]  # fmt: skip
    if it.by is not By.MODEL and len({row.key.model for row in it.rows}) == 1:
        named.remove(_MODEL)
    compared = [] if it.by is By.MODEL else [_AGAINST]
    return [*named, *_NUMBERS, *compared, _SAVING, _BREAKS]


def rows(it: Report) -> Sequence[Group]:
    return it.rows[:MOST_ROWS]


def hidden(it: Report) -> str:
    """What is said of rows that are not shown."""
    count = len(it.rows) - MOST_ROWS
    return (
        f"--json has {plain.numbered(count, 'more row')}, with smaller bills." if count > 0 else ""
    )


def name(text: str) -> str:
    """A name that a client gave, in one line, not endless."""
    shown = plain.line(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _task(it: Report, row: Group) -> str:
    return name(row.key.task) or "(no label)"


def _success(it: Report, row: Group) -> str:
    if row.success is None:
        return plain.UNKNOWN
    return f"{plain.percent(row.success)} of {plain.count(row.graded)}"


def _saving(it: Report, row: Group) -> str:
    """In dollars, and as a share of what keep would have cost."""
    if row.saving is None:
        return plain.UNKNOWN
    share = row.saving / row.keep if row.keep else 0.0
    return f"{figures.dollars(row.saving, row.estimated)} ({figures.signed(share)} %)"


def _saving_tone(it: Report, row: Group) -> str:
    saving = row.saving or 0.0
    return "good" if saving > 0 else "bad" if saving < 0 else ""


def _beside(it: Report, row: Group) -> Comparison | None:
    found = it.beside.get(row.key)
    return found if found is not None and found.theirs else None


def _against(it: Report, row: Group) -> str:
    if row.key.policy in BASELINES:
        return ""
    found = _beside(it, row)
    if found is None:
        return plain.UNKNOWN
    change = found.changes["cost_per_step"]
    return figures.change(change.interval, change.certain) if change.enough else "too few"


def _against_tone(it: Report, row: Group) -> str:
    found = _beside(it, row)
    change = found.changes["cost_per_step"] if found else None
    if change is None or not change.certain or change.interval is None:
        return ""
    return "good" if change.interval.value < 0 else "bad"


_MODEL = Column("model", False, lambda it, row: name(row.key.model), shrinks=True)
_POLICY = Column("policy", False, lambda it, row: name(row.key.policy))
_TASK = Column("task", False, _task, shrinks=True)
_NUMBERS = (
    Column("conversations", True, lambda it, row: plain.count(row.conversations), wanted=70),
    Column("success", True, _success),
    Column("steps", True, lambda it, row: plain.count(row.steps), wanted=92),
    Column("output a step", True, lambda it, row: plain.count(row.output), wanted=108),
    Column("reasoning a step", True, lambda it, row: plain.count(row.reasoning), wanted=166),
    Column("bill", True, lambda it, row: figures.dollars(row.cost), wanted=148),
    Column("bill a step", True, lambda it, row: figures.dollars(row.cost_per_step)),
)
_AGAINST = Column("against keep", True, _against, _against_tone)
_SAVING = Column("mechanical saving", True, _saving, _saving_tone, 136)
_BREAKS = Column(
    "breaks", True, lambda it, row: plain.count(row.breaks),
    lambda it, row: "bad" if row.own else "", 116,
)  # fmt: skip
