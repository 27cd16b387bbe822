"""Reads trajectories of mini-swe-agent (`.traj.json`), and those that keep one usage a step.

The agent writes the whole history with its own notes: each message's are under `extra`, which was
never sent, and an assistant message's hold the provider's whole `response`. The run's are under
`info`. A trajectory that was taken apart may hold the usages by themselves, one an assistant
message, under `step_usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.usage import Usage
from proxy.replay.sessions import (
    Session,
    encoded,
    label_of,
    messages_in,
    paired,
    replies_in,
    requests_of,
    text_of,
    usage_of,
)

FORMAT = "trajectory"
_PI = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cacheRead": "cache_read_input_tokens",
    "cacheWrite": "cache_creation_input_tokens",
}
"""The pi agent's own names in its session files, and what they are called on Anthropic's wire."""


def claims(record: Any) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        return False
    if "timeline" in record:
        return False
    return any(name in record for name in ("trajectory_format", "step_usage", "info")) or any(
        isinstance(it, dict) and "extra" in it for it in record["messages"]
    )


def session(record: Any, name: str) -> Session:
    """Raises Unusable."""
    messages, info = messages_in(record["messages"]), _mapping(record, "info")
    model = text_of(record.get("model")) or _model(info)
    fields = {"model": model} | ({"tools": record["tools"]} if record.get("tools") else {})
    sent = [encoded({key: it[key] for key in it if key != "extra"}) for it in messages]
    return Session(
        name, FORMAT, model, label_of(record, info, record.get("metadata")),
        requests_of(fields, sent, _usages(record, messages)),
    )  # fmt: skip


def _usages(record: Mapping[str, Any], messages: list[dict[str, Any]]) -> dict[int, Usage]:
    places = replies_in(messages)
    told = record.get("step_usage")
    if isinstance(told, list):
        return paired(places, [_renamed(it) for it in told])
    return {at: usage_of(_mapping(_mapping(messages[at], "extra"), "response")) for at in places}


def _renamed(row: Any) -> Any:
    usage = row.get("usage") if isinstance(row, dict) else None
    if not isinstance(usage, dict) or "cacheRead" not in usage:
        return row
    return {"usage": {_PI.get(key, key): value for key, value in usage.items()}}


def _model(info: Mapping[str, Any]) -> str:
    config = _mapping(_mapping(info, "config"), "model")
    return text_of(config.get("model_name"))


def _mapping(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = record.get(name)
    return found if isinstance(found, dict) else {}
