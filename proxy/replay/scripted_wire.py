"""What a scripted provider and a scripted agent say to each other, and what of it is a prompt.

Four bytes of UTF-8 are a token; each role and each end of a message is one more. An answer that
comes back as it went is rendered to the very segments that were generated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from proxy.core.cachemodel import Segment, Segments, Split, size

BYTES_PER_TOKEN = 4
Usage = dict[str, Any]
"""A usage object as it stands on the wire."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it stands on the wire; `arguments` is JSON in a string."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One assistant message."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()


# What a prompt is made of


def tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def segment(kind: str, text: str) -> Segment:
    """A text in its place; what is empty is no segment's worth (0 tokens)."""
    raw = f"{kind}\0{text}".encode("utf-8", "surrogatepass")
    return Segment(blake2b(raw, digest_size=16).digest(), tokens_of(text))


def rendered(body: Mapping[str, Any]) -> Segments:
    """The prompt that a request asks to be continued: tools, messages, the head of the answer."""
    tools = body.get("tools")
    front = (segment("tools", orjson.dumps(tools).decode()),) if tools else ()
    rows = [row for message in body["messages"] for row in _message(message)]
    return (*front, *rows, _mark("assistant"))


def _message(message: Mapping[str, Any]) -> Segments:
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    calls = "".join(_call_text(call["function"]) for call in message.get("tool_calls") or ())
    return (_mark(message["role"]), *_inside(thought, _text(message.get("content")), calls))


def spoken(answer: Answer) -> Segments:
    """What is generated behind the head of an answer; the same when the message comes back."""
    calls = "".join(_call_text({"name": c.name, "arguments": c.arguments}) for c in answer.calls)
    return _inside(answer.reasoning, answer.content, calls)


def _inside(reasoning: str, content: str, calls: str) -> Segments:
    texts = (("reasoning", reasoning), ("content", content), ("calls", calls))
    return (*(segment(kind, text) for kind, text in texts if text), _mark("end"))


def _mark(name: str) -> Segment:
    """A special token."""
    return Segment(b"mark " + name.encode(), 1)


def _call_text(function: Mapping[str, Any]) -> str:
    return f"{function['name']}({function['arguments']})"


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


# What an answer looks like on the wire


def _deltas(answer: Answer, piece: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for part in _pieces(answer.reasoning, piece):
        yield {"reasoning_content": part}
    for part in _pieces(answer.content, piece):
        yield {"content": part}
    for index, call in enumerate(answer.calls):
        begun = {"name": call.name, "arguments": ""}
        yield _call_delta(index, begun, id=call.id, type="function")
        for part in _pieces(call.arguments, piece):
            yield _call_delta(index, {"arguments": part})


def _call_delta(index: int, function: Mapping[str, str], **begins: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **begins, "function": function}]}


def _pieces(text: str, piece: int) -> Iterator[str]:
    return (text[at : at + piece] for at in range(0, len(text), piece))


def echoed(answer: Answer) -> dict[str, Any]:
    """The answer as a message, as a client puts it into its history."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    return message


def body_of(model: str, answer: Answer, usage: Usage) -> bytes:
    """The answer in one piece."""
    choice = {"index": 0, "message": echoed(answer), "finish_reason": _finish(answer)}
    return orjson.dumps({**_head(model, ""), "choices": [choice], "usage": usage})


def events_of(model: str, answer: Answer, usage: Usage | None, piece: int) -> Iterator[bytes]:
    """The answer as a stream's events; usage, where it is asked for, in one of its own."""
    head = _head(model, ".chunk")
    for delta in _deltas(answer, piece):
        yield _event(head, [{"index": 0, "delta": delta, "finish_reason": None}])
    yield _event(head, [{"index": 0, "delta": {}, "finish_reason": _finish(answer)}])
    if usage is not None:
        yield _event({**head, "usage": usage}, [])
    yield b"data: [DONE]\n\n"


def usage_of(split: Split, answer: Answer) -> Usage:
    output = size(spoken(answer))
    return {
        "prompt_tokens": split.input,
        "completion_tokens": output,
        "total_tokens": split.input + output,
        "prompt_tokens_details": {"cached_tokens": split.read},
        "completion_tokens_details": {"reasoning_tokens": tokens_of(answer.reasoning)},
    }


def _head(model: str, kind: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-scripted",
        "object": f"chat.completion{kind}",
        "created": 0,
        "model": model,
    }


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _event(head: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> bytes:
    return b"data: " + orjson.dumps({**head, "choices": choices}) + b"\n\n"
