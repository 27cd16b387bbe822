"""Counts and tells every exchange once, when it is over.

On the path there are only plain numbers in dictionaries. They become metrics when somebody scrapes
(`exposition`).
With several workers each writes its numbers to a file of its own once a second, and whichever
worker is scraped adds them all up, so a counter never depends on who answers.

Labels come from closed sets, so that all families together stay under 2,000 lines a worker. Those
that come from outside (`model`, `key`, an upstream's name) a family takes only up to a bound of its
own and calls the rest `other`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import orjson

from proxy.core.outcome import Outcome, Route, as_line
from proxy.core.prefix import By, Cause
from proxy.core.pricing import PARTS
from proxy.core.tariff import Unpriced
from proxy.core.usage import Usage

OTHER = "other"
_FREE = ("model", "key", "upstream", "gen_ai_provider_name")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


# OpenTelemetry's semantic conventions for generative AI: names, attributes, and powers of four.
_GEN_AI_USAGE = "gen_ai_client_inference_usage"
_GEN_AI_LABELS = ("gen_ai_operation_name", "gen_ai_provider_name")
_TOKENS = tuple(float(4**power) for power in range(14))


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its labels in order; buckets in seconds for a histogram; how many series it may
    have before free labels are called `other`. `zeros` are told from the start: where a series
    appears, Prometheus sees no rise, so the first of a rare event would go unseen.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    most: int = 200
    gen_ai: bool = False
    zeros: tuple[tuple[str, ...], ...] = ()


def _each(*values: str) -> tuple[tuple[str, ...], ...]:
    return tuple((value,) for value in values)


_OUR_BREAK = (Cause.SELF.value, By.PROXY.value)

FAMILIES: tuple[Family, ...] = (
    Family(
        "lethe_requests_total",
        "counter",
        "Exchanges, by route, status and how they ended.",
        ("route", "status", "outcome"),
    ),
    Family(
        "lethe_exchange_seconds",
        "histogram",
        "Time from the first byte of a request to the last byte of its reply.",
        ("route", "outcome"),
        _SECONDS,
        24,
    ),
    Family(
        "lethe_first_byte_seconds",
        "histogram",
        "Time from forwarding to the reply's first byte.",
        ("route",),
        _SECONDS,
        4,
    ),
    Family(
        "lethe_overhead_seconds",
        "histogram",
        "Our own time before a request is forwarded.",
        ("route",),
        _SHORT,
        4,
    ),
    Family(
        "lethe_tokens_total",
        "counter",
        "Tokens as the provider reports them, by kind; output includes reasoning, cache_write what "
        "is written for an hour.",
        ("kind", "model", "key"),
        most=300,
    ),
    Family(
        "lethe_tokens_unknown_total",
        "counter",
        "Exchanges whose provider did not report that kind of token.",
        ("kind",),
        zeros=_each("input", "input_uncached", "cache_read", "cache_write", "output", "reasoning"),
    ),
    Family(
        "lethe_steps_total",
        "counter",
        "Steps settled, by policy and verdict.",
        ("policy", "verdict"),
    ),
    Family(
        "lethe_steps_adopted_total",
        "counter",
        "Steps judged at once because a conversation was met in mid-life.",
        zeros=((),),
    ),
    Family(
        "lethe_reasoning_bytes_total",
        "counter",
        "Bytes of old reasoning in requests, by what was done with it.",
        ("verdict",),
    ),
    Family(
        "lethe_reasoning_tokens_estimated_total",
        "counter",
        "Tokens of old reasoning in requests, estimated at four bytes a token.",
        ("verdict",),
    ),
    Family(
        "lethe_prefix_findings_total",
        "counter",
        "What happened to the prefix of each request, and by whom.",
        ("cause", "by", "model", "key"),
        most=200,
    ),
    Family(
        "lethe_prefix_stale_bytes_total",
        "counter",
        "Bytes that were cached and had to be read anew.",
        ("cause", "by"),
        zeros=(_OUR_BREAK,),
    ),
    Family(
        "lethe_prefix_rebuilt_tokens_total",
        "counter",
        "Tokens that were cached and had to be processed anew, estimated from the last count.",
        ("cause", "by"),
        zeros=(_OUR_BREAK,),
    ),
    Family(
        "lethe_cache_expected_tokens_total",
        "counter",
        "Cached tokens that the contract's rule promises, where the provider reports them too.",
        ("upstream",),
        most=20,
    ),
    Family(
        "lethe_cache_reported_tokens_total",
        "counter",
        "Cached tokens that the provider reports on the same requests.",
        ("upstream",),
        most=20,
    ),
    Family(
        "lethe_cache_missed_tokens_total",
        "counter",
        "Expected cached tokens that were not served, by the likeliest cause.",
        ("cause",),
    ),
    Family(
        "lethe_policy_replies_total",
        "counter",
        "Replies with usage, by policy: each is one step of an agent.",
        ("policy",),
    ),
    Family(
        "lethe_policy_tokens_total",
        "counter",
        "Output and reasoning tokens by policy: over the replies, what a step costs to think.",
        ("policy", "kind"),
    ),
    Family(
        "lethe_cost_dollars_total",
        "counter",
        "What exchanges came to, by part, at the prices in force.",
        ("part", "key"),
        most=80,
    ),
    Family(
        "lethe_saved_dollars_total",
        "counter",
        "Mechanical saving: the same requests with their reasoning would have cost more by this. "
        "Estimated where no provider counted all of that reasoning.",
        ("policy", "estimated"),
    ),
    Family(
        "lethe_lost_dollars_total",
        "counter",
        "Mechanical loss: the same requests with their reasoning would have cost less by this. "
        "Estimated where no provider counted all of that reasoning.",
        ("policy", "estimated"),
    ),
    Family(
        "lethe_prefix_rebuilt_dollars_total",
        "counter",
        "What it cost that cached tokens had to be processed anew, estimated.",
        ("cause", "by"),
    ),
    Family(
        "lethe_shadow_steps_total",
        "counter",
        "Steps that a shadow policy would have settled, by verdict.",
        ("policy", "verdict"),
        most=40,
    ),
    Family(
        "lethe_shadow_tokens_total",
        "counter",
        "Tokens that a shadow policy would have sent, and what the cache would have served of "
        "them, mechanically; policy observe is what was sent on the same exchanges.",
        ("policy", "kind"),
        most=40,
    ),
    Family(
        "lethe_shadow_dollars_total",
        "counter",
        "What exchanges would have come to under a shadow policy, mechanically; policy observe is "
        "what the same exchanges came to.",
        ("policy",),
        most=20,
    ),
    Family(
        "lethe_unpriced_total",
        "counter",
        "Answered chat exchanges that are in no sum of money, by reason.",
        ("reason",),
        zeros=_each(*(reason.value for reason in Unpriced)),
    ),
    Family(
        "lethe_unreadable_total",
        "counter",
        "Chat requests that went upstream unread, by reason.",
        ("reason",),
    ),
    Family(
        "lethe_clamps_total",
        "counter",
        "Verdicts that could not be carried out, by reason.",
        ("reason",),
        zeros=_each("signed", "contract"),
    ),
    Family(
        "lethe_additions_total",
        "counter",
        "What was done to messages beside dropping their reasoning, by what it was.",
        ("what",),
        zeros=_each(
            "restored",
            "moved",
            "placeholder",
            "arguments",
            "preserve",
            "affinity",
            "tools_order",
            "late_tools",
            "system_values",
        ),
    ),
    Family(
        "lethe_echoes_missed_total",
        "counter",
        "Assistant messages whose reply was looked for and is not kept: they stay as they came.",
    ),
    Family(
        "lethe_mended_total",
        "counter",
        "Requests that were refused with a 400, mended and sent once more; whether that helped.",
        ("remedy", "helped"),
        zeros=tuple(product(("empty", "restore", "absent", "keep"), ("yes", "no"))),
    ),
    Family(
        "lethe_faults_total",
        "counter",
        "Our own trouble that a client never saw, by place.",
        ("place",),
        zeros=_each(
            "set_policy",
            "read",
            "prune",
            "explain",
            "shadow",
            "tap",
            "bill",
            "keep",
            "mend",
            "remember",
            "exchange",
            "metrics",
        ),
    ),
    Family(
        "lethe_ledger_seconds", "histogram", "Time in the ledger, by verb.", ("verb",), _SHORT, 4
    ),
    Family(
        "lethe_ledger_failures_total",
        "counter",
        "Failures of the ledger's store, by kind.",
        ("kind",),
    ),
    Family("lethe_ledger_queue", "gauge", "Writes that wait for the ledger's store."),
    Family(
        "lethe_ledger_up", "gauge", "1 while the ledger's store answers in time, on every worker."
    ),
    Family("lethe_in_flight", "gauge", "Exchanges that have begun and not ended."),
    Family(
        "lethe_log_lines_lost_total",
        "counter",
        "Log lines that were let go because the log was too slow or could not be written.",
        zeros=((),),
    ),
    Family("lethe_workers", "gauge", "Workers that write metrics."),
    *(
        Family(name, "histogram", about, _GEN_AI_LABELS, buckets, 3, gen_ai=True)
        for name, about, buckets in (
            (f"{_GEN_AI_USAGE}_input_tokens", "Input tokens, cached ones included.", _TOKENS),
            (f"{_GEN_AI_USAGE}_output_tokens", "Output tokens, reasoning included.", _TOKENS),
            (f"{_GEN_AI_USAGE}_cache_read_input_tokens", "Input tokens read from cache.", _TOKENS),
            (f"{_GEN_AI_USAGE}_cache_write_input_tokens", "Input tokens written to it.", _TOKENS),
            (f"{_GEN_AI_USAGE}_reasoning_output_tokens", "Output tokens of reasoning.", _TOKENS),
            ("gen_ai_client_operation_duration_seconds", "Time of the operation.", _SECONDS),
            (
                "gen_ai_client_operation_time_to_first_chunk_seconds",
                "Time to the reply's first chunk.",
                _SECONDS,
            ),
        )
    ),
)
METRICS: tuple[str, ...] = tuple(family.name for family in FAMILIES)
_FAMILY: Mapping[str, Family] = {family.name: family for family in FAMILIES}

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
            labels = self._bounded(_FAMILY[name], labels)
            series[labels] = series.get(labels, 0) + amount

    def time(self, name: str, labels: Labels, seconds: float) -> None:
        buckets = _FAMILY[name].buckets
        row = self.numbers[name].get(labels)
        if row is None:
            row = self._row(name, labels)
        # The first bucket whose bound is not below.
        row[bisect_left(buckets, seconds)] += 1
        row[-1] += seconds

    def _row(self, name: str, labels: Labels) -> list[float]:
        family = _FAMILY[name]
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
            OTHER if name in _FREE else value
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
            counts.time(f"{_GEN_AI_USAGE}_{kind}", labels, tokens)


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


class Observer:
    """Where exchanges are told. `folder` is shared by all workers; None where there is one."""

    def __init__(
        self,
        folder: Path | None,
        log: BinaryIO | None,
        model_labels: int = 50,
        key_labels: int = 50,
        gen_ai: bool = False,
        pid: int | None = None,
    ) -> None:
        self.counts = Counts()
        self.gen_ai = gen_ai
        self._models, self._keys = Vocabulary(model_labels), Vocabulary(key_labels)
        self._folder, self._log = folder, log
        self._pid = os.getpid() if pid is None else pid
        self._lines: list[bytes] = []
        self.in_flight = 0
        self.gauges: Callable[[Counts], None] = lambda counts: None

    def tell(self, outcome: Outcome) -> bytes:
        """Count one exchange and queue its log line, which is returned: a JSON object, one line."""
        count(self.counts, self._models, self._keys, outcome)
        # A copy: orjson hands out a buffer of 8 KB, however little is in it.
        line = bytes(memoryview(orjson.dumps(as_line(outcome))))
        if self.gen_ai and outcome.route is Route.CHAT:
            count_gen_ai(self.counts, outcome)
        if self._log is not None:
            if len(self._lines) < MAX_LINES:
                self._lines.append(line)
            else:
                self.counts.add("lethe_log_lines_lost_total")
        return line

    @property
    def queued(self) -> int:
        """Log lines that wait to be taken."""
        return len(self._lines)

    def taken_lines(self) -> list[bytes]:
        """The log lines that are queued, taken out of the queue. On the event loop."""
        lines, self._lines = self._lines, []
        return lines

    def write_lines(self, lines: list[bytes]) -> None:
        """Write log lines that were taken. May block: called off the event loop."""
        if not lines or self._log is None:
            return
        try:
            self._log.write(b"\n".join(lines) + b"\n")
            self._log.flush()
        except OSError:
            self.counts.add("lethe_log_lines_lost_total", (), len(lines))

    def own(self) -> Numbers:
        """A copy of this worker's numbers as they are. On the event loop, where they change."""
        self._gauge()
        return _still(self.counts.numbers)

    def save(self, numbers: Numbers) -> None:
        """Leave this worker's numbers where the others find them. May block, as above."""
        if self._folder is None:
            return
        path = self._path(self._folder)
        partial = path.with_suffix(".partial")
        try:
            partial.write_bytes(_encode(numbers))
            partial.replace(path)
        except (OSError, ValueError, TypeError):
            # A full disk is no reason to stop serving; the next second may write it.
            self.counts.add("lethe_faults_total", ("metrics",))

    def _path(self, folder: Path) -> Path:
        return folder / f"{self._pid}.numbers"

    def leave(self) -> None:
        """The worker ends: its counters stay, what it held does not."""
        self.in_flight = 0
        self.gauges = lambda counts: None
        self.counts.numbers = _without_gauges(self.counts.numbers)
        self.save(self.counts.numbers)

    def numbers(self, own: Numbers | None = None) -> Numbers:
        """This worker's numbers, with those that the others left."""
        return add_up([self.own() if own is None else own, *self._others()])

    def _gauge(self) -> None:
        self.counts.set("lethe_in_flight", self.in_flight)
        self.counts.set("lethe_workers", 1)
        self.gauges(self.counts)

    def _others(self) -> Iterator[Numbers]:
        """What the other workers left. One that was killed leaves its counters, which still hold;
        its gauges do not, and are known by a file that is not written any more while ours is.
        """
        if self._folder is None:
            return
        mine = self._path(self._folder)
        for path in sorted(self._folder.glob("*.numbers")):
            if path == mine:
                continue
            numbers = _decode(path)
            yield numbers if _together(mine, path) else _without_gauges(numbers)


