"""The laws where messages leave in forms of their own: what was lost is put back, what was written
anew is repaired, and yet what leaves only grows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import prune, writing
from proxy.app import opened
from proxy.core import reasoning, turn
from proxy.core.dialect import Wire
from proxy.core.form import Shape
from proxy.core.prefix import Cause
from proxy.core.replies import Reply
from proxy.core.thought import Thought
from proxy.core.turn import Sealed, Turn
from proxy.core.usage import Usage
from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.doors import Doors, State
from proxy.forms import Forms
from proxy.keeping import Keeper
from proxy.keys import Caller
from proxy.ledger.in_memory import InMemory, Options
from proxy.memo import Memo
from proxy.settings import Settings, UpstreamSettings
from proxy.tap import Tap
from tests.core import test_form as forms
from tests.laws import checks, reading
from tests.laws import histories as made
from tests.laws.histories import History, histories
from tests.laws.pipeline import SCOPE

# Any wire, any verdicts, any replies


class Hand(NamedTuple):
    """What one request is written by: verdicts and replies by step, and a wire."""

    verdicts: Sequence[Verdict | None]
    replies: Sequence[Reply | None]
    wire: Wire

    def writes(self, body: bytes) -> Sealed:
        """The request as it leaves, one worker's memory of forms aside."""
        it = turn.read(body, SCOPE)
        standing = {at: v for at, v in enumerate(self.verdicts[: len(it.steps)]) if v is not None}
        return turn.seal(it, standing, (), None, shapes=self.shapes(it, standing))

    def shapes(self, it: Turn, standing: Mapping[int, Verdict]) -> dict[int, Shape]:
        links = [it.messages[step.first].link for step in it.steps]
        known = dict(zip(links, self.replies, strict=False))
        return writing.shapes(_forms(), it, standing, self.wire, known)


def _forms() -> Any:
    """The only door that writing a message goes through."""

    @dataclasses.dataclass
    class OnlyForms:
        forms: Forms

    return OnlyForms(Forms(7))


_texts = made.thoughts | st.just("thought \n")
_replies = st.builds(Reply, st.sampled_from(reasoning.STRING_CARRIERS), _texts) | st.builds(
    lambda text: Reply("think", f"<think>{text}</think>\n"), made.inner_thoughts
)
_verdicts = st.sampled_from((KEEP, DROP, None, Verdict(Kind.REPLACE, "short")))
hands = st.builds(
    Hand,
    st.lists(_verdicts, min_size=8, max_size=8),
    st.lists(_replies | st.none(), min_size=8, max_size=8),
    forms.wires,
)


@given(histories(), hands)
def test_what_is_written_only_grows(history: History, hand: Hand) -> None:
    sent = [hand.writes(body) for body in history.bodies()]

    for shorter, longer in zip(sent, sent[1:], strict=False):
        checks.extends(shorter, longer)


@given(histories(), hands)
def test_only_reasoning_is_written(history: History, hand: Hand) -> None:
    body = history.bodies()[-1]

    came, left = reading.decoded(body), reading.decoded(hand.writes(body).body)

    assert [pair for pair in came.items() if pair[0] != "messages"] == [
        pair for pair in left.items() if pair[0] != "messages"
    ]
    for one, other in zip(came["messages"], left["messages"], strict=True):
        assert forms.said(one, loose=True) == forms.said(other, loose=True)


@given(histories(max_steps=3), hands, hands)
def test_an_element_is_another_exactly_where_another_prompt_is_rendered(
    history: History, hand: Hand, other: Hand
) -> None:
    body = history.bodies()[-1]

    one, two = hand.writes(body), other.writes(body)

    rows = [reading.decoded(sealed.body)["messages"] for sealed in (one, two)]
    leading = len(rows[0]) - len(one.elements)
    for at, (a, b) in enumerate(zip(one.elements, two.elements, strict=True)):
        same = [reading.rendered(row[leading + at]) for row in rows]
        assert (a.digest == b.digest) is (same[0] == same[1])


