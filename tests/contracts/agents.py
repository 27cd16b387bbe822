"""Clients that work through the scripted task, each with the habits of some that are in the field.

A client is what it makes of a reply before it sends it back (`echo`), what it does to its history
at a new user turn (`turn`), how it hands over tool results, and whether it streams. It answers
every tool call at once. What each is modelled on stands with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.contracts.task import SYSTEM, TOOLS, TURNS, result_of
from tests.doors.scripted import Dialled, dialled

Message = dict[str, Any]
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")


# Asking


@dataclass(frozen=True, slots=True)
class Heard:
    """What a request brought: the status, the proxy's own headers, the reply's message and its
    usage (the last that came).
    """

    status: int
    told: Mapping[str, str]
    message: Message
    usage: Mapping[str, Any]


async def ask(line: Dialled, target: str, headers: Mapping[str, str], body: bytes) -> Heard:
    """One request on a connection that is kept."""
    given = (("content-type", "application/json"), *headers.items())
    await line.ask("POST", target, *given, body=body)
    status = await line.head()
    if b"content-length" in line.headers:
        raw = await line.reader.readexactly(int(line.headers[b"content-length"]))
    else:
        raw = await line.rest()
    told = {k.decode(): v.decode() for k, v in line.headers.items() if k.startswith(b"x-lethe-")}
    return Heard(status, told, *(_read(raw) if status == 200 else ({}, {})))


def _read(raw: bytes) -> tuple[Message, Mapping[str, Any]]:
    """The message and the usage of a reply."""
    if not raw.startswith(b"data:"):
        body = json.loads(raw)
        return body["choices"][0]["message"], body["usage"]
    chunks = [json.loads(row[6:]) for row in raw.split(b"\n\n") if row[6:7] == b"{"]
    told = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return assembled(chunks), told[-1] if told else {}


def assembled(chunks: Sequence[Mapping[str, Any]]) -> Message:
    """The message that a stream amounts to; fields that never came are absent."""
    message: Message = {"role": "assistant", "content": None}
    for chunk in chunks:
        for choice in chunk["choices"]:
            _merge(message, choice["delta"])
    return message


def _merge(message: Message, delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            _merge_calls(message.setdefault(key, []), value)
        elif key == "reasoning_details":
            _merge_details(message.setdefault(key, []), value)
        elif key != "role" and value is not None:
            message[key] = _joined(message.get(key), value)


def _joined(before: Any, value: Any) -> Any:
    """Texts are joined; once there are parts, a text is one more."""
    if isinstance(before, list) or isinstance(value, list):
        parts = value if isinstance(value, list) else [{"type": "text", "text": value}]
        rows = before if isinstance(before, list) else []
        if rows and parts and rows[-1]["type"] == parts[0]["type"] == "text":
            last = {**rows[-1], "text": rows[-1]["text"] + parts[0]["text"]}
            return [*rows[:-1], last, *parts[1:]]
        return [*rows, *parts]
    return (before or "") + value


def _merge_calls(calls: list[Message], rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        if row["index"] == len(calls):
            calls.append({k: v for k, v in row.items() if k != "index"})
            calls[-1]["function"] = dict(row["function"])
        else:
            calls[row["index"]]["function"]["arguments"] += row["function"]["arguments"]


def _merge_details(items: list[Message], rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        if row["index"] == len(items):
            items.append(dict(row))
            continue
        item = items[row["index"]]
        for key in ("text", "summary"):
            if key in row:
                item[key] = item.get(key, "") + row[key]
        if "signature" in row:
            item["signature"] = row["signature"]


# Clients


def same(history: list[Message]) -> list[Message]:
    return history


def tool_results(message: Message) -> list[Message]:
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": result_of(call["function"]["name"], call["function"]["arguments"]),
        }
        for call in message.get("tool_calls") or ()
    ]


@dataclass(frozen=True, slots=True)
class Client:
    """`echo` gives the messages that a reply becomes in the history, `results` what answers its
    calls, `turn` the history before a new user message. `keeps` says that reasoning comes back as
    it was generated, `finds` that ids or text do, one message a reply, so that what was lost can be
    put back. `spells` is set where argument texts come back as they were.
    """

    name: str
    echo: Callable[[Message], list[Message]]
    stream: bool = False
    turn: Callable[[list[Message]], list[Message]] = same
    results: Callable[[Message], list[Message]] = tool_results
    keeps: bool = False
    finds: bool = True
    spells: bool = True
    answers_as_user: bool = False
    strips_at_turns: bool = False


async def work(client: Client, base: str, model: str, headers: Mapping[str, str]) -> list[Heard]:
    """The whole task; ends early where an answer is no reply."""
    history: list[Message] = [{"role": "system", "content": SYSTEM}]
    heard: list[Heard] = []
    url = urlsplit(base)
    async with dialled(int(url.port or 80)) as line:
        for turn in TURNS:
            history = [*client.turn(history), {"role": "user", "content": turn}]
            while True:
                body = _body(client, model, history)
                heard.append(await ask(line, f"{url.path}/v1/chat/completions", headers, body))
                if heard[-1].status != 200:
                    return heard
                message = heard[-1].message
                history += client.echo(message)
                if not message.get("tool_calls"):
                    break
                history += client.results(message)
    return heard


def _body(client: Client, model: str, history: Sequence[Message]) -> bytes:
    body: Message = {"model": model, "messages": history, "tools": TOOLS}
    if client.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


# What they do to a reply


def _spelled(message: Message, spell: Callable[[str], str]) -> Message:
    """With its argument texts spelled anew."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {
            **call,
            "function": {**call["function"], "arguments": spell(call["function"]["arguments"])},
        }
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def compact(arguments: str) -> str:
    """As JavaScript prints them: no blanks, escapes decoded. Numbers keep their literals here, as
    they do not in JavaScript: another number would be another call.
    """
    return _printed(arguments, (",", ":"))


