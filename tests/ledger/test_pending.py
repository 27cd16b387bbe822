"""Writes that wait: in order, and within bounds."""

from __future__ import annotations

from proxy.core.verdict import DROP
from proxy.ledger.contract import Entry
from proxy.ledger.pending import Job, Late, Note, Pending, Untaken
from proxy.ledger.thread import Held
from tests.ledger.words import digest, elements, kept, links, offer, record, reply


def note(name: str, size: int = 0) -> Note:
    entries = [Entry(digest(name), bytes(size))]
    return Note(record(links(3, name), elements(1), entries=entries), b"{}")


def late(name: str) -> Late:
    chain = links(3, name)
    return Late(chain[0], chain[1], (offer(chain, 1, 3, DROP),))


def untaken(name: str, size: int = 0) -> Untaken:
    it = kept(links(3, name), reply(name, size), "ids")
    return Untaken(it, Held(it.keys, it.reply))


def test_oldest_is_taken_first() -> None:
    pending = Pending(10, 10**6)
    jobs: list[Job] = [note("a"), late("b"), untaken("b"), note("c")]

    assert [0, 0, 0, 0] == [pending.push(job) for job in jobs]
    assert jobs[:2] == pending.take(2, 10**6)
    assert jobs[2:] == pending.take(2, 10**6)
    assert [] == pending.take(2, 10**6)


def test_replies_that_wait_are_weighed() -> None:
    found = late("a")
    findings = Late(
        found.root, found.conversation, (), {digest(1): reply(1, 30_000), digest(2): None}
    )
    pins = Late(found.root, found.conversation, (), {}, {"order": bytes(30_000)})
    waiting: list[Job] = [untaken("a", 30_000), findings, pins]

    for job in waiting:
        pending = Pending(10, 30_000)

        assert (1, 0) == (pending.push(job), len(pending))


def test_oldest_is_let_go_where_there_are_too_many() -> None:
    pending = Pending(2, 10**6)
    jobs = [note("a"), note("b"), note("c")]

    assert [0, 0, 1] == [pending.push(job) for job in jobs]
    assert jobs[1:] == pending.take(9, 10**6)


def test_oldest_are_let_go_where_they_are_too_large() -> None:
    pending = Pending(10, 10_000)
    jobs = [note("a", 4_000), note("b", 4_000), note("c", 9_000), note("d", 20_000)]

    assert [0, 0, 2, 2] == [pending.push(job) for job in jobs]
    assert 0 == len(pending)


def test_what_is_put_back_comes_first_again() -> None:
    pending = Pending(10, 10**6)
    jobs = [note("a"), note("b"), note("c")]
    for job in jobs:
        pending.push(job)

    assert 0 == pending.put_back(pending.take(2, 10**6))
    assert jobs == pending.take(9, 10**6)


def test_what_is_put_back_beyond_the_bounds_is_let_go() -> None:
    pending = Pending(2, 10**6)
    pending.push(note("a"))
    taken = pending.take(1, 10**6)
    jobs = [note("b"), note("c")]
    for job in jobs:
        pending.push(job)

    assert 1 == pending.put_back(taken)
    assert jobs == pending.take(9, 10**6)


def test_one_batch_is_bounded_in_bytes_and_never_empty() -> None:
    pending = Pending(10, 10**6)
    jobs = [note("a", 5_000), note("b", 5_000)]
    for job in jobs:
        pending.push(job)

    assert jobs[:1] == pending.take(9, 8_000)
    assert jobs[1:] == pending.take(9, 10)


def test_forgotten_conversation_waits_no_longer() -> None:
    pending = Pending(10, 10**6)
    jobs: list[Job] = [note("a"), note("b"), late("a"), untaken("a")]
    for job in jobs:
        pending.push(job)

    pending.drop(links(3, "a")[1])

    assert jobs[1:2] == pending.take(9, 10**6)


def test_messages_that_wait_can_be_read() -> None:
    pending = Pending(10, 10**6)
    jobs: list[Job] = [note("a"), note("b"), late("a"), untaken("a")]
    for job in jobs:
        pending.push(job)

    found = list(pending.entries(links(3, "a")[1]))

    assert [Entry(digest("a"), b"")] == found
