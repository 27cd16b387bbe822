"""What is counted and told: the text Prometheus reads, many workers as one, how many series."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from proxy import exposition, families, observe
from proxy.account import FAILED
from proxy.core.contract import Reuse
from proxy.core.expect import Cached, Missed
from proxy.core.explain import Explanation
from proxy.core.horizon import Lacks, Remaining, Source, Step, Terms, Unit, Weighed
from proxy.core.outcome import Money, Outcome, Pruned, Route, Timings, as_line
from proxy.core.policy import ABOUT
from proxy.core.prefix import NOT_BREAKS, By, Cause, Finding
from proxy.core.pricing import Cost
from proxy.core.sent import Shadowed
from proxy.core.shadow import Shadow
from proxy.core.tariff import Unpriced
from proxy.core.thought import Thought
from proxy.core.usage import Usage
from proxy.counting import Counts
from proxy.observe import Observer
from proxy.relay import Ending
from proxy.settings import MOST_SHADOWS
from tests.shared import ROOT

EXTENDED = Finding(Cause.EXTENDED, By.NOBODY)
PRUNED = Pruned(
    conversation="c0", root="r0", policy="drop", steps=3, fresh={"drop": 2}, adopted=0, dropped=2,
    kept=1, dropped_bytes=800, kept_bytes=100, clamped=0, finding=EXTENDED, shared=False,
)  # fmt: skip
USAGE = Usage(input=100, cache_read=60, cache_write=0, output=10, reasoning=4)
CHAT = Outcome(
    id="x-1", at=1.0, route=Route.CHAT, status=200, ending="complete", upstream="default",
    model="m", key="team", streamed=True, pruned=PRUNED, usage=USAGE,
    timings=Timings(0.0001, 0.0003, None, 0.0004, 0.2, 1.5),
)  # fmt: skip


PARTS = Cost(*map(Decimal, ("0.1", "0.02", "0.003", "0.0004", "0.00005")))
PAID = Money(PARTS, Decimal("0.5"), Decimal("0.25"), estimated=True)
LOST = Money(PARTS, Decimal("-0.75"), Decimal(0))


def exposed(observer: Observer) -> bytes:
    return exposition.text(observer.numbers(), observer.gen_ai)


def told(*outcomes: Outcome, **options: Any) -> Observer:
    observer = Observer(None, None, **options)
    for outcome in outcomes:
        observer.tell(outcome)
    return observer


def lines(observer: Observer, name: str = "", zeros: bool = False) -> list[str]:
    """The sample lines that begin with the name; without those that are 0, unless asked for."""
    text = exposed(observer).decode()
    samples = (line for line in text.splitlines() if not line.startswith("#"))
    found = [line for line in samples if line.startswith(name)]
    return [line for line in found if zeros or not line.endswith(" 0.0")]


def value(observer: Observer, line: str) -> float:
    """The number that follows a series' name and labels; 0 where it is not told."""
    found = [row for row in lines(observer) if row.rpartition(" ")[0] == line]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


# The text


def test_the_whole_text_of_one_exchange() -> None:
    observer = Observer(None, None)
    observer.counts.time("lethe_ledger_seconds", ("settle",), 0.0003)
    observer.counts.add("lethe_steps_total", ("drop", "keep"), 2)
    text = exposed(observer).decode()

    assert text.startswith(
        "# HELP lethe_requests_total Exchanges, by route, status and how they ended.\n"
        "# TYPE lethe_requests_total counter\n"
    )
    assert (
        "# HELP lethe_steps_total Steps settled, by policy and verdict.\n"
        "# TYPE lethe_steps_total counter\n"
        'lethe_steps_total{policy="drop",verdict="keep"} 2.0\n'
        "# HELP lethe_steps_adopted_total Steps judged at once because a conversation was met in "
        "mid-life.\n"
        "# TYPE lethe_steps_adopted_total counter\n"
        "lethe_steps_adopted_total 0.0\n"
    ) in text
    bounds = ("0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05")
    assert [
        *(
            f'lethe_ledger_seconds_bucket{{le="{bound}",verb="settle"}} {float(at > 1)}'
            for at, bound in enumerate((*bounds, "0.1", "0.25", "1", "+Inf"))
        ),
        'lethe_ledger_seconds_count{verb="settle"} 1.0',
        'lethe_ledger_seconds_sum{verb="settle"} 0.0003',
    ] == lines(observer, "lethe_ledger_seconds", zeros=True)


