"""Policy `observe` over real sockets: what it tells of other policies is what they come to when the
same agent runs under them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.core.contract import CacheRule, Reuse
from tests.client import http_client
from tests.doors import redis_server as servers
from tests.journey.provider import providing
from tests.journey.proxy_server import Running, running
from tests.journey.test_money import PRICES, STEPS, Engine, toy
from tests.ledger.words import written

SHADOWS = ("drop", "after_artifact", "random:0.5", "horizon:40", "keep_latest:2")


async def agent(proxies: list[Running], policy: str) -> list[bytes]:
    """Echoes every reply as it came, and answers its tool; each request goes to another proxy. What
    was sent comes back.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go, agent.".ljust(300)}]
    async with http_client(30) as client:
        for step in range(STEPS):
            proxy = proxies[step % len(proxies)]
            reply = await client.post(
                f"{proxy.url}/v1/chat/completions",
                json={"model": "m", "messages": messages},
                headers={"x-lethe-policy": policy, "authorization": f"Bearer {policy}"},
            )
            messages.append(reply.json()["choices"][0]["message"])
            messages.append(
                {"role": "tool", "tool_call_id": f"call-{step}", "content": "ok." * (20 + step)}
            )
            await written(*(each.doors.ledger for each in proxies))
    return [json.dumps(message).encode() for message in messages]


class Engines(Engine):
    """A cache for each credential."""

    def answer(self, came: Any) -> Any:
        own = self._own.setdefault(came.headers["authorization"], Engine(self._rule))
        return own.answer(came)

    def __init__(self, rule: CacheRule) -> None:
        super().__init__(rule)
        self._own: dict[str, Engine] = {}


@asynccontextmanager
async def proxied(
    rule: CacheRule, folder: Path, redis: str | None = None, more: str = ""
) -> AsyncIterator[list[Running]]:
    """One proxy, or two that share a store. Both write to one log."""
    async with AsyncExitStack() as open_:
        provider = await open_.enter_async_context(providing(Engines(rule).answer))
        prices = f"[[price]]\n{PRICES}" if "priced" not in more else ""
        more = f"shadow = {json.dumps(SHADOWS)}\n{more}"
        settings = toy(folder, provider.url, rule, prices, more, redis)
        count = 2 if redis else 1
        yield [await open_.enter_async_context(running(settings)) for _ in range(count)]


def told(folder: Path, policy: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "log").read_text().splitlines())
    found = [line for line in lines if line["policy"] == policy]
    return sorted(found, key=lambda line: int(line["steps"]["total"]))


def under(line: dict[str, Any]) -> dict[str, Any]:
    """What an exchange came to, in a shadow's words."""
    return {
        "fresh": line["steps"]["fresh"],
        "dropped": line["steps"]["dropped"],
        "reasoning_tokens": line["reasoning_tokens"]["dropped"],
        "estimated": line["reasoning_tokens"]["estimated"],
        "input": line["tokens"]["input"],
        "cache_read": line["tokens"]["cache_read"],
        "dollars": line["dollars"]["cost"],
    }


def shadow_of(line: dict[str, Any], policy: str) -> dict[str, Any]:
    found = dict(line["shadow"][policy])
    assert found["dollars"] + found.pop("mechanical_saving") == pytest.approx(
        line["dollars"]["cost"], abs=1e-11
    )
    return found


@pytest.mark.parametrize("reuse", list(Reuse))
@pytest.mark.parametrize("block", [1, 64])
async def test_a_shadow_is_what_its_policy_comes_to_exchange_by_exchange(
    tmp_path: Path, reuse: Reuse, block: int
) -> None:
    async with proxied(CacheRule(reuse, block), tmp_path) as proxies:
        for policy in ("observe", *SHADOWS):
            await agent(proxies, policy)

    seen = told(tmp_path, "observe")
    assert STEPS == len(seen)
    for policy in SHADOWS:
        really = list(map(under, told(tmp_path, policy)))
        found = [shadow_of(it, policy) for it in seen]
        assert not any(it.pop("estimated") for it in found)
        for it, one in zip(really, found, strict=True):
            if it.pop("estimated"):
                # What the policy itself has to estimate a shadow has kept count of.
                it["reasoning_tokens"] = one["reasoning_tokens"]
        assert really == found


async def test_it_is_so_when_every_request_goes_to_another_worker(
    tmp_path: Path, store: servers.Server
) -> None:
    async with proxied(CacheRule(Reuse.GENERATED), tmp_path, store.url) as proxies:
        for policy in ("observe", "drop"):
            await agent(proxies, policy)

    seen = told(tmp_path, "observe")
    assert list(map(under, told(tmp_path, "drop"))) == [shadow_of(it, "drop") for it in seen]
    assert not any(it["shadow"]["random:0.5"]["estimated"] for it in seen)


@pytest.fixture
def store() -> Iterator[servers.Server]:
    with servers.running(servers.valkey()) as server:
        yield server


