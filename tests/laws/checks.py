"""What each law says, as a check on what some way of working sent. Wrong ones must fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxy.core.sent import Part
from proxy.core.turn import Sealed
from tests.laws import reading
from tests.laws.histories import History
from tests.laws.pipeline import Ledger, Worker


def grows(history: History, worker: Worker) -> None:
    """What leaves is a prefix of what leaves later."""
    sent = [worker.send(body) for body in history.bodies()]
    for shorter, longer in zip(sent, sent[1:], strict=False):
        extends(shorter, longer)


def extends(shorter: Sealed, longer: Sealed) -> None:
    before, after = map(reading.up_to_last_message, (shorter.body, longer.body))
    assert before == after[: len(before)]
    elements = [e.digest for e in shorter.elements]
    assert elements == [e.digest for e in longer.elements[: len(elements)]]


def takes_only_reasoning(came: bytes, left: bytes) -> None:
    """With reasoning taken from both, what came equals what leaves."""
    a, b = reading.decoded(came), reading.decoded(left)
    assert list(a) == list(b)
    assert [v for k, v in a.items() if k != "messages"] == [
        v for k, v in b.items() if k != "messages"
    ]
    assert len(a["messages"]) == len(b["messages"])
    for message, sent in zip(a["messages"], b["messages"], strict=True):
        assert reading.without_reasoning(message) == reading.without_reasoning(sent)


def sends_the_same_twice(history: History, worker: Worker) -> None:
    for body in history.bodies():
        first = worker.send(body)
        settled = dict(worker.ledger.verdicts)
        again = worker.send(body)
        assert first.body == again.body
        assert settled == worker.ledger.verdicts


def rederives(history: History, worker_of: Callable[[], Worker]) -> None:
    """Every request sends the same bytes by an empty ledger as by a full one."""
    full = worker_of()
    for body in history.bodies():
        assert full.send(body).body == worker_of().send(body).body


def agree(
    history: History, workers: Sequence[Worker], turns: Sequence[tuple[int, int, bool]]
) -> None:
    """Workers on one ledger send equal prefixes, whoever asks when.

    A turn is a worker, the length of the history that is asked, and whether the worker had
    made its proposal before the turn before it was settled.
    """
    ledger, held = Ledger(), []
    sent: dict[int, Sealed] = {}
    for worker in workers:
        worker.ledger = ledger
    for who, length, early in turns:
        worker = workers[who % len(workers)]
        length = 1 + length % len(history.chunks)
        held.append((worker, length, *worker.proposed(history.body(length))))
        while held and not (early and len(held) == 1):
            worker, length, it, proposal = held.pop()
            sealed = worker.sealed(it, proposal)
            assert sealed.body == sent.setdefault(length, sealed).body
    lengths = sorted(sent)
    for shorter, longer in zip(lengths, lengths[1:], strict=False):
        extends(sent[shorter], sent[longer])


def is_legal(came: bytes, left: bytes) -> None:
    """Calls keep their results; sealed reasoning is whole; no null is written."""
    for message, sent in zip(*(reading.decoded(b)["messages"] for b in (came, left)), strict=True):
        if not isinstance(message, dict):
            assert message == sent
            continue
        for key in ("tool_calls", "tool_call_id", "role"):
            assert message.get(key) == sent.get(key)
        if message.get("role") == "assistant" and reading.is_sealed(message):
            assert message == sent
        nulls = [key for key, value in sent.items() if value is None]
        assert nulls == [key for key, value in message.items() if value is None and key in sent]


def first_changed(was: Sealed, now: Sealed) -> int | None:
    """The first element of what was sent that is not the same now, found without digests."""
    before, after = _rows(was), _rows(now)
    for at, (a, b) in enumerate(zip(before, after, strict=False)):
        if a != b:
            return at
    return len(after) if len(after) < len(before) else None


def _rows(sealed: Sealed) -> list[Any]:
    """What left, element by element: model, parameters, tools, messages."""
    body = reading.decoded(sealed.body)
    tools = [body["tools"]] if any(e.part is Part.TOOLS for e in sealed.elements) else []
    return [body.get("model", ""), [], *tools, *map(reading.rendered, body["messages"])]
