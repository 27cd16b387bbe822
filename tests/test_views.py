"""`lethe why`, `lethe show`, `lethe top`: what they print, and what they say when they cannot."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from proxy import views
from proxy.commands.asking import Admin, admin_at
from tests.journey.provider import Provider, providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.talk import SYSTEM, grow, history, put, silent, talk
from tests.page.talking import provider, proxy

__all__ = ["provider", "proxy"]

TOKEN = "an-admin-token"
cli = typer.Typer()
views.register(cli)


async def lethe(proxy: Running | str, *words: str, columns: int = 140, **env: str) -> Result:
    """Run a command beside the proxy, as another process would."""
    url = proxy if isinstance(proxy, str) else proxy.admin
    environ: dict[str, str | None] = {"COLUMNS": str(columns), "LETHE_ADMIN_TOKEN": "", **env}
    command = [*words, "--admin", url]
    return await asyncio.to_thread(CliRunner().invoke, cli, command, env=environ)


async def as_json(proxy: Running, *words: str, token: str = "") -> Any:
    result = await lethe(proxy, *words, "--json", LETHE_ADMIN_TOKEN=token)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


async def with_breaks(proxy: Running) -> str:
    """A clock came into the system prompt at turn 3."""
    noon = SYSTEM + " It is noon."
    turns = [history(1), history(2), history(2, system=noon), history(3, system=noon)]
    return await talk(proxy, turns)


# What they print


async def test_why_names_each_break_its_place_its_cost_and_the_way_out(proxy: Running) -> None:
    id = await with_breaks(proxy)

    shown = (await lethe(proxy, "why", id)).stdout

    assert f"{id} · m · after_artifact · 4 turns" in shown
    assert "turn 3  system_changed  by client" in shown
    assert "The system prompt changed" in shown
    for word in (
        "where",
        "$.messages[0]",
        "tokens rebuilt",
        "fix",
    ):
        assert word in shown


async def test_why_says_so_where_nothing_broke(proxy: Running) -> None:
    id = await grow(proxy, 3)

    quiet = (await lethe(proxy, "why")).stdout
    noted = (await lethe(proxy, "why", "--all")).stdout

    assert "No break in 4 turns" in quiet
    assert f"lethe why {id[:12]} --all" in quiet
    assert "turn 1  cold_start" in noted


async def test_show_prints_the_turns_and_marks_what_was_dropped(proxy: Running) -> None:
    id = await grow(proxy, 3, x_lethe_policy="drop")

    shown = (await lethe(proxy, "show", id, "--messages")).stdout

    assert "input 400 · 60 % read from the cache" in shown
    assert "extended" in shown
    assert "[reasoning dropped] Thought 0." in shown
    assert "[call bash] " in shown
    assert "[result] ok 2" in shown


async def test_long_texts_and_many_turns_are_cut_unless_all_is_asked_for(proxy: Running) -> None:
    id = await talk(proxy, [history(count, "a" * 2_000) for count in range(25)])

    cut = (await lethe(proxy, "show", id, "--messages")).stdout
    whole = (await lethe(proxy, "show", id, "--messages", "--all")).stdout

    assert f"the last 20 of 25; all: lethe show {id[:12]} --all" in cut
    assert "1,400 more characters" in cut
    assert "more characters" not in whole
    assert 2_000 <= whole.count("a")


async def test_top_lists_conversations_and_sums(proxy: Running) -> None:
    first = await grow(proxy, 2, "One.")
    second = await with_breaks(proxy)

    shown = (await lethe(proxy, "top", "--once")).stdout

    assert "2 conversations · 2 active · 0 in flight" in shown
    assert shown.index(second[:10]) < shown.index(first[:10])
    assert "ledger up" in shown


async def test_a_narrow_terminal_has_fewer_columns_and_no_broken_ones(proxy: Running) -> None:
    id = await grow(proxy, 2)

    narrow = (await lethe(proxy, "top", "--once", columns=80)).stdout

    assert "1 conversation · " in narrow
    assert id[:10] in narrow
    assert "extended" in narrow
    assert "policy" not in narrow
    assert all(len(line) <= 80 for line in narrow.splitlines())


async def test_an_empty_proxy_says_what_to_do(proxy: Running) -> None:
    shown = (await lethe(proxy, "top", "--once")).stdout
    latest = await lethe(proxy, "why")

    assert "point an agent at the proxy" in shown
    assert (1, "") == (latest.exit_code, latest.stdout)
    assert "no conversation yet: point an agent at the proxy" in latest.stderr


async def test_what_is_unknown_is_a_dash() -> None:
    async with providing(silent) as provider, running(settings_for(provider.url)) as proxy:
        id = await grow(proxy, 1)
        shown = (await lethe(proxy, "show", id)).stdout

    assert "– read from the cache" in shown
    last = [line for line in shown.splitlines() if "extended" in line][-1]
    assert ["2", "extended", "100", "–", "–", "–", "–"] == last.split()[:7]


async def test_hostile_text_steers_no_terminal(proxy: Running) -> None:
    hostile = "\x1b]0;pwned\x07\x1b[31m\u202e[bold]red[/bold]"
    await talk(proxy, [history(1, hostile)], model="m\x1b[2J", x_lethe_task="t")

    for words in (["show", "--messages"], ["top", "--once"], ["why", "--all"]):
        shown = (await lethe(proxy, *words)).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\x07" not in shown
    assert "[bold]red[/bold]" in (await lethe(proxy, "show", "--messages")).stdout


async def test_everything_is_there_for_scripts(proxy: Running) -> None:
    id = await with_breaks(proxy)

    why = await as_json(proxy, "why", id)
    show = await as_json(proxy, "show", id, "--messages")
    top = await as_json(proxy, "top")

    assert ["system_changed"] == [it["cause"] for it in why["findings"] if it["kind"] == "break"]
    assert (id, 4, 8) == (
        show["id"],
        len(show["timeline"]),
        len([it for it in show["messages"] if it["message"] is not None]),
    )
    assert [id] == [row["id"] for row in top["rows"]]
    assert 1 == top["conversations"]["listed"]


# How a conversation is named


async def test_the_beginning_of_an_id_is_enough_where_it_names_one(proxy: Running) -> None:
    put(proxy, 300)
    ids = [row["id"] for row in (await as_json(proxy, "top"))["rows"]]
    shared = next(id[:1] for id in ids if sum(other.startswith(id[:1]) for other in ids) > 1)

    assert ids[7] == (await as_json(proxy, "show", ids[7][:8]))["id"]
    assert ids[7] == (await as_json(proxy, "show", ids[7].upper()))["id"]
    assert ids[0] == (await as_json(proxy, "show", "latest"))["id"]
    several = await lethe(proxy, "show", shared)
    assert 1 == several.exit_code
    assert f"conversations begin with '{shared}'" in several.stderr


async def test_an_id_that_is_not_there_is_told(proxy: Running) -> None:
    for id in ("zz", "00" * 16):
        result = await lethe(proxy, "why", id)
        assert 1 == result.exit_code
        assert "no conversation" in result.stderr


# When they cannot


async def test_a_port_where_nobody_is_says_how_to_start_and_where_to_look() -> None:
    result = await lethe("http://127.0.0.1:9", "top", "--once")

    assert 1 == result.exit_code
    assert "lethe serve --upstream" in result.stderr
    assert "--admin http://host:4101" in result.stderr


async def test_the_token_comes_from_the_environment_and_is_asked_for(provider: Provider) -> None:
    settings = settings_for(provider.url, environ={"LETHE_ADMIN_TOKEN": TOKEN})
    async with running(settings) as proxy:
        one = await grow(proxy, 1, "One.", key="sk-one")
        await grow(proxy, 1, "Two.", key="sk-two")
        refused = await lethe(proxy, "top", "--once")
        everything = await as_json(proxy, "top", token=TOKEN)
        own = await as_json(proxy, "top", token="sk-one")

    assert 1 == refused.exit_code
    assert "export LETHE_ADMIN_TOKEN" in refused.stderr
    assert 2 == len(everything["rows"])
    assert [one] == [row["id"] for row in own["rows"]]


async def test_the_token_is_not_sent_to_the_port_that_passes_requests_on(
    proxy: Running, provider: Provider
) -> None:
    result = await lethe(proxy.url, "top", "--once", LETHE_ADMIN_TOKEN=TOKEN)

    assert 1 == result.exit_code
    assert "is not the admin listener" in result.stderr
    assert [] == provider.came


def test_what_is_no_url_cannot_be_used() -> None:
    result = CliRunner().invoke(cli, ["top", "--admin", "localhost"])

    assert 2 == result.exit_code
    assert "wanted a URL" in result.stderr


def test_without_a_url_the_listener_is_where_the_settings_put_it(tmp_path: Path) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text('[admin]\nhost = "::"\nport = 4999\ntoken_env = "MY_TOKEN"\n')

    plain = admin_at(None, None, {"LETHE_ADMIN_PORT": "4998"})
    written = admin_at(None, file, {"MY_TOKEN": "secret"})

    assert Admin("http://127.0.0.1:4998", None) == plain
    assert Admin("http://[::1]:4999", "secret") == written


# How long it takes


async def test_a_thousand_conversations_are_listed(
    proxy: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    put(proxy, 1_000)

    began = time.perf_counter()
    whole = (await lethe(proxy, "top", "--once")).stdout
    listed = time.perf_counter()
    screen = (await lethe(proxy, "top", "--once", "--limit", "50")).stdout
    painted = time.perf_counter()

    assert "1,000+ conversations" in whole
    assert (1_000, 50) == (whole.count("model-"), screen.count("model-"))
    with capsys.disabled():
        print(f"\nlethe top, 1,000 conversations: a screen of 50 in {painted - listed:.3f} s, "
              f"all of them in {listed - began:.3f} s")  # fmt: skip
