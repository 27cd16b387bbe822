"""Exchanges that are odd: replies with a status that no client can get, names of megabytes."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest

from proxy.core.ratio import Ratio
from tests.client import http_client
from tests.doors.scripted import Scripted, Wire
from tests.journey.provider import completion, providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.talk import answers

BODY = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("status", [600, 700, 999])
async def test_a_status_that_is_none_is_told_as_an_upstream_that_cannot_be_reached(
    tmp_path: Path, status: int, path: str
) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text("[[upstream]]\ndetect = false\n")

    async def script(wire: Wire) -> None:
        await wire.head(status, ("content-type", "application/json"))
        await wire.gone.wait()

    async with Scripted(script) as upstream, running(settings_for(upstream.base, file)) as proxy:
        async with http_client() as client:
            reply = await client.post(f"{proxy.url}{path}", content=json.dumps(BODY))
        await upstream.until(lambda it: it.disconnects == 1)
        state = proxy.doors.observer.numbers()["lethe_requests_total"]

    error = reply.json()["error"]
    assert (502, "upstream_unreachable") == (reply.status_code, error["code"])
    assert f"status {status}" in error["message"]
    assert 1 == len(upstream.requests)
    assert [("502", "failed")] == [labels[1:] for labels, count in state.items() if count]


@pytest.mark.parametrize("status", [200, 299, 418, 599])
async def test_any_other_status_reaches_the_client(status: int) -> None:
    async def script(wire: Wire) -> None:
        await wire.reply(b"{}", ("content-type", "application/json"), status=status)

    async with Scripted(script) as upstream, running(settings_for(upstream.base)) as proxy:
        async with http_client() as client:
            reply = await client.post(f"{proxy.url}/v1/chat/completions", content=json.dumps(BODY))

    assert (status, b"{}") == (reply.status_code, reply.content)


async def test_names_of_megabytes_leave_nothing_of_their_size_behind(tmp_path: Path) -> None:
    """Wherever a client may give one; members after the messages are remembered nowhere."""
    prices, file = tmp_path / "prices.toml", tmp_path / "lethe.toml"
    prices.write_text('[[price]]\nmodel = "n*"\ninput = 1\noutput = 1\n')
    file.write_text(
        f'prices = "{prices}"\npolicy = "horizon"\n[ledger]\nhistory = "digests"\n'
        '[[upstream]]\nurl = "http://127.0.0.1:9"\n'
    )

    async with providing(answers) as upstream, running(settings_for(upstream.url, file)) as proxy:
        async with http_client() as client:
            for name in ("n" * 1_000_000 + tail for tail in "ab"):
                body = json.dumps(named_everywhere(name))
                reply = await client.post(f"{proxy.url}/v1/chat/completions", content=body)
                assert 200 == reply.status_code
                assert body == upstream.last.body.decode()
        found = longest(*remembering(proxy))

    assert 10_000 > found


def named_everywhere(name: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    call = {"id": name, "type": "function", "function": function}
    messages = [
        {"role": name, "content": "be brief"},
        {"role": name, "content": "go", "name": name},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "ok", "tool_call_id": name},
    ]
    return {"messages": messages, "model": name, "prompt_cache_key": name, "user": name}


@pytest.mark.parametrize(
    "name", ["m", "m" * 150, "m" * 1_000, "m\ud83d"], ids=["short", "middling", "long", "odd"]
)
async def test_what_a_reply_taught_holds_for_the_next_request_of_that_model(name: str) -> None:
    body = json.dumps({**BODY, "model": name})
    said = completion("done " * 10)
    async with providing(lambda came: said) as upstream, running(settings_for(upstream.url)) as it:
        async with http_client() as client:
            await client.post(f"{it.url}/v1/chat/completions", content=body)
        known = it.doors.memo.read(body.encode(), b"s" * 16).model

        assert Ratio() != it.doors.state.ratios.of("default", known)
        assert 0 == sum(it.doors.observer.own()["lethe_faults_total"].values())


def remembering(proxy: Running) -> list[object]:
    """The rooms that remember something of exchanges."""
    it = proxy.doors
    return [it.contracts, it.prices, it.state, it.forms, it.observer, it.memo, it.ledger]


def longest(*things: object) -> int:
    """The length of the longest text that can be reached from these."""
    seen, left, most = set[int](), list(things), 0
    while left:
        it = left.pop()
        if id(it) in seen or isinstance(it, ModuleType | FunctionType | type):
            continue
        seen.add(id(it))
        most = max(most, len(it) if isinstance(it, str | bytes) else 0)
        left += gc.get_referents(it)
        # What the collector does not look at: values of some kinds, texts that are keys.
        left += msgspec.structs.astuple(it) if isinstance(it, msgspec.Struct) else ()
        left += it if isinstance(it, dict) else ()
    return most
