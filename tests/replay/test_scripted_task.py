"""The scripted task: the same for the same seed, and judged as its author meant it."""

from __future__ import annotations

import orjson
import pytest

from proxy.core import artifact
from proxy.replay.scripted_task import Step, coding_task
from proxy.replay.scripted_wire import echoed, tokens_of


def judged(step: Step) -> tuple[bool, bool]:
    (call,) = step.answer.calls
    result = {"role": "tool", "tool_call_id": call.id, "content": step.observation}
    found = artifact.judge(echoed(step.answer), [result])
    return found.wrote, found.errored


def test_one_seed_gives_one_task() -> None:
    assert coding_task(12, 7) == coding_task(12, 7)
    assert coding_task(12, 7) != coding_task(12, 8)


@pytest.mark.parametrize("seed", range(5))
def test_half_of_the_steps_leave_something_or_fail_where_it_can_be_seen(seed: int) -> None:
    look, wrote, failed = (False, False), (True, False), (False, True)
    ticket = [look, look, look, failed, wrote, failed, look, wrote, look, wrote]

    assert ticket * 3 == [judged(step) for step in coding_task(30, seed).steps]


def test_sizes_are_those_of_coding_agents() -> None:
    task = coding_task(100, 1)
    thoughts = [tokens_of(step.answer.reasoning) for step in task.steps]

    assert 1_000 < sum(thoughts) / 100 < 1_600
    assert 300 <= min(thoughts)
    assert max(thoughts) <= 2_700
    assert 6_000 < tokens_of(task.system) + tokens_of(orjson.dumps(task.tools).decode()) < 10_000
    assert max(tokens_of(step.observation) for step in task.steps) < 2_100


def test_call_ids_are_unique_and_arguments_are_json() -> None:
    calls = [call for answer in coding_task(40, 3).script for call in answer.calls]

    assert 40 == len({call.id for call in calls})
    assert all(isinstance(orjson.loads(call.arguments), dict) for call in calls)
