"""What models cost: own prices first, then the list, which a program of its own reads."""

from __future__ import annotations

import asyncio
import json
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy import pricefile, pricelist, prices
from proxy.cli import cli
from proxy.core import pricing
from proxy.core.tariff import Tariff, Unpriced
from proxy.core.usage import Usage
from proxy.prices import Prices
from proxy.settings import Settings, UpstreamSettings
from tests.shared import ROOT

NOON = 1_796_040_000.0
"""2026-11-30, 12:00 UTC."""
OWN = (
    '[[price]]\nmodel = "deepseek-v4-pro*"\ninput = 1.32\ncache_read = 0.003625\noutput = 3.96\n'
    'source = "invoice"\ndate = "2026-11-01"\n'
    '[[price]]\nmodel = "local-*"\nupstream = "cellar"\ninput = 0.1\noutput = 0.2\n'
)
DEEPSEEK = UpstreamSettings(url="https://api.deepseek.com/v1")
CELLAR = UpstreamSettings(url="http://127.0.0.1:8000", name="cellar")
GATEWAY = UpstreamSettings(url="http://gateway:4000", name="gateway", priced_as="openai")
ODD = UpstreamSettings(url="https://models.example.com", name="odd")


def settings(file: Path | None = None) -> Settings:
    return Settings(upstreams=(DEEPSEEK, CELLAR, GATEWAY, ODD), prices=str(file) if file else None)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "prices.toml"
    file.write_text(OWN)
    return file


async def ready(file: Path | None = None, said: list[str] | None = None) -> Prices:
    found = Prices(settings(file), (said if said is not None else []).append)
    await found.load(pricelist.answer)
    return found


def tariff(found: Tariff | Unpriced) -> Tariff:
    assert isinstance(found, Tariff)
    return found


# Own prices


async def test_an_own_price_goes_before_the_list_and_keeps_every_digit(own: Path) -> None:
    found = tariff((await ready(own)).of("default", "deepseek-v4-pro"))

    cost = pricing.cost(Usage(7, 7, 0, None, 0), found.sheet(7, NOON))
    assert cost is not None
    assert Decimal("0.000000025375") == cost.total
    assert ("invoice", "2026-11-01") == (found.source, found.date)


async def test_an_own_price_holds_where_its_upstream_fits(own: Path) -> None:
    found = await ready(own)

    assert isinstance(found.of("cellar", "local-7b"), Tariff)
    assert Unpriced.MODEL is found.of("default", "local-7b")


def test_a_price_that_is_none_is_complained_of_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        '[[price]]\nmodel = "m"\ninput = -0.5\noutput = true\ncache_reed = 1\ndate = "yesterday"\n'
        '[[price]]\nmodel = "n"\ninput = nan\n'
    )

    rows, told = pricefile.read(file)

    text = "\n".join(told).replace(f"{tmp_path}/", "")
    assert 2 == len(rows)
    for place in ("1 input: got -0.5", "1 output: got True", "1 cache_reed: is unknown"):
        assert f"prices.toml: [[price]] {place}" in text
    for place in ("1 date:", "2 input:", "2 output:"):
        assert f"prices.toml: [[price]] {place}" in text


@pytest.mark.parametrize(
    ("content", "word"), [(b"\xff", "not UTF-8"), (b"= 1", "is not TOML"), (None, "cannot be read")]
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, content: bytes | None, word: str
) -> None:
    file = tmp_path / "prices.toml"
    if content is not None:
        file.write_bytes(content)

    assert word in pricefile.read(file)[1][0]


def test_the_shipped_file_sets_nothing_and_its_example_can_be_used(tmp_path: Path) -> None:
    shipped = ROOT / "config" / "prices.toml"
    text = shipped.read_text(encoding="utf-8")
    file = tmp_path / "prices.toml"
    lines = (line.removeprefix("#") for line in text.splitlines() if not line.startswith("# "))
    file.write_text("\n".join(lines))

    assert ((), []) == pricefile.read(shipped)
    (row,), told = pricefile.read(file)
    assert [] == told
    assert ("example-*", "*", Decimal("1.25"), "2026-11-30") == (
        row.model, row.upstream, row.cache_write, row.date
    )  # fmt: skip


# The list


async def test_a_provider_is_known_by_its_host_or_by_its_name() -> None:
    found = await ready()

    assert "deepseek" == tariff(found.of("default", "deepseek-chat")).provider
    assert "openai" == tariff(found.of("gateway", "gpt-5")).provider
    assert Unpriced.PROVIDER is found.of("odd", "gpt-5")
    assert Unpriced.PROVIDER is found.of("cellar", "gpt-5")
    assert Unpriced.MODEL is found.of("default", "gpt-5")


async def test_until_the_list_is_there_a_price_is_pending_and_then_it_is_known() -> None:
    found = Prices(settings())

    assert Unpriced.PENDING is found.of("default", "deepseek-chat")
    await found.load(pricelist.answer)
    assert isinstance(found.of("default", "deepseek-chat"), Tariff)


