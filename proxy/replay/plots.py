"""Plots as files, PNG or SVG: one message each, on a light ground. Only here is matplotlib (extra
`plots`) used.

Lines are named where they end, not in a box beside; the same rows give the same file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.errors import SettingsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".png", ".svg")

# Okabe and Ito's colours, which colour-blind people tell apart, without the palest.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_INK, _FAINT, _GROUND = "#222222", "#d9d9d9", "#ffffff"
_STYLE: Any = {
    "font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "lethe", "text.color": _INK,
    "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
}  # fmt: skip
_GAP = 0.045
"""Of the height: names of lines stand so far apart at least."""


@dataclass(frozen=True, slots=True)
class Line:
    """Its points from left to right; a `mark` is a point of it that is shown as a dot."""

    name: str
    points: Sequence[tuple[float, float]]
    mark: tuple[float, float] | None = None


def usable(file: Path) -> None:
    """Raises SettingsError where a plot cannot be drawn to this file, before any work is done."""
    if file.suffix.lower() not in KINDS:
        raise SettingsError(f"plot {file.name}: got {file.suffix!r}; wanted {' or '.join(KINDS)}")
    if not file.parent.is_dir():
        raise SettingsError(f"plot {file}: its folder does not exist")
    if find_spec("matplotlib") is None:
        raise SettingsError("plots need matplotlib: python -m pip install matplotlib")


def lines(
    file: Path, title: str, x: str, y: str, rows: Sequence[Line], level: float | None = None
) -> None:
    """Draw lines over named axes. `level` is a height to compare with. Raises SettingsError where
    it cannot be written.
    """
    usable(file)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.2, 4.4), facecolor=_GROUND, layout="constrained")
        axes = figure.add_subplot(facecolor=_GROUND)
        _framed(axes, title, x, y)
        if level is not None:
            axes.axhline(level, color=_INK, linewidth=0.8)
        for row, colour in zip(rows, cycle(_COLOURS), strict=False):
            _drawn(axes, row, colour)
        _named(axes, rows)
        # An SVG has a date in it unless told not to.
        about = {"Date": None} if file.suffix.lower() == ".svg" else {}
        try:
            figure.savefig(file, dpi=160, metadata=about)
        except OSError as error:
            raise SettingsError(f"plot {file}: cannot be written: {error.strerror}") from error


def _framed(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontweight="bold", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)


def _drawn(axes: Axes, row: Line, colour: str) -> None:
    axes.plot(*zip(*row.points, strict=True), color=colour, linewidth=2)
    if row.mark:
        axes.plot(*row.mark, "o", color=colour, markersize=6)


def _named(axes: Axes, rows: Sequence[Line]) -> None:
    low, high = axes.get_ylim()
    ends = [row.points[-1][1] for row in rows]
    places = _apart(ends, (high - low) * _GAP)
    for row, at, colour in zip(rows, places, cycle(_COLOURS), strict=False):
        axes.annotate(
            row.name, (row.points[-1][0], at), (6, 0), textcoords="offset points",
            color=colour, va="center", annotation_clip=False,
        )  # fmt: skip
    axes.set_ylim(low, high)


def _apart(heights: Sequence[float], gap: float) -> Sequence[float]:
    """The heights, each raised as far as it must be to stand a gap above the one below it."""
    placed: dict[int, float] = {}
    for index, height in _upwards(heights):
        placed[index] = max(height, max(placed.values(), default=height - gap) + gap)
    return [placed[index] for index in range(len(heights))]


def _upwards(heights: Sequence[float]) -> Iterator[tuple[int, float]]:
    return iter(sorted(enumerate(heights), key=lambda it: it[1]))
