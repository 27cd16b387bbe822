"""Histories of agents, generated: every carrier of reasoning, every way of writing, and what nobody
expects.

A history is a list of chunks. Every chunk ends where each call has its result, so the requests of a
client that only ever appends are the heads of the list. A message is a value that `rendering.Style`
can write.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.laws.rendering import STYLES, Literal, Pairs, Style

# What gets in the way of a careless reader: quotes, escapes, tags, blanks of all kinds, keys of
# ours in texts.
_BITS = (
    '"', "\\", "\\\\", "/", "\n", "\t", " ", "\u00a0", "\u2028", "é", "😀", "\x7f", "\x00", ",",
    ":", "{", "}", "[", "]", "<", ">", "<think>", "</think>", "think", "u003c", '"messages":[',
    '"reasoning_content":""', "word", "Error: no such file", "ok",
)  # fmt: skip
texts = st.lists(st.sampled_from(_BITS), max_size=8).map("".join)
thoughts = st.lists(st.sampled_from(_BITS), min_size=1, max_size=8).map("".join)
inner_thoughts = thoughts.filter(lambda text: "</think>" not in text)
blanks = st.sampled_from(("", " ", "\n\n", "\u00a0\n", "\t"))
COMMANDS = (
    "ls",
    "cat a.py",
    "echo hi > out.txt",
    "sed -i s/a/b/ a.py",
    "pytest -q",
    "git commit -m x",
)
OUTPUTS = (
    "",
    "ok",
    "a\nb\n",
    "exit code: 1",
    "Traceback (most recent call last):\n  boom",
    "No such file",
)

_ODD_NUMBERS = (
    Literal("18446744073709551616"), Literal("1e5"), Literal("-0.0"), Literal("1.50"),
    Literal("1E400"), Literal("NaN"), Literal("-Infinity"), Literal("9" * 400), 7, -0.5, True, None,
)  # fmt: skip
odd_values = st.recursive(
    st.sampled_from(_ODD_NUMBERS) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
_UNKNOWN = (
    "name",
    "x_trace",
    "metadata",
    "refusal",
    "annotations",
    "cache_control",
    "index",
    "status",
)
unknown_members = st.dictionaries(st.sampled_from(_UNKNOWN), odd_values, max_size=2)


def thinking(text: str, kind: str = "thinking", **more: Any) -> dict[str, Any]:
    return {"type": kind, "thinking" if kind == "thinking" else "text": text, **more}


@st.composite
def carriers(draw: st.DrawFn) -> dict[str, Any]:
    """Members that carry reasoning; some empty, some of a shape that is none of theirs."""
    found: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from(_CARRIERS), max_size=3, unique=True)):
        found[key] = draw(_VALUES[key])
    if len(found) > 1 and draw(st.booleans()):
        shared = draw(thoughts)
        found = {key: shared if isinstance(value, str) else value for key, value in found.items()}
    return found


_CARRIERS = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details")
_details = st.lists(
    st.builds(lambda text, kind: {"type": kind, "text": text, "index": 0}, texts,
              st.sampled_from(("reasoning.text", "reasoning.summary"))), max_size=2,
)  # fmt: skip
_strings = thoughts | thoughts | st.sampled_from(("", None)) | odd_values
_VALUES = {
    **dict.fromkeys(_CARRIERS[:3], _strings),
    "reasoning_details": _details | odd_values,
}
_parts = st.builds(lambda text, more: {"type": "text", "text": text, **more}, texts,
                   st.sampled_from(({}, {"cache_control": {"type": "ephemeral"}})))  # fmt: skip
_images = st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}})
_thinking_parts = st.builds(thinking, texts, st.sampled_from(("thinking", "reasoning")))


@st.composite
def spoken(draw: st.DrawFn) -> Any:
    """The content of an assistant message, reasoning in it or not."""
    text = draw(texts)
    if draw(st.booleans()):
        lead, after = draw(blanks), draw(blanks)
        text = f"{lead}<think>{draw(inner_thoughts)}</think>{after}{text}"
    match draw(st.sampled_from(("text", "text", "text", "parts", "thinking", "empty", "odd"))):
        case "text":
            return text
        case "parts":
            parts = [{"type": "text", "text": text}, *draw(st.lists(_parts | _images, max_size=2))]
            return draw(st.permutations(parts))
        case "thinking":
            more = draw(st.lists(_thinking_parts | _parts, min_size=1, max_size=4))
            return [*more, *draw(st.sampled_from(([], [{"type": "text", "text": text}])))]
        case "empty":
            return draw(st.sampled_from((None, "", [])))
        case _:
            return draw(odd_values | st.lists(odd_values, max_size=2))


_seals = st.sampled_from((
    {"thought_signature": "c2ln"},
    {"reasoning_opaque": "b3BhcXVl"},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "ZW5j"}, {"text": "x"}]},
    {"reasoning_details": [{"type": "reasoning.text", "text": "x", "signature": "c2ln"}]},
    {"content": [thinking("x", signature="c2ln"), {"type": "text", "text": "said"}]},
    {"content": [{"type": "redacted_thinking", "data": "cmVk"}, {"type": "text", "text": "said"}]},
))  # fmt: skip


@st.composite
def assistants(draw: st.DrawFn, calls: int) -> Any:
    """An assistant message with so many tool calls; at times sealed, at times with a key twice."""
    message = {"role": "assistant", **draw(carriers())}
    if draw(st.integers(0, 4)):
        message["content"] = draw(spoken())
    if calls:
        message["tool_calls"] = [draw(tool_calls(at)) for at in range(calls)]
    message |= draw(unknown_members) if draw(st.integers(0, 2)) == 0 else {}
    if draw(st.integers(0, 7)) == 0:
        message |= draw(_seals)
    message = dict(draw(st.permutations(list(message.items()))))
    if draw(st.integers(0, 9)) == 0:
        return _twice(draw, message)
    return message


def _twice(draw: st.DrawFn, message: dict[str, Any]) -> Pairs:
    key = draw(st.sampled_from(sorted(message.keys() - {"role", "tool_calls"}) or ["x"]))
    return Pairs([(key, draw(thoughts)), *message.items()])


@st.composite
def tool_calls(draw: st.DrawFn, at: int) -> dict[str, Any]:
    """Ids that are unique, that repeat over the conversation, or that are missing."""
    arguments = json.dumps({"command": draw(st.sampled_from(COMMANDS))})
    call: dict[str, Any] = {
        "type": "function",
        "function": {"name": "bash", "arguments": arguments},
    }
    match draw(st.sampled_from(("unique", "unique", "repeated", "missing"))):
        case "unique":
            call["id"] = f"call_{draw(st.integers(0, 10**9))}_{at}"
        case "repeated":
            call["id"] = f"functions.bash:{at}"
    return call


_results = st.sampled_from(OUTPUTS) | st.lists(_parts, min_size=1, max_size=1)


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    """One step: an assistant message and what answers it."""
    message = draw(assistants(draw(st.sampled_from((0, 1, 1, 2, 3)))))
    answers = [
        {"role": "tool", "content": draw(_results)}
        | ({"tool_call_id": call["id"]} if "id" in call else {})
        for call in dict(message).get("tool_calls", ())
    ]  # fmt: skip
    if answers:
        return [message, *draw(st.permutations(answers))]
    return [message, draw(users)]


users = st.builds(
    lambda content, more: {"role": "user", "content": content, **more},
    st.one_of(texts, st.lists(_parts | _images, min_size=1, max_size=3)),
    st.just({}) | st.just({}) | unknown_members,
)
systems = st.builds(lambda role, text: {"role": role, "content": text},
                    st.sampled_from(("system", "developer")), texts)  # fmt: skip
deep = st.integers(90, 1_500).map(lambda n: Literal("[" * n + "]" * n))
odd_messages = st.one_of(
    odd_values,
    deep,
    systems,
    st.builds(lambda value: {"role": "user", "content": value}, deep | odd_values),
    st.builds(lambda role: {"role": role, "content": "x"}, st.sampled_from(("robot", "", 5, None))),
    st.sampled_from(("\ud83d", "\udcff", "a\udfff")).map(lambda t: {"role": "user", "content": t}),
    st.builds(lambda text: Pairs([("role", "user"), ("content", "a"), ("content", text)]), texts),
    st.just({"role": "assistant", "reasoning_content": "\ud83d cut", "content": "x"}),
    st.just({"role": "assistant", "content": "<think>\udcff\ud83d</think>\nx"}),
)  # fmt: skip
_fields = {
    "model": st.sampled_from(("m-1", "org/model:free", "")),
    "stream": st.booleans(),
    "tools": st.just([{"type": "function", "function": {"name": "bash", "parameters": {}}}]),
    "temperature": st.sampled_from((Literal("0.10"), Literal("1e0"), 0)),
    "metadata": st.dictionaries(texts, texts, max_size=2),
}


@dataclass(frozen=True, slots=True)
class History:
    """What a client would send in its whole life, and how it writes it."""

    style: Style
    before: dict[str, Any]
    after: dict[str, Any]
    chunks: tuple[tuple[Any, ...], ...]

    def messages(self, chunks: int) -> list[Any]:
        return [message for chunk in self.chunks[:chunks] for message in chunk]

    def body(self, chunks: int) -> bytes:
        return body_of(self, self.messages(chunks))

    def bodies(self) -> list[bytes]:
        return [self.body(n) for n in range(1, len(self.chunks) + 1)]


def body_of(history: History, messages: list[Any]) -> bytes:
    """A request with these messages; its own members in one order, as clients keep it."""
    members = {**history.before, "messages": messages, **history.after}
    return history.style.render(Pairs(members.items()))


@st.composite
def histories(draw: st.DrawFn, odd: bool = True, max_steps: int = 5) -> History:
    fields = {key: draw(value) for key, value in _fields.items() if draw(st.booleans())}
    split = draw(st.integers(0, len(fields)))
    first = [*draw(st.lists(systems, max_size=2)), draw(users)]
    chunks = [tuple(first)]
    for _ in range(draw(st.integers(1, max_steps))):
        chunks.append(tuple(draw(steps())))
        if draw(st.integers(0, 4)) == 0:
            chunks.append((draw(odd_messages if odd else users), draw(users)))
    return History(
        draw(st.sampled_from(STYLES)), dict(list(fields.items())[:split]),
        dict(list(fields.items())[split:]), tuple(chunks),
    )  # fmt: skip