def test_prometheus_own_parser_reads_every_family_and_no_other() -> None:
    text = exposed(told(CHAT, gen_ai=True)).decode()

    found = {family.name: family for family in text_string_to_metric_families(text)}

    assert {name.removesuffix("_total") for name in families.METRICS} == set(found)
    assert [] == [name for name in found if not found[name].documentation]
    assert "_created" not in text


def test_opentelemetrys_names_are_told_where_asked_for_alone() -> None:
    name = "gen_ai_client_inference_usage_cache_read_input_tokens"
    labels = 'gen_ai_operation_name="chat",gen_ai_provider_name="default"'

    assert [] == lines(told(CHAT), "gen_ai_")
    assert 60 == value(told(CHAT, gen_ai=True), f"{name}_sum{{{labels}}}")


# What an exchange adds


def test_tokens_are_counted_by_kind_and_what_is_unknown_is_not_zero() -> None:
    silent = replace(CHAT, usage=Usage(input=50, output=5))
    observer = told(CHAT, silent)

    assert {
        'lethe_tokens_total{key="team",kind="input",model="m"} 150.0',
        'lethe_tokens_total{key="team",kind="input_uncached",model="m"} 40.0',
        'lethe_tokens_total{key="team",kind="cache_read",model="m"} 60.0',
        'lethe_tokens_total{key="team",kind="output",model="m"} 15.0',
        'lethe_tokens_total{key="team",kind="reasoning",model="m"} 4.0',
    } == set(lines(observer, "lethe_tokens_total"))
    assert 'lethe_tokens_total{key="team",kind="cache_write",model="m"} 0.0' in lines(
        observer, "lethe_tokens_total", zeros=True
    )
    assert {
        f'lethe_tokens_unknown_total{{kind="{kind}"}} 1.0'
        for kind in ("input_uncached", "cache_read", "cache_write", "reasoning")
    } == set(lines(observer, "lethe_tokens_unknown_total"))


def test_a_break_tells_its_cause_whose_doing_and_what_it_cost() -> None:
    edited = Finding(Cause.MESSAGE_EDITED, By.CLIENT, 3, 1, stale=900)
    pruned = replace(PRUNED, finding=edited, explained=Explanation(rebuilt=210))
    observer = told(CHAT, replace(CHAT, pruned=pruned))

    names = 'by="client",cause="message_edited"'
    assert 210 == value(observer, f"lethe_prefix_rebuilt_tokens_total{{{names}}}")
    assert 900 == value(observer, f"lethe_prefix_stale_bytes_total{{{names}}}")
    assert 1 == value(observer, f'lethe_prefix_findings_total{{{names},key="team",model="m"}}')
    names = 'by="nobody",cause="extended"'
    assert 1 == value(observer, f'lethe_prefix_findings_total{{{names},key="team",model="m"}}')
    assert 0 == value(observer, f"lethe_prefix_stale_bytes_total{{{names}}}")


def test_a_shortfall_of_the_cache_is_the_providers_finding() -> None:
    short = replace(PRUNED, cached=Cached(100, 60, Missed.PROVIDER_MISS))
    silent = replace(PRUNED, cached=Cached(100, None, Missed.UNREPORTED))
    observer = told(replace(CHAT, pruned=short), replace(CHAT, pruned=silent))

    assert 100 == value(observer, 'lethe_cache_expected_tokens_total{upstream="default"}')
    assert 60 == value(observer, 'lethe_cache_reported_tokens_total{upstream="default"}')
    assert ['lethe_cache_missed_tokens_total{cause="provider_miss"} 40.0'] == lines(
        observer, "lethe_cache_missed"
    )
    names = 'by="provider",cause="unreported",key="team",model="m"'
    assert 1 == value(observer, f"lethe_prefix_findings_total{{{names}}}")


