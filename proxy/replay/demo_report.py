"""What the demo shows: two tables, some plain sentences, or all of it as JSON. Losses as losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.core.contract import CacheRule, Reuse
from proxy.replay.demo import CACHE, SHEETS, Run, Sheet
from proxy.replay.tables import titled

CACHES = (CACHE, CacheRule(Reuse.PROMPT), CacheRule(Reuse.NONE))
_COLUMNS = ("requests", "sent", "cached", "rebuilt", "new", "output", "bill", "change", "breaks")
_HOLDS = {
    Reuse.GENERATED: "prompt+generated",
    Reuse.PROMPT: "prompt only",
    Reuse.NONE: "no cache",
}


def show(console: Console, runs: Sequence[Run]) -> None:
    """Everything, for people."""
    console.print()
    console.print(_main_table(runs))
    console.print(Text(_accounting(SHEETS[0]), style="dim"))
    console.print()
    console.print(_rules_table(runs))
    console.print(Text(f"The same traffic. {_priced(SHEETS[1])}.", style="dim"))
    console.print()
    console.print(_listed(conclusion(runs)))
    console.print()
    console.print(Text("Next, with your own agent and provider:", style="bold"))
    console.print(Text("  lethe serve --upstream https://api.your-provider.example"))
    console.print(Text("  export OPENAI_BASE_URL=http://127.0.0.1:4100/v1"))


def _listed(sentences: Iterable[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    for sentence in sentences:
        table.add_row("•", Text(sentence))
    return table


def _main_table(runs: Sequence[Run]) -> Table:
    keep, sheet = runs[0], SHEETS[0]
    steps = len(keep.served) - 1
    title = f"One scripted agent of {steps} steps, through the proxy, under each policy"
    table = titled(title, "policy", *_COLUMNS)
    for run in runs:
        it, bill = run.tokens, run.bill(sheet)
        counts = (it.input, it.read, it.rebuilt, it.new, run.output)
        changed = _changed(bill, keep.bill(sheet)) if run is not keep else ""
        broken = Text(str(run.breaks), "red" if run.breaks else "green")
        money = f"${bill:.3f}"
        table.add_row(
            run.policy, str(len(run.served)), *map(_short, counts), money, changed, broken
        )
    return table


def _rules_table(runs: Sequence[Run]) -> Table:
    keep, *others = runs
    title = "The bill against keep, by what the cache holds and by prices"
    table = titled(title, "the cache holds, prices", *(run.policy for run in others))
    for cache in CACHES:
        for sheet in SHEETS:
            bills = [_changed(run.bill(sheet, cache), keep.bill(sheet, cache)) for run in others]
            table.add_row(f"{_HOLDS[cache.reuse]}, {sheet.name}", *bills)
    return table


def _accounting(sheet: Sheet) -> str:
    return (
        "Tokens are the provider's own counts. rebuilt: had been in its cache and were processed "
        "anew. breaks: requests whose cached prefix the proxy found broken. The bill is at example "
        f"prices, $ a million tokens, {_priced(sheet)}."
    )


def _priced(sheet: Sheet) -> str:
    fee = (
        f" (a write to it; {sheet.input} where there is none)" if sheet.write != sheet.input else ""
    )
    return (
        f"{sheet.name}: {sheet.write} for input that is not read from the cache{fee}, "
        f"{sheet.read} read, {sheet.output} output"
    )


def _short(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 10_000 else f"{tokens / 1000:,.0f}k"


def _changed(bill: Decimal, against: Decimal) -> Text:
    percent = change(bill, against)
    return Text(f"{percent:+.1f} %", "red" if percent > 0 else "green" if percent < 0 else "")


def change(value: Decimal | int, against: Decimal | int) -> Decimal:
    """Per cent; below 0 where it became less."""
    return (Decimal(value) / Decimal(against) - 1) * 100 if against else Decimal(0)


# In words


def conclusion(runs: Sequence[Run]) -> Iterator[str]:
    """What these numbers say, and what they do not."""
    keep, *others = runs
    for run in others:
        yield f"{run.policy}: {_compared(run, keep)}{_prefix_told(run)}"
    yield from _rebuilt_told(others)
    yield f"What pays is up to the server. Over the second table: {_ranges(others, keep)}."
    yield (
        "This agent says the same whatever is forgotten. A real model may think more or less when "
        "its old thoughts are gone: watch the output tokens of each step."
    )


def _compared(run: Run, keep: Run) -> str:
    sent = change(run.tokens.input, keep.tokens.input)
    bill = change(run.bill(SHEETS[0]), keep.bill(SHEETS[0]))
    tokens = _than(sent, "more tokens than keep", "fewer tokens than keep", "as many as keep")
    return f"sent {tokens}, bill {_than(bill, 'higher', 'lower', 'the same')}"


def _than(percent: Decimal, more: str, less: str, same: str) -> str:
    if abs(percent) < Decimal("0.05"):
        return same
    return f"{abs(percent):.1f} % {more if percent > 0 else less}"


def _prefix_told(run: Run) -> str:
    if not run.breaks:
        return "; no cached prefix broke."
    return (
        f"; it rewrote cached history on {run.breaks} of {len(run.served)} requests, and "
        f"{_short(run.tokens.rebuilt)} tokens that the cache had held were processed anew."
    )


def _ranges(runs: Sequence[Run], keep: Run) -> str:
    return "; ".join(f"{run.policy} {_range(run, keep)}" for run in runs)


def _range(run: Run, keep: Run) -> str:
    changes = [
        change(run.bill(sheet, cache), keep.bill(sheet, cache))
        for cache in CACHES
        for sheet in SHEETS
    ]
    return f"{min(changes):+.1f} to {max(changes):+.1f} %"


def _rebuilt_told(runs: Sequence[Run]) -> Iterator[str]:
    """Why tokens are rebuilt where no prefix broke."""
    found = [run for run in runs if run.tokens.rebuilt and not run.breaks]
    if found:
        named = " and ".join(f"{_short(run.tokens.rebuilt)} of {run.policy}" for run in found)
        yield (
            f"Rebuilt without a break ({named}): what the model said and called behind the "
            "reasoning that went. A cache that holds generated tokens has it only behind that "
            "reasoning and processes it anew, once a step."
        )


# For scripts


def as_json(runs: Sequence[Run], steps: int, seed: int) -> dict[str, Any]:
    """All numbers, exact; money as strings, in US dollars."""
    return {
        "steps": steps,
        "seed": seed,
        "cache": {"rule": CACHE.reuse.value, "block": CACHE.block, "minimum": CACHE.minimum},
        "prices": {sheet.name: _prices(sheet) for sheet in SHEETS},
        "runs": [_run(run, runs[0]) for run in runs],
    }


def _prices(sheet: Sheet) -> dict[str, str]:
    return {
        "input": str(sheet.input),
        "write": str(sheet.write),
        "read": str(sheet.read),
        "output": str(sheet.output),
    }


def _run(run: Run, keep: Run) -> dict[str, Any]:
    it = run.tokens
    return {
        "policy": run.policy,
        "requests": len(run.served),
        "tokens": {
            "input": it.input,
            "cached": it.read,
            "rebuilt": it.rebuilt,
            "new": it.new,
            "output": run.output,
        },
        "bills": [_bill(run, keep, cache, sheet) for cache in CACHES for sheet in SHEETS],
        "prefix": dict(run.causes),
        "breaks": run.breaks,
    }


def _bill(run: Run, keep: Run, cache: CacheRule, sheet: Sheet) -> dict[str, str]:
    bill = run.bill(sheet, cache)
    return {
        "cache": cache.reuse.value,
        "prices": sheet.name,
        "usd": str(bill),
        "change_percent": f"{change(bill, keep.bill(sheet, cache)):.4f}",
    }
