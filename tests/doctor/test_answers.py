"""Answers are values whatever came, and no provider's word carries a key."""

from __future__ import annotations

import json

import pytest

from proxy.doctor.answers import MOST_WORDS, Answer, read, read_models

REPLY = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


def answered(body: bytes, status: int = 200, kind: str = "application/json") -> Answer:
    return read(status, kind, body, streamed=False, key="sk-geheim")


def test_a_reply_has_its_counts_and_its_message() -> None:
    answer = answered(json.dumps(REPLY).encode())

    assert answer.ok
    assert (7, 2, None) == (answer.prompt, answer.generated, answer.cached)
    assert {"role": "assistant", "content": "hi"} == answer.message
    assert answer.usage


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "no\\n such\\tmodel"}}', "no such model"),
        (b'[{"error": {"message": "wrapped"}}]', "wrapped"),
        (b'{"error": "a text"}', "a text"),
        (b'{"message": "on top"}', "on top"),
        (b'{"detail": "as FastAPI"}', "as FastAPI"),
        (b'{"detail": [{"loc": 1}]}', ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_a_refusal_s_words_are_found(body: bytes, said: str) -> None:
    answer = answered(body, 400)

    assert answer.refused
    assert said == answer.said
    assert answer.why.startswith("status 400")


def test_a_key_that_is_repeated_is_masked() -> None:
    answer = answered(b'{"error": {"message": "bad key sk-geheim, sk-geheim"}}', 400)

    assert "bad key …, …" == answer.said


def test_words_are_clipped() -> None:
    body = json.dumps({"error": {"message": "x" * 5000}}).encode()

    assert MOST_WORDS == len(answered(body, 400).said)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
def test_not_every_error_is_about_what_was_asked(status: int) -> None:
    assert not answered(b"{}", status).refused


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        (b"<!doctype html>", "HTML that is no JSON (15 bytes)"),
        (b"", "something that is no JSON (0 bytes)"),
        (b'{"choices": [', "JSON that was cut short"),
        (b'{"choices": []}', "a JSON object that is no chat completion"),
        (b'{"choices": [7]}', "a JSON object that is no chat completion"),
        (b'{"choices": [{"message": "text"}]}', "a JSON object that is no chat completion"),
    ],
)
def test_garbage_is_told_for_what_it_is(body: bytes, trouble: str) -> None:
    answer = answered(body)

    assert not answer.ok
    assert trouble == answer.why
    assert answer.prompt is None


def test_a_stream_is_read_with_its_usage() -> None:
    body = (
        b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n'
        b"data: [DONE]\n\n"
    )
    answer = read(200, "text/event-stream", body, streamed=True, key="")

    assert answer.ok
    assert answer.streamed
    assert answer.usage
    assert (5, ("reasoning",)) == (answer.prompt, answer.seen.carriers)


def test_counts_beside_a_usage_object_are_no_usage_object() -> None:
    body = b'data: {"choices":[{"finish_reason":"stop"}],"timings":{"cache_n":1,"prompt_n":2}}\n\n'
    answer = read(200, "text/event-stream", body, streamed=True, key="")

    assert (3, False) == (answer.prompt, answer.usage)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b": ping\n\n", "a stream in which nothing could be read"),
        (b'data: {"error": {"code": "overloaded"}}\n\n', "an error inside the stream: overloaded"),
    ],
)
def test_a_stream_without_a_reply_is_trouble(body: bytes, why: str) -> None:
    answer = read(200, "text/event-stream", body, streamed=True, key="")

    assert (False, why) == (answer.ok, answer.why)


def test_a_body_where_a_stream_was_asked_for_is_a_reply() -> None:
    answer = read(200, "application/json", json.dumps(REPLY).encode(), streamed=True, key="")

    assert (True, False) == (answer.ok, answer.streamed)


@pytest.mark.parametrize(
    ("body", "ids", "owner"),
    [
        (b'{"data": [{"id": "a", "owned_by": "x"}, {"id": "m", "owned_by": "y"}]}', 2, "y"),
        (b'{"data": [{"id": "a", "owned_by": "x"}]}', 1, "x"),
        (b'[{"id": "m", "owned_by": 7}, 5]', 1, ""),
        (b'{"data": []}', 0, ""),
    ],
)
def test_lists_of_models_in_several_shapes(body: bytes, ids: int, owner: str) -> None:
    listed = read_models(200, body, "m")

    assert listed.answer.ok
    assert (ids, owner) == (len(listed.ids), listed.owned_by)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"<html>", "an answer that is no list of models"),
        (200, b'{"data": 5}', "an answer that is no list of models"),
        (404, b"{}", "status 404"),
        (301, b"", "status 301: this URL leads elsewhere"),
    ],
)
def test_what_is_no_list_of_models_is_told(status: int, body: bytes, why: str) -> None:
    assert why == read_models(status, body, "m").answer.why
