"""What is asked: bodies and histories, made of nothing but a salt and numbers.

Every conversation begins with the salt, in its system message and in its tool's description (some
templates render tools first), so that none finds what another left in the cache. Texts are common
words, so that a word is about a token for nearly every tokeniser. The history is an agent's: a
tool is called, its result comes back, again and again, because that is what templates and caches
are made for; where a model takes no tools, plain messages stand in their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.core.reasoning import is_reasoning_part, without_think

Json = Mapping[str, Any]
Messages = tuple[Json, ...]

CARRIERS = ("reasoning_content", "reasoning", "reasoning_details", "content_parts", "think")
"""Where reasoning is looked for in a history; the strings first."""
STRINGS = ("reasoning_content", "reasoning")
THOUGHT_WORDS = 60
"""Words of the unique text that is put into each carrier: far more than markup takes."""
REPLY_TOKENS = 512
"""The most that is generated where a real reply is wanted; else `BRIEF`, else one."""
BRIEF_TOKENS = 64
LEAST_TOKENS = 16
"""Where one is refused as too few."""

_WORDS = (
    "time year people way day man thing life child world school state family student group "
    "country problem hand part place case week company system program question work night point "
    "home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member "
    "law car city"
).split()
_THOUGHTS_AT = 10_000


@dataclass(frozen=True, slots=True)
class Dialect:
    """How this upstream wants to be asked. `limit` is the member that bounds a reply, `least` what
    it has to be. `empty` is the string carrier that an assistant message without reasoning bears as
    `""`; none where that is not needed or not taken.
    """

    model: str
    limit: str = "max_tokens"
    least: int = 1
    temperature: bool = True
    tools: bool = True
    empty: str = ""


def adapted(dialect: Dialect, said: str) -> Dialect | None:
    """The dialect that a refusal asks for; None where it asks for none that is known."""
    if dialect.limit == "max_tokens" and "max_completion_tokens" in said:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.temperature and "temperature" in said.lower():
        return replace(dialect, temperature=False)
    if dialect.tools and "tool" in said.lower():
        return replace(dialect, tools=False)
    return None


def wants_longer(dialect: Dialect, said: str) -> bool:
    """Whether a refusal is about a reply of one token."""
    return dialect.least < LEAST_TOKENS and re.search(r"max_\w*tokens", said) is not None


def body(
    dialect: Dialect, salt: str, messages: Messages, most: int, stream: bool = False
) -> dict[str, Any]:
    """One request; at most `most` tokens are generated."""
    made: dict[str, Any] = {"model": dialect.model, "messages": messages}
    made[dialect.limit] = max(most, dialect.least)
    if dialect.temperature:
        made["temperature"] = 0
    if dialect.tools:
        made["tools"] = [_tool(salt)]
    if stream:
        made["stream"] = True
    return made


def asking_for_usage(made: Mapping[str, Any]) -> dict[str, Any]:
    return {**made, "stream_options": {"include_usage": True}}


def forced(made: Mapping[str, Any]) -> dict[str, Any]:
    """The same, to be answered with a tool call."""
    return {**made, "tool_choice": "required"}


def _tool(salt: str) -> Json:
    text = {"type": "string", "description": "the text of the note"}
    parameters = {"type": "object", "properties": {"text": text}, "required": ["text"]}
    about = f"{salt} Writes a note."
    return {
        "type": "function",
        "function": {"name": "note", "description": about, "parameters": parameters},
    }


def opening(dialect: Dialect, salt: str) -> Messages:
    """The first messages of a conversation: what real models answer with a tool call."""
    if dialect.tools:
        task = (
            "Call the tool note with a text of thirty words of your own. After each result call "
            "it again, with another text. Never answer in words."
        )
    else:
        task = "Write thirty words of your own. After each answer of mine write thirty others."
    system = f"{salt} You are a careful assistant. Think before each step."
    return ({"role": "system", "content": system}, {"role": "user", "content": task})


def filler(start: int, count: int) -> str:
    """Words by their number, so that a longer text begins with a shorter one."""
    numbers = range(start, start + count)
    return " ".join(_WORDS[(n * n * 7 + n * 13 + n // 50) % len(_WORDS)] for n in numbers)


def thought() -> str:
    """The unique text that stands for reasoning."""
    return filler(_THOUGHTS_AT, THOUGHT_WORDS)


def step(dialect: Dialect, number: int, words: int, carrier: str = "") -> Messages:
    """An assistant message that acts, with the unique text in `carrier`, and what answered it."""
    said = assistant(dialect, "" if dialect.tools else "Noted.")
    if carrier:
        said = carried(said, carrier, thought())
    text = filler(100 * number, words)
    if not dialect.tools:
        return (said, {"role": "user", "content": text})
    id = f"lethe{number:04d}"  # nine characters of these: Mistral takes no other ids
    call = {"name": "note", "arguments": '{"text": "ok"}'}
    said = {**said, "tool_calls": [{"id": id, "type": "function", "function": call}]}
    return (said, {"role": "tool", "tool_call_id": id, "content": text})


def assistant(dialect: Dialect, text: str) -> dict[str, Any]:
    """An assistant message without reasoning."""
    said: dict[str, Any] = {"role": "assistant", "content": text}
    return {**said, dialect.empty: ""} if dialect.empty else said


def carried(message: Mapping[str, Any], carrier: str, text: str) -> dict[str, Any]:
    """The message with reasoning in one carrier."""
    content = message.get("content") or "Noted."
    match carrier:
        case "reasoning_details":
            items = [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]
            return {**message, carrier: items}
        case "content_parts":
            thinking = [{"type": "text", "text": text}]  # Mistral's form
            parts = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": content}]
            return {**message, "content": parts}
        case "think":
            return {**message, "content": f"<think>\n{text}\n</think>\n\n{content}"}
        case _:
            return {**message, carrier: text}


def nulled(message: Mapping[str, Any], carrier: str) -> dict[str, Any]:
    return {**message, carrier: None}


def new_turn(dialect: Dialect) -> Messages:
    """A final answer and a new user message."""
    return (assistant(dialect, "Done."), {"role": "user", "content": "Thanks. One more, please."})


def plain_turn() -> Messages:
    """The same, the answer without any carrier."""
    return new_turn(Dialect(""))


_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details")
_SAID = ("role", "content", "tool_calls", "extra_content")
_ECHOED = (*_SAID, *_REASONING)


def echo(reply: Json, carrier: str) -> Messages:
    """A reply as an agent sends it back, with what answers it.

    A string of reasoning goes into `carrier`, which is read, where its own is another; where none
    is read it stays away, because some refuse what they do not read.
    """
    keys = _ECHOED if carrier else _SAID
    said = {key: reply[key] for key in keys if key in reply and reply[key] is not None}
    said = {"role": "assistant", "content": reply.get("content"), **said}
    if calls := [_whole_call(call) for call in _calls(said)]:
        said["tool_calls"] = calls
    elif not said["content"]:
        said["content"] = "Noted."  # a reply that was cut inside its reasoning; some take no empty
    texts = [said[key] for key in STRINGS if isinstance(said.get(key), str)]
    if carrier in STRINGS and carrier not in said and texts:
        said = {key: value for key, value in said.items() if key not in STRINGS}
        said[carrier] = texts[0]
    return (said, *_answers(said))


def _answers(said: Json) -> Messages:
    calls = called(said)
    results = [{"role": "tool", "tool_call_id": id, "content": "Noted."} for id in calls]
    return tuple(results) or ({"role": "user", "content": "Go on."},)


def called(message: Json) -> Sequence[str]:
    """The ids of a message's tool calls."""
    return [str(call.get("id")) for call in _calls(message)]


def _calls(message: Json) -> list[Json]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _whole_call(call: Json) -> Json:
    """The call; where its arguments were cut, which templates cannot read, with none."""
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    try:
        json.loads(function.get("arguments", ""))
    except (ValueError, TypeError):
        return {**call, "function": {**function, "arguments": "{}"}}
    return call


def forgotten(messages: Messages, dialect: Dialect) -> Messages:
    """An echo with its reasoning dropped."""
    said, *rest = messages
    bare = {key: value for key, value in said.items() if key not in _REASONING}
    bare["content"] = _without_reasoning(said["content"])
    return ({**bare, dialect.empty: ""} if dialect.empty else bare, *rest)


def _without_reasoning(content: Any) -> Any:
    if isinstance(content, str):
        return without_think(content)
    if isinstance(content, list):
        return [part for part in content if not is_reasoning_part(part)] or ""
    return content
