"""The ledger in memory: its bounds, and what it says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.errors import SettingsError
from proxy.ledger.contract import Entry
from proxy.ledger.in_memory import InMemory, Options
from proxy.ledger.local import MAX_FIRST_ENTRIES, MAX_OUTCOMES, MAX_SETTINGS
from tests.ledger.words import NOW, Clock, ask, digest, elements, links, offer, record

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
