"""What every ledger promises of replies, their echoes, pins and lessons: in memory, and of two
workers on a real server.
"""

from __future__ import annotations

import pytest

from proxy.core.replies import Reply
from proxy.core.verdict import DROP, KEEP
from tests.ledger.test_contract import Two, clock, pytest_generate_tests, servers, two
from tests.ledger.words import (
    NOW,
    OTHER,
    SCOPE,
    Clock,
    ask,
    echo,
    elements,
    fork,
    kept,
    links,
    offer,
    record,
    reply,
    written,
)  # fmt: skip

__all__ = ["clock", "pytest_generate_tests", "servers", "two"]

# Replies.


async def test_kept_reply_is_found_for_its_echo(two: Two) -> None:
    chain = links(5)
    assert await two.one.keep(kept(chain[:3], reply(1), "ids", "text"))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "ids", "text")]))

    assert ({chain[3]: reply(1)}, 0) == (found.echoes, found.missed)
    assert {chain[3]: reply(1)} == dict(two.other.echoed(chain))


async def test_own_reply_is_found_as_well(two: Two) -> None:
    chain = links(5)
    assert await two.one.keep(kept(chain[:3], reply(1), "ids"))

    found = await two.one.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))
    same = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))

    assert {chain[3]: reply(1)} == found.echoes == same.echoes


async def test_weaker_key_finds_what_the_stronger_does_not(two: Two) -> None:
    chain = links(5)
    await two.one.keep(kept(chain[:3], reply(1), "ids", "text"))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "rewritten ids", "text")]))

    assert {chain[3]: reply(1)} == found.echoes


async def test_strongest_key_that_leads_to_a_reply_decides(two: Two) -> None:
    chain = links(5)
    await two.one.keep(kept(chain[:3], reply("weak"), "text"))
    await two.one.keep(kept(chain[:3], reply("strong"), "ids"))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "none", "ids", "text")]))

    assert {chain[3]: reply("strong")} == found.echoes


async def test_first_reply_stored_under_a_key_stands(two: Two) -> None:
    chain, branch = links(5), fork(links(5), 3, 5, "echoed otherwise")
    await two.one.keep(kept(chain[:3], reply("first"), "ids"))
    await two.other.keep(kept(chain[:3], reply("second"), "ids", "text of the second"))

    by_ids = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))
    by_text = await two.one.settle(ask(branch, echoes=[echo(branch, 3, "text of the second")]))

    assert {chain[3]: reply("first")} == by_ids.echoes
    assert {branch[3]: reply("second")} == by_text.echoes


async def test_reply_to_a_first_request_is_found_by_the_turn_that_grows_from_it(two: Two) -> None:
    chain = links(3)
    await two.one.keep(kept(chain[:1], reply(1), "ids"))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 1, "ids")]))
    later = await two.one.settle(ask(chain, echoes=[echo(chain, 1, "ids")]))

    assert {chain[1]: reply(1)} == found.echoes == later.echoes


async def test_one_reply_may_be_echoed_in_two_ways(two: Two) -> None:
    one, another = links(3), fork(links(3), 1, 3, "trimmed")
    await two.one.keep(kept(one[:1], reply(1), "ids"))

    first = await two.other.settle(ask(one, echoes=[echo(one, 1, "ids")]))
    second = await two.one.settle(ask(another, echoes=[echo(another, 1, "ids")]))

    assert {one[1]: reply(1)} == first.echoes
    assert {another[1]: reply(1)} == second.echoes


async def test_miss_is_settled_for_ever(two: Two) -> None:
    chain = links(5)
    missed = await two.one.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))
    await two.other.keep(kept(chain[:3], reply("late"), "ids"))

    other = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))
    again = await two.one.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))

    assert ({chain[3]: None}, 1) == (missed.echoes, missed.missed)
    assert ({chain[3]: None}, 0) == (other.echoes, other.missed)
    assert ({chain[3]: None}, 0) == (again.echoes, again.missed)
    assert {chain[3]: None} == dict(two.other.echoed(chain))


async def test_finding_stands_whatever_is_asked_for_later(two: Two) -> None:
    chain = links(5)
    await two.one.keep(kept(chain[:3], reply("first"), "ids"))
    await two.one.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))
    await two.one.keep(kept(chain[:3], reply("second"), "other"))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "other", "ids")]))
    without = await two.one.settle(ask(chain, echoes=[echo(chain, 3)]))

    assert {chain[3]: reply("first")} == found.echoes == without.echoes


async def test_echo_without_a_key_is_a_miss(two: Two) -> None:
    chain = links(3)

    found = await two.one.settle(ask(chain, echoes=[echo(chain, 1)]))

    assert ({chain[1]: None}, 1) == (found.echoes, found.missed)


