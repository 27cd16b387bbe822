"""The same report on a terminal, as Markdown, as JSON and as a page, whatever names are in it."""

from __future__ import annotations

import json
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from proxy.report import as_json, cells, html, markdown, plots, terminal
from proxy.report.groups import By
from proxy.report.run import Amount, Run
from proxy.report.whole import Report, report
from tests.page.browser import browsing, opened
from tests.report.words import AT, arm, run

HOSTILE = "\x1b[31m|`*_<script>alert(1)</script>[a](http://x)\u202e\n# head"


def sample() -> list[Run]:
    keep = arm("keep", 20, tasks=True, success=True)
    drop = arm(
        "drop", 20, 0.8, 1_400.0, seed=2, tasks=True, dropped=9.0, keep=1.1, success=False,
        estimated=True,
    )  # fmt: skip
    latest = arm("keep_latest:1", 20, 1.2, seed=3, tasks=True, breaks=9, own=9)
    return [*keep, *drop, *latest]


def made(runs: list[Run], by: By = By.POLICY, since: float | None = None) -> Report:
    return report(runs, by, AT, since)


@cache
def sampled(by: By = By.POLICY) -> Report:
    return made(sample(), by)


def on_terminal(it: Report, width: int = 160) -> str:
    console = Console(width=width, file=StringIO())
    console.print(terminal.view(it, width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def every(it: Report) -> dict[str, str]:
    return {
        "terminal": on_terminal(it), "markdown": markdown.text(it), "html": html.page(it),
        "json": json.dumps(as_json.as_json(it)),
    }  # fmt: skip


# What all of them tell


@pytest.mark.parametrize("by", list(By))
def test_the_verdict_the_rule_and_what_is_mechanical_are_told_everywhere(by: By):
    for name, shown in every(sampled(by)).items():
        told = " ".join(shown.replace("\\", "").split())
        for word in (
            "cheaper per step, and succeeds less often",
            "Output per step rose 40 %",
            "itself broke the cached prefix 180 times",
            "The mechanical saving holds the continuation fixed",
            "at least 10 conversations",
        ):
            assert word.lower() in told.lower(), (name, word)


def test_where_nothing_is_there_the_next_step_is_told_everywhere():
    told = every(made([]))
    assert "json" in told
    for name in ("terminal", "markdown", "html"):
        assert "export OPENAI_BASE_URL=" in told[name]
        assert "/lethe/outcomes" in told[name]
    assert 0 == json.loads(told["json"])["conversations"]
    assert "Look further back" in on_terminal(made([], since=AT - 60))


def test_names_of_clients_steer_nothing():
    runs = [run(f"{policy}{n}", policy, task=HOSTILE, model=HOSTILE)
            for policy in ("keep", "drop") for n in range(12)]  # fmt: skip
    told = every(made(runs, By.TASK))

    for name in ("terminal", "markdown", "html"):
        assert "\x1b" not in told[name]
        assert "\u202e" not in told[name]
    assert "<script>" not in told["html"]
    assert r"\|\`\*\_\<script\>" in told["markdown"]
    assert HOSTILE == json.loads(told["json"])["rows"][0]["task"]


def test_many_rows_are_cut_and_that_is_said():
    runs = [run(f"r{n}", task=f"task {n}") for n in range(cells.MOST_ROWS + 30)]
    told = every(made(runs, By.TASK))

    for name in ("terminal", "markdown", "html"):
        assert "30 more rows" in told[name]
    assert cells.MOST_ROWS + 30 == len(json.loads(told["json"])["rows"])


# A terminal


@pytest.mark.parametrize("width", [80, 100, 120, 140, 180])
def test_lines_fit_the_terminal(width: int):
    shown = on_terminal(sampled(), width)

    assert all(len(line) <= width for line in shown.splitlines())
    assert "-20 % (-23 to -17)" in " ".join(shown.split())


def test_a_model_is_told_only_where_there_are_several():
    assert "model" not in on_terminal(sampled()).split("• ")[0].split("labelled")[1]
    several = made([*sample(), run("x", model="another")])
    assert "another" in on_terminal(several)


# Markdown


def test_a_table_has_as_many_cells_in_each_row():
    text = markdown.text(sampled())
    rows = [line for line in text.splitlines() if line.startswith("|")]

    assert 5 == len(rows)
    assert 1 == len({len(re.findall(r"(?<!\\)\|", row)) for row in rows})
    assert text.startswith("# Lethe report\n")


# JSON


def test_all_numbers_are_there_for_scripts():
    found: Any = as_json.as_json(sampled())

    rows = {row["policy"]: row for row in found["rows"]}
    assert (20, 1.0, 200, 100.0) == pytest.approx(
        [rows["keep"][it] for it in ("conversations", "success", "steps", "output_per_step")]
    )
    assert (16.0, 6.0, True) == pytest.approx(
        [rows["drop"][it] for it in ("cost", "mechanical_saving", "estimated")]
    )
    assert (180, 180) == (
        rows["keep_latest:1"]["breaks"],
        rows["keep_latest:1"]["breaks_by_the_policy"],
    )
    change = rows["drop"]["against"]["cost_per_step"]
    assert -0.2 == pytest.approx(change["change"])
    assert change["low"] < -0.2 < change["high"] < 0
    assert (True, "bootstrap", [20, 20]) == (change["certain"], change["method"], change["units"])
    assert rows["keep"]["against"] is None
    assert {"least": 10, "level": 0.95, "resamples": 10_000, "seed": 1} == found["rule"]
    assert ["paired", "paired"] == [it["design"] for it in found["comparisons"]]


def test_the_same_conversations_give_the_same_report():
    runs = sample()

    assert every(made(runs)) == every(made(list(runs)))


# The page


def test_every_plot_stays_within_its_width():
    figures = plots.drawn(sampled())

    assert ["Change against keep", "What a step cost, and would have cost under keep"] == [
        it.title for it in figures[:2]
    ]
    assert 5 == len(figures)
    for figure in figures:
        for row in figure.rows:
            places = [*(row.box or ()), *(row.whisker or ()), row.dot or 0.0, row.bar or 0.0]
            assert all(0 <= place <= 100 for place in places)
        assert [place for place, _ in figure.ticks] == sorted(place for place, _ in figure.ticks)


def test_a_whisker_holds_its_dot_and_its_box():
    for figure in plots.drawn(sampled()):
        for row in figure.rows:
            if row.whisker and row.dot is not None:
                low, high = row.box or row.whisker
                assert row.whisker[0] <= low <= row.dot <= high <= row.whisker[1]


def test_without_prices_and_outcomes_their_plots_are_not_there():
    bare = [run(f"r{n}", cost=Amount(), keep=0.0, priced=0) for n in range(3)]

    titles = [it.title for it in plots.drawn(made(bare))]

    assert ["Output tokens per step, from conversation to conversation"] == titles


def test_the_page_needs_nothing_else():
    page = html.page(sampled())

    for word in ("http://", "https://", "<script", "@import", "url(", " on", "src="):
        assert word not in re.sub(r"<(style|p|li|figcaption)[^>]*>.*?</\1>", "", page, flags=re.S)
    assert "prefers-color-scheme: dark" in page
    assert "default-src 'none'" in page


def test_every_drawing_is_well_formed():
    page = html.page(sampled())
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.S)

    assert len(drawings) > 20
    for drawing in drawings:
        assert "svg" == ElementTree.fromstring(drawing).tag


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_browser_shows_it_without_a_request_or_a_complaint(scheme: str, tmp_path: Path):
    file = tmp_path / "report.html"
    file.write_text(html.page(sampled(By.TASK)), "utf-8")
    size = {"width": 400, "height": 800}
    async with browsing() as browser:
        url = file.as_uri()
        async with opened(browser, url, color_scheme=scheme, viewport=size) as (page, seen):
            grounds = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            wide = await page.evaluate("document.documentElement.scrollWidth")
            dots = await page.evaluate(
                "[...document.querySelectorAll('svg .dot')]"
                ".map(it => it.getBoundingClientRect().width)"
            )

    assert ([url], []) == (seen.asked, seen.errors)
    assert {"light": "rgb(251, 251, 250)", "dark": "rgb(19, 21, 23)"}[scheme] == grounds
    assert wide <= 400
    assert min(dots) > 5
