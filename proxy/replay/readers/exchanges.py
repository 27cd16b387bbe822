"""Reads JSON Lines of requests and usage: one exchange a line, many conversations among each other.

A line has the request's JSON under `body` or `request` (as text or as an object), or is it itself;
beside it what is known of the reply: `response` (a whole body, an assistant message, or a stream's
text) and `usage`. `session` or `conversation` names a conversation outright. Else its chain does,
as it does live: a conversation is known by what was said up to its first assistant message, so a
first request belongs to the conversation that its reply begins, or to the next one that grows from
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core import fingerprint
from proxy.core.reply import StreamReader
from proxy.core.usage import NOTHING, Usage, merge
from proxy.core.wire import chat
from proxy.replay.sessions import Asked, Label, Unusable, encoded, label_of, text_of, usage_of

FORMAT = "exchanges"
SCOPE = bytes(16)
"""All of a file is one key's."""
_LEADING = frozenset({"system", "developer"})


def claims(record: Any) -> bool:
    if not isinstance(record, dict):
        return False
    if "body" in record or "request" in record:
        return True
    return "messages" in record and ("response" in record or "usage" in record)


def asked(record: Mapping[str, Any]) -> Asked:
    """The exchange in a line. Raises Unusable."""
    body = _body(record)
    reply, told = _reply(record.get("response"))
    return Asked(body, reply, merge(told, usage_of(record.get("usage"))))


def label(record: Mapping[str, Any]) -> Label:
    return label_of(record, record.get("metadata"))


def model(record: Mapping[str, Any]) -> str:
    """The model that was asked for; empty where it cannot be told."""
    try:
        return text_of(chat.field(chat.layout(_body(record)).fields, "model"))
    except (Unusable, chat.Unreadable):
        return ""


def _body(record: Mapping[str, Any]) -> bytes:
    path = record.get("path")
    if isinstance(path, str) and not path.rstrip("/").endswith("/chat/completions"):
        raise Unusable("no chat completions request; only those are replayed")
    for name in ("body", "request"):
        if name in record:
            return _json(record[name])
    return encoded({key: record[key] for key in record if key not in ("response", "usage")})


def _json(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict):
        return encoded(value)
    raise Unusable("its request is neither an object nor a text")


def _reply(value: Any) -> tuple[bytes, Usage]:
    """The assistant message as JSON, and the usage that stands with it."""
    if isinstance(value, str):
        return b"", _streamed(value)
    if not isinstance(value, dict):
        return b"", NOTHING
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else value
    said = isinstance(message, dict) and message.get("role") == "assistant"
    return encoded(message) if said else b"", usage_of(value) if "usage" in value else NOTHING


def _streamed(text: str) -> Usage:
    reader = StreamReader()
    reader.feed(text.encode("utf-8", "surrogatepass"))
    return reader.finish().usage


# Which lines are one conversation


@dataclass(frozen=True, slots=True)
class Names:
    """`root` is the link of the first message, `grown` that of the first assistant message (empty
    where none spoke yet), `promised` what it will be if the reply comes back as it was. `given` is
    the name that the line itself bears.
    """

    root: bytes
    grown: bytes
    promised: bytes
    given: str = ""


def names(record: Mapping[str, Any]) -> Names:
    """Raises Unusable."""
    for name in ("session", "conversation", "session_id"):
        if isinstance(record.get(name), str) and record[name]:
            return Names(b"", b"", b"", record[name])
    body = _body(record)
    try:
        root, last, grown = _opening(body)
    except chat.Unreadable as error:
        raise Unusable(f"its body is no chat request ({error.reason})") from None
    reply = b"" if grown else _reply(record.get("response"))[0]
    said = fingerprint.read(reply, 0, len(reply), last).link if reply else b""
    return Names(root, grown, said)


def _opening(body: bytes) -> tuple[bytes, bytes, bytes]:
    """The link of the first message, of the last before the first reply, and of that reply."""
    link, first, started = fingerprint.root_of(SCOPE), b"", False
    for start, end in chat.layout(body).spans:
        message = fingerprint.read(body, start, end, link)
        if not started and message.role in _LEADING:
            continue
        started, first = True, first or message.link
        if message.role == "assistant":
            return first, link, message.link
        link = message.link
    return first or link, link, b""


@dataclass(slots=True)
class Grouping:
    """Gives every exchange the number of its conversation; in the order of the file."""

    count: int = 0
    _by_name: dict[bytes | str, int] = field(default_factory=dict)
    _waiting: dict[bytes, deque[int]] = field(default_factory=dict)
    _grown: set[int] = field(default_factory=set)

    def of(self, it: Names) -> int:
        if it.given:
            return self._named(it.given)
        if not it.grown:
            return self._opened(it)
        number = self._by_name.get(it.grown)
        if number is None:
            number = self._by_name[it.grown] = self._first_of(it.root)
        self._grown.add(number)
        return number

    def _named(self, name: str) -> int:
        if name not in self._by_name:
            self._by_name[name] = self._new()
        return self._by_name[name]

    def _opened(self, it: Names) -> int:
        number = self._new()
        if it.promised:
            self._by_name.setdefault(it.promised, number)
        self._waiting.setdefault(it.root, deque()).append(number)
        return number

    def _first_of(self, root: bytes) -> int:
        """The oldest first request that nothing grew from yet, or a conversation by itself."""
        waiting = self._waiting.get(root, deque())
        while waiting:
            if (number := waiting.popleft()) not in self._grown:
                return number
        return self._new()

    def _new(self) -> int:
        self.count += 1
        return self.count - 1
