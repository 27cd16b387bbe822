"""Reads what is posted to `/lethe/outcomes`: whether a conversation or a task succeeded."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import Request

from proxy.errors import ProxyError

MOST_BYTES = 16_384
_LONGEST_LABEL = 100
_WANTED = (
    '{"conversation": "<id>", "success": true} or {"task": "<label>", "success": false}, '
    'with "score": <number> where there is one'
)


class BadOutcome(ProxyError):
    """What was posted is no outcome; the message says what is wanted."""

    status = 400
    type = "invalid_request_error"
    code = "bad_outcome"


class NotJson(BadOutcome):
    """It does not say that it is JSON. A page of another origin cannot say so unasked: this is what
    keeps it from posting with a reader's rights.
    """

    status = 415


class Posted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `conversation`, a public id, or `task`, a label, is there."""

    success: bool
    conversation: str | None = None
    task: str | None = None
    score: float | None = None


async def body(request: Request) -> bytes:
    """Raises BadOutcome where it is far too long for one."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise BadOutcome(f"an outcome has at most {MOST_BYTES:,} bytes; wanted: {_WANTED}")
        parts.append(part)
    return b"".join(parts)


def read(headers: Mapping[str, str], raw: bytes) -> Posted:
    """Raises BadOutcome."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise NotJson("send it with the header content-type: application/json")
    try:
        posted = msgspec.json.decode(raw, type=Posted)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadOutcome(f"this is no outcome ({_place(error)}); wanted: {_WANTED}") from error
    if bool(posted.conversation) == bool(posted.task):
        both = "both a conversation and a task" if posted.task else "no conversation and no task"
        raise BadOutcome(f"got {both}; wanted: {_WANTED}")
    return posted


def _place(error: Exception) -> str:
    """What was wrong: places and types, and no value that came."""
    if isinstance(error, msgspec.ValidationError):
        return str(error)[:200]
    return "it is not JSON"


def label(task: str) -> str:
    """A task's label as its conversations bear it: as the header x-lethe-task would have brought
    it.
    """
    return task.encode("utf-8", "replace")[:_LONGEST_LABEL].decode("ascii", "replace")
