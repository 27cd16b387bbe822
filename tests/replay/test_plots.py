"""Plots: what is drawn to which file, and what is refused before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import SettingsError
from proxy.replay.plots import Line, lines, usable

pytest.importorskip("matplotlib", reason="plots are not installed (extra: plots)")

ROWS = (
    Line("up", [(0, -1), (1, 1)], (0.5, 0)),
    Line("as far up", [(0, 0), (1, 1)]),
    Line("down", [(0, 0), (1, -1)]),
)


def drawn(file: Path) -> bytes:
    lines(file, "A title", "steps", "dollars", ROWS, level=0)
    return file.read_bytes()


def test_a_png_is_a_picture(tmp_path: Path) -> None:
    assert drawn(tmp_path / "it.png").startswith(b"\x89PNG\r\n")


def test_an_svg_says_what_it_shows_in_letters(tmp_path: Path) -> None:
    text = drawn(tmp_path / "it.SVG").decode()

    assert all(f">{words}<" in text for words in ("A title", "steps", "dollars"))
    assert all(f">{row.name}<" in text for row in ROWS)


@pytest.mark.parametrize("name", ["it.png", "it.svg"])
def test_the_same_rows_give_the_same_file(tmp_path: Path, name: str) -> None:
    assert drawn(tmp_path / name) == drawn(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("it.pdf", r"got '.pdf'; wanted .png or .svg"),
        ("it", "got ''; wanted"),
        ("nowhere/it.png", "its folder does not exist"),
    ],
)
def test_a_file_that_cannot_be_drawn_to_is_refused(
    tmp_path: Path, name: str, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        usable(tmp_path / name)


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "it.png").mkdir()

    with pytest.raises(SettingsError, match="cannot be written"):
        drawn(tmp_path / "it.png")
