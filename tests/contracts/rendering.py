"""A request as the text of the prompt that a provider's chat template makes of it.

Templates are reduced to what bears on prefixes: which field reasoning is read from, from which
message on it is rendered, and what stands in its place where it is not. A message is

    <|role|> reasoning text calls <|end|>

and the generation prompt is `<|assistant|>` and what the template opens an answer with. Marks are
our own, the same for all; a provider's special tokens matter here only by number. Argument texts
stand as they came (engines that parse and print them again make two spellings one; not here), ids
are not rendered but for Kimi K2. Which provider does what, and where that is told: `families.py`.

How reasoning is found in a message is told here once more, as providers read it, and not taken from
`core/reasoning`: what leaves the proxy is judged by this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
Request = Mapping[str, Any]
OPEN, CLOSE, END = "<think>", "</think>", "<|end|>"
TOOL_RESPONSE = "<tool_response>"


# Where reasoning is read


def _string(name: str) -> Callable[[Message], str | None]:
    def read(message: Message) -> str | None:
        value = message.get(name)
        return value if isinstance(value, str) else None

    return read


def _of_details(message: Message) -> str | None:
    """`reasoning_details`: the text of its items, what is encrypted left out."""
    items = message.get("reasoning_details")
    if not isinstance(items, list):
        return None
    return "".join(item.get("text") or item.get("summary") or "" for item in items)


def _of_parts(message: Message) -> str | None:
    """Mistral's `{"type": "thinking", "thinking": [{"type": "text", …}]}`; text is taken too."""
    content = message.get("content")
    parts = [p for p in content if is_thinking(p)] if isinstance(content, list) else []
    return "".join(_part_text(part.get("thinking")) for part in parts) if parts else None


