"""`lethe horizon`: how much must still come, by operations and on the bill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proxy.cli import cli
from proxy.core.open_models import MODELS


def horizon(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["horizon", *arguments])


def told(*arguments: str) -> dict[str, Any]:
    result = horizon("--json", *arguments)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(("action", "positions"), [(7, 504.014), (4_000, 292_001.0)])
def test_the_known_horizons_come_out(action: int, positions: float) -> None:
    found = told("--exchange-rate", "124000", "--action", str(action))

    assert {"before": 20_000, "reasoning": 2_000, "action": action} == found["step"]
    assert [positions] == [row["horizon_positions"] for row in found["operations"]]


def test_all_models_and_sheets_are_told_unless_one_is_asked_for() -> None:
    found = told()
    one = told("--architecture", "qwen3.5-27b", "--model", "fable-5.1")

    assert [model.name for model in MODELS] == [row["model"] for row in found["operations"]]
    assert ["sonnet-5.5", "fable-5.1"] == [row["model"] for row in found["bill"]]
    assert (["Qwen/Qwen3.5-27B"], ["fable-5.1"]) == (
        [row["model"] for row in one["operations"]],
        [row["model"] for row in one["bill"]],
    )


def test_prices_of_one_s_own_give_requests() -> None:
    found = told("--input", "1", "--cache-read", "0.1", "--action", "200")

    assert [{"model": "as given", "horizon_requests": 0.9}] == found["bill"]


def test_where_prompts_only_are_held_it_pays_at_once() -> None:
    text = horizon("--cache", "prompt").stdout

    assert len(MODELS) + 2 == text.count("at once")


def test_nothing_to_forget_never_pays() -> None:
    found = told("--reasoning", "0")
    text = horizon("--reasoning", "0").stdout

    assert {None} == {row["horizon_positions"] for row in found["operations"]}
    assert len(MODELS) + 2 == text.count("never")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--architecture", "hidden=4096,layers=36,heads=32,ffn=12288,kv_heads=8,head_size=128"),
        ("--prices", f"{'n' * 60}.toml"),
    ],
)
def test_no_line_is_wider_than_eighty(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{'n' * 60}.toml").write_text('[[price]]\nmodel = "*"\ninput = 1\noutput = 1\n')
    text = horizon(*arguments).stdout

    assert "L*" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_model_without_pairs_has_no_rate() -> None:
    only = "hidden=64,layers=2,heads=4,ffn=128,linear=2"
    text = horizon("--architecture", only).stdout

    assert "–" in text
    assert "never" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--cache", "x"), "--cache: cache rule 'x': wanted"),
        (("--architecture", "GPT-9"), "--architecture: no architecture of 'GPT-9' is known"),
        (("--cache-read", "1"), "prices: got some of them"),
    ],
)
def test_what_cannot_be_used_is_told_and_ends_with_two(
    arguments: tuple[str, ...], complaint: str
) -> None:
    result = horizon(*arguments)

    assert 2 == result.exit_code
    assert complaint in result.stderr


def test_the_cache_holds_what_was_generated_unless_another_is_asked_for() -> None:
    assert {"rule": "prompt+generated", "block": 1, "minimum": 0} == told()["cache"]


def test_a_model_is_named_with_its_provider_or_alone() -> None:
    with_it, alone = told("--model", "openai/gpt-5"), told("--model", "gpt-5")

    assert ["openai/gpt-5", "gpt-5"] == [with_it["bill"][0]["model"], alone["bill"][0]["model"]]
    assert with_it["bill"][0]["horizon_requests"] == alone["bill"][0]["horizon_requests"]


def test_a_sheet_of_one_s_own_is_called_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[price]]\nmodel = "*"\ninput = 2\ncache_read = 1\noutput = 1\n')

    assert ["mine"] == [row["model"] for row in told("--prices", str(file))["bill"]]


def test_what_is_lacking_is_an_option_that_there_is() -> None:
    assert "wanted --input at least" in horizon("--cache-read", "1").stderr
