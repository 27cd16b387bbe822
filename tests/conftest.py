"""One Hypothesis profile: no deadline, because machines differ; few examples, because there are
many laws."""

from __future__ import annotations

import os
import signal

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
