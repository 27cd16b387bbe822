"""The bench's own tools: bodies of the right shape, numbers of the right process; no timing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bench import report, system
from tests.bench.bodies import SIZES, Conversation, Size, pools
from tests.bench.contenders import LETHE, NGINX
from tests.bench.rounds import PLAIN, Results, Round, quantile

POOLS = pools(1)
BUSY = """
n = 0
while n < 5_000_000:
    n += 1
print("done", flush=True)
input()
"""


def conversation(size: Size, number: int = 0) -> Conversation:
    return Conversation(size, POOLS, number, 0, b',"stream":true')


def bodies(talk: Conversation, many: int) -> list[bytes]:
    return [b"".join(talk.next()) for _ in range(many)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_the_average_request_has_the_nominal_size(size):
    found = bodies(conversation(size), len(size.window))

    assert size.bytes == pytest.approx(sum(map(len, found)) / len(found), rel=0.03)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_the_middle_request_has_the_nominal_messages(size):
    body = json.loads(bodies(conversation(size), size.window.index(size.steps) + 1)[-1])

    assert size.messages == len(body["messages"])
    assert size.steps == sum("reasoning_content" in m for m in body["messages"])


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_each_request_adds_one_step_and_changes_nothing(size):
    before, after = map(json.loads, bodies(conversation(size), 2))

    assert before["messages"] == after["messages"][:-2]
    assert ["assistant", "tool"] == [m["role"] for m in after["messages"][-2:]]
    assert before["tools"] == after["tools"]


def test_a_step_is_a_call_with_reasoning_and_its_result():
    *_, assistant, tool = json.loads(bodies(conversation(SIZES[1]), 1)[0])["messages"]
    call = assistant["tool_calls"][0]

    assert call["id"] == tool["tool_call_id"]
    assert {"command"} == json.loads(call["function"]["arguments"]).keys()
    assert len(assistant["reasoning_content"]) > 500


def test_a_conversation_that_begins_anew_shares_no_task_and_no_call():
    size = SIZES[1]
    found = bodies(conversation(size), len(size.window) + 1)
    first, again = json.loads(found[0])["messages"], json.loads(found[-1])["messages"]

    assert len(first) == len(again)
    assert first[1] != again[1]
    assert set(calls(first)).isdisjoint(calls(again))


def calls(messages: list[dict[str, str]]) -> Iterator[str]:
    return (m["tool_call_id"] for m in messages if m["role"] == "tool")


def test_no_two_connections_share_a_text():
    one, other = (json.loads(bodies(conversation(SIZES[0], n), 2)[1]) for n in (1, 2))
    pairs = list(zip(one["messages"], other["messages"], strict=True))

    assert 4 == len(pairs)
    assert all(a["content"] != b["content"] for a, b in pairs)


def test_a_phase_begins_within_the_window():
    size = SIZES[1]
    talk = Conversation(size, POOLS, 0, 0.5, b"")

    assert not talk.fresh
    assert 2 + 2 * size.steps == len(json.loads(bodies(talk, 1)[0])["messages"])


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A process that has counted up to many, and now waits."""
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "done\n" == process.stdout.readline()
        yield process
        process.kill()


def test_both_readings_of_cpu_time_agree(busy):
    fine, coarse = system.cpu([busy.pid]), system.ticks(busy.pid)

    assert fine > 0
    assert fine == pytest.approx(coarse, abs=0.05)


def test_a_process_that_waits_takes_no_cpu(busy):
    assert system.cpu([busy.pid]) == system.cpu([busy.pid])


def test_a_family_is_a_process_and_its_children(busy):
    assert os.getpid() == system.family(os.getpid())[0]
    assert busy.pid in system.family(os.getpid())
    assert [busy.pid] == system.family(busy.pid)


def test_memory_is_of_that_process_and_no_more_than_its_peak(busy):
    now, most = system.memory(busy.pid)

    assert 1_000_000 < now <= most


def test_a_quantile_is_one_of_the_values():
    assert 3 == quantile([5, 1, 3, 2, 4], 0.5)
    assert 5 == quantile([5, 1, 3, 2, 4], 0.99)


def test_a_ratio_is_taken_within_a_round():
    results = Results()
    for nginx, lethe in ((1.0, 5.0), (2.0, 8.0), (1.0, 30.0)):
        results.add(PLAIN, "2 KB", NGINX, a_round(nginx))
        results.add(PLAIN, "2 KB", LETHE, a_round(lethe))

    assert 5 == report.ratio(results, PLAIN, "2 KB", LETHE, report.per_request)


def test_what_is_missed_is_told_plainly():
    results = Results()
    results.add(PLAIN, "2 KB", NGINX, a_round(1.0))
    results.add(PLAIN, "2 KB", LETHE, a_round(21.0))
    found = report.rows(results)

    assert [False] == [row.held for row in found if row.held is not None]
    assert "MISSED: CPU per request, whole replies, 2 KB: 21.0 ×, aim ≤ 20 ×" in report.notes(
        results, found
    )


def a_round(cpu: float) -> Round:
    return Round(1.0, cpu, [0.001], [], sent=10, forwarded=8, broken=0, marks=0, reads=0)