MAX_LINES = 20_000
STALE = 5.0
"""Seconds after which a worker's gauges are let go; each writes them once a second."""


def _together(mine: Path, other: Path) -> bool:
    """Whether both were written at about one time; also where that cannot be told."""
    try:
        return abs(mine.stat().st_mtime - other.stat().st_mtime) <= STALE
    except OSError:
        return True


def _without_gauges(numbers: Numbers) -> Numbers:
    gauges = {family.name for family in FAMILIES if family.kind == "gauge"}
    return {name: {} if name in gauges else series for name, series in numbers.items()}


def _still(numbers: Numbers) -> Numbers:
    """A copy that does not grow while another thread reads it."""
    return {name: series.copy() for name, series in numbers.items()}


def _encode(numbers: Numbers) -> bytes:
    rows = [
        [name, list(map(list, series)), list(series.values())] for name, series in numbers.items()
    ]
    return msgspec.msgpack.encode(rows)


def _decode(path: Path) -> Numbers:
    """What another worker left; nothing where it cannot be read."""
    try:
        rows = msgspec.msgpack.decode(path.read_bytes())
        return {
            name: dict(zip(map(tuple, keys), values, strict=True)) for name, keys, values in rows
        }
    except (OSError, msgspec.DecodeError, ValueError, TypeError):
        return {}
