"""Each format of recorded sessions: what is read of it, what is refused and why."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.replay.readers import exchanges, session_of
from proxy.replay.replaying import replay
from proxy.replay.sessions import Session, Unusable
from proxy.replay.sources import found_in, sources
from tests.client import http_client
from tests.journey.provider import providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.talk import answers, grow
from tests.replay.recorded import history, plan, replayed, trajectory, under, usage, write_lines


def ends(session: Session) -> list[int]:
    """How many messages each request has."""
    return [len(json.loads(asked.body)["messages"]) for asked in session.requests()]


def test_a_bare_list_of_messages_has_a_request_before_each_reply():
    found = session_of(history(3), "name")

    assert "messages" == found.format
    assert [2, 4, 6] == ends(found)


def test_a_list_with_model_and_tools_asks_with_them():
    tools = [{"type": "function", "function": {"name": "bash"}}]
    found = session_of({"model": "m", "tools": tools, "messages": history(1)}, "name")
    body = json.loads(next(found.requests()).body)

    assert ("m", tools) == (body["model"], body["tools"])


def test_a_trajectory_is_read_without_the_recorders_notes():
    messages = history(2)
    for at, message in enumerate(messages):
        message["extra"] = {"timestamp": at, "response": {"usage": usage(0)}}
    found = session_of(
        {
            "trajectory_format": "mini-swe-agent-1.1",
            "info": {"exit_status": "Submitted", "config": {"model": {"model_name": "m/1"}}},
            "messages": [*messages, {"role": "exit", "content": "done"}],
        },
        "name",
    )
    asked = list(found.requests())

    assert ("trajectory", "m/1") == (found.format, found.model)
    assert [100, 100] == [it.usage.input for it in asked]
    assert b"extra" not in asked[-1].body + asked[-1].reply


def test_usages_of_an_agent_with_its_own_names_are_understood():
    told = {"input": 5, "output": 7, "cacheRead": 100, "cacheWrite": 20}
    record = {"messages": history(1), "step_usage": [{"usage": told}]}
    asked = next(session_of(record, "name").requests())

    assert (125, 100, 7) == (asked.usage.input, asked.usage.cache_read, asked.usage.output)


def test_usages_that_do_not_go_round_are_nobodys():
    record = {"messages": history(2), "step_usage": [{"usage": usage(0)}]}

    assert [None, None] == [it.usage.input for it in session_of(record, "name").requests()]


def test_a_record_says_its_task_arm_policy_and_success():
    label = session_of(trajectory(1, task="t", arm="a", policy="drop", resolved=True), "n").label

    assert ("t", "a", "drop", True) == (label.task, label.arm, label.policy, label.success)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (3, "neither"),
        ({"text": "a"}, "neither"),
        ([], "no assistant"),
        ([{"role": "assistant", "content": "hi"}], "no assistant"),
        ([{"content": "hi"}], "role"),
        ({"messages": ["hi"]}, "role"),
        ({"timeline": [], "id": "x"}, "no messages"),
        ({"timeline": [], "messages": [{"part": "message", "came": None}]}, "history"),
    ],
)
def test_what_is_no_session_is_refused_and_says_why(record: Any, why: str):
    with pytest.raises(Unusable, match=why):
        session_of(record, "name")


# Lethe's own log


@pytest.fixture
async def proxy() -> AsyncIterator[Running]:
    async with providing(answers) as provider, running(settings_for(provider.url)) as opened:
        yield opened


async def shown(proxy: Running, id: str) -> Any:
    async with http_client() as client:
        reply = await client.get(f"{proxy.admin}/lethe/conversations/{id}?text=true")
    return reply.json()


async def test_a_conversation_of_ones_own_is_replayed_as_it_came(proxy: Running):
    id = await grow(proxy, 3, x_lethe_policy="drop", x_lethe_task="mend")
    found = session_of(await shown(proxy, id), "name")

    assert ("lethe", id, "drop") == (found.format, found.id, found.label.policy)
    assert [2, 4, 6, 8] == ends(found)
    assert all(b"Thought" in it.body for it in list(found.requests())[1:])
    assert all(it.usage.input for it in found.requests())


async def test_a_conversation_that_ran_under_drop_tells_what_keep_would_have_sent(proxy: Running):
    record = await shown(proxy, await grow(proxy, 3, x_lethe_policy="drop"))
    it = plan("drop")
    row = replayed(record, it)

    assert "drop" == row.policy
    assert under(row, it, "keep").input > under(row, it, "drop").input


# Exchanges


def lines(steps: int, seed: str = "", **more: Any) -> list[dict[str, Any]]:
    """The exchanges of one conversation."""
    messages = history(steps, seed)
    return [
        {
            "body": {"model": "m", "messages": messages[: 2 + 2 * at]},
            "response": {"choices": [{"message": messages[2 + 2 * at]}], "usage": usage(at)},
            **more,
        }
        for at in range(steps)
    ]


def sessions(path: Any) -> list[Session]:
    return [
        found.session
        for chunk in sources([path]).chunks
        for found in found_in(chunk)
        if found.session
    ]


def test_interleaved_exchanges_are_told_apart_by_what_was_said(tmp_path):
    a, b = lines(3, "a"), lines(3, "b")
    mixed = [line for pair in zip(a, b, strict=True) for line in pair]
    found = sessions(write_lines(tmp_path / "log.jsonl", mixed))

    assert [[2, 4, 6], [2, 4, 6]] == [ends(session) for session in found]


def test_two_runs_that_begin_alike_are_told_apart_by_their_first_reply(tmp_path):
    a, b = lines(2), lines(2)
    for line in b:
        text = json.dumps(line).replace("cat notes.txt", "ls")
        line.clear()
        line.update(json.loads(text))
    found = sessions(write_lines(tmp_path / "log.jsonl", [a[0], b[0], b[1], a[1]]))

    assert [[2, 4], [2, 4]] == [ends(session) for session in found]
    assert ["cat", "ls"] == [
        "cat" if b"cat notes.txt" in next(session.requests()).reply else "ls" for session in found
    ]


def test_without_replies_a_first_request_belongs_to_what_grows_from_it_next(tmp_path):
    rows = [{"body": line["body"], "usage": usage(at)} for at, line in enumerate(lines(3))]
    found = sessions(write_lines(tmp_path / "log.jsonl", rows))

    assert [[2, 4, 6]] == [ends(session) for session in found]


def test_a_session_that_is_named_is_one_conversation(tmp_path):
    rows = [*lines(2, "a", session="s"), *lines(2, "b", session="s")]

    assert [4] == [len(ends(s)) for s in sessions(write_lines(tmp_path / "log.jsonl", rows))]


def test_exchanges_and_a_list_of_the_same_messages_come_to_the_same(tmp_path):
    it = plan("drop", "keep_latest:1")
    path = write_lines(tmp_path / "log.jsonl", lines(4))
    one, other = sessions(path)[0], session_of(trajectory(4), "name")

    assert replay(other, "f", it).under == replay(one, "f", it).under


def test_a_stream_that_was_kept_as_text_tells_its_usage():
    events = f"data: {json.dumps({'choices': [], 'usage': usage(0)})}\n\ndata: [DONE]\n\n"
    asked = exchanges.asked({"body": {"messages": history(1)[:2]}, "response": events})

    assert (b"", 100) == (asked.reply, asked.usage.input)
