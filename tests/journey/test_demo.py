"""The demo: agent, proxy and provider over real sockets, under every policy that it shows."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy import app
from proxy.core import artifact
from proxy.core.cachemodel import size
from proxy.errors import UpstreamUnreachable
from proxy.replay import demo, scripted_agent
from proxy.replay.scripted_provider import ScriptedProvider
from proxy.replay.scripted_task import Step, coding_task
from proxy.replay.scripted_wire import echoed
from proxy.settings import Settings

STEPS, SEED = 12, 5


@pytest.fixture(scope="module")
def runs() -> dict[str, demo.Run]:
    measured = demo.measure(app.running, STEPS, SEED, time.monotonic, lambda policy: None)
    return {run.policy: run for run in asyncio.run(measured)}


def prompts(run: demo.Run) -> list[int]:
    return [size(it.prompt) for it in run.served]


def reads(run: demo.Run) -> list[int]:
    return [it.split.read for it in run.served]


def test_every_policy_asks_as_often_and_hears_the_same(runs: dict[str, demo.Run]) -> None:
    assert list(demo.POLICIES) == list(runs)
    assert {STEPS + 1} == {len(run.served) for run in runs.values()}
    assert 1 == len({tuple(it.generated for it in run.served) for run in runs.values()})


def test_under_keep_all_that_was_processed_is_read(runs: dict[str, demo.Run]) -> None:
    keep = runs["keep"]

    assert [size(it.prompt) + it.output - 1 for it in keep.served[:-1]] == reads(keep)[1:]
    assert 0 == keep.tokens.rebuilt


def test_under_drop_every_prompt_is_read_whole_by_the_next(runs: dict[str, demo.Run]) -> None:
    assert prompts(runs["drop"])[:-1] == reads(runs["drop"])[1:]


def test_under_after_artifact_each_step_goes_as_its_verdict_says(runs: dict[str, demo.Run]) -> None:
    it = runs["after_artifact"].served
    dropped = [left_something(step) for step in coding_task(STEPS, SEED).steps]
    expected = [
        size(before.prompt) + (0 if gone else before.output - 1)
        for before, gone in zip(it, dropped, strict=False)
    ]

    assert {True, False} == set(dropped)
    assert expected == reads(runs["after_artifact"])[1:]


def left_something(step: Step) -> bool:
    result = {"role": "tool", "tool_call_id": step.answer.calls[0].id, "content": step.observation}
    found = artifact.judge(echoed(step.answer), [result])
    return found.wrote or found.errored


@pytest.mark.parametrize("policy", ["keep", "drop", "after_artifact"])
def test_append_only_policies_break_no_prefix(runs: dict[str, demo.Run], policy: str) -> None:
    assert Counter(cold_start=1, extended=STEPS) == runs[policy].causes


def test_keep_latest_breaks_its_prefix_on_every_turn_and_is_told_so(
    runs: dict[str, demo.Run],
) -> None:
    run = runs["keep_latest:1"]

    assert Counter({"cold_start": 1, "extended": 1, "broken; cause=self": STEPS - 1}) == run.causes
    assert run.tokens.rebuilt > 5 * runs["drop"].tokens.rebuilt


def test_forgetting_sends_fewer_tokens(runs: dict[str, demo.Run]) -> None:
    sent = {policy: run.tokens.input for policy, run in runs.items()}

    assert sent["drop"] < sent["keep_latest:1"] < sent["after_artifact"] < sent["keep"]


def test_what_was_new_is_the_same_for_all(runs: dict[str, demo.Run]) -> None:
    """But for one token a step: the last one of an answer was never held."""
    new = [run.tokens.new for run in runs.values()]

    assert max(new) - min(new) <= STEPS


async def test_keep_sends_the_very_bytes_of_an_agent_without_a_proxy() -> None:
    task = coding_task(6, SEED)
    direct = ScriptedProvider(task.script, demo.CACHE, record=True)
    proxied = ScriptedProvider(task.script, demo.CACHE, record=True)
    async with direct as url:
        plain = [it.seen async for it in scripted_agent.run(task, url, "k", "keep", time.monotonic)]
    async with proxied as url, app.running(demo.settings_for(url)) as (address, _):
        run = scripted_agent.run(task, f"{address}/v1", "k", "keep", time.monotonic)
        relayed = [it.seen async for it in run]

    assert direct.bodies["k"] == proxied.bodies["k"]
    assert plain == relayed


async def test_a_run_that_breaks_off_is_told() -> None:
    @asynccontextmanager
    async def nobody(settings: Settings) -> AsyncIterator[tuple[str, str]]:
        yield "http://127.0.0.1:9", ""

    with pytest.raises(ExceptionGroup) as raised:
        await demo.measure(nobody, 3, 1, time.monotonic, lambda policy: None)

    assert raised.group_contains(UpstreamUnreachable)


def test_the_command_tells_scripts_what_it_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "demo", "--json", "--steps", "3"],
        capture_output=True,
        check=True,
        timeout=60,
    )

    told = json.loads(done.stdout)
    assert list(demo.POLICIES) == [run["policy"] for run in told["runs"]]
    assert [4] * 4 == [run["requests"] for run in told["runs"]]
    assert b"" == done.stderr
