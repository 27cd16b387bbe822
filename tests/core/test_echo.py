"""A reply that is echoed as it was generated is known again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core import echo, fingerprint, reply
from proxy.core.replies import Reply
from proxy.core.seen import Seen


def answered(message: dict[str, Any]) -> Seen:
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
    assert b"" == echo.digest_of(Seen())
    assert b"" == echo.digest_of(answered({"role": "assistant", "content": "\ud83d"}))


# What of a reply is kept, and where an echo finds it


def keys_of(message: dict[str, Any], before: bytes = b"before") -> tuple[bytes, ...]:
    raw = json.dumps(message).encode()
    return echo.keys_of_echo(before, fingerprint.read(raw, 0, len(raw), before))


def kept_under(message: dict[str, Any]) -> tuple[bytes, ...]:
    return echo.keys_of_reply(b"before", answered(message))


TWO = [CALL, {**CALL, "id": "c2", "function": {"name": "bash", "arguments": '{"cmd": 1.0}'}}]
SAID = {"role": "assistant", "content": "Look. \n", "reasoning": "hm", "tool_calls": TWO}


def spelled(arguments: str, number: int = 1) -> list[dict[str, Any]]:
    """The calls with other argument texts."""
    other = {**TWO[number], "function": {"name": "bash", "arguments": arguments}}
    return [other if at == number else call for at, call in enumerate(TWO)]


@pytest.mark.parametrize(
    ("echoed", "found"),
    [
        (SAID, [0, 1, 2]),
        # Reasoning lost, text trimmed, arguments written anew: the same in gist.
        ({**SAID, "reasoning": None}, [0, 1, 2]),
        ({**SAID, "content": "Look.", "tool_calls": spelled('{"cmd":1.0}')}, [0, 1, 2]),
        ({**SAID, "content": [{"type": "text", "text": "Look."}]}, [0, 1, 2]),
        ({**SAID, "content": "<think>hm</think>Look."}, [0, 1, 2]),
        # Ids alone, where the client edits what was said.
        ({**SAID, "content": "Listen."}, [1]),
        ({**SAID, "tool_calls": spelled('{"cmd":1}')}, [1]),
        # Text alone, where it makes ids of its own.
        ({**SAID, "tool_calls": [{**c, "id": f"t{c['id']}"} for c in TWO]}, [2]),
        ({**SAID, "tool_calls": [{**c, "id": None} for c in TWO]}, [2]),
        # Another message.
        ({**SAID, "tool_calls": TWO[:1]}, []),
        ({**SAID, "tool_calls": TWO[::-1]}, []),
        ({"role": "assistant", "content": "Look."}, []),
    ],
)
def test_an_echo_finds_its_reply_by_ids_and_text_else_by_one_of_them(
    echoed: dict[str, Any], found: list[int]
) -> None:
    kept = kept_under(SAID)

    assert 3 == len(kept) == len({*kept})
    assert found == [at for at, key in enumerate(kept) if key in keys_of(echoed)]
    assert [key for key in keys_of(echoed) if key in kept] == [kept[at] for at in found]


def test_what_was_said_before_tells_equal_replies_apart() -> None:
    assert set() == {*keys_of(SAID)} & {*keys_of(SAID, b"another")}


def test_a_reply_without_calls_is_known_by_its_text() -> None:
    hello = {"role": "assistant", "content": "hello"}

    assert 1 == len(kept_under(hello))
    assert kept_under(hello) == keys_of({**hello, "content": " hello\n", "reasoning": "x"})


@pytest.mark.parametrize("content", ["", None, " \n", []])
def test_what_says_nothing_and_calls_nothing_is_not_known(content: Any) -> None:
    message = {"role": "assistant", "content": content, "reasoning": "hm"}

    assert () == kept_under(message) == keys_of(message)


def test_a_reply_that_is_no_unicode_is_not_known() -> None:
    assert () == kept_under({"role": "assistant", "content": "\ud83d", "reasoning": "hm"})


DETAILS = [{"type": "reasoning.text", "text": "hm", "index": 0}]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "x", "reasoning": "hm \n"}, Reply("reasoning", "hm \n")),
        ({"content": "\n<think>hm</think>\nx"}, Reply("think", "\n<think>hm</think>\n")),
        (
            {"content": "x", "reasoning": "hm", "reasoning_details": DETAILS},
            Reply("reasoning", "hm", json.dumps(DETAILS, separators=(",", ":")).encode()),
        ),
        ({"tool_calls": TWO}, Reply("", "", b"", ('{"cmd": "ls"}', '{"cmd": 1.0}'))),
        ({"content": "x"}, None),
        ({"content": "x", "reasoning": ""}, None),
    ],
)
def test_what_clients_lose_is_kept(message: dict[str, Any], expected: Reply | None) -> None:
    assert expected == echo.reply_of(answered(message))


def test_only_a_whole_reply_is_kept() -> None:
    whole = Seen(reasoning="hm", carriers=("reasoning",), finish_reason="stop")

    assert Reply("reasoning", "hm") == echo.reply_of(whole)
    assert Reply("reasoning", "hm") == echo.reply_of(replace(whole, finish_reason="", done=True))
    for broken in ({"finish_reason": ""}, {"truncated": True}, {"error": "overloaded"}):
        assert echo.reply_of(replace(whole, **broken)) is None
