"""A coding agent that plays its part of a script: asks, does as it is told, sends all of it back.

It speaks to whatever address it is given, streams, and echoes reasoning as it came, like most real
clients. It knows its workspace (what each tool call brings) and nothing but the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.core.reply import StreamReader
from proxy.core.seen import Seen
from proxy.errors import UpstreamUnreachable
from proxy.replay.scripted_task import Task
from proxy.replay.scripted_wire import Answer, Call, echoed
from proxy.upstream import Reply, Upstream
from proxy.ways import Target

MODEL = "scripted-coder"
_PATIENCE = 60.0
_PREFIX = b"x-lethe-"


@dataclass(frozen=True, slots=True)
class Heard:
    """What one request brought: the proxy's own headers, without `x-lethe-`, and the answer."""

    told: Mapping[str, str]
    seen: Seen


async def run(
    task: Task, url: str, key: str, policy: str, clock: Callable[[], float]
) -> AsyncIterator[Heard]:
    """Work through the task, one request after the other. `url` ends in `/v1`.

    Raises UpstreamUnreachable where there is no answer, or none that a client can use.
    """
    target = Target("proxy", url, _PATIENCE, _PATIENCE, trust_env=False)
    client = Upstream([target], clock=clock)
    headers = [
        (b"authorization", f"Bearer {key}".encode()),
        (b"content-type", b"application/json"),
        (b"x-lethe-policy", policy.encode()),
    ]
    await client.open()
    try:
        async for heard in _conversation(task, client, target, headers):
            yield heard
    finally:
        await client.close()


async def _conversation(
    task: Task, client: Upstream, target: Target, headers: list[tuple[bytes, bytes]]
) -> AsyncIterator[Heard]:
    brings = {call.id: s.observation for s in task.steps for call in s.answer.calls}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": task.system},
        {"role": "user", "content": task.goal},
    ]
    url = f"{target.base}/chat/completions"
    while True:
        reply = await client.send(target, "POST", url, headers, _body(task, messages))
        heard = await _heard(reply)
        yield heard
        if not heard.seen.tool_calls:
            return
        messages.append(echoed(_answer(heard.seen)))
        messages += [_result(call.id, brings[call.id]) for call in heard.seen.tool_calls]


def _body(task: Task, messages: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(
        {
            "model": MODEL,
            "messages": messages,
            "tools": task.tools,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


async def _heard(reply: Reply) -> Heard:
    reader = StreamReader()
    try:
        async for chunk in reply.chunks:
            reader.feed(chunk)
    finally:
        await reply.aclose()
    seen = reader.finish()
    if reply.status != 200 or not seen.done:
        raise UpstreamUnreachable(
            f"no whole answer: status {reply.status}, {seen.error or 'cut off'}"
        )
    return Heard(_told(reply.headers), seen)


def _told(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    named = [(name.lower(), value.decode("latin-1")) for name, value in headers]
    return {n[len(_PREFIX) :].decode(): value for n, value in named if n.startswith(_PREFIX)}


def _answer(seen: Seen) -> Answer:
    calls = tuple(Call(call.id, call.name, call.arguments) for call in seen.tool_calls)
    return Answer(seen.reasoning, seen.text, calls)


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}