async def test_the_list_is_read_by_a_program_of_its_own() -> None:
    """What serves never holds its data."""
    script = """
import asyncio, sys
from proxy.prices import Prices
from proxy.settings import Settings, UpstreamSettings
found = Prices(Settings(upstreams=(UpstreamSettings(url="https://api.deepseek.com/v1"),)))
asyncio.run(found.load())
print(found.of("default", "deepseek-chat").provider, "genai_prices" in sys.modules)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    told, _ = await process.communicate()

    assert b"deepseek False" == told.strip()


async def test_a_list_that_cannot_be_read_is_told_once_and_harms_nobody(own: Path) -> None:
    def broken(question: bytes) -> bytes:
        raise ImportError

    said: list[str] = []
    found = Prices(settings(own), said.append)
    await found.load(broken)

    assert Unpriced.NO_LIST is found.of("default", "deepseek-chat")
    assert isinstance(found.of("default", "deepseek-v4-pro"), Tariff)
    assert 1 == len(said)
    assert "genai-prices" in said[0]


async def test_whoever_stops_does_not_wait_for_the_list() -> None:
    found = Prices(settings())
    async with asyncio.timeout(10):
        loading = asyncio.ensure_future(found.load())
        await asyncio.sleep(0)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading

    assert Unpriced.PENDING is found.of("default", "deepseek-chat")


async def test_an_address_of_nobody_is_not_asked_for() -> None:
    def unasked(question: bytes) -> bytes:
        raise AssertionError("nothing was to be asked")

    hosts = ("http://10.0.0.1", "http://[::1]:8000", "http://localhost:8000", "http://vllm:8000")
    for host in hosts:
        found = Prices(Settings(upstreams=(UpstreamSettings(url=host),)))
        await found.load(unasked)
        assert Unpriced.PROVIDER is found.of("default", "m")


# What is told


async def test_a_model_without_a_price_is_told_once_and_harmlessly() -> None:
    said: list[str] = []
    found = await ready(None, said)

    for _ in range(3):
        for model in ("new\x1b[2J\n", "newer"):
            found.missed("default", model, Unpriced.MODEL)
        found.missed("default", "later", Unpriced.PENDING)

    assert 2 == len(said)
    assert "\x1b" not in said[0]
    assert "\n" not in said[0]
    assert "[[price]]" in said[0]


async def test_no_more_is_told_and_held_than_a_bound() -> None:
    said: list[str] = []
    found = await ready(None, said)

    for number in range(3000):
        assert Unpriced.MODEL is found.of("default", f"m{number}")
        found.missed("default", f"m{number}", Unpriced.MODEL)

    assert 100 == len(said)
    assert len(found._found) <= 1000


# The command


def run(*arguments: str, **environ: str) -> tuple[int, str, str]:
    env = {"LETHE_PRICES": "", "LETHE_CONFIG": "", "COLUMNS": "200"} | environ
    result = CliRunner().invoke(cli, ["price", *arguments], env=env)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_shows_what_a_model_costs_where_from_and_how_old(own: Path) -> None:
    code, text, _ = run("--model", "deepseek-v4-pro", LETHE_PRICES=str(own))

    assert 0 == code
    assert "0.003625" in text
    assert "invoice, 2026-11-01 (" in text
    assert "genai-prices" in text
    assert "is not older than" in text


def test_the_command_tells_scripts_all_digits(own: Path) -> None:
    code, text, _ = run(
        "--model", "deepseek-v4-pro", "--provider", "deepseek", "--json", LETHE_PRICES=str(own)
    )

    mine, listed = json.loads(text)
    assert 0 == code
    assert {"when": "now", "input": "1.32", "cache_read": "0.003625", "output": "3.96"}.items() <= (
        mine["prices"][0].items()
    )
    assert (None, "2026-11-01", "deepseek") == (mine["provider"], mine["date"], listed["provider"])


def test_the_command_shows_tiers_by_length_and_hours_of_the_day() -> None:
    assert (
        "input above 200,000" in run("--model", "claude-sonnet-4-5", "--provider", "anthropic")[1]
    )
    assert "01:00 to 04:00 UTC" in run("--model", "deepseek-flash", "--provider", "deepseek")[1]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "deepseek-reasoner", "deepseek-v4-pro"])
def test_the_table_fits_eighty_columns_with_nothing_cut_or_broken(own: Path, model: str) -> None:
    code, text, _ = run("--model", model, COLUMNS="80", LETHE_PRICES=str(own))
    rows = text.partition("Dollars a million")[0].splitlines()

    assert 0 == code
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert any(f"/{model}" in row for row in rows)
    assert all(row.startswith(("  ", "yours: ", "─")) or "/" in row for row in rows)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--model"),
        (("--model", "m", "--provider", "opanai"), "did you mean openai?"),
        (("--model", "deepsek-chat", "--provider", "deepseek"), "close to it: deepseek-chat"),
        (("--model", "a-model-of-nobody"), "[[price]]"),
    ],
)
def test_the_command_says_what_to_do_where_nothing_is_known(
    arguments: tuple[str, ...], word: str
) -> None:
    code, _, told = run(*arguments)

    assert 2 == code
    assert word in told


def test_the_command_lists_the_providers() -> None:
    code, text, _ = run("--providers", "--json")

    assert 0 == code
    assert pricelist.names() == json.loads(text)
    assert "openrouter" in run("--providers")[1]


def test_a_price_is_looked_up_without_an_upstream_too(own: Path) -> None:
    found = prices.listed("deepseek-v4-pro", ["deepseek", "nobody"], own, pricelist.answer)

    assert ["", "deepseek"] == [one.provider for one in found]
