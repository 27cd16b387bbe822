"""What real agents do to their prefix, request by request, forwarded under `keep`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.client import http_client
from tests.journey.provider import completion, providing
from tests.journey.proxy_server import running, settings_for
from tests.shared import need_shared

KEEP = {"authorization": "Bearer sk-captured", "x-lethe-policy": "keep"}
QUIET = {"cold_start", "extended", "retry", "side_request"}


async def findings(agent: str) -> list[tuple[int, str, str]]:
    """The request's number, its kind, and what `x-lethe-prefix` said of it."""
    path = need_shared("captures", f"{agent}.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = []
    async with (
        providing(lambda came: completion()) as provider,
        running(settings_for(provider.url)) as proxy,
        http_client(30) as client,
    ):
        for row in rows:
            if not row["path"].endswith("/chat/completions"):
                continue
            headers = {**_sessions(row), **KEEP, "content-type": "application/json"}
            reply = await client.post(
                f"{proxy.url}{row['path']}", content=row["body"].encode(), headers=headers
            )
            found.append((row["n"], row["kind"], reply.headers["x-lethe-prefix"]))
    return found


def _sessions(row: dict[str, Any]) -> dict[str, str]:
    return {
        name: value for name, value in row["headers"] if "session" in name.lower() or "aff" in name
    }


def breaks(found: list[tuple[int, str, str]]) -> dict[int, str]:
    return {n: told for n, _, told in found if told not in QUIET}


@pytest.mark.parametrize(
    "agent",
    [
        "aisdk7-compat", "langgraph-deepseek", "mini", "minitext", "mini-formaterror",
        "openai-agents-chat", "opencode", "openhands-deepseek", "pi", "pi~fault",
        "pydantic-ai-chat", "qwenagent",
    ],
)  # fmt: skip
async def test_an_agent_that_only_appends_breaks_nothing(agent: str) -> None:
    found = await findings(agent)

    assert {} == breaks(found)
    assert 1 == Counter(told for _, kind, told in found if kind == "main")["cold_start"]


async def test_a_client_that_strips_reasoning_at_a_new_user_turn_is_named() -> None:
    assert {10: "broken; cause=reasoning_stripped"} == breaks(await findings("aisdk7-deepseek"))


async def test_a_file_block_that_moves_is_told_as_what_was_put_before_it() -> None:
    found = breaks(await findings("aider"))

    assert "broken; cause=message_inserted" == found[2]
    assert found[4].startswith("broken")


async def test_a_compaction_is_told_from_a_side_request() -> None:
    found = await findings("opencode~big")

    assert {7: "broken; cause=compaction"} == breaks(found)


async def test_recovery_messages_are_seen_when_they_are_withdrawn() -> None:
    found = await findings("qwen@new~fault")

    told = {n: what for n, _, what in found}
    assert "extended" == told[8]
    assert told[9] in ("broken; cause=message_edited", "broken; cause=messages_dropped")
    assert "broken; cause=system_changed" == told[13]
    assert {9, 13} == set(breaks(found))


async def test_a_merged_error_message_is_an_edit() -> None:
    assert {5: "broken; cause=message_edited"} == breaks(await findings("smolagents-toolcalling"))


async def test_a_run_that_is_resumed_with_another_system_prompt_is_named() -> None:
    assert {10: "broken; cause=system_changed"} == breaks(await findings("qwen@new"))


def test_all_chat_captures_are_looked_at() -> None:
    folder: Path = need_shared("captures")
    chat = {
        path.stem
        for path in folder.glob("*.jsonl")
        if json.loads(path.read_text().splitlines()[0])["path"].endswith("/chat/completions")
    }
    looked_at = Path(__file__).read_text()
    assert set() == {name for name in chat if f'"{name}"' not in looked_at}
