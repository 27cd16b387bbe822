"""The scripted provider over real sockets: what it says, counts and holds."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.cachemodel import size, split
from proxy.core.contract import CacheRule, Reuse
from proxy.core.headers import Headers
from proxy.core.reply import StreamReader, read_body
from proxy.errors import UpstreamUnreachable
from proxy.replay.scripted_agent import run
from proxy.replay.scripted_provider import ScriptedProvider
from proxy.replay.scripted_task import coding_task
from proxy.replay.scripted_wire import (
    Answer,
    Call,
    body_of,
    echoed,
    events_of,
    rendered,
    spoken,
    usage_of,
)
from proxy.upstream import Upstream
from proxy.ways import Target

ENGINE = CacheRule(Reuse.GENERATED)
SCRIPT = (Answer("Hm …", "I look.", (Call("c1", "bash", '{"command":"ls"}'),)), Answer("", "Done."))

texts = st.text(max_size=40)
calls = st.builds(Call, st.from_regex(r"\Acall_\w{1,8}\Z"), st.just("bash"), st.just('{"a": 1}'))
answers = st.builds(
    Answer, texts, texts, st.lists(calls, max_size=3, unique_by=lambda c: c.id).map(tuple)
)


def asked(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "go"}, *messages], **more}


async def post(
    url: str, body: Any, path: str = "/chat/completions", key: str = "k"
) -> tuple[int, bytes]:
    client = Upstream([target := Target("it", url, 10.0, 10.0)], clock=time.monotonic)
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    headers: Headers = [(b"authorization", f"Bearer {key}".encode())]
    await client.open()
    try:
        reply = await client.send(target, "POST", url + path, headers, raw)
        return reply.status, b"".join([chunk async for chunk in reply.chunks])
    finally:
        await client.close()


def streamed(answer: Answer, piece: int) -> StreamReader:
    reader = StreamReader()
    usage = usage_of(UNCACHED, answer)
    for event in events_of("m", answer, usage, piece):
        reader.feed(event)
    return reader


UNCACHED = split(ENGINE, [], rendered(asked()))


@given(answers, st.integers(1, 50))
def test_a_stream_and_a_body_say_the_same(answer: Answer, piece: int) -> None:
    usage = usage_of(UNCACHED, answer)

    seen = read_body(body_of("m", answer, usage))
    again = streamed(answer, piece).finish()

    assert (seen.text, seen.reasoning) == (again.text, again.reasoning)
    assert (seen.tool_calls, seen.usage) == (again.tool_calls, again.usage)
    assert seen.finish_reason == again.finish_reason


@given(answers)
def test_an_answer_that_comes_back_is_the_prompt_that_was_generated(answer: Answer) -> None:
    before, after = rendered(asked()), rendered(asked(echoed(answer)))

    assert (*before, *spoken(answer)) == after[: len(before) + len(spoken(answer))]


@given(answers)
def test_reasoning_that_was_emptied_is_no_part_of_the_prompt(answer: Answer) -> None:
    emptied = {**echoed(answer), "reasoning_content": ""}
    without = {k: v for k, v in echoed(answer).items() if k != "reasoning_content"}

    assert rendered(asked(without)) == rendered(asked(emptied))


async def test_usage_is_counted_from_what_came() -> None:
    provider = ScriptedProvider(SCRIPT, ENGINE)
    result = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    async with provider as url:
        _, first = await post(url, asked())
        _, second = await post(url, asked(echoed(SCRIPT[0]), result))

    before, after = read_body(first).usage, read_body(second).usage
    one, two = provider.served["k"]
    assert (size(one.prompt), 0, size(one.generated)) == (
        before.input,
        before.cache_read,
        before.output,
    )
    assert (before.input or 0) + (before.output or 0) - 1 == after.cache_read
    assert two.split.read == after.cache_read


async def test_usage_is_streamed_only_to_those_who_ask() -> None:
    async with ScriptedProvider(SCRIPT, ENGINE) as url:
        _, plain = await post(url, asked(stream=True))
        _, told = await post(url, asked(stream=True, stream_options={"include_usage": True}))

    assert b'"usage"' not in plain
    assert b'"usage"' in told
    assert plain.endswith(b"data: [DONE]\n\n")


async def test_each_credential_has_a_cache_of_its_own() -> None:
    provider = ScriptedProvider(SCRIPT, ENGINE)
    async with provider as url:
        for key in ("a", "b", "a"):
            await post(url, asked(), key=key)

    assert [0, size(rendered(asked())) - 1] == [it.split.read for it in provider.served["a"]]
    assert [0] == [it.split.read for it in provider.served["b"]]


async def test_a_retry_gets_the_same_answer_and_the_end_stays_the_end() -> None:
    async with ScriptedProvider(SCRIPT, ENGINE) as url:
        replies = [await post(url, asked(*[echoed(SCRIPT[0])] * n)) for n in (0, 0, 1, 2, 9)]

    assert ["I look."] * 2 + ["Done."] * 3 == [read_body(body).text for _, body in replies]


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"model":"m","messages":[1]}', b""])
async def test_what_is_no_request_is_refused(body: bytes) -> None:
    async with ScriptedProvider(SCRIPT, ENGINE) as url:
        assert 400 == (await post(url, body))[0]


async def test_other_paths_are_unknown() -> None:
    async with ScriptedProvider(SCRIPT, ENGINE) as url:
        assert 404 == (await post(url, asked(), "/embeddings"))[0]


async def test_an_agent_without_a_proxy_gets_through_its_task() -> None:
    task = coding_task(4, 1)
    provider = ScriptedProvider(task.script, ENGINE, record=True)
    async with provider as url:
        heard = [it async for it in run(task, url, "k", "keep", time.monotonic)]

    assert [answer.reasoning for answer in task.script] == [it.seen.reasoning for it in heard]
    assert [it.split.read for it in provider.served["k"]] == [
        it.seen.usage.cache_read for it in heard
    ]
    assert 5 == len(provider.bodies["k"])


async def test_an_agent_without_an_answer_says_so() -> None:
    async with ScriptedProvider(SCRIPT, ENGINE) as url:
        elsewhere = url.removesuffix("/v1") + "/v2"
        with pytest.raises(UpstreamUnreachable, match="status 404"):
            async for _ in run(coding_task(2, 1), elsewhere, "k", "keep", time.monotonic):
                pass


def test_text_in_parts_is_the_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    assert rendered(asked({"role": "user", "content": "ab"})) == rendered(
        asked({"role": "user", "content": parts})
    )
