"""What restoring and repairing echoes is worth on a real engine: cached tokens, with equality.

P(k), G(k) and C(k) are the prompt, generated and cached tokens of request k. An engine whose cache
holds what it generated serves P(k) + G(k) - 1 tokens of the next prompt where the step comes back
as it was generated (the last token was never fed back), and P(k) where its reasoning is lost. Run
with `-s` to see the table.

This engine parses argument texts where the model's template takes objects, and so spells them
itself. Others, and it too with other templates, print the text that comes; for these the same model
is started with its template told to take texts alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

from tests.contracts.agents import CLIENTS, Client, Heard, Message, ask
from tests.doors.redis_server import free_port
from tests.doors.scripted import Dialled, dialled
from tests.engine.test_engine import Engine, _wait_until_up, engine
from tests.journey.proxy_server import Running, running, settings_for
from tests.shared import need_shared

__all__ = ["engine"]
pytest.importorskip("xllamacpp", reason="the engine is not installed (extra: engine)")
AS_SENT = ('restore = "never"', 'echo_repair = "never"')
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


_SERVE = """
import os, signal, sys, xllamacpp
model, port, template = sys.argv[1:]
p = xllamacpp.CommonParams()
p.model.path, p.model_alias, p.chat_template = model, {"agent"}, open(template).read()
p.hostnames, p.port, p.n_ctx, p.n_parallel = ["127.0.0.1"], int(port), 8192, 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 2
p.use_jinja, p.warmup, p.offline = True, False, True
server = xllamacpp.Server(p)
signal.sigwait([signal.SIGTERM])
os._exit(0)
"""
"""Beside the model and the port it takes a file that holds the template."""
_TEXT = "{{- tool_call.arguments }}"
_NO_OBJECTS = "{%- elif 'arg' in tool_call.arguments %}{{- raise_exception('texts only') }}"
"""The engine learns what a template takes by trying it on an argument of that name."""


@pytest.fixture(scope="module")
def texts(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The same model; its template prints argument texts as they come, and takes nothing else."""
    own = httpx.get(f"{engine.url}/props").json()["chat_template"]
    head, text, tail = own.partition(_TEXT)
    assert text
    file = tmp_path_factory.mktemp("texts") / "template.jinja"
    file.write_text(f"{head}{text}{_NO_OBJECTS}{tail}")
    model, port = need_shared("engine", "agent-qwen3.gguf"), free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(model), str(port), str(file)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_until_up(process, port)
        yield Engine(f"http://127.0.0.1:{port}", engine.play)
    finally:
        process.terminate()
        process.wait(10)


def _bare(message: Message) -> list[Message]:
    (said,) = CLIENTS["openai-agents"].echo(message)
    return CLIENTS["compacts"].echo(said)


HABITS = {**CLIENTS, "compact-bare": Client("compact-bare", _bare)}


class Row(NamedTuple):
    """One request: prompt, generated and cached tokens as the engine reports them."""

    prompt: int
    generated: int
    cached: int


async def played(
    engine: Engine, folder: Path, client: str, stream: bool, *keys: str, policy: str = "keep"
) -> list[Row]:
    """The scripted agent from end to end, with a client's habits, behind a proxy of its own."""
    file = folder / f"{uuid4().hex}.toml"
    rows = ("[[upstream]]", f'url = "{engine.url}"', 'contract = "llama.cpp"', *keys)
    file.write_text("\n".join(rows))
    async with running(settings_for(engine.url, file)) as proxy:
        return await _played(proxy, engine, HABITS[client], stream, policy)


async def _played(
    proxy: Running, engine: Engine, client: Client, stream: bool, policy: str
) -> list[Row]:
    history: list[Message] = engine.play.messages(uuid4().hex)
    told = []
    async with dialled(int(proxy.url.rpartition(":")[2])) as line:
        for step in range(len(engine.play.STEPS) + 1):
            heard = await _asked(line, engine, history, stream, policy)
            assert (200, "extended" if step else "cold_start") == (
                heard.status,
                heard.told["x-lethe-prefix"],
            )
            told.append(_row(heard.usage))
            if step < len(engine.play.STEPS):
                call = heard.message["tool_calls"][0]
                assert _expected(engine, step) == json.loads(call["function"]["arguments"])
                result = {"role": "tool", "tool_call_id": call["id"]}
                history += client.echo(heard.message)
                history.append({**result, "content": engine.play.STEPS[step][2]})
    return told


