"""`lethe report` beside a running proxy: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from proxy.commands.report import report
from proxy.core import fingerprint
from proxy.core.sent import Element, Part, Sent
from proxy.ledger.contract import Record
from proxy.settings import Settings
from tests.client import http_client
from tests.journey.provider import Provider
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.talk import account, grow
from tests.page.talking import provider, proxy

__all__ = ["provider", "proxy"]

TOKEN = "an-admin-token"
cli = typer.Typer()
cli.command()(report)

_PRICES = """
[[price]]
model = "m"
input = 2
cache_read = 0.2
output = 10
source = "this test"
date = "2026-11-30"
"""


def priced(provider: Provider, folder: Path) -> Settings:
    (folder / "prices.toml").write_text(_PRICES)
    file = folder / "lethe.toml"
    file.write_text(f'prices = "{folder / "prices.toml"}"\n')
    return settings_for(provider.url, file)


async def lethe(proxy: Running | str, *words: str, columns: int = 180, **env: str) -> Result:
    """Run the command beside the proxy, as another process would."""
    url = proxy if isinstance(proxy, str) else proxy.admin
    environ: dict[str, str | None] = {"COLUMNS": str(columns), "LETHE_ADMIN_TOKEN": "", **env}
    command = [*words, "--admin", url]
    return await asyncio.to_thread(CliRunner().invoke, cli, command, env=environ)


async def as_json(proxy: Running, *words: str, **env: Any) -> Any:
    result = await lethe(proxy, *words, "--json", **env)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def put(proxy: Running, policy: str, count: int, dollars: float, output: int = 100) -> None:
    """Conversations of four steps, each of a task that the other policies have too."""
    element = Element(Part.MESSAGE, bytes(16), bytes(16), bytes(8), 10, 0, "user")
    for number in range(count):
        link = fingerprint.digest(policy.encode(), b"%d" % number)
        for turn in range(1, 5):
            told = account(
                turn, policy=policy, task=f"task-{number}",
                tokens={"input": 100, "cache_read": 60, "output": output + number % 3,
                        "reasoning": output // 2},
                dollars={"cost": dollars * (1 + number % 5 / 50), "estimated": policy != "keep",
                         "mechanical_saving": 0.0 if policy == "keep" else 0.05},
            )  # fmt: skip
            last = fingerprint.digest(link, b"%d" % turn)
            sent = Sent(last, last, (element,), proxy.doors.clock() - turn, "default")
            record = Record(bytes(16), link, link, sent, orjson.dumps(told), task=f"task-{number}")
            proxy.doors.ledger.remember(record)


# What it reads and prints


async def test_real_conversations_are_added_up_with_their_bills_and_outcomes(
    provider: Provider, tmp_path: Path
) -> None:
    async with running(priced(provider, tmp_path)) as proxy:
        ids = [
            await grow(proxy, 2, f"{policy}.", x_lethe_policy=policy, x_lethe_task="mend")
            for policy in ("keep", "drop")
        ]
        async with http_client() as client:
            for id, success in zip(ids, (True, False), strict=True):
                body = {"conversation": id, "success": success}
                await client.post(f"{proxy.admin}/lethe/outcomes", json=body)
        found = await as_json(proxy)

    rows = {row["policy"]: row for row in found["rows"]}
    (compared,) = found["comparisons"]
    assert [1.0, 0.0] == [rows[policy]["success"] for policy in ("keep", "drop")]
    # Of 100 tokens 60 are read from the cache; 10 are put out.
    bill = 3 * (40 * 2 + 60 * 0.2 + 10 * 10) / 1e6
    assert (bill, bill) == pytest.approx((rows["keep"]["cost"], rows["drop"]["cost"]))
    assert 0 == rows["keep"]["mechanical_saving"] != rows["drop"]["mechanical_saving"]
    assert {("m", 1, 3, 10.0, 0)} == {
        (row["model"], row["conversations"], row["steps"], row["output_per_step"],
         row["unpriced_requests"])
        for row in found["rows"]
    }  # fmt: skip
    assert ("drop", "not enough data") == (compared["policy"], compared["verdict"]["headline"])


async def test_two_policies_are_compared_in_plain_words(proxy: Running) -> None:
    put(proxy, "keep", 20, 1.0)
    put(proxy, "drop", 20, 0.8, 140)

    shown = " ".join((await lethe(proxy)).stdout.split())

    assert "40 conversations · 160 steps · 1 model · 20 tasks labelled" in shown
    assert "drop costs 20 % less (95 %: 20 to 20) than keep per step" in shown
    assert "Output per step rose 40 %" in shown
    assert "the agent re-derives" in shown
    assert "no outcome was posted" in shown


@pytest.mark.parametrize(("by", "rows"), [("policy", 2), ("model", 1), ("task", 24)])
async def test_rows_are_by_what_was_asked(proxy: Running, by: str, rows: int) -> None:
    put(proxy, "keep", 12, 1.0)
    put(proxy, "drop", 12, 0.8)

    assert rows == len((await as_json(proxy, "--by", by))["rows"])


async def test_markdown_goes_to_stdout_and_the_page_to_a_file(
    proxy: Running, tmp_path: Path
) -> None:
    put(proxy, "keep", 12, 1.0)
    put(proxy, "drop", 12, 0.8)
    file = tmp_path / "report.html"

    markdown = await lethe(proxy, "--markdown")
    page = await lethe(proxy, "--html", str(file))

    assert markdown.stdout.startswith("# Lethe report\n")
    assert (0, "", f"written: {file}\n") == (page.exit_code, page.stdout, page.stderr)
    assert file.read_text("utf-8").startswith("<!doctype html>")


async def test_only_what_was_active_since_counts(proxy: Running) -> None:
    put(proxy, "keep", 3, 1.0)

    assert 3 == (await as_json(proxy, "--since", "1h"))["conversations"]
    assert 0 == (await as_json(proxy, "--since", "2099-01-01"))["conversations"]
    assert "Look further back" in (await lethe(proxy, "--since", "2099-01-01T12:00Z")).stdout


async def test_an_empty_proxy_says_what_to_do(proxy: Running) -> None:
    result = await lethe(proxy)

    assert 0 == result.exit_code
    assert "export OPENAI_BASE_URL=" in result.stdout
    assert "x-lethe-task" in result.stdout


async def test_a_client_reports_on_its_own_conversations(provider: Provider) -> None:
    settings = settings_for(provider.url, environ={"LETHE_ADMIN_TOKEN": TOKEN})
    async with running(settings) as proxy:
        await grow(proxy, 1, "One.", key="sk-one")
        await grow(proxy, 1, "Two.", key="sk-two")
        everything = await as_json(proxy, LETHE_ADMIN_TOKEN=TOKEN)
        own = await as_json(proxy, LETHE_ADMIN_TOKEN="sk-one")
        refused = await lethe(proxy)

    assert (2, 1) == (everything["conversations"], own["conversations"])
    assert 1 == refused.exit_code
    assert "export LETHE_ADMIN_TOKEN" in refused.stderr


# What it refuses


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--by", "key"], "wanted one of: policy, model, task"),
        (["--since", "yesterday"], "wanted a span (90m, 24h, 7d, 2w) or a date"),
        (["--json", "--markdown"], "give one of them"),
        (["--html", "/nowhere/at/all.html"], "its folder does not exist"),
    ],
)
async def test_what_cannot_be_used_is_told_before_anybody_is_asked(
    words: list[str], complaint: str
) -> None:
    result = await lethe("http://127.0.0.1:9", *words)

    assert 2 == result.exit_code
    assert complaint in " ".join(result.stderr.split())


async def test_a_file_that_cannot_be_written_is_told(proxy: Running, tmp_path: Path) -> None:
    result = await lethe(proxy, "--html", str(tmp_path))

    assert 2 == result.exit_code
    assert "cannot be written" in result.stderr


async def test_a_port_where_nobody_is_says_how_to_start() -> None:
    result = await lethe("http://127.0.0.1:9")

    assert 1 == result.exit_code
    assert "lethe serve --upstream" in result.stderr
