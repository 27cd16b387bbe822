"""What is asked: legal histories of any model, each conversation its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.reasoning import texts_of
from proxy.doctor import prompts
from proxy.doctor.prompts import CARRIERS, Dialect

ASKED = Dialect("m")


def test_a_longer_filler_begins_with_a_shorter_one() -> None:
    assert prompts.filler(5, 90).startswith(prompts.filler(5, 40) + " ")


def test_the_thought_has_its_words() -> None:
    assert prompts.THOUGHT_WORDS == len(prompts.thought().split())


def test_a_salt_stands_first_in_the_system_message_and_in_the_tool() -> None:
    body = prompts.body(ASKED, "5a17", prompts.opening(ASKED, "5a17"), 1)

    assert body["messages"][0]["content"].startswith("5a17 ")
    assert body["tools"][0]["function"]["description"].startswith("5a17 ")


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_thought_is_put_where_it_is_read_as_one(carrier: str) -> None:
    message, _ = prompts.step(ASKED, 0, 6, carrier)

    assert [carrier] == [name for name, text in texts_of(message)]
    assert prompts.thought() in json.dumps(message)


def test_a_step_calls_a_tool_and_gets_its_result() -> None:
    message, result = prompts.step(replace(ASKED, empty="reasoning"), 12, 9)

    assert "" == message["reasoning"]
    assert message["tool_calls"][0]["id"] == result["tool_call_id"]
    assert 9 == len(message["tool_calls"][0]["id"])
    assert 9 == len(result["content"].split())


def test_without_tools_a_step_is_two_plain_messages() -> None:
    dialect = replace(ASKED, tools=False)
    message, answer = prompts.step(dialect, 0, 6)

    assert ("assistant", "user") == (message["role"], answer["role"])
    assert "tools" not in prompts.body(dialect, "5a17", (message, answer), 1)
    assert "tool" not in prompts.opening(dialect, "5a17")[1]["content"]


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("Use 'max_completion_tokens' instead.", {"limit": "max_completion_tokens"}),
        ("Temperature must be 1", {"temperature": False}),
        ("m does not support tools", {"tools": False}),
    ],
)
def test_a_refusal_names_what_to_leave_out(said: str, change: dict[str, Any]) -> None:
    adapted = prompts.adapted(ASKED, said)

    assert replace(ASKED, **change) == adapted
    assert adapted is not None
    assert prompts.adapted(adapted, said) is None


def test_a_refusal_without_a_known_word_changes_nothing() -> None:
    assert prompts.adapted(ASKED, "no such model") is None


def test_the_limit_is_never_below_the_least() -> None:
    dialect = replace(ASKED, least=16, limit="max_completion_tokens", temperature=False)
    body = prompts.body(dialect, "5a17", (), 1)

    assert 16 == body["max_completion_tokens"]
    assert not {"max_tokens", "temperature"} & body.keys()


CALL = {"id": "c1", "type": "function", "function": {"name": "note", "arguments": '{"text": "a"}'}}


def test_an_echo_is_the_reply_and_what_answers_it() -> None:
    reply = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]}
    said, result = prompts.echo({**reply, "refusal": None, "annotations": []}, "reasoning_content")

    assert reply == said
    assert {"role": "tool", "tool_call_id": "c1", "content": "Noted."} == result


def test_an_echo_s_reasoning_goes_where_it_is_read() -> None:
    reply = {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL]}
    said, _ = prompts.echo(reply, "reasoning")

    assert ("hm", False) == (said["reasoning"], "reasoning_content" in said)


def test_an_echo_has_no_reasoning_where_none_is_read() -> None:
    reply = {"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_details": [{}]}
    said, answer = prompts.echo(reply, "")

    assert {"role": "assistant", "content": "a"} == said
    assert "user" == answer["role"]


def test_a_reply_that_was_cut_is_echoed_so_that_it_can_be_read() -> None:
    cut = {**CALL, "function": {"name": "note", "arguments": '{"text": "a'}}
    called, _ = prompts.echo({"role": "assistant", "content": "", "tool_calls": [cut]}, "")
    thought, _ = prompts.echo({"role": "assistant", "content": None, "reasoning": "h"}, "reasoning")

    assert "{}" == called["tool_calls"][0]["function"]["arguments"]
    assert "Noted." == thought["content"]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_forgetting_takes_reasoning_from_every_carrier(carrier: str) -> None:
    message = prompts.carried(prompts.assistant(ASKED, "Yes."), carrier, "hm")
    said, rest = prompts.forgotten((message, CALL), replace(ASKED, empty="reasoning_content"))

    assert [] == list(texts_of(said))
    assert ("", CALL) == (said["reasoning_content"], rest)
    assert "Yes." in json.dumps(said)
