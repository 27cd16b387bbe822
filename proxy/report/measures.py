"""What arms are compared by: each measure is a sum over conversations divided by another."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.report.intervals import Kind, Value
from proxy.report.run import Amount, Run


class Measure(msgspec.Struct, frozen=True):
    """`read` gives what one conversation brings to both sums; None where that is not known."""

    name: str
    title: str
    kind: Kind
    read: Callable[[Run], Value | None]


def _of(amount: Amount) -> Value | None:
    return (amount.sum, float(amount.steps)) if amount.steps else None


def _whole_bill(run: Run) -> float | None:
    return run.cost.sum if run.priced and not run.unpriced else None


def _per_conversation(run: Run) -> Value | None:
    bill = _whole_bill(run)
    return None if bill is None else (bill, 1.0)


def _per_success(run: Run) -> Value | None:
    bill = _whole_bill(run)
    return None if bill is None or run.success is None else (bill, float(run.success))


def _mechanical(run: Run) -> Value | None:
    return (run.cost.sum - run.keep, run.keep) if run.keep else None


def _success(run: Run) -> Value | None:
    return None if run.success is None else (float(run.success), 1.0)


COST = Measure("cost_per_step", "bill per step", Kind.RELATIVE, lambda run: _of(run.cost))
BILL = Measure("cost_per_conversation", "bill per conversation", Kind.RELATIVE, _per_conversation)
PRICE = Measure("cost_per_success", "bill per success", Kind.RELATIVE, _per_success)
OUTPUT = Measure("output_per_step", "output per step", Kind.RELATIVE, lambda run: _of(run.output))
REASONING = Measure(
    "reasoning_per_step", "reasoning per step", Kind.RELATIVE, lambda run: _of(run.reasoning)
)
STEPS = Measure(
    "steps_per_conversation",
    "steps per conversation",
    Kind.RELATIVE,
    lambda run: (float(run.steps), 1.0),
)
SUCCESS = Measure("success", "success", Kind.DIFFERENCE, _success)
MECHANICAL = Measure("mechanical", "mechanical change of the bill", Kind.ALONE, _mechanical)

MEASURES = (COST, BILL, PRICE, OUTPUT, REASONING, STEPS, SUCCESS, MECHANICAL)