@given(histories(), hands)
def test_what_was_written_is_written_again_as_it_is(history: History, hand: Hand) -> None:
    once = hand.writes(history.bodies()[-1])

    assert once.body == hand.writes(once.body).body


# Whole conversations, two workers on one ledger

CALLER = Caller(SCOPE, "", None, True)
UPSTREAMS: Mapping[str, Any] = {
    "deepseek-v4": {"contract": "deepseek-v4"},
    "kimi-k3": {"contract": "kimi-k3"},
    "sglang": {"contract": "sglang"},
    "llama.cpp": {"contract": "llama.cpp"},
    "ollama": {"contract": "ollama"},
    "vllm": {"contract": "vllm"},
    "openrouter": {"contract": "openrouter-deepseek"},
    "minimax": {"contract": "minimax", "restore": "always"},
    "mistral": {"contract": "mistral", "restore": "always"},
    "cerebras": {"contract": "cerebras-glm", "restore": "always"},
    "unknown": {"detect": False, "restore": "always"},
    "as sent": {"contract": "vllm", "carrier": "as_sent"},
}
BOUND = {
    "openrouter-claude": {"contract": "openrouter-claude"},
    "openrouter-claude-bound": {"contract": "openrouter-claude-bound"},
}
ONE_CARRIER = ("deepseek-v4", "kimi-k3", "llama.cpp", "ollama")


@functools.cache
def house(name: str) -> Doors:
    """Doors of an upstream; nothing goes out through them."""

    async def opening() -> Doors:
        up = UpstreamSettings(url="http://127.0.0.1:9", **{**UPSTREAMS, **BOUND}[name])
        async with opened(Settings(upstreams=(up,), log="off")) as doors:
            return doors

    return asyncio.run(opening())


def two_workers(name: str) -> list[Doors]:
    ledger = InMemory(Options(), lambda: 1.0)
    return [
        dataclasses.replace(
            house(name), ledger=ledger, memo=Memo(seed, 1 << 20), forms=Forms(seed), state=State()
        )
        for seed in (7, 8)
    ]


Message = dict[str, Any]
Habit = Callable[[Message, str], Message]
"""What a client makes of a message and the reasoning in it."""


def _with(message: Message, **more: Any) -> Message:
    return {**message, **more}


def _in_text(message: Message, text: str) -> Message:
    return _with(message, content=f"<think>{text}</think>{message['content'] or ''}")


def _in_parts(message: Message, text: str) -> Message:
    said = [{"type": "text", "text": message["content"]}] if message["content"] else []
    return _with(message, content=[made.thinking(text), *said])


LOSES: Mapping[str, Habit] = {
    "strips": lambda message, text: message,
    "empties": lambda message, text: _with(message, reasoning_content=""),
    "nulls": lambda message, text: _with(message, reasoning_content=None, reasoning=None),
    "trims": lambda message, text: _with(message, reasoning_content=text.strip()),
    "renames": lambda message, text: _with(message, reasoning=text),
    "mirrors": lambda message, text: _with(message, reasoning_content=text),
    "doubles": lambda message, text: _with(
        message, reasoning_content=text.rstrip(), reasoning=text.rstrip()
    ),
    "itemises": lambda message, text: _with(
        message, reasoning_details=[{"type": "reasoning.text", "text": text}]
    ),
    "says aloud": _in_text,
    "makes parts": _in_parts,
    "rewords": lambda message, text: _with(message, reasoning_content="In short: " + text[:3]),
}
SPELLS: Mapping[str, Callable[[str], str]] = {
    "as it came": lambda text: text,
    "compact": lambda text: json.dumps(json.loads(text), separators=(",", ":")),
    "pythonic": lambda text: json.dumps(json.loads(text), ensure_ascii=False),
}
EMPTIES = (None, "")


class Generated(NamedTuple):
    """One reply of a provider, and what comes after it."""

    message: Message
    thought: str
    after: tuple[Message, ...]


