"""Replies, their echoes, pins and lessons in Redis, against the real thing: two workers, and a
store that is away, slow, emptied, spoiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from proxy.core.verdict import DROP, KEEP
from proxy.ledger.contract import Settled
from proxy.ledger.in_redis import InRedis, Options
from proxy.ledger.scripts import Keys, told
from tests.doors.redis_server import Server, binaries, running
from tests.doors.test_redis import (
    KEY,
    MARKER,
    RUBBISH,
    back,
    conversation_key,
    everything,
    failures,
    killed,
    opened,
    until,
    until_counted,
)
from tests.ledger.words import (
    NOW,
    SCOPE,
    ask,
    echo,
    elements,
    fork,
    kept,
    links,
    offer,
    record,
    reply,
    settled,
    written,
)  # fmt: skip


@pytest.fixture(params=binaries())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as it:
        yield it


@pytest.fixture
def raw(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


CHAIN = links(5)
ECHO = echo(CHAIN, 3, "ids", "text")
KEPT = kept(CHAIN[:3], reply(1), "ids", "text")
QUESTION = ask(CHAIN, echoes=[ECHO], pins={"encoding": b"empty"})


def options_of(server: Server) -> Options:
    return Options(server.url, timeout=5.0)


async def taken(ledger: InRedis) -> None:
    """Keep a reply in the shared store, waiting until it is reached."""
    while not await ledger.keep(KEPT):  # noqa: ASYNC110  (as turns do)
        await asyncio.sleep(0.002)


# One exchange.


async def test_keeping_and_settling_are_one_script_each(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        raw.config_resetstat()
        await one.keep(KEPT)
        kept_calls = raw.info("commandstats")["cmdstat_evalsha"]["calls"]
        own = await one.settle(ask(CHAIN, offer(CHAIN, 3, 5, DROP), echoes=[ECHO]))
        theirs = await other.settle(QUESTION)

        assert (1, 3) == (kept_calls, raw.info("commandstats")["cmdstat_evalsha"]["calls"])
        assert {CHAIN[3]: reply(1)} == own.echoes == theirs.echoes


def test_turn_without_echoes_and_pins_tells_the_store_nothing_of_them() -> None:
    assert [] == told([], [])


async def test_reply_lies_there_once_and_is_not_sent_to_who_has_it(
    server: Server, raw: redis.Redis
) -> None:
    large = reply("large", 100_000)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.keep(kept(CHAIN[:3], large, "ids", "text", "third"))
        raw.config_resetstat()
        await one.settle(ask(CHAIN, echoes=[ECHO]))
        to_who_has_it = raw.info("stats")["total_net_output_bytes"]
        await other.settle(ask(CHAIN, echoes=[ECHO]))
        to_who_has_not = raw.info("stats")["total_net_output_bytes"] - to_who_has_it

        held = raw.memory_usage(conversation_key(CHAIN), samples=0)
        assert held is not None
        assert 100_000 < held < 150_000
        assert 100_000 < to_who_has_not
        # What it takes to ask for the figures is in it.
        assert to_who_has_it < 50_000


async def test_history_of_digests_has_the_replies_that_are_kept(
    server: Server, raw: redis.Redis
) -> None:
    async with (
        opened(server.url, history="digests") as one,
        opened(server.url, history="digests") as other,
    ):
        await one.keep(KEPT)

        assert {CHAIN[3]: reply(1)} == (await other.settle(QUESTION)).echoes


# Time.


async def test_replies_pins_and_lessons_expire(server: Server, raw: redis.Redis) -> None:
    first = links(1, "first")
    async with opened(server.url) as ledger:
        await ledger.keep(KEPT)
        await ledger.keep(kept(first, reply(1), "ids"))
        await ledger.settle(ask(links(3, "pinned"), pins={"encoding": b"empty"}))
        await ledger.settle(ask(links(3, "echoed"), echoes=[echo(links(3, "echoed"), 1)]))
        await ledger.learn("name", b"value", 60)

        assert 5 == len(raw.keys())
        assert [] == [key for key in raw.keys() if raw.ttl(key) == -1]
        assert 0 < raw.ttl(Keys().lesson("name")) <= 60


# At rest.


async def test_with_a_key_no_reply_pin_or_lesson_can_be_read(
    server: Server, raw: redis.Redis
) -> None:
    pytest.importorskip("cryptography", reason="the optional extra is not installed")
    async with (
        opened(server.url, encryption_key=KEY) as one,
        opened(server.url, encryption_key=KEY) as other,
        opened(server.url) as stranger,
    ):
        await one.keep(kept(CHAIN[:3], reply(MARKER), "ids"))
        await one.settle(ask(CHAIN[:3], pins={"order": MARKER.encode()}))
        await one.learn("lesson", MARKER.encode(), 60)

        assert MARKER.encode() not in everything(raw)

        found = await other.settle(ask(CHAIN, echoes=[ECHO], pins={"order": b""}))
        lesson = await other.lesson("lesson")
        unread = await stranger.settle(ask(CHAIN, echoes=[ECHO], pins={"order": b"mine"}))

        assert {CHAIN[3]: reply(MARKER)} == found.echoes
        assert ({"order": MARKER.encode()}, MARKER.encode()) == (found.pins, lesson)
        assert ({CHAIN[3]: None}, {"order": b"mine"}) == (unread.echoes, unread.pins)
        assert await stranger.lesson("lesson") is None
        assert 3 == failures(stranger)["unreadable"]


# Rubbish.


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_what_cannot_be_read_counts_as_absent(
    server: Server, raw: redis.Redis, rubbish: bytes
) -> None:
    key = conversation_key(CHAIN)
    async with opened(server.url) as one:
        await one.keep(KEPT)
        await one.settle(ask(CHAIN[:3], pins={"encoding": b"first"}))
        await one.learn("lesson", b"value", 60)
    for field in raw.hkeys(key):
        raw.hset(key, field, rubbish)
    raw.set(Keys().lesson("lesson"), rubbish)
    async with opened(server.url) as two, opened(server.url) as three:
        found = await two.settle(QUESTION)
        again = await three.settle(ask(CHAIN, echoes=[ECHO], pins={"encoding": b"other"}))

        assert ({CHAIN[3]: None}, {"encoding": b"empty"}) == (found.echoes, found.pins)
        assert (found.echoes, found.pins) == (again.echoes, again.pins)
        assert await two.lesson("lesson") is None


@pytest.mark.parametrize("letter", ["r", "k", "w"])
async def test_who_has_the_reply_mends_what_was_spoiled(
    server: Server, raw: redis.Redis, letter: str
) -> None:
    key = conversation_key(CHAIN)
    async with opened(server.url) as one, opened(server.url) as two, opened(server.url) as three:
        await one.keep(KEPT)
        raw.hset(key, b"w" + CHAIN[3], b"rubbish")
        for field in raw.hkeys(key):
            if field[:1] == letter.encode():
                raw.hset(key, field, b"rubbish")

        mended = await one.settle(QUESTION)
        found = [(await worker.settle(QUESTION)).echoes for worker in (two, three)]

        assert {CHAIN[3]: reply(1)} == mended.echoes
        assert [mended.echoes, mended.echoes] == found


async def test_keys_of_another_type_are_no_trouble(server: Server, raw: redis.Redis) -> None:
    first, grown = links(1), links(3)
    raw.set(conversation_key(first), "x")
    raw.set(conversation_key(CHAIN), "x")
    raw.lpush(Keys().lesson("name"), "x")
    async with opened(server.url) as one, opened(server.url) as other:
        missed = await one.settle(ask(grown, echoes=[echo(grown, 1, "ids")], pins={"a": b"1"}))
        raw.set(conversation_key(first), "x")
        kept_first = await one.keep(kept(first, reply(1), "ids"))
        lesson = await one.lesson("name")
        learned = await one.learn("name", b"value", 60)
        found = await other.settle(ask(fork(grown, 1, 3, "f"), echoes=[echo(grown, 2, "ids")]))

        assert ({grown[1]: None}, {"a": b"1"}) == (missed.echoes, missed.pins)
        assert (True, None, True) == (kept_first, lesson, learned)
        assert {grown[2]: reply(1)} == found.echoes


async def test_scripts_that_the_server_lost_are_given_again(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        server.ask("SCRIPT", "FLUSH")
        assert await one.keep(KEPT)
        server.ask("SCRIPT", "FLUSH")

        assert {CHAIN[3]: reply(1)} == (await other.settle(QUESTION)).echoes
        assert {} == failures(one) == failures(other)


# Two workers.


async def test_tool_that_answers_at_once_finds_the_reply_on_the_other_worker(
    server: Server,
) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        for number in range(100):
            chain = links(3, f"{number}")
            assert await one.keep(kept(chain[:1], reply(number), "ids", "text"))

            found = await other.settle(ask(chain, echoes=[echo(chain, 1, "ids", "text")]))

            assert {chain[1]: reply(number)} == found.echoes


async def test_whoever_asks_at_the_same_time_is_told_the_same(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        for number in range(50):
            chain = links(3, f"{number}")
            pins = [{"encoding": b"%d" % place} for place in range(6)]
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        (one, other)[place % 2].settle(
                            ask(chain, echoes=[echo(chain, 1, "ids")], pins=pins[place])
                        )
                    )
                    for place in range(6)
                ]
                keeping = group.create_task(one.keep(kept(chain[:1], reply(number), "ids")))
            answers = [task.result() for task in tasks]

            assert keeping.result()
            assert [answers[0].echoes] * 6 == [answer.echoes for answer in answers]
            assert [answers[0].pins] * 6 == [answer.pins for answer in answers]
            assert sum(answer.missed for answer in answers) == (None in answers[0].echoes.values())


async def test_many_first_requests_leave_pins_and_what_their_worker_keeps(
    server: Server, raw: redis.Redis
) -> None:
    first, grown = links(1), links(3)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.keep(kept(first, reply(1), "ids"))
        await one.settle(ask(first, pins={"encoding": b"first"}))
        raw.hset(conversation_key(first), mapping={f"e{n}": n for n in range(5_000)})
        one.remember(record(first, elements(1)))
        await written(one)

        found = await one.settle(ask(grown, echoes=[echo(grown, 1, "ids")]))
        pinned = await other.settle(
            ask(grown, echoes=[echo(grown, 1, "ids")], pins={"encoding": b"other"})
        )

        assert raw.hlen(conversation_key(first)) < 100
        assert {grown[1]: reply(1)} == found.echoes == pinned.echoes
        assert {"encoding": b"first"} == pinned.pins
        assert {} == failures(one)


# Away.


@asynccontextmanager
async def emptied(server: Server) -> AsyncIterator[tuple[InRedis, InRedis]]:
    """Two workers of which the one has kept a reply, when the store was killed and is back."""
    async with opened(server.url) as one, opened(server.url) as other:
        await one.keep(KEPT)
        await killed(server, one, other)
        await back(server, one, other)
        yield one, other


async def test_reply_outlives_a_store_that_was_killed_where_its_worker_asks_first(
    server: Server,
) -> None:
    async with emptied(server) as (one, other):
        mine = await settled(one, QUESTION)
        theirs = await settled(other, QUESTION)

        assert {CHAIN[3]: reply(1)} == mine.echoes == theirs.echoes


async def test_miss_stands_where_the_other_worker_asks_a_killed_store_first(
    server: Server,
) -> None:
    async with emptied(server) as (one, other):
        theirs = await settled(other, QUESTION)
        mine = await settled(one, QUESTION)

        assert ({CHAIN[3]: None}, 1) == (theirs.echoes, theirs.missed)
        assert ({CHAIN[3]: None}, 0) == (mine.echoes, mine.missed)


async def test_what_was_told_without_the_store_is_told_by_all_when_it_is_back(
    server: Server,
) -> None:
    lost = links(5, "lost")
    async with opened(server.url) as one, opened(server.url) as other:
        await settled(one, ask(CHAIN[:3]))
        await killed(server, one, other)
        kept_alone = await one.keep(KEPT)
        alone = await one.settle(QUESTION)
        missed = await one.settle(ask(lost, echoes=[echo(lost, 3, "ids")]))
        queued = one.health().queued
        await back(server, one, other)
        await written(one)
        other_pins = ask(CHAIN, echoes=[ECHO], pins={"encoding": b"other"})
        theirs = await settled(other, other_pins)
        also_missed = await settled(other, ask(lost, echoes=[echo(lost, 3, "ids")]))

        assert (False, False, 3) == (kept_alone, alone.shared, queued)
        assert ({CHAIN[3]: reply(1)}, {"encoding": b"empty"}) == (alone.echoes, alone.pins)
        assert (alone.echoes, alone.pins) == (theirs.echoes, theirs.pins)
        assert ({lost[3]: None}, 1) == (missed.echoes, missed.missed)
        assert ({lost[3]: None}, 0) == (also_missed.echoes, also_missed.missed)
        assert 1 == failures(one)["untaken"]
        assert "diverged" not in failures(one)


async def test_miss_that_was_told_stays_one_though_the_reply_is_there(server: Server) -> None:
    waiting = InRedis(options_of(server), clock=lambda: NOW)
    async with opened(server.url) as one:
        await one.keep(KEPT)
        alone = await waiting.settle(QUESTION)
        await waiting.open()
        await written(waiting)
        theirs = await one.settle(QUESTION)
        await waiting.close()

        assert ({CHAIN[3]: None}, False) == (alone.echoes, alone.shared)
        assert {CHAIN[3]: None} == theirs.echoes
        assert "diverged" not in failures(waiting)


async def test_finding_and_pin_that_come_too_late_are_counted(server: Server) -> None:
    waiting = InRedis(options_of(server), clock=lambda: NOW)
    async with opened(server.url) as one:
        first = await one.settle(ask(CHAIN, echoes=[ECHO], pins={"encoding": b"first"}))
        await waiting.keep(KEPT)
        alone = await waiting.settle(QUESTION)
        await waiting.open()
        await written(waiting)
        after = await one.settle(QUESTION)
        mine = await settled(waiting, QUESTION)
        await waiting.close()

        assert ({CHAIN[3]: None}, {"encoding": b"first"}) == (first.echoes, first.pins)
        assert ({CHAIN[3]: reply(1)}, {"encoding": b"empty"}) == (alone.echoes, alone.pins)
        assert (first.echoes, first.pins) == (after.echoes, after.pins)
        # What this worker has told it goes on telling: its own turns keep their prefix.
        assert (alone.echoes, alone.pins) == (mine.echoes, mine.pins)
        assert 2 == failures(waiting)["diverged"]


async def test_reply_that_waits_is_written_when_the_store_is_back(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        await killed(server, one, other)
        assert not await one.keep(KEPT)
        await back(server, one, other)
        await written(one)

        assert {CHAIN[3]: reply(1)} == (await settled(other, QUESTION)).echoes


async def test_replies_that_wait_are_bounded(server: Server) -> None:
    async with opened(server.url, max_queue_bytes=50_000) as one:
        await killed(server, one)
        for number in range(10):
            await one.keep(kept(links(3, f"{number}"), reply(number, 20_000), "ids"))

        assert (2, 8) == (one.health().queued, failures(one)["let_go"])


async def test_lesson_serves_the_worker_that_learned_it_while_the_store_is_away(
    server: Server,
) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        await one.learn("shared", b"1", 60)
        assert b"1" == await other.lesson("shared")
        await killed(server, one, other)

        assert not await one.learn("own", b"2", 60)
        assert (b"1", b"2") == (await one.lesson("shared"), await one.lesson("own"))
        assert (b"1", None) == (await other.lesson("shared"), await other.lesson("own"))


# Slow.


async def test_slow_store_holds_up_no_reply(server: Server) -> None:
    async with opened(server.url, timeout=0.05) as one, opened(server.url) as other:
        await taken(one)
        server.pause()
        chain = links(5, "slow")
        slow = await one.keep(kept(chain[:3], reply("slow"), "ids"))
        state = one.health().state
        at_once = [await one.keep(kept(chain[:3], reply(n), n)) for n in range(100)]
        lesson = await one.lesson("any")
        alone = await one.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))
        server.resume()
        await until(one, "up")
        await written(one)
        theirs = await settled(other, ask(chain, echoes=[echo(chain, 3, "ids")]))

        assert (False, "slow", {False}, None) == (slow, state, set(at_once), lesson)
        assert {chain[3]: reply("slow")} == alone.echoes == theirs.echoes
        # One waited; the others knew.
        assert failures(one)["timeout"] < 10


async def test_client_that_leaves_while_its_reply_is_kept_leaves_it_there(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        server.pause()
        leaving = asyncio.ensure_future(one.keep(KEPT))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        server.resume()
        await written(one)

        assert {CHAIN[3]: reply(1)} == (await other.settle(QUESTION)).echoes
        assert {} == failures(one)


async def test_store_without_memory_takes_the_reply_when_it_has_some(
    server: Server, raw: redis.Redis
) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        raw.config_set("maxmemory-policy", "noeviction")
        raw.config_set("maxmemory", 1)
        refused = await one.keep(KEPT)
        await until_counted(one, "refused", 2)
        raw.config_set("maxmemory", 0)
        await written(one)

        assert not refused
        assert {CHAIN[3]: reply(1)} == (await other.settle(QUESTION)).echoes


# Emptied.


async def test_emptied_store_is_told_again_what_was_found_and_pinned(server: Server) -> None:
    grown = links(7)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.keep(KEPT)
        before = await one.settle(
            ask(CHAIN, echoes=[ECHO, echo(CHAIN, 1, "none")], pins={"encoding": b"empty"})
        )
        server.flush()
        await one.settle(ask(grown, offer(grown, 1, 3, KEEP)))
        await written(one)
        after = await other.settle(
            ask(grown, echoes=[ECHO, echo(CHAIN, 1, "none")], pins={"encoding": b"other"})
        )

        assert {CHAIN[3]: reply(1), CHAIN[1]: None} == before.echoes == after.echoes
        assert {"encoding": b"empty"} == before.pins == after.pins
        assert 0 == after.missed
        assert 1 == failures(one)["lost"]


async def test_first_pin_that_was_lost_is_told_again(server: Server) -> None:
    grown = links(3)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.settle(ask(grown[:1], pins={"encoding": b"first"}))
        server.flush()
        mine = await one.settle(ask(grown, pins={"encoding": b"second"}))
        theirs = await other.settle(ask(grown, pins={"encoding": b"third"}))

        assert {"encoding": b"first"} == mine.pins == theirs.pins


async def test_forgotten_conversation_leaves_nothing_of_its_replies(
    server: Server, raw: redis.Redis
) -> None:
    grown, sibling = links(3), fork(links(3), 1, 3, "sibling")
    async with opened(server.url) as one, opened(server.url) as other:
        await one.keep(kept(grown[:1], reply(MARKER), "ids"))
        await other.settle(ask(grown, echoes=[echo(grown, 1, "ids")]))
        for chain in (grown, sibling):
            other.remember(record(chain, elements(1)))
        await written(other)

        assert MARKER.encode() in everything(raw)
        assert await other.forget(grown[1].hex())
        assert MARKER.encode() not in everything(raw)
        assert raw.exists(conversation_key(sibling))


async def test_ledger_that_was_never_opened_keeps_for_itself(server: Server) -> None:
    ledger = InRedis(options_of(server), clock=lambda: NOW)

    kept_at_all = await ledger.keep(KEPT)
    found: Settled = await ledger.settle(QUESTION)
    await ledger.close()

    assert (False, {CHAIN[3]: reply(1)}) == (kept_at_all, found.echoes)
    assert 1 == failures(ledger)["untaken"]


async def test_set_policy_changes_nothing_of_what_is_found(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        await one.keep(KEPT)
        await one.set_policy(SCOPE, "drop")

        found = await other.settle(QUESTION)

        assert ({CHAIN[3]: reply(1)}, "drop") == (found.echoes, found.setting)
