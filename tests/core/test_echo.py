"""A reply that is echoed as it was generated is known again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core import echo, fingerprint, reply


def answered(message: dict[str, Any]) -> reply.Seen:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return reply.read_body(json.dumps(body).encode())


def element_of(message: dict[str, Any]) -> bytes:
    raw = json.dumps(message).encode()
    return fingerprint.read(raw, 0, len(raw), b"before").kept.digest


CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "hello"},
        {"role": "assistant", "content": "hello", "reasoning_content": "hm"},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    ],
)
def test_it_has_the_digest_of_its_element(message: dict[str, Any]) -> None:
    assert element_of(message) == echo.digest_of(answered(message))


def test_an_echo_with_other_arguments_is_another() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    compact = {**CALL, "function": {"name": "bash", "arguments": '{"cmd":"ls"}'}}

    assert element_of({**message, "tool_calls": [compact]}) != echo.digest_of(answered(message))


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "<think>a</think>b"},
        {
            "role": "assistant",
            "content": "x",
            "reasoning_details": [{"text": "a", "signature": "s"}],
        },
    ],
)
def test_a_form_that_cannot_be_known_has_none(message: dict[str, Any]) -> None:
    assert b"" == echo.digest_of(answered(message))


def test_a_reply_that_broke_off_or_is_no_unicode_has_none() -> None:
    assert b"" == echo.digest_of(reply.Seen())
    assert b"" == echo.digest_of(answered({"role": "assistant", "content": "\ud83d"}))
