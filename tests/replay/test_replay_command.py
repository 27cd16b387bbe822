"""`lethe replay`, from its options to what it prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proxy.cli import cli
from tests.replay.recorded import trajectory, write_lines

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The command with its own folder for what is under way."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "100"}
    return lambda *args: CliRunner().invoke(cli, ["replay", *map(str, args)], env=environ)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [trajectory(4, f"{at}", task=f"t{at}") for at in range(5)]
    return write_lines(tmp_path / "sessions.jsonl", rows)


def told(result: Result) -> Any:
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def test_it_tells_every_policy_under_every_rule_and_price(run: Run, file: Path):
    found = told(run(file, "--json", "--policy", "drop", "--jobs", 1))
    keep, drop = found["policies"]

    assert (5, 20) == (found["sessions"], found["requests"])
    assert ["keep", "drop"] == [keep["policy"], drop["policy"]]
    assert ["prompt+generated", "prompt", "none"] == [it["cache"] for it in drop["caches"]]
    assert ["sonnet-5.5", "deepseek-v3.2"] == [it["prices"] for it in drop["caches"][0]["bills"]]
    assert drop["caches"][1]["bills"][0]["change"]["value"] < 0


def test_people_get_tables_and_the_word_mechanical(run: Run, file: Path):
    result = run(file, "--jobs", 1, "--decode-premium", 5)

    assert 0 == result.exit_code, result.output
    assert "The cache holds: prompt+generated" in result.stdout
    assert "w=5" in result.stdout
    assert "Mechanical" in result.stdout


def test_one_session_is_told_as_one(run: Run, tmp_path: Path):
    file = write_lines(tmp_path / "one.jsonl", [trajectory(1, "0", task="t")])

    assert "1 session (1 trajectory) of 1 task: 1 request, " in run(file, "--jobs", 1).stdout


@pytest.mark.parametrize(
    "prices", [(), ("--prices", "anthropic/claude-sonnet-4-5"), ("--prices", f"{'n' * 60}.toml")]
)
def test_the_tables_fit_eighty_columns_with_nothing_cut(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prices: tuple[str, ...]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{'n' * 60}.toml").write_text('[[price]]\nmodel = "*"\ninput = 1\noutput = 1\n')
    typed = ["replay", str(file), "--jobs", "1", "--decode-premium", "12", *prices]
    environ = {"XDG_CACHE_HOME": str(tmp_path), "COLUMNS": "80"}
    text = CliRunner().invoke(cli, typed, env=environ).stdout

    assert "work, w=12" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_markdown_table_has_a_row_for_each_rule_and_price(run: Run, file: Path):
    rows = run(file, "--markdown", "--jobs", 1, "--cache", "prompt:64").stdout.splitlines()

    assert 2 + 2 == len(rows)
    assert rows[2].startswith("| prompt:64 | sonnet-5.5 | $")


def test_what_is_under_way_is_gone_when_it_is_done(run: Run, file: Path, tmp_path: Path):
    run(file, "--jobs", 1)

    assert [] == [it for it in (tmp_path / "cache").rglob("*") if it.is_file()]


def test_prices_come_from_a_file_too(run: Run, file: Path, tmp_path: Path):
    prices = tmp_path / "mine.toml"
    prices.write_text('[[price]]\nmodel = "mine"\ninput = 1\noutput = 0\n')
    found = told(run(file, "--json", "--jobs", 1, "--prices", prices, "--cache", "none"))
    (bill,) = found["policies"][0]["caches"][0]["bills"]

    assert "mine" == bill["prices"]
    assert found["policies"][0]["input"] / 1e6 == float(bill["usd"])


def test_parquet_holds_a_row_for_each_combination(run: Run, file: Path, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out.parquet"
    found = told(run(file, "--json", "--jobs", 1, "--out", out, "--policy", "drop"))
    rows = parquet.read_table(out).to_pylist()

    assert 5 * 2 * 3 * 2 == len(rows)
    assert found["policies"][1]["caches"][0]["read"] == sum(
        row["read"]
        for row in rows
        if ("drop", "prompt+generated", "sonnet-5.5")
        == (row["policy"], row["cache"], row["prices"])
    )
    assert [out] == list(tmp_path.glob("out.parquet*"))


def test_a_sweep_is_told_and_drawn(run: Run, file: Path, tmp_path: Path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.svg"
    result = run(
        file, "--json", "--jobs", 1, "--sweep", "read-price", "--plot", plot, "--cache", "prompt"
    )  # fmt: skip
    found = json.loads(result.stdout)

    assert ["read-price"] == [it["name"] for it in found["sweeps"]]
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "dorp"), "--policy: policy 'dorp' is unknown"),
        (("--policy", "horizon:40"), "--policy: policy horizon:40 decides by one cache rule"),
        (("--arm", "blue=horizon"), "replay keep and drop instead; `lethe horizon"),
        (("--cache", "all"), "--cache: cache rule 'all'"),
        (("--prices", "nobody"), "--prices: got 'nobody'"),
        (("--prices", "sonnet-5.5", "--prices", "sonnet-5.5"), "the same name came twice"),
        (("--sweep", "moon"), "--sweep: got 'moon'"),
        (("--sweep", "block"), "--sweep: add --json to have it told, or --plot FILE"),
        (("--label", "("), "--label: no regular expression"),
        (("--arm", "blue"), "--arm: got 'blue'"),
        (("--arm", "blue=dorp"), "--arm: policy 'dorp' is unknown"),
        (("--plot", "plot.gif"), "wanted .png or .svg"),
        (("--decode-premium", "0.5"), "--decode-premium: got '0.5'"),
    ],
)
def test_what_cannot_be_used_is_told_before_any_work(
    run: Run, file: Path, options: tuple[str, ...], words: str
):
    result = run(file, *options)

    assert 2 == result.exit_code
    assert words in result.stderr


def test_files_with_a_price_for_every_model_are_sheets_by_their_names(
    run: Run, file: Path, tmp_path: Path
):
    for name, price in (("cheap", 1), ("dear", 9)):
        own = f'[[price]]\nmodel = "*"\ninput = {price}\noutput = 0\n'
        (tmp_path / f"{name}.toml").write_text(own)
    files = [tmp_path / "cheap.toml", tmp_path / "dear.toml"]
    asked = [word for it in files for word in ("--prices", it)]
    found = told(run(file, "--json", "--jobs", 1, "--cache", "none", *asked))

    assert ["cheap", "dear"] == [
        bill["prices"] for bill in found["policies"][0]["caches"][0]["bills"]
    ]
