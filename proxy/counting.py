"""Counts what an exchange adds.

On the path there are only plain numbers in dictionaries. They become metrics when somebody scrapes
(`exposition`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from proxy.core.outcome import Outcome
from proxy.core.prefix import By
from proxy.core.pricing import PARTS
from proxy.core.usage import Usage
from proxy.families import FAMILIES, FREE_LABELS, GEN_AI_USAGE, METRICS, NAMED, Family

OTHER = "other"
Labels = tuple[str, ...]
Numbers = dict[str, dict[Labels, Any]]


class Counts:
    """The plain numbers of one worker. A histogram's are its bucket counts, then the sum."""

    def __init__(self) -> None:
        self.numbers: Numbers = {family.name: dict.fromkeys(family.zeros, 0) for family in FAMILIES}

    def add(self, name: str, labels: Labels = (), amount: float = 1) -> None:
        series = self.numbers[name]
        try:
            series[labels] += amount
        except KeyError:
            labels = self._bounded(NAMED[name], labels)
            series[labels] = series.get(labels, 0) + amount

    def time(self, name: str, labels: Labels, seconds: float) -> None:
        buckets = NAMED[name].buckets
        row = self.numbers[name].get(labels)
        if row is None:
            row = self._row(name, labels)
        # The first bucket whose bound is not below.
        row[bisect_left(buckets, seconds)] += 1
        row[-1] += seconds

    def _row(self, name: str, labels: Labels) -> list[float]:
        family = NAMED[name]
        empty = [0.0] * (len(family.buckets) + 2)
        row: list[float] = self.numbers[name].setdefault(self._bounded(family, labels), empty)
        return row

    def set(self, name: str, value: float) -> None:
        self.numbers[name][()] = value

    def _bounded(self, family: Family, labels: Labels) -> Labels:
        """The labels, or with free ones called `other` where the family has as many series as it
        may.
        """
        if len(self.numbers[family.name]) < family.most:
            return labels
        return tuple(
            OTHER if name in FREE_LABELS else value
            for name, value in zip(family.labels, labels, strict=True)
        )


LONGEST_LABEL = 100
"""Characters of a free label value; a longer one is `other`."""


class Vocabulary:
    """Free label values that were let in: the first `most` that an upstream has answered well
    `enough` times.
    """

    def __init__(self, most: int, enough: int = 1) -> None:
        self._most, self._enough = most, enough
        self._in: dict[str, str] = {}
        self._tried: dict[str, int] = {}

    def name(self, value: str, good: bool) -> str:
        if value in self._in or value == "":
            return value
        if not good or len(self._in) >= self._most or not _is_name(value):
            return OTHER
        self._tried[value] = self._tried.get(value, 0) + 1
        if self._tried[value] >= self._enough:
            self._in[value] = value
            self._tried.pop(value)
            return value
        if len(self._tried) > 1000:
            self._tried.clear()
        return OTHER


def _is_name(value: str) -> bool:
    """Whether a free value can be a label: short, and printed as it is."""
    return len(value) <= LONGEST_LABEL and value.isprintable()


def count_gen_ai(counts: Counts, outcome: Outcome) -> None:
    """The same exchange under OpenTelemetry's names."""
    labels = ("chat", outcome.upstream)
    counts.time("gen_ai_client_operation_duration_seconds", labels, outcome.timings.total)
    first = outcome.timings.first_byte
    if first is not None and outcome.streamed:
        counts.time("gen_ai_client_operation_time_to_first_chunk_seconds", labels, first)
    usage = outcome.usage
    if usage is None:
        return
    for kind, tokens in (
        ("input_tokens", usage.input),
        ("output_tokens", usage.output),
        ("cache_read_input_tokens", usage.cache_read),
        ("cache_write_input_tokens", usage.cache_write),
        ("reasoning_output_tokens", usage.reasoning),
    ):
        if tokens is not None:
            counts.time(f"{GEN_AI_USAGE}_{kind}", labels, tokens)