def test_a_step_s_output_is_counted_by_the_policys_name_without_its_value() -> None:
    window = replace(PRUNED, policy="keep_latest:2")
    observer = told(CHAT, CHAT, replace(CHAT, pruned=window), replace(CHAT, usage=Usage()))

    assert 2 == value(observer, 'lethe_policy_replies_total{policy="drop"}')
    assert 20 == value(observer, 'lethe_policy_tokens_total{kind="output",policy="drop"}')
    assert 8 == value(observer, 'lethe_policy_tokens_total{kind="reasoning",policy="drop"}')
    assert 1 == value(observer, 'lethe_policy_replies_total{policy="keep_latest"}')
    assert 6 == value(observer, 'lethe_steps_total{policy="drop",verdict="drop"}')


@pytest.mark.parametrize(
    ("status", "label"), [(200, "200"), (201, "2xx"), (418, "4xx"), (529, "529"), (0, "0xx")]
)
def test_a_status_is_told_by_itself_or_by_its_class(status: int, label: str) -> None:
    observer = told(replace(CHAT, status=status))

    names = f'outcome="complete",route="chat",status="{label}"'
    assert 1 == value(observer, f"lethe_requests_total{{{names}}}")


def test_the_first_of_a_rare_event_is_a_rise_from_zero() -> None:
    quiet = set(lines(Observer(None, None), zeros=True))

    for rare in (
        'lethe_prefix_stale_bytes_total{by="proxy",cause="self"} 0.0',
        'lethe_prefix_rebuilt_tokens_total{by="proxy",cause="self"} 0.0',
        'lethe_tokens_unknown_total{kind="cache_read"} 0.0',
        "lethe_log_lines_lost_total 0.0",
    ):
        assert rare in quiet


def test_every_place_that_can_have_trouble_is_told_from_the_start() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "proxy").glob("*.py")]
    placed = r'fault\("(\w+)"\)|"lethe_faults_total", \("(\w+)",\)'
    found = {a or b for source in sources for a, b in re.findall(placed, source)}

    (faults,) = [family for family in families.FAMILIES if family.name == "lethe_faults_total"]

    assert {(place,) for place in found} == set(faults.zeros)


# Bounds


def test_models_and_keys_beyond_the_bound_are_called_other() -> None:
    rows = [replace(CHAT, model=f"m{n}", key=f"k{n}") for n in range(3)]
    observer = told(*rows, model_labels=2, key_labels=1)

    assert ["k0 m0", "other m1", "other other"] == [
        f"{labels[0]} {labels[1]}"
        for line in lines(observer, "lethe_tokens_total")
        if 'kind="output"' in line
        for labels in [re.findall(r'(?:key|model)="(\w+)"', line)]
    ]


def test_money_is_told_by_part_and_a_loss_apart_from_what_was_saved() -> None:
    broken = replace(PRUNED, finding=Finding(Cause.SELF, By.PROXY, stale=10))
    observer = told(replace(CHAT, money=PAID, pruned=broken), replace(CHAT, money=LOST))

    assert {
        'lethe_cost_dollars_total{key="team",part="input"} 0.2',
        'lethe_cost_dollars_total{key="team",part="cache_read"} 0.04',
        'lethe_cost_dollars_total{key="team",part="cache_write_5m"} 0.006',
        'lethe_cost_dollars_total{key="team",part="cache_write_1h"} 0.0008',
        'lethe_cost_dollars_total{key="team",part="output"} 0.0001',
    } == set(lines(observer, "lethe_cost_dollars"))
    assert [
        'lethe_saved_dollars_total{estimated="true",policy="drop"} 0.5',
        'lethe_lost_dollars_total{estimated="false",policy="drop"} 0.75',
        'lethe_prefix_rebuilt_dollars_total{by="proxy",cause="self"} 0.25',
    ] == [
        row
        for name in ("lethe_saved", "lethe_lost", "lethe_prefix_rebuilt_dollars")
        for row in lines(observer, name)
    ]


