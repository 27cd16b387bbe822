"""A real Prometheus scrapes a real proxy under traffic: every panel shows something, every rule is
evaluated.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.client import http_client
from tests.deploy.boards import ALERTS, DASHBOARDS, DEPLOY, filled, panels, rules
from tests.doors import redis_server as servers
from tests.journey.provider import Answer, Came, chunk, completion, providing, stream
from tests.journey.proxy_server import Running, running, settings_for

PATIENCE = 30.0
"""Seconds for what another process has to get done; it takes a few."""
WINDOW = "10s"
POLICIES = ("keep", "drop", "after_artifact", "keep_latest:1", "random:0.5", "observe")
TURNS = 4


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Its HTTP API."""

    client: httpx.AsyncClient
    url: str

    async def query(self, query: str) -> list[Any]:
        """The series that an instant query finds."""
        return await self._asked("query", query=query)

    async def over(self, query: str, end: float, seconds: float) -> list[Any]:
        """The series that a query finds, second by second up to `end`."""
        start, stop = str(end - seconds), str(end)
        return await self._asked("query_range", query=query, start=start, end=stop, step="1")

    async def is_ready(self) -> bool:
        """It listens before it answers."""
        try:
            return (await self.client.get(f"{self.url}/-/ready")).is_success
        except httpx.TransportError:
            return False

    async def rules(self) -> list[Any]:
        reply = await self.client.get(f"{self.url}/api/v1/rules")
        return [rule for group in reply.json()["data"]["groups"] for rule in group["rules"]]

    async def _asked(self, kind: str, **form: str) -> list[Any]:
        reply = await self.client.post(f"{self.url}/api/v1/{kind}", data=form)
        told = reply.json()
        assert "success" == told["status"], (form["query"], told.get("error"))
        assert not told.get("warnings"), told["warnings"]
        found: list[Any] = told["data"]["result"]
        return found


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[Prometheus]:
    """One that scrapes `target` twice a second, with the configuration and the rules that ship."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    config["rule_files"] = [str(ALERTS)]
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "lethe"]
    (folder / "token").write_text("admin-token")
    job["authorization"]["credentials_file"] = str(folder / "token")
    job["static_configs"] = [{"targets": [target]}]
    config["scrape_configs"] = [job]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = servers.free_port()
    command = [
        binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = await asyncio.to_thread(_started, command, log)
    try:
        async with http_client(10) as client:
            found = Prometheus(client, f"http://127.0.0.1:{port}")
            await ready(found)
            yield found
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


def _started(command: list[str], log: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=log, stderr=log)


async def ready(found: Prometheus) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await found.is_ready():  # noqa: ASYNC110  (another process's doing)
            await asyncio.sleep(0.05)


async def comes(found: Prometheus, query: str) -> list[Any]:
    """The series that a query finds, as soon as there is one."""
    async with asyncio.timeout(PATIENCE):
        while not (rows := await found.query(query)):  # noqa: ASYNC110  (the same)
            await asyncio.sleep(0.05)
        return rows


async def scraped(found: Prometheus, more: int) -> None:
    """Wait until Prometheus has come by so many times more."""
    times = 'sum(count_over_time(up{job="lethe"}[1h]))'
    ((_, before),) = [row["value"] for row in await comes(found, times)]
    await comes(found, f"{times} >= {before} + {more}")


# Traffic of every kind


def answers(came: Came) -> Answer:
    """A provider that errs, reports nothing, or serves less from its cache than it should, by the
    model's name.
    """
    try:
        asked = json.loads(came.body)
    except ValueError:
        return completion()
    match asked.get("model"):
        case "busy":
            return Answer(429, chunks=(b'{"error":{"type":"rate_limit_error"}}',))
        case "silent":
            return Answer(chunks=(b'{"choices":[{"message":{"content":"done"}}]}',))
        case "slow":
            return stream(chunk({"content": "x"}), pause=PATIENCE)
    message = {"role": "assistant", "content": "done"}
    usage = {
        "prompt_tokens": 100, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }  # fmt: skip
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    return Answer(chunks=(json.dumps(body).encode(),))


def history(name: str, turns: int) -> list[Any]:
    """A conversation of its own: every other step writes a file, so that policies differ."""
    rows: list[Any] = [{"role": "user", "content": name}]
    for turn in range(turns):
        id, command = f"{name} {turn}", f"echo {turn} > out.txt" if turn % 2 else "ls"
        function = {"name": "bash", "arguments": json.dumps({"cmd": command})}
        call = {"id": id, "type": "function", "function": function}
        said = {"role": "assistant", "content": None, "reasoning_content": f"Let me think {turn}. "}
        rows += [
            {**said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": "ok"},
        ]
    return rows


@dataclass(frozen=True, slots=True)
class Client:
    http: httpx.AsyncClient
    url: str

    async def send(self, messages: list[Any], model: str = "m", **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = {"model": model, "messages": messages}
        return await self.post(json.dumps(body).encode(), named)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> int:
        sent = {"authorization": "Bearer sk-one", "content-type": "application/json", **headers}
        url = f"{self.url}/v1/chat/completions"
        return (await self.http.post(url, content=body, headers=sent)).status_code


async def busy(client: Client, name: str) -> None:
    """Some of everything: each policy, breaks of the client's and of our own, trouble."""
    for policy in POLICIES:
        for turns in range(TURNS):
            rows = history(f"{name} {policy}", turns)
            assert 200 == await client.send(rows, x_lethe_policy=policy)
    rows = history(f"{name} drop", TURNS - 1)
    edited = [{**rows[0], "content": rows[0]["content"] + "!"}, *rows[1:]]
    await client.send(edited, authorization="Bearer sk-two", x_lethe_policy="drop")
    await client.send([{"role": "system", "content": name}, *rows], x_lethe_policy="drop")
    assert 200 == await client.send(history(name, 0), model="silent")
    assert 429 == await client.send(history(name, 0), model="busy")
    assert 400 == await client.send(history(name, 0), x_lethe_policy="no-such-policy")
    assert 200 == await client.post(b"not JSON", {})
    await client.http.get(f"{client.url}/v1/models")


