"""The ledger in memory: its bounds, and what it says of itself."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.errors import SettingsError
from proxy.ledger.contract import Entry, Grade
from proxy.ledger.echoes import MAX_FIRST_REPLIES
from proxy.ledger.in_memory import InMemory, Options
from proxy.ledger.lessons import MAX_LESSONS
from proxy.ledger.local import MAX_FIRST_ENTRIES, MAX_OUTCOMES, MAX_SETTINGS
from proxy.ledger.thread import MAX_PINS
from tests.ledger.words import (
    NOW,
    Clock,
    ask,
    digest,
    echo,
    elements,
    fork,
    kept,
    links,
    offer,
    record,
    reply,
)  # fmt: skip

DAY = 86_400.0


def ledger(clock: Clock | None = None, **options: Any) -> InMemory:
    return InMemory(Options(**options), clock or Clock())


async def a_turn(it: InMemory, name: str, text: bytes = b"") -> None:
    chain = links(3, name)
    await it.settle(ask(chain, offer(chain, 1, 3, DROP)))
    entries = [Entry(digest(name), text)] if text else []
    it.remember(record(chain, elements(1, 2), entries=entries, hints=[digest("hint", name)]))


async def listed(it: InMemory) -> set[str]:
    return {summary.id for summary in await it.conversations(None, 1000)}


async def test_the_conversation_longest_unused_is_let_go_first() -> None:
    it = ledger(max_entries=2)
    await a_turn(it, "old")
    await a_turn(it, "young")
    await it.settle(ask(links(3, "old")))

    await a_turn(it, "new")

    assert {links(3, "old")[1].hex(), links(3, "new")[1].hex()} == await listed(it)
    assert {} == dict(it.known(links(3, "young")))
    assert {"let_go": 1} == dict(it.health().failures)


async def test_what_is_let_go_is_let_go_whole() -> None:
    it = ledger(max_entries=1)
    await a_turn(it, "old", b"text")
    await a_turn(it, "new")
    chain = links(3, "old")

    found = await it.settle(ask(chain, offer(chain, 1, 3, KEEP), hints=[digest("hint", "old")]))

    assert ({chain[1]: KEEP}, None) == (found.verdicts, found.last_sent)
    assert {} == dict(await it.recall(chain[1], [digest("old")]))


async def test_bytes_are_bounded_whatever_they_are_of() -> None:
    it = ledger(max_bytes=200_000)
    for number in range(100):
        await a_turn(it, f"conversation {number}", bytes(10_000))
        chain = links(401, f"verdicts {number}")
        rewritten = Verdict(Kind.REPLACE, "x" * 5_000)
        await it.settle(ask(chain, offer(chain, 1, 3, rewritten)))

    assert 0 < len(await listed(it)) < 20


async def test_one_conversation_too_large_loses_what_was_said_before_its_verdicts() -> None:
    it = ledger(max_bytes=100_000)
    chain = links(5)
    await it.settle(ask(chain, offer(chain, 1, 3, DROP)))

    it.remember(record(chain, elements(1, 2), entries=[Entry(digest("huge"), bytes(200_000))]))

    assert DROP == it.known(chain)[chain[2]]
    assert {} == dict(await it.recall(chain[1], [digest("huge")]))


async def test_texts_are_let_go_before_conversations_the_oldest_first() -> None:
    it = ledger(max_bytes=70_000)
    names = ["old", "young", "new"]
    for name in names:
        await a_turn(it, name, bytes(25_000))

    assert {links(3, name)[1].hex() for name in names} == await listed(it)
    told = [await it.recall(links(3, name)[1], [digest(name)]) for name in names]
    assert [0, 1, 1] == [len(texts) for texts in told]
    assert DROP == it.known(links(3, "old"))[links(3, "old")[2]]
    assert {} == dict(it.health().failures)


async def test_conversation_is_let_go_when_its_time_is_over() -> None:
    clock = Clock()
    it = ledger(clock, ttl=DAY)
    await a_turn(it, "old")
    clock.now += DAY - 1
    await a_turn(it, "young")
    clock.now += 2

    await it.settle(ask(links(3, "any")))

    assert {links(3, "young")[1].hex()} == await listed(it)
    assert {} == dict(it.health().failures)


async def test_every_turn_renews_the_time_of_a_conversation() -> None:
    clock = Clock()
    it = ledger(clock, ttl=DAY)
    await a_turn(it, "lasting")
    for _ in range(5):
        clock.now += DAY - 1
        await it.settle(ask(links(3, "lasting")))

    assert {links(3, "lasting")[1].hex()} == await listed(it)


async def test_digests_keep_no_text() -> None:
    it = ledger(history="digests")
    await a_turn(it, "secret", b"text")
    chain = links(3, "secret")

    found = await it.conversation(chain[1].hex())

    assert found is not None
    assert {} == dict(found.entries)
    assert {} == dict(await it.recall(chain[1], [digest("secret")]))


async def test_accounts_of_a_conversation_are_capped_and_its_turns_are_not() -> None:
    it = ledger()
    chain = links(3)
    for number in range(MAX_OUTCOMES + 5):
        it.remember(record(chain, elements(1), NOW + number, {"n": number}))

    found = await it.conversation(chain[1].hex())

    assert found is not None
    assert (MAX_OUTCOMES, 5) == (len(found.outcomes), found.outcomes[0]["n"])
    assert MAX_OUTCOMES + 5 == found.summary.turns


async def test_first_message_of_many_requests_gathers_no_end_of_text() -> None:
    it = ledger()
    first = links(1)
    for number in range(MAX_FIRST_ENTRIES + 10):
        it.remember(record(first, elements(number), entries=[Entry(digest(number), b"text")]))

    found = await it.conversation(first[0].hex())

    assert found is not None
    assert len(found.entries) <= MAX_FIRST_ENTRIES


async def test_set_policies_are_bounded_too() -> None:
    it = ledger()
    for number in range(MAX_SETTINGS + 1):
        await it.set_policy(digest(number), "keep")

    assert it.setting(digest(0)) is None
    assert "keep" == it.setting(digest(MAX_SETTINGS))


async def test_hint_goes_over_to_the_conversation_that_used_it_last() -> None:
    it = ledger(max_entries=2)
    for name in ("first", "second"):
        it.remember(record(links(3, name), elements(name), hints=[digest("session")]))
    await it.settle(ask(links(3, "second")))
    await it.settle(ask(links(3, "third")))

    found = await it.settle(ask(links(3, "second branch"), hints=[digest("session")]))

    assert found.last_sent is not None
    assert links(3, "second")[2] == found.last_sent.link


async def test_replies_go_with_their_conversation_and_never_with_what_was_said() -> None:
    it = ledger(max_bytes=100_000)
    chain = links(3)
    await it.keep(kept(chain, reply(1, 20_000), "ids"))
    await it.settle(ask(chain, echoes=[echo(chain, 1)], pins={"encoding": b"empty"}))
    it.remember(record(chain, elements(1, 2), entries=[Entry(digest("huge"), bytes(200_000))]))
    grown = links(5)

    found = await it.settle(ask(grown, echoes=[echo(grown, 3, "ids")]))
    for number in range(5):
        await it.keep(kept(links(3, f"{number}"), reply(number, 20_000), "ids"))

    assert {} == dict(await it.recall(chain[1], [digest("huge")]))
    assert {grown[3]: reply(1, 20_000)} == found.echoes
    assert {} == dict(it.echoed([chain[1], grown[3]]))
    assert {} == dict(it.pinned(chain[0], chain[1]))


async def test_replies_to_one_first_message_are_bounded_in_number() -> None:
    it = ledger(max_bytes=10**9)
    first = links(1)
    for number in range(MAX_FIRST_REPLIES + 1):
        await it.keep(kept(first, reply(number), number, f"text {number}"))

    chains = [fork(links(3), 1, 3, f"{number}") for number in (0, 1, MAX_FIRST_REPLIES)]
    found = [
        (await it.settle(ask(chain, echoes=[echo(chain, 1, number)]))).echoes[chain[1]]
        for chain, number in zip(chains, (0, 1, MAX_FIRST_REPLIES), strict=True)
    ]

    assert [None, reply(1), reply(MAX_FIRST_REPLIES)] == found


async def test_replies_to_one_first_message_leave_others_their_room() -> None:
    it = ledger(max_bytes=1_000_000)
    await it.keep(kept(links(3), reply("of another"), "ids"))
    first, grown = links(1, "hello"), links(5)
    for number in range(100):
        await it.keep(kept(first, reply(number, 50_000), number))

    found = await it.settle(ask(grown, echoes=[echo(grown, 3, "ids")]))

    assert {grown[3]: reply("of another")} == found.echoes
    assert {} == dict(it.health().failures)


async def test_reply_that_was_found_outlives_what_was_kept_under_the_root() -> None:
    it = ledger(max_bytes=1_000_000)
    chain = links(3)
    await it.keep(kept(chain[:1], reply("mine", 50_000), "ids"))
    await it.settle(ask(chain, echoes=[echo(chain, 1, "ids")]))
    for number in range(20):
        await it.keep(kept(chain[:1], reply(number, 50_000), number))

    assert {chain[1]: reply("mine", 50_000)} == dict(it.echoed(chain))


async def test_what_replies_take_is_weighed_from_above() -> None:
    it = ledger(max_bytes=10**9)
    chain = links(2_001)
    tracemalloc.start()
    for at in range(1, 2_000, 2):
        await it.keep(kept(chain[:at], reply(at, 500), f"ids {at}", f"text {at}"))
        await it.settle(
            ask(chain[:3], echoes=[echo(chain, at, f"ids {at}")], pins={f"{at}": b"x" * 40})
        )
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert taken < it._memory.weight < 4 * taken


async def test_weight_is_gone_when_all_is_gone() -> None:
    it = ledger()
    chain = links(3)
    await it.keep(kept(chain[:1], reply(1), "ids", "text"))
    await it.settle(ask(chain, echoes=[echo(chain, 1, "ids")], pins={"encoding": b"empty"}))
    it.remember(record(chain[:1], elements(1), outcome={"task": "a label"}))
    await it.grade(None, chain[0].hex(), Grade(True))
    it.remember(record(chain, elements(1), outcome={"task": "a longer label"}))
    it.remember(record(chain, elements(1), outcome={}))
    await it.grade(None, chain[1].hex(), Grade(False, 0.5, NOW))

    assert await it.forget(chain[1].hex())
    assert 0 == it._memory.weight


async def test_what_labels_and_grades_take_is_weighed_from_above() -> None:
    plain, labelled = ledger(), ledger()
    for number in range(500):
        chain = links(3, f"c{number}")
        task = f"a label as long as labels are, and this one is {number}"
        plain.remember(record(chain, elements(1)))
        labelled.remember(record(chain, elements(1), outcome={"at": NOW, "task": task}))
        told = len(task) + len(',"task":""')
        tracemalloc.start()
        await labelled.grade(None, chain[1].hex(), Grade(True, float(number), NOW))
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()

    each = (labelled._memory.weight - plain._memory.weight) / 500 - told
    assert taken + len(task) < each < 600


async def test_pins_and_lessons_are_bounded() -> None:
    it = ledger()
    chain = links(3)
    for number in range(MAX_PINS + 1):
        await it.settle(ask(chain, pins={f"{number}": b"x"}))
    for number in range(MAX_LESSONS + 1):
        await it.learn(f"{number}", b"x", 60)

    assert {f"{number}" for number in range(1, MAX_PINS + 1)} == set(it.pinned(chain[0], chain[1]))
    assert (None, b"x") == (await it.lesson("0"), await it.lesson(f"{MAX_LESSONS}"))


async def test_it_says_that_no_other_worker_sees_it() -> None:
    it = ledger()
    await it.open()

    assert ("up", 0, False) == (it.health().state, it.health().queued, it.health().shared)
    assert (await it.settle(ask(links(1)))).shared
    await it.close()


@pytest.mark.parametrize("options", [Options(max_entries=0), Options(max_bytes=0), Options(ttl=0)])
def test_bounds_that_hold_nothing_are_refused(options: Options) -> None:
    with pytest.raises(SettingsError):
        InMemory(options, Clock())