def test_what_was_not_read_has_a_cost_and_saves_nothing() -> None:
    observer = told(replace(CHAT, money=PAID, pruned=None))

    assert 5 == len(lines(observer, "lethe_cost_dollars"))
    assert [] == lines(observer, "lethe_saved")


def test_what_has_no_price_is_counted_with_the_reason() -> None:
    observer = told(replace(CHAT, unpriced="pending"), CHAT)

    assert ['lethe_unpriced_total{reason="pending"} 1.0'] == lines(observer, "lethe_unpriced")
    assert len(Unpriced) == len(lines(observer, "lethe_unpriced", zeros=True))


def test_the_line_of_an_exchange_tells_its_money_with_the_marks_of_an_estimate() -> None:
    reported = replace(PAID, reported=Decimal("0.125"))
    line = as_line(replace(CHAT, money=reported, thought=Thought(90, estimated=True)))

    assert {
        "cost": 0.12345,
        "parts": {
            "input": 0.1, "cache_read": 0.02, "cache_write_5m": 0.003, "cache_write_1h": 0.0004,
            "output": 0.00005,
        },
        "keep": 0.62345,
        "mechanical_saving": 0.5,
        "estimated": True,
        "rebuilt_estimated": 0.25,
        "reported": 0.125,
    } == line["dollars"]  # fmt: skip
    assert {"dropped": 90, "estimated": True} == line["reasoning_tokens"]
    assert "reported" not in as_line(replace(CHAT, money=LOST))["dollars"]
    assert "pending" == as_line(replace(CHAT, unpriced="pending"))["unpriced"]
    written = replace(USAGE, cache_write=9, cache_write_1h=5)
    assert 5 == as_line(replace(CHAT, usage=written))["tokens"]["cache_write_1h"]
    assert "cache_write_1h" not in line["tokens"]


SHADOWS = (
    Shadow(
        Shadowed("drop", b"\x03", 90, estimated=True), {"drop": 1}, 2,
        Usage(input=100, cache_read=60), Usage(input=70, cache_read=40),
        Decimal("0.08"), Decimal("0.04345"),
    ),
    Shadow(Shadowed("keep_latest:2", b"", 0, False), {}, 0),
)  # fmt: skip


def test_a_shadow_is_counted_beside_what_was_sent() -> None:
    unpriced = replace(SHADOWS[0], cost=None, saving=None)
    observer = told(
        replace(CHAT, money=LOST, shadows=SHADOWS),
        replace(CHAT, unpriced="pending", shadows=(unpriced,)),
        CHAT,
    )

    assert {
        'lethe_shadow_steps_total{policy="drop",verdict="drop"} 2.0',
        'lethe_shadow_tokens_total{kind="input",policy="drop"} 140.0',
        'lethe_shadow_tokens_total{kind="cache_read",policy="drop"} 80.0',
        'lethe_shadow_tokens_total{kind="input",policy="observe"} 200.0',
        'lethe_shadow_tokens_total{kind="cache_read",policy="observe"} 120.0',
        'lethe_shadow_dollars_total{policy="drop"} 0.08',
        'lethe_shadow_dollars_total{policy="observe"} 0.12345',
    } == set(lines(observer, "lethe_shadow"))


def test_the_line_of_an_exchange_tells_its_shadows() -> None:
    line = as_line(replace(CHAT, money=LOST, shadows=SHADOWS))

    assert {
        "drop": {
            "fresh": {"drop": 1}, "dropped": 2, "reasoning_tokens": 90, "estimated": True,
            "input": 70, "cache_read": 40, "dollars": 0.08, "mechanical_saving": 0.04345,
        },
        "keep_latest:2": {
            "fresh": {}, "dropped": 0, "reasoning_tokens": 0, "estimated": False, "input": None,
            "cache_read": None,
        },
    } == line["shadow"]  # fmt: skip
    assert "shadow" not in as_line(CHAT)


