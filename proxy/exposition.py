"""Plain numbers as Prometheus reads them. The only room with prometheus-client; it is loaded when
somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy.counting import Labels, Numbers
from proxy.families import FAMILIES, Family

CONTENT_TYPE = CONTENT_TYPE_LATEST


def text(numbers: Numbers, gen_ai: bool = False) -> bytes:
    """All families; those under OpenTelemetry's names where `gen_ai` wants them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Exposed(numbers, gen_ai))
    return generate_latest(registry)


class _Exposed(Collector):
    """Numbers as prometheus-client's families, made anew for every scrape."""

    def __init__(self, numbers: Numbers, gen_ai: bool) -> None:
        self._numbers, self._gen_ai = numbers, gen_ai

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            if family.gen_ai and not self._gen_ai:
                continue
            yield _exposed(family, self._numbers.get(family.name, {}))


def _exposed(family: Family, series: Mapping[Labels, Any]) -> Metric:
    match family.kind:
        case "histogram":
            histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
            for labels, row in series.items():
                histogram.add_metric(labels, _cumulative(family.buckets, row), row[-1])
            return histogram
        case "gauge":
            gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in series.items():
                gauge.add_metric(labels, value)
            return gauge
        case _:
            counter = CounterMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in series.items():
                counter.add_metric(labels, value)
            return counter


def _cumulative(buckets: tuple[float, ...], row: list[float]) -> list[tuple[str, float]]:
    found, total = [], 0.0
    for bound, amount in zip((*map(str, buckets), "+Inf"), row[:-1], strict=True):
        total += amount
        found.append((bound, total))
    return found
