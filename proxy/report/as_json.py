"""A report for scripts: all numbers, unrounded; shares as fractions, money in US dollars."""

from __future__ import annotations

from typing import Any

from proxy.replay.statistics import LEVEL, RESAMPLES
from proxy.report.compare import LEAST, Change, Comparison
from proxy.report.groups import Group
from proxy.report.intervals import SEED
from proxy.report.notes import notes
from proxy.report.whole import Report
from proxy.report.words import Verdict, verdicts


def as_json(it: Report) -> dict[str, Any]:
    return {
        "made": it.made,
        "since": it.since,
        "by": it.by.value,
        "rule": {"least": LEAST, "level": LEVEL, "resamples": RESAMPLES, "seed": SEED},
        "conversations": len(it.runs),
        "rows": [_row(it, row) for row in it.rows],
        "comparisons": [
            _comparison(found) | {"verdict": _verdict(verdict)}
            for verdict, found in zip(verdicts(it), _in_order(it), strict=True)
        ],
        "notes": notes(it) if it.runs else [],
    }


def _in_order(it: Report) -> list[Comparison]:
    return [it.comparisons[arm.key] for arm in it.arms if arm.key in it.comparisons]


def _row(it: Report, row: Group) -> dict[str, Any]:
    found = it.beside.get(row.key)
    return {
        "task": row.key.task or None,
        "model": row.key.model,
        "policy": row.key.policy or None,
        "conversations": row.conversations,
        "graded": row.graded,
        "success": row.success,
        "mean_score": row.score,
        "steps": row.steps,
        "steps_per_conversation": row.steps_per_conversation,
        "output_per_step": row.output,
        "reasoning_per_step": row.reasoning,
        "cache_hit_ratio": row.hit,
        "cost": row.cost,
        "cost_per_step": row.cost_per_step,
        "mechanical_saving": row.saving,
        "estimated": row.estimated,
        "unpriced_requests": row.unpriced,
        "breaks": row.breaks,
        "breaks_by_the_policy": row.own,
        "against": _changes(found) if found is not None and found.theirs else None,
    }


def _comparison(it: Comparison) -> dict[str, Any]:
    return {
        "model": it.model,
        "policy": it.policy,
        "baseline": it.baseline,
        "design": it.design.value,
        "conversations": [it.ours, it.theirs],
        "units": it.units,
        "changes": _changes(it),
    }


def _changes(it: Comparison) -> dict[str, Any]:
    return {name: _change(change) for name, change in it.changes.items()}


def _change(it: Change) -> dict[str, Any]:
    found = it.interval
    return {
        "ours": it.ours,
        "theirs": it.theirs,
        "change": found.value if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "method": found.method if found else None,
        "units": list(it.units),
        "enough": it.enough,
        "certain": it.certain,
    }


def _verdict(it: Verdict) -> dict[str, Any]:
    return {"headline": it.headline, "tone": it.tone, "sentences": list(it.sentences)}