class Client(NamedTuple):
    """`loses` is what it does to reasoning, turn by turn: one habit, or one after the other."""

    loses: Sequence[Habit]
    spells: Callable[[str], str]
    nothing: str | None

    def echo(self, it: Generated, when: int) -> Message:
        message = dict(it.message)
        if "tool_calls" in message:
            message["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        message["content"] = message["content"] or self.nothing
        return self.loses[when % len(self.loses)](message, it.thought)

    def _call(self, call: Message) -> Message:
        function = call["function"]
        return _with(call, function=_with(function, arguments=self.spells(function["arguments"])))

    def body(self, rows: Sequence[Generated], when: int) -> bytes:
        history: list[Message] = [{"role": "user", "content": "go"}]
        for it in rows:
            history += [self.echo(it, when), *it.after]
        return json.dumps({"model": "m", "messages": history}).encode()


_said = st.sampled_from(("done", "It says:\n  1\n", "é 😀", "{}"))
_commands = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9) | made.texts, max_size=2)


@st.composite
def generated(draw: st.DrawFn, at: int) -> Generated:
    """A reply with calls or a text, so that an echo finds it."""
    calls = [
        {
            "id": f"functions.bash:{number}",
            "type": "function",
            "function": {
                "name": "bash",
                "arguments": json.dumps(draw(_commands), separators=(" , ", " :")),
            },
        }
        for number in range(draw(st.integers(0, 2)))
    ]
    text = draw(_said) if not calls else draw(_said | st.sampled_from(EMPTIES))
    message: Message = {"role": "assistant", "content": text}
    after: list[Message] = [{"role": "user", "content": f"more {at}"}]
    if calls:
        message["tool_calls"] = calls
        outputs = st.sampled_from(made.OUTPUTS)
        after = [
            {"role": "tool", "tool_call_id": call["id"], "content": draw(outputs)} for call in calls
        ]
    return Generated(message, draw(made.inner_thoughts) + draw(made.blanks), tuple(after))


