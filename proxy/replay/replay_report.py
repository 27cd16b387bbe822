"""What a replay shows: tables, plain sentences, Markdown, JSON. Losses are shown as losses, and
estimates as estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.core.cachemodel import written
from proxy.core.operations import Price, operations
from proxy.page.plain import numbered
from proxy.replay.arms import Against
from proxy.replay.statistics import Interval
from proxy.replay.sweep import Sweep
from proxy.replay.tables import titled
from proxy.replay.totals import Place, Totals


class Report(msgspec.Struct, frozen=True):
    """All that came out. `changes` are those of the bills; `price` and `premiums` are what
    operations are counted in; `arms_missing` are policies of arms that were not replayed.
    """

    totals: Totals
    changes: dict[Place, Interval | None]
    against: Sequence[Against]
    arms_missing: Sequence[str]
    sweeps: Sequence[Sweep]
    price: Price
    premiums: Sequence[Fraction]
    seed: int


def operations_of(it: Report, policy: int, cache: int, premium: Fraction) -> Fraction:
    """In positions; in pairs where a position costs nothing by itself."""
    unit = it.price.position or it.price.pair
    return operations(it.totals.work(policy, cache), it.price, premium) / unit


def _operations_change(it: Report, policy: int, cache: int, premium: Fraction) -> float | None:
    ours, keep = (operations_of(it, at, cache, premium) for at in (policy, 0))
    return float(ours / keep - 1) if keep else None


# For people


def show(console: Console, it: Report) -> None:
    totals = it.totals
    console.print()
    for sentence in _basis(totals):
        console.print(Text(sentence))
    for cache in totals.plan.shown if totals.sessions else ():
        console.print()
        console.print(_tokens_table(it, cache))
        console.print(_bills_table(it, cache))
    if it.against or it.arms_missing:
        console.print()
        for sentence in _arms(it):
            console.print(Text(f"• {sentence}"))
    console.print()
    for sentence in _notes(it):
        console.print(Text(f"• {sentence}", style="dim"))


def _basis(it: Totals) -> Iterator[str]:
    formats = ", ".join(f"{count:,} {name}" for name, count in it.formats.most_common())
    tasks, requests = numbered(it.tasks, "task"), numbered(it.requests, "request")
    yield (
        f"{numbered(it.sessions, 'session')} ({formats or 'none'}) of {tasks}: {requests}, "
        f"{numbered(it.output, 'output token')}, {it.reasoning:,} of them reasoning."
    )
    if it.unread:
        yield f"Left out: {numbered(it.unread, 'request')} whose body cannot be read."
    yield from skipped(it)


_NAMED = 5
"""Of what was skipped, so many places are named to people."""


def skipped(it: Totals) -> Iterator[str]:
    if not it.skips.count:
        return
    yield f"Skipped: {it.skips.count:,}."
    named = it.skips.told[:_NAMED]
    for row in named:
        place = f"{row.file}:{row.line}" if row.line else row.file
        yield f"  {_plain(place)}: {row.why}"
    if it.skips.count > len(named):
        yield f"  and {it.skips.count - len(named):,} more (--json names the first)"


def _plain(text: str) -> str:
    """A name from outside, without what could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


_TOKENS = ("sent", "cached", "rebuilt", "new", "dropped", "breaks")


def _tokens_table(it: Report, cache: int) -> Table:
    totals, plan = it.totals, it.totals.plan
    title = f"The cache holds: {written(plan.caches[cache])}"
    work = [f"work, w={float(premium):g}" for premium in it.premiums]
    table = titled(title, "policy", *_TOKENS, *work)
    for at, policy in enumerate(plan.policies):
        under = totals.under[at]
        sums, broken = under.served[cache], sum(under.breaks.values())
        counts = (under.input, sums.read, sums.rebuilt, sums.new, under.dropped)
        own = [_changed(_operations_change(it, at, cache, w)) if at else "" for w in it.premiums]
        told = Text(f"{broken:,}", "red" if broken else "green")
        mark = "~" if totals.estimated else ""
        table.add_row(policy, *(mark + _short(count) for count in counts), told, *own)
    return table


