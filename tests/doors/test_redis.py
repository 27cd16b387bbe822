"""The ledger in Redis against the real thing: away, slow, emptied, spoiled, unwilling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.errors import SettingsError
from proxy.ledger.codec import Codec
from proxy.ledger.contract import Entry, Grade, Settled
from proxy.ledger.in_redis import InRedis, Options
from proxy.ledger.scripts import Keys
from proxy.ledger.trail import REBASE
from tests.doors.redis_server import Server, binaries, free_port, running
from tests.ledger.words import (
    NOW,
    PATIENCE,
    SCOPE,
    Clock,
    ask,
    conversation_of,
    digest,
    element,
    elements,
    links,
    offer,
    record,
    settled,
    written,
)  # fmt: skip

KEY = bytes(range(32)).hex()
MARKER = "a-marker-that-no-digest-contains"
TTL = 5_000


@pytest.fixture(params=binaries())
def binary(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


@pytest.fixture
def server(binary: str | None) -> Iterator[Server]:
    with running(binary) as it:
        yield it


@pytest.fixture
def raw(server: Server) -> Iterator[redis.Redis]:
    """A plain client, to look at what lies in the store and to spoil it."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@asynccontextmanager
async def opened(url: str, clock: Clock | None = None, **options: Any) -> AsyncIterator[InRedis]:
    # The pause between probes is short, and nothing is waited for that a busy machine cannot do.
    given = {"timeout": 5.0, "ttl": TTL, "breaker_first": 0.02, "breaker_most": 0.1, **options}
    ledger = InRedis(Options(url, **given), clock or Clock())
    await ledger.open()
    try:
        yield ledger
    finally:
        await ledger.close()


