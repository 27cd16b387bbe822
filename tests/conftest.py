"""One Hypothesis profile: no deadline, because machines differ; few examples, because there are
many laws."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# What is printed is as wide as eighty columns, however wide the terminal is.
os.environ["COLUMNS"] = "80"

settings.register_profile(
    "ci", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("ci"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