def test_the_line_of_an_exchange_tells_what_decided_a_step() -> None:
    terms = Terms(Reuse.GENERATED, Unit.POSITIONS, Fraction(124_000))
    learned = Remaining(Fraction(961, 3), Source.LEARNED, 3)
    weighed = (
        Weighed(3, Step(20_000, 2_000, 7), True, terms, learned, None, "keep"),
        Weighed(4, Step(1, 2, 3), False, None, lacks=Lacks.PRICE, verdict="keep"),
        Weighed(5, Step(1, 2, 3), False, replace_terms(terms)),
    )

    told, lacking, never = as_line(replace(CHAT, pruned=replace(PRUNED, weighed=weighed)))[
        "horizon"
    ]

    assert {
        "step": 3, "verdict": "keep", "before": 20_000, "reasoning": 2_000, "action": 7,
        "counted": True, "unit": "positions", "horizon": 504.014, "expected": 320.333,
        "from": "learned", "samples": 3,
    } == told  # fmt: skip
    assert {
        "step": 4, "verdict": "keep", "before": 1, "reasoning": 2, "action": 3, "counted": False,
        "lacks": "price",
    } == lacking  # fmt: skip
    assert (None, None, "unknown") == (never["horizon"], never["expected"], never["from"])
    assert "horizon" not in as_line(CHAT)


def replace_terms(terms: Terms) -> Terms:
    """The same, of a model whose pairs cost nothing."""
    return dataclasses.replace(terms, rate=None)


def test_a_name_comes_in_once_an_upstream_has_answered_it_well() -> None:
    unknown = replace(CHAT, model="no-such-model", status=404, usage=None)
    observer = told(unknown, unknown, replace(CHAT, model="real"))

    rows = "\n".join(lines(observer))
    assert 'model="real"' in rows
    assert 'model="other"' in rows
    assert "no-such-model" not in rows


def test_a_family_that_is_full_calls_free_labels_other_and_keeps_the_closed_ones() -> None:
    counts = Counts()
    for n in range(300):
        counts.add("lethe_prefix_findings_total", ("extended", "nobody", f"m{n}", f"k{n}"))
    counts.add("lethe_prefix_findings_total", ("self", "proxy", "m0", "k0"))

    series = counts.numbers["lethe_prefix_findings_total"]
    assert 200 + 2 == len(series)
    assert 100 == series[("extended", "nobody", "other", "other")]
    assert 1 == series[("self", "proxy", "other", "other")]


KEYS, MODELS = 10_000, 3_000
# Everything that a label can be: every status, also those that nobody has ever sent.
ENDS = list(itertools.product(Route, range(1000), [*(e.value for e in Ending), FAILED]))
CONVERSATIONS = 2 * len(ENDS)
"""Each end once, between those that went well; more of them bring no series more."""
POLICIES = [about.form.partition(":")[0] for about in ABOUT]
VERDICTS = ("keep", "drop", "replace")
REASONS = [reason.value for reason in Unpriced]
UNREAD = (
    "encoding", "not_json", "too_many_members", "not_an_object", "repeated_key", "no_messages",
    "too_busy", "too_large", "too_many_messages",
)  # fmt: skip


EVERY_SHADOW = tuple(
    replace(SHADOWS[0], record=Shadowed(f"keep_latest:{n}", b"", 0, False), fresh=dict.fromkeys(
        VERDICTS, 1
    ))
    for n in range(MOST_SHADOWS)
)  # fmt: skip


def findings() -> Sequence[Finding]:
    whose = {Cause.SELF: By.PROXY, **dict.fromkeys(NOT_BREAKS, By.NOBODY)}
    return [Finding(cause, whose.get(cause, By.CLIENT), stale=10) for cause in Cause]