async def test_reply_of_another_root_is_not_found(two: Two) -> None:
    chain, other = links(5), links(5, "other")
    await two.one.keep(kept(other[:3], reply(1), "ids", scope=OTHER))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))

    assert {chain[3]: None} == found.echoes


async def test_many_echoes_are_settled_in_one_go_with_the_verdicts(two: Two) -> None:
    chain = links(401)
    for at in range(1, 401, 4):
        await two.one.keep(kept(chain[:at], reply(at), f"ids {at}", f"text {at}"))

    found = await two.other.settle(
        ask(
            chain, *(offer(chain, at, at + 2, DROP) for at in range(1, 401, 2)),
            echoes=[echo(chain, at, "none", f"text {at}") for at in range(1, 401, 2)],
            pins={"encoding": b"empty"},
        )
    )  # fmt: skip

    assert (200, 100) == (found.won, found.missed)
    assert {at: reply(at) for at in range(1, 401, 4)} == {
        at: found.echoes[chain[at]] for at in range(1, 401, 4)
    }
    assert {None} == {found.echoes[chain[at]] for at in range(3, 401, 4)}
    assert {"encoding": b"empty"} == found.pins


async def test_known_and_new_echoes_are_told_together(two: Two) -> None:
    chain = links(5)
    await two.one.keep(kept(chain[:1], reply(1), "1"))
    await two.one.keep(kept(chain[:3], reply(3), "3"))
    await two.other.settle(ask(chain[:3], echoes=[echo(chain, 1, "1")]))

    both = await two.other.settle(ask(chain, echoes=[echo(chain, 1, "1"), echo(chain, 3, "3")]))

    assert {chain[1]: reply(1), chain[3]: reply(3)} == both.echoes


@pytest.mark.parametrize(
    "odd",
    [
        Reply("", ""),
        Reply("reasoning", "\ud83d \x00 ü \n"),
        Reply("reasoning_details", "", b'[{"type": "reasoning.text"}]', ()),
        Reply("reasoning", "x", b"", ("", '{"n": 18446744073709551617}', "\udc00")),
        Reply("reasoning", "y" * 1_000_000, b"z" * 100_000, ("a",) * 300),
    ],
    ids=["nothing", "odd text", "details", "arguments", "large"],
)
async def test_reply_comes_back_as_it_was(two: Two, odd: Reply) -> None:
    chain = links(5)
    await two.one.keep(kept(chain[:3], odd, "ids"))

    found = await two.other.settle(ask(chain, echoes=[echo(chain, 3, "ids")]))

    assert {chain[3]: odd} == found.echoes


async def test_echoes_and_pins_are_settled_under_whatever_set_policy(two: Two) -> None:
    chain = links(3)
    assert await two.one.set_policy(SCOPE, "keep")
    await two.one.keep(kept(chain[:1], reply(1), "ids"))

    stale = await two.other.settle(
        ask(
            chain, offer(chain, 1, 3, DROP), echoes=[echo(chain, 1, "ids")],
            pins={"encoding": b"empty"},
        )
    )  # fmt: skip
    anew = await two.one.settle(ask(chain, offer(chain, 1, 3, KEEP), setting="keep"))

    assert ({}, "keep") == (stale.verdicts, stale.setting)
    assert ({chain[1]: reply(1)}, {"encoding": b"empty"}) == (stale.echoes, stale.pins)
    assert {chain[1]: KEEP} == anew.verdicts


async def test_ask_without_echoes_and_pins_is_told_of_none(two: Two) -> None:
    chain = links(3)

    found = await two.one.settle(ask(chain, offer(chain, 1, 3, DROP)))

    assert ({}, 0, {}) == (found.echoes, found.missed, found.pins)
    assert {} == dict(two.one.echoed(chain))
    assert {} == dict(two.one.pinned(chain[0], chain[1]))


# Pins.


async def test_first_pin_stands(two: Two) -> None:
    chain = links(5)

    first = await two.one.settle(ask(chain, pins={"encoding": b"absent", "order": b""}))
    second = await two.other.settle(ask(chain, pins={"encoding": b"empty", "order": b"1,0"}))
    again = await two.one.settle(ask(chain, pins={"encoding": b"third"}))

    assert {"encoding": b"absent", "order": b""} == first.pins == second.pins
    assert {"encoding": b"absent"} == again.pins
    assert first.pins == dict(two.other.pinned(chain[0], chain[1]))


async def test_pin_that_is_only_asked_for_is_not_put(two: Two) -> None:
    chain = links(4)

    nothing = await two.one.settle(ask(chain, pins={"encoding": None}))
    first = await two.other.settle(ask(chain, pins={"encoding": b"empty", "order": None}))
    found = await two.one.settle(ask(chain, pins={"encoding": None}))

    assert {} == nothing.pins
    assert {"encoding": b"empty"} == first.pins == found.pins
    assert found.pins == dict(two.one.pinned(chain[0], chain[1]))