def _bills_table(it: Report, cache: int) -> Table:
    plan, table = it.totals.plan, titled("", "policy")
    table.add_column("prices", overflow="fold")
    for name in ("bill", "change", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    for price, priced in enumerate(plan.prices):
        for at, policy in enumerate(plan.policies):
            place = (at, cache, price)
            table.add_row(policy, priced.name, _dollars(it, place), *_change(it, place))
    return table


def _change(it: Report, place: Place) -> tuple[Text, str]:
    found = it.changes.get(place)
    if not place[0]:
        return Text(), ""
    return _changed(found.value if found else None), _range(found)


def _short(tokens: int) -> str:
    for size, letter in ((10**10, "G"), (10**7, "M"), (10**4, "k")):
        if tokens >= size:
            return f"{tokens / (size / 10):,.0f}{letter}"
    return f"{tokens:,}"


def _dollars(it: Report, place: Place) -> str:
    bill = it.totals.bill(place)
    mark = "~" if it.totals.estimated else ""
    return mark + (f"${bill:,.2f}" if bill >= 100 else f"${bill:.4f}")


def _share(found: Interval | None) -> str:
    return "–" if found is None else f"{100 * found.value:+.1f} % {_range(found)}".rstrip()


def _range(found: Interval | None) -> str:
    if found is None or found.low is None or found.high is None:
        return ""
    return f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _changed(share: float | None) -> Text:
    if share is None:
        return Text("–")
    return Text(f"{100 * share:+.1f} %", _colour(share))


def _colour(share: float) -> str:
    return "red" if share > 0.0005 else "green" if share < -0.0005 else ""


def _arms(it: Report) -> Iterator[str]:
    plan = it.totals.plan
    for name in it.arms_missing:
        yield f"an arm was recorded under {name}: add --policy {name} to compare it"
    for row in it.against:
        where = f"{written(plan.caches[row.cache])}, {plan.prices[row.price].name}"
        if not row.tasks:
            yield f"{row.arm} against {row.baseline}: no task has both"
            continue
        parts = (
            ("ΔC", row.total), ("ΔM", row.mechanical), ("ΔB", row.behavioural),
            ("output", row.output), ("steps", row.steps),
        )  # fmt: skip
        told = ", ".join(f"{name} {_share(found)}" for name, found in parts)
        success = f", success {_points(row.success)}" if row.success else ", success unknown"
        over = f"{where}, {numbered(row.tasks, 'task')}"
        yield f"{row.arm} against {row.baseline} ({over}): {told}{success}"


def _points(found: Interval) -> str:
    return f"{100 * found.value:+.1f} points {_range(found)}".rstrip()


def _notes(it: Report) -> Iterator[str]:
    totals = it.totals
    yield (
        "Mechanical: the same replies follow whatever is forgotten. An agent may think more or "
        "less when its old thoughts are gone; only a second recording (an arm) tells."
    )
    yield from _sizes(totals)
    yield from _cache_fit(totals)
    rate = it.price.exchange_rate
    at = "pairs cost nothing" if rate is None else f"P* = {float(rate):,.0f}"
    yield (
        f"work: operations against keep, {at}; w: how much more a generated position costs. "
        f"Brackets: {_how_sure(it)}."
    )


def _how_sure(it: Report) -> str:
    if any(found and found.method == "bootstrap" for found in it.changes.values()):
        return "95 % of 10,000 resamples of the tasks"
    return "95 %, by the normal distribution"


def _sizes(it: Totals) -> Iterator[str]:
    if it.requests:
        rest = f"; the others and {numbered(it.estimated_output, 'output token')} estimated (~)"
        yield (
            f"Sizes: {it.anchored:,} of {numbered(it.requests, 'request')} by recorded counts"
            f"{rest if it.estimated else ''}."
        )
    if it.foretold:
        yield (
            f"Prompts foretold one step ahead: {it.near:,} of {it.foretold:,} within 2 %; all "
            f"modelled {it.modelled:,}, recorded {it.recorded:,}."
        )


def _cache_fit(it: Totals) -> Iterator[str]:
    """Of the rule that tells the recorded reads best."""
    found = [
        (sums.exact, -abs(sums.foretold_reads - sums.recorded_reads), written(rule), sums)
        for under in it.under
        for rule, sums in zip(it.plan.caches, under.served, strict=True)
        if sums.compared
    ]
    if found:
        exact, _, rule, sums = max(found, key=lambda row: row[:2])
        yield (
            f"Recorded cache reads: rule {rule} tells {exact:,} of {sums.compared:,} exactly, "
            f"{sums.foretold_reads:,} of {numbered(sums.recorded_reads, 'token')} in sum."
        )


# For a page


def markdown(it: Report) -> str:
    """The bills as a table: a row for each cache rule and price, a column for each policy."""
    plan = it.totals.plan
    rows = [
        ["the cache holds", "prices", *plan.policies],
        ["---", "---", *["---:"] * len(plan.policies)],
    ]
    for cache in plan.shown:
        for price, priced in enumerate(plan.prices):
            places = [(policy, cache, price) for policy in range(len(plan.policies))]
            rows.append(
                [written(plan.caches[cache]), priced.name, *(_cell(it, place) for place in places)]
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(it: Report, place: Place) -> str:
    found = it.changes.get(place)
    return _dollars(it, place) + (f" ({100 * found.value:+.1f} %)" if found else "")


# For scripts


def as_json(it: Report) -> dict[str, Any]:
    """All numbers; money as texts, in US dollars."""
    totals, plan = it.totals, it.totals.plan
    return {
        "sessions": totals.sessions, "tasks": totals.tasks, "requests": totals.requests,
        "unread_requests": totals.unread, "estimated": totals.estimated,
        "steps": totals.steps, "output": totals.output, "reasoning": totals.reasoning,
        "estimated_output": totals.estimated_output,
        "formats": dict(totals.formats), "models": dict(totals.models.most_common(100)),
        "skipped": {
            "count": totals.skips.count,
            "first": [msgspec.to_builtins(row) for row in totals.skips.told],
        },
        "sizes": {
            "anchored_requests": totals.anchored, "foretold": totals.foretold,
            "within_2_percent": totals.near, "recorded_input": totals.recorded,
            "modelled_input": totals.modelled,
        },
        "seed": it.seed,
        "exchange_rate": None if it.price.exchange_rate is None
        else float(it.price.exchange_rate),
        "policies": [_policy(it, at) for at in range(len(plan.policies))],
        "arms": [_against(it, row) for row in it.against],
        "arms_missing": list(it.arms_missing),
        "sweeps": [msgspec.to_builtins(sweep) for sweep in it.sweeps],
    }  # fmt: skip


def _policy(it: Report, at: int) -> dict[str, Any]:
    under = it.totals.under[at]
    return {
        "policy": it.totals.plan.policies[at], "input": under.input, "dropped": under.dropped,
        "breaks": dict(under.breaks),
        "caches": [_cache(it, at, cache) for cache in it.totals.plan.shown],
    }  # fmt: skip


def _cache(it: Report, at: int, cache: int) -> dict[str, Any]:
    sums, plan = it.totals.under[at].served[cache], it.totals.plan
    return {
        "cache": written(plan.caches[cache]),
        "read": sums.read, "rebuilt": sums.rebuilt, "new": sums.new,
        "positions": sums.positions, "pairs": sums.pairs,
        "operations": [
            {
                "decode_premium": float(premium),
                "cost": float(operations_of(it, at, cache, premium)),
                "change": _operations_change(it, at, cache, premium),
            }
            for premium in it.premiums
        ],
        "reads": {
            "compared": sums.compared, "exact": sums.exact, "foretold": sums.foretold_reads,
            "recorded": sums.recorded_reads,
        },
        "bills": [
            {
                "prices": priced.name, "usd": str(sums.bills[price]),
                "change": _interval(it.changes.get((at, cache, price))),
            }
            for price, priced in enumerate(plan.prices)
        ],
    }  # fmt: skip


def _interval(found: Interval | None) -> dict[str, Any] | None:
    return None if found is None else msgspec.to_builtins(found)


def _against(it: Report, row: Against) -> dict[str, Any]:
    plan = it.totals.plan
    named = {"cache": written(plan.caches[row.cache]), "price": plan.prices[row.price].name}
    return {**msgspec.to_builtins(row), **named}
