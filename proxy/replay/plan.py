"""What is asked of a replay: policies, cache rules, prices. A value that every process is given."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from proxy.core import policy
from proxy.core.cachemodel import Split
from proxy.core.contract import CacheRule, Reuse
from proxy.core.policy import Name, Policy
from proxy.core.pricing import Sheet, cost
from proxy.core.tariff import Rates
from proxy.core.usage import Usage
from proxy.replay.sessions import Label

KEEP = "keep"
"""What all others are compared with; always replayed."""


class Priced(msgspec.Struct, frozen=True):
    """Prices under a name."""

    name: str
    rates: Rates

    @property
    def flat(self) -> bool:
        """Whether a token's price does not depend on the length of its prompt."""
        it = self.rates
        kinds = (it.input, it.output, it.cache_read, it.cache_write, it.cache_write_1h)
        return not any(rate.above for rate in kinds if rate)

    def sheet(self, tokens: int) -> Sheet:
        return self.rates.sheet(tokens)


class Plan(msgspec.Struct, frozen=True):
    """`policies` begin with `keep`. `arms` says under which policy an arm was recorded where its
    name does not. `label` is a regular expression with groups `task` and `arm`, searched in a
    file's path. `ratios` has bytes a token by model. `rendered` are the members of a body that are
    rendered before its messages. The first `asked` cache rules were asked for, where that is not 0;
    the others are there for a sweep.
    """

    policies: tuple[str, ...]
    caches: tuple[CacheRule, ...]
    prices: tuple[Priced, ...]
    label: str = ""
    arms: Mapping[str, str] = msgspec.field(default_factory=dict)
    ratios: Mapping[str, float] = msgspec.field(default_factory=dict)
    rendered: tuple[str, ...] = ()
    asked: int = 0

    @property
    def shown(self) -> range:
        """The places of the cache rules that were asked for."""
        return range(self.asked or len(self.caches))


class Paid(msgspec.Struct, frozen=True):
    """Tokens by how they are paid: read from the cache, written to it, neither, generated."""

    read: int = 0
    written: int = 0
    plain: int = 0
    output: int = 0

    def __add__(self, other: Paid) -> Paid:
        return Paid(
            self.read + other.read, self.written + other.written, self.plain + other.plain,
            self.output + other.output,
        )  # fmt: skip


def paid(rule: CacheRule, it: Split, output: int) -> Paid:
    """One request. Where a prompt is held, what was not read of it is written."""
    written = it.uncached if rule.reuse is not Reuse.NONE and it.input >= rule.minimum else 0
    return Paid(it.read, written, it.uncached - written, output)


def recorded_under(plan: Plan, label: Label) -> str:
    """The policy that a session was recorded under: as it says, as its arm does, else `keep`.

    Raises ValueError where it names a policy that is none.
    """
    named = label.policy or plan.arms.get(label.arm, "")
    if named:
        return str(replayable(named))
    try:
        policy.parse(label.arm)
    except ValueError:
        return KEEP
    return str(replayable(label.arm))


def replayable(text: str) -> Policy:
    """A policy whose verdicts follow from a session. Raises ValueError for what is none."""
    found = policy.parse(text)
    if found.name is Name.HORIZON:
        raise ValueError(
            f"policy {found} decides by one cache rule, one price and what was expected to come, "
            "of which a session holds nothing: replay keep and drop instead; `lethe horizon "
            "--reasoning R --action A --cache RULE --prices NAME` says for which steps drop pays"
        )
    return found


def parsed(name: str) -> Policy:
    return policy.parse(name)


def bill(paid: Paid, sheet: Sheet) -> Decimal:
    """Dollars for tokens at a sheet's prices."""
    usage = Usage(
        input=paid.read + paid.written + paid.plain, cache_read=paid.read,
        cache_write=paid.written, output=paid.output,
    )  # fmt: skip
    found = cost(usage, sheet)
    assert found is not None
    return found.total
