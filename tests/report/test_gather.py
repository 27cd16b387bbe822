"""Conversations come page by page, and none is lost that moves meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.report.gather import PAGE, Partial, gathered
from proxy.report.run import Amount, read
from tests.report.words import row


class Api:
    """Answers as the admin API does. `moves` are conversations that are active once the first page
    was read.
    """

    def __init__(self, ats: Mapping[str, float], moves: Mapping[str, float] = {}) -> None:
        self.ats, self.moves = dict(ats), dict(moves)
        self.asked: list[dict[str, Any]] = []
        self.ledger = "up"

    def __call__(self, path: str, **query: Any) -> dict[str, Any]:
        assert "/lethe/conversations" == path
        self.asked.append(query)
        before, since = query.get("before", 1e99), query.get("since", 0.0)
        listed = sorted(self.ats.items(), key=lambda it: -it[1])
        rows = [row(id, at) for id, at in listed if at < before][: query["limit"]]
        following = rows[-1]["last_at"] if len(rows) == query["limit"] else None
        if rows and rows[-1]["last_at"] < since:
            rows, following = [it for it in rows if it["last_at"] >= since], None
        self.ats |= self.moves
        self.moves = {}
        return {"conversations": rows, "next": following, "ledger": self.ledger}


def many(count: int) -> dict[str, float]:
    return {f"c{number}": 1_000.0 + number for number in range(count)}


def test_all_pages_are_read_and_the_oldest_comes_first():
    api, seen = Api(many(2 * PAGE + 7)), list[int]()

    found = gathered(api, tick=seen.append)

    assert [f"c{number}" for number in range(2 * PAGE + 7)] == [run.id for run in found]
    assert 2 * PAGE + 7 == seen[-1]
    assert all(query["sums"] for query in api.asked)


def test_a_conversation_that_moves_to_the_front_meanwhile_is_not_lost():
    api = Api(many(PAGE + 5), moves={"c0": 5_000.0, "new": 5_001.0})

    found = gathered(api)

    assert PAGE + 6 == len(found)
    assert [("c0", 5_000.0), ("new", 5_001.0)] == [(run.id, run.at) for run in found[-2:]]


def test_only_those_active_since_are_asked_for():
    found = gathered(Api(many(300)), since=1_250.0)

    assert [f"c{number}" for number in range(250, 300)] == [run.id for run in found]


def test_a_part_is_not_taken_for_all():
    api = Api(many(3))
    api.ledger = "slow"

    with pytest.raises(Partial, match="try again"):
        gathered(api)


def test_of_nothing_there_is_nothing():
    assert [] == gathered(Api({}))


def test_a_row_is_read_whole():
    told = row(
        "ab", 5.0, task="mend", policies={"drop": 3}, models={"m": 2, "": 1}, steps=3,
        tokens={
            "output": {"sum": 30, "steps": 3}, "reasoning": {"sum": 0, "steps": 0},
            "dropped_estimated": {"sum": 7, "steps": 3},
        },
        breaks={"client": 2, "proxy": 1},
        dollars={"cost": 0.5, "keep": 0.75, "estimated": True, "priced": 3, "steps": 2,
                 "unpriced": 1},
    )  # fmt: skip
    told["outcome"] = {"success": True, "score": 0.5, "at": 4.0}

    run = read(told)

    assert ("ab", 5.0, "mend", "m", "drop", 3) == (
        run.id, run.at, run.task, run.model, run.policy, run.steps,
    )  # fmt: skip
    assert (Amount(30.0, 3), Amount(0.0, 0), 7.0) == (run.output, run.reasoning, run.dropped)
    assert (Amount(0.5, 2), 0.75, True, 3, 1) == (
        run.cost, run.keep, run.estimated, run.priced, run.unpriced,
    )  # fmt: skip
    assert (3, 1, True, 0.5) == (run.breaks, run.own, run.success, run.score)


def test_what_changed_while_it_lived_is_several_and_what_is_not_told_is_unknown():
    changed = read(row("a", policies={"keep": 2, "drop": 3}, models={}))

    assert ("several", "unknown") == (changed.policy, changed.model)
    assert ("unknown", 0, None) == (
        (bare := read({"id": "b"})).policy,
        bare.steps,
        bare.success,
    )
