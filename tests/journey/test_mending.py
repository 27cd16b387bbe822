"""What a 400 teaches: a request that an upstream refused is written anew and sent once more, and
what helped is remembered.

The upstreams here have no contract. Each takes a request or refuses it, in words that providers and
the gateways before them are known to use.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from proxy import advising, writing
from proxy.app import bound, opened, serving
from proxy.core import dialect
from proxy.core.contract import Remedy
from proxy.core.dialect import Wire
from proxy.forwarding import LARGEST_ERROR, SEARCHED, Refused
from proxy.ledger.contract import Ask, Ledger, Settled
from proxy.ledger.scripts import Keys
from proxy.upstream import Reply
from tests.client import http_client
from tests.contracts import refusals
from tests.doors import redis_server as servers
from tests.doors.scripted import dialled
from tests.journey.provider import (
    Answer,
    Came,
    Provider,
    chunk,
    completion,
    event,
    providing,
    stream,
)
from tests.journey.proxy_server import Running, running, settings_for

Message = dict[str, Any]
Rows = Sequence[Message]
MODEL = "some-model"


def said(text: str | None = "Looking.", number: int = 0, **more: Any) -> Message:
    """An assistant message with a call, and whatever carries its reasoning."""
    function = {"name": "bash", "arguments": f'{{"cmd": "ls {number}"}}'}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": text, **more, "tool_calls": [call]}


def result(number: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": "Exit code 1\nError"}


def steps(count: int, first: str = "Do it.", **more: Any) -> list[Message]:
    rows: list[Message] = [{"role": "user", "content": first}]
    for number in range(count):
        rows += [said(None, number, **more), result(number)]
    return rows


BARE = steps(1)
THOUGHT = steps(1, reasoning_content="I think. ")


# What an upstream refuses

Refuses = Callable[[Rows], bool]


def lacks(rows: Rows) -> bool:
    """A field that has to be there is not."""
    return any(not isinstance(row.get("reasoning_content"), str) for row in _spoken(rows))


def has(rows: Rows) -> bool:
    """A field that must not be there is, be it empty."""
    return any("reasoning_content" in row for row in _spoken(rows))


def lost(rows: Rows) -> bool:
    """Reasoning that has to be there is not."""
    return any(not row.get("reasoning_content") for row in _spoken(rows))


def _spoken(rows: Rows) -> list[Message]:
    return [row for row in rows if row["role"] == "assistant"]


@dataclass(frozen=True, slots=True)
class Case:
    """What an upstream says, whom it refuses so, and a request with its policy that it refuses."""

    words: str
    refuses: Refuses
    remedy: Remedy
    asked: Rows
    policy: str = "keep"


EMPTY, RESTORE = (lacks, Remedy.EMPTY, BARE), (lacks, Remedy.RESTORE, BARE)
ABSENT, KEEP = (has, Remedy.ABSENT, THOUGHT), (lost, Remedy.KEEP, THOUGHT, "drop")
CASES = {
    "deepseek-v4": Case(refusals.V4_MISSING, *EMPTY),
    "mimo": Case(refusals.MIMO_MISSING, *EMPTY),
    "deepseek-v3.2": Case(refusals.V32_MISSING.format(index=96), *EMPTY),
    "kimi": Case(refusals.KIMI_MISSING.format(index=3), *EMPTY),
    "deepseek-anthropic": Case(
        "The `content[].thinking` in the thinking mode must be passed back to the API.", *RESTORE
    ),
    "claude-expected": Case(refusals.CLAUDE_EXPECTED.format(index=1), *RESTORE),
    "claude-modified": Case(refusals.CLAUDE_MODIFIED.format(index=1, at=0), *RESTORE),
    "claude-signature": Case(refusals.CLAUDE_SIGNATURE.format(index=1, at=0), *RESTORE),
    "claude-bound": Case(refusals.CLAUDE_BOUND.format(index=1, at=0), *KEEP),
    "gemini-missing": Case(refusals.GEMINI_MISSING.format(name="bash", index=2), *RESTORE),
    "gemini-invalid": Case(refusals.GEMINI_INVALID, *RESTORE),
    "gemini-corrupted": Case("Corrupted thought signature.", *RESTORE),
    "openai-encrypted": Case(refusals.OPENAI_ENCRYPTED.format(id="rs_1"), *ABSENT),
    "openai-code": Case("invalid_encrypted_content", *ABSENT),
    "openai-item": Case("Item with id 'rs_0a1b' not found. Items are not persisted.", *ABSENT),
    "deepseek-r1": Case(refusals.R1_PRESENT, *ABSENT),
    "groq": Case(refusals.GROQ_UNSUPPORTED.format(index=1), *ABSENT),
    "groq-model": Case("reasoning is not supported with this model", *ABSENT),
}


# In what shape it says so

Shape = Callable[[str], bytes]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def openai(words: str) -> bytes:
    return refusals.openai_error(words).body


def routed(words: str) -> bytes:
    """OpenRouter: the provider's own error as a text."""
    return refusals.routed_error(words, "Provider").body


