"""A provider with a real prompt cache, as a script: what it allows and re-uses is told in `Rules`.

A token is a word of the rendered prompt. Prompts and, by the rule, what was generated are held, and
of each new prompt the longest common beginning is read, in whole blocks, from the minimum on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.contract import CacheRule, Reuse, UserTurn
from tests.journey.provider import DONE, Answer, Came, Script, chunk, event

Json = Mapping[str, Any]
Tokens = list[str]

REASONING = "the agent shall write another note of thirty words so it thinks of some words first"


@dataclass(frozen=True, slots=True)
class Rules:
    """`reads` and `writes` as in a contract. `usage`: never, asked or always told in streams;
    `tells_cached`: whether cached tokens are told. `refuses` gives the words of a 400 for a body
    that is not taken. `keys` are taken; none: all are. `calls`: replies call the tool.
    """

    cache: CacheRule = CacheRule(Reuse.GENERATED)
    reads: tuple[str, ...] = ("reasoning_content",)
    writes: str = "reasoning_content"
    user_turn: UserTurn = UserTurn.KEEPS
    usage: str = "asked"
    tells_cached: bool = True
    refuses: Callable[[Json], str] = lambda body: ""
    keys: tuple[str, ...] = ()
    calls: bool = True
    owned_by: str = "me"


@dataclass(slots=True)
class Scripted:
    """Call it with what came. `spent` are prompt and generated tokens, in all."""

    rules: Rules
    held: list[Tokens] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    spent: list[tuple[int, int]] = field(default_factory=list)

    @property
    def script(self) -> Script:
        return self.answer

    def answer(self, came: Came) -> Answer:
        key = came.headers.get("authorization", "").removeprefix("Bearer ")
        if self.rules.keys and key not in self.rules.keys:
            return refusal(401, f"Incorrect API key provided: {key}")
        if came.path == "/v1/models":
            row = {"id": "m", "object": "model", "owned_by": self.rules.owned_by}
            return Answer(chunks=(json.dumps({"object": "list", "data": [row]}).encode(),))
        body = came.json()
        self.bodies.append(body)
        if words := self.rules.refuses(body):
            return refusal(400, words)
        return self._completed(body)

    def _completed(self, body: Json) -> Answer:
        prompt = rendered(self.rules, body)
        message, generated, finish = self._reply(body)
        usage = self._usage(prompt, generated)
        self._hold(prompt, generated)
        if not body.get("stream"):
            return whole(message, finish, usage if self.rules.usage != "never" else None)
        asked = body.get("stream_options", {}).get("include_usage")
        told = self.rules.usage == "always" or (self.rules.usage == "asked" and asked)
        return streamed(message, finish, usage if told else None)

    def _reply(self, body: Json) -> tuple[dict[str, Any], Tokens, str]:
        """What a step of the agent generates, cut at the limit."""
        limit = int(body.get("max_tokens") or body["max_completion_tokens"])
        number = len(body["messages"])
        words = " ".join(f"word{number}x{i}" for i in range(30))
        thought, call = REASONING.split(), ["<call>", "note", *_arguments(words).split(), "</call>"]
        said: dict[str, Any] = {"role": "assistant", "content": ""}
        if self.rules.calls:
            function = {"name": "note", "arguments": _arguments(words)}
            said["tool_calls"] = [{"id": f"c{number}", "type": "function", "function": function}]
        else:
            said["content"], call = words, words.split()
        if self.rules.writes:
            said = with_reasoning(said, self.rules.writes, REASONING)
        generated = [*(("<think>", *thought, "</think>") if self.rules.writes else ()), *call]
        generated.append("<end>")
        if len(generated) <= limit:
            return said, generated, "tool_calls" if self.rules.calls else "stop"
        cut = {"role": "assistant", "content": ""}
        if limit > 1 and self.rules.writes:
            cut = with_reasoning(cut, self.rules.writes, " ".join(thought[: limit - 1]))
        return cut, generated[:limit], "length"

    def _usage(self, prompt: Tokens, generated: Tokens) -> dict[str, Any]:
        self.spent.append((len(prompt), len(generated)))
        usage: dict[str, Any] = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(generated),
            "total_tokens": len(prompt) + len(generated),
        }
        if self.rules.tells_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": self._read(prompt)}
        return usage

    def _read(self, prompt: Tokens) -> int:
        rule = self.rules.cache
        common = max((_common(row, prompt) for row in self.held), default=0)
        read = min(common, len(prompt) - 1) // rule.block * rule.block
        return read if read >= rule.minimum else 0

    def _hold(self, prompt: Tokens, generated: Tokens) -> None:
        match self.rules.cache.reuse:
            case Reuse.GENERATED:
                self.held.append([*prompt, *generated[:-1]])
            case Reuse.PROMPT:
                self.held.append(prompt)
            case Reuse.NONE:
                pass


def _arguments(words: str) -> str:
    return json.dumps({"text": words})


def _common(row: Tokens, prompt: Tokens) -> int:
    pairs = zip(row, prompt, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(row), len(prompt)))


# What the prompt is


def rendered(rules: Rules, body: Json) -> Tokens:
    """The prompt's tokens, the beginning of the answer at its end."""
    messages = body["messages"]
    last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
    tokens = ["<tools>", *json.dumps(body.get("tools", [])).split()]
    for at, message in enumerate(messages):
        tokens += _message(rules, message, at > last_user)
    return [*tokens, "<assistant>"]


