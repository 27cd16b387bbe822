"""Whole journeys over real sockets: client, proxy, provider."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.client import http_client
from tests.doors import redis_server as servers
from tests.journey.provider import (
    DONE,
    USAGE,
    Answer,
    Came,
    Provider,
    chunk,
    completion,
    providing,
    stream,
)  # fmt: skip
from tests.journey.proxy_server import Running, running, settings_for

KEY = {"authorization": "Bearer sk-test-one"}
TOOLS: Any = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]


def steps(count: int, thinking: str = "I think about step {}. ") -> list[Any]:
    """A history of finished steps, each with its reasoning."""
    rows: list[Any] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Do it."},
    ]
    for step in range(count):
        function = {"name": "bash", "arguments": json.dumps({"cmd": f"ls {step}"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        said = {"role": "assistant", "content": None, "reasoning_content": thinking.format(step)}
        rows += [
            {**said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{step}", "content": f"file_{step}"},
        ]
    return rows


def request(count: int = 2, **more: Any) -> bytes:
    body = {"model": "m", "messages": steps(count), "tools": TOOLS, **more}
    return json.dumps(body, separators=(",", ":")).encode()


def talks(came: Came) -> Answer:
    """Answers whatever is asked, streamed where a stream is wanted."""
    try:
        asked = json.loads(came.body)
    except (ValueError, RecursionError):
        return completion()
    if isinstance(asked, dict) and asked.get("stream"):
        wanted = (asked.get("stream_options") or {}).get("include_usage", False)
        return stream(
            chunk({"role": "assistant", "content": "do"}), chunk({"content": "ne"}), usage=wanted
        )
    return completion()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing(talks) as opened:
        yield opened


@pytest.fixture
async def proxy(provider: Provider) -> AsyncIterator[Running]:
    async with running(settings_for(provider.url)) as opened:
        yield opened


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with http_client() as opened:
        yield opened


async def post(
    client: httpx.AsyncClient, proxy: Running, body: bytes, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"content-type": "application/json", **KEY, **named}
    return await client.post(f"{proxy.url}/v1/chat/completions", content=body, headers=sent)


# What leaves


async def test_under_keep_the_very_bytes_that_came_leave(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    body = (
        b'{ "model":"m" , "messages":[ {"role":"user","content":"h\\u00e9"} ],\n'
        b' "x":1e5, "y":18446744073709551617}'
    )

    reply = await post(client, proxy, body, x_lethe_policy="keep")

    assert 200 == reply.status_code
    assert body == provider.last.body


async def test_a_conversation_only_grows_under_drop(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    for count in range(8):
        reply = await post(client, proxy, request(count), x_lethe_policy="drop")
        assert str(count) == reply.headers["x-lethe-steps-dropped"]

    sent = [came.json()["messages"] for came in provider.came]
    for before, after in zip(sent, sent[1:], strict=False):
        assert before == after[: len(before)]
    assert all(m["reasoning_content"] == "" for m in sent[-1] if m["role"] == "assistant")
    assert "extended" == reply.headers["x-lethe-prefix"]


async def test_a_new_policy_holds_for_new_steps_only(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    await post(client, proxy, request(2), x_lethe_policy="keep")
    await post(client, proxy, request(3), x_lethe_policy="drop")

    thoughts = [
        m["reasoning_content"] for m in provider.last.json()["messages"] if "tool_calls" in m
    ]
    assert ["I think about step 0. ", "I think about step 1. ", ""] == thoughts


async def test_one_odd_message_does_not_end_pruning(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    odd = b'{"role":"user","content":"cut \\ud83d","n":NaN}'
    rows = [json.dumps(m, separators=(",", ":")).encode() for m in steps(3)]
    body = b'{"model":"m","messages":[' + b",".join([*rows[:4], odd, *rows[4:]]) + b"]}"

    reply = await post(client, proxy, body, x_lethe_policy="drop")

    assert "3" == reply.headers["x-lethe-steps-dropped"]
    assert odd in provider.last.body
    assert b"I think" not in provider.last.body


BAD = {
    "not JSON": b'{"model": "m", "messages": [',
    "a list": b'[{"role":"user"}]',
    "a number": b"7",
    "nothing": b"",
    "NaN": b'{"model":"m","messages":[{"role":"user","content":NaN}]}',
    "2^64": b'{"model":"m","messages":[{"role":"user","content":18446744073709551616}],"n":1}',
    "bad UTF-8": b'{"model":"m","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "no messages": b'{"model":"m"}',
    "messages no list": b'{"model":"m","messages":{"role":"user"}}',
    "empty messages": b'{"model":"m","messages":[]}',
    "messages of no shape": b'{"model":"m","messages":[1,null,"x",[],{"role":7},{"content":{}}]}',
    "repeated keys": b'{"model":"m","messages":[],"messages":[{"role":"user","content":"x"}]}',
    "deep": b'{"model":"m","messages":[{"role":"user","content":'
    + b"[" * 50_000
    + b"]" * 50_000
    + b"}]}",
    "calls no list": b'{"model":"m","messages":[{"role":"assistant","tool_calls":{"id":1}}]}',
    "BOM": b'\xef\xbb\xbf{"model":"m","messages":[]}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
async def test_what_cannot_be_read_leaves_as_it_came(
    client: httpx.AsyncClient, proxy: Running, provider: Provider, body: bytes
) -> None:
    reply = await post(client, proxy, body, x_lethe_policy="drop")

    assert 200 == reply.status_code
    assert body == provider.last.body


async def test_a_body_above_the_limit_is_refused_with_413(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    reply = await post(client, proxy, b" " * (33 << 20))

    assert 413 == reply.status_code
    assert "body_too_large" == reply.json()["error"]["code"]
    assert [] == provider.came


async def test_a_coded_body_is_read_and_leaves_plain_where_something_was_taken_out(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    coded = gzip.compress(request(2))

    await post(client, proxy, coded, x_lethe_policy="keep", content_encoding="gzip")
    assert coded == provider.last.body
    assert "gzip" == provider.last.headers["content-encoding"]

    coded = gzip.compress(request(3))
    await post(client, proxy, coded, x_lethe_policy="drop", content_encoding="gzip")
    assert "content-encoding" not in provider.last.headers
    assert "" == provider.last.json()["messages"][6]["reasoning_content"]


async def test_a_body_that_unfolds_to_more_than_may_come_passes_unread(
    client: httpx.AsyncClient, provider: Provider
) -> None:
    coded = gzip.compress(request(2, padding=" " * 5_000))
    assert len(coded) < 4_000

    async with running(settings_for(provider.url, max_body_bytes=4_000)) as proxy:
        reply = await post(client, proxy, coded, x_lethe_policy="drop", content_encoding="gzip")
        numbers = (await client.get(f"{proxy.admin}/metrics")).text

    assert 200 == reply.status_code
    assert coded == provider.last.body
    assert 'reason="too_large"} 1.0' in numbers


# Usage


async def test_usage_is_asked_for_and_taken_out_again(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    reply = await post(client, proxy, request(1, stream=True), x_lethe_policy="keep")

    assert {"include_usage": True} == provider.last.json()["stream_options"]
    assert USAGE not in reply.content
    assert reply.content.endswith(DONE)
    numbers = (await client.get(f"{proxy.admin}/metrics")).text
    assert 'lethe_tokens_total{key="",kind="cache_read",model="m"} 60.0' in numbers


async def test_usage_that_the_client_asked_for_reaches_it(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    body = request(1, stream=True, stream_options={"include_usage": True})

    reply = await post(client, proxy, body, x_lethe_policy="keep")

    assert body == provider.last.body
    assert USAGE in reply.content


async def test_an_upstream_that_refuses_the_question_is_asked_once_without_it(
    client: httpx.AsyncClient,
) -> None:
    def refuses(came: Came) -> Answer:
        if b"stream_options" in came.body:
            told = b'{"error":{"message":"unknown field stream_options","code":"bad"}}'
            return Answer(400, chunks=(told,))
        return stream(chunk({"content": "x"}), usage=False)

    async with providing(refuses) as provider, running(settings_for(provider.url)) as proxy:
        first = await post(client, proxy, request(0, stream=True))
        second = await post(client, proxy, request(1, stream=True))

    assert [200, 200] == [first.status_code, second.status_code]
    assert 3 == len(provider.came)


async def test_a_refusal_that_is_about_something_else_switches_nothing_off(
    client: httpx.AsyncClient,
) -> None:
    def picky(came: Came) -> Answer:
        if b'"odd"' in came.body:
            return Answer(400, chunks=(b'{"error":{"message":"unknown: include_usage"}}',))
        return stream(chunk({"content": "x"}))

    async with providing(picky) as provider, running(settings_for(provider.url)) as proxy:
        refused = await post(client, proxy, request(0, stream=True, odd=1))
        await post(client, proxy, request(1, stream=True))

    assert 400 == refused.status_code
    assert {"include_usage": True} == provider.last.json()["stream_options"]


async def test_a_coded_body_that_is_sent_again_keeps_its_coding(client: httpx.AsyncClient) -> None:
    def refuses(came: Came) -> Answer:
        if "content-encoding" not in came.headers:
            return Answer(400, chunks=(b'{"error":{"message":"unknown field stream_options"}}',))
        return stream(chunk({"content": "x"}), usage=False)

    coded = gzip.compress(request(0, stream=True))
    async with providing(refuses) as provider, running(settings_for(provider.url)) as proxy:
        reply = await post(client, proxy, coded, content_encoding="gzip")

    assert 200 == reply.status_code
    assert coded == provider.last.body
    assert "gzip" == provider.last.headers["content-encoding"]


async def test_a_coded_stream_is_not_held_back(client: httpx.AsyncClient) -> None:
    parts = [gzip.compress(chunk({"content": str(n)})) for n in range(4)]

    def codes(came: Came) -> Answer:
        headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
        return Answer(headers=headers, chunks=tuple(parts), pause=0.05)

    pieces = 0
    async with providing(codes) as provider, running(settings_for(provider.url)) as proxy:
        url = f"{proxy.url}/v1/chat/completions"
        async with client.stream("POST", url, content=request(0, stream=True)) as reply:
            async for _ in reply.aiter_raw():
                pieces += 1

    assert pieces >= 4


# Headers and policies


async def test_a_policy_that_a_key_sets_holds_for_that_key_until_it_sets_another(
    client: httpx.AsyncClient, proxy: Running
) -> None:
    await post(client, proxy, request(0), x_lethe_set_policy="drop")

    mine = await post(client, proxy, request(1))
    other = await post(client, proxy, request(1), authorization="Bearer sk-test-two")
    header = await post(client, proxy, request(1), x_lethe_policy="keep")

    assert "drop" == mine.headers["x-lethe-policy"]
    assert "after_artifact" == other.headers["x-lethe-policy"]
    assert "keep" == header.headers["x-lethe-policy"]


async def test_a_policy_that_is_none_is_refused_and_says_which_there_are(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    reply = await post(client, proxy, request(1), x_lethe_policy="kep")

    assert 400 == reply.status_code
    assert "after_artifact" in reply.json()["error"]["message"]
    assert [] == provider.came


async def test_nobody_sets_a_policy_without_a_credential(
    client: httpx.AsyncClient, proxy: Running
) -> None:
    reply = await client.post(
        f"{proxy.url}/v1/chat/completions",
        content=request(1),
        headers={"x-lethe-set-policy": "drop"},
    )

    assert 403 == reply.status_code


async def test_our_headers_stay_here_and_the_clients_own_travel(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    await post(
        client, proxy, request(1), x_lethe_task="t1", x_lethe_session="s1", traceparent="00-a-b-01",
        openai_organization="org", x_request_id="r1", anthropic_beta="x",
    )  # fmt: skip

    seen = provider.last.headers
    assert not [name for name in seen if name.startswith("x-lethe")]
    assert "Bearer sk-test-one" == seen["authorization"]
    assert {"00-a-b-01", "org", "r1", "x"} <= set(seen.values())


async def test_every_reply_says_what_was_done(client: httpx.AsyncClient, proxy: Running) -> None:
    first = await post(client, proxy, request(2), x_lethe_policy="drop")
    again = await post(client, proxy, request(2), x_lethe_policy="drop")

    assert "cold_start" == first.headers["x-lethe-prefix"]
    assert "retry" == again.headers["x-lethe-prefix"]
    assert first.headers["x-lethe-conversation"] == again.headers["x-lethe-conversation"]
    assert first.headers["x-lethe-dropped-tokens"].startswith("~")
    assert float(first.headers["x-lethe-overhead-ms"]) > 0


async def test_virtual_keys_are_swapped_for_the_upstreams_own(
    client: httpx.AsyncClient, provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text(
        f'virtual_keys = true\n[[upstream]]\nurl = "{provider.url}"\napi_key_env = "UPSTREAM_KEY"\n'
        '[[key]]\nalias = "team"\nkey_env = "TEAM_KEY"\nvirtual = true\npolicy = "drop"\n'
    )
    environ = {"UPSTREAM_KEY": "sk-upstream", "TEAM_KEY": "sk-lethe-team"}
    settings = settings_for(None, file, environ=environ)  # type: ignore[arg-type]
    async with running(settings) as proxy:
        refused = await post(client, proxy, request(1))
        taken = await post(client, proxy, request(1), authorization="Bearer sk-lethe-team")

    assert 401 == refused.status_code
    assert "key_unknown" == refused.json()["error"]["code"]
    assert "drop" == taken.headers["x-lethe-policy"]
    assert ["Bearer sk-upstream"] == [came.headers["authorization"] for came in provider.came]


# Other paths and failures


async def test_other_paths_pass_byte_for_byte(
    client: httpx.AsyncClient, proxy: Running, provider: Provider
) -> None:
    await client.get(f"{proxy.url}/v1/models?limit=2&x=%2F")
    await client.head(f"{proxy.url}/api/hello")
    await client.post(f"{proxy.url}/v1/embeddings", content=b'{"input": "x"}')

    assert [("GET", "/v1/models"), ("HEAD", "/v1/api/hello"), ("POST", "/v1/embeddings")] == [
        (came.method, came.path) for came in provider.came
    ]
    assert b"limit=2&x=%2F" == provider.came[0].query
    assert b'{"input": "x"}' == provider.last.body


async def test_the_providers_errors_pass_as_they_are(client: httpx.AsyncClient) -> None:
    told = b'{"error":{"message":"slow down","type":"rate_limit_error"}}'

    def refuses(came: Came) -> Answer:
        return Answer(429, {"retry-after": "7", "x-should-retry": "true"}, (told,))

    async with providing(refuses) as provider, running(settings_for(provider.url)) as proxy:
        reply = await post(client, proxy, request(1))

    assert (429, told, "7") == (reply.status_code, reply.content, reply.headers["retry-after"])


async def test_an_upstream_that_is_not_there_is_told_as_502(client: httpx.AsyncClient) -> None:
    async with running(settings_for("http://127.0.0.1:9")) as proxy:
        reply = await post(client, proxy, request(1))

    assert 502 == reply.status_code
    assert "upstream_unreachable" == reply.json()["error"]["code"]


async def test_a_late_first_byte_is_told_as_504(client: httpx.AsyncClient, tmp_path: Path) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    file = tmp_path / "lethe.toml"
    file.write_text(f'[[upstream]]\nurl = "http://127.0.0.1:{port}"\nfirst_byte_timeout = 0.2\n')
    async with running(settings_for(None, file)) as proxy:  # type: ignore[arg-type]
        reply = await post(client, proxy, request(1))
    silent.close()
    await silent.wait_closed()

    assert 504 == reply.status_code
    assert "first_byte_timeout" in reply.json()["error"]["message"]


async def test_while_draining_new_requests_are_told_to_try_again(
    client: httpx.AsyncClient, proxy: Running
) -> None:
    proxy.doors.state.draining = True
    reply = await post(client, proxy, request(1))
    ready = await client.get(f"{proxy.url}/readyz")
    alive = await client.get(f"{proxy.url}/healthz")
    proxy.doors.state.draining = False

    assert (503, "draining") == (reply.status_code, reply.json()["error"]["code"])
    assert [503, 200] == [ready.status_code, alive.status_code]


@pytest.mark.parametrize("streamed", [False, True], ids=["before the reply", "in the stream"])
async def test_a_client_that_leaves_cancels_the_upstream(
    client: httpx.AsyncClient, streamed: bool
) -> None:
    def slow(came: Came) -> Answer:
        return stream(
            chunk({"content": "x"}), chunk({"content": "y"}), pause=0.3 if streamed else 30.0
        )

    async with providing(slow) as provider, running(settings_for(provider.url)) as proxy:
        with pytest.raises((httpx.ReadTimeout, TimeoutError)):
            await client.post(
                f"{proxy.url}/v1/chat/completions", content=request(1, stream=True), timeout=0.45
            )
        await _until(lambda: provider.left != [])
        await _until(lambda: proxy.doors.observer.in_flight == 0)
        numbers = (await client.get(f"{proxy.admin}/metrics")).text

    assert 'outcome="client_gone"' in numbers


async def _until(holds: Any) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  (another server's state, told by nobody)
            await asyncio.sleep(0.01)


# What is told


async def test_the_log_has_one_line_an_exchange_and_never_text_or_key(
    client: httpx.AsyncClient, provider: Provider, tmp_path: Path
) -> None:
    log = tmp_path / "lethe.log"
    async with running(settings_for(provider.url, log=str(log))) as proxy:
        for count in range(3):
            await post(client, proxy, request(count), x_lethe_policy="drop")
        await client.get(f"{proxy.url}/v1/models")

    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert 4 == len(lines)
    assert ["chat", "chat", "chat", "pass"] == [line["route"] for line in lines]
    assert 60 == lines[0]["tokens"]["cache_read"]
    assert not [word for word in ("sk-test", "I think", "file_", "Do it") if word in text]


async def test_lines_that_wait_for_their_thread_when_the_proxy_ends_are_written(
    client: httpx.AsyncClient, provider: Provider, tmp_path: Path
) -> None:
    log, held = tmp_path / "lethe.log", threading.Event()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as busy:
        loop.set_default_executor(busy)
        async with running(settings_for(provider.url, log=str(log))) as proxy:
            await post(client, proxy, request(0))  # its connections serve what follows
            holding = loop.run_in_executor(None, held.wait, 10)
            for count in (1, 2):
                await post(client, proxy, request(count))
            await _until(lambda: not proxy.doors.observer.queued)
            loop.call_later(0.2, held.set)
        await holding

    assert 3 == len(log.read_text().splitlines())


async def test_words_that_are_no_unicode_hurt_no_exchange_and_no_metric(
    client: httpx.AsyncClient, provider: Provider, tmp_path: Path
) -> None:
    log = tmp_path / "lethe.log"
    body = b'{"model":"m\\ud83d","messages":[{"role":"user","content":"hi"}]}'
    async with running(settings_for(provider.url, log=str(log))) as proxy:
        reply = await post(client, proxy, body)
        long = await post(client, proxy, request(0, model="x" * 5000))
        numbers = await client.get(f"{proxy.admin}/metrics")

    assert [200, 200, 200] == [reply.status_code, long.status_code, numbers.status_code]
    assert "x" * 200 not in numbers.text
    assert 2 == len(log.read_text().splitlines())


async def test_a_scope_header_counts_for_nothing_on_the_admin_port(
    client: httpx.AsyncClient, provider: Provider
) -> None:
    settings = settings_for(
        provider.url, scope_header="x-user", environ={"LETHE_ADMIN_TOKEN": "operator"}
    )
    async with running(settings) as proxy:
        await post(client, proxy, request(1), x_user="alice")
        url = f"{proxy.admin}/lethe/conversations"
        other = await client.get(url, headers={"authorization": "Bearer x", "x-user": "alice"})
        same = await client.get(url, headers={"authorization": "Bearer alice"})
        all_of_them = await client.get(url, headers={"authorization": "Bearer operator"})

    assert [0, 0, 1] == [len(found.json()["conversations"]) for found in (other, same, all_of_them)]


async def test_two_workers_count_a_step_once(client: httpx.AsyncClient, provider: Provider) -> None:
    with servers.running(servers.valkey()) as server:
        settings = settings_for(provider.url, redis=server.url)
        async with running(settings) as one, running(settings) as two:
            for count in range(4):
                await post(client, (one, two)[count % 2], request(count), x_lethe_policy="drop")
                await asyncio.sleep(0.05)
            numbers = [(await client.get(f"{it.admin}/metrics")).text for it in (one, two)]

    found = [
        re.findall(r'lethe_steps_total{policy="drop",verdict="drop"} (\S+)', n) for n in numbers
    ]
    assert 3.0 == sum(float(value) for values in found for value in values)


async def test_a_conversation_can_be_forgotten_by_its_key_and_by_no_other(
    client: httpx.AsyncClient, proxy: Running
) -> None:
    reply = await post(client, proxy, request(2))
    url = f"{proxy.admin}/lethe/conversations/{reply.headers['x-lethe-conversation']}"

    other = await client.delete(url, headers={"authorization": "Bearer sk-test-two"})
    mine = await client.delete(url, headers=KEY)
    again = await client.delete(url, headers=KEY)

    assert [404, 204, 404] == [other.status_code, mine.status_code, again.status_code]


async def test_what_it_came_to_is_told_at_the_configured_prices(
    client: httpx.AsyncClient, provider: Provider, tmp_path: Path
) -> None:
    file, own, log = tmp_path / "lethe.toml", tmp_path / "prices.toml", tmp_path / "lethe.log"
    price = 'model = "m"\ninput = 2.0\ncache_read = 0.1\ncache_write = 2.5\noutput = 10.0\n'
    own.write_text(f"[[price]]\n{price}")
    file.write_text(f'log = "{log}"\nprices = "{own}"\n[[upstream]]\nurl = "{provider.url}"\n')
    settings = settings_for(None, file, log=None)  # type: ignore[arg-type]
    async with running(settings) as proxy:
        for count in range(3):
            await post(client, proxy, request(count), x_lethe_policy="drop")
        await post(client, proxy, request(0, model="unknown"))
        numbers = (await client.get(f"{proxy.admin}/metrics")).text

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [line.get("dollars") for line in lines]
    # 40 uncached at $2, 60 read at $0.10, 10 out at $10, a million.
    assert [0.000186] * 3 == [line["cost"] for line in told[:3]]
    parts = {"input": 8e-05, "cache_read": 6e-06, "output": 0.0001}
    assert parts | {"cache_write_5m": 0, "cache_write_1h": 0} == told[0]["parts"]
    assert 0 == told[0]["mechanical_saving"]
    assert 0 < told[2]["mechanical_saving"]
    assert told[2]["estimated"]
    assert pytest.approx(0.000186 + told[2]["mechanical_saving"]) == told[2]["keep"]
    assert [None, "unknown_provider"] == [told[3], lines[3]["unpriced"]]
    assert 'lethe_unpriced_total{reason="unknown_provider"} 1.0' in numbers
    assert 'lethe_cost_dollars_total{key="",part="output"} 0.0003' in numbers
    assert 'lethe_saved_dollars_total{estimated="true",policy="drop"}' in numbers


async def test_the_price_list_is_there_after_a_while_and_until_then_a_price_is_pending(
    client: httpx.AsyncClient, provider: Provider, tmp_path: Path
) -> None:
    file, log = tmp_path / "lethe.toml", tmp_path / "lethe.log"
    file.write_text(f'log = "{log}"\n[[upstream]]\nurl = "{provider.url}"\npriced_as = "openai"\n')
    settings = settings_for(None, file, log=None)  # type: ignore[arg-type]
    priced = 'lethe_cost_dollars_total{key="",part="output"}'
    async with running(settings) as proxy, asyncio.timeout(30):
        numbers = ""
        while priced not in numbers:
            await post(client, proxy, request(0, model="gpt-5"))
            numbers = (await client.get(f"{proxy.admin}/metrics")).text

    told = [json.loads(line) for line in log.read_text().splitlines()]
    # 40 uncached at $1.25, 60 read at $0.125, 10 out at $10, a million.
    assert 0.0001575 == told[-1]["dollars"]["cost"]
    assert {"pending"} >= {line["unpriced"] for line in told[:-1]}


# The official SDK


async def test_the_official_sdk_works_sync_and_async_streaming_and_not(
    proxy: Running, provider: Provider
) -> None:
    base = f"{proxy.url}/v1"

    def with_the_sync_client() -> tuple[str | None, str]:
        with openai.OpenAI(base_url=base, api_key="sk-test-one") as sdk:
            whole = sdk.chat.completions.create(model="m", messages=steps(2), tools=TOOLS)
            parts = sdk.chat.completions.create(
                model="m", messages=steps(3), tools=TOOLS, stream=True
            )
            return whole.choices[0].message.content, _text(list(parts))

    assert ("done", "done") == await asyncio.to_thread(with_the_sync_client)
    async with openai.AsyncOpenAI(base_url=base, api_key="sk-test-one") as sdk:
        whole = await sdk.chat.completions.create(model="m", messages=steps(4), tools=TOOLS)
        parts = await sdk.chat.completions.create(
            model="m",
            messages=steps(5),
            tools=TOOLS,
            stream=True,
            stream_options={"include_usage": True},
        )
        seen = [part async for part in parts]
    assert "done" == whole.choices[0].message.content
    assert "done" == _text(seen)
    usage = seen[-1].model_dump()["usage"]
    assert 60 == usage["prompt_tokens_details"]["cached_tokens"]
    assert ["m"] * 4 == [came.json()["model"] for came in provider.came]


def _text(parts: list[Any]) -> str:
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
