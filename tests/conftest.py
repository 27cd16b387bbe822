"""One Hypothesis profile: no deadline, because machines differ; few examples, because there are
many laws. And what `coverage run` counts, where it runs: it makes what it traces twice as slow.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

# What is printed is as wide as eighty columns, however wide the terminal is.
os.environ["COLUMNS"] = "80"

# Under nohup it is ignored, and would be by all that is started here. What is caught is not
# inherited.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

settings.register_profile(
    "ci", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("ci"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# What is traced

_HERE = Path(__file__).parent
_TRACED = {_HERE / "core", _HERE / "test_observe.py"}
"""Tests of `proxy/core` by itself: what they leave out counts as left out."""


def _is_traced(item: pytest.Item) -> bool:
    own = not _TRACED.isdisjoint({item.path, *item.path.parents})
    return own and item.get_closest_marker("untraced") is None


class _Tracing:
    """Goes on and off with the tests, no oftener than it has to: to begin again takes a while."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage, self._is_on = coverage, True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if _is_traced(item) is not self._is_on:
            self._is_on = not self._is_on
            (self._coverage.start if self._is_on else self._coverage.stop)()


def pytest_configure(config: pytest.Config) -> None:
    coverage = Coverage.current()
    if coverage is not None:
        config.pluginmanager.register(_Tracing(coverage))