def google(words: str) -> bytes:
    return refusals.google_error(words).body


def detail(words: str) -> bytes:
    """FastAPI."""
    return _json({"detail": words})


def told(words: str) -> bytes:
    """SiliconFlow."""
    return _json({"code": 20015, "message": words, "data": None})


def relayed(words: str) -> bytes:
    """LiteLLM, and whoever puts its own before the provider's whole body."""
    inner = json.dumps({"error": {"message": words, "type": "invalid_request_error"}})
    return openai(f"litellm.BadRequestError: SomeException - {inner}. Received Model Group=m")


def twice(words: str) -> bytes:
    """A gateway behind a gateway."""
    return openai(f"upstream: {json.dumps({'error': json.dumps({'message': words})})}")


def escaped(words: str) -> bytes:
    """.NET writes quotes and accents as escapes."""
    odd = {mark: f"\\u{ord(mark):04x}" for mark in "`'<>&+"}
    text = "".join(odd.get(letter, letter) for letter in json.dumps(words))
    return b'{"error":{"message":' + text.encode() + b"}}"


def bare(words: str) -> bytes:
    return words.encode()


def streamed(words: str) -> bytes:
    """An event, although it is no stream."""
    return b"data: " + _json({"error": {"message": words}}) + b"\n\n"


def openai_escaped(words: str) -> bytes:
    """Such a text behind another gateway."""
    return openai(escaped(words).decode())


SHAPES = (
    openai_escaped,
    openai,
    routed,
    google,
    detail,
    told,
    relayed,
    twice,
    escaped,
    bare,
    streamed,
)


# The scene


def answers(came: Came) -> Answer:
    message = {"reasoning_content": "I think. ", "tool_calls": said()["tool_calls"]}
    if not came.json().get("stream"):
        return completion("Looking.", **message)
    call = {"index": 0, **said()["tool_calls"][0]}
    return stream(
        chunk({"reasoning_content": "I think. "}),
        chunk({"content": "Looking."}),
        chunk({"tool_calls": [call]}),
    )  # fmt: skip


@dataclass(slots=True)
class Strict:
    """Refuses what `refuses` says, with `body`, as often as `most` allows."""

    refuses: Refuses
    body: bytes
    status: int = 400
    headers: Mapping[str, str] = field(default_factory=dict)
    refused: int = 0

    def __call__(self, came: Came) -> Answer:
        if not self.refuses(came.json()["messages"]):
            return answers(came)
        self.refused += 1
        return Answer(self.status, self.headers, (self.body,))


@dataclass(frozen=True, slots=True)
class Scene:
    provider: Provider
    proxy: Running
    log: Path

    async def ask(
        self, rows: Rows, policy: str = "keep", model: str = MODEL, **more: Any
    ) -> httpx.Response:
        return await ask(self.proxy, rows, policy, model, **more)

    @property
    def sent(self) -> list[Rows]:
        """The messages of each request that came."""
        return [came.json()["messages"] for came in self.provider.came]

    @property
    def statuses(self) -> list[int]:
        return [line["status"] for line in self.lines]

    @property
    def lines(self) -> list[Any]:
        self.proxy.doors.observer.write_lines(self.proxy.doors.observer.taken_lines())
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        numbers = self.proxy.doors.observer.counts.numbers[name]
        return {labels: count for labels, count in numbers.items() if count}


