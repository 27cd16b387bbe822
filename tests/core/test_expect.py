"""What a cache should have served, by its rule, beside what a provider reports."""

from __future__ import annotations

import pytest

from proxy.core import expect, known_rules
from proxy.core.expect import Cached, CacheRule, Missed, Reuse
from proxy.core.known_rules import RULES
from proxy.core.prefix import By, Cause, Finding
from proxy.core.sent import Element, Part, Sent

EXTENDED = Finding(Cause.EXTENDED, By.NOBODY)
RETRY = Finding(Cause.RETRY, By.NOBODY)
BROKEN = Finding(Cause.SYSTEM_CHANGED, By.CLIENT, 0, 0)
REPLY = b"r" * 16


def element(name: str, role: str = "assistant", digest: bytes = b"") -> Element:
    whole = digest or name.encode().ljust(16, b".")
    return Element(Part.MESSAGE, whole, whole, whole[:8], 10, 0, role)


BEFORE = (element("system", "system"), element("go", "user"))
ECHO = (*BEFORE, element("", digest=REPLY), element("result", "tool"))
OTHER = (*BEFORE, element("said otherwise"), element("result", "tool"))


def last(prompt: int | None = 1000, output: int | None = 80, upstream: str = "up") -> Sent:
    return Sent(b"l", b"o", BEFORE, 100.0, upstream, prompt, output, None, REPLY)


@pytest.mark.parametrize(
    ("rule", "now", "finding", "tokens"),
    [
        ("llama.cpp", ECHO, EXTENDED, 1079),
        ("llama.cpp", OTHER, EXTENDED, 1000),
        ("llama.cpp", BEFORE, RETRY, 999),
        ("llama.cpp", ECHO, BROKEN, None),
        ("vllm", ECHO, EXTENDED, 1072),
        ("deepseek", ECHO, EXTENDED, 960),
        ("openai", ECHO, EXTENDED, 0),
    ],
)
def test_each_rule_promises_its_own(
    rule: str, now: tuple[Element, ...], finding: Finding, tokens: int | None
) -> None:
    assert tokens == expect.expected_tokens(RULES[rule], last(), now, finding)


def test_nothing_is_expected_without_a_rule_a_record_or_its_count() -> None:
    rule = RULES["llama.cpp"]
    assert expect.expected_tokens(None, last(), ECHO, EXTENDED) is None
    assert expect.expected_tokens(rule, None, ECHO, EXTENDED) is None
    assert expect.expected_tokens(rule, last(None), ECHO, EXTENDED) is None
    none = CacheRule("none", Reuse.NONE)
    assert 0 == expect.expected_tokens(none, last(), ECHO, EXTENDED)


def told(rule: str, reported: int | None, seconds: float = 1.0, **more: str) -> Cached:
    sent = last(2000, 80, more.get("upstream", "up"))
    asked = (*ECHO, element("and now", "user")) if "user" in more else ECHO
    return expect.compare(RULES[rule], sent, asked, EXTENDED, reported, seconds, "up")


def test_what_is_as_expected_or_better_is_no_finding() -> None:
    assert told("llama.cpp", 2079).missed is None
    assert told("llama.cpp", 2100).missed is None
    assert 0 == told("llama.cpp", 2100).missed_tokens


@pytest.mark.parametrize(
    ("found", "cause", "tokens"),
    [
        (told("llama.cpp", None), Missed.UNREPORTED, None),
        (told("llama.cpp", 79), Missed.PROVIDER_MISS, 2000),
        (told("llama.cpp", 79, upstream="another"), Missed.UPSTREAM_SWITCHED, 2000),
        (told("llama.cpp", 79, user="yes"), Missed.TEMPLATE, 2000),
        (told("deepseek", 0, 7200.0), Missed.TTL_EXPIRED, 1984),
        (told("deepseek", 0, 60.0), Missed.PROVIDER_MISS, 1984),
    ],
)
def test_a_shortfall_has_a_cause(found: Cached, cause: Missed, tokens: int | None) -> None:
    assert cause is found.missed
    assert tokens == found.missed_tokens


def test_a_prompt_below_the_minimum_is_told_as_that() -> None:
    found = expect.compare(RULES["openai"], last(), ECHO, EXTENDED, 0, 1.0, "up")

    assert Missed.BELOW_MINIMUM is found.missed


def test_nothing_can_be_missed_where_nothing_was_expected() -> None:
    assert expect.compare(None, last(), ECHO, EXTENDED, 0, 1.0, "up") == Cached(None, 0)
    assert expect.compare(RULES["openai"], None, ECHO, EXTENDED, 0, 1.0, "up").missed is None


def test_a_contract_is_known_by_name_or_by_host_and_never_guessed() -> None:
    assert RULES["vllm"] is known_rules.rule_for("vllm", "http://10.0.0.1:8000/v1")
    assert RULES["deepseek"] is known_rules.rule_for(None, "https://api.deepseek.com")
    assert RULES["openai"] is known_rules.rule_for(None, "https://api.openai.com/v1")
    assert known_rules.rule_for(None, "http://127.0.0.1:8000") is None
    assert known_rules.rule_for(None, "nowhere") is None
    assert all(rule.source for rule in RULES.values())
