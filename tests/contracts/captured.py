"""Recorded requests of real agents, sent in order, with the replies that they were given then."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.captures.test_growth import appended
from tests.contracts.agents import Heard, ask
from tests.contracts.rendering import calls_of
from tests.contracts.replies import Step
from tests.doors.scripted import dialled
from tests.shared import need_shared

AGENTS = (
    "aider", "aisdk7-compat", "aisdk7-deepseek", "langgraph-deepseek", "mini", "mini-formaterror",
    "minitext", "openai-agents-chat", "opencode", "opencode~big", "openhands-deepseek", "pi",
    "pi~fault", "pydantic-ai-chat", "qwen@new", "qwen@new~fault", "qwenagent",
    "smolagents-toolcalling",
)  # fmt: skip
_MODEL = re.compile(r'("model":\s?)"[^"]*"')


@dataclass(frozen=True, slots=True)
class Capture:
    """`bodies` as they were sent, `script` what was answered; `grown` says of each pair of requests
    of the main line whether the client only appended.
    """

    bodies: tuple[str, ...]
    headers: tuple[Mapping[str, str], ...]
    script: tuple[Step, ...]
    grown: tuple[tuple[int, int], ...]


@cache
def capture(agent: str) -> Capture:
    path = need_shared("captures", f"{agent}.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["path"].endswith("/chat/completions")]
    bodies = tuple(row["body"] for row in rows)
    main = [index for index, row in enumerate(rows) if row["kind"] == "main"]
    raw = [body.encode("utf-8", "surrogatepass") for body in bodies]
    pairs = zip(main, main[1:], strict=False)
    grown = tuple((a, b) for a, b in pairs if appended(raw[a], raw[b], whole=True))
    return Capture(bodies, tuple(map(_sessions, rows)), tuple(map(_step, rows)), grown)


def _sessions(row: Mapping[str, Any]) -> dict[str, str]:
    return {k: v for k, v in row["headers"] if "session" in k.lower() or "aff" in k}


def _step(row: Mapping[str, Any]) -> Step:
    """The reply of that time. Where the provider failed, it fails again."""
    said = row["response"]
    if "status" in said:
        return Step("", status=said["status"])
    return Step(said.get("reasoning_content", ""), said.get("content"), calls_of(said))


async def replayed(
    taken: Capture, base: str, model: str, headers: Mapping[str, str]
) -> Sequence[Heard]:
    """Every request in order, for another model; each is sent whatever became of the one before."""
    heard = []
    async with dialled(int(base.rpartition(":")[2])) as line:
        for body, sessions in zip(taken.bodies, taken.headers, strict=True):
            renamed = _MODEL.sub(rf'\1"{model}"', body, count=1).encode("utf-8", "surrogatepass")
            both = {**sessions, **headers}
            heard.append(await ask(line, "/v1/chat/completions", both, renamed))
    return heard
