"""What one payload of a stream, or a body, may hold, and the error that it tells of.

What has the wrong shape is left out. An error is told by a word, never by a message.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from proxy.core.sse import json_of

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Delta(msgspec.Struct, gc=False):
    """What a delta or a message may hold. Any field may be anything."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    thought_signature: Any = None
    reasoning_opaque: Any = None
    thinking_blocks: Any = None
    extra_content: Any = None


class Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: Delta | None = None
    finish_reason: Any = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    model: Any = None
    usage: Any = None
    timings: Any = None
    x_groq: Any = None
    error: Any = None


class _Answer(Choice, gc=False):
    """A choice of a body that was not streamed."""

    delta: Delta | None = msgspec.field(default=None, name="message")


class _Body(Chunk, gc=False):
    choices: list[_Answer] | None = None  # type: ignore[assignment]


_decode = msgspec.json.Decoder(Chunk).decode
decode_body = msgspec.json.Decoder(_Body).decode


def chunk_of(data: bytes) -> Chunk | None:
    """The fast way to read one payload; None where the other must do."""
    try:
        chunk = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if chunk.choices is None else chunk


def chunk_from(value: dict[str, Any], delta: str) -> Chunk:
    """A chunk from any object, less what has the wrong shape. `delta` is the key of the message."""
    chunk = _made(Chunk, value)
    choices = value.get("choices")
    chunk.choices = [
        _choice_from(c, delta)
        for c in (choices if isinstance(choices, list) else ())
        if isinstance(c, dict)
    ]
    return chunk


def _choice_from(value: dict[str, Any], key: str) -> Choice:
    choice, delta = _made(Choice, value), value.get(key)
    choice.delta = _made(Delta, delta) if isinstance(delta, dict) else None
    return choice


def _made(kind: type[_Struct], value: dict[str, Any]) -> _Struct:
    return kind(**{name: value[name] for name in kind.__struct_fields__ if name in value})


def object_in(body: bytes) -> dict[str, Any] | None:
    value = json_of(body)
    if isinstance(value, list) and value:  # Gemini wraps its errors
        value = value[0]
    return value if isinstance(value, dict) else None


def error_in(value: dict[str, Any]) -> str:
    if error := value.get("error"):
        return code_in(error)
    if "choices" in value:
        return ""
    if detail := value.get("detail"):  # Mistral, FastAPI
        return code_in(detail[0] if isinstance(detail, list) else detail)
    return code_in(value) if isinstance(value.get("message"), str) else ""


# A word, not a sentence: what an upstream says in words may be what was said to it.
_code = re.compile(r"[A-Za-z0-9][\w.:/-]{0,63}", re.ASCII)


def code_in(error: Any) -> str:
    """A word for an error: its code, type or status, one in letters before a number."""
    if not isinstance(error, dict):
        return "error"
    named = [error.get(key) for key in ("code", "type", "status", "__type")]
    words = [str(n) for n in named if isinstance(n, str | int) and not isinstance(n, bool)]
    codes = [word for word in words if _code.fullmatch(word)]
    return next((code for code in codes if not code.isdecimal()), codes[0] if codes else "error")