async def leaves(client: Client) -> None:
    """A client that goes away before its reply has begun."""
    with pytest.raises(httpx.ReadTimeout):
        await client.http.post(
            f"{client.url}/v1/chat/completions",
            json={"model": "slow", "messages": history("slow", 0), "stream": True},
            timeout=0.2,
        )


@pytest.fixture
def store() -> Iterator[servers.Server]:
    with servers.running(servers.valkey()) as server:
        yield server


@asynccontextmanager
async def scene(folder: Path, store: servers.Server) -> AsyncIterator[tuple[Prometheus, Running]]:
    """A provider, the proxy before it with its ledger in a store, and Prometheus."""
    async with providing(answers) as provider:
        file, own = folder / "lethe.toml", folder / "prices.toml"
        own.write_text('[[price]]\nmodel = "*"\ninput = 2\ncache_read = 0.1\noutput = 10\n')
        file.write_text(
            f'prices = "{own}"\n[[upstream]]\nurl = "{provider.url}"\ncontract = "deepseek"\n'
        )
        environ = {"LETHE_ADMIN_TOKEN": "admin-token"}
        settings = settings_for(None, file, environ=environ, redis=store.url)  # type: ignore[arg-type]
        async with running(settings) as proxy:
            target = proxy.admin.removeprefix("http://")
            async with prometheus(folder, target) as found:
                yield found, proxy


# What it shows


async def test_every_panel_shows_something_and_every_rule_is_evaluated(
    tmp_path: Path, store: servers.Server
) -> None:
    async with scene(tmp_path, store) as (found, proxy), http_client() as http:
        client = Client(http, proxy.url)
        await comes(found, "lethe_workers")
        await busy(client, "first")
        await leaves(client)
        await scraped(found, 2)
        await asyncio.to_thread(store.kill)
        await busy(client, "second")
        await leaves(client)
        await scraped(found, 2)

        assert {} == await empty(found)
        assert [] == await unwell(found)
        for rule in rules():
            await found.query(rule["expr"])
        broke = await comes(found, 'ALERTS{alertname="LetheBrokePrefix",alertstate="firing"}')
        assert ["self"] == [row["metric"]["cause"] for row in broke]
        assert await comes(found, 'ALERTS{alertname="LetheLedgerDown",alertstate="pending"}')
        assert [] == await found.query("lethe_faults_total > 0")


async def empty(found: Prometheus) -> dict[str, list[str]]:
    """The panels of each dashboard that have a query which gives no number."""
    ((_, now),) = [row["value"] for row in await found.query("vector(time())")]
    missing: dict[str, list[str]] = {}
    for path in DASHBOARDS:
        for panel in panels(path):
            if not all([await _numbers(found, t, float(now)) for t in panel["targets"]]):
                missing.setdefault(path.stem, []).append(panel["title"])
    return missing


async def _numbers(found: Prometheus, target: dict[str, Any], now: float) -> list[float]:
    query = filled(target["expr"], WINDOW)
    if target["instant"]:
        values = [row["value"] for row in await found.query(query)]
    else:
        values = [v for row in await found.over(query, now, 10) for v in row["values"]]
    return [number for _, text in values if not math.isnan(number := float(text))]


async def unwell(found: Prometheus) -> list[str]:
    """Rules that could not be evaluated, once each of them has been."""
    async with asyncio.timeout(PATIENCE):
        while True:
            told = await found.rules()
            if told and all(rule["health"] != "unknown" for rule in told):
                break
            await asyncio.sleep(0.2)
    assert len(rules()) == len(told)
    return [rule["name"] for rule in told if rule["health"] != "ok"]
