"""What is counted: every metric, by name, with its labels and how many series it may have.

Labels come from closed sets, so that all families together stay under 2,000 lines a worker. Those
that come from outside (`model`, `key`, an upstream's name) a family takes only up to a bound of its
own and calls the rest `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from proxy.core.prefix import By, Cause
from proxy.core.tariff import Unpriced

FREE_LABELS = ("model", "key", "upstream", "gen_ai_provider_name")
"""Those whose values come from outside."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


# OpenTelemetry's semantic conventions for generative AI: names, attributes, and powers of four.
GEN_AI_USAGE = "gen_ai_client_inference_usage"
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
            (f"{GEN_AI_USAGE}_input_tokens", "Input tokens, cached ones included.", _TOKENS),
            (f"{GEN_AI_USAGE}_output_tokens", "Output tokens, reasoning included.", _TOKENS),
            (f"{GEN_AI_USAGE}_cache_read_input_tokens", "Input tokens read from cache.", _TOKENS),
            (f"{GEN_AI_USAGE}_cache_write_input_tokens", "Input tokens written to it.", _TOKENS),
            (f"{GEN_AI_USAGE}_reasoning_output_tokens", "Output tokens of reasoning.", _TOKENS),
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
NAMED: Mapping[str, Family] = {family.name: family for family in FAMILIES}
