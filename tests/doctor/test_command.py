"""`lethe doctor` as it is typed: what it asks first, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proxy import providers
from proxy.cli import cli
from proxy.commands import doctor
from proxy.core.contract import Asked, CacheRule, Reuse, choose
from proxy.errors import SettingsError
from tests.doctor.provider import Rules, Scripted, bears
from tests.journey.provider import Answer, Came, Script, providing

KEY = "sk-geheim-0123456789"


async def lethe(script: Script, *arguments: str, **environ: str) -> Result:
    """`lethe doctor` in a thread, so that the provider of this loop can answer."""
    async with providing(script) as upstream:
        typed = ("doctor", "--upstream", upstream.url, "--model", "m", *arguments)
        set_ = {"LETHE_DOCTOR_KEY": None, "COLUMNS": "200", **environ}
        return await asyncio.to_thread(CliRunner().invoke, cli, typed, env=set_)


async def test_it_prints_a_table_verdicts_and_a_contract_that_loads(tmp_path: Path) -> None:
    rule = CacheRule(Reuse.PROMPT, 64)
    result = await lethe(Scripted(Rules(cache=rule)).script, "--yes")
    own = tmp_path / "own.toml"
    own.write_text("[[contract]]" + result.stdout.partition("[[contract]]")[2])
    chosen = choose(providers.load(own), Asked("http://127.0.0.1:9/v1", "m"))

    assert 0 == result.exit_code, result.output
    assert rule == chosen.contract.cache
    assert "host: 127.0.0.1" in chosen.why
    for part in ("cache block", "64 tokens", "the prompt only", "after_artifact", "keep_latest"):
        assert part in result.stdout


async def test_a_file_gets_the_contract_and_people_the_table(tmp_path: Path) -> None:
    own = tmp_path / "own file.toml"
    result = await lethe(Scripted(Rules()).script, "--yes", "--out", str(own))
    chosen = choose(providers.load(own), Asked("http://127.0.0.1:9/v1", "m"))

    assert 0 == result.exit_code, result.output
    assert "host: 127.0.0.1" in chosen.why
    assert "cache block" in result.stdout
    assert "[[contract]]" not in result.stdout
    assert f"written: {own}" in result.stderr
    assert f'providers = "{own}"' in result.stderr


async def test_the_next_command_is_told_and_can_be_typed(tmp_path: Path) -> None:
    own = tmp_path / "own file.toml"
    result = await lethe(Scripted(Rules()).script, "--yes", "--json", "--out", str(own))
    told = json.loads(result.stdout)
    setting, *typed = shlex.split(told["next"]["check"])
    name, _, value = setting.partition("=")
    checked = CliRunner().invoke(cli, [*typed[1:], "--json"], env={name: value})

    assert told["next"]["check"] in result.stderr
    assert own.read_text() == told["contract"]
    assert str(own) == told["out"]
    assert "lethe" == typed[0]
    assert json.loads(checked.stdout)["source"] == "lethe doctor, 127.0.0.1"


async def test_a_file_that_is_there_is_kept_and_nothing_is_spent(tmp_path: Path) -> None:
    own, provider = tmp_path / "own.toml", Scripted(Rules())
    own.write_text("mine")
    refused = await lethe(provider.script, "--yes", "--out", str(own))

    assert (2, "mine", []) == (refused.exit_code, own.read_text(), provider.bodies)
    assert "--force to overwrite" in refused.stderr

    forced = await lethe(provider.script, "--yes", "--out", str(own), "--force")

    assert 0 == forced.exit_code
    assert own.read_text().startswith("[[contract]]")


async def test_a_folder_that_is_not_there_is_told_before_anything_is_spent(tmp_path: Path) -> None:
    provider = Scripted(Rules())
    result = await lethe(provider.script, "--yes", "--out", str(tmp_path / "no" / "own.toml"))

    assert (2, []) == (result.exit_code, provider.bodies)
    assert "its folder does not exist" in result.stderr


async def test_what_was_paid_for_is_not_lost_where_it_cannot_be_written(tmp_path: Path) -> None:
    def script(came: Came) -> Answer:
        folder.rename(tmp_path / "moved") if folder.exists() else None
        return provider.answer(came)

    folder, provider = tmp_path / "here", Scripted(Rules())
    folder.mkdir()
    result = await lethe(script, "--yes", "--out", str(folder / "own.toml"))

    assert 1 == result.exit_code
    assert "cannot be written" in result.stderr
    assert "[[contract]]" in result.stdout


async def test_without_a_contract_nothing_is_written(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    result = await lethe(lambda came: Answer(chunks=(b"<html>",)), "--yes", "--out", str(own))

    assert (1, False) == (result.exit_code, own.exists())
    assert "LETHE_PROVIDERS" not in result.stderr


async def test_for_scripts_it_is_one_object() -> None:
    result = await lethe(Scripted(Rules()).script, "--yes", "--json")
    told = json.loads(result.stdout)
    values = {row["what"]: row["value"] for row in told["findings"]}

    assert 0 == result.exit_code
    assert ("prompt+generated", 1, "m") == (
        values["cache re-uses"], values["cache block"], told["model"],
    )  # fmt: skip
    assert told["contract"].startswith("[[contract]]\n")
    assert {"keep", "drop", "after_artifact", "keep_latest"} == told["policies"].keys()


async def test_before_it_spends_it_says_how_much_and_how_to_go_on() -> None:
    provider = Scripted(Rules())
    result = await lethe(provider.script)

    assert (2, "") == (result.exit_code, result.stdout)
    assert "at most 50 requests" in result.stderr
    assert "add --yes" in result.stderr
    assert [] == provider.bodies


async def test_a_key_is_sent_and_never_printed() -> None:
    provider = Scripted(Rules(keys=(KEY,), refuses=bears("reasoning", f"bad {KEY}")))
    result = await lethe(provider.script, "--yes", "--key-env", "MINE", MINE=KEY)

    assert 0 == result.exit_code
    assert "the key in MINE" in result.stderr
    assert KEY not in result.output


async def test_a_wrong_key_ends_it_with_what_to_do() -> None:
    provider = Scripted(Rules(keys=("right",)))
    result = await lethe(provider.script, "--yes", LETHE_DOCTOR_KEY=KEY)

    assert (1, "") == (result.exit_code, result.stdout)
    assert "--key-env" in result.stderr
    assert KEY not in result.output
    assert [] == provider.bodies


async def test_a_variable_that_is_not_set_is_told_before_anything_is_asked() -> None:
    provider = Scripted(Rules())
    result = await lethe(provider.script, "--yes", "--key-env", "NOT_THERE")

    assert 2 == result.exit_code
    assert "NOT_THERE is not set" in result.stderr


async def test_without_a_reply_there_is_a_table_and_no_contract() -> None:
    result = await lethe(lambda came: Answer(chunks=(b"<html>",)), "--yes")

    assert 1 == result.exit_code
    assert "HTML that is no JSON" in result.stdout
    assert "[[contract]]" not in result.stdout
    assert "Traceback" not in result.output


async def test_what_an_engine_calls_itself_brings_what_is_known_of_it() -> None:
    found = await lethe(Scripted(Rules(owned_by="vllm")).script, "--yes")

    assert 'name = "vllm-m"' in found.stdout
    assert 'source = "lethe doctor, 127.0.0.1; else as vllm"' in found.stdout


async def test_what_a_provider_says_steers_no_terminal() -> None:
    words = "\x1b[2J\u202e gone"
    provider = Scripted(Rules(refuses=bears("reasoning_content", words)))
    result = await lethe(provider.script, "--yes")

    assert 0 == result.exit_code
    assert not {"\x1b", "\u202e"} & set(result.stdout)


@pytest.mark.parametrize("url", ["api.example.com", "ftp://h", "http://", "http://u:p@h/v1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    typed = ("doctor", "--upstream", url, "--model", "m", "--yes")
    result = CliRunner().invoke(cli, typed)

    assert 2 == result.exit_code
    assert "--upstream" in result.stderr


def test_nobody_there_is_told_without_a_traceback() -> None:
    typed = ("doctor", "--upstream", "http://127.0.0.1:9", "--model", "m", "--yes")
    result = CliRunner().invoke(cli, typed, env={"LETHE_DOCTOR_KEY": None})

    assert 1 == result.exit_code
    assert "nobody answers there" in result.stderr


@pytest.mark.parametrize("answer", [True, False])
def test_at_a_terminal_it_asks(answer: bool) -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return answer

    assert answer is doctor.allowed(True, confirm)
    assert ["Go on?"] == asked


def test_a_key_that_cannot_be_one_is_refused_unseen() -> None:
    with pytest.raises(SettingsError, match="printable ASCII") as caught:
        doctor.key_from({"MINE": "geh\nim"}, "MINE")

    assert "geh" not in str(caught.value)


async def test_ctrl_c_at_a_terminal_ends_it_cleanly() -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(came: Came) -> Answer:
        loop.call_soon(began.set)
        return Answer(chunks=(b"x", b"y"), pause=30.0)

    async with providing(script) as upstream:
        ours, theirs = pty.openpty()
        typed = ("doctor", "--upstream", upstream.url, "--model", "m", "--yes")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proxy", *typed, stdin=theirs, stdout=theirs, stderr=theirs,
            # A shell that runs these tests in the background has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        os.close(theirs)
        try:
            await asyncio.wait_for(began.wait(), 20)
            process.send_signal(signal.SIGINT)
            code = await asyncio.wait_for(process.wait(), 20)
        finally:
            if process.returncode is None:
                process.kill()
        said = _all(ours)

    assert 130 == code
    assert "stopped; nothing was written" in said
    assert "Traceback" not in said


def _all(terminal: int) -> str:
    said, until = b"", time.monotonic() + 5
    try:
        while time.monotonic() < until and (piece := os.read(terminal, 65536)):
            said += piece
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    return said.decode()