def _message(rules: Rules, message: Json, in_loop: bool) -> Iterator[str]:
    yield f"<{message['role']}>"
    if message["role"] == "assistant":
        yield from _thought(rules, message, in_loop)
    yield from _text(message.get("content")).split()
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield from ("<call>", function["name"], *function["arguments"].split(), "</call>")
    yield "<end>"


def _thought(rules: Rules, message: Json, in_loop: bool) -> Iterator[str]:
    if rules.user_turn is UserTurn.STUB and not in_loop:
        yield "<nothought>"
        return
    if rules.user_turn is UserTurn.DROPS and not in_loop:
        return
    texts = (_carried(message, carrier) for carrier in rules.reads if carrier != "think")
    if text := next(filter(None, texts), ""):
        yield from ("<think>", *text.split(), "</think>")


def _carried(message: Json, carrier: str) -> str:
    match carrier:
        case "reasoning_details":
            return " ".join(item["text"] for item in message.get(carrier, ()))
        case "content_parts":
            content = message.get("content")
            parts = content if isinstance(content, list) else []
            inner = [part["thinking"] for part in parts if part["type"] == "thinking"]
            return " ".join(item["text"] for items in inner for item in items)
        case _:
            return message.get(carrier) or ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


# What is answered


def with_reasoning(message: dict[str, Any], carrier: str, text: str) -> dict[str, Any]:
    if carrier == "think":
        return {**message, "content": f"<think>{text}</think>{message['content']}"}
    if carrier == "reasoning_details":
        return {**message, carrier: [{"type": "reasoning.text", "text": text}]}
    return {**message, carrier: text}


def whole(message: Json, finish: str, usage: Json | None) -> Answer:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body: dict[str, Any] = {"id": "c", "object": "chat.completion", "choices": [choice]}
    if usage is not None:
        body["usage"] = usage
    return Answer(chunks=(json.dumps(body).encode(),))


def streamed(message: Json, finish: str, usage: Json | None) -> Answer:
    last = () if usage is None else (event({"id": "c", "choices": [], "usage": usage}),)
    rows = (chunk(message), chunk({}, finish), *last, DONE)
    return Answer(headers={"content-type": "text/event-stream"}, chunks=rows)


def refusal(status: int, words: str) -> Answer:
    error = {"message": words, "type": "invalid_request_error", "code": "invalid_request_error"}
    return Answer(status, chunks=(json.dumps({"error": error}).encode(),))


def lacks(field: str, words: str) -> Callable[[Json], str]:
    """Refuses an assistant message with tool calls that has no such field."""

    def refuses(body: Json) -> str:
        for index, message in enumerate(body["messages"]):
            if message.get("tool_calls") and not isinstance(message.get(field), str):
                return words.format(index=index)
        return ""

    return refuses


def bears(field: str, words: str) -> Callable[[Json], str]:
    """Refuses a message that has such a field."""
    return lambda body: words if any(field in message for message in body["messages"]) else ""
