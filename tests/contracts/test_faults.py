"""Replies that break off, come coded or in odd forms, and echoes that are no plain echo: what an
upstream that holds to its contract receives then, over real sockets.

What was generated is put back where it is known for sure; where it is not, the message leaves with
an empty field, the same on every later turn, and no refusal reaches the client.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.core.turn import Turn
from proxy.doors import Doors
from proxy.keeping import Keeper
from proxy.ledger.contract import Kept
from proxy.relay import Watch, relay_watched
from proxy.tap import Tap
from tests.client import http_client
from tests.contracts.agents import CLIENTS, Message, assembled, tool_results
from tests.contracts.families import FAMILIES
from tests.contracts.replies import Step
from tests.contracts.strict import Strict
from tests.doors.scripted import Scripted, Wire
from tests.journey import provider
from tests.journey.provider import Answer, Came
from tests.journey.proxy_server import Running, running, settings_for

Way = Callable[[Wire, Answer], Awaitable[None]]
Echo = Callable[[Message], list[Message]]
LOSES = CLIENTS["openai-agents"].echo
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def thinks(number: int, text: str | None = None, *calls: tuple[str, str]) -> Step:
    """A step whose calls are of `bash`, each by its id and its arguments."""
    thought = f"T-{number}: “so”, slowly. \n"
    return Step(thought, text, tuple((id, "bash", arguments) for id, arguments in calls))


FIRST = thinks(1, "Looking.", ("c1", '{"command":  "ls -la"}'))
SECOND = thinks(2, None, ("c2", '{"command": "pwd", "most": 1e1}'))
THIRD = thinks(3, "All is well.")


# How an upstream gives its answer


async def plainly(wire: Wire, answer: Answer) -> None:
    await _given(wire, answer, b"".join(answer.chunks))


async def _given(
    wire: Wire, answer: Answer, raw: bytes, *headers: tuple[str, str], status: int | None = None
) -> None:
    kind = answer.headers.get("content-type", "application/json")
    await wire.head(status or answer.status, ("content-type", kind), *headers)
    await wire.chunk(raw)
    await wire.end()


def otherwise(change: Callable[[bytes], bytes]) -> Way:
    async def way(wire: Wire, answer: Answer) -> None:
        await _given(wire, answer, change(b"".join(answer.chunks)))

    return way


def until(mark: bytes) -> Way:
    """Cut off there."""

    async def way(wire: Wire, answer: Answer) -> None:
        kind = answer.headers.get("content-type", "application/json")
        await wire.head(200, ("content-type", kind))
        await wire.chunk(b"".join(answer.chunks).partition(mark)[0])
        wire.close()

    return way


async def coded(wire: Wire, answer: Answer) -> None:
    raw = gzip.compress(b"".join(answer.chunks))
    await _given(wire, answer, raw, ("content-encoding", "gzip"))


@dataclass(slots=True)
class Upstream:
    """Strict, with a way of its own to give the n-th answer. `bodies` are what it received."""

    strict: Strict
    ways: Mapping[int, Way] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, wire: Wire) -> None:
        request = wire.request
        number = len(self.bodies)
        self.bodies.append(request.body)
        headers = {name.decode(): value.decode() for name, value in request.headers}
        answer = self.strict(Came("POST", request.target, b"", headers, request.body))
        await self.ways.get(number, plainly)(wire, answer)

    @property
    def thoughts(self) -> list[list[str]]:
        """Of each request that came the reasoning of its assistant messages."""
        told = [json.loads(body)["messages"] for body in self.bodies]
        return [
            [row["reasoning_content"] for row in rows if row["role"] == "assistant"]
            for rows in told
        ]


@dataclass(frozen=True, slots=True)
class House:
    upstream: Upstream
    proxy: Running

    def talk(self, stream: bool, echo: Echo = LOSES, first: str = "Do it.") -> Talk:
        return Talk(self, stream, echo, [{"role": "user", "content": first}])

    @property
    def missed(self) -> int:
        return int(self.proxy.doors.observer.counts.numbers["lethe_echoes_missed_total"].get((), 0))


@asynccontextmanager
async def housed(
    folder: Path,
    script: Sequence[Step],
    ways: Mapping[int, Way] | None = None,
    family: str = "deepseek-v4",
    ledger: str = "",
) -> AsyncIterator[House]:
    upstream = Upstream(Strict(FAMILIES[family], script), ways or {})
    async with Scripted(upstream) as opened:
        file = folder / "lethe.toml"
        contract = f'contract = "{FAMILIES[family].contract}"'
        rows = ("[[upstream]]", f'url = "{opened.base}"', contract, "[ledger]", ledger)
        file.write_text("\n".join(rows))
        async with running(settings_for(opened.base, file)) as proxy:
            yield House(upstream, proxy)


@dataclass(slots=True)
class Talk:
    """A conversation by a client; `echo` is what it makes of a reply."""

    house: House
    stream: bool
    echo: Echo
    history: list[Message]

    async def ask(self, **headers: str) -> Message:
        body = {"model": "m", "messages": self.history, "stream": self.stream}
        named = {"authorization": "Bearer k", "x-lethe-policy": "keep"}
        given = {**named, "accept-encoding": "identity", **headers}
        async with http_client() as client:
            url = f"{self.house.proxy.url}/v1/chat/completions"
            reply = await client.post(url, json=body, headers=given)
        assert 200 == reply.status_code, reply.text
        return message_of(reply.text)

    async def step(self, **headers: str) -> Message:
        """One reply, sent back with the results of its calls."""
        message = await self.ask(**headers)
        self.history += [*self.echo(message), *tool_results(message)]
        return message

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.step()

    def says(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})


def message_of(text: str) -> Message:
    if not text.startswith("data:"):
        message: Message = json.loads(text)["choices"][0]["message"]
        return message
    events = [event[6:] for event in text.replace("\r\n", "\n").split("\n\n")]
    return assembled([json.loads(event) for event in events if '"choices"' in event])


# Replies


@BOTH
async def test_a_reply_that_broke_off_is_not_kept(tmp_path: Path, stream: bool) -> None:
    ways = {0: until(b'"finish_reason": "' if not stream else b'"finish_reason":"')}
    async with housed(tmp_path, (FIRST, SECOND, THIRD), ways) as house:
        talk = house.talk(stream)
        with pytest.raises(httpx.RemoteProtocolError):
            await talk.ask()
        await talk.steps(2)

    assert [[], [], [SECOND.reasoning]] == house.upstream.thoughts
    assert 0 == house.missed


@BOTH
async def test_the_half_of_a_reply_that_a_client_goes_on_with_stays_without_reasoning(
    tmp_path: Path, stream: bool
) -> None:
    ways = {0: until(b'"finish_reason": "' if not stream else b'"finish_reason":"')}
    async with housed(tmp_path, (FIRST, SECOND, THIRD), ways) as house:
        talk = house.talk(stream)
        with pytest.raises(httpx.RemoteProtocolError):
            await talk.ask()
        talk.history.append({"role": "assistant", "content": FIRST.text})
        talk.says("Go on.")
        await talk.steps(2)

    assert [[], [""], ["", SECOND.reasoning]] == house.upstream.thoughts
    assert 1 == house.missed


def _without_done(raw: bytes) -> bytes:
    return raw.replace(b"data: [DONE]\n\n", b"")


def _without_reason(raw: bytes) -> bytes:
    return raw.replace(b'"finish_reason":"', b'"finish_reason":null,"was":"')


def _with_error(raw: bytes) -> bytes:
    head, _, tail = raw.rpartition(b"data: [DONE]")
    return head + b'data: {"error":{"message":"out of memory","code":500}}\n\ndata: [DONE]' + tail


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (_without_done, True),
        (_without_reason, True),
        (lambda raw: _without_done(_without_reason(raw)), False),
        (_with_error, False),
        (lambda raw: raw.replace(b"\n", b"\r\n"), True),
        (lambda raw: raw.removesuffix(b"\n"), True),
    ],
    ids=["no [DONE]", "no reason", "neither", "an error in it", "CRLF", "half a blank line"],
)
async def test_a_stream_is_kept_where_it_says_in_any_way_that_it_is_whole(
    tmp_path: Path, change: Callable[[bytes], bytes], kept: bool
) -> None:
    async with housed(tmp_path, (FIRST, SECOND, THIRD), {0: otherwise(change)}) as house:
        talk = house.talk(True)
        await talk.steps(3)

    first = FIRST.reasoning if kept else ""
    assert [[], [first], [first, SECOND.reasoning]] == house.upstream.thoughts
    assert (not kept) == house.missed


@BOTH
@pytest.mark.parametrize("asked", [False, True], ids=["coded unasked", "coded as asked"])
async def test_a_coded_reply_is_kept(tmp_path: Path, stream: bool, asked: bool) -> None:
    ways = dict.fromkeys(range(3), coded)
    accepted = {"accept-encoding": "gzip"} if asked else {}
    async with housed(tmp_path, (FIRST, SECOND, THIRD), ways) as house:
        talk = house.talk(stream)
        for _ in range(3):
            await talk.step(**accepted)

    assert [[], [FIRST.reasoning], [FIRST.reasoning, SECOND.reasoning]] == house.upstream.thoughts
    assert 0 == house.missed


@BOTH
async def test_a_reply_that_the_ledger_has_no_room_for_is_a_miss_and_stays_one(
    tmp_path: Path, stream: bool
) -> None:
    large = Step("so much thought. " * 20_000, "Looking.", FIRST.calls)
    script = (large, SECOND, THIRD, THIRD)
    async with housed(tmp_path, script, ledger="max_bytes = 200_000") as house:
        talk = house.talk(stream)
        await talk.steps(3)
        talk.says("Again.")
        await talk.step()

    last = ["", SECOND.reasoning, THIRD.reasoning]
    assert [last[:count] for count in range(4)] == house.upstream.thoughts


# Echoes


@BOTH
async def test_a_reply_that_is_never_echoed_harms_no_other(tmp_path: Path, stream: bool) -> None:
    async with housed(tmp_path, (FIRST, SECOND, THIRD)) as house:
        talk = house.talk(stream)
        await talk.ask()
        talk.says("No: do something else.")
        await talk.steps(2)

    assert [[], [], [SECOND.reasoning]] == house.upstream.thoughts
    assert 0 == house.missed


@BOTH
async def test_a_reply_that_is_echoed_in_two_forks_is_put_back_in_both(
    tmp_path: Path, stream: bool
) -> None:
    async with housed(tmp_path, (FIRST, SECOND, THIRD, SECOND)) as house:
        one = house.talk(stream)
        await one.step()
        other = house.talk(stream)
        other.history = [*one.history[:-1], {**one.history[-1], "content": "another result"}]
        for talk in (one, other, one):
            await talk.step()

    first = FIRST.reasoning
    assert [[], [first], [first], [first, SECOND.reasoning]] == house.upstream.thoughts
    assert 0 == house.missed


def _split(message: Message) -> list[Message]:
    """The text in a message of its own before the calls."""
    (said,) = LOSES(message)
    if not said.get("tool_calls") or not said["content"]:
        return [said]
    return [{"role": "assistant", "content": said["content"]}, {**said, "content": ""}]


@BOTH
async def test_a_reply_that_is_echoed_in_two_messages_stays_without_reasoning(
    tmp_path: Path, stream: bool
) -> None:
    async with housed(tmp_path, (FIRST, SECOND, THIRD)) as house:
        await house.talk(stream, _split).steps(3)

    assert [[], ["", ""], ["", "", SECOND.reasoning]] == house.upstream.thoughts
    assert 2 == house.missed


def _renumbered(message: Message) -> list[Message]:
    """Under ids of its own."""
    (said,) = LOSES(message)
    calls = said.get("tool_calls") or ()
    for number, call in enumerate(calls):
        call["id"] = f"toolu_{call['function']['arguments'][13:16]}_{number}"
    return [said]


@BOTH
async def test_a_reply_whose_ids_are_rewritten_is_found_by_what_it_says(
    tmp_path: Path, stream: bool
) -> None:
    async with housed(tmp_path, (FIRST, SECOND, THIRD)) as house:
        await house.talk(stream, _renumbered).steps(3)

    assert [[], [FIRST.reasoning], [FIRST.reasoning, SECOND.reasoning]] == house.upstream.thoughts
    assert 0 == house.missed


def _edited(message: Message) -> list[Message]:
    """With another value in the arguments."""
    (said,) = LOSES(message)
    for call in said.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        call["function"]["arguments"] = arguments.replace("ls -la", "ls -l").replace("1e1", "10")
    return [said]


@BOTH
async def test_arguments_that_a_client_edited_are_what_was_said(
    tmp_path: Path, stream: bool
) -> None:
    """And nobody can say that the thought is the edited call's: ids repeat. It stays as it came,
    the field that has to be there empty.
    """
    async with housed(tmp_path, (FIRST, SECOND, THIRD), family="kimi-k2") as house:
        await house.talk(stream, _edited).steps(3)

    rows = json.loads(house.upstream.bodies[-1])["messages"]
    calls = [call["function"]["arguments"] for row in rows for call in row.get("tool_calls", ())]
    assert ['{"command":  "ls -l"}', '{"command": "pwd", "most": 10}'] == calls
    assert [[], [""], ["", ""]] == house.upstream.thoughts


# Ids and chains that repeat


def _first(number: int, arguments: str) -> Step:
    """As Kimi numbers its calls."""
    return thinks(number, None, ("functions.bash:0", arguments))


@BOTH
@pytest.mark.parametrize("firsts", [("Do it.", "Do that."), ("Do it.", "Do it.")])
async def test_the_same_id_names_another_reply_in_another_conversation(
    tmp_path: Path, firsts: tuple[str, str], stream: bool
) -> None:
    """Also where both began with the same words."""
    script = (_first(1, '{"command": "ls"}'), _first(2, '{"command": "pwd"}'), THIRD, THIRD)
    async with housed(tmp_path, script, family="kimi-k3") as house:
        talks = [house.talk(stream, first=first) for first in firsts]
        for _ in range(2):
            for talk in talks:
                await talk.step()

    assert [[], [], [script[0].reasoning], [script[1].reasoning]] == house.upstream.thoughts


@BOTH
async def test_of_two_replies_that_say_the_same_the_first_stands(
    tmp_path: Path, stream: bool
) -> None:
    script = (thinks(1, "Done."), thinks(2, "Done."), THIRD, THIRD)
    async with housed(tmp_path, script) as house:
        talks = [house.talk(stream) for _ in range(2)]
        for talk in talks:
            await talk.step()
        for talk in talks:
            talk.says("And now?")
            await talk.step()

    first = script[0].reasoning
    assert [[], [], [first], [first]] == house.upstream.thoughts


@BOTH
async def test_of_two_replies_that_say_the_same_under_ids_of_their_own_each_stands(
    tmp_path: Path, stream: bool
) -> None:
    script = (thinks(1, None, ("a1", "{}")), thinks(2, None, ("b1", "{}")), THIRD, THIRD)
    async with housed(tmp_path, script) as house:
        talks = [house.talk(stream) for _ in range(2)]
        for _ in range(2):
            for talk in talks:
                await talk.step()

    assert [[], [], [script[0].reasoning], [script[1].reasoning]] == house.upstream.thoughts


# When a reply is kept, however its bytes were cut


class Present:
    """A client that stays."""

    gone = False

    def when_gone(self, call: Callable[[], None] | None) -> None:
        pass


@dataclass(slots=True)
class Pieces:
    """A reply in these pieces. `early`: with its last one it is known to be over."""

    pieces: Sequence[bytes]
    early: bool = False
    ended: str | None = None

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        return self._given()

    async def _given(self) -> AsyncIterator[bytes]:
        for number, piece in enumerate(self.pieces, 1):
            if self.early and number == len(self.pieces):
                self.ended = "complete"
            yield piece
        self.ended = "complete"

    async def aclose(self) -> None:
        pass


@dataclass(slots=True)
class Scene:
    """What went to the client and into the ledger, in order: `sent` counts the bytes that a client
    had when a reply was kept.
    """

    doors: Doors
    turn: Turn
    out: bytes = b""
    over: bool = False
    kept: list[tuple[int, bool, Kept]] = field(default_factory=list)

    async def keep(self, kept: Kept) -> bool:
        self.kept.append((len(self.out), self.over, kept))
        return True

    async def send(self, message: Any) -> None:
        self.out += message.get("body", b"")
        self.over = self.over or message.get("more_body") is False

    async def relayed(self, reply: Pieces, headers: Mapping[bytes, bytes]) -> None:
        tap = Tap(200, headers)
        doors = replace(self.doors, ledger=self)  # type: ignore[arg-type]  # only `keep` is asked
        keeper = Keeper(doors, self.turn, tap, pytest.fail)
        watch = Watch(Present())
        await relay_watched(watch, self.send, reply, [], 200, tap, None, None, keeper)


@pytest.fixture
async def scene() -> AsyncIterator[Callable[[], Scene]]:
    body = b'{"model":"m","messages":[{"role":"user","content":"Do it."}]}'
    async with running(settings_for("http://127.0.0.1:9")) as proxy:
        it = proxy.doors.memo.read(body, b"scope")
        yield lambda: Scene(proxy.doors, it)


CALL = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": "{}"}}
STREAM = {b"content-type": b"text/event-stream"}
EVENTS = provider.stream(
    provider.chunk({"reasoning_content": "hm"}),
    provider.chunk({"content": "says \"finish_reason\": \"stop\""}),
    provider.chunk({"tool_calls": [CALL]}),
).chunks  # fmt: skip
END = len(b"".join(EVENTS[:4]))
"""Where the event is over that says why the reply ended."""


def cuts(raw: bytes) -> Iterator[tuple[bytes, ...]]:
    """In two, at every place; and in single bytes."""
    yield from ((raw[:at], raw[at:]) for at in range(1, len(raw)))
    yield tuple(raw[at : at + 1] for at in range(len(raw)))


async def test_a_stream_is_kept_before_its_end_can_be_seen(scene: Callable[[], Scene]) -> None:
    raw = b"".join(EVENTS)
    for pieces in cuts(raw):
        it = scene()
        await it.relayed(Pieces(pieces), STREAM)

        ((sent, over, kept),) = it.kept
        assert (raw, False) == (it.out, over)
        assert sent < END
        assert ("hm", ("{}",)) == (kept.reply.reasoning, kept.reply.arguments)


async def test_a_coded_stream_is_kept_before_its_end_can_be_seen(
    scene: Callable[[], Scene],
) -> None:
    coder = zlib.compressobj(wbits=31)
    rows = [coder.compress(row) + coder.flush(zlib.Z_SYNC_FLUSH) for row in EVENTS]
    raw = b"".join(rows) + coder.flush()
    for pieces in cuts(raw):
        it = scene()
        await it.relayed(Pieces(pieces), {**STREAM, b"content-encoding": b"gzip"})

        ((sent, _, kept),) = it.kept
        assert raw == it.out
        assert sent < len(b"".join(rows[:4]))
        assert "hm" == kept.reply.reasoning


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("coding", [b"", b"gzip"])
async def test_a_body_is_kept_before_it_is_over(
    scene: Callable[[], Scene], coding: bytes, early: bool
) -> None:
    (raw,) = provider.completion(reasoning_content="hm").chunks
    raw = gzip.compress(raw) if coding else raw
    for pieces in cuts(raw):
        it = scene()
        await it.relayed(Pieces(pieces, early), {b"content-encoding": coding})

        ((sent, over, kept),) = it.kept
        assert (raw, False) == (it.out, over)
        assert not early or sent < len(raw)
        assert "hm" == kept.reply.reasoning


def test_a_reason_that_is_empty_until_the_end_is_no_end() -> None:
    """Some gateways send one with every event."""
    rows = [row.replace(b'"finish_reason":null', b'"finish_reason":""') for row in EVENTS]
    tap = Tap(200, STREAM)
    tap.watch()
    told = []
    for row in rows:
        tap.feed(row)
        told.append(tap.ends)

    assert [False] * 3 + [True] * (len(rows) - 3) == told
