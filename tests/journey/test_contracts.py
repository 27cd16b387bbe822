"""What a contract changes on the way: the policy, what is asked, what is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.settings import Settings
from tests.client import http_client
from tests.journey.provider import Answer, Came, Provider, chunk, completion, providing, stream
from tests.journey.proxy_server import running, settings_for

KEY = {"authorization": "Bearer sk-test-one"}


def messages(steps: int) -> list[Any]:
    """A history of finished steps that each failed, so that their reasoning may go."""
    rows: list[Any] = [{"role": "user", "content": "Do it."}]
    for step in range(steps):
        function = {"name": "bash", "arguments": json.dumps({"cmd": f"ls {step}"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        said = {"role": "assistant", "content": "", "reasoning_content": f"I think of {step}. "}
        result = {"role": "tool", "tool_call_id": f"call_{step}", "content": "Exit code 1\nError"}
        rows += [{**said, "tool_calls": [call]}, result]
    return rows


def answers(came: Came) -> Answer:
    return stream(chunk({"content": "x"})) if came.json().get("stream") else completion()


def settings(tmp_path: Path, provider: Provider, keys: str, top: str = "") -> Settings:
    file = tmp_path / "lethe.toml"
    log = tmp_path / "log"
    file.write_text(f"{top}\n[[upstream]]\n{keys}\n")
    return settings_for(provider.url, file, log=str(log))


async def ask(proxy_url: str, body: Mapping[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http_client() as client:
        url = f"{proxy_url}/v1/chat/completions"
        return await client.post(url, json={"model": "m", **body}, headers={**KEY, **named})


@pytest.mark.parametrize(
    ("keys", "top", "model", "policy"),
    [
        ('contract = "zai"', "", "m", "keep"),
        ('contract = "vllm"', "", "zai-org/GLM-5", "keep"),
        ("", "", "MiniMax-M2.5", "keep"),
        ('contract = "vllm"', "", "m", "after_artifact"),
        ('contract = "zai"', 'policy = "drop"', "m", "drop"),
        ('contract = "zai"\npolicy = "drop"', "", "m", "drop"),
    ],
)
async def test_a_contract_s_policy_holds_where_nobody_chose_one(
    tmp_path: Path, keys: str, top: str, model: str, policy: str
) -> None:
    async with providing(answers) as provider:
        async with running(settings(tmp_path, provider, keys, top)) as proxy:
            body = {"model": model, "messages": messages(2)}
            reply = await ask(proxy.url, body)
            asked_for = await ask(proxy.url, body, x_lethe_policy="random:0.5")

    assert policy == reply.headers["x-lethe-policy"]
    assert "random:0.5" == asked_for.headers["x-lethe-policy"]


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ('contract = "openrouter"', False),
        ('contract = "openrouter"\nstream_usage = "ask"', True),
        ('contract = "vllm"', True),
        ('contract = "vllm"\nstream_usage = "refused"', False),
    ],
)
async def test_usage_is_asked_for_where_the_contract_or_the_setting_says_so(
    tmp_path: Path, keys: str, asked: bool
) -> None:
    async with providing(answers) as provider:
        async with running(settings(tmp_path, provider, keys)) as proxy:
            await ask(proxy.url, {"messages": messages(0), "stream": True})

    assert asked == ("stream_options" in provider.last.json())


async def test_where_nothing_is_reported_it_is_told_what_to_do(tmp_path: Path) -> None:
    def silent(came: Came) -> Answer:
        body = json.loads(completion().chunks[0])
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return Answer(chunks=(json.dumps(body).encode(),))

    async with providing(silent) as provider:
        async with running(settings(tmp_path, provider, 'contract = "vllm"')) as proxy:
            await ask(proxy.url, {"messages": messages(0)})

    cache = json.loads((tmp_path / "log").read_text())["cache"]
    assert (None, "unreported") == (cache["reported"], cache["cause"])
    assert "--enable-prompt-tokens-details" in cache["fix"]


async def test_what_an_engine_renders_in_front_breaks_the_prefix_when_it_changes(
    tmp_path: Path,
) -> None:
    causes = []
    async with providing(answers) as provider:
        for contract in ("vllm", "zai"):
            keys = f'contract = "{contract}"'
            async with running(settings(tmp_path, provider, keys)) as proxy:
                for steps, salt in ((1, "one"), (2, "two")):
                    body = {"messages": messages(steps), "cache_salt": salt}
                    reply = await ask(proxy.url, body)
                causes.append(reply.headers["x-lethe-prefix"])

    assert ["broken; cause=params_changed", "extended"] == causes
