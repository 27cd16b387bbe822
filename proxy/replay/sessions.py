"""Recorded sessions, whatever format they came in: who worked on what, and request by request what
was asked and what came back.

A session is gone through once, request by request, so that a long one never stands in memory as a
whole: every body holds the history anew. Where only the messages are recorded, the requests are
made of them: each assistant message is the reply to all that stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.usage import NOTHING, Usage, read_usage

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
"""Those of the wire; recorders add others for their own notes."""
MOST_TEXT = 400
"""Characters of a name or label that are kept."""


class Unusable(ValueError):
    """A record that cannot be replayed. The message says why, without any of its text."""


class Asked(msgspec.Struct, frozen=True):
    """One recorded request: `body` and `reply` (the assistant message) are JSON; the reply is empty
    where it was not recorded.
    """

    body: bytes
    reply: bytes = b""
    usage: Usage = NOTHING


class Label(msgspec.Struct, frozen=True):
    """What a session is compared by. Sessions of one `task` form a cluster; `arm` names the way in
    which it was worked on; `policy` is the one that it was recorded under, empty where that is not
    told.
    """

    task: str = ""
    arm: str = ""
    policy: str = ""
    success: bool | None = None


class Session(msgspec.Struct, frozen=True):
    """`id` tells it from the others of its file. `requests` may be gone through once a call.
    `format` is the name of its reader.
    """

    id: str
    format: str
    model: str
    label: Label
    requests: Callable[[], Iterator[Asked]]


def label_of(*places: Any) -> Label:
    """The label that a record bears itself; earlier places win. Odd values count as absent."""
    rows = [place for place in places if isinstance(place, Mapping)]
    return Label(
        _text(rows, "task", "task_id", "instance_id"),
        _text(rows, "arm"),
        _text(rows, "policy"),
        _success(rows),
    )


def _text(rows: Iterable[Mapping[str, Any]], *names: str) -> str:
    for row in rows:
        for name in names:
            value = row.get(name)
            if isinstance(value, str) and value:
                return value[:MOST_TEXT]
    return ""


def _success(rows: Iterable[Mapping[str, Any]]) -> bool | None:
    for row in rows:
        for name in ("success", "resolved"):
            if isinstance(row.get(name), bool):
                return bool(row[name])
    return None


def text_of(value: Any) -> str:
    """A name as it is kept; empty where it is none."""
    return value[:MOST_TEXT] if isinstance(value, str) else ""


def encoded(value: Any) -> bytes:
    """A value as JSON; what is no Unicode is escaped."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.EncodeError, TypeError):
        return json.dumps(value, separators=(",", ":")).encode()


def usage_of(value: Any) -> Usage:
    """The usage in a usage object, or in what holds one under `usage`."""
    return read_usage(value) if isinstance(value, dict) else NOTHING


def messages_in(value: Any) -> list[dict[str, Any]]:
    """The messages of a history. Raises Unusable where it is none."""
    if not isinstance(value, list):
        raise Unusable("`messages` is no list")
    if not all(isinstance(it, dict) and isinstance(it.get("role"), str) for it in value):
        raise Unusable("a message is no object with a role")
    found = [it for it in value if it["role"] in ROLES]
    if not any(it["role"] == "assistant" for it in found[1:]):
        raise Unusable("no assistant message answers anything")
    return found


def requests_of(
    fields: Mapping[str, Any], messages: Sequence[bytes], replies: Mapping[int, Usage]
) -> Callable[[], Iterator[Asked]]:
    """The requests of a history. `fields` are the body's other members; `replies` has the places
    of the replies among the messages, each with what it used; the place behind the last message is
    that of a reply that was not recorded.
    """
    head = encoded(dict(fields))[:-1] + (b',"messages":[' if fields else b'"messages":[')

    def requests() -> Iterator[Asked]:
        body, at = bytearray(head), 0
        for end in sorted(replies):
            body += b"".join(b"," + it if i else it for i, it in enumerate(messages[at:end], at))
            at = end
            reply = messages[end] if end < len(messages) else b""
            yield Asked(bytes(body) + b"]}", reply, replies[end])

    return requests


def replies_in(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The places of those assistant messages that answer something."""
    return [at for at, it in enumerate(messages) if at and it["role"] == "assistant"]


def paired(places: Sequence[int], usages: Sequence[Any]) -> dict[int, Usage]:
    """Each reply with its usage. Where there are fewer usages than replies, nobody knows whose they
    are, and there are none.
    """
    if len(usages) < len(places):
        return dict.fromkeys(places, NOTHING)
    return {at: usage_of(raw) for at, raw in zip(places, usages, strict=False)}
