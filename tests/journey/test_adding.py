"""What is added on purpose, over real sockets: from the first request on, pinned over workers and
switches, counted; and where it is off, not one byte.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client import http_client
from tests.doors import redis_server as servers
from tests.journey.provider import Answer, Came, Provider, completion, providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.journey.test_journey import KEY

Body = dict[str, Any]


def answers(came: Came) -> Answer:
    return completion()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing(answers) as opened:
        yield opened


@pytest.fixture
def ledger() -> Iterator[servers.Server]:
    with servers.running(servers.valkey()) as server:
        yield server


class Proxies:
    """Proxies of one provider on one ledger, each with its own keys of `[[upstream]]`."""

    def __init__(self, provider: Provider, ledger: servers.Server, folder: Path) -> None:
        self._provider, self._ledger, self._folder = provider, ledger, folder
        self._count = 0

    @asynccontextmanager
    async def one(self, *keys: str) -> AsyncIterator[Running]:
        self._count += 1
        file = self._folder / f"{self._count}.toml"
        file.write_text("\n".join(["[[upstream]]", *keys]))
        settings = settings_for(self._provider.url, file, redis=self._ledger.url)
        async with running(settings) as proxy:
            yield proxy

    @asynccontextmanager
    async def two(self, *keys: str) -> AsyncIterator[list[Running]]:
        async with self.one(*keys) as first, self.one(*keys) as second:
            yield [first, second]


@pytest.fixture
def proxies(provider: Provider, ledger: servers.Server, tmp_path: Path) -> Proxies:
    return Proxies(provider, ledger, tmp_path)


def history(steps: int, name: str = "Do it.", system: str = "Be good.") -> list[Any]:
    rows: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": name}]
    for step in range(steps):
        said = {"role": "assistant", "content": f"I do {step}.", "reasoning_content": f"hm {step}"}
        rows += [said, {"role": "user", "content": f"And {step}?"}]
    return rows


def body(steps: int, name: str = "Do it.", system: str = "Be good.", **more: Any) -> Body:
    return {"model": "m", "messages": history(steps, name, system), **more}


def raw(body: Body) -> bytes:
    return json.dumps(body).encode()


async def ask(proxy: Running, sent: Body, policy: str = "keep", **more: str) -> httpx.Response:
    headers = {**KEY, "x-lethe-policy": policy, **more}
    async with http_client() as client:
        url = f"{proxy.url}/v1/chat/completions"
        return await client.post(url, content=raw(sent), headers=headers)


async def talk(workers: Sequence[Running], bodies: Sequence[Body], **more: str) -> list[str]:
    """Request after request, each to the next worker; what was found of each prefix."""
    told = []
    for at, sent in enumerate(bodies):
        reply = await ask(workers[at % len(workers)], sent, **more)
        assert 200 == reply.status_code
        told.append(reply.headers["x-lethe-prefix"])
    return told


def grows(told: Sequence[str]) -> bool:
    return told == ["cold_start", *["extended"] * (len(told) - 1)]


async def counted(proxies: Sequence[Running]) -> Mapping[str, float]:
    """`lethe_additions_total` by what was added, of all of them."""
    found: dict[str, float] = {}
    async with http_client() as client:
        for proxy in proxies:
            text = (await client.get(f"{proxy.admin}/metrics")).text
            rows = re.findall(r'^lethe_additions_total\{what="(\w+)"\} (\S+)$', text, re.MULTILINE)
            for what, count in rows:
                found[what] = found.get(what, 0) + float(count)
    return {what: count for what, count in found.items() if count}


def seen(provider: Provider, name: str) -> list[Any]:
    """A member of every request as it arrived; None where it is not there."""
    return [came.json().get(name) for came in provider.came]


FIREWORKS = 'contract = "fireworks"'
PRESERVED = "preserved"


# Preserve


async def test_a_preserve_flag_goes_from_the_first_request_on_by_whatever_worker(
    provider: Provider, proxies: Proxies
) -> None:
    async with proxies.two(FIREWORKS, "preserve = true") as workers:
        told = await talk(workers, [body(steps) for steps in range(4)])
        counts = await counted(workers)

    assert [PRESERVED] * 4 == seen(provider, "reasoning_history")
    assert grows(told)
    assert {"preserve": 4} == counts


async def test_a_conversation_that_began_without_it_goes_on_without_it(
    provider: Provider, proxies: Proxies
) -> None:
    async with (
        proxies.one(FIREWORKS) as off,
        proxies.one(FIREWORKS, "preserve = true") as on,
        proxies.one(FIREWORKS, "preserve = true") as other,
    ):
        told = await talk([off, off, on, other, on], [body(steps) for steps in range(5)])

    assert [None] * 5 == seen(provider, "reasoning_history")
    assert grows(told)


async def test_one_that_began_with_it_has_it_again_after_the_policy_was_off(
    provider: Provider, proxies: Proxies
) -> None:
    async with proxies.two(FIREWORKS, "preserve = true") as workers:
        await ask(workers[0], body(0))
        await ask(workers[0], body(1), "off")
        await ask(workers[1], body(2), "drop")

    assert [PRESERVED, None, PRESERVED] == seen(provider, "reasoning_history")
    assert raw(body(1)) == provider.came[1].body


@pytest.mark.parametrize("own", ["interleaved", None])
async def test_a_client_s_own_word_stands(
    provider: Provider, proxies: Proxies, own: str | None
) -> None:
    sent = body(1, reasoning_history=own, prompt_cache_key=own)
    async with proxies.one(FIREWORKS, "preserve = true", "affinity = true") as proxy:
        await ask(proxy, sent)
        counts = await counted([proxy])

    assert raw(sent) == provider.last.body
    assert {} == counts


# Affinity


async def test_a_conversation_has_one_id_in_the_body_and_another_has_another(
    provider: Provider, proxies: Proxies
) -> None:
    async with proxies.two(FIREWORKS, "affinity = true") as workers:
        told = await talk(workers, [body(steps) for steps in range(3)])
        await talk(workers, [body(steps, "Another.") for steps in range(2)])
        counts = await counted(workers)

    ids = seen(provider, "prompt_cache_key")
    assert [ids[0]] * 3 + [ids[3]] * 2 == ids
    assert 32 == len(ids[0]) == len(ids[3])
    assert ids[0] != ids[3]
    assert grows(told)
    assert {"affinity": 5} == counts


async def test_it_goes_in_a_header_where_the_contract_says_so_and_the_body_stays(
    provider: Provider, proxies: Proxies
) -> None:
    bodies = [body(steps) for steps in range(3)]
    async with proxies.two('contract = "xai"', "affinity = true") as workers:
        told = await talk(workers, bodies)
        await ask(workers[0], body(0), **{"X-Grok-Conv-Id": "mine"})
        counts = await counted(workers)

    ids = [came.headers["x-grok-conv-id"] for came in provider.came]
    assert [ids[0]] * 3 + ["mine"] == ids
    assert [raw(sent) for sent in bodies] == [came.body for came in provider.came[:3]]
    assert grows(told)
    assert {"affinity": 3} == counts


# The order of tools

NAMES = ["read", "bash", "edit", "grep", "write"]


def tools(names: Sequence[str]) -> list[Any]:
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]


def shuffled(seed: int, names: Sequence[str] = NAMES) -> list[str]:
    return random.Random(seed).sample(names, len(names))


def arrived(provider: Provider) -> list[list[str]]:
    return [[tool["function"]["name"] for tool in rows] for rows in seen(provider, "tools")]


@pytest.mark.parametrize("order", ["by_name", "late_last"])
async def test_tools_that_a_client_shuffles_leave_in_the_order_of_the_first_request(
    provider: Provider, proxies: Proxies, order: str
) -> None:
    bodies = [body(steps, tools=tools(shuffled(steps))) for steps in range(5)]
    async with proxies.two(f'tool_order = "{order}"') as workers:
        told = await talk(workers, bodies)
        counts = await counted(workers)

    first = sorted(NAMES) if order == "by_name" else shuffled(0)
    assert [first] * 5 == arrived(provider)
    assert grows(told)
    moved = [sent for sent in bodies if sent["tools"] != tools(first)]
    assert {"tools_order" if order == "by_name" else "late_tools": len(moved)} == counts


@pytest.mark.parametrize("order", ["by_name", "late_last"])
async def test_late_tools_go_behind_on_every_worker(
    provider: Provider, proxies: Proxies, order: str
) -> None:
    lists = [["bash", "read"], ["ask", "bash", "read"], ["aim", "ask", "bash", "read"]]
    bodies = [body(steps, tools=tools(lists[min(steps, 2)])) for steps in range(5)]
    async with proxies.two(f'tool_order = "{order}"') as workers:
        await talk(workers, bodies)

    assert [
        ["bash", "read"],
        ["bash", "read", "ask"],
        *[["bash", "read", "ask", "aim"]] * 3,
    ] == arrived(provider)


async def test_an_order_holds_over_a_switch_and_off_is_the_client_s_own(
    provider: Provider, proxies: Proxies
) -> None:
    lists = [shuffled(steps) for steps in range(4)]
    bodies = [body(steps, tools=tools(names)) for steps, names in enumerate(lists)]
    async with (
        proxies.one('tool_order = "late_last"') as late,
        proxies.one('tool_order = "by_name"') as by_name,
        proxies.one() as off,
    ):
        await talk([late, by_name, off, by_name], bodies)

    assert [lists[0], lists[0], lists[2], lists[0]] == arrived(provider)
    assert raw(bodies[2]) == provider.came[2].body


async def test_where_it_is_off_a_client_s_shuffling_is_told_as_its_own(
    provider: Provider, proxies: Proxies
) -> None:
    bodies = [body(steps, tools=tools(shuffled(steps))) for steps in range(2)]
    async with proxies.one() as proxy:
        told = await talk([proxy], bodies)

    assert ["cold_start", "broken; cause=tools_reordered"] == told


# Values that are made anew

CLOCK = r"pinned_patterns = ['It is (\d\d:\d\d)', 'nonce-[0-9a-f]+']"


def timed(minute: int) -> str:
    return f"Be good. It is 12:{minute:02}. Your id is nonce-{minute:x}."


async def test_values_that_are_made_anew_leave_as_they_first_were(
    provider: Provider, proxies: Proxies
) -> None:
    bodies = [body(steps, system=timed(steps)) for steps in range(4)]
    async with proxies.two(CLOCK) as workers:
        told = await talk(workers, bodies)
        counts = await counted(workers)

    first = {"role": "system", "content": timed(0)}
    assert [first] * 4 == [rows[0] for rows in seen(provider, "messages")]
    assert grows(told)
    assert {"system_values": 6} == counts


async def test_where_the_words_around_them_change_the_client_s_own_stand(
    provider: Provider, proxies: Proxies
) -> None:
    later = timed(1).replace("Be good.", "Be quick.")
    async with proxies.one(CLOCK) as proxy:
        told = await talk([proxy], [body(0, system=timed(0)), body(1, system=later)])

    assert later == provider.last.json()["messages"][0]["content"]
    assert ["cold_start", "broken; cause=system_changed"] == told


# Off

EVERYTHING = (
    FIREWORKS,
    "preserve = true",
    "affinity = true",
    'tool_order = "by_name"',
    CLOCK,
)


async def test_all_of_them_go_together_and_the_prompt_only_grows(
    provider: Provider, proxies: Proxies
) -> None:
    async with proxies.two(*EVERYTHING) as workers:
        told = await talk(
            workers,
            [
                body(steps, system=timed(steps), tools=tools(shuffled(steps)), stream=False)
                for steps in range(4)
            ],
        )

    assert grows(told)
    assert [PRESERVED] * 4 == seen(provider, "reasoning_history")
    assert 1 == len({*seen(provider, "prompt_cache_key")})
    assert [sorted(NAMES)] * 4 == arrived(provider)


@pytest.mark.parametrize("keys", [EVERYTHING, (FIREWORKS,)])
async def test_off_is_not_one_byte(
    provider: Provider, proxies: Proxies, keys: Sequence[str]
) -> None:
    """By the policy `off`, whatever is switched on; by the switches, under `keep`."""
    bodies = [body(steps, system=timed(steps), tools=tools(shuffled(steps))) for steps in range(3)]
    async with proxies.one(*keys) as proxy:
        await talk([proxy], bodies, policy="off" if keys is EVERYTHING else "keep")
        counts = await counted([proxy])

    assert [raw(sent) for sent in bodies] == [came.body for came in provider.came]
    assert {} == counts
    assert not any("x-session-affinity" in came.headers for came in provider.came)