def count(counts: Counts, models: Vocabulary, keys: Vocabulary, outcome: Outcome) -> None:
    """Everything that one exchange adds."""
    route, timings = outcome.route.value, outcome.timings
    counts.add("lethe_requests_total", (route, _status(outcome.status), outcome.ending))
    counts.time("lethe_exchange_seconds", (route, outcome.ending), timings.total)
    if timings.first_byte is not None:
        counts.time("lethe_first_byte_seconds", (route,), timings.first_byte)
    if timings.overhead is not None:
        counts.time("lethe_overhead_seconds", (route,), timings.overhead)
    if timings.settle is not None:
        counts.time("lethe_ledger_seconds", ("settle",), timings.settle)
    if outcome.unread:
        counts.add("lethe_unreadable_total", (outcome.unread,))
    if outcome.mended:
        counts.add("lethe_mended_total", (outcome.mended, "yes" if good(outcome) else "no"))
    for place in outcome.faults:
        counts.add("lethe_faults_total", (place,))
    well = good(outcome)
    model, key = models.name(outcome.model, well), keys.name(outcome.key, well)
    _count_tokens(counts, outcome, model, key)
    _count_pruned(counts, outcome, model, key)
    _count_cached(counts, outcome, model, key)
    _count_policy(counts, outcome)
    _count_money(counts, outcome, key)
    if outcome.shadows:
        _count_shadows(counts, outcome)


def good(outcome: Outcome) -> bool:
    """Whether it was answered well."""
    return 200 <= outcome.status < 300


def _status(status: int) -> str:
    return str(status) if status in _STATUSES else f"{status // 100}xx"


_STATUSES = frozenset({200, 400, 401, 403, 404, 408, 413, 422, 429, 499, 500, 502, 503, 504, 529})


def _count_tokens(counts: Counts, outcome: Outcome, model: str, key: str) -> None:
    usage = outcome.usage
    if usage is None:
        return
    kinds = (
        ("input_uncached", usage.uncached if usage.cache_read is not None else None),
        ("input", usage.input),
        ("cache_read", usage.cache_read),
        ("cache_write", usage.cache_write),
        ("output", usage.output),
        ("reasoning", usage.reasoning),
    )
    for kind, tokens in kinds:
        if tokens is None:
            counts.add("lethe_tokens_unknown_total", (kind,))
        else:
            counts.add("lethe_tokens_total", (kind, model, key), tokens)
    if usage.cache_write_1h:
        counts.add("lethe_tokens_total", ("cache_write_1h", model, key), usage.cache_write_1h)


