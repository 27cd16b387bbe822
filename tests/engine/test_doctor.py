"""`lethe doctor` finds llama.cpp's rule by asking it, and prints the contract that says so."""

from __future__ import annotations

import json
import tomllib

import pytest
from typer.testing import CliRunner

from proxy.cli import cli
from proxy.core.contract import UserTurn
from tests.engine.test_engine import Engine, engine

pytest.importorskip("xllamacpp", reason="the engine is not installed (extra: engine)")

__all__ = ["engine"]


@pytest.fixture(scope="module")
def told(engine: Engine) -> dict[str, object]:
    typed = ("doctor", "--upstream", engine.url, "--model", "agent", "--yes", "--json")
    result = CliRunner().invoke(cli, typed, env={"LETHE_DOCTOR_KEY": None})

    assert 0 == result.exit_code, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_the_contract_says_llama_cpp_s_rule(told: dict[str, object]) -> None:
    (contract,) = tomllib.loads(str(told["contract"]))["contract"]

    assert {"reuse": "prompt+generated", "block": 1, "minimum": 0} == contract["cache"]
    assert ["reasoning_content"] == contract["reads"]
    assert "reasoning_content" == contract["writes"]
    assert UserTurn.DROPS.value == contract["user_turn"]
    assert "llama.cpp-agent" == contract["name"]
