"""A second opinion on JSON requests, slow and plain, without any of the code that is tested."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.laws.rendering import Literal, Pairs

STRINGS = ("reasoning_content", "reasoning", "reasoning_text")
THINKING = ("thinking", "reasoning", "redacted_thinking")
TEXTS = ("text", "thinking", "reasoning", "summary", "content")
SEALS = ("thought_signature", "reasoning_opaque", "thinking_blocks", "extra_content")
BOOKKEEPING = ("cache_control", "annotations", "logprobs", "status", "index", "id")


def _whole(pairs: list[tuple[str, Any]]) -> Any:
    return Pairs(pairs) if len(dict(pairs)) < len(pairs) else dict(pairs)


_decoder = json.JSONDecoder(
    object_pairs_hook=_whole, parse_float=Literal, parse_int=Literal, parse_constant=Literal
)


def text_of(body: bytes) -> str:
    return body.decode("utf-8", "surrogateescape")


def decoded(body: bytes) -> Any:
    """The whole request; numbers as literals, objects with a repeated key as `Pairs`."""
    return _decoder.decode(text_of(body))


def up_to_last_message(body: bytes) -> str:
    """The text of a request up to the end of its last message."""
    text = text_of(body)
    at = _skip(text, text.index("{") + 1)
    while True:
        key, at = _decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if key == "messages":
            return text[: _last_end(text, at)]
        _, at = _decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)


def _last_end(text: str, at: int) -> int:
    end = at = _skip(text, at + 1)
    while text[at] != "]":
        _, end = _decoder.raw_decode(text, at)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return end


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def without_reasoning(message: Any) -> Any:
    """A message as it would be, had its model not thought aloud."""
    if not _is_assistant(message):
        return message
    pairs = [(key, _said(value) if key == "content" else value) for key, value in _pairs(message)]
    return [pair for pair in pairs if not _carries(*pair)]


def reasoning_in(message: Any) -> bool:
    """Whether an assistant message holds reasoning that may be taken out, and no other."""
    if not _is_assistant(message) or isinstance(message, Pairs) or is_sealed(message):
        return False
    rows, content = message.get("reasoning_details"), message.get("content")
    parts = [p for p in content if _thinks(p)] if isinstance(content, list) else []
    strings = [message[key] for key in STRINGS if isinstance(message.get(key), str)]
    listed = [*(rows if isinstance(rows, list) else []), *parts]
    return any(strings) or any(map(_has_text, listed)) or bool(_think(_first(content)))


def _has_text(item: Any) -> bool:
    """Whether there is text in an item of reasoning, however deep."""
    if isinstance(item, str):
        return bool(item)
    if isinstance(item, dict):
        return any(_has_text(item[key]) for key in TEXTS if key in item)
    return isinstance(item, list) and any(map(_has_text, item))


def is_sealed(message: Any) -> bool:
    rows = message.get("reasoning_details")
    items = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    content = message.get("content")
    items += [part for part in content if _thinks(part)] if isinstance(content, list) else []
    marks = ("signature", "data")
    return any(map(message.get, SEALS)) or any(item.get(mark) for item in items for mark in marks)


def _is_assistant(message: Any) -> bool:
    return isinstance(message, dict | Pairs) and dict(_pairs(message)).get("role") == "assistant"


def _pairs(message: Any) -> Sequence[tuple[str, Any]]:
    return message if isinstance(message, Pairs) else list(message.items())


def _carries(key: str, value: Any) -> bool:
    if key == "reasoning_details":
        return isinstance(value, list)
    return key in SEALS or (key in STRINGS and isinstance(value, str))


def _thinks(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] in THINKING


def _said(content: Any) -> Any:
    if isinstance(content, str):
        return _spoken(content)
    if not isinstance(content, list):
        return content
    rest = [dict(part) if isinstance(part, dict) else part for part in content if not _thinks(part)]
    for part in rest:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            part["text"] = _spoken(part["text"])
            break
    return rest if rest or not content else ""


def _first(content: Any) -> str:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and not _thinks(part)]
        return next((p["text"] for p in parts if isinstance(p.get("text"), str)), "")
    return content if isinstance(content, str) else ""


def _think(text: str) -> str:
    if not text.lstrip().startswith("<think>") or "</think>" not in text:
        return ""
    inside, _, rest = text.partition("<think>")[2].partition("</think>")
    return inside + _think(rest)


def _spoken(text: str) -> str:
    """Less the thoughts at its start and the blanks after them."""
    if not text.lstrip().startswith("<think>") or "</think>" not in text:
        return text
    before, _, rest = text.partition("<think>")
    return _spoken(before + rest.partition("</think>")[2].lstrip())


def rendered(message: Any) -> Any:
    """A message in a form that is equal where a provider renders the same prompt."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and _is_text(content[0]):
        content = content[0]["text"]
    rest = {
        key: _bare(value)
        for key, value in message.items()
        if key not in BOOKKEEPING and key != "content" and value not in (None, "", [])
    }
    return {**rest, "content": "" if content in (None, "", []) else _bare(content)}


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.keys() <= {"type", "text", "cache_control"}
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
    )


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return list(map(_bare, value))
    return value
