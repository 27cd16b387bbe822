"""The Grafana dashboards and the alert rules fit the metrics: names, labels, units, words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.core.prefix import NOT_BREAKS
from tests.deploy.boards import (
    ALERTS,
    DASHBOARDS,
    FAMILIES,
    board,
    expressions,
    family_of,
    filled,
    panels,
    promtool,
    rules,
)

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OWN = {"job", "instance"}
"""Labels that Prometheus gives to all that it scrapes."""
PER_SECOND = {"reqps", "cps", "Bps", "count:tokens/s", "count:steps/s"}
OF_RATIOS = {"percentunit", "count:tokens/step", "short"}
UNITS = PER_SECOND | OF_RATIOS | {"s", "none", "count:tokens", "currencyUSD"}

each_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def queries() -> list[str]:
    """Every query of every dashboard."""
    return [query for path in DASHBOARDS for query in expressions(path)]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def asked() -> list[str]:
    return [*queries(), *(rule["expr"] for rule in rules())]


def selected(query: str) -> list[tuple[str, str]]:
    """Each metric of ours in a query, with what is picked of it."""
    return re.findall(r"\b(lethe_\w+)(\{[^}]*\})?", query)


# Dashboards


def test_there_is_a_dashboard_for_each_thing_that_people_look_for() -> None:
    assert ["health", "overview", "policies", "prefix"] == [path.stem for path in DASHBOARDS]
    assert [f"lethe-{path.stem}" for path in DASHBOARDS] == [
        board(path)["uid"] for path in DASHBOARDS
    ]
    assert [f"Lethe: {path.stem}" for path in DASHBOARDS] == [
        board(path)["title"] for path in DASHBOARDS
    ]


@each_dashboard
def test_dashboards_lead_to_each_other(path: Path) -> None:
    (link,) = board(path)["links"]

    assert set(link["tags"]) <= set(board(path)["tags"])
    assert link["includeVars"]
    assert link["keepTime"]


@each_dashboard
def test_every_panel_says_what_it_shows_and_in_what_unit(path: Path) -> None:
    found = panels(path)

    assert len(found) == len({panel["title"] for panel in found if panel["title"].strip()})
    assert len(found) == len({panel["id"] for panel in found})
    for panel in found:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert SOURCE == panel["datasource"]
        assert panel["targets"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))
        for target in panel["targets"]:
            assert SOURCE == target["datasource"]
            assert target["legendFormat"]
            assert target["instant"] is not target["range"]


@each_dashboard
def test_a_unit_fits_what_its_query_measures(path: Path) -> None:
    for panel in panels(path):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for query in [target["expr"] for target in panel["targets"]]:
            if "dollars" in query:
                assert "currencyUSD" == unit, panel["title"]
            elif "histogram_quantile" in query:
                assert "s" == unit, panel["title"]
            elif " / " in query:
                assert unit in OF_RATIOS, panel["title"]
            elif "rate(" in query and len(panel["targets"]) == 1:
                assert unit == per_second(query), panel["title"]


def per_second(query: str) -> str:
    """The unit of a rate of what is counted."""
    ((name, _),) = selected(query)
    what = re.search(r"_(bytes|tokens|steps)(?!_unknown)", name)
    if what is not None:
        return {"bytes": "Bps", "tokens": "count:tokens/s", "steps": "count:steps/s"}[what[1]]
    if "clamps" in name:
        return "count:steps/s"
    return "cps" if re.search("faults|lost|additions|echoes", name) else "reqps"


@each_dashboard
def test_panels_fill_the_grid_without_lying_on_each_other(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board(path)["panels"]:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        cells = {(column, line) for column in range(x, x + w) for line in range(y, y + h)}
        assert not cells & taken, panel["title"]
        taken |= cells
    lowest = max(line for _, line in taken)
    assert {(column, line) for column in range(24) for line in range(lowest + 1)} == taken


@each_dashboard
def test_every_variable_is_there_and_used(path: Path) -> None:
    variables = {each["name"]: each for each in board(path)["templating"]["list"]}
    text = path.read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{?([a-z]\w*)\}?", text))

    assert set(variables) == used
    assert ("datasource", "prometheus") == (
        variables["datasource"]["type"],
        variables["datasource"]["query"],
    )
    instance = variables["instance"]
    assert family_of(re.findall(r"lethe_\w+", instance["definition"])[0]) is not None
    assert (".*", SOURCE) == (instance["allValue"], instance["datasource"])


@each_dashboard
def test_every_query_keeps_to_the_instances_that_are_picked(path: Path) -> None:
    for query in expressions(path):
        for name, picks in selected(query):
            assert picks.endswith('instance=~"$instance"}'), name


@each_dashboard
def test_counters_are_shown_as_they_rise_over_a_window_of_the_panels_own(path: Path) -> None:
    for panel in panels(path):
        for target in panel["targets"]:
            window = r"\$__range" if target["instant"] else r"(?:\$__rate_interval|\$window)"
            risen = re.findall(
                rf"(?:rate|increase)\((lethe_\w+)\{{[^}}]*\}}\[{window}\]\)", target["expr"]
            )
            counted = [
                name
                for name, _ in selected(target["expr"])
                if (family := family_of(name)) and family.kind != "gauge"
            ]
            assert counted == risen, panel["title"]


SHOWN = {
    "overview": (
        "sum(rate(lethe_requests_total",
        "by (kind) (rate(lethe_tokens_total",
        "by (kind) (rate(lethe_tokens_unknown_total",
        'lethe_tokens_total{kind="cache_read"',
        'lethe_reasoning_bytes_total{verdict="drop"',
        'lethe_reasoning_tokens_estimated_total{verdict="drop"',
        "histogram_quantile(0.5, sum by (le) (rate(lethe_overhead_seconds_bucket",
        "histogram_quantile(0.99, sum by (le) (rate(lethe_overhead_seconds_bucket",
    ),
    "prefix": (
        "by (cause) (rate(lethe_prefix_findings_total",
        "by (by) (rate(lethe_prefix_findings_total",
        "by (key) (increase(lethe_prefix_findings_total",
        "by (cause) (rate(lethe_prefix_rebuilt_tokens_total",
        "by (by) (rate(lethe_prefix_rebuilt_tokens_total",
        "sum(rate(lethe_cache_expected_tokens_total",
        "sum(rate(lethe_cache_reported_tokens_total",
        "by (cause) (rate(lethe_cache_missed_tokens_total",
    ),
    "policies": (
        "by (policy, verdict) (rate(lethe_steps_total",
        "by (verdict) (rate(lethe_reasoning_bytes_total",
        'by (policy) (rate(lethe_policy_tokens_total{kind="output"',
        'by (policy) (rate(lethe_policy_tokens_total{kind="reasoning"',
        "/ sum by (policy) (rate(lethe_policy_replies_total",
        'sum(rate(lethe_policy_tokens_total{kind="output",policy="keep"',
        'by (policy) (rate(lethe_shadow_tokens_total{kind="input"',
        'sum(rate(lethe_shadow_tokens_total{kind="input",policy="observe"',
        "by (policy) (rate(lethe_shadow_dollars_total",
        "by (policy, verdict) (rate(lethe_shadow_steps_total",
    ),
    "health": (
        "by (instance) (lethe_ledger_up",
        "by (kind) (rate(lethe_ledger_failures_total",
        "lethe_ledger_queue",
        "lethe_ledger_seconds_bucket",
        "by (status) (rate(lethe_requests_total",
        "by (outcome) (rate(lethe_requests_total",
        "by (instance) (lethe_in_flight",
        "by (instance) (lethe_workers",
        "by (place) (rate(lethe_faults_total",
        "by (reason) (rate(lethe_unreadable_total",
        "rate(lethe_log_lines_lost_total",
    ),
}


@each_dashboard
def test_a_dashboard_answers_what_it_is_opened_for(path: Path) -> None:
    text = "\n".join(expressions(path))

    assert [] == [wanted for wanted in SHOWN[path.stem] if wanted not in text]


def test_a_break_on_a_dashboard_is_what_the_proxy_calls_a_break() -> None:
    left_out = {found for query in queries() for found in re.findall(r'cause!~"([^"]*)"', query)}

    assert left_out
    for causes in left_out:
        assert {cause.value for cause in NOT_BREAKS} == set(causes.split("|"))


# Queries, of dashboards and alerts


def test_every_metric_that_a_query_names_is_one_that_the_proxy_tells() -> None:
    names = {name for query in asked() for name, _ in selected(query)}

    assert set() == {name for name in names if family_of(name) is None}


def test_every_metric_that_the_proxy_tells_is_looked_at_somewhere() -> None:
    seen = {family_of(name) for query in asked() for name, _ in selected(query)}

    assert set() == {
        name for name, family in FAMILIES.items() if not family.gen_ai and family not in seen
    }


def test_every_label_that_a_query_picks_by_is_one_that_its_metric_has() -> None:
    for query in asked():
        for name, picks in selected(query):
            labels = set(re.findall(r"(\w+)\s*[!=]", re.sub(r'"[^"]*"', "", picks)))
            family = family_of(name)
            assert family is not None
            assert labels - OWN <= set(family.labels), query


def test_every_label_that_a_query_groups_by_is_one_that_its_metrics_have() -> None:
    for query in asked():
        for family in {family_of(name) for name, _ in selected(query)}:
            assert family is not None
            assert grouped(query) - OWN - {"le"} <= set(family.labels), query


def grouped(query: str) -> set[str]:
    groups = re.findall(r"by \(([^)]*)\)", query)
    return {label.strip() for group in groups for label in group.split(",")}


@each_dashboard
def test_a_legend_shows_what_its_query_groups_by(path: Path) -> None:
    for panel in panels(path):
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown == grouped(target["expr"]) - {"le"}, panel["title"]


def test_promtool_can_read_every_query(tmp_path: Path) -> None:
    made = [
        {"record": f"panel:{number}", "expr": filled(query, "5m")}
        for number, query in enumerate(queries())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": made}]}))

    promtool("check", "rules", str(file))


# Alerts

TESTED: dict[str, Any] = yaml.safe_load((ALERTS.parent / "alerts_test.yml").read_text("utf-8"))


def test_there_is_an_alert_for_each_thing_that_must_not_go_unseen() -> None:
    assert {
        "LetheDown",
        "LetheCacheHitCollapse",
        "LetheBrokePrefix",
        "LetheLedgerDown",
        "LetheOverheadHigh",
        "LethePolicyThinksMore",
    } == {alert["alert"] for alert in alerts()}


def test_every_alert_says_what_it_is_what_it_means_and_what_to_do() -> None:
    for alert in alerts():
        assert {"summary", "description", "action"} == set(alert["annotations"])
        assert all(text.strip() for text in alert["annotations"].values())
        assert {"severity"} == set(alert["labels"])
        assert alert["labels"]["severity"] in ("critical", "warning")


def test_what_an_alert_points_to_is_there() -> None:
    text = " ".join(alert["annotations"]["action"] for alert in alerts())
    there = {board(path)["title"] for path in DASHBOARDS}
    there |= {panel["title"] for path in DASHBOARDS for panel in panels(path)}

    assert set(re.findall(r'"([^"]+)"', text)) <= there


@pytest.mark.parametrize(
    ("alert", "title"),
    [
        ("LetheOverheadHigh", "Own overhead, p99"),
        ("LethePolicyThinksMore", "Output a step, against keep"),
    ],
)
def test_a_panel_turns_red_where_its_alert_fires(alert: str, title: str) -> None:
    (rule,) = [rule for rule in alerts() if rule["alert"] == alert]
    ((*_, highest),) = [
        panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        for path in DASHBOARDS
        for panel in panels(path)
        if panel["title"] == title
    ]

    bounds = map(float, re.findall(r"> ([\d.]+)", rule["expr"]))
    assert "red" == highest["color"]
    assert highest["value"] == next(bounds)


def test_every_alert_is_tried_firing_and_not_firing() -> None:
    tried = [case for test in TESTED["tests"] for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in tried if case.get("exp_alerts")}
    quiet = {case["alertname"] for case in tried if not case.get("exp_alerts")}

    assert {alert["alert"] for alert in alerts()} == firing == quiet


def test_promtool_finds_that_alerts_fire_when_they_should() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(ALERTS.parent / "alerts_test.yml"))
