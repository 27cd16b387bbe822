"""One exchange as a line: what is usual in every one, what is odd where it happened."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core.expect import Cached, Missed
from proxy.core.outcome import Outcome, as_line
from tests.test_observe import CHAT, PRUNED

ODD = {"unread", "error", "retried", "mended", "finish", "faults"}


def pruned(**more: Any) -> Outcome:
    return replace(CHAT, pruned=replace(PRUNED, **more))


def test_a_line_is_json_and_holds_nothing_odd_where_nothing_was() -> None:
    line = as_line(CHAT)

    assert line == json.loads(json.dumps(line))
    assert set() == ODD & line.keys()
    assert set() == {"additions", "echoes_missed", "cache"} & line.keys()
    assert "forbidden" not in line["steps"]


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ({"unread": "too_busy"}, {"unread": "too_busy"}),
        ({"error": "overloaded"}, {"error": "overloaded"}),
        ({"retried": True}, {"retried": True}),
        ({"mended": "empty"}, {"mended": "empty"}),
        ({"finish": "stop"}, {"finish": "stop"}),
        ({"faults": ("tap", "bill")}, {"faults": ["tap", "bill"]}),
    ],
)
def test_what_was_odd_is_told(odd: dict[str, Any], expected: dict[str, Any]) -> None:
    line = as_line(replace(CHAT, **odd))

    assert expected == {key: line[key] for key in ODD & line.keys()}


def test_what_was_done_to_messages_is_told() -> None:
    line = as_line(pruned(done={"restored": 2, "affinity": 1}, missed=3, forbidden=4))

    assert {"restored": 2, "affinity": 1} == line["additions"]
    assert (3, 4) == (line["echoes_missed"], line["steps"]["forbidden"])


def test_a_cache_that_served_less_than_it_should_is_told() -> None:
    line = as_line(pruned(cached=Cached(100, 60, Missed.PROVIDER_MISS)))

    assert "provider_miss" == line["cache"]["cause"]
