"""What a report is of, in one line."""

from __future__ import annotations

from proxy.page import plain
from proxy.report.whole import Report


def heading(it: Report) -> str:
    tasks = {run.task for run in it.runs if run.task}
    models = {run.model for run in it.runs}
    graded = sum(run.success is not None for run in it.runs)
    parts = [
        plain.numbered(len(it.runs), "conversation"),
        plain.numbered(sum(run.steps for run in it.runs), "step"),
        plain.numbered(len(models), "model"),
        f"{plain.numbered(len(tasks), 'task')} labelled" if tasks else "no task labelled",
        f"{plain.numbered(graded, 'outcome')} posted" if graded else "no outcome posted",
    ]
    return " · ".join(parts)


def span(it: Report) -> str:
    """When it was made, and of which time it is."""
    since = "all that the ledger holds" if it.since is None else f"since {_minute(it.since)}"
    return f"{since}, made {_minute(it.made)} UTC"


def _minute(at: float) -> str:
    return plain.moment(at)[:16]
