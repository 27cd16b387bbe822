"""What is added to a request on purpose: each addition named, counted and switched by itself.

An addition is a few edits of the body, or a header, exact or not at all: what is odd stays as it
came. What a client says stands, `null` too; an addition fills only what it left unsaid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from proxy.core.contract import Affinity
from proxy.core.fingerprint import digest
from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit
from proxy.core.wire.scan import Member

_start = attrgetter("start")


class Added(msgspec.Struct, frozen=True):
    """Edits of the body, in order and apart; headers to send, names in lower case; by the name of
    an addition, how often it was made here.
    """

    edits: tuple[Edit, ...] = ()
    headers: tuple[tuple[bytes, bytes], ...] = ()
    counts: Mapping[str, int] = {}


NOTHING = Added()


def together(*several: Added) -> Added:
    """Additions to one body, of which no two touch the same bytes, as one."""
    edits = sorted((edit for added in several for edit in added.edits), key=_start)
    headers = [pair for added in several for pair in added.headers]
    counts: dict[str, int] = {}
    for added in several:
        for name, count in added.counts.items():
            counts[name] = counts.get(name, 0) + count
    return Added(tuple(edits), tuple(headers), counts)


def preserve(body: bytes, fields: Mapping[str, bytes], wanted: Mapping[str, Any]) -> Added:
    """Add the members that keep old reasoning in the prompt over a new user message.

    `wanted` is a contract's `preserve`, decoded. Objects that the client sent are filled up. It is
    one wish: where the client gave any part of it another value, or `null`, or turned thinking off
    where the wish would turn it on, nothing is added. So no `keep` ever leaves without its `type`.
    """
    if "messages" in wanted or (_turns_on(wanted) and _turned_off(fields)):
        return NOTHING
    try:
        edits = _filled_up(body, fields, wanted)
    except scan.Odd:
        return NOTHING
    return Added(tuple(edits), counts={"preserve": 1}) if edits else NOTHING


_SWITCHED_OFF = (
    # Qwen and engines: enable_thinking; DeepSeek's template: thinking; OpenAI, vLLM: an effort of
    # none; OpenRouter: the members of reasoning.
    ("enable_thinking", None, False),
    ("chat_template_kwargs", "enable_thinking", False),
    ("chat_template_kwargs", "thinking", False),
    ("reasoning_effort", None, "none"),
    ("reasoning", "effort", "none"),
    ("reasoning", "enabled", False),
)


def _turns_on(wanted: Mapping[str, Any]) -> bool:
    thinking = wanted.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"


def _turned_off(fields: Mapping[str, bytes]) -> bool:
    return any(_equal(chat.field(fields, name, inner), off) for name, inner, off in _SWITCHED_OFF)


def _filled_up(
    body: bytes, fields: Mapping[str, bytes], wanted: Mapping[str, Any]
) -> Sequence[Edit]:
    """The edits that add what is absent. Raises `scan.Odd` where the client wants something else.

    What the client sent is looked into by itself, and sought in the body only where it changes.
    """
    edits = []
    absent = {key: value for key, value in wanted.items() if key not in fields}
    if absent:
        edits.append(_inserted(body, scan.skip_blank(body, 0), absent))
    for key in wanted.keys() & fields.keys():
        inside = _within(fields[key], 0, len(fields[key]), wanted[key])
        if inside:
            by = top_level(body, key).start
            edits += [Edit(edit.start + by, edit.end + by, edit.text) for edit in inside]
    return sorted(edits, key=_start)


def _within(text: bytes, start: int, end: int, wanted: Any) -> Sequence[Edit]:
    """The edits that fill up the value at `text[start:end]`. Raises `scan.Odd` where it is another
    than wanted.
    """
    if not isinstance(wanted, Mapping):
        if not _is(text[start:end], wanted):
            raise scan.Odd(f"another value at byte {start}")
        return []
    given = members_of(text, start, end)
    absent = {key: value for key, value in wanted.items() if key not in given}
    edits = [_inserted(text, start, absent)] if absent else []
    for key in wanted.keys() & given.keys():
        edits += _within(text, given[key].start, given[key].end, wanted[key])
    return sorted(edits, key=_start)


def _is(raw: bytes, wanted: Any) -> bool:
    try:
        return _equal(chat.decode(raw), wanted)
    except ValueError:
        return False


def _equal(value: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1."""
    return type(value) is type(other) and bool(value == other)


def members_of(text: bytes, start: int, end: int) -> Mapping[str, Member]:
    """The members of the object at `text[start:end]` by key. Raises `scan.Odd`, also where a key is
    repeated: nobody knows which of the two is read.
    """
    rows = chat.members(text, start, end)
    found = {row.key: row for row in rows}
    if len(found) < len(rows):
        raise scan.Odd(f"a key is repeated in the object at byte {start}")
    return found


def top_level(body: bytes, name: str) -> Member:
    """The only top-level member of that name. Raises `scan.Odd`."""
    rows = chat.members(body, scan.skip_blank(body, 0), len(body))
    found = [row for row in rows if row.key == name]
    if len(found) != 1:
        raise scan.Odd(f"{len(found)} members where one was wanted")
    return found[0]


def _inserted(text: bytes, at: int, new: Mapping[str, Any]) -> Edit:
    """The edit that puts new members first in the object that begins at `at`, sorted by name."""
    if not text.startswith(b"{", at):
        raise scan.Odd(f"no object at byte {at}")
    empty = text.startswith(b"}", scan.skip_blank(text, at + 1))
    row = msgspec.json.encode(new, order="sorted")[1:-1]
    return Edit(at + 1, at + 1, row if empty else row + b",")


def affinity_id(root: bytes) -> str:
    """A stable id for affinity (32 hex digits), of a conversation's root.

    Not of its link: that is another one on the first turn. Conversations that begin alike share it,
    as they share the cache that it leads to.
    """
    return digest(b"affinity", root).hex()


def affinity(
    body: bytes,
    fields: Mapping[str, bytes],
    named: Mapping[bytes, bytes],
    where: Affinity | None,
    id: str,
) -> Added:
    """Add a conversation's id (printable ASCII) where the contract takes one.

    `named` are the client's headers, names in lower case. A client that sent one itself, in the
    member or the header that the contract names, keeps it, and nothing is added.
    """
    if where is None or where.body in fields or where.body == "messages":
        return NOTHING
    header = where.header.lower().encode()
    if header in named or not (where.body or header):
        return NOTHING
    try:
        at = scan.skip_blank(body, 0)
        edits = (_inserted(body, at, {where.body: id}),) if where.body else ()
    except scan.Odd:
        return NOTHING
    return Added(edits, ((header, id.encode()),) if header else (), {"affinity": 1})