def everything() -> Iterator[Outcome]:
    """One exchange of each of very many conversations; keys, models, upstreams, ends, findings,
    policies go round at their own pace, so that they meet in every way.
    """
    missed = itertools.cycle([None, *Missed])
    found = itertools.cycle(findings())
    ends = itertools.cycle(ENDS)
    for n in range(CONVERSATIONS):
        route, status, ending = next(ends) if n % 2 else (Route.CHAT, 200, "complete")
        cached = Cached(100, 60, next(missed))
        yield replace(
            CHAT, route=route, status=status, ending=ending, model=f"model-{n % MODELS}",
            key=f"key-{n % KEYS}", upstream=f"up-{n % 30}", unread=UNREAD[n % len(UNREAD)],
            faults=("read", "tap"), usage=Usage() if n % 7 == 0 else USAGE,
            money=(None, PAID, LOST)[n % 3], unpriced="" if n % 3 else REASONS[n % len(REASONS)],
            shadows=EVERY_SHADOW,
            pruned=replace(
                PRUNED, conversation=f"{n:x}", policy=POLICIES[n % len(POLICIES)], clamped=1,
                fresh=dict.fromkeys(VERDICTS, 1), finding=next(found), cached=cached,
            ),
        )  # fmt: skip


def test_very_many_keys_models_and_conversations_stay_under_two_thousand_series() -> None:
    observer = Observer(None, None, model_labels=50, key_labels=50, gen_ai=True)
    for outcome in everything():
        observer.tell(outcome)

    began = time.perf_counter()
    series = lines(observer, zeros=True)
    took = time.perf_counter() - began

    print(f"{len(series)} series, rendered in {took * 1000:.1f} ms")
    assert 2_000 > len(series)
    assert CONVERSATIONS == sum(observer.numbers()["lethe_requests_total"].values())


# Many workers


def two(folder: Path) -> tuple[Observer, Observer]:
    """Two workers of one proxy; each has told one exchange and written its numbers."""
    one, other = (Observer(folder, None, pid=pid) for pid in (101, 102))
    one.tell(CHAT)
    other.tell(replace(CHAT, timings=Timings(overhead=0.3)))
    one.in_flight, other.in_flight = 2, 1
    one.gauges = lambda counts: counts.set("lethe_ledger_up", 1)
    other.gauges = lambda counts: counts.set("lethe_ledger_up", 0)
    for observer in (one, other):
        observer.save(observer.own())
    return one, other


def test_whichever_worker_is_asked_tells_of_all(tmp_path: Path) -> None:
    one, other = two(tmp_path)

    assert lines(one, zeros=True) == lines(other, zeros=True)
    assert 20 == value(one, 'lethe_tokens_total{key="team",kind="output",model="m"}')
    assert 1 == value(one, 'lethe_overhead_seconds_bucket{le="0.001",route="chat"}')
    assert 2 == value(one, 'lethe_overhead_seconds_count{route="chat"}')
    assert ["lethe_in_flight 3.0", "lethe_workers 2.0"] == [
        *lines(one, "lethe_in_flight"), *lines(one, "lethe_workers")
    ]  # fmt: skip