async def until(ledger: InRedis, state: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while ledger.health().state != state:  # noqa: ASYNC110  (it is polled)
            await asyncio.sleep(0.002)


async def killed(server: Server, *ledgers: InRedis) -> None:
    server.kill()
    for ledger in ledgers:
        await until(ledger, "down")


async def back(server: Server, *ledgers: InRedis) -> None:
    server.start()
    for ledger in ledgers:
        await until(ledger, "up")


async def until_counted(ledger: InRedis, kind: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while failures(ledger).get(kind, 0) < count:  # noqa: ASYNC110  (it is polled)
            await asyncio.sleep(0.002)


def failures(ledger: InRedis) -> dict[str, int]:
    return dict(ledger.health().failures)


def conversation_key(chain: tuple[bytes, ...]) -> str:
    return Keys().conversation(chain[0], conversation_of(chain))


def everything(raw: redis.Redis) -> bytes:
    """All that lies in the store, names and values."""
    found: list[Any] = []
    for key in raw.keys():
        match raw.type(key):
            case b"string":
                found.append((key, raw.get(key)))
            case b"hash":
                found.append((key, raw.hgetall(key)))
            case b"zset":
                found.append((key, raw.zrange(key, 0, -1)))
            case other:
                raise AssertionError(f"{key!r} is a {other!r}")
    return repr(found).encode()


async def a_conversation(ledger: InRedis, turns: int = 3, text: str = "", name: str = "c") -> None:
    chain = links(2 * turns + 1, name)
    for turn in range(turns + 1):
        so_far = chain[: 2 * turn + 1]
        steps = [offer(so_far, 2 * turn - 1, 2 * turn + 1, DROP)] if turn else []
        await ledger.settle(ask(so_far, *steps))
        ledger.remember(
            record(
                so_far, elements(*range(len(so_far))), NOW + turn, {"turn": turn},
                [Entry(digest(name, turn), f"left {text} {turn}".encode(), text.encode())],
                hints=[digest("session", name)],
            )
        )  # fmt: skip
    await written(ledger)


# One exchange.


async def test_settling_is_one_script(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url) as ledger:
        chain = links(401)
        offers = [offer(chain, first, first + 2, DROP) for first in range(1, 401, 2)]
        raw.config_resetstat()

        answer = await ledger.settle(ask(chain, *offers, hints=[digest(n) for n in range(9)]))
        stats = raw.info("commandstats")

        assert (200, 1) == (answer.won, stats["cmdstat_evalsha"]["calls"])
        assert "cmdstat_eval" not in stats


async def test_remembering_a_turn_writes_what_is_new(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url) as ledger:
        chain = links(401)
        ledger.remember(record(chain[:399], elements(*range(399))))
        await written(ledger)
        before = raw.memory_usage(conversation_key(chain), samples=0)
        assert before is not None

        ledger.remember(record(chain, elements(*range(401))))
        await written(ledger)
        after = raw.memory_usage(conversation_key(chain), samples=0)

        assert after is not None
        assert after - before < 1_000 < before / 10


async def test_only_one_of_many_who_offer_at_once_wins(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        chain = links(3)
        asks = [ask(chain, offer(chain, 1, 3, verdict)) for verdict in (DROP, KEEP) * 50]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task((one, other)[number % 2].settle(question))
                for number, question in enumerate(asks)
            ]
        answers = [task.result() for task in tasks]

        assert 1 == sum(answer.won for answer in answers)
        assert 1 == len({answer.verdicts[chain[1]] for answer in answers})


async def test_record_has_a_bounded_row_of_parents(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        chain = links(601)
        for turn in range(1, 301):
            one.remember(record(chain[: 2 * turn + 1], elements(*range(turn)), NOW + turn))
        await written(one)

        answer = await other.settle(ask(chain))
        bodies = [
            value
            for name, value in raw.hgetall(conversation_key(chain)).items()
            if name[:1] == b"d"
        ]

        assert answer.last_sent is not None
        assert elements(*range(300)) == answer.last_sent.elements
        assert REBASE == max(body[16] for body in bodies)


async def test_remembers_of_a_conversation_are_written_in_order(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        chain = links(201)
        for turn in range(100):
            ledger_chain = chain[: 2 * turn + 3]
            one.remember(record(ledger_chain, elements(turn), NOW + turn, {"turn": turn}))
        await written(one)

        found = await other.conversation(chain[1].hex())

        assert found is not None
        assert list(range(100)) == [outcome["turn"] for outcome in found.outcomes]
        assert {"turn": 99} == found.summary.last


# Time.


async def test_every_key_but_the_set_policy_expires(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url) as ledger:
        await a_conversation(ledger)
        chain = links(3, "labelled")
        ledger.remember(record(chain, elements(1), outcome={"task": "mend"}))
        await written(ledger)
        assert await ledger.grade(SCOPE, chain[1].hex(), Grade(True))
        await ledger.set_policy(SCOPE, "keep")

        lasting = {key for key in raw.keys() if raw.ttl(key) == -1}

        assert {Keys().policy(SCOPE).encode()} == lasting


async def test_every_turn_renews_all_that_a_conversation_needs(
    server: Server, raw: redis.Redis
) -> None:
    async with opened(server.url) as ledger:
        await a_conversation(ledger)
        for key in raw.keys():
            raw.expire(key, 100)

        await a_conversation(ledger)
        short = {key for key in raw.keys() if raw.ttl(key) <= 100}

        assert set() == short


async def test_grade_lasts_as_long_as_its_conversation(server: Server, raw: redis.Redis) -> None:
    chain = links(7, "c")
    async with opened(server.url) as ledger:
        await a_conversation(ledger)
        raw.expire(conversation_key(chain), 100)

        await ledger.grade(SCOPE, chain[1].hex(), Grade(True))
        short = raw.ttl(conversation_key(chain))
        raw.delete(conversation_key(chain))

        assert 0 < short <= 100
        assert await ledger.grade(SCOPE, chain[1].hex(), Grade(True)) is None


async def test_settling_what_is_known_already_renews_too(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url) as ledger:
        await a_conversation(ledger)
        chain = links(7, "c")
        key = conversation_key(chain)
        raw.expire(key, 100)

        await ledger.settle(ask(chain, offer(chain, 1, 3, KEEP)))

        assert raw.ttl(key) > 100


async def test_lists_leave_out_what_has_expired(server: Server, raw: redis.Redis) -> None:
    clock = Clock()
    async with opened(server.url, clock) as ledger:
        ledger.remember(record(links(3, "old"), elements(1), NOW))
        await written(ledger)
        clock.now += TTL + 1
        listed = await ledger.conversations(None, 10)
        ledger.remember(record(links(3, "new"), elements(1), clock.now))
        await written(ledger)

        assert [] == listed
        assert 1 == raw.zcard(Keys().index(None)) == raw.zcard(Keys().index(SCOPE))


async def test_label_leads_to_nothing_that_has_expired_and_to_no_end_of_conversations(
    server: Server, raw: redis.Redis
) -> None:
    clock = Clock()
    async with opened(server.url, clock, max_listed=10) as ledger:
        for number in range(12):
            chain = links(3, f"c{number}")
            ledger.remember(record(chain, elements(1), NOW + number, {"task": "mend"}))
        await written(ledger)
        (index,) = raw.keys("lethe:1:task:*")
        bounded = raw.zcard(index)
        clock.now += TTL + 100

        assert 10 == bounded
        assert [] == await ledger.labelled(None, "mend", 20)


async def test_index_is_bounded(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url, max_listed=10) as ledger:
        for number in range(50):
            ledger.remember(record(links(3, f"{number}"), elements(1), NOW + number))
        await written(ledger)

        assert 10 == raw.zcard(Keys().index(None)) == raw.zcard(Keys().index(SCOPE))
        assert NOW + 49 == (await ledger.conversations(None, 1))[0].last_at


async def test_first_message_of_many_requests_gathers_no_end_of_records(
    server: Server, raw: redis.Redis
) -> None:
    async with opened(server.url) as ledger:
        first = links(1)
        ledger.remember(record(first, elements(1)))
        await written(ledger)
        raw.hset(conversation_key(first), mapping={f"e{n}": n for n in range(5_000)})

        ledger.remember(record(first, elements(1, 2), NOW + 1))
        await written(ledger)
        found = await ledger.conversation(first[0].hex())

        assert raw.hlen(conversation_key(first)) < 100
        assert found is not None
        assert found.last_sent is not None
        assert elements(1, 2) == found.last_sent.elements


async def test_lists_are_as_long_as_asked(server: Server) -> None:
    async with opened(server.url) as ledger:
        for number in range(450):
            ledger.remember(record(links(3, f"{number}"), elements(1), NOW + number))
        await written(ledger)

        assert 300 == len(await ledger.conversations(None, 300))
        assert 450 == len(await ledger.conversations(SCOPE, 1_000))


# At rest.


async def test_digests_leave_no_text_at_rest(server: Server, raw: redis.Redis) -> None:
    async with opened(server.url, history="full") as ledger:
        await a_conversation(ledger, text=MARKER)
        found = await ledger.conversation(links(7, "c")[1].hex())
        assert found is not None
        assert 4 == len(found.entries)
        assert MARKER.encode() in everything(raw)
    server.flush()

    async with opened(server.url, history="digests") as ledger:
        await a_conversation(ledger, text=MARKER)
        found = await ledger.conversation(links(7, "c")[1].hex())

        assert found is not None
        assert {} == dict(found.entries)
        assert MARKER.encode() not in everything(raw)


async def test_with_a_key_nothing_at_rest_can_be_read(server: Server, raw: redis.Redis) -> None:
    pytest.importorskip("cryptography", reason="the optional extra is not installed")
    chain = links(3, "rewritten")
    rewritten = Verdict(Kind.REPLACE, f"state: {MARKER}")
    async with opened(server.url, encryption_key=KEY) as one:
        await a_conversation(one, text=MARKER)
        await one.settle(ask(chain, offer(chain, 1, 3, rewritten)))
        one.remember(record(chain, elements(MARKER), outcome={"task": MARKER}))
        await written(one)
        await one.grade(None, chain[1].hex(), Grade(True, 0.515151))

        assert b"515151" not in everything(raw)
        assert Keys().task(Codec().label(MARKER)).encode() not in raw.keys()
        assert MARKER.encode() not in everything(raw)
    async with opened(server.url, encryption_key=KEY) as other:
        answer = await other.settle(ask(chain, offer(chain, 1, 3, KEEP)))
        found = await other.conversation(chain[1].hex())

        assert {chain[1]: rewritten} == answer.verdicts
        assert answer.last_sent is not None
        assert elements(MARKER) == answer.last_sent.elements
        assert found is not None
        assert ({"task": MARKER},) == found.outcomes
        assert Grade(True, 0.515151) == found.summary.grade
        assert [found.summary.id] == [it.id for it in await other.labelled(None, MARKER, 5)]


async def test_what_another_key_sealed_counts_as_absent(server: Server) -> None:
    pytest.importorskip("cryptography", reason="the optional extra is not installed")
    chain = links(7, "c")
    async with opened(server.url, encryption_key=KEY) as one:
        await a_conversation(one)
    async with (
        opened(server.url, encryption_key="ff" * 32) as two,
        opened(server.url, encryption_key="ff" * 32) as three,
    ):
        question = ask(chain, offer(chain, 1, 3, KEEP), hints=[digest("session", "c")])

        first = await two.settle(question)
        second = await three.settle(ask(chain, offer(chain, 1, 3, DROP)))

        assert ({chain[1]: KEEP}, 1, None) == (first.verdicts, first.won, first.last_sent)
        assert ({chain[1]: KEEP}, 0) == (second.verdicts, second.won)
        assert failures(two)["unreadable"] > 0


# Rubbish.


RUBBISH = [b"", b"\x01", b"x", b"\x01r\xff\xfe", b"\x07k", b"rubbish" * 20, bytes(64)]


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_values_that_cannot_be_read_count_as_absent(
    server: Server, raw: redis.Redis, rubbish: bytes
) -> None:
    chain = links(7, "c")
    async with opened(server.url) as one:
        await a_conversation(one)
        await one.set_policy(SCOPE, "keep")
    for key in raw.keys():
        match raw.type(key):
            case b"hash":
                raw.hset(key, mapping={field: rubbish for field in raw.hkeys(key)})
            case b"string":
                raw.set(key, rubbish)
            case b"zset":
                raw.zadd(key, {rubbish: NOW})
    async with opened(server.url) as other:
        question = ask(
            chain, offer(chain, 1, 3, KEEP), offer(chain, 3, 5, None),
            hints=[digest("session", "c")],
        )  # fmt: skip

        answer = await other.settle(question)
        await a_conversation(other)
        listed = await other.conversations(None, 10)
        found = await other.conversation(conversation_of(chain).hex())
        third = await other.settle(ask(chain, offer(chain, 1, 3, DROP)))

        assert answer.shared
        assert ({chain[1]: KEEP}, 1) == (answer.verdicts, answer.won)
        assert (None, False) == (answer.last_sent, answer.by_hint)
        assert KEEP == third.verdicts[chain[1]]
        assert listed is not None
        assert found is None or found.outcomes


async def test_set_policy_that_cannot_be_read_counts_as_none(
    server: Server, raw: redis.Redis
) -> None:
    chain = links(3)
    raw.set(Keys().policy(SCOPE), b"rubbish")
    async with opened(server.url) as ledger:
        answer = await ledger.settle(ask(chain, offer(chain, 1, 3, KEEP)))

        assert ({chain[1]: KEEP}, 1, None) == (answer.verdicts, answer.won, answer.setting)


async def test_earlier_verdict_stands_where_the_latest_cannot_be_read(
    server: Server, raw: redis.Redis
) -> None:
    chain = links(4)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.settle(ask(chain[:3], offer(chain, 1, 3, DROP)))
        raw.hset(conversation_key(chain), b"v" + chain[3], b"rubbish")

        answer = await other.settle(ask(chain, offer(chain, 1, 4, KEEP)))

        assert ({chain[1]: DROP}, 0) == (answer.verdicts, answer.won)
        assert 1 == failures(other)["unreadable"]


async def test_earlier_record_is_found_where_the_latest_cannot_be_put_together(
    server: Server, raw: redis.Redis
) -> None:
    chain = links(7)
    async with opened(server.url) as one, opened(server.url) as other:
        one.remember(record(chain[:3], elements(1, 2, 3)))
        one.remember(latest := record(chain[:5], elements(1, 2, 3, 4)))
        await written(one)
        raw.hdel(conversation_key(chain), b"d" + latest.sent.outgoing)

        answer = await other.settle(ask(chain))
        found = await other.conversation(chain[1].hex())

        assert answer.last_sent is not None
        assert elements(1, 2, 3) == answer.last_sent.elements
        assert found is not None
        assert answer.last_sent == found.last_sent

        raw.hdel(conversation_key(chain), b"d" + answer.last_sent.outgoing)
        without = await other.conversation(chain[1].hex())

        assert without is not None
        assert without.last_sent is None


async def test_keys_of_another_type_are_no_trouble(server: Server, raw: redis.Redis) -> None:
    chain = links(7, "c")
    async with opened(server.url) as one:
        await a_conversation(one)
        await one.set_policy(SCOPE, "keep")
    for key in raw.keys():
        kind = raw.type(key)
        raw.delete(key)
        if kind == b"string":
            raw.lpush(key, "x")
        else:
            raw.set(key, "x")
    async with opened(server.url) as two, opened(server.url) as three:
        answer = await two.settle(
            ask(chain, offer(chain, 1, 3, KEEP), hints=[digest("session", "c")])
        )
        two.remember(record(chain, elements(1, 2)))
        await written(two)
        after = await three.settle(ask(chain, offer(chain, 1, 3, DROP)))

        assert ({chain[1]: KEEP}, None, None) == (
            answer.verdicts, answer.last_sent, answer.setting,
        )  # fmt: skip
        assert {chain[1]: KEEP} == after.verdicts
        assert answer.shared
        assert [] == await three.conversations(None, 10)
        assert await three.conversation(chain[1].hex()) is None
        assert {} == dict(await three.recall(chain[1], [digest("c", 1)]))


# Scripts.


async def test_scripts_that_the_server_lost_are_given_again(server: Server) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        server.ask("SCRIPT", "FLUSH")
        await a_conversation(one)
        server.ask("SCRIPT", "FLUSH")
        answer = await other.settle(ask(links(7, "c")))
        server.ask("SCRIPT", "FLUSH")
        forgotten = await other.forget(links(7, "c")[1].hex())

        assert answer.shared
        assert answer.last_sent is not None
        assert elements(*range(7)) == answer.last_sent.elements
        assert forgotten
        assert {} == failures(one) == failures(other)


# Away.


async def test_killed_and_restarted_in_mid_conversation(server: Server) -> None:
    chain = links(7)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.settle(ask(chain[:3], offer(chain, 1, 3, DROP)))
        await killed(server, one, other)

        alone = await one.settle(ask(chain[:5], offer(chain, 1, 3, KEEP), offer(chain, 3, 5, KEEP)))
        one.remember(record(chain[:5], elements(1, 2, 3)))
        unset = await one.set_policy(SCOPE, "drop")
        queued = one.health().queued
        await back(server, one, other)
        await written(one)
        shared = await settled(other, ask(chain, offer(chain, 3, 5, DROP)))

        assert ({chain[1]: DROP, chain[3]: KEEP}, 1) == (alone.verdicts, alone.won)
        assert (False, False, 2) == (alone.shared, unset, queued)
        assert {chain[3]: KEEP} == shared.verdicts
        assert shared.last_sent is not None
        assert elements(1, 2, 3) == shared.last_sent.elements
        assert failures(one)["alone"] >= 1


async def test_store_that_is_away_at_the_start_is_used_when_it_comes(server: Server) -> None:
    server.stop()
    async with opened(server.url) as ledger:
        chain = links(3)
        alone = await ledger.settle(ask(chain, offer(chain, 1, 3, DROP)))
        server.start()
        after = await settled(ledger, ask(chain, offer(chain, 1, 3, KEEP)))

        assert ({chain[1]: DROP}, False) == (alone.verdicts, alone.shared)
        assert ({chain[1]: DROP}, True) == (after.verdicts, after.shared)
        assert failures(ledger)["connection"] >= 1


async def test_nothing_raises_while_the_store_is_away(server: Server) -> None:
    chain = links(3)
    async with opened(server.url) as ledger:
        await a_conversation(ledger)
        await killed(server, ledger)

        assert [] == await ledger.conversations(None, 10)
        assert await ledger.conversation(chain[1].hex()) is None
        assert not await ledger.forget(chain[1].hex())
        assert await ledger.grade(None, chain[1].hex(), Grade(True)) is None
        assert [] == await ledger.labelled(None, "any", 10)
        assert [(), ()] == await ledger.accounts([chain[1].hex(), "00" * 16])
        assert {} == dict(await ledger.recall(chain[1], [digest("any")]))
        assert not await ledger.set_policy(SCOPE, "keep")
        assert ledger.setting(SCOPE) is None


async def test_what_waits_is_bounded_and_the_oldest_goes_first(server: Server) -> None:
    chain = links(41)
    async with opened(server.url, max_queue=3) as one, opened(server.url) as other:
        await killed(server, one)
        for turn in range(1, 20):
            one.remember(record(chain[: 2 * turn + 1], elements(*range(turn)), NOW + turn))
        queued, let_go = one.health().queued, failures(one)["let_go"]
        await back(server, one)
        await written(one)
        answer = await settled(other, ask(chain))
        found = await other.conversation(chain[1].hex())

        assert (3, 16) == (queued, let_go)
        assert answer.last_sent is not None
        assert elements(*range(19)) == answer.last_sent.elements
        assert found is not None
        assert 3 == found.summary.turns


async def test_late_verdict_does_not_replace_one_that_stands(server: Server) -> None:
    chain = links(4)
    other = InRedis(Options(server.url, timeout=5.0), Clock())
    async with opened(server.url) as one:
        mine = await other.settle(ask(chain, offer(chain, 1, 4, KEEP)))
        theirs = await one.settle(ask(chain[:3], offer(chain, 1, 3, DROP)))
        await other.open()
        await written(other)
        after = await one.settle(ask(chain, offer(chain, 1, 4, KEEP)))
        await other.close()

        assert ({chain[1]: KEEP}, False) == (mine.verdicts, mine.shared)
        assert {chain[1]: DROP} == theirs.verdicts == after.verdicts
        assert 1 == failures(other)["diverged"]


# Slow.


async def test_paused_store_is_waited_for_once(server: Server) -> None:
    chain = links(3)
    async with opened(server.url, timeout=0.05, breaker_first=0.3) as ledger:
        await settled(ledger, ask(chain))
        server.pause()
        answers = [
            await ledger.settle(ask(links(3, f"{n}"), offer(links(3, f"{n}"), 1, 3, DROP)))
            for n in range(500)
        ]
        state = ledger.health().state
        waited = failures(ledger)["timeout"]
        server.resume()
        await until(ledger, "up")
        await written(ledger)

        assert "slow" == state
        assert 500 == sum(answer.won for answer in answers if not answer.shared)
        # One request, and the probes since then.
        assert waited < 10


async def test_policy_that_a_slow_store_did_not_take_does_not_hold(server: Server) -> None:
    async with opened(server.url, timeout=0.05) as ledger:
        await settled(ledger, ask(links(3)))
        server.pause()
        taken = await ledger.set_policy(SCOPE, "keep")
        server.resume()

        assert not taken
        assert ledger.setting(SCOPE) is None


async def test_turn_that_had_to_be_written_twice_counts_once(server: Server) -> None:
    chain = links(3)
    async with opened(server.url, write_timeout=0.1) as ledger:
        server.pause()
        ledger.remember(record(chain, elements(1, 2)))
        await until_counted(ledger, "timeout", 1)
        server.resume()
        await written(ledger)

        found = await ledger.conversation(chain[1].hex())

        assert found is not None
        assert (1, 1) == (found.summary.turns, len(found.outcomes))


async def test_answer_that_comes_too_late_is_taken_for_no_other(server: Server) -> None:
    async with opened(server.url, timeout=0.05) as ledger:
        chains = [links(3, f"{number}") for number in range(20)]
        await settled(ledger, ask(chains[0]))
        server.pause()
        async with asyncio.TaskGroup() as group:
            late = [
                group.create_task(ledger.settle(ask(chain, offer(chain, 1, 3, DROP))))
                for chain in chains
            ]
        server.resume()
        await until(ledger, "up")
        async with asyncio.TaskGroup() as group:
            after = [
                group.create_task(settled(ledger, ask(chain, offer(chain, 1, 3, KEEP))))
                for chain in chains
            ]

        assert all(not task.result().shared for task in late)
        assert [{chain[1]: DROP} for chain in chains] == [task.result().verdicts for task in after]


async def test_client_that_leaves_while_it_is_settled_leaves_no_trouble(server: Server) -> None:
    chain = links(3)
    async with opened(server.url) as one, opened(server.url) as other:
        server.pause()
        leaving = asyncio.ensure_future(one.settle(ask(chain, offer(chain, 1, 3, DROP))))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        server.resume()

        after = await one.settle(ask(chain, offer(chain, 1, 3, KEEP)))
        same = await other.settle(ask(chain, offer(chain, 1, 3, KEEP)))

        assert {chain[1]: DROP} == after.verdicts == same.verdicts
        assert {} == failures(one)


# Emptied.


async def test_emptied_store_is_told_again_what_stood(server: Server) -> None:
    chain = links(7)
    async with opened(server.url) as one, opened(server.url) as other:
        await one.settle(ask(chain[:3], offer(chain, 1, 3, DROP)))
        one.remember(record(chain[:3], elements(1, 2, 3)))
        await written(one)
        server.flush()

        known = await one.settle(ask(chain[:5], offer(chain, 1, 3, KEEP)))
        one.remember(record(chain[:5], elements(1, 2, 3, 4)))
        await written(one)
        shared = await other.settle(ask(chain, offer(chain, 1, 3, KEEP)))

        assert {chain[1]: DROP} == known.verdicts == shared.verdicts
        assert known.last_sent is not None
        assert elements(1, 2, 3) == known.last_sent.elements
        assert shared.last_sent is not None
        assert elements(1, 2, 3, 4) == shared.last_sent.elements
        assert 1 == failures(one)["lost"]


async def test_record_whose_parent_was_lost_is_written_whole(server: Server) -> None:
    chain = links(7)
    async with opened(server.url) as one, opened(server.url) as other:
        one.remember(record(chain[:3], elements(1, 2, 3)))
        await written(one)
        server.flush()
        one.remember(record(chain[:5], elements(1, 2, 3, 4), NOW + 1))
        one.remember(record(chain, elements(1, 2, 3, 4, 5), NOW + 2))
        await written(one)

        latest = await other.settle(ask(chain))
        before = await other.settle(ask(chain[:5]))

        assert latest.last_sent is not None
        assert elements(1, 2, 3, 4, 5) == latest.last_sent.elements
        assert before.last_sent is not None
        assert elements(1, 2, 3, 4) == before.last_sent.elements


# Unwilling.


async def test_store_without_memory_refuses_and_is_written_to_when_it_has_some(
    server: Server, raw: redis.Redis
) -> None:
    chain = links(3)
    async with opened(server.url) as one, opened(server.url) as other:
        raw.config_set("maxmemory-policy", "noeviction")
        raw.config_set("maxmemory", 1)
        alone = await one.settle(ask(chain, offer(chain, 1, 3, DROP)))
        one.remember(record(chain, elements(1)))
        await until_counted(one, "refused", 2)
        raw.config_set("maxmemory", 0)
        await written(one)
        shared = await other.settle(ask(chain, offer(chain, 1, 3, KEEP)))

        assert ({chain[1]: DROP}, False) == (alone.verdicts, alone.shared)
        assert {chain[1]: DROP} == shared.verdicts
        assert shared.last_sent is not None
        assert failures(one)["refused"] >= 1


async def test_replica_is_left_for_who_takes_writes(server: Server, raw: redis.Redis) -> None:
    chain = links(3)
    async with opened(server.url) as one, opened(server.url) as other:
        raw.replicaof("127.0.0.1", str(free_port()))
        alone = await one.settle(ask(chain, offer(chain, 1, 3, DROP)))
        raw.replicaof("NO", "ONE")
        await settled(one, ask(chain))
        await written(one)
        shared = await settled(other, ask(chain, offer(chain, 1, 3, KEEP)))

        assert ({chain[1]: DROP}, False) == (alone.verdicts, alone.shared)
        assert {chain[1]: DROP} == shared.verdicts


async def test_record_that_cannot_be_written_holds_up_no_other(server: Server) -> None:
    async with opened(server.url) as ledger:
        ledger.remember(record(links(3, "odd"), [element(1, size=2**32)]))
        await a_conversation(ledger)

        assert 1 == len(await ledger.conversations(None, 10))
        assert {"unencodable": 1} == failures(ledger)


async def test_something_that_is_no_redis_is_a_store_that_is_away() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with opened(f"redis://127.0.0.1:{port}") as ledger:
            chain = links(3)
            answer = await ledger.settle(ask(chain, offer(chain, 1, 3, DROP)))
            await until_counted(ledger, "connection", 3)

            assert ({chain[1]: DROP}, False) == (answer.verdicts, answer.shared)
            assert "down" == ledger.health().state


# The end.


async def test_closing_writes_what_is_queued(server: Server) -> None:
    chain = links(201)
    async with opened(server.url) as one:
        for turn in range(100):
            one.remember(record(chain[: 2 * turn + 3], elements(turn), NOW + turn))
    async with opened(server.url) as other:
        found = await other.conversation(chain[1].hex())

        assert found is not None
        assert 100 == found.summary.turns


async def test_closing_does_not_wait_for_a_store_that_is_away(server: Server) -> None:
    async with opened(server.url) as ledger:
        await killed(server, ledger)
        ledger.remember(record(links(3), elements(1)))

    assert 1 == failures(ledger)["unwritten"]


async def test_closing_waits_a_bounded_time_for_a_store_that_is_slow(server: Server) -> None:
    async with opened(server.url, drain=0.05) as ledger:
        server.pause()
        ledger.remember(record(links(3), elements(1)))
    server.resume()

    assert 1 == failures(ledger)["unwritten"]


async def test_ledger_that_was_never_opened_settles_alone_and_closes() -> None:
    ledger = InRedis(Options("redis://127.0.0.1:1"), Clock())
    answer: Settled = await ledger.settle(ask(links(3)))
    await ledger.close()

    assert (False, "down") == (answer.shared, ledger.health().state)


# Where it is.


async def test_by_tcp_with_password_and_database(binary: str | None) -> None:
    with running(binary, ["--requirepass", "p@ss word"], tcp=True) as server:
        url = f"redis://:p%40ss%20word@127.0.0.1:{server.port}/3"
        async with opened(url) as ledger:
            await a_conversation(ledger)
            with redis.Redis.from_url(url) as client:
                assert client.exists(conversation_key(links(7, "c")))
            assert "up" == ledger.health().state


async def test_wrong_password_is_told_and_stops_nobody(binary: str | None) -> None:
    with running(binary, ["--requirepass", "right"]) as server:
        async with opened(server.url.replace("unix://", "unix://:wrong@")) as ledger:
            answer = await ledger.settle(ask(links(3)))

            assert not answer.shared
            assert failures(ledger)["connection"] >= 1


@pytest.mark.parametrize(
    "url",
    [
        "", "nothing", "http://secret@host", "redis://", "redis:///0", "unix://",
        "redis://:secret@host:notaport", "redis://:secret@host?colour=blue",
        "redis://:secret@host?ssl_cert_reqs=none", "rediss://:secret@host?ssl_ca_certs=/none",
        "rediss://:secret@host?ssl_cert_reqs=perhaps", "redis+sentinel://:secret@host",
        "redis+sentinel://:secret@host/service/0/more", "redis+sentinel:///service",
        "redis+cluster://:secret@", "redis+cluster://:secret@host/0", "redis+other://:secret@host",
        "redis://" + "a" * 70,
    ],
)  # fmt: skip
def test_url_that_cannot_be_used_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        InRedis(Options(url), Clock())

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("options", [{"ttl": 0}, {"timeout": 0}, {"max_queue": 0}])
def test_bounds_that_hold_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        InRedis(Options("redis://host", **options), Clock())


def test_options_do_not_show_passwords_and_keys() -> None:
    options = Options("redis://:secret@host", encryption_key="secret")

    assert "secret" not in repr(options)
