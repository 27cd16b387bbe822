"""What a replay draws: each sweep as lines over its axis, a file for each and cache rule."""

from __future__ import annotations

from collections.abc import Iterator
from math import log10
from pathlib import Path

from proxy.replay import plots
from proxy.replay.plots import Line
from proxy.replay.sweep import Sweep


def draw(file: Path, sweep: Sweep) -> list[Path]:
    """One plot for each cache rule; their files, named after the rule where there are several.

    Raises SettingsError.
    """
    rules = list(dict.fromkeys(curve.cache for curve in sweep.curves))
    drawn = []
    for rule in rules:
        path = file if len(rules) == 1 else _beside(file, rule)
        plots.lines(
            path, f"{_capital(sweep.measure)} against keep; the cache holds {rule}",
            _axis(sweep), f"change of {sweep.measure}, %", list(_lines(sweep, rule)), 0.0,
        )  # fmt: skip
        drawn.append(path)
    return drawn


def beside(file: Path, name: str) -> Path:
    """The file of one sweep of several."""
    return file.with_stem(f"{file.stem}-{name}")


def _beside(file: Path, rule: str) -> Path:
    return beside(file, rule.replace("+", "-").replace(":", "-"))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_wide(sweep: Sweep) -> bool:
    """Whether the axis goes over powers of ten."""
    return sweep.name in ("exchange-rate", "block")


def _axis(sweep: Sweep) -> str:
    return f"{sweep.axis} (powers of ten)" if _is_wide(sweep) else sweep.axis


def _lines(sweep: Sweep, rule: str) -> Iterator[Line]:
    for curve in sweep.curves:
        if curve.cache == rule:
            points = [
                (log10(x) if _is_wide(sweep) else x, 100 * change) for x, change in curve.points
            ]
            yield Line(curve.policy, points)