async def ask(
    proxy: Running, rows: Rows, policy: str = "keep", model: str = MODEL, **more: Any
) -> httpx.Response:
    headers = {"authorization": "Bearer sk-one", "x-lethe-policy": policy}
    async with http_client() as client:
        url = f"{proxy.url}/v1/chat/completions"
        body = {"model": model, "messages": rows, **more}
        return await client.post(url, json=body, headers=headers)


@asynccontextmanager
async def before(
    script: Callable[[Came], Answer], folder: Path, *keys: str, **options: Any
) -> AsyncIterator[Scene]:
    """The proxy before an upstream that nobody told it of."""
    async with providing(script) as provider:
        file, log = folder / "lethe.toml", folder / "log"
        file.write_text("\n".join(("[[upstream]]", f'url = "{provider.url}"', *keys)))
        async with running(settings_for(provider.url, file, log=str(log), **options)) as proxy:
            yield Scene(provider, proxy, log)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_refusal_in_known_words_is_mended_once(tmp_path: Path, case: Case) -> None:
    """In whatever shape the words come, each time with a model that nothing was learned of."""
    by_model = {shape.__name__: Strict(case.refuses, shape(case.words)) for shape in SHAPES}
    async with before(lambda came: by_model[came.json()["model"]](came), tmp_path) as scene:
        replies = {
            model: (await scene.ask(case.asked, case.policy, model)).status_code
            for model in by_model
        }
        lines, counted = scene.lines, scene.counted("lethe_mended_total")

    assert dict.fromkeys(by_model, 200) == replies
    assert dict.fromkeys(by_model, 1) == {name: it.refused for name, it in by_model.items()}
    assert 2 * len(SHAPES) == len(scene.sent)
    for line in lines:
        assert (case.remedy.value, True, 200) == (line["mended"], line["retried"], line["status"])
    assert {(case.remedy.value, "yes"): len(SHAPES)} == counted


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("kimi", {"reasoning_content": ""}),
        ("claude-expected", {"reasoning_content": ""}),
        ("deepseek-r1", {}),
        ("claude-bound", {"reasoning_content": "I think. "}),
    ],
)
async def test_what_helped_is_pinned_to_the_conversation(
    tmp_path: Path, name: str, field: Message
) -> None:
    """Its other turns meet no refusal, also where the lesson is forgotten, and only grow."""
    case = CASES[name]
    strict = Strict(case.refuses, openai(case.words))
    more = {k: v for k, v in case.asked[1].items() if k == "reasoning_content"}
    async with before(strict, tmp_path) as scene:
        doors = scene.proxy.doors
        await scene.ask(steps(1, **more), case.policy)
        doors.state.lessons.clear()
        await doors.ledger.learn(writing.names_of(doors.settings.upstreams[0], MODEL)[0], b"{}", 0)
        replies = [await scene.ask(steps(count, **more), case.policy) for count in (2, 3)]

    assert 1 == strict.refused
    assert ["extended"] * 2 == [reply.headers["x-lethe-prefix"] for reply in replies]
    assert [steps(count, **field) for count in (1, 2, 3)] == scene.sent[1:]


async def test_a_lesson_is_for_new_conversations_of_the_same_model(tmp_path: Path) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path) as scene:
        for first, model in (("a", "one"), ("b", "one"), ("c", "other"), ("d", "other")):
            assert 200 == (await scene.ask(steps(1, first), model=model)).status_code
        told = [
            (it.json()["model"], it.json()["messages"][0]["content"]) for it in scene.provider.came
        ]

    assert 2 == strict.refused
    assert [("one", "a")] * 2 + [("one", "b")] + [("other", "c")] * 2 + [("other", "d")] == told


@pytest.mark.parametrize(("seconds", "refused"), [(60.0, 0), (0.0, 1)])
async def test_a_lesson_expires(tmp_path: Path, seconds: float, refused: int) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path) as scene:
        doors = scene.proxy.doors
        name = writing.names_of(doors.settings.upstreams[0], MODEL)[0]
        lesson = dialect.packed(dialect.mended(Wire(), Remedy.EMPTY))
        await doors.ledger.learn(name, lesson, seconds)
        await scene.ask(BARE)

    assert refused == strict.refused


