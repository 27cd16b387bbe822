"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from proxy import __version__
from proxy.cli import cli
from proxy.core import policy
from proxy.core.contract import CacheRule, Reuse
from proxy.replay import scripted_agent
from proxy.replay.scripted_provider import ScriptedProvider
from proxy.replay.scripted_task import coding_task

UPSTREAM = ("--upstream", "http://127.0.0.1:9")


def lethe(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"LETHE_CONFIG": None, **environ})


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """`lethe serve` in a process of its own, and what it said until it was ready."""
    command = [sys.executable, "-m", "proxy", "serve", *arguments]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stderr is not None
            said: list[str] = []
            while not said or "export" not in said[-1]:
                line = process.stderr.readline()
                assert line, said
                said.append(line.rstrip("\n"))
            yield process, said
        finally:
            if process.poll() is None:
                process.kill()


def test_version_is_the_package_s() -> None:
    result = lethe("--version")

    assert (0, f"lethe {__version__}\n") == (result.exit_code, result.stdout)


def test_without_a_command_help_is_shown() -> None:
    result = lethe()

    assert all(name in result.output for name in ("serve", "demo", "policies"))


COMMANDS = dict(get_command(cli).commands)  # type: ignore[attr-defined]


def test_the_list_of_commands_tells_each_in_a_whole_line() -> None:
    text = lethe("--help", COLUMNS="80").stdout
    rows = text.partition("Commands:\n")[2].splitlines()

    assert list(COMMANDS) == [row.split()[0] for row in rows]
    assert all(row.endswith(".") and not row.endswith("...") for row in rows)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_eighty_columns_and_says_what_each_option_is(name: str) -> None:
    text = lethe(name, "--help", COLUMNS="80").stdout

    assert text.startswith("Usage:")
    assert max(map(len, text.splitlines())) <= 80
    assert [] == [it.name for it in COMMANDS[name].params if not it.help]


def test_policies_are_those_of_the_table() -> None:
    result = lethe("policies", "--json")
    rows = json.loads(result.stdout)

    assert [(it.form, it.verdict, it.prefix) for it in policy.ABOUT] == [
        (row["policy"], row["verdict"], row["prefix"]) for row in rows
    ]
    assert ["after_artifact"] == [row["policy"] for row in rows if row["default"]]


def test_policies_for_people_name_every_one_and_the_default() -> None:
    result = lethe("policies")

    assert all(name in result.stdout for name in policy.NAMES)
    assert "after_artifact (default)" in result.stdout
    assert "append-only: what reaches the provider only grows" in result.stdout


def test_all_complaints_come_at_once_and_without_a_traceback() -> None:
    result = lethe("serve", "--port", "x", "--policy", "kep", "--workers", "4")

    assert 2 == result.exit_code
    assert "" == result.stdout
    assert "Traceback" not in result.stderr
    for part in ("--port", "'kep' is unknown", "no upstream", "4 workers without Redis"):
        assert part in result.stderr


def test_a_configuration_file_is_read_from_the_option_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text("polcy = 'keep'\n")

    for result in (
        lethe("serve", *UPSTREAM, "--config", str(file)),
        lethe("serve", *UPSTREAM, LETHE_CONFIG=str(file)),
    ):
        assert 2 == result.exit_code
        assert "polcy" in result.stderr


def test_an_address_that_is_taken_is_a_complaint(tmp_path: Path) -> None:
    with serving(*UPSTREAM, "--port", "0", "--admin-port", "0") as (_, said):
        port = said[-1].removesuffix("/v1").rpartition(":")[2]
        result = lethe("serve", *UPSTREAM, "--port", port, "--admin-port", "0")

    assert 2 == result.exit_code
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


@pytest.mark.parametrize("option", [("--steps", "1"), ("--steps", "x"), ("--sedd", "1")])
def test_options_that_cannot_be_used_end_with_two(option: tuple[str, str]) -> None:
    assert 2 == lethe("demo", *option).exit_code


def test_serve_says_where_it_listens_and_what_its_memory_does_not_do() -> None:
    with serving(
        "--upstream", "http://127.0.0.1:9/api", "--host", "0.0.0.0", "--port", "0",
        "--admin-port", "0", "--policy", "drop",
    ) as (_, said):  # fmt: skip
        text = "\n".join(said)

    assert "http://127.0.0.1:9/api" in text
    assert "drop: drop every finished step's reasoning" in text
    assert "in memory: not shared with other processes, forgotten when this one ends" in text
    assert 2 == sum(line.startswith(("  listens", "  admin")) for line in said)
    assert re.search(r"^  page        http://127\.0\.0\.1:\d+/lethe/ui$", text, re.MULTILINE)
    assert re.search(r"^  metrics     http://127\.0\.0\.1:\d+/metrics$", text, re.MULTILINE)
    assert said[-1].startswith("  export OPENAI_BASE_URL=http://127.0.0.1:")
    assert said[-1].endswith("/v1")


def test_where_redis_is_is_told_without_its_password() -> None:
    with serving(
        *UPSTREAM, "--port", "0", "--admin-port", "0", "--redis", "redis://u:geheim@127.0.0.1:9/3"
    ) as (_, said):
        text = "\n".join(said)

    assert "Redis at 127.0.0.1:9" in text
    assert "geheim" not in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_serve_serves_until_a_signal_and_ends_with_zero(number: signal.Signals) -> None:
    task = coding_task(3, 1)
    async with ScriptedProvider(task.script, CacheRule(Reuse.GENERATED)) as upstream:
        with serving(
            "--upstream", upstream, "--port", "0", "--admin-port", "0", "--log", "off"
        ) as (process, said):
            url = said[-1].partition("=")[2]
            run = scripted_agent.run(task, url, "key", "drop", time.monotonic)
            told = [heard.told async for heard in run]
            process.send_signal(number)
            code = process.wait(20)

    assert 0 == code
    assert ["0", "1", "2", "3"] == [it["steps-dropped"] for it in told]
    assert ["cold_start", "extended", "extended", "extended"] == [it["prefix"] for it in told]


def test_demo_shows_tables_and_what_to_type_next() -> None:
    result = lethe("demo", "--steps", "2")

    assert 0 == result.exit_code
    assert all(name in result.stdout for name in ("keep", "drop", "after_artifact", "rebuilt"))
    assert result.stdout.rstrip().endswith("export OPENAI_BASE_URL=http://127.0.0.1:4100/v1")


def test_what_serves_carries_nothing_that_only_people_look_at() -> None:
    """All that the command line imports stays in a worker's memory."""
    heavy = ["fastapi", "genai_prices", "matplotlib", "prometheus_client", "proxy.replay", "rich"]
    script = f"import sys, proxy.cli; print([m for m in {heavy} if m in sys.modules])"

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert "[]\n" == found.stdout, found.stderr