def pythonic(arguments: str) -> str:
    """As Python's `json.dumps` does: a blank behind each comma and colon."""
    return _printed(arguments, (", ", ": "))


def _printed(arguments: str, separators: tuple[str, str]) -> str:
    value = json.loads(arguments, parse_float=_Literal, parse_int=_Literal)
    return _text(value, separators)


class _Literal(str):
    """A number as it was written."""


def _text(value: Any, separators: tuple[str, str]) -> str:
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        rows = (f"{json.dumps(k)}{separators[1]}{_text(v, separators)}" for k, v in value.items())
        return "{" + separators[0].join(rows) + "}"
    if isinstance(value, list):
        return "[" + separators[0].join(_text(item, separators) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_reasoning(message: Message) -> Message:
    bare = {k: v for k, v in message.items() if k not in _REASONING}
    content = bare["content"]
    if isinstance(content, list):
        bare["content"] = "".join(part.get("text", "") for part in content) or None
    return bare


def _renamed(message: Message) -> Message:
    """`reasoning` is read and `reasoning_content` sent; `reasoning_details` are lost."""
    text = message.get("reasoning_content", message.get("reasoning"))
    bare = {k: v for k, v in message.items() if k not in _REASONING}
    return {**bare, "reasoning_content": text} if text else bare


def _changed(message: Message, change: Callable[[str], str]) -> Message:
    texts = {k: change(v) for k, v in message.items() if k in _REASONING[:2]}
    return {**{k: v for k, v in message.items() if k != "reasoning_details"}, **texts}


def _exact(message: Message) -> list[Message]:
    return [message]


def _langgraph(message: Message) -> list[Message]:
    """LangGraph with ChatDeepSeek: no reasoning, Python's spelling, `null` for an empty text."""
    bare = _spelled(_without_reasoning(message), pythonic)
    rest = {"tool_calls": bare["tool_calls"]} if bare.get("tool_calls") else {}
    return [{"content": bare["content"] or None, "role": "assistant", **rest}]


def _openai_agents(message: Message) -> list[Message]:
    """openai-agents, where the model's name does not say that it is DeepSeek's."""
    return [_without_reasoning(message)]


def _smolagents(message: Message) -> list[Message]:
    """Calls become text, in Python's own notation."""
    text, calls = _without_reasoning(message)["content"] or "", message.get("tool_calls")
    told = f"Calling tools:\n{calls!r}" if calls else ""
    content = "\n".join(filter(None, (text, told)))
    return [{"role": "assistant", "content": [{"type": "text", "text": content}]}]


def _observations(message: Message) -> list[Message]:
    """Results become a user's text."""
    rows = [row["content"] for row in tool_results(message)]
    text = "Observation:\n" + "\n".join(rows)
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def _ai_sdk(message: Message) -> list[Message]:
    """AI SDK, OpenAI-compatible: the field is renamed, arguments are compact, no empty text."""
    renamed = _spelled(_renamed(message), compact)
    return [{**renamed, "content": renamed["content"] or None}]


def _qwen_code(message: Message) -> list[Message]:
    """qwen-code 0.24: two fields with one text, trimmed; `null` becomes an empty text."""
    text = (message.get("reasoning_content", message.get("reasoning")) or "").rstrip()
    bare = _spelled({k: v for k, v in message.items() if k not in _REASONING}, compact)
    both = {"reasoning_content": text, "reasoning": text} if text else {}
    return [{**bare, "content": bare["content"] or "", **both}]


def _trims(message: Message) -> list[Message]:
    return [_changed(message, str.rstrip)]


def _compacts(message: Message) -> list[Message]:
    """pi and Pydantic-AI: the field that came, arguments compact."""
    return [_spelled(message, compact)]


def _openhands(message: Message) -> list[Message]:
    """OpenHands with a DeepSeek model: Python's spelling, no `content` where it is empty."""
    spelled = _spelled(message, pythonic)
    return [{k: v for k, v in spelled.items() if k != "content" or v}]


def _flips(message: Message) -> list[Message]:
    """`null` and `""` change places."""
    content = message["content"]
    return [{**message, "content": "" if content is None else content or None}]


def _omits(message: Message) -> list[Message]:
    """A field that is empty is left out: the bug that DeepSeek's own harness had."""
    return [{k: v for k, v in message.items() if v or k not in _REASONING}]


def _interpreter(message: Message) -> list[Message]:
    """open-interpreter: a message for the text and one for the first call, under an id of its own;
    any second call is lost, the text is trimmed.
    """
    bare = _spelled(_without_reasoning(message), pythonic)
    text = (bare["content"] or "").strip()
    rows: list[Message] = [{"role": "assistant", "content": text}] if text else []
    for call in (bare.get("tool_calls") or ())[:1]:
        own = {**call, "id": f"toolu_{call['id'][-4:]}"}
        rows.append({"role": "assistant", "content": "", "tool_calls": [own]})
    return rows


def _first_result(message: Message) -> list[Message]:
    return [
        {**row, "tool_call_id": f"toolu_{row['tool_call_id'][-4:]}"}
        for row in tool_results(message)[:1]
    ]


def _ai_sdk_deepseek(message: Message) -> list[Message]:
    renamed = _spelled(_renamed(message), compact)
    return [{**renamed, "content": renamed["content"] or ""}]


def _stripped(history: list[Message]) -> list[Message]:
    """AI SDK's DeepSeek provider: at a new user turn reasoning leaves all earlier messages."""
    return [{k: v for k, v in row.items() if k not in _REASONING} for row in history]


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("exact", _exact, keeps=True),
        Client("exact-stream", _exact, stream=True, keeps=True),
        Client("langgraph", _langgraph, spells=False),
        Client("openai-agents", _openai_agents, stream=True),
        Client(
            "smolagents", _smolagents, results=_observations, finds=False, spells=False,
            answers_as_user=True,
        ),
        Client("ai-sdk", _ai_sdk, stream=True, keeps=True, spells=False),
        Client("qwen-code", _qwen_code, stream=True, spells=False),
        Client("trims", _trims),
        Client("compacts", _compacts, stream=True, keeps=True, spells=False),
        Client("openhands", _openhands, keeps=True, spells=False),
        Client("flips", _flips, stream=True, keeps=True),
        Client("omits", _omits, keeps=True),
        Client("interpreter", _interpreter, results=_first_result, finds=False, spells=False),
        Client(
            "ai-sdk-deepseek", _ai_sdk_deepseek, stream=True, turn=_stripped, spells=False,
            strips_at_turns=True,
        ),
    )
}  # fmt: skip
