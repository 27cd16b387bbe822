"""A reply in the carriers of the provider that gives it, in one piece or as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.contracts import seals
from tests.contracts.families import Family, Usage
from tests.contracts.rendering import CLOSE, OPEN, Call, Prompt, answered
from tests.journey.provider import DONE, Answer, event


@dataclass(frozen=True, slots=True)
class Step:
    """What is generated. `text` None is `null` on the wire where there are calls. A call that has
    no id gets one.
    """

    reasoning: str
    text: str | None = None
    calls: tuple[Call, ...] = ()
    status: int = 200
    """Another than 200: the provider fails with it instead."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A step as a family gives it: `items` are the sealed ones, `number` is the step's."""

    step: Step
    number: int
    items: tuple[Mapping[str, Any], ...] = ()


def continued(family: Family, reply: Reply, prompt: Prompt) -> str:
    """The text that is generated behind the prompt. An answer begins in the thought that the
    template opened; it is closed even where nothing was thought.
    """
    template, step = family.template, reply.step
    thought = step.reasoning if family.reads else ""
    head = f"{template.before}{thought}{template.behind}"
    if not template.opening and not thought:
        head = template.empty
    return answered(template, head, step.text or "", step.calls)[len(prompt.opening) :]


# In one piece


def message_of(family: Family, reply: Reply) -> dict[str, Any]:
    step, content = reply.step, reply.step.text
    message: dict[str, Any] = {"role": "assistant"}
    match family.writes:
        case "think":
            content = f"{OPEN}\n{step.reasoning}\n{CLOSE}\n\n{content or ''}"
        case "content_parts":
            message["content"] = _parts(reply)
        case "reasoning_details":
            message |= {"reasoning": step.reasoning, "reasoning_details": _details(reply)}
        case "reasoning_content" | "reasoning":
            message[family.writes] = step.reasoning
    message.setdefault("content", content)
    if step.calls:
        message["tool_calls"] = [_call(family, reply, at) for at in range(len(step.calls))]
    return message


def _details(reply: Reply) -> list[Mapping[str, Any]]:
    plain = {
        "type": "reasoning.text",
        "text": reply.step.reasoning,
        "format": "unknown",
        "index": 0,
    }
    return list(reply.items) or [plain]


def _parts(reply: Reply) -> list[Mapping[str, Any]]:
    inner = [{"type": "text", "text": reply.step.reasoning}]
    text = [{"type": "text", "text": reply.step.text}] if reply.step.text else []
    return [*(reply.items or [{"type": "thinking", "thinking": inner}]), *text]


def _call(family: Family, reply: Reply, at: int) -> dict[str, Any]:
    call_id, name, arguments = reply.step.calls[at]
    call: dict[str, Any] = {
        "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}
    }  # fmt: skip
    if family.signs_calls and at == 0:
        signature = seals.call_signature(reply.number)
        call["extra_content"] = {"google": {"thought_signature": signature}}
    return call


# As a stream


def _deltas(family: Family, reply: Reply) -> Iterator[dict[str, Any]]:
    step = reply.step
    match family.writes:
        case "reasoning_content":
            # DeepSeek begins with an empty thought.
            yield {"role": "assistant", "content": None, "reasoning_content": ""}
            yield from ({"reasoning_content": half} for half in _halves(step.reasoning))
        case "reasoning":
            yield {"role": "assistant", "content": ""}
            yield from ({"reasoning": half} for half in _halves(step.reasoning))
        case "reasoning_details":
            yield {"role": "assistant", "content": ""}
            yield from _detail_deltas(reply)
        case "think":
            yield {"role": "assistant", "content": f"{OPEN}\n"}
            yield from ({"content": half} for half in _halves(f"{step.reasoning}\n{CLOSE}\n\n"))
        case "content_parts":
            yield {"role": "assistant", "content": ""}
            yield {"content": _parts(Reply(Step(step.reasoning), reply.number, reply.items))}
        case _:
            yield {"role": "assistant", "content": ""}
    yield from ({"content": half} for half in _halves(step.text or ""))
    for at in range(len(step.calls)):
        yield from _call_deltas(at, _call(family, reply, at))


def _detail_deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    for item in _details(reply):
        key = next((key for key in ("text", "summary") if key in item), "")
        if not key:
            yield {"reasoning_details": [item]}
            continue
        for half in _halves(item[key]) or [""]:
            bare = {k: v for k, v in item.items() if k != "signature"}
            yield {"reasoning": half, "reasoning_details": [{**bare, key: half}]}
        if "signature" in item:
            signed = {k: item[k] for k in ("type", "signature", "format", "index")}
            yield {"reasoning_details": [signed]}


def _call_deltas(at: int, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    begun = {**call, "index": at, "function": {"name": name, "arguments": ""}}
    yield {"tool_calls": [begun]}
    for half in _halves(arguments):
        yield {"tool_calls": [{"index": at, "function": {"arguments": half}}]}


def _halves(text: str) -> Sequence[str]:
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]


# Both, with usage


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens of one request and its reply."""

    prompt: int
    cached: int
    generated: int
    reasoning: int


def usage_of(family: Family, count: Count) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": count.prompt,
        "completion_tokens": count.generated,
        "total_tokens": count.prompt + count.generated,
    }
    details: dict[str, Any] = {"cached_tokens": count.cached}
    thought = {"completion_tokens_details": {"reasoning_tokens": count.reasoning}}
    missed = count.prompt - count.cached
    match family.usage:
        case Usage.NONE:
            return usage
        case Usage.MOONSHOT:
            return {**usage, "cached_tokens": count.cached}
        case Usage.DEEPSEEK:
            hits = {"prompt_cache_hit_tokens": count.cached, "prompt_cache_miss_tokens": missed}
            return {**usage, "prompt_tokens_details": details, **thought, **hits}
        case Usage.VLLM:
            details["created_cache_tokens"] = missed
        case Usage.SGLANG:
            usage["reasoning_tokens"] = count.reasoning
        case Usage.DASHSCOPE:
            details["cache_creation_input_tokens"] = 0
        case Usage.OPENROUTER:
            details["cache_write_tokens"] = 0
            usage["cost"] = 0.0001
    return {**usage, "prompt_tokens_details": details, **thought}


def answer_of(family: Family, reply: Reply, count: Count, request: Mapping[str, Any]) -> Answer:
    """The HTTP answer; in a stream usage comes where it is asked for, or always is."""
    head = {"id": f"r{reply.number}", "created": 1, "model": request.get("model")}
    usage, finish = usage_of(family, count), "tool_calls" if reply.step.calls else "stop"
    if not request.get("stream"):
        choice = {"index": 0, "message": message_of(family, reply), "finish_reason": finish}
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return Answer(chunks=(json.dumps({**body, **_timings(family, count)}).encode(),))
    head["object"] = "chat.completion.chunk"
    rows = [_chunk(head, delta) for delta in _deltas(family, reply)]
    rows.append(_chunk(head, {}, finish))
    asked = (request.get("stream_options") or {}).get("include_usage")
    if asked or family.usage is Usage.OPENROUTER:
        rows.append(event({**head, "choices": [], "usage": usage, **_timings(family, count)}))
    return Answer(headers={"content-type": "text/event-stream"}, chunks=(*rows, DONE))


def _timings(family: Family, count: Count) -> dict[str, Any]:
    if family.usage is not Usage.LLAMA:
        return {}
    missed = count.prompt - count.cached
    return {
        "timings": {"cache_n": count.cached, "prompt_n": missed, "predicted_n": count.generated}
    }


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