@pytest.mark.parametrize("value", [b"\xff", b"{}", b'{"encoding":"a later one"}'])
async def test_a_lesson_that_cannot_be_read_teaches_nothing(tmp_path: Path, value: bytes) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path) as scene:
        doors = scene.proxy.doors
        await doors.ledger.learn(writing.names_of(doors.settings.upstreams[0], MODEL)[0], value, 60)
        replies = [await scene.ask(steps(count)) for count in (1, 2)]

    assert ([200, 200], 1) == ([reply.status_code for reply in replies], strict.refused)


async def test_another_worker_knows_the_pin_and_the_lesson(tmp_path: Path) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    with servers.running(servers.valkey()) as store:
        async with before(strict, tmp_path, redis=store.url) as scene:
            async with running(scene.proxy.doors.settings) as other:
                await ask(scene.proxy, steps(1))
                for count in (2, 3):
                    assert 200 == (await ask(other, steps(count))).status_code
                assert 200 == (await ask(other, steps(1, "Do that."))).status_code
        first = writing.names_of(scene.proxy.doors.settings.upstreams[0], MODEL)[0]
        lasts = int(store.ask("PTTL", Keys().lesson(first)).removeprefix(b":"))

    assert 1 == strict.refused
    assert [steps(count, reasoning_content="") for count in (1, 2, 3)] == scene.sent[1:4]
    assert 0 < lasts <= writing.LESSON_SECONDS * 1000


async def test_a_worker_that_knew_the_first_pin_writes_as_the_one_that_was_refused(
    tmp_path: Path,
) -> None:
    """It is refused itself, and asks what the other one has found to help."""
    strict = Strict(lambda rows: len(rows) > 4 and lacks(rows), openai(refusals.V4_MISSING))
    with servers.running(servers.valkey()) as store:
        async with before(strict, tmp_path, redis=store.url) as scene:
            async with running(scene.proxy.doors.settings) as other:
                for count, proxy in ((1, other), (2, scene.proxy), (3, other), (4, other)):
                    words = refusals.R1_PRESENT if proxy is other else refusals.V4_MISSING
                    strict.body = openai(words)
                    assert 200 == (await ask(proxy, steps(count))).status_code

    mended = [steps(count, reasoning_content="") for count in (2, 3, 4)]
    assert [steps(1), steps(2), mended[0], steps(3), *mended[1:]] == scene.sent


async def test_a_worker_that_missed_the_lesson_puts_back_what_the_pin_says(
    tmp_path: Path,
) -> None:
    """What the other one learned is asked for once a minute; the pin is asked for at once."""
    strict = Strict(lacks, openai(CASES["claude-expected"].words))
    with servers.running(servers.valkey()) as store:
        async with before(strict, tmp_path, redis=store.url) as scene:
            async with running(scene.proxy.doors.settings) as other:
                other.doors.state.lessons["default", MODEL] = (other.doors.ticks(), None)
                await scene.ask(BARE)
                await ask(other, [*BARE, said(), result()])
        told = [row.get("reasoning_content") for row in _spoken(scene.sent[-1])]

    assert 1 == strict.refused
    assert ["", "I think. "] == told


# What is not mended