def _count_pruned(counts: Counts, outcome: Outcome, model: str, key: str) -> None:
    pruned = outcome.pruned
    if pruned is None:
        return
    for verdict, steps in pruned.fresh.items():
        counts.add("lethe_steps_total", (pruned.policy.partition(":")[0], verdict), steps)
    if pruned.adopted:
        counts.add("lethe_steps_adopted_total", (), pruned.adopted)
    for verdict, size in (("drop", pruned.dropped_bytes), ("keep", pruned.kept_bytes)):
        counts.add("lethe_reasoning_bytes_total", (verdict,), size)
        counts.add("lethe_reasoning_tokens_estimated_total", (verdict,), size // 4)
    finding = pruned.finding
    cause, by = finding.cause.value, finding.by.value
    counts.add("lethe_prefix_findings_total", (cause, by, model, key))
    if finding.is_break:
        counts.add("lethe_prefix_stale_bytes_total", (cause, by), finding.stale)
        counts.add("lethe_prefix_rebuilt_tokens_total", (cause, by), pruned.explained.rebuilt or 0)
    if pruned.clamped:
        counts.add("lethe_clamps_total", ("signed",), pruned.clamped)
    if pruned.forbidden:
        counts.add("lethe_clamps_total", ("contract",), pruned.forbidden)
    for what, times in pruned.done.items():
        counts.add("lethe_additions_total", (what,), times)
    if pruned.missed:
        counts.add("lethe_echoes_missed_total", (), pruned.missed)


def _count_cached(counts: Counts, outcome: Outcome, model: str, key: str) -> None:
    """Expected beside reported; a shortfall is a finding of its own, and the provider's doing."""
    cached = outcome.pruned.cached if outcome.pruned else None
    if cached is None:
        return
    if cached.missed is not None:
        cause = cached.missed.value
        counts.add("lethe_prefix_findings_total", (cause, By.PROVIDER.value, model, key))
        if cached.missed_tokens:
            counts.add("lethe_cache_missed_tokens_total", (cause,), cached.missed_tokens)
    if cached.expected is not None and cached.reported is not None:
        where = (outcome.upstream,)
        counts.add("lethe_cache_expected_tokens_total", where, cached.expected)
        counts.add("lethe_cache_reported_tokens_total", where, cached.reported)


def _count_policy(counts: Counts, outcome: Outcome) -> None:
    """What a step costs to think under each policy: the number that catches re-derivation."""
    usage, pruned = outcome.usage, outcome.pruned
    if usage is None or pruned is None or usage.output is None:
        return
    # By the policy's name alone: its value is free text to whoever may send a header.
    policy = pruned.policy.partition(":")[0]
    counts.add("lethe_policy_replies_total", (policy,))
    counts.add("lethe_policy_tokens_total", (policy, "output"), usage.output)
    if usage.reasoning is not None:
        counts.add("lethe_policy_tokens_total", (policy, "reasoning"), usage.reasoning)


def _count_money(counts: Counts, outcome: Outcome, key: str) -> None:
    money, pruned = outcome.money, outcome.pruned
    if outcome.unpriced:
        counts.add("lethe_unpriced_total", (outcome.unpriced,))
    if money is None:
        return
    for part in PARTS:
        counts.add("lethe_cost_dollars_total", (part, key), float(getattr(money.cost, part)))
    if pruned is None:
        return
    policy = pruned.policy.partition(":")[0]
    if money.saving:
        sign = "saved" if money.saving > 0 else "lost"
        labels = (policy, "true" if money.estimated else "false")
        counts.add(f"lethe_{sign}_dollars_total", labels, float(abs(money.saving)))
    if pruned.finding.is_break:
        where = (pruned.finding.cause.value, pruned.finding.by.value)
        counts.add("lethe_prefix_rebuilt_dollars_total", where, float(money.rebuilt))


_OBSERVE = "observe"


def _count_shadows(counts: Counts, outcome: Outcome) -> None:
    """What shadow policies would have made of it, beside what was made of it."""
    for shadow in outcome.shadows:
        for verdict, steps in shadow.fresh.items():
            counts.add("lethe_shadow_steps_total", (shadow.policy, verdict), steps)
        _count_shadow(counts, shadow.policy, shadow.usage, shadow.cost)
    paid = outcome.money.cost.total if outcome.money else None
    _count_shadow(counts, _OBSERVE, outcome.shadows[0].sent, paid)


def _count_shadow(
    counts: Counts, policy: str, usage: Usage | None, dollars: Decimal | None
) -> None:
    if usage is not None and usage.input is not None:
        counts.add("lethe_shadow_tokens_total", (policy, "input"), usage.input)
        counts.add("lethe_shadow_tokens_total", (policy, "cache_read"), usage.cache_read or 0)
    if dollars is not None:
        counts.add("lethe_shadow_dollars_total", (policy,), float(dollars))


def add_up(many: Iterable[Numbers]) -> Numbers:
    """The numbers of several workers as one. `lethe_ledger_up` holds only where it holds on all."""
    total: Numbers = {family.name: {} for family in FAMILIES}
    for numbers in many:
        for name in METRICS:
            for labels, value in numbers.get(name, {}).items():
                total[name][labels] = _plus(name, total[name].get(labels), value)
    return total


def _plus(name: str, a: Any, b: Any) -> Any:
    if a is None:
        return b
    if isinstance(a, list):
        return [x + y for x, y in zip(a, b, strict=True)] if len(a) == len(b) else a
    return min(a, b) if name == "lethe_ledger_up" else a + b
