"""Recorded sessions for the tests: an agent that thinks, calls a tool and reads what it brought."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from proxy.core import cachemodel
from proxy.core.tariff import Rate, Rates
from proxy.replay.plan import Plan, Priced
from proxy.replay.readers import session_of
from proxy.replay.replaying import replay
from proxy.replay.rows import Row, Under

PREAMBLE, REASONING, ACTION, RESULT = 100, 40, 10, 30
"""Tokens by the counts that the provider of these tests reports."""


def call(at: int, command: str = "cat notes.txt") -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    function = {"name": "bash", "arguments": arguments}
    return {"id": f"call_{at}", "type": "function", "function": function}


def step(at: int, thought: str = "", command: str = "cat notes.txt") -> list[dict[str, Any]]:
    """An assistant message with reasoning and a call, and the call's result."""
    return [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": thought or f"thought {at} " * 20,
            "tool_calls": [call(at, command)],
        },
        {"role": "tool", "tool_call_id": f"call_{at}", "content": f"result {at} " * 12},
    ]


def history(steps: int, seed: str = "") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": f"Work on the task {seed}."},
    ]
    return rows + [message for at in range(steps) for message in step(at)]


def usage(at: int, kept: bool = True) -> dict[str, Any]:
    """Of the request before the step `at`, with all reasoning in it or none."""
    a_step = ACTION + RESULT + (REASONING if kept else 0)
    return {
        "prompt_tokens": PREAMBLE + at * a_step,
        "completion_tokens": REASONING + ACTION,
        "completion_tokens_details": {"reasoning_tokens": REASONING},
    }


def trajectory(steps: int, seed: str = "", kept: bool = True, **more: Any) -> dict[str, Any]:
    counts = [{"usage": usage(at, kept)} for at in range(steps)]
    return {
        "model": "model-1", "messages": history(steps, seed), "step_usage": counts, **more
    }  # fmt: skip


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SHEET = Priced(
    "sheet",
    Rates(Rate(Decimal(2)), Rate(Decimal(10)), Rate(Decimal("0.1")), Rate(Decimal("2.5"))),
)
"""$ a million tokens: input 2, output 10, cache reads 0.10, cache writes 2.50."""


def plan(
    *policies: str, caches: Sequence[str] = ("prompt+generated", "prompt", "none"), **more: Any
) -> Plan:
    rules = tuple(cachemodel.parse(text) for text in caches)
    return Plan(tuple(dict.fromkeys(("keep", *policies))), rules, (SHEET,), **more)


def replayed(record: Any, it: Plan) -> Row:
    return replay(session_of(record, "session"), "file", it)


def under(row: Row, it: Plan, policy: str) -> Under:
    return row.under[it.policies.index(policy)]
