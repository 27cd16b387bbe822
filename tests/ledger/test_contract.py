"""What every ledger promises: asked of the one in memory, and of two workers on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.ledger import in_memory, in_redis
from proxy.ledger.contract import Entry, Grade, Ledger
from proxy.ledger.trail import REBASE
from tests.doors.redis_server import Server, binaries, running
from tests.ledger.words import (
    NOW,
    OTHER,
    SCOPE,
    Clock,
    ask,
    digest,
    element,
    elements,
    fork,
    links,
    offer,
    record,
    sent,
    written,
)  # fmt: skip

REWRITTEN = Verdict(Kind.REPLACE, "state: three files read \ud83d")
KEY = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"


@dataclass(frozen=True)
class Two:
    """Two workers. In memory there is one, under both names."""

    one: Ledger
    other: Ledger


KINDS = [
    pytest.param("memory", None, None, id="memory"),
    *(
        pytest.param("redis", server.values[0], key, id=f"{server.id}-{form}")
        for server in binaries()
        for form, key in (("plain", None), ("encrypted", KEY))
    ),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str | None], Server]]:
    """One server for each binary, started when it is first wanted."""
    started: dict[str | None, Server] = {}
    with ExitStack() as stack:

        def server(binary: str | None) -> Server:
            if binary not in started:
                started[binary] = stack.enter_context(running(binary))
            return started[binary]

        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def two(
    servers: Callable[[str | None], Server], binary: str | None, key: str | None, kind: str,
    clock: Clock,
) -> AsyncIterator[Two]:  # fmt: skip
    if kind == "memory":
        ledger = in_memory.InMemory(in_memory.Options(), clock)
        yield Two(ledger, ledger)
        return
    if key is not None:
        pytest.importorskip("cryptography", reason="the optional extra is not installed")
    server = servers(binary)
    server.flush()
    options = in_redis.Options(server.url, timeout=5.0, encryption_key=key)
    one, other = in_redis.InRedis(options, clock), in_redis.InRedis(options, clock)
    await one.open()
    await other.open()
    yield Two(one, other)
    await one.close()
    await other.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "two" in metafunc.fixturenames:
        metafunc.parametrize(("kind", "binary", "key"), KINDS)


def outcomes(found: Any) -> list[Any]:
    return [outcome["n"] for outcome in found.outcomes]


# Verdicts.


async def test_first_offer_stands_and_second_writer_adopts_it(two: Two) -> None:
    chain = links(3)

    first = await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))
    second = await two.other.settle(ask(chain, offer(chain, 1, 3, KEEP)))

    assert ({chain[1]: DROP}, 1) == (first.verdicts, first.won)
    assert ({chain[1]: DROP}, 0) == (second.verdicts, second.won)
    assert first.shared
    assert second.shared


async def test_same_offer_twice_adds_no_verdict(two: Two) -> None:
    chain = links(3)
    await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))

    again = await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))

    assert ({chain[1]: DROP}, 0) == (again.verdicts, again.won)


async def test_verdict_of_a_step_seen_in_part_decides_the_whole(two: Two) -> None:
    chain = links(4)
    await two.one.settle(ask(chain[:3], offer(chain, 1, 3, KEEP)))

    whole = await two.other.settle(ask(chain, offer(chain, 1, 4, DROP)))

    assert ({chain[1]: KEEP}, 0) == (whole.verdicts, whole.won)


async def test_verdict_on_the_latest_link_stands(two: Two) -> None:
    chain = links(4)
    await two.one.settle(ask(chain, offer(chain, 3, 4, REWRITTEN)))
    await two.one.settle(ask(chain[:3], offer(chain, 1, 3, DROP)))

    both = await two.other.settle(ask(chain, offer(chain, 1, 4, KEEP)))

    assert ({chain[1]: REWRITTEN}, 0) == (both.verdicts, both.won)


async def test_fork_with_another_result_gets_a_verdict_of_its_own(two: Two) -> None:
    chain = links(3)
    branch = fork(chain, 2, 3, "other result")
    await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))

    forked = await two.other.settle(ask(branch, offer(branch, 1, 3, KEEP)))
    after = await two.other.settle(ask(chain, offer(chain, 1, 3, KEEP)))

    assert ({chain[1]: KEEP}, 1) == (forked.verdicts, forked.won)
    assert {chain[1]: DROP} == after.verdicts


async def test_a_turn_that_only_asks_puts_nothing(two: Two) -> None:
    chain = links(5)
    await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))

    asked = await two.other.settle(ask(chain, offer(chain, 1, 3, None), offer(chain, 3, 5, None)))
    put = await two.one.settle(ask(chain, offer(chain, 3, 5, KEEP)))

    assert ({chain[1]: DROP}, 0) == (asked.verdicts, asked.won)
    assert ({chain[3]: KEEP}, 1) == (put.verdicts, put.won)


async def test_many_steps_are_settled_in_one_go(two: Two) -> None:
    chain = links(401)
    await two.one.settle(ask(chain[:5], offer(chain, 1, 3, KEEP), offer(chain, 3, 5, REWRITTEN)))

    offers = [offer(chain, first, first + 2, DROP) for first in range(1, 401, 2)]
    all_of_them = await two.other.settle(ask(chain, *offers))

    assert 198 == all_of_them.won
    assert KEEP == all_of_them.verdicts[chain[1]]
    assert REWRITTEN == all_of_them.verdicts[chain[3]]
    assert 198 == list(all_of_them.verdicts.values()).count(DROP)


async def test_what_was_settled_is_known_by_the_last_link_seen(two: Two) -> None:
    chain = links(4)
    await two.one.settle(ask(chain[:3], offer(chain, 1, 3, DROP)))
    await two.other.settle(ask(chain, offer(chain, 1, 4, KEEP)))

    known = two.other.known(chain)

    assert DROP == known[chain[3]]
    assert {} == two.other.known(links(3, "never seen"))


async def test_only_the_set_policy_under_which_it_was_judged_puts_a_verdict(two: Two) -> None:
    chain = links(5)
    await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))
    assert await two.one.set_policy(SCOPE, "keep")

    stale = await two.other.settle(ask(chain, offer(chain, 1, 3, KEEP), offer(chain, 3, 5, DROP)))
    told = two.other.setting(SCOPE)
    anew = await two.other.settle(ask(chain, offer(chain, 3, 5, KEEP), setting="keep"))

    assert ({chain[1]: DROP}, 0, "keep") == (stale.verdicts, stale.won, stale.setting)
    assert "keep" == told
    assert ({chain[3]: KEEP}, 1, "keep") == (anew.verdicts, anew.won, anew.setting)


async def test_set_policy_holds_for_its_scope_alone(two: Two) -> None:
    assert await two.one.set_policy(SCOPE, "keep_latest:2")
    chain, others = links(3), links(3, "of another key")

    mine = await two.other.settle(ask(chain))
    theirs = await two.other.settle(ask(others, scope=OTHER))

    assert ("keep_latest:2", None) == (mine.setting, theirs.setting)


# What was last sent.


async def test_record_at_the_deepest_link_is_found_with_all_its_elements(two: Two) -> None:
    chain = links(7)
    early = record(chain[:3], elements(1, 2, 3), NOW, prompt_tokens=10)
    late = record(
        chain[:5], elements(1, 2, 3, 4, 5), NOW + 1,
        prompt_tokens=12, output_tokens=3, cached_tokens=0,
    )  # fmt: skip
    two.one.remember(early)
    two.one.remember(late)
    await written(two.one)

    deepest = await two.other.settle(ask(chain))
    rewound = await two.other.settle(ask(chain[:4]))

    assert (late.sent, False) == (deepest.last_sent, deepest.by_hint)
    assert early.sent == rewound.last_sent


async def test_first_request_is_found_by_the_turn_that_grows_from_it(two: Two) -> None:
    chain = links(3)
    first = record(chain[:1], elements("model", "tools", 1))
    two.one.remember(first)
    await written(two.one)

    found = await two.other.settle(ask(chain, offer(chain, 1, 3, DROP)))

    assert first.sent == found.last_sent


async def test_own_record_is_seen_at_once(two: Two) -> None:
    chain = links(5)
    latest = record(chain[:3], elements(1, 2, 3))
    two.one.remember(latest)

    found = await two.one.settle(ask(chain))

    assert latest.sent == found.last_sent


async def test_nothing_sent_is_told_as_nothing(two: Two) -> None:
    found = await two.one.settle(ask(links(5), hints=[digest("hint")]))

    assert (None, False) == (found.last_sent, found.by_hint)


async def test_retry_with_other_content_stands_in_the_place_of_the_first(two: Two) -> None:
    chain = links(5)
    two.one.remember(record(chain[:3], elements(1, 2, 3), NOW))
    two.one.remember(record(chain, elements(1, 2, 3, 4, 5), NOW + 1))
    await written(two.one)
    two.other.remember(record(chain[:3], elements("other", 2), NOW + 2))
    await written(two.other)

    retried = await two.one.settle(ask(chain[:3]))
    grown = await two.one.settle(ask(chain))

    assert retried.last_sent is not None
    assert elements("other", 2) == retried.last_sent.elements
    assert grown.last_sent is not None
    assert elements(1, 2, 3, 4, 5) == grown.last_sent.elements


async def test_long_conversation_keeps_every_element_of_every_turn(two: Two) -> None:
    turns = REBASE + 10
    chain = links(2 * turns + 1)
    workers = [two.one, two.other]
    for turn in range(1, turns + 1):
        worker = workers[turn % 2]
        await worker.settle(ask(chain[: 2 * turn + 1]))
        worker.remember(record(chain[: 2 * turn + 1], elements(*range(2 * turn)), NOW + turn))
        await written(worker)

    for turn in (1, 2, REBASE - 1, REBASE, REBASE + 1, turns):
        found = await two.one.settle(ask(chain[: 2 * turn + 1]))

        assert found.last_sent is not None
        assert elements(*range(2 * turn)) == found.last_sent.elements


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(("clock", 2, 3, 4, 5, 6), id="first element edited"),
        pytest.param((1, 2, "edited", 4, 5, 6), id="one in the middle edited"),
        pytest.param((1, 2, 3, "put in", 4, 5, 6), id="one put in"),
        pytest.param((1, 2, 5, 6), id="some taken out"),
        pytest.param((1, 2), id="cut short"),
        pytest.param(("summary",), id="compacted"),
        pytest.param((), id="nothing left"),
        pytest.param((1, 2, 3, 4, 5), id="the same"),
    ],
)
async def test_changed_history_is_kept_as_it_left(two: Two, changed: tuple[object, ...]) -> None:
    chain = links(7)
    two.one.remember(record(chain[:5], elements(1, 2, 3, 4, 5), NOW))
    two.one.remember(record(chain, elements(*changed), NOW + 1))
    await written(two.one)

    found = await two.other.settle(ask(chain))
    before = await two.other.settle(ask(chain[:5]))

    assert found.last_sent is not None
    assert elements(*changed) == found.last_sent.elements
    assert before.last_sent is not None
    assert elements(1, 2, 3, 4, 5) == before.last_sent.elements


# Hints.


async def test_hint_finds_the_branch_whose_early_history_changed(two: Two) -> None:
    chain, edited = links(5), links(5, "edited")
    there = record(chain, elements(1, 2, 3), hints=[digest("session"), digest("call")])
    two.one.remember(there)
    await written(two.one)

    found = await two.other.settle(ask(edited, hints=[digest("unknown"), digest("call")]))

    assert (there.sent, True) == (found.last_sent, found.by_hint)


async def test_strongest_hint_that_leads_to_a_record_is_taken(two: Two) -> None:
    one, another = links(5, "one"), links(5, "another")
    two.one.remember(record(one, elements(1), hints=[digest("strong")]))
    two.one.remember(record(another, elements(2), hints=[digest("weak")]))
    await written(two.one)

    found = await two.other.settle(
        ask(links(5), hints=[digest("none"), digest("strong"), digest("weak")])
    )

    assert found.last_sent is not None
    assert one[-1] == found.last_sent.link


async def test_hint_leads_to_the_latest_record_under_it(two: Two) -> None:
    chain = links(7)
    two.one.remember(record(chain[:3], elements(1), NOW, hints=[digest("session")]))
    two.one.remember(record(chain[:5], elements(1, 2), NOW + 1, hints=[digest("session")]))
    await written(two.one)

    found = await two.other.settle(ask(links(5, "edited"), hints=[digest("session")]))

    assert found.last_sent is not None
    assert chain[4] == found.last_sent.link


async def test_chain_goes_before_hint(two: Two) -> None:
    chain, other = links(5), links(5, "other")
    two.one.remember(record(chain[:3], elements(1)))
    two.one.remember(record(other, elements(2), hints=[digest("session")]))
    await written(two.one)

    found = await two.other.settle(ask(chain, hints=[digest("session")]))

    assert found.last_sent is not None
    assert (chain[2], False) == (found.last_sent.link, found.by_hint)


async def test_hint_does_not_reach_into_another_scope(two: Two) -> None:
    two.one.remember(record(links(5), elements(1), hints=[digest("session")], scope=OTHER))
    await written(two.one)

    found = await two.other.settle(ask(links(5, "mine"), hints=[digest("session")]))

    assert found.last_sent is None


# The control plane.


async def test_first_turn_belongs_to_the_conversation_that_grew_from_it(two: Two) -> None:
    chain = links(5)
    two.one.remember(record(chain[:1], elements(1), NOW, {"n": 1}))
    await written(two.one)
    alone = await two.other.conversations(SCOPE, 10)
    two.one.remember(record(chain[:3], elements(1, 2), NOW + 1, {"n": 2}))
    two.one.remember(record(chain, elements(1, 2, 3), NOW + 2, {"n": 3}))
    await written(two.one)

    listed = await two.other.conversations(SCOPE, 10)
    by_root = await two.other.conversation(chain[0].hex())
    by_id = await two.other.conversation(chain[1].hex())

    assert [(chain[0].hex(), 1)] == [(summary.id, summary.turns) for summary in alone]
    assert [(chain[1].hex(), 3)] == [(summary.id, summary.turns) for summary in listed]
    assert (NOW, NOW + 2, {"n": 3}) == (listed[0].first_at, listed[0].last_at, listed[0].last)
    assert by_id is not None
    assert by_id == by_root
    assert [1, 2, 3] == outcomes(by_id)
    assert by_id.last_sent is not None
    assert elements(1, 2, 3) == by_id.last_sent.elements


async def test_root_leads_to_the_latest_of_what_grew_from_it(two: Two) -> None:
    older, newer = links(3), fork(links(3), 1, 3, "another reply")
    two.one.remember(record(older[:1], elements(1), NOW, {"n": 1}))
    two.one.remember(record(newer, elements(1, 2), NOW + 2, {"n": 2}))
    two.one.remember(record(older, elements(1, 3), NOW + 1, {"n": 3}))
    await written(two.one)

    found = await two.other.conversation(older[0].hex())

    assert found is not None
    assert newer[1].hex() == found.summary.id


async def test_lists_go_by_last_activity_scope_and_page(two: Two) -> None:
    for number in range(5):
        scope = OTHER if number == 2 else SCOPE
        chain = links(3, f"conversation {number}")
        two.one.remember(record(chain, elements(1), NOW + number, {"n": number}, scope=scope))
    await written(two.one)

    everything = await two.other.conversations(None, 10)
    mine = await two.other.conversations(SCOPE, 10)
    page = await two.other.conversations(SCOPE, 2, before=NOW + 4)

    assert [4, 3, 2, 1, 0] == [summary.last["n"] for summary in everything]
    assert [4, 3, 1, 0] == [summary.last["n"] for summary in mine]
    assert [3, 1] == [summary.last["n"] for summary in page]
    assert {SCOPE} == {summary.scope for summary in mine}
    assert [] == await two.other.conversations(b"a scope without any", 10)


async def test_messages_are_kept_once_with_what_came(two: Two) -> None:
    chain = links(5)
    system = Entry(digest("system"), b'{"role":"system"}')
    first = Entry(digest("first"), b'{"left":1}', b'{"came":1}')
    second = Entry(digest("second"), "ä".encode(), b"")
    two.one.remember(record(chain[:1], elements(1), NOW, entries=[system]))
    two.one.remember(record(chain, elements(1, 2), NOW + 1, entries=[first, second]))
    await written(two.one)

    found = await two.other.conversation(chain[1].hex())
    recalled = await two.other.recall(chain[1], [first.digest, system.digest, digest("none")])

    assert found is not None
    assert {e.digest: e for e in (system, first, second)} == dict(found.entries)
    assert {e.digest: e for e in (system, first)} == dict(recalled)


async def test_message_is_recalled_before_it_is_written(two: Two) -> None:
    chain = links(3)
    entry = Entry(digest("new"), b"left")
    two.one.remember(record(chain, elements(1), entries=[entry]))

    recalled = await two.one.recall(chain[1], [entry.digest])

    assert {entry.digest: entry} == dict(recalled)


async def test_forgotten_conversation_leaves_nothing(two: Two) -> None:
    chain, other = links(3), links(3, "other")
    entry = Entry(digest("first"), b"text")
    two.one.remember(record(chain[:1], elements(1), entries=[entry]))
    two.one.remember(record(chain, elements(1, 2)))
    two.one.remember(record(other, elements(3)))
    await written(two.one)

    assert await two.one.forget(chain[0].hex())
    assert not await two.one.forget(chain[1].hex())

    assert await two.one.conversation(chain[1].hex()) is None
    assert {} == dict(await two.one.recall(chain[1], [entry.digest]))
    assert [other[1].hex()] == [s.id for s in await two.one.conversations(None, 10)]
    assert {} == dict(two.one.known(chain))


async def test_first_turn_outlives_one_of_two_that_grew_from_it(two: Two) -> None:
    one, another = links(3), fork(links(3), 1, 3, "another reply")
    entry = Entry(digest("first"), b"text")
    two.one.remember(record(one[:1], elements(1), entries=[entry]))
    two.one.remember(record(one, elements(1, 2)))
    two.one.remember(record(another, elements(1, 3)))
    await written(two.one)

    assert await two.one.forget(one[1].hex())

    left = await two.other.conversation(another[1].hex())
    assert left is not None
    assert {entry.digest: entry} == dict(left.entries)


@pytest.mark.parametrize("id", ["", "no hex", "00" * 16, "ff", "é"])
async def test_unknown_ids_find_nothing(two: Two, id: str) -> None:
    assert await two.one.conversation(id) is None
    assert await two.one.grade(None, id, Grade(True)) is None
    assert [()] == await two.one.accounts([id])
    assert not await two.one.forget(id)


# How it ended.


async def graded(ledger: Ledger, id: str) -> Grade | None:
    found = await ledger.conversation(id)
    assert found is not None
    assert [found.summary.grade] == [s.grade for s in await ledger.conversations(None, 9, None)]
    return found.summary.grade


async def test_grade_is_kept_with_the_conversation_and_a_later_one_replaces_it(two: Two) -> None:
    chain = links(5)
    id = chain[1].hex()
    two.one.remember(record(chain[:3], elements(1), NOW))
    await written(two.one)

    before = await graded(two.other, id)
    taken = await two.other.grade(None, id, Grade(False, 0.25, NOW))
    first = await graded(two.one, id)
    again = await two.one.grade(SCOPE, chain[0].hex(), Grade(True, None, NOW + 1))
    two.one.remember(record(chain, elements(1, 2), NOW + 2))
    await written(two.one)

    assert before is None
    assert (id, id) == (taken, again)
    assert Grade(False, 0.25, NOW) == first
    assert Grade(True, None, NOW + 1) == await graded(two.other, id)


async def test_grade_from_another_scope_is_not_taken(two: Two) -> None:
    chain = links(3)
    two.one.remember(record(chain, elements(1)))
    await written(two.one)

    assert await two.other.grade(OTHER, chain[1].hex(), Grade(True)) is None
    assert await graded(two.one, chain[1].hex()) is None


async def test_grade_of_a_first_turn_goes_over_to_what_grew_from_it(two: Two) -> None:
    chain = links(3)
    two.one.remember(record(chain[:1], elements(1), NOW))
    await written(two.one)
    await two.other.grade(None, chain[0].hex(), Grade(True, 2.0))

    two.one.remember(record(chain, elements(1, 2), NOW + 1))
    two.one.remember(record(fork(chain, 1, 3, "another"), elements(1, 3), NOW + 2))
    await written(two.one)

    rows = {s.id: s.grade for s in await two.other.conversations(None, 10)}
    assert {chain[1].hex(): Grade(True, 2.0), fork(chain, 1, 3, "another")[1].hex(): None} == rows


async def test_label_leads_to_the_conversations_that_bear_it_now(two: Two) -> None:
    for number, task in enumerate(["one", "two", "one", "", "one"]):
        chain = links(3, f"conversation {number}")
        scope = OTHER if number == 2 else SCOPE
        two.one.remember(
            record(chain, elements(1), NOW + number, {"n": number, "task": task}, scope=scope)
        )
    moved = links(5, "conversation 0")
    two.one.remember(record(moved, elements(1, 2), NOW + 9, {"n": 9, "task": "two"}))
    await written(two.one)

    async def found(scope: bytes | None, task: str, limit: int = 10) -> list[int]:
        return [it.last["n"] for it in await two.other.labelled(scope, task, limit)]

    assert [4, 2] == await found(None, "one")
    assert [4] == await found(SCOPE, "one")
    assert [9, 1] == await found(SCOPE, "two")
    assert [9] == await found(None, "two", 1)
    assert [] == await found(None, "three")


async def test_forgotten_conversation_is_found_under_no_label(two: Two) -> None:
    chain = links(3)
    two.one.remember(record(chain, elements(1), NOW, {"task": "mend"}))
    await written(two.one)
    await two.one.grade(None, chain[1].hex(), Grade(True))

    assert await two.one.forget(chain[1].hex())

    assert [] == await two.other.labelled(None, "mend", 10)
    assert await two.other.grade(None, chain[1].hex(), Grade(True)) is None


async def test_accounts_are_told_of_several_conversations_at_once(two: Two) -> None:
    one, another = links(5, "one"), links(3, "another")
    two.one.remember(record(one[:3], elements(1), NOW, {"n": 1}))
    two.one.remember(record(one, elements(1, 2), NOW + 1, {"n": 2}))
    two.one.remember(record(another, elements(3), NOW + 2, {"n": 3}))
    await written(two.one)

    found = await two.other.accounts([another[1].hex(), "00" * 16, one[1].hex()])

    assert [[3], [], [1, 2]] == [[it["n"] for it in accounts] for accounts in found]
    assert [] == await two.other.accounts([])


async def test_odd_roles_and_sizes_are_kept(two: Two) -> None:
    odd = [element(1, role="\ud83d"), element(2, role=""), element(3, "x" * 300, 2**32 - 1)]
    chain = links(3)
    two.one.remember(record(chain, odd))
    await written(two.one)

    found = await two.other.settle(ask(chain))

    assert found.last_sent == sent(chain[-1], odd)


async def test_health_of_a_ledger_that_works_is_up(two: Two) -> None:
    assert ("up", 0, {}) == (
        two.one.health().state, two.one.health().queued, dict(two.one.health().failures),
    )  # fmt: skip