def test_the_ledger_is_up_where_it_is_up_for_every_worker(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    assert ["lethe_ledger_up 0.0"] == lines(one, "lethe_ledger_up", zeros=True)

    other.gauges = lambda counts: counts.set("lethe_ledger_up", 1)
    other.save(other.own())

    assert ["lethe_ledger_up 1.0"] == lines(one, "lethe_ledger_up", zeros=True)


def test_a_worker_that_ends_leaves_its_counters_and_takes_its_gauges(tmp_path: Path) -> None:
    one, other = two(tmp_path)

    other.leave()

    assert 20 == value(one, 'lethe_tokens_total{key="team",kind="output",model="m"}')
    assert (2, 1, 1) == tuple(
        value(one, name) for name in ("lethe_in_flight", "lethe_workers", "lethe_ledger_up")
    )


def test_a_worker_that_was_killed_leaves_its_counters_and_no_gauge(tmp_path: Path) -> None:
    one, _ = two(tmp_path)
    aged(tmp_path / "102.numbers", observe.STALE + 1)

    assert 20 == value(one, 'lethe_tokens_total{key="team",kind="output",model="m"}')
    assert (2, 1, 1) == tuple(
        value(one, name) for name in ("lethe_in_flight", "lethe_workers", "lethe_ledger_up")
    )


def test_a_worker_that_was_only_slow_counts_again_once_it_writes(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    aged(tmp_path / "102.numbers", observe.STALE + 1)
    assert 1 == value(one, "lethe_workers")

    other.save(other.own())

    assert 2 == value(one, "lethe_workers")


def test_a_clock_that_was_put_back_does_not_bring_the_dead_to_life(tmp_path: Path) -> None:
    one, _ = two(tmp_path)
    aged(tmp_path / "102.numbers", -3600)

    assert 1 == value(one, "lethe_workers")


def test_a_worker_that_has_just_started_counts_those_that_it_finds(tmp_path: Path) -> None:
    two(tmp_path)
    aged(tmp_path / "102.numbers", 2)

    assert 3 == value(Observer(tmp_path, None, pid=103), "lethe_workers")


def aged(path: Path, seconds: float) -> None:
    written = path.stat().st_mtime - seconds
    os.utime(path, (written, written))


@pytest.mark.parametrize("left", [b"", b"\x00", b"\xc1", b"\x93\xa1a", b"[[1,2]]"])
def test_numbers_that_cannot_be_read_are_left_out(tmp_path: Path, left: bytes) -> None:
    one, _ = two(tmp_path)
    (tmp_path / "102.numbers").write_bytes(left)

    assert 10 == value(one, 'lethe_tokens_total{key="team",kind="output",model="m"}')


def test_numbers_that_cannot_be_written_are_a_fault_and_no_more(tmp_path: Path) -> None:
    one, _ = two(tmp_path)
    shutil.rmtree(tmp_path)

    one.save(one.own())
    one.leave()

    assert 2 == value(one, 'lethe_faults_total{place="metrics"}')


def test_it_can_be_asked_while_it_counts(tmp_path: Path) -> None:
    observer, reader = (Observer(tmp_path, None, pid=pid) for pid in (1, 2))
    done = threading.Event()

    def counting() -> None:
        # Labels that never were, so that the dictionary grows under the reader.
        for n in itertools.takewhile(lambda _: not done.is_set(), itertools.count()):
            observer.counts.add("lethe_unreadable_total", (str(n % 5_000),))
            if n % 5_000 == 0:
                observer.counts.numbers["lethe_unreadable_total"].clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=counting)
    thread.start()
    try:
        for _ in range(40):
            observer.numbers()
            observer.save(observer.own())
            assert 2 == sum(reader.numbers()["lethe_workers"].values())
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)


# The log


def test_one_line_an_exchange_is_written_off_the_path() -> None:
    log = io.BytesIO()
    observer = Observer(None, log)
    observer.tell(CHAT)
    observer.tell(replace(CHAT, id="x-2"))
    assert b"" == log.getvalue()

    observer.write_lines(observer.taken_lines())
    observer.write_lines(observer.taken_lines())

    rows = [orjson.loads(line) for line in log.getvalue().splitlines()]
    assert ["x-1", "x-2"] == [row["exchange"] for row in rows]


def test_a_log_that_is_too_slow_loses_lines_and_counts_them() -> None:
    observer = Observer(None, io.BytesIO())
    for _ in range(observe.MAX_LINES + 3):
        observer.tell(CHAT)

    assert ["lethe_log_lines_lost_total 3.0"] == lines(observer, "lethe_log_lines")


class FullDisk(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_loses_its_lines_and_counts_them() -> None:
    observer = Observer(None, FullDisk())
    observer.tell(CHAT)

    observer.write_lines(observer.taken_lines())

    assert ["lethe_log_lines_lost_total 1.0"] == lines(observer, "lethe_log_lines")
