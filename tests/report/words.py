"""Small words from which reports are made: conversations of a policy, rows of the API."""

from __future__ import annotations

from random import Random
from typing import Any

from proxy.report.run import Amount, Run

AT = 1_800_000_000.0


def run(id: str, policy: str = "keep", **more: Any) -> Run:
    """A conversation of ten steps that put out 100 tokens each, and cost a dollar together."""
    given: dict[str, Any] = {
        "at": AT, "task": "", "model": "m", "steps": 10, "output": Amount(1000.0, 10),
        "reasoning": Amount(600.0, 10), "input": Amount(9000.0, 10),
        "cache_read": Amount(6000.0, 10), "dropped": 0.0, "cost": Amount(1.0, 10), "keep": 1.0,
        "priced": 10, "unpriced": 0, "estimated": False, "breaks": 0, "own": 0, "success": None,
        "score": None, **more,
    }  # fmt: skip
    return Run(id=id, policy=policy, **given)


def arm(
    policy: str, count: int, cost: float = 1.0, output: float = 1000.0, seed: int = 1,
    tasks: bool = False, **more: Any,
) -> list[Run]:  # fmt: skip
    """Conversations that differ by up to a tenth, and whose means are this cost and output."""
    spread = [0.9 + 0.2 * number / max(1, count - 1) for number in range(count)]
    costs, outputs = (Random(seed + n).sample(spread, count) for n in (0, 100))
    return [
        run(
            f"{policy}-{number}-{seed}", policy, task=f"task-{number}" if tasks else "",
            cost=Amount(cost * costs[number], 10), output=Amount(output * outputs[number], 10),
            **more,
        )
        for number in range(count)
    ]  # fmt: skip


def row(id: str, at: float = AT, **sums: Any) -> dict[str, Any]:
    """What the API tells of a conversation, with its sums."""
    return {"id": id, "last_at": at, "outcome": None, "sums": sums}
