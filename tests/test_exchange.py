"""Exchanges that end oddly: replies with a status that no client can get."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.doors.scripted import Scripted, Wire
from tests.journey.proxy_server import running, settings_for

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
        async with httpx.AsyncClient(timeout=20) as client:
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
        async with httpx.AsyncClient(timeout=20) as client:
            reply = await client.post(f"{proxy.url}/v1/chat/completions", content=json.dumps(BODY))

    assert (status, b"{}") == (reply.status_code, reply.content)
