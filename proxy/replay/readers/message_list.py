"""Reads OpenAI-style message lists: a bare list of messages, or an object with `messages`, and
`model` and `tools` where they are known. Nothing is known of usage, so sizes are estimated.
"""

from __future__ import annotations

from typing import Any

from proxy.core.usage import NOTHING
from proxy.replay.sessions import (
    Session,
    encoded,
    label_of,
    messages_in,
    replies_in,
    requests_of,
    text_of,
)

FORMAT = "messages"


def claims(record: Any) -> bool:
    return isinstance(record, list) or (
        isinstance(record, dict) and isinstance(record.get("messages"), list)
    )


def session(record: Any, name: str) -> Session:
    """Raises Unusable."""
    whole = {"messages": record} if isinstance(record, list) else record
    messages = messages_in(whole["messages"])
    fields = {key: whole[key] for key in ("model", "tools") if whole.get(key)}
    return Session(
        name, FORMAT, text_of(whole.get("model")), label_of(whole, whole.get("metadata")),
        requests_of(
            fields, [encoded(it) for it in messages], dict.fromkeys(replies_in(messages), NOTHING)
        ),
    )  # fmt: skip