def is_thinking(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")


def _part_text(thinking: Any) -> str:
    if isinstance(thinking, list):
        return "".join(piece.get("text", "") for piece in thinking)
    return thinking or ""


def _of_text(message: Message) -> str | None:
    """Less a line break at either end, which are the carrier's own."""
    text = text_of(message)
    if not _thinks(text):
        return None
    return text[len(OPEN) : text.index(CLOSE)].removeprefix("\n").removesuffix("\n")


def _thinks(text: str) -> bool:
    return text.startswith(OPEN) and CLOSE in text


READERS: Mapping[str, Callable[[Message], str | None]] = {
    "reasoning_content": _string("reasoning_content"),
    "reasoning": _string("reasoning"),
    "reasoning_details": _of_details,
    "content_parts": _of_parts,
    "think": _of_text,
}


def thought_of(reads: Sequence[str], message: Message) -> str | None:
    """The reasoning that an upstream takes from a message: the first carrier that is there."""
    found = (READERS[carrier](message) for carrier in reads)
    return next((thought for thought in found if thought is not None), None)


def text_of(message: Message) -> str:
    """What was said: the text of a string, or of the parts that hold text."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if not is_thinking(part))
    return content if isinstance(content, str) else ""


def said(reads: Sequence[str], message: Message) -> str:
    """The text, less the thought at its beginning where the upstream reads it there."""
    text = text_of(message)
    if "think" in reads and _thinks(text):
        return text[text.index(CLOSE) + len(CLOSE) :].lstrip("\n")
    return text


# From which message on reasoning is rendered


def everywhere(messages: Sequence[Message]) -> int:
    return 0


def nowhere(messages: Sequence[Message]) -> int:
    return sys.maxsize


def after_last_user(messages: Sequence[Message]) -> int:
    return 1 + _last(messages, lambda m: m["role"] == "user")


def after_last_query(messages: Sequence[Message]) -> int:
    """A user message that only wraps a tool's result is no query (Qwen)."""
    return 1 + _last(
        messages, lambda m: m["role"] == "user" and not text_of(m).startswith(TOOL_RESPONSE)
    )


def after_last_answer(messages: Sequence[Message]) -> int:
    """Behind the last assistant message without tool calls (Kimi K2)."""
    return 1 + _last(messages, lambda m: m["role"] == "assistant" and not m.get("tool_calls"))


def _last(messages: Sequence[Message], wanted: Callable[[Message], bool]) -> int:
    return next((i for i in range(len(messages) - 1, -1, -1) if wanted(messages[i])), -1)


# Templates


@dataclass(frozen=True, slots=True)
class Template:
    """`since` gives the index of the first message whose reasoning is rendered, where the template
    is not told to keep all: `keeps` is what it does by default, `flag` the path in the body and the
    value that makes it keep. `empty` stands for a rendered message without reasoning, `cleared` for
    one before `since`. `opening` ends the generation prompt. `effort` is the member that is
    rendered before all else.
    """

    name: str
    since: Callable[[Sequence[Message]], int] = everywhere
    opening: str = OPEN
    before: str = OPEN
    behind: str = CLOSE
    empty: str = OPEN + CLOSE
    cleared: str = OPEN + CLOSE
    flags: tuple[tuple[tuple[str, ...], Any], ...] = ()
    keeps: bool = False
    keeps_with_tools: bool = False
    trims: bool = False
    ids: bool = False
    sorts_tools: bool = False
    sorts_results: bool = False
    system_first: bool = False
    effort: str = ""

    def first_kept(self, request: Request) -> int:
        """The index from which on reasoning is rendered."""
        messages = request["messages"]
        if self._kept_whole(request):
            return 0
        return self.since(messages)

    def _kept_whole(self, request: Request) -> bool:
        if self.keeps_with_tools and request.get("tools"):
            return True
        for path, value in self.flags:
            given = _at(request, path)
            if given is not None:
                return bool(given == value)
        return self.keeps

    def thought(self, reasoning: str | None, rendered: bool) -> str:
        """What stands before the text of an assistant message."""
        if not rendered:
            return self.cleared
        text = (reasoning or "").strip() if self.trims else reasoning or ""
        return f"{self.before}{text}{self.behind}" if text else self.empty


def _at(request: Request, path: Sequence[str]) -> Any:
    found: Any = request
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


_QWEN = "<think>\n", "\n</think>\n\n"
_QWEN_KEEP = (
    (("preserve_thinking",), True),
    (("chat_template_kwargs", "preserve_thinking"), True),
)
_GLM_KEEP = (
    (("thinking", "clear_thinking"), False),
    (("chat_template_kwargs", "clear_thinking"), False),
)

DEEPSEEK_V32 = Template("deepseek-v3.2", after_last_user, cleared=CLOSE)
DEEPSEEK_V4 = Template(
    "deepseek-v4", after_last_user, keeps_with_tools=True, sorts_results=True,
    effort="reasoning_effort",
)  # fmt: skip
DEEPSEEK_R1 = Template("deepseek-r1", nowhere, empty="", cleared="")
KIMI_K2 = Template(
    "kimi-k2", after_last_answer, opening="", ids=True,
    flags=((("thinking", "keep"), "all"), (("chat_template_kwargs", "preserve_thinking"), True)),
)  # fmt: skip
KIMI_K3 = Template("kimi-k3", sorts_tools=True, sorts_results=True, effort="reasoning_effort")
GLM_5 = Template("glm-5", after_last_user, cleared=CLOSE, flags=_GLM_KEEP, trims=True)
GLM_53 = Template(
    "glm-5.3", after_last_user, flags=_GLM_KEEP, keeps=True, trims=True, effort="reasoning_effort"
)
MINIMAX_M2 = Template(
    "minimax-m2", after_last_user, opening="<think>\n", before="<think>\n", behind="\n</think>\n\n",
    empty="", cleared="", system_first=True,
)  # fmt: skip
QWEN_36 = Template(
    "qwen3.6", after_last_query, opening=_QWEN[0], before=_QWEN[0], behind=_QWEN[1],
    empty="".join(_QWEN), cleared="", flags=_QWEN_KEEP, trims=True, system_first=True,
)  # fmt: skip
QWEN_38 = Template(
    "qwen3.8", after_last_query, opening=_QWEN[0], before=_QWEN[0], behind=_QWEN[1],
    empty="".join(_QWEN), cleared="", flags=_QWEN_KEEP, keeps=True, trims=True, system_first=True,
)  # fmt: skip
FIREWORKS = Template(
    "fireworks", after_last_query, flags=((("reasoning_history",), "preserved"),), cleared=""
)
KEEPING = Template("keeping")
SILENT = Template("silent", nowhere, opening="", empty="", cleared="")


# The prompt


@dataclass(frozen=True, slots=True)
class Prompt:
    """`history` is the text of all that was said, `opening` the generation prompt behind it.
    `thoughts` are what was read of each assistant message (None: no field), `shown` what of it
    stands in the prompt; `since` is where the template begins to render reasoning.
    """

    history: str
    opening: str
    thoughts: tuple[str | None, ...]
    shown: tuple[str, ...]
    since: int

    @property
    def text(self) -> str:
        return self.history + self.opening


def rendered(template: Template, reads: Sequence[str], request: Request) -> Prompt:
    """The prompt that a request asks to be continued."""
    since, rows = template.first_kept(request), []
    thoughts: list[str | None] = []
    shown: list[str] = []
    messages = _in_call_order(request["messages"]) if template.sorts_results else None
    for index, message in enumerate(messages or request["messages"]):
        if message["role"] != "assistant":
            rows.append(_row(template, message))
            continue
        thought = thought_of(reads, message)
        head = template.thought(thought, index >= since)
        thoughts.append(thought)
        shown.append(head if thought and index >= since else "")
        rows.append(answered(template, head, said(reads, message), calls_of(message)))
    opening = f"<|assistant|>{template.opening}"
    history = "".join((*_front(template, request, rows), *rows))
    return Prompt(history, opening, tuple(thoughts), tuple(shown), since)


def _front(template: Template, request: Request, rows: list[str]) -> list[str]:
    """What stands before the messages; a leading system message that comes first is taken over."""
    effort = f"<|effort|>{request.get(template.effort, '')}{END}" if template.effort else ""
    tools = request.get("tools")
    listed = json.dumps(tools, ensure_ascii=False, sort_keys=template.sorts_tools) if tools else ""
    declared = f"<|tools|>{listed}{END}" if listed else ""
    if template.system_first and rows and rows[0].startswith("<|system|>"):
        return [effort, rows.pop(0), declared]
    return [effort, declared]


def _row(template: Template, message: Message) -> str:
    role = "system" if message["role"] == "developer" else message["role"]
    answers = f"{message.get('tool_call_id')}\n" if template.ids and role == "tool" else ""
    return f"<|{role}|>{answers}{text_of(message)}{END}"


Call = tuple[str, str, str]
"""Id, name and argument text of a tool call."""


def calls_of(message: Message) -> tuple[Call, ...]:
    return tuple(
        (call.get("id", ""), call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )


def answered(template: Template, head: str, text: str, calls: Sequence[Call]) -> str:
    """An assistant message in the prompt; `head` is what stands for its reasoning."""
    told = "".join(
        f"<|call|>{call_id if template.ids else name}({arguments})"
        for call_id, name, arguments in calls
    )
    return f"<|assistant|>{head}{text}{told}{END}"


def _in_call_order(messages: Sequence[Message]) -> list[Message]:
    """Tool results in the order of the calls that they answer, whatever order they came in."""
    order: dict[str, int] = {}
    rows: list[Message] = []
    run: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            run.append(message)
            continue
        rows += sorted(run, key=lambda m: order.get(m["tool_call_id"], 0))
        run, order = [], {call[0]: at for at, call in enumerate(calls_of(message))}
        rows.append(message)
    return rows + sorted(run, key=lambda m: order.get(m["tool_call_id"], 0))
