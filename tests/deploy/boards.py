"""The dashboards and alert rules as they ship, for tests that read or run them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy import families
from tests.shared import ROOT

DEPLOY = ROOT / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
FAMILIES = {family.name: family for family in families.FAMILIES}


def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def panels(path: Path) -> list[dict[str, Any]]:
    """All panels that show something; rows only group them."""
    rows = [panel for panel in board(path)["panels"] if panel["type"] == "row"]
    assert all(row["title"] for row in rows)
    found = [panel for panel in board(path)["panels"] if panel["type"] != "row"]
    return found + [inner for row in rows for inner in row["panels"]]


def expressions(path: Path) -> list[str]:
    return [target["expr"] for panel in panels(path) for target in panel["targets"]]


def filled(query: str, window: str) -> str:
    """The query as Grafana sends it: every window the same, no instance picked out."""
    timed = re.sub(r"\$__rate_interval\b|\$__range\b|\$window\b", window, query)
    return timed.replace("$instance", ".*")


def rules() -> list[dict[str, Any]]:
    """Alerts and recorded expressions, in the order in which they are read."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def family_of(name: str) -> families.Family | None:
    """The metric that a name in a query belongs to; a histogram shows as buckets, sum and count."""
    histogram = FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", name))
    if histogram is not None and histogram.kind == "histogram" and name != histogram.name:
        return histogram
    found = FAMILIES.get(name)
    return found if found is not None and found.kind != "histogram" else None


def promtool(*arguments: str) -> None:
    """Run it; the test is skipped where there is none to run."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