few = settings(max_examples=max(10, settings().max_examples // 3))
"""Many upstreams, so fewer examples of each."""
talks = st.integers(1, 4).flatmap(lambda count: st.tuples(*[generated(at) for at in range(count)]))
spells = st.sampled_from(list(SPELLS.values()))
steady = st.builds(
    Client,
    st.sampled_from(list(LOSES.values())).map(lambda habit: [habit]),
    spells,
    st.sampled_from(EMPTIES),
)
fickle = st.builds(
    Client,
    st.lists(st.sampled_from(list(LOSES.values())), min_size=2, max_size=4),
    spells,
    st.sampled_from(EMPTIES),
)
rules = st.sampled_from(("keep", "drop", "after_artifact", "random:0.5"))
orders = st.lists(st.integers(0, 1), min_size=5, max_size=5)


def answer(it: Generated, carrier: str) -> bytes:
    """A provider's reply, its reasoning in the field of that provider."""
    message = _in_text(it.message, it.thought) if carrier == "think" else dict(it.message)
    if carrier == "content_parts":
        message = _in_parts(it.message, it.thought)
    elif carrier == "reasoning_details":
        message |= {carrier: [{"type": "reasoning.text", "text": it.thought}]}
    elif carrier != "think":
        message |= {carrier: it.thought}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode()


async def converse(
    workers: Sequence[Doors], rows: Sequence[Generated], client: Client, rule: str,
    order: Sequence[int],
) -> list[Sealed]:  # fmt: skip
    """What leaves, turn by turn, whichever worker takes the turn."""
    sent = []
    named, carrier = {b"x-lethe-policy": rule.encode()}, carrier_of(workers[0])
    for when in range(len(rows) + 1):
        doors = workers[order[when]]
        it = doors.memo.read(client.body(rows[:when], when), SCOPE)
        done = await prune.prune(doors, CALLER, named, it, doors.settings.upstreams[0])
        sent.append(done.sealed)
        tap = Tap(200, {b"content-type": b"application/json"})
        keeper = Keeper(doors, done.turn, tap, pytest.fail)
        if when < len(rows):
            tap.feed(answer(rows[when], carrier))
            await keeper.keep()
        doors.ledger.remember(
            prune.record(doors, CALLER, done, b"{}", 1.0, "up", Usage(), b"", Thought())
        )
    return sent


def carrier_of(doors: Doors) -> str:
    return doors.contracts.of("default", "m").contract.writes or "reasoning_content"


def turns(sent: Sequence[Sealed], steps: int) -> Iterator[tuple[Sealed, Sealed]]:
    """Each request with the next one, all of which extend what was sent before."""
    assert [Cause.COLD_START] + [Cause.EXTENDED] * steps == [s.finding.cause for s in sent]
    return zip(sent, sent[1:], strict=False)


def decoded(sealed: Sealed) -> list[Any]:
    return list(reading.decoded(sealed.body)["messages"])


@pytest.mark.parametrize("name", UPSTREAMS)
@few
@given(rows=talks, client=steady, rule=rules, order=orders)
def test_what_a_client_alters_in_its_way_leaves_in_one(
    name: str, rows: Sequence[Generated], client: Client, rule: str, order: Sequence[int]
) -> None:
    sent = asyncio.run(converse(two_workers(name), rows, client, rule, order))

    for shorter, longer in turns(sent, len(rows)):
        checks.extends(shorter, longer)


@pytest.mark.parametrize("name", UPSTREAMS)
@few
@given(rows=talks, client=steady | fickle, order=orders)
def test_what_is_kept_is_what_was_generated_whatever_a_client_makes_of_it(
    name: str, rows: Sequence[Generated], client: Client, order: Sequence[int]
) -> None:
    workers = two_workers(name)
    wire = writing.wire_for(
        workers[0].contracts.of("default", "m").contract,
        workers[0].settings.upstreams[0],
        workers[0].settings,
    )

    sent = asyncio.run(converse(workers, rows, client, "keep", order))

    assert wire.restores
    said = [m for m in decoded(sent[-1]) if m["role"] == "assistant"]
    for message, it in zip(said, rows, strict=True):
        texts = dict(reasoning.texts_of(message))
        held = {key: text for key, text in texts.items() if not wire.reads or key in wire.reads}
        assert held
        assert {it.thought} == set(held.values())
        if wire.repairs:
            assert it.message.get("tool_calls") == message.get("tool_calls")


@pytest.mark.parametrize("name", ONE_CARRIER)
@few
@given(rows=talks, client=fickle, rule=rules, order=orders)
def test_a_client_that_changes_its_ways_changes_no_prompt(
    name: str, rows: Sequence[Generated], client: Client, rule: str, order: Sequence[int]
) -> None:
    """Reasoning comes and goes from turn to turn; where one carrier is read, none of it is seen."""
    sent = asyncio.run(converse(two_workers(name), rows, client, rule, order))

    for shorter, longer in turns(sent, len(rows)):
        before, after = ([reading.rendered(m) for m in decoded(s)] for s in (shorter, longer))
        assert before == after[: len(before)]


@pytest.mark.parametrize("name", ["deepseek-v4", "vllm"])
@few
@given(rows=talks, client=steady, rule=rules, order=orders)
def test_an_empty_ledger_puts_nothing_back_and_still_only_grows(
    name: str, rows: Sequence[Generated], client: Client, rule: str, order: Sequence[int]
) -> None:
    """What was never kept is a miss for ever, also once it could be found."""
    workers = two_workers(name)
    sent = []
    for when in range(len(rows) + 1):
        doors = workers[order[when]]
        it = doors.memo.read(client.body(rows[:when], 0), SCOPE)
        named = {b"x-lethe-policy": rule.encode()}
        up = doors.settings.upstreams[0]
        sent.append(asyncio.run(prune.prune(doors, CALLER, named, it, up)).sealed)
    later = asyncio.run(converse(workers, rows, client, rule, order))

    for shorter, longer in zip(sent, sent[1:], strict=False):
        checks.extends(shorter, longer)
    assert [it.body for it in sent] == [it.body for it in later]


# Where dropping is not free

toggles = st.lists(
    st.sampled_from(("keep", "drop", "after_artifact", "random:0.5", "keep_latest:1", "off")),
    min_size=5,
    max_size=5,
)


async def toggled(
    workers: Sequence[Doors], rows: Sequence[Generated], policies: Sequence[str]
) -> list[prune.Pruning]:
    """One conversation of a client that gives back all; each turn by another policy and worker."""
    client = Client([LOSES["renames"]], SPELLS["as it came"], None)
    done = []
    for when in range(len(rows) + 1):
        doors = workers[when % len(workers)]
        it = doors.memo.read(client.body(rows[:when], when), SCOPE)
        named = {b"x-lethe-policy": policies[when].encode()}
        done.append(await prune.prune(doors, CALLER, named, it, doors.settings.upstreams[0]))
    return done


def dropped(it: prune.Pruning) -> set[bool]:
    """Whether the reasoning of the assistant's messages is gone, of each."""
    return {not m.get("reasoning") for m in decoded(it.sealed) if m["role"] == "assistant"}


@few
@given(rows=talks, policies=toggles)
def test_where_dropping_is_forbidden_all_is_kept(
    rows: Sequence[Generated], policies: Sequence[str]
) -> None:
    done = asyncio.run(toggled(two_workers("openrouter-claude"), rows, policies))

    assert {False} >= set().union(*map(dropped, done))


def talk(count: int) -> list[Generated]:
    """Text after text."""
    said = [({"role": "assistant", "content": f"{at}"}, f"why {at}") for at in range(count)]
    return [Generated(*row, ({"role": "user", "content": "on"},)) for row in said]


@pytest.mark.parametrize(
    ("name", "rule", "forbidden"),
    [
        ("openrouter-claude", "drop", [0, 1, 1, 1]),
        ("openrouter-claude", "keep", [0, 0, 0, 0]),
        ("openrouter-claude-bound", "drop", [0, 0, 0, 0]),
        ("openrouter-claude-bound", "keep_latest:1", [0, 1, 1, 1]),
        ("openrouter", "drop", [0, 0, 0, 0]),
    ],
)
def test_what_is_forbidden_is_told(name: str, rule: str, forbidden: list[int]) -> None:
    done = asyncio.run(toggled(two_workers(name), talk(3), [rule] * 4))

    assert forbidden == [it.told(None).forbidden for it in done]


@few
@given(rows=talks, policies=toggles)
def test_all_or_nothing_is_never_a_mixture_and_stays_as_it_began(
    rows: Sequence[Generated], policies: Sequence[str]
) -> None:
    done = asyncio.run(toggled(two_workers("openrouter-claude-bound"), rows, policies))

    left = [it for it, rule in zip(done, policies, strict=False) if rule != "off"]
    began = {frozenset(dropped(it)) for it in left if it.turn.steps}
    assert began in (set(), {frozenset({True})}, {frozenset({False})})
    for shorter, longer in zip(left, left[1:], strict=False):
        checks.extends(shorter.sealed, longer.sealed)


@pytest.mark.parametrize(
    ("name", "first", "expected"),
    [
        ("openrouter-claude", "drop", {False}),
        ("openrouter-claude-bound", "drop", {True}),
        ("openrouter-claude-bound", "keep", {False}),
    ],
)
def test_what_stands_from_elsewhere_is_carried_out_as_far_as_it_is_allowed(
    name: str, first: str, expected: set[bool]
) -> None:
    """The conversation began at an upstream that takes anything, under several policies."""
    elsewhere, rows = two_workers("openrouter"), talk(4)
    here = [dataclasses.replace(it, ledger=elsewhere[0].ledger) for it in two_workers(name)]
    before = asyncio.run(toggled(elsewhere, rows[:3], [first, first, "keep", "drop"]))

    after = asyncio.run(toggled(here, rows, ["after_artifact"] * 5))

    assert {True, False} == dropped(before[-1])
    assert expected == dropped(after[-1])
