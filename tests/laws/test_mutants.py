"""Wrong ways of working, each of which some law must catch: a law that lets them through is none.

Every case names a way of working and a check of `checks`. The right way passes it; the wrong one
fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.turn import Sealed
from proxy.core.verdict import Verdict
from tests.laws import checks
from tests.laws.histories import History, body_of, histories
from tests.laws.pipeline import Links, Settle, Store, Worker, first_writer_wins

Offers = Sequence[tuple[Links, Verdict | None]]


def decides_every_turn_anew(store: Store, offers: Offers) -> dict[bytes, Verdict]:
    return {links[0]: verdict for links, verdict in offers if verdict is not None}


def lets_the_last_writer_win(store: Store, offers: Offers) -> dict[bytes, Verdict]:
    for links, verdict in offers:
        if verdict is not None:
            store[links[-1]] = verdict
    return {links[0]: store[links[-1]] for links, _ in offers if links[-1] in store}


def seals_its_proposal(store: Store, offers: Offers) -> dict[bytes, Verdict]:
    first_writer_wins(store, offers)
    return {links[0]: verdict for links, verdict in offers if verdict is not None}


def looks_at_the_last_link_alone(store: Store, offers: Offers) -> dict[bytes, Verdict]:
    return first_writer_wins(store, [(links[-1:], verdict) for links, verdict in offers]) | {
        links[0]: store[links[-1]] for links, _ in offers if links[-1] in store
    }


class Rewriting(Worker):
    """A worker whose sealed body goes through one more hand."""

    def rewritten(self, body: bytes) -> bytes:
        raise NotImplementedError

    def send(self, body: bytes) -> Sealed:
        sealed = super().send(body)
        return replace(sealed, body=self.rewritten(sealed.body))


class WritesNull(Rewriting):
    def rewritten(self, body: bytes) -> bytes:
        return body.replace(b'"reasoning_content":""', b'"reasoning_content":null')


class SerialisesAnew(Rewriting):
    def rewritten(self, body: bytes) -> bytes:
        return json.dumps(json.loads(body.decode("utf-8", "surrogateescape"))).encode()


class DropsSealedToo(Rewriting):
    def rewritten(self, body: bytes) -> bytes:
        request = json.loads(body.decode("utf-8", "surrogateescape"))
        for message in request["messages"]:
            if isinstance(message, dict) and message.get("role") == "assistant":
                message.pop("reasoning_details", None)
        return json.dumps(request).encode()


class KeepsTheLatest(Worker):
    """`keep_latest` that passes itself off as append-only."""

    def __init__(self, rule: str) -> None:
        super().__init__("keep_latest:1")


one = histories(odd=False, max_steps=4)
turns = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 9), st.booleans()), min_size=4, max_size=12
)


def agree(settle: Settle) -> Callable[..., None]:
    def check(history: History, asked: list[tuple[int, int, bool]]) -> None:
        workers = [Worker("keep", settle=settle), Worker("drop", settle=settle)]
        checks.agree(history, workers, asked)

    return check


def grows_through_open_steps(settle: Settle) -> Callable[..., None]:
    def check(history: History) -> None:
        messages = history.messages(len(history.chunks))
        worker = Worker("drop", settle=settle)
        sizes = range(len(history.chunks[0]), len(messages) + 1)
        sent = [worker.send(body_of(history, messages[:size])) for size in sizes]
        for shorter, longer in zip(sent, sent[1:], strict=False):
            checks.extends(shorter, longer)

    return check


def on_every_body(
    check: Callable[[bytes, bytes], None], worker: type[Worker]
) -> Callable[..., None]:
    def run(history: History) -> None:
        for body in history.bodies():
            check(body, worker("drop").send(body).body)

    return run


def grows(worker: type[Worker]) -> Callable[..., None]:
    return lambda history: checks.grows(history, worker("drop"))


def identical(worker: type[Worker]) -> Callable[..., None]:
    def check(history: History) -> None:
        for body in history.bodies():
            assert body == worker("keep").send(body).body

    return check


def held(check: Callable[..., None], *strategies: st.SearchStrategy[Any]) -> None:
    """Look for a history on which the check fails; no shrinking, nothing is kept."""
    search = settings(max_examples=400, phases=(Phase.generate,), database=None)
    search(given(*strategies)(check))()


def legal(worker: type[Worker]) -> Callable[..., None]:
    return on_every_body(checks.is_legal, worker)


def only_reasoning(worker: type[Worker]) -> Callable[..., None]:
    return on_every_body(checks.takes_only_reasoning, worker)


# A name for the mutant, the law, the wrong way, the right way, what it is tried on.
CASES: list[Any] = [
    ("decides every turn anew", agree, decides_every_turn_anew, first_writer_wins, (one, turns)),
    ("lets the last writer win", agree, lets_the_last_writer_win, first_writer_wins, (one, turns)),
    ("seals its proposal", agree, seals_its_proposal, first_writer_wins, (one, turns)),
    (
        "decides open steps anew",
        grows_through_open_steps,
        decides_every_turn_anew,
        first_writer_wins,
        (one,),
    ),
    (
        "looks at the last link alone",
        grows_through_open_steps,
        looks_at_the_last_link_alone,
        first_writer_wins,
        (one,),
    ),
    ("keeps the latest", grows, KeepsTheLatest, Worker, (one,)),
    ("writes null", legal, WritesNull, Worker, (one,)),
    ("drops what is sealed", legal, DropsSealedToo, Worker, (one,)),
    ("loses numbers", only_reasoning, SerialisesAnew, Worker, (one,)),
    ("serialises anew", identical, SerialisesAnew, Worker, (one,)),
]
NAMES = [case[0] for case in CASES]


@pytest.mark.parametrize(("_", "law", "wrong", "right", "over"), CASES, ids=NAMES)
def test_a_law_catches_it(_: str, law: Any, wrong: Any, right: Any, over: Any) -> None:
    with pytest.raises(AssertionError):
        held(law(wrong), *over)


@pytest.mark.parametrize(("_", "law", "wrong", "right", "over"), CASES, ids=NAMES)
def test_the_same_law_lets_the_right_way_through(
    _: str, law: Any, wrong: Any, right: Any, over: Any
) -> None:
    settings(max_examples=30)(given(*over)(law(right)))()
