"""Where the recorded data lies; tests that need it skip, with a reason, where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def need_shared(*parts: str) -> Path:
    """The path below `../shared` (or `LETHE_SHARED`); skips the test where it is not there."""
    base = Path(os.environ.get("LETHE_SHARED", ROOT.parent / "shared"))
    path = base.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"recorded data is absent: {'/'.join(parts)} (looked beside the repository)")
    return path