async def test_what_does_not_help_is_tried_once_and_the_second_answer_passes(
    tmp_path: Path,
) -> None:
    """Nothing is learned of it: the next conversation begins as this one did."""
    numbers = iter(range(9))

    def never(came: Came) -> Answer:
        body = openai(f"{refusals.V4_MISSING} ({next(numbers)})")
        return Answer(400, {"x-number": "n"}, (body,))

    async with before(never, tmp_path) as scene:
        replies = [await scene.ask(steps(1, first)) for first in ("a", "b")]
        counted, lines = scene.counted("lethe_mended_total"), scene.lines

    assert [400, 400] == [reply.status_code for reply in replies]
    assert [f"({number})" in replies[number // 2].text for number in (1, 3)] == [True, True]
    assert [
        steps(1, f, **more) for f in "ab" for more in ({}, {"reasoning_content": ""})
    ] == scene.sent
    assert {("empty", "no"): 2} == counted
    assert ["empty", "empty"] == [line["mended"] for line in lines]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_another_failure_is_no_sign_that_it_helped(tmp_path: Path, status: int) -> None:
    """An upstream in trouble over the mended request: the client gets the refusal, since it would
    only repeat the other.
    """
    strict = Strict(lacks, openai(refusals.V4_MISSING))

    def fails(came: Came) -> Answer:
        answer = strict(came)
        return answer if answer.status == 400 else Answer(status, chunks=(b"{}",))

    async with before(fails, tmp_path) as scene:
        replies = [await scene.ask(steps(1, first)) for first in ("a", "b")]

    told = 400 if status >= 500 else status
    assert [told] * 2 == [reply.status_code for reply in replies]
    assert 2 == strict.refused


async def raw(proxy: Running, rows: Rows, **more: Any) -> tuple[httpx.Response, bytes]:
    """The reply and its bytes as they came."""
    async with http_client() as client:
        url, body = f"{proxy.url}/v1/chat/completions", {"model": MODEL, "messages": rows, **more}
        async with client.stream("POST", url, json=body) as reply:
            return reply, b"".join([piece async for piece in reply.aiter_raw()])


PLAIN = {
    "content-type": "application/json; charset=utf-8",
    "x-request-id": "r-1",
    "retry-after": "3",
}
UNKNOWN = b'{"error": {"message":  "max_tokens is too large", "odd":\\u0060}}\n'
LARGE = b'{"error": "' + b"x" * 200_000 + b'"}'


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("body", [UNKNOWN, LARGE, b""], ids=["unknown", "large", "empty"])
async def test_a_refusal_that_nobody_knows_passes_as_it_is(
    tmp_path: Path, body: bytes, coded: bool, status: int
) -> None:
    body = gzip.compress(body) if coded else body
    headers = {**PLAIN, "content-length": str(len(body))}
    headers |= {"content-encoding": "gzip"} if coded else {}
    chunks = (body[:100], body[100:50_000], body[50_000:])
    async with before(lambda came: Answer(status, headers, chunks), tmp_path) as scene:
        reply, came = await raw(scene.proxy, BARE)

    assert (status, body) == (reply.status_code, came)
    assert headers == {name: reply.headers[name] for name in headers}
    assert 1 == len(scene.sent)


async def test_a_coded_refusal_is_understood(tmp_path: Path) -> None:
    body = gzip.compress(openai(refusals.V4_MISSING))
    strict = Strict(lacks, body, headers={"content-encoding": "gzip"})
    async with before(strict, tmp_path) as scene:
        reply = await scene.ask(BARE)

    assert (200, 1) == (reply.status_code, strict.refused)


LETTERS = {"plain": b"xx", "quoted": b'x\\"', "escaped": b"x\\u0060", "wide": "xä".encode()}
"""Two letters, as a body may spell them."""


@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
@pytest.mark.parametrize(("before_them", "mended"), [(SEARCHED - 200, True), (SEARCHED, False)])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "gzip"])
async def test_known_words_are_sought_at_the_beginning_of_what_a_refusal_says(
    tmp_path: Path, letters: bytes, before_them: int, mended: bool, coded: bool
) -> None:
    body = b'{"odd":"%b","why":"%b"}' % (letters * (before_them // 2), refusals.V4_MISSING.encode())
    headers = {"content-encoding": "gzip"} if coded else {}
    strict = Strict(lacks, gzip.compress(body) if coded else body, headers=headers)
    async with before(strict, tmp_path) as scene:
        reply = await scene.ask(BARE)

    assert 1 == strict.refused
    assert (200 if mended else 400) == reply.status_code
    assert mended or body == reply.content


HOSTILE = {
    "starts": b"messagesreasoning'" * 3_600,
    "backslashes": b"\\" * LARGEST_ERROR,
    "escapes": b"\\u0022" * 10_900,
    "letters": "ä".encode() * 32_000,
    "odd bytes": b"\xff" * LARGEST_ERROR,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("coding", [b"", b"gzip"])
def test_no_more_of_a_refusal_is_searched_than_a_bound(body: bytes, coding: bytes) -> None:
    """Patterns may take time by the square of what they search, and the loop waits for them."""
    reply = SimpleNamespace(status=400, headers=[(b"content-encoding", coding)])
    refused = Refused(cast(Reply, reply), [gzip.compress(body) if coding else body])

    assert SEARCHED >= len(refused.text()) > 0


async def test_where_nothing_may_be_changed_nothing_is_mended(tmp_path: Path) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path) as scene:
        reply = await scene.ask(BARE, "off")
        counted = scene.counted("lethe_mended_total")

    assert (400, openai(refusals.V4_MISSING)) == (reply.status_code, reply.content)
    assert [BARE] == scene.sent
    assert {} == counted


async def test_a_refusal_of_what_could_not_be_read_passes(tmp_path: Path) -> None:
    body = openai(refusals.V4_MISSING)
    async with before(lambda came: Answer(400, chunks=(body,)), tmp_path) as scene:
        async with http_client() as client:
            url = f"{scene.proxy.url}/v1/chat/completions"
            reply = await client.post(url, content=b"[1, 2")

    assert (400, body, 1) == (reply.status_code, reply.content, len(scene.provider.came))


async def test_a_request_that_the_remedy_does_not_change_is_not_sent_again(
    tmp_path: Path,
) -> None:
    body = openai(refusals.V4_MISSING)
    async with before(lambda came: Answer(400, chunks=(body,)), tmp_path) as scene:
        reply = await scene.ask(steps(1, reasoning_content="hm"))

    assert (400, body, 1) == (reply.status_code, reply.content, len(scene.sent))


# Streams


async def test_a_stream_that_was_refused_is_mended(tmp_path: Path) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path) as scene:
        reply = await scene.ask(BARE, stream=True)

    assert (200, 1) == (reply.status_code, strict.refused)
    assert reply.text.endswith("data: [DONE]\n\n")
    assert '"usage":{' not in reply.text


async def test_a_stream_that_has_begun_is_never_sent_again(tmp_path: Path) -> None:
    told = event({"error": {"message": refusals.V4_MISSING, "code": 400}})
    answer = stream(chunk({"content": "Lo"}), told)
    async with before(lambda came: answer, tmp_path) as scene:
        reply = await scene.ask(BARE, stream=True, stream_options={"include_usage": True})
        counted = scene.counted("lethe_mended_total")

    assert b"".join(answer.chunks) == reply.content
    assert 1 == len(scene.sent)
    assert {} == counted


@dataclass(slots=True)
class NoUsage:
    """Refuses `stream_options`, and, if it is `strict`, messages without reasoning."""

    strict: bool = False
    asked: list[bool] = field(default_factory=list)

    def __call__(self, came: Came) -> Answer:
        body = came.json()
        self.asked.append("stream_options" in body)
        if self.asked[-1]:
            return Answer(400, chunks=(openai("Unknown parameter: stream_options"),))
        if self.strict and lacks(body["messages"]):
            return Answer(400, chunks=(openai(refusals.V4_MISSING),))
        return answers(came)


async def test_usage_that_is_refused_is_not_asked_for_again(tmp_path: Path) -> None:
    upstream = NoUsage()
    async with before(upstream, tmp_path) as scene:
        replies = [await scene.ask(steps(1, first), stream=True) for first in ("a", "b")]
        lines = scene.lines

    assert [200, 200] == [reply.status_code for reply in replies]
    assert [True, False, False] == upstream.asked
    assert [True, False] == [line.get("retried", False) for line in lines]


async def test_a_second_refusal_is_the_answer_whatever_it_is_of(tmp_path: Path) -> None:
    upstream = NoUsage(strict=True)
    async with before(upstream, tmp_path) as scene:
        reply = await scene.ask(BARE, stream=True)

    assert (400, openai(refusals.V4_MISSING)) == (reply.status_code, reply.content)
    assert [True, False] == upstream.asked


# What it breaks, and what is said of it


async def test_the_one_rewrite_is_told_as_our_own(tmp_path: Path) -> None:
    """The upstream took what was dropped until it minded."""
    case = CASES["claude-bound"]
    strict = Strict(lambda rows: len(rows) > 4 and lost(rows), openai(case.words))
    async with before(strict, tmp_path) as scene:
        rows = [steps(count, reasoning_content="I think. ") for count in (1, 2, 3)]
        replies = [await scene.ask(row, "drop") for row in rows]
        line = scene.lines[1]

    assert [rows[1], rows[2]] == scene.sent[2:]
    told = [reply.headers["x-lethe-prefix"] for reply in replies]
    assert ["cold_start", "broken; cause=self", "extended"] == told
    assert "proxy" == line["prefix"]["by"]


def advice(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if " refused, for " in line]


@pytest.mark.parametrize("name", ["kimi", "claude-expected", "deepseek-r1", "claude-bound"])
async def test_what_to_write_down_is_told_once_and_then_no_request_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    case = CASES[name]
    strict = Strict(case.refuses, openai(case.words))
    async with before(strict, tmp_path) as scene:
        for first in ("a", "b"):
            rows = [{"role": "user", "content": first}, *case.asked[1:]]
            scene.proxy.doors.state.lessons.clear()
            await scene.proxy.doors.ledger.learn(
                writing.names_of(scene.proxy.doors.settings.upstreams[0], MODEL)[0], b"", 0
            )
            await scene.ask(rows, case.policy)
    (line,) = advice(capsys)
    row = line.partition("[[contract]] ")[2]

    assert line.startswith(f'lethe: upstream default refused, for model "{MODEL}" under contract')
    own = tmp_path / "own.toml"
    own.write_text(f"contract = [{{ {row} }}]\n")
    async with before(strict, tmp_path, providers=str(own)) as scene:
        reply = await scene.ask(case.asked, case.policy)

    assert (200, 2, 1) == (reply.status_code, strict.refused, len(scene.sent))


async def test_each_model_is_told_of_by_a_name_in_ascii(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    names = ("one", "modèle\n\x1b[2J", "m" * 500)
    async with before(strict, tmp_path) as scene:
        for model in names:
            await scene.ask(BARE, model=model)
    told = advice(capsys)

    assert ["one", "mod\\u00e8le\\n\\u001b[2J", "m" * 100] == [
        line.partition('for model "')[2].partition('" under')[0] for line in told
    ]


async def test_so_many_models_are_told_of_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path) as scene:
        scene.proxy.doors.state.told.update(map(str, range(advising.MOST_TOLD - 1)))
        for model in ("one", "other"):
            await scene.ask(BARE, model=model)

    assert 1 == len(advice(capsys))


async def test_a_named_contract_is_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = Strict(lacks, openai(refusals.V4_MISSING))
    async with before(strict, tmp_path, 'contract = "llama.cpp"') as scene:
        await scene.ask(BARE)
    (line,) = advice(capsys)

    assert line.endswith('[[contract]] name = "llama.cpp", requires = "every"')


async def test_refused_usage_is_told_of_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with before(NoUsage(), tmp_path) as scene:
        for model in ("one", "other"):
            await scene.ask(BARE, model=model, stream=True)
            scene.proxy.doors.state.refuses_usage.clear()
    (line,) = advice(capsys)

    assert line.endswith('stream_usage = "refused"')


# A client that leaves


@dataclass(slots=True)
class Slow:
    """A ledger that never comes to an end with what is pinned after a refusal; all else it hands
    on.
    """

    ledger: Ledger
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    only: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    async def settle(self, asked: Ask) -> Settled:
        mended = [value for name, value in asked.pins.items() if name.startswith("mended:")]
        if len(asked.pins) == len(mended) == 1 and (mended[0] is None) is self.only:
            self.begun.set()
            await asyncio.Event().wait()
        return await self.ledger.settle(asked)


@pytest.mark.parametrize("only", [True, False], ids=["while it is mended", "while it is learned"])
async def test_a_client_that_leaves_meanwhile_frees_the_upstream(
    tmp_path: Path, only: bool
) -> None:
    paused = replace(completion(), chunks=(b" ", *completion().chunks), pause=10.0)
    strict = Strict(lacks, openai(refusals.V4_MISSING))

    def script(came: Came) -> Answer:
        answer = strict(came)
        return answer if answer.status == 400 else paused

    async with providing(script) as provider:
        main, admin = bound("127.0.0.1", 0), bound("127.0.0.1", 0)
        async with opened(settings_for(provider.url)) as doors:
            slow = Slow(doors.ledger, only=only)
            doors = replace(doors, ledger=cast(Ledger, slow))
            async with serving(doors, main, admin), dialled(main.getsockname()[1]) as line:
                body = json.dumps({"model": MODEL, "messages": BARE}).encode()
                await line.ask("POST", "/v1/chat/completions", body=body)
                await slow.begun.wait()
                line.leave()
                await until(lambda: not doors.observer.in_flight)
                if not only:
                    await until(lambda: bool(provider.left))
        main.close()
        admin.close()

    assert (["gone"] if not only else []) == provider.left
    assert 2 - only == len(provider.came)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.005)