async def test_it_sends_and_settles_what_keep_does(tmp_path: Path) -> None:
    async with proxied(CacheRule(Reuse.PROMPT), tmp_path) as proxies:
        kept, observed = [await agent(proxies, policy) for policy in ("keep", "observe")]

    assert kept == observed
    keep, observe = (told(tmp_path, policy) for policy in ("keep", "observe"))
    for name in ("steps", "tokens", "dollars", "reasoning_bytes", "prefix"):
        assert [it[name] for it in keep] == [it[name] for it in observe]
    assert not any("shadow" in it for it in keep)


async def test_without_a_price_there_are_tokens_alone(tmp_path: Path) -> None:
    async with proxied(CacheRule(Reuse.PROMPT), tmp_path, more="# not priced\n") as proxies:
        await agent(proxies, "observe")

    last = told(tmp_path, "observe")[-1]["shadow"]["drop"]
    assert {"fresh", "dropped", "reasoning_tokens", "estimated", "input", "cache_read"} == set(last)


async def test_metrics_lay_every_shadow_beside_what_was_sent(tmp_path: Path) -> None:
    async with proxied(CacheRule(Reuse.PROMPT), tmp_path) as proxies:
        await agent(proxies, "observe")
        async with http_client() as client:
            text = (await client.get(f"{proxies[0].admin}/metrics")).text

    seen = told(tmp_path, "observe")
    sent = sum(it["tokens"]["input"] for it in seen)
    dropped = sum(it["shadow"]["drop"]["input"] for it in seen)
    assert f'lethe_shadow_tokens_total{{kind="input",policy="observe"}} {float(sent)}' in text
    assert f'lethe_shadow_tokens_total{{kind="input",policy="drop"}} {float(dropped)}' in text
    assert 'lethe_shadow_steps_total{policy="drop",verdict="drop"} 5.0' in text
    assert 'lethe_shadow_dollars_total{policy="drop"}' in text


async def test_a_shadow_that_fails_is_counted_and_nobody_waits_for_it(tmp_path: Path) -> None:
    async with proxied(CacheRule(Reuse.PROMPT), tmp_path) as proxies:
        rules: Any = proxies[0].doors.rules
        rules[""] = None  # none can judge by these
        await agent(proxies, "observe")
        async with http_client() as client:
            text = (await client.get(f"{proxies[0].admin}/metrics")).text

    seen = told(tmp_path, "observe")
    assert STEPS == len(seen)
    assert {200} == {it["status"] for it in seen}
    assert 'lethe_faults_total{place="shadow"} 5.0' in text


# The policy `horizon`


async def test_the_numbers_that_decided_a_step_are_in_its_line(tmp_path: Path) -> None:
    async with proxied(CacheRule(Reuse.GENERATED), tmp_path) as proxies:
        await agent(proxies, "horizon:1")
        await agent(proxies, "horizon:100")

    kept, dropped = told(tmp_path, "horizon:1"), told(tmp_path, "horizon:100")
    assert "horizon" not in kept[0]
    for lines, verdict in ((kept, "keep"), (dropped, "drop")):
        for at, line in enumerate(lines[1:]):
            (weighed,) = line["horizon"]
            before = lines[at]["tokens"]
            assert (at, verdict, "requests", "policy") == tuple(
                weighed[name] for name in ("step", "verdict", "unit", "from")
            )
            assert weighed["counted"]
            sizes = (weighed["before"], weighed["reasoning"])
            assert (before["input"], before["reasoning"]) == sizes
            assert before["output"] == weighed["reasoning"] + weighed["action"]
            assert {verdict: 1} == line["steps"]["fresh"]


async def test_without_a_price_a_horizon_is_in_positions(tmp_path: Path) -> None:
    more = "# not priced\n[horizon]\nremaining = 5000000\nexchange_rate = 1000\n"
    async with proxied(CacheRule(Reuse.GENERATED), tmp_path, more=more) as proxies:
        await agent(proxies, "horizon")

    (weighed,) = told(tmp_path, "horizon")[-1]["horizon"]
    reasoning, action, before = (weighed[name] for name in ("reasoning", "action", "before"))
    horizon = action / reasoning * (1000 + before + (action + 1) / 2)
    assert ("positions", "settings", "drop") == tuple(
        weighed[name] for name in ("unit", "from", "verdict")
    )
    assert weighed["horizon"] == pytest.approx(horizon, abs=0.001)


async def test_what_is_not_known_is_kept(tmp_path: Path) -> None:
    async with proxied(CacheRule(Reuse.GENERATED), tmp_path) as proxies:
        await agent(proxies, "horizon")

    assert {"keep"} == {name for it in told(tmp_path, "horizon") for name in it["steps"]["fresh"]}
    (weighed,) = told(tmp_path, "horizon")[-1]["horizon"]
    assert (None, "unknown", 0) == tuple(weighed[n] for n in ("expected", "from", "samples"))
