"""Reads Lethe's own conversations, as the admin listener gives them and `lethe show` prints them.

`lethe show ID --messages --json`, or GET /lethe/conversations/ID?text=true, gives one conversation:
a `timeline` with an account of every exchange, and the `messages` of its last request, each as the
client sent it (`came`) and as it left (`left`). That takes `history = "full"`. One such object a
line makes a file of many.

What is replayed is what came; the recorded counts are those of what left, under the policy of that
time, which the timeline tells. A request of the past is the beginning of the last one: as far as
its own number of steps goes. A conversation whose early history changed on the way cannot be laid
out so, and one whose first accounts are gone begins with the oldest that is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from proxy.core.usage import NOTHING, Usage
from proxy.core.wire import chat
from proxy.replay.sessions import (
    Label,
    Session,
    Unusable,
    label_of,
    requests_of,
    text_of,
)

FORMAT = "lethe"
_CHANGED = frozenset({"compaction", "messages_dropped", "message_inserted", "message_edited"})


def claims(record: Any) -> bool:
    return isinstance(record, dict) and isinstance(record.get("timeline"), list)


def session(record: Any, name: str) -> Session:
    """Raises Unusable: without texts, and where an early message changed."""
    timeline = [it for it in record["timeline"] if isinstance(it, dict)]
    rows = _rows(record)
    if any(_cause(it) in _CHANGED for it in timeline):
        raise Unusable("its early history changed on the way, so past requests are not known")
    messages = [_came(row) for row in rows if row.get("part") in ("system", "message")]
    places = [at for at, row in enumerate(_said(rows)) if row.get("role") == "assistant"]
    return Session(
        text_of(record.get("id")) or name, FORMAT, text_of(record.get("model")),
        _label(record, timeline),
        requests_of(_fields(record, rows), messages, _usages([*places, len(messages)], timeline)),
    )  # fmt: skip


def _rows(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    rows = record.get("messages")
    if not isinstance(rows, list):
        raise Unusable("it has no messages: lethe show ID --messages --json gives them")
    if not all(isinstance(row, dict) and isinstance(row.get("came"), str) for row in _said(rows)):
        raise Unusable('its texts are not kept: that takes history = "full"')
    return rows


def _said(rows: Sequence[Any]) -> list[Any]:
    return [r for r in rows if not isinstance(r, dict) or r.get("part") in ("system", "message")]


def _came(row: Mapping[str, Any]) -> bytes:
    return str(row["came"]).encode("utf-8", "surrogatepass")


def _fields(record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": text_of(record.get("model"))}
    for row in rows:
        if row.get("part") == "tools" and isinstance(row.get("came"), str):
            try:
                fields["tools"] = chat.decode(_came(row))
            except ValueError:
                raise Unusable("its tools are no JSON") from None
    return fields


def _cause(account: Mapping[str, Any]) -> Any:
    prefix = account.get("prefix")
    return prefix.get("cause") if isinstance(prefix, dict) else None


def _label(record: Mapping[str, Any], timeline: Sequence[Mapping[str, Any]]) -> Label:
    policies = {str(it["policy"]) for it in timeline if it.get("policy")}
    if len(policies) > 1:
        raise Unusable("its policy changed on the way, so what was sent is not known")
    return replace(label_of(record), policy=min(policies, default=""))


def _usages(places: Sequence[int], timeline: Sequence[Mapping[str, Any]]) -> dict[int, Usage]:
    """By the place of each reply, which says how many steps its request had; that of the last
    request stands behind the messages. A request that was made again counts once, as it came out
    last.
    """
    by_steps = dict(_counted(timeline))
    return {at: by_steps.get(steps, NOTHING) for steps, at in enumerate(places) if at}


def _counted(timeline: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Usage]]:
    """The number of steps in each request, with what it used."""
    for account in timeline:
        steps, tokens = account.get("steps"), account.get("tokens")
        if isinstance(steps, dict) and isinstance(tokens, dict):
            yield steps.get("total", -1), _usage(tokens)


def _usage(tokens: Mapping[str, Any]) -> Usage:
    return Usage(
        _count(tokens, "input"), _count(tokens, "cache_read"), _count(tokens, "cache_write"), None,
        _count(tokens, "output"), _count(tokens, "reasoning"),
    )  # fmt: skip


def _count(tokens: Mapping[str, Any], kind: str) -> int | None:
    found = tokens.get(kind)
    return found if type(found) is int and found >= 0 else None