async def test_pin_of_a_root_is_told_to_whom_only_asks(two: Two) -> None:
    chain = links(4)
    await two.one.settle(ask(chain[:1], pins={"encoding": b"absent"}))

    grown = await two.other.settle(ask(chain, pins={"encoding": None}))

    assert {"encoding": b"absent"} == grown.pins


async def test_pin_of_a_first_request_goes_over_to_what_grows_from_it(two: Two) -> None:
    chain, other = links(3), fork(links(3), 1, 3, "another reply")
    await two.one.settle(ask(chain[:1], pins={"encoding": b"absent"}))

    grown = await two.other.settle(ask(chain, pins={"encoding": b"empty", "new": b"1"}))
    sibling = await two.one.settle(ask(other, pins={"encoding": b"empty", "new": b"2"}))

    assert {"encoding": b"absent", "new": b"1"} == grown.pins
    assert {"encoding": b"absent", "new": b"2"} == sibling.pins
    assert {"encoding": b"absent"} == dict(two.one.pinned(chain[0], chain[0]))
    assert grown.pins == dict(two.other.pinned(chain[0], chain[1]))


async def test_pin_of_a_conversation_is_none_of_its_root(two: Two) -> None:
    chain = links(3)
    await two.one.settle(ask(chain, pins={"encoding": b"absent"}))

    first = await two.other.settle(ask(chain[:1], pins={"encoding": b"empty"}))
    still = await two.other.settle(ask(chain, pins={"encoding": b"empty"}))

    assert {"encoding": b"empty"} == first.pins
    assert {"encoding": b"absent"} == still.pins


async def test_pins_hold_any_bytes(two: Two) -> None:
    chain, value = links(3), bytes(range(256)) * 16

    await two.one.settle(ask(chain, pins={"tools:0a1b2c3d": value}))
    found = await two.other.settle(ask(chain, pins={"tools:0a1b2c3d": b"other"}))

    assert {"tools:0a1b2c3d": value} == found.pins


# Forgetting.


async def test_forgotten_conversation_leaves_no_reply(two: Two) -> None:
    chain, sibling = links(5), fork(links(5), 1, 5, "sibling")
    await two.one.keep(kept(chain[:1], reply(1), "1"))
    await two.one.settle(ask(chain[:3], echoes=[echo(chain, 1, "1")], pins={"encoding": b"x"}))
    await two.one.keep(kept(chain[:3], reply(3), "3"))
    await two.one.settle(ask(chain, echoes=[echo(chain, 3, "3")]))
    two.one.remember(record(chain, elements(1), NOW))
    two.one.remember(record(sibling, elements(2), NOW + 1))
    await written(two.one)

    assert await two.one.forget(chain[1].hex())

    assert {} == dict(two.one.echoed(chain))
    assert {} == dict(two.one.pinned(chain[0], chain[1]))
    for worker in (two.one, two.other):
        found = await worker.settle(
            ask(chain, echoes=[echo(chain, 1, "1"), echo(chain, 3, "3")], pins={"encoding": b"y"})
        )
        assert {chain[1]: None, chain[3]: None} == found.echoes
        assert {"encoding": b"y"} == found.pins


async def test_forgetting_one_leaves_its_sibling_what_it_found(two: Two) -> None:
    one, sibling = links(3), fork(links(3), 1, 3, "sibling")
    await two.one.keep(kept(one[:1], reply("shared"), "ids"))
    for chain in (one, sibling):
        await two.one.settle(ask(chain, echoes=[echo(chain, 1, "ids")]))
        two.one.remember(record(chain, elements(1)))
    await written(two.one)

    assert await two.one.forget(one[1].hex())

    found = await two.other.settle(ask(sibling, echoes=[echo(sibling, 1, "ids")]))
    assert {sibling[1]: reply("shared")} == found.echoes


# Lessons.


async def test_lesson_is_shared_and_the_latest_stands(two: Two) -> None:
    assert await two.one.lesson("encoding provider/model") is None
    assert await two.one.learn("encoding provider/model", b"empty", 60)
    first = await two.other.lesson("encoding provider/model")
    assert await two.other.learn("encoding provider/model", b"absent", 60)
    second = await two.one.lesson("encoding provider/model")

    assert (b"empty", b"absent") == (first, second)
    assert await two.one.lesson("another") is None


async def test_lesson_expires(two: Two, clock: Clock) -> None:
    await two.one.learn("ü \ud83d", b"\x00", 60.5)
    at_once = await two.other.lesson("ü \ud83d")
    clock.now += 60

    before = await two.other.lesson("ü \ud83d")
    clock.now += 1
    after = [await two.one.lesson("ü \ud83d"), await two.other.lesson("ü \ud83d")]

    assert (b"\x00", b"\x00", [None, None]) == (at_once, before, after)