async def _asked(
    line: Dialled, engine: Engine, history: list[Message], stream: bool, policy: str
) -> Heard:
    body: dict[str, Any] = {
        "model": "agent", "messages": history, "tools": engine.play.TOOLS, "temperature": 0,
        "max_tokens": 400,
    }  # fmt: skip
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return await ask(line, "/v1/chat/completions", {"x-lethe-policy": policy}, raw)


def _row(usage: Any) -> Row:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Row(usage["prompt_tokens"], usage["completion_tokens"], cached)


def _expected(engine: Engine, step: int) -> Any:
    return json.loads(engine.play.expected(step)[1])


def whole(rows: list[Row]) -> list[int]:
    """What is served of each next prompt, if each step comes back as it was generated."""
    return [row.prompt + row.generated - 1 for row in rows[:-1]]


def prompts(rows: list[Row]) -> list[int]:
    """What is served of each next prompt, if only what was sent can be."""
    return [row.prompt for row in rows[:-1]]


def cached(rows: list[Row]) -> list[int]:
    return [row.cached for row in rows[1:]]


def new(rows: list[Row]) -> int:
    """Prompt tokens that the engine had to process after the first request."""
    return sum(row.prompt - row.cached for row in rows[1:])


def table(title: str, arms: Mapping[str, list[Row]]) -> None:
    """Print it: of each arm the cached tokens by request, and what was left to process."""
    print(f"\n{title}")
    first = next(iter(arms.values()))
    print(f"{'P(k)':>24}: {_line(row.prompt for row in first)}")
    print(f"{'G(k)':>24}: {_line(row.generated for row in first)}")
    for name, rows in arms.items():
        print(f"{'C(k) ' + name:>24}: {_line(row.cached for row in rows)}  new {new(rows)}")


def _line(numbers: Any) -> str:
    return " ".join(f"{number:5}" for number in numbers)


@STREAMED
async def test_what_a_client_loses_is_read_from_the_cache_again(
    engine: Engine, tmp_path: Path, stream: bool
) -> None:
    lost = await played(engine, tmp_path, "openai-agents", stream, *AS_SENT)
    back = await played(engine, tmp_path, "openai-agents", stream)

    table("a client that loses reasoning", {"restore never": lost, "restore auto": back})
    assert prompts(lost) == cached(lost)
    assert whole(back) == cached(back)
    assert new(back) < 0.6 * new(lost)


async def test_what_is_dropped_is_not_put_back(engine: Engine, tmp_path: Path) -> None:
    rows = await played(engine, tmp_path, "openai-agents", True, policy="drop")

    assert prompts(rows) == cached(rows)


@STREAMED
async def test_arguments_that_were_spelled_anew_are_read_from_the_cache_again(
    texts: Engine, tmp_path: Path, stream: bool
) -> None:
    respelled = await played(texts, tmp_path, "compacts", stream, 'echo_repair = "never"')
    repaired = await played(texts, tmp_path, "compacts", stream)

    arms = {"echo_repair never": respelled, "echo_repair auto": repaired}
    table("a client that compacts arguments", arms)
    assert whole(repaired) == cached(repaired)
    assert all(a < b for a, b in zip(cached(respelled), whole(respelled), strict=True))
    assert new(repaired) < new(respelled)


async def test_both_are_put_right_where_a_client_does_both(texts: Engine, tmp_path: Path) -> None:
    ways = {"neither": AS_SENT, "restore": AS_SENT[1:], "repair": AS_SENT[:1], "both": ()}
    arms = {
        name: await played(texts, tmp_path, "compact-bare", True, *keys)
        for name, keys in ways.items()
    }

    table("a client that loses reasoning and compacts arguments", arms)
    assert whole(arms["both"]) == cached(arms["both"])
    for name in ("neither", "repair"):
        assert prompts(arms[name]) == cached(arms[name])
    assert new(arms["both"]) < new(arms["restore"]) < new(arms["repair"])


async def test_where_the_engine_spells_arguments_itself_nothing_is_lost(
    engine: Engine, tmp_path: Path
) -> None:
    rows = await played(engine, tmp_path, "compacts", True, *AS_SENT)

    assert whole(rows) == cached(rows)
