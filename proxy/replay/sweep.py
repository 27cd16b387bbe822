"""What would pay if the server or its prices were others: changes against `keep` along one axis.

Along the exchange rate (P* = c/β, pairs that cost as much as a position) and the decoding premium
(w) operations change, along the price of a cache read the bill, along the block size both. The
first three need no second replay: the sums hold all that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from proxy.core.cachemodel import written
from proxy.core.contract import CacheRule, Reuse
from proxy.core.operations import Price, Work, at_rate, operations
from proxy.replay.totals import Totals

BLOCKS = (1, 16, 32, 64, 128, 256, 512, 1024)
RATES = tuple(10**exponent * step for exponent in (3, 4, 5, 6) for step in (1, 2, 5))
PREMIUMS = (1, 2, 3, 5, 8, 12, 20)
READS = tuple(Fraction(n, 40) for n in range(0, 41, 2))
"""Prices of a cache read as shares of the input's."""


class Curve(msgspec.Struct, frozen=True):
    """One policy under one cache rule: a change against `keep` (-0.2: a fifth less) at each x."""

    policy: str
    cache: str
    points: tuple[tuple[float, float], ...]


class Sweep(msgspec.Struct, frozen=True):
    """`axis` and `measure` are told in words; `name` is how it is asked for."""

    name: str
    axis: str
    measure: str
    curves: tuple[Curve, ...]


def with_blocks(caches: Sequence[CacheRule]) -> tuple[CacheRule, ...]:
    """The rules, and each that holds anything with every block size."""
    more = [
        replace(rule, block=block)
        for rule in caches
        for block in BLOCKS
        if rule.reuse is not Reuse.NONE
    ]
    return tuple(dict.fromkeys((*caches, *more)))


def exchange_rate(it: Totals, premium: Fraction) -> Sweep:
    return Sweep(
        "exchange-rate", "exchange rate P*, pairs a position", "operations",
        _curves(it, RATES, lambda rate: _operations(at_rate(Fraction(rate)), premium)),
    )  # fmt: skip


def decode_premium(it: Totals, price: Price) -> Sweep:
    return Sweep(
        "decode-premium", "decoding premium w", "operations",
        _curves(it, PREMIUMS, lambda premium: _operations(price, Fraction(premium))),
    )  # fmt: skip


def _operations(price: Price, premium: Fraction) -> Callable[[Work], Fraction]:
    return lambda work: operations(work, price, premium)


def _curves(
    it: Totals, xs: Sequence[int], at: Callable[[int], Callable[[Work], Fraction]]
) -> tuple[Curve, ...]:
    found = []
    for policy, cache in _others(it):
        ours, keep = it.work(policy, cache), it.work(0, cache)
        points = [(float(x), _change(at(x)(ours), at(x)(keep))) for x in xs]
        found.append(Curve(it.plan.policies[policy], written(it.plan.caches[cache]), tuple(points)))
    return tuple(found)


def _others(it: Totals) -> list[tuple[int, int]]:
    policies = range(1, len(it.plan.policies))
    return [(policy, cache) for policy in policies for cache in it.plan.shown]


def _change(ours: Fraction | Decimal, keep: Fraction | Decimal) -> float:
    return float(ours) / float(keep) - 1 if keep else 0.0


def read_price(it: Totals, price: int) -> Sweep:
    """With the other prices of a sheet; those of the shortest prompts, where it has tiers."""
    sheet = it.plan.prices[price].sheet(0)
    curves = []
    for policy, cache in _others(it):
        if it.plan.caches[cache].reuse is Reuse.NONE:
            continue
        points = []
        for share in READS:
            bills = [
                _bill(it, at, cache, Fraction(sheet.input) * share, sheet.cache_write, sheet.output)
                for at in (policy, 0)
            ]
            points.append((float(share), _change(*bills)))
        name = written(it.plan.caches[cache])
        curves.append(Curve(it.plan.policies[policy], name, tuple(points)))
    axis = "price of a cache read, as a share of the input's"
    return Sweep("read-price", axis, "bill", tuple(curves))


def _bill(
    it: Totals, policy: int, cache: int, read: Fraction, write: Decimal, output: Decimal
) -> Fraction:
    sums = it.under[policy].served[cache]
    anew = (sums.rebuilt + sums.new) * Fraction(write)
    return sums.read * read + anew + it.output * Fraction(output)


def blocks(it: Totals, price: int) -> Sweep:
    """Where the plan holds rules that differ in their blocks (`with_blocks`)."""
    curves = []
    groups = dict.fromkeys(
        (rule.reuse, rule.minimum) for rule in it.plan.caches if rule.reuse is not Reuse.NONE
    )
    for policy in range(1, len(it.plan.policies)):
        for reuse, minimum in groups:
            found = sorted(
                (rule.block, at)
                for at, rule in enumerate(it.plan.caches)
                if (rule.reuse, rule.minimum) == (reuse, minimum)
            )
            points = [
                (float(block), _change(it.bill((policy, at, price)), it.bill((0, at, price))))
                for block, at in found
            ]
            name = written(CacheRule(reuse, 1, minimum))
            curves.append(Curve(it.plan.policies[policy], name, tuple(points)))
    return Sweep("block", "block size in tokens", "bill", tuple(curves))


NAMES = ("exchange-rate", "decode-premium", "read-price", "block")


def swept(name: str, it: Totals, price: int, rate: Price, premium: Fraction) -> Sweep:
    """One of `NAMES`; `price` is the place of the sheet, `rate` and `premium` what holds still."""
    match name:
        case "exchange-rate":
            return exchange_rate(it, premium)
        case "decode-premium":
            return decode_premium(it, rate)
        case "read-price":
            return read_price(it, price)
        case _:
            return blocks(it, price)
