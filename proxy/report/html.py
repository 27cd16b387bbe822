"""A report as one HTML page that needs nothing else: its style and its plots stand in it.

It has no script, and its policy lets a browser load nothing and run nothing: a name that slipped
through as markup could do no harm.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from proxy.report import cells
from proxy.report.heading import heading, span
from proxy.report.notes import notes, nothing
from proxy.report.plots import drawn
from proxy.report.whole import Report
from proxy.report.words import verdicts


def page(it: Report) -> str:
    environment = Environment(
        loader=PackageLoader("proxy.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    told = verdicts(it)
    return environment.get_template("report.html").render(
        style=files("proxy.report").joinpath("templates", "report.css").read_text("utf-8"),
        heading=heading(it) if it.runs else "",
        span=span(it),
        nothing=None if it.runs else nothing(it.since is not None),
        verdicts=told,
        with_model=len({verdict.model for verdict in told}) > 1,
        columns=cells.columns(it) if it.runs else [],
        rows=cells.rows(it),
        hidden=cells.hidden(it),
        figures=drawn(it) if it.runs else [],
        notes=notes(it) if it.runs else [],
        name=cells.name,
        it=it,
    )
