"""What a provider's prompt cache should have served, laid beside what it reports.

A contract's cache rule says how far a provider re-uses what it saw: the prompt only, or the tokens
that it generated too; in blocks of how many tokens; from which size on; for how long. From the last
request's own counts and from how the new one extends it, the cached tokens are expected; a report
below that has a cause.

Measured laws (`prompt+generated`, block 1): a step echoed as it was generated re-uses P + G - 1
tokens, one whose reasoning was taken out re-uses P, where P and G are the prompt and generated
tokens of the request before.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from proxy.core.contract import CacheRule, Contract, Reuse, UserTurn
from proxy.core.prefix import Cause, Finding
from proxy.core.sent import Element, Part, Sent


class Missed(Enum):
    TTL_EXPIRED = "ttl_expired"
    BELOW_MINIMUM = "below_minimum"
    TEMPLATE = "template"
    PROVIDER_MISS = "provider_miss"
    UPSTREAM_SWITCHED = "upstream_switched"
    UNREPORTED = "unreported"


class Cached(msgspec.Struct, frozen=True, gc=False):
    """`expected` is None where nothing can be said of it; `missed` is None where all is as
    expected. `fix` says what to do, where the contract knows it.
    """

    expected: int | None
    reported: int | None
    missed: Missed | None = None
    fix: str = ""

    @property
    def missed_tokens(self) -> int | None:
        if self.expected is None or self.reported is None:
            return None
        return max(0, self.expected - self.reported)


def expected_tokens(
    rule: CacheRule | None, last: Sent | None, now: Sequence[Element], finding: Finding
) -> int | None:
    """Cached tokens that the rule promises; None where the provider's counts of the last request
    are not known.

    What is promised is a lower bound: where the echo of the last reply is not what was generated,
    tokens of it may still be re-used.
    """
    if rule is None:
        return None
    if rule.reuse is Reuse.NONE:
        return 0
    if last is None or last.prompt_tokens is None or finding.cause not in _INTACT:
        return None
    tokens = last.prompt_tokens
    if finding.cause is Cause.RETRY:
        tokens -= 1
    elif rule.reuse is Reuse.GENERATED and _echoed(last, now) and last.output_tokens:
        tokens += last.output_tokens - 1
    if tokens < rule.minimum:
        return 0
    return tokens - tokens % rule.block


_INTACT = frozenset({Cause.EXTENDED, Cause.RETRY})


def _echoed(last: Sent, now: Sequence[Element]) -> bool:
    """Whether what follows the last request begins with its reply, word for word."""
    at = len(last.elements)
    return bool(last.reply) and at < len(now) and now[at].digest == last.reply


def compare(
    contract: Contract,
    last: Sent | None,
    now: Sequence[Element],
    finding: Finding,
    reported: int | None,
    seconds: float,
    upstream: str,
) -> Cached:
    """Expected beside reported. `seconds` have passed since the last request; `upstream` is where
    this one went. A 0 of who never reports anything is no report.
    """
    rule = contract.cache
    expected = expected_tokens(rule, last, now, finding)
    if reported is None or (reported == 0 and not contract.reports_cache):
        return Cached(expected, None, Missed.UNREPORTED, contract.usage_hint)
    if rule is None or expected is None or last is None:
        return Cached(expected, reported)
    if expected == 0 == reported and 0 < (last.prompt_tokens or 0) < rule.minimum:
        return Cached(expected, reported, Missed.BELOW_MINIMUM)
    if reported >= expected:
        return Cached(expected, reported)
    return Cached(expected, reported, _why(contract, last, now, seconds, upstream))


def _why(
    contract: Contract, last: Sent, now: Sequence[Element], seconds: float, upstream: str
) -> Missed:
    rule = contract.cache
    if last.upstream != upstream:
        return Missed.UPSTREAM_SWITCHED
    if contract.user_turn is not UserTurn.KEEPS and _new_user_message(last, now):
        return Missed.TEMPLATE
    if rule is not None and rule.ttl is not None and seconds > rule.ttl:
        return Missed.TTL_EXPIRED
    return Missed.PROVIDER_MISS


def _new_user_message(last: Sent, now: Sequence[Element]) -> bool:
    return any(e.part is Part.MESSAGE and e.role == "user" for e in now[len(last.elements) :])
