"""One question's answer as a value, whatever came: a reply, a refusal, garbage or nothing.

Nothing here raises. A provider's own words are kept of a refusal alone, clipped, and with the key
masked where a provider repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.reply import StreamReader, read_body
from proxy.core.seen import Seen
from proxy.core.sse import json_of
from proxy.page.plain import numbered

Json = Mapping[str, Any]

MOST_WORDS = 300
"""Characters of a provider's error message; the longest on record that tells a cause has 240."""
_usage_object = re.compile(rb'"usage"\s*:\s*\{')
_NOT_THE_REQUEST = frozenset({401, 403, 404, 408, 429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` is 0 where nothing came. `trouble` says why nothing could be read, `said` is the
    provider's word for a refusal. `message` is the assistant message as it came (not of a stream).
    `usage` says that a usage object came: counts may stand elsewhere too.
    """

    status: int = 0
    trouble: str = ""
    said: str = ""
    seen: Seen = Seen()
    message: Json | None = None
    streamed: bool = False
    usage: bool = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300 and not self.trouble

    @property
    def refused(self) -> bool:
        """Whether what was asked is what was refused; some answer that with a 500."""
        return 400 <= self.status < 600 and self.status not in _NOT_THE_REQUEST

    @property
    def prompt(self) -> int | None:
        """Tokens, cached ones included."""
        return self.seen.usage.input if self.ok else None

    @property
    def cached(self) -> int | None:
        return self.seen.usage.cache_read if self.ok else None

    @property
    def generated(self) -> int | None:
        return self.seen.usage.output if self.ok else None

    @property
    def why(self) -> str:
        """In a few words what came instead of a reply."""
        if self.trouble:
            return self.trouble
        return f"status {self.status}" + (f": {self.said}" if self.said else "")


def not_asked(why: str) -> Answer:
    return Answer(trouble=f"not asked: {why}")


NOT_ASKED = not_asked("what came before it gave no reason to")


def read(status: int, kind: str, body: bytes, streamed: bool, key: str) -> Answer:
    """The answer to a chat completion. `kind` is its content type, `key` what was sent with it."""
    if not 200 <= status < 300:
        return Answer(status, "" if status >= 400 else _moved(status), _words(body, key))
    if streamed and "event-stream" in kind:
        return _stream(status, body)
    return _whole(status, kind, body)


def _moved(status: int) -> str:
    return f"status {status}: this URL leads elsewhere"


def _stream(status: int, body: bytes) -> Answer:
    reader = StreamReader()
    reader.feed(body)
    seen = reader.finish()
    empty = not (seen.finish_reason or seen.text or seen.carriers or seen.tool_calls or seen.done)
    trouble = "a stream in which nothing could be read" if empty else ""
    if seen.error:
        trouble = f"an error inside the stream: {seen.error}"
    usage = _usage_object.search(body) is not None
    return Answer(status, trouble, seen=seen, streamed=True, usage=usage)


def _whole(status: int, kind: str, body: bytes) -> Answer:
    value, seen = json_of(body), read_body(body)
    message = _message_in(value)
    if message is None:
        return Answer(status, _no_reply(value, kind, body), seen=seen)
    usage = isinstance(value.get("usage"), dict)
    return Answer(status, seen=seen, message=message, usage=usage)


def _no_reply(value: Any, kind: str, body: bytes) -> str:
    if isinstance(value, dict):
        return "a JSON object that is no chat completion"
    if body.lstrip()[:1] in (b"{", b"["):
        return "JSON that was cut short"
    what = "HTML" if "html" in kind or body.lstrip()[:1] == b"<" else "something"
    return f"{what} that is no JSON ({numbered(len(body), 'byte')})"


def _message_in(value: Any) -> Json | None:
    choices = value.get("choices") if isinstance(value, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


def _words(body: bytes, key: str) -> str:
    """The provider's error message in one line; empty where there is none."""
    value = json_of(body)
    if isinstance(value, list) and value:  # Gemini wraps its errors
        value = value[0]
    said = _message_of(value) if isinstance(value, dict) else ""
    if key:
        said = said.replace(key, "…")
    return " ".join(said.split())[:MOST_WORDS]


def _message_of(value: Json) -> str:
    error = value.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    texts = (inner, value.get("message"), value.get("detail"))
    return next((text for text in texts if isinstance(text, str) and text), "")


@dataclass(frozen=True, slots=True)
class Listed:
    """What `/models` told. `owned_by` is that of the model asked for, else of the first."""

    answer: Answer
    ids: tuple[str, ...] = ()
    owned_by: str = ""


def read_models(status: int, body: bytes, model: str) -> Listed:
    if not 200 <= status < 300:
        return Listed(Answer(status, _moved(status) if status < 400 else ""))
    value = json_of(body)
    rows = value.get("data") if isinstance(value, dict) else value
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None
    if found is None:
        return Listed(Answer(status, "an answer that is no list of models"))
    ids = tuple(row["id"] for row in found if isinstance(row.get("id"), str))
    ours = [row for row in found if row.get("id") == model] or found
    owner = ours[0].get("owned_by") if ours else None
    return Listed(Answer(status), ids, owner if isinstance(owner, str) else "")
