"""What a cache should have served, by its contract, beside what a provider reports."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core import expect
from proxy.core.contract import UNKNOWN, CacheRule, Contract, Reuse, UserTurn
from proxy.core.expect import Cached, Missed
from proxy.core.prefix import By, Cause, Finding
from proxy.core.sent import Element, Part, Sent

EXTENDED = Finding(Cause.EXTENDED, By.NOBODY)
RETRY = Finding(Cause.RETRY, By.NOBODY)
BROKEN = Finding(Cause.SYSTEM_CHANGED, By.CLIENT, 0, 0)
REPLY = b"r" * 16
ENGINE = Contract("engine", cache=CacheRule(Reuse.GENERATED), user_turn=UserTurn.DROPS)
PAGED = Contract("paged", cache=CacheRule(Reuse.GENERATED, block=16))
HOSTED = Contract("hosted", cache=CacheRule(Reuse.PROMPT, block=64, ttl=3600.0))
LARGE = Contract("large", cache=CacheRule(Reuse.PROMPT, block=128, minimum=1024, ttl=300.0))
SILENT = replace(ENGINE, reports_cache=False, usage_hint="look at its log")


def element(name: str, role: str = "assistant", digest: bytes = b"") -> Element:
    whole = digest or name.encode().ljust(16, b".")
    return Element(Part.MESSAGE, whole, whole, whole[:8], 10, 0, role)


BEFORE = (element("system", "system"), element("go", "user"))
ECHO = (*BEFORE, element("", digest=REPLY), element("result", "tool"))
OTHER = (*BEFORE, element("said otherwise"), element("result", "tool"))


def last(prompt: int | None = 1000, output: int | None = 80, upstream: str = "up") -> Sent:
    return Sent(b"l", b"o", BEFORE, 100.0, upstream, prompt, output, None, REPLY)


@pytest.mark.parametrize(
    ("contract", "now", "finding", "tokens"),
    [
        (ENGINE, ECHO, EXTENDED, 1079),
        (ENGINE, OTHER, EXTENDED, 1000),
        (ENGINE, BEFORE, RETRY, 999),
        (ENGINE, ECHO, BROKEN, None),
        (PAGED, ECHO, EXTENDED, 1072),
        (HOSTED, ECHO, EXTENDED, 960),
        (LARGE, ECHO, EXTENDED, 0),
    ],
)
def test_each_rule_promises_its_own(
    contract: Contract, now: tuple[Element, ...], finding: Finding, tokens: int | None
) -> None:
    assert tokens == expect.expected_tokens(contract.cache, last(), now, finding)


def test_nothing_is_expected_without_a_rule_a_record_or_its_count() -> None:
    rule = ENGINE.cache
    assert expect.expected_tokens(None, last(), ECHO, EXTENDED) is None
    assert expect.expected_tokens(rule, None, ECHO, EXTENDED) is None
    assert expect.expected_tokens(rule, last(None), ECHO, EXTENDED) is None
    assert 0 == expect.expected_tokens(CacheRule(Reuse.NONE), last(), ECHO, EXTENDED)


def told(contract: Contract, reported: int | None, seconds: float = 1.0, **more: str) -> Cached:
    sent = last(2000, 80, more.get("upstream", "up"))
    asked = (*ECHO, element("and now", "user")) if "user" in more else ECHO
    return expect.compare(contract, sent, asked, EXTENDED, reported, seconds, "up")


def test_what_is_as_expected_or_better_is_no_finding() -> None:
    assert told(ENGINE, 2079).missed is None
    assert told(ENGINE, 2100).missed is None
    assert 0 == told(ENGINE, 2100).missed_tokens


@pytest.mark.parametrize(
    ("found", "cause", "tokens"),
    [
        (told(ENGINE, None), Missed.UNREPORTED, None),
        (told(ENGINE, 79), Missed.PROVIDER_MISS, 2000),
        (told(ENGINE, 79, upstream="another"), Missed.UPSTREAM_SWITCHED, 2000),
        (told(ENGINE, 79, user="yes"), Missed.TEMPLATE, 2000),
        (told(replace(ENGINE, user_turn=UserTurn.STUB), 79, user="yes"), Missed.TEMPLATE, 2000),
        (told(PAGED, 64, user="yes"), Missed.PROVIDER_MISS, 2000),
        (told(HOSTED, 0, 7200.0), Missed.TTL_EXPIRED, 1984),
        (told(HOSTED, 0, 60.0), Missed.PROVIDER_MISS, 1984),
    ],
)
def test_a_shortfall_has_a_cause(found: Cached, cause: Missed, tokens: int | None) -> None:
    assert cause is found.missed
    assert tokens == found.missed_tokens


def test_a_zero_of_who_never_reports_anything_is_no_report() -> None:
    assert told(SILENT, 0) == Cached(2079, None, Missed.UNREPORTED, "look at its log")
    assert told(SILENT, None) == Cached(2079, None, Missed.UNREPORTED, "look at its log")
    assert told(SILENT, 79).missed is Missed.PROVIDER_MISS
    assert told(ENGINE, 0).missed is Missed.PROVIDER_MISS


def test_what_to_do_is_told_only_where_nothing_is_reported() -> None:
    contract = replace(PAGED, usage_hint="ask for it")

    assert "ask for it" == told(contract, None).fix
    assert "" == told(contract, 16).fix == told(contract, 2072).fix


def test_a_prompt_below_the_minimum_is_told_as_that() -> None:
    found = expect.compare(LARGE, last(), ECHO, EXTENDED, 0, 1.0, "up")

    assert Missed.BELOW_MINIMUM is found.missed


def test_nothing_can_be_missed_where_nothing_was_expected() -> None:
    assert expect.compare(UNKNOWN, last(), ECHO, EXTENDED, 0, 1.0, "up") == Cached(None, 0)
    assert expect.compare(LARGE, None, ECHO, EXTENDED, 0, 1.0, "up").missed is None
