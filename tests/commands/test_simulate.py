"""`lethe simulate`: what it prints for people, for scripts, as a plot, and what it refuses."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proxy.cli import cli
from proxy.replay.simulation import COMPARED


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments])


def told(*arguments: str) -> dict[str, Any]:
    result = simulate("--json", *arguments)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def by_policy(found: dict[str, Any]) -> dict[str, Any]:
    return {row["policy"]: row for row in found["policies"]}


def test_scripts_get_every_number_exactly() -> None:
    found = told("--prices", "fable-5.1")
    rows = by_policy(found)

    assert list(COMPARED) == list(rows)
    assert Decimal("5.6623375") == Decimal(rows["keep"]["cost"])
    assert Decimal("4.6532125") == Decimal(rows["drop"]["cost"])
    assert pytest.approx(33.6375) == rows["drop"]["break_even_percent"]
    assert 1_853_000 == rows["drop"]["tokens"]["input"]
    assert rows["keep_latest:1"]["break_even_percent"] is None
    assert {"rule": "prompt", "block": 1, "minimum": 0} == found["cache"]
    assert {"input": "10", "cache_read": "0.25", "cache_write": "12.5", "output": "50"} == found[
        "prices"
    ]


def test_people_see_the_gain_the_loss_and_the_break_even() -> None:
    text = simulate().stdout

    for part in ("$1.2771", "$1.0197", "-20.16 %", "+42.9 %", "$1.2890", "+0.94 %"):
        assert part in text
    assert "keep_latest:1: sends 36.8 % fewer tokens than keep, costs 0.9 % more" in " ".join(
        text.split()
    )


@pytest.mark.parametrize("arguments", [(), ("--operations",)])
def test_no_line_is_wider_than_eighty(arguments: tuple[str, ...]) -> None:
    text = simulate(*arguments).stdout

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_prices_can_be_given_and_are_the_input_s_where_they_are_not() -> None:
    found = told("--input", "0.28", "--cache-read", "0.028", "--output", "0.42")

    assert {"input": "0.28", "cache_read": "0.028", "cache_write": "0.28", "output": "0.42"} == (
        found["prices"]
    )


def test_a_sheet_may_come_from_a_file_of_prices(tmp_path: Path) -> None:
    row = '[[price]]\nmodel = "{}"\ninput = 2\ncache_read = 0.1\noutput = 10\n'
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(row.format("a"))
    two.write_text(row.format("a") + row.format("b"))

    assert {"input": "2", "cache_read": "0.1", "cache_write": "2", "output": "10"} == (
        told("--prices", str(one))["prices"]
    )
    assert "has several sheets (a, b); wanted one" in simulate("--prices", str(two)).stderr


@pytest.mark.parametrize("arguments", [(), ("--operations",)])
def test_where_nothing_is_thought_all_policies_cost_the_same(arguments: tuple[str, ...]) -> None:
    rows = told("--reasoning", "0", *arguments)["policies"]

    assert {0.0} == {row["change_percent"] for row in rows}


def test_growth_may_be_a_share_or_a_percentage() -> None:
    same = [told("--growth", growth) for growth in ("0.429", "42.9%")]
    rows = by_policy(same[0])

    assert same[0] == same[1]
    assert Decimal("1.27706") == Decimal(rows["keep"]["cost"])
    assert pytest.approx(1.27706, abs=1e-3) == float(rows["drop"]["cost"])


def test_operations_are_counted_at_a_model_s_exchange_rate() -> None:
    found = told("--operations", "--cache", "prompt+generated", "--architecture", "Qwen3-8B")
    given = told("--operations", "--cache", "prompt+generated", "--exchange-rate", "23552")
    rows, same = by_policy(found), by_policy(given)

    assert 23_552 == found["exchange_rate"]
    assert rows["keep"]["operations"]["new"] < rows["drop"]["operations"]["new"]
    assert [pytest.approx(row["cost"]) for row in rows.values()] == [
        row["cost"] for row in same.values()
    ]


def test_a_premium_makes_answers_dearer_than_prompts() -> None:
    plain = by_policy(told("--operations"))["drop"]
    dear = by_policy(told("--operations", "--decode-premium", "3"))["drop"]

    assert pytest.approx(2 * plain["operations"]["generated"]) == dear["cost"] - plain["cost"]


def test_pairs_are_told_where_a_position_costs_nothing() -> None:
    found = told("--operations", "--exchange-rate", "0", "--policy", "drop")

    assert "pairs" == found["unit"]
    assert found["policies"][0]["operations"]["pairs"] == found["policies"][0]["cost"]


def test_a_model_without_pairs_is_told_so() -> None:
    only = "hidden=64,layers=2,heads=4,ffn=128,linear=2"
    text = simulate("--operations", "--architecture", only).stdout

    assert "pairs cost nothing" in text


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_plot_is_drawn_beside_the_table(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib", reason="plots are not installed (extra: plots)")
    file = tmp_path / f"it.{kind}"

    assert 0 == simulate("--steps", "8", "--plot", str(file)).exit_code
    assert file.stat().st_size > 5_000


def test_a_plot_names_each_policy_and_where_it_is_even(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are not installed (extra: plots)")
    file = tmp_path / "it.svg"
    simulate("--operations", "--plot", str(file))
    text = file.read_text()

    assert ">keep_latest:1<" in text or ">keep_latest:1, even at" in text
    assert ">drop, even at +" in text
    assert "operations against keep, %" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--policy", "kep"), "--policy: policy 'kep' is unknown; known: keep, drop"),
        (("--policy", "off"), "--policy: policy off: sizes alone do not decide it"),
        (("--cache", "promt"), "--cache: cache rule 'promt': wanted prompt+generated, prompt"),
        (("--growth", "much"), "--growth: got 'much'; wanted a number from 0 to 100"),
        (("--artifacts", "1.5"), "--artifacts: got '1.5'; wanted a number from 0 to 1"),
        (("--prices", "gpt-9"), "--prices: got 'gpt-9'; wanted one of sonnet-5.5, fable-5.1"),
        (("--input", "2"), "prices: got some of them; wanted --input and --output at least"),
        (("--output", "x", "--input", "2"), "--output: got 'x'; wanted a number of 0 or more"),
        (("--architecture", "Qwen3-32B"), "--operations to count what an engine computes"),
        (("--decode-premium", "3"), "--decode-premium have no say in a bill"),
        (("--plot", "it.gif"), "plot it.gif: got '.gif'; wanted .png or .svg"),
    ],
)
def test_what_cannot_be_used_is_told_and_ends_with_two(
    arguments: tuple[str, ...], complaint: str
) -> None:
    result = simulate(*arguments)

    assert 2 == result.exit_code
    assert complaint in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--architecture", "GPT-9"), "--architecture: no architecture of 'GPT-9' is known"),
        (("--architecture", "hidden=1"), "--architecture: architecture 'hidden=1' lacks layers"),
        (("--decode-premium", "0.5"), "--decode-premium: got '0.5'; wanted a number of 1 or more"),
        (("--exchange-rate", "-3"), "--exchange-rate: got '-3'; wanted a number of 0 or more"),
    ],
)
def test_what_is_no_price_of_operations_is_told(arguments: tuple[str, ...], complaint: str) -> None:
    result = simulate("--operations", *arguments)

    assert 2 == result.exit_code
    assert complaint in result.stderr
