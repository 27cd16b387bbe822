"""One message on both sides: what the client sent, and what the provider saw.

The two differ in reasoning alone. Each side is a row of blocks: reasoning, text, tool calls, a
tool's result, and as raw JSON whatever has no name here. Reasoning that did not leave stays in its
place on the provider's side, marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.core import reasoning
from proxy.core.wire import chat
from proxy.ledger.contract import Conversation
from proxy.page import plain, told

PREVIEW = 1_600
"""Characters of a block that are shown before it is asked for."""
MOST = 1_000_000
"""Characters of a block that are ever shown; the API has all of them."""
_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "cache_control"})


@dataclass(frozen=True, slots=True)
class Block:
    """`kind` is `text`, `reasoning`, `call`, `result` or `data`.

    Reasoning has a `state`: `sent` (on the client's side, of what did not leave so), `kept`,
    `sealed`, `dropped` or `replaced`. `hidden` counts the characters that were cut off.
    """

    kind: str
    text: str
    label: str = ""
    state: str = ""
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """One element. `step` numbers assistant messages, `absent` says that the text is not kept.

    `same` says that both sides are equal; then `came` is empty.
    """

    place: int
    message: int | None
    step: int | None
    role: str
    size: str
    thought: str
    digest: str
    same: bool
    absent: bool
    came: tuple[Block, ...]
    left: tuple[Block, ...]

    @property
    def hidden(self) -> int:
        return sum(block.hidden for block in (self.left if self.same else self.came))


def shown(it: Conversation, first: int, last: int, whole: bool = False) -> list[Shown]:
    """The elements from place `first` to before `last` that may have a text."""
    rows = rows_of(it)
    steps = _steps(rows)
    return [
        _shown(place, steps[place], rows[place], MOST if whole else _preview(rows[place]))
        for place in range(max(0, first), min(last, len(rows)))
    ]


def _preview(each: Mapping[str, Any]) -> int:
    """Characters; of tools only the names."""
    return 0 if each["part"] == "tools" else PREVIEW


def rows_of(it: Conversation) -> list[dict[str, Any]]:
    return [each for each in told.messages(it) if each["part"] not in ("model", "params")]


def provider_side(each: Mapping[str, Any], most: int | None) -> list[Block]:
    """What the provider saw of an element of `told.messages`, with what was dropped marked."""
    blocks = _blocks(each["left"])
    if each["came"] != each["left"]:
        blocks = tuple(_marked(_blocks(each["came"]), blocks))
    return [_cut(block, MOST if most is None else most) for block in blocks]


def place_of(it: Conversation, message: int) -> int:
    """Where the message with that index on the wire stands; the first place where there is none."""
    found = (place for place, each in enumerate(rows_of(it)) if each["message"] == message)
    return next(found, 0)


def _steps(rows: Sequence[Mapping[str, Any]]) -> list[int | None]:
    steps: list[int | None] = []
    number = 0
    for each in rows:
        is_step = each["role"] == "assistant"
        number += is_step
        steps.append(number if is_step else None)
    return steps


def _shown(place: int, step: int | None, each: Mapping[str, Any], most: int) -> Shown:
    left, came = each["left"], each["came"]
    same = left == came
    blocks = _blocks(left) if left is not None else ()
    client = _blocks(came) if not same else ()
    return Shown(
        place=place,
        message=each["message"],
        step=step,
        role=plain.line(each["role"] or each["part"]),
        size=plain.size(each["bytes"]),
        thought=plain.size(each["reasoning_bytes"]) if each["reasoning_bytes"] else "",
        digest=each["digest"],
        same=same,
        absent=left is None,
        came=tuple(_cut(block, most) for block in _sent(client, blocks)),
        left=tuple(_cut(block, most) for block in (blocks if same else _marked(client, blocks))),
    )


def _cut(block: Block, most: int) -> Block:
    text = plain.visible(block.text[:most])
    hidden = max(0, len(block.text) - most)
    return replace(block, text=text, label=plain.line(block.label), hidden=hidden)


def _sent(came: Sequence[Block], left: Sequence[Block]) -> Iterator[Block]:
    """The client's side: what of its reasoning left is called kept on both."""
    for block in came:
        gone = block.kind == "reasoning" and block not in left
        yield replace(block, state="sent") if gone else block


def _marked(came: Sequence[Block], left: Sequence[Block]) -> list[Block]:
    """The provider's side: its own blocks, and in their place what was dropped."""
    thoughts = {block.text for block in left if block.kind == "reasoning"}
    gone = [b for b in came if b.kind == "reasoning" and b.text not in thoughts]
    known = {block.text for block in came if block.kind == "reasoning"}
    marked = [replace(block, state="dropped") for block in gone]
    for block in left:
        new = block.kind == "reasoning" and block.text not in known
        marked.append(replace(block, state="replaced") if new else block)
    return marked


def _blocks(text: str) -> tuple[Block, ...]:
    try:
        value = chat.decode(text.encode())
    except ValueError:
        return (Block("data", text),)
    if not isinstance(value, dict):
        return (Block("data", text, label=_tools_label(value)),)
    return tuple(_of_message(value))


def _tools_label(value: Any) -> str:
    """The names of the tools in a list."""
    if not isinstance(value, list):
        return ""
    names = [_tool_name(tool) for tool in value if isinstance(tool, dict)]
    return ", ".join(name for name in names if name)


def _tool_name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name") or "")


def _of_message(message: Mapping[str, Any]) -> Iterator[Block]:
    is_step = message.get("role") == "assistant"
    if is_step:
        yield from _thoughts(message)
    kind = "result" if message.get("role") in ("tool", "function") else "text"
    yield from _content(message.get("content"), kind, is_step)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield _call(call)
    odd = {key: value for key, value in message.items() if _is_odd(key, value, is_step)}
    if odd:
        yield Block("data", _json(odd), label="more")


def _is_odd(key: str, value: Any, is_step: bool) -> bool:
    if key in _KNOWN or value in (None, "", []):
        return False
    return not (is_step and key in (*reasoning.STRING_CARRIERS, *reasoning.LIST_CARRIERS))


def _thoughts(message: Mapping[str, Any]) -> Iterator[Block]:
    """Reasoning that stands in several carriers is shown once."""
    state = "sealed" if reasoning.is_sealed(message) else "kept"
    carriers: dict[str, list[str]] = {}
    for carrier, text in reasoning.texts_of(message):
        carriers.setdefault(text, []).append(carrier)
    for text, names in carriers.items():
        yield Block("reasoning", text, label=", ".join(names), state=state)


def _content(content: Any, kind: str, is_step: bool) -> Iterator[Block]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            if is_step and reasoning.is_reasoning_part(part):
                continue
            text = reasoning.without_think(part["text"]) if is_step else part["text"]
            if text:
                yield Block(kind, text)
        elif not (is_step and reasoning.is_reasoning_part(part)):
            yield Block("data", _json(part), label=_part_label(part))


def _part_label(part: Any) -> str:
    return str(part.get("type") or "") if isinstance(part, dict) else ""


def _call(call: Any) -> Block:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return Block("data", _json(call), label="tool call")
    return Block("call", function["arguments"], label=str(function.get("name") or "tool call"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
