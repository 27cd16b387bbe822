"""What the demo says of its numbers, and that they are the known ones where such exist."""

from __future__ import annotations

import io
import re
from decimal import Decimal

import pytest
from rich.console import Console

from proxy.core.cachemodel import Segment, Segments, replayed
from proxy.core.contract import CacheRule, Reuse
from proxy.replay.demo import CACHE, SHEETS, Run
from proxy.replay.demo_report import as_json, change, conclusion, show
from proxy.replay.scripted_provider import Served

PROMPT = CacheRule(Reuse.PROMPT)
REASONING, ACTION, RESULT, PREAMBLE = 1_500, 150, 1_200, 20_000


def prompt_of(step: int, keeps: range) -> Segments:
    """The history before a step, with the reasoning of some steps."""
    rows = [Segment(b"preamble", PREAMBLE)]
    for k in range(step):
        thought = [Segment(b"reasoning %d" % k, REASONING)] if k in keeps else []
        rows += [*thought, Segment(b"action %d" % k, ACTION), Segment(b"result %d" % k, RESULT)]
    return tuple(rows)


def agent(policy: str, steps: int = 40) -> Run:
    """An agent whose steps all have one size, under a policy."""
    traffic = []
    for k in range(steps):
        keeps = {"keep": range(k), "drop": range(0), "keep_latest:1": range(k - 1, k)}[policy]
        answer = (Segment(b"reasoning %d" % k, REASONING), Segment(b"action %d" % k, ACTION))
        traffic.append((prompt_of(k, keeps), answer))
    rows = zip(traffic, replayed(CACHE, traffic), strict=True)
    broken = steps - 2 if policy == "keep_latest:1" else 0
    causes = {"cold_start": 1, "extended": steps - 1 - broken, "broken; cause=self": broken}
    return Run(policy, tuple(Served(p, g, it) for (p, g), it in rows), causes)


RUNS = (agent("keep"), agent("drop"), agent("keep_latest:1"))


def shown(width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, RUNS)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("run", "input_tokens", "bill"),
    [
        (RUNS[0], 3_023_000, "1.277060"),
        (RUNS[1], 1_853_000, "1.019660"),
        (RUNS[2], 1_911_500, "1.289030"),
    ],
)
def test_the_bill_of_an_agent_of_forty_steps_is_the_known_one(
    run: Run, input_tokens: int, bill: str
) -> None:
    assert input_tokens == run.tokens.input
    assert Decimal(bill) == run.bill(SHEETS[0], PROMPT)


def test_without_a_cache_input_has_no_write_fee() -> None:
    keep, sheet = RUNS[0], SHEETS[0]
    expected = keep.tokens.input * sheet.input + keep.output * sheet.output

    assert expected / 1_000_000 == keep.bill(sheet, CacheRule(Reuse.NONE))


def test_change_is_in_per_cent() -> None:
    assert Decimal("-20") == change(80, 100)
    assert 0 == change(5, 0)


def test_a_loss_is_told_as_a_loss() -> None:
    loss = next(line for line in conclusion(RUNS) if line.startswith("keep_latest:1"))
    percent = change(RUNS[2].bill(SHEETS[0]), RUNS[0].bill(SHEETS[0]))

    assert percent > 0
    assert f"bill {percent:.1f} % higher" in loss
    assert "rewrote cached history on 38 of 40 requests" in loss


def test_a_gain_is_told_with_what_it_rebuilds() -> None:
    drop = next(line for line in conclusion(RUNS) if line.startswith("drop"))

    assert drop.startswith("drop: sent 38.7 % fewer tokens than keep, bill ")
    assert drop.endswith("lower; no cached prefix broke.")
    assert any(
        line.startswith("Rebuilt without a break (5,811 of drop)") for line in conclusion(RUNS)
    )


def test_losses_are_red_and_gains_are_green() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    show(console, RUNS)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()

    assert re.search(r"\x1b\[31m *\+", text)
    assert re.search(r"\x1b\[32m *-", text)
    assert re.search(r"\x1b\[31m *38\x1b", text)


def test_nothing_is_cut_off_in_eighty_columns() -> None:
    assert "…" not in shown(80)
    assert max(len(line) for line in shown(80).splitlines()) <= 80


def test_it_ends_with_what_to_type_next() -> None:
    last = shown().rstrip().splitlines()[-2:]

    assert "lethe serve --upstream" in last[0]
    assert "export OPENAI_BASE_URL=http://127.0.0.1:4100/v1" in last[1]


def test_json_has_every_number_exactly() -> None:
    told = as_json(RUNS, 40, 1)
    keep, drop, _ = told["runs"]

    assert 3_023_000 == keep["tokens"]["input"]
    assert drop["tokens"]["input"] == sum(drop["tokens"][k] for k in ("cached", "rebuilt", "new"))
    assert {"cache": "prompt", "prices": SHEETS[0].name} == {
        k: drop["bills"][2][k] for k in ("cache", "prices")
    }
    assert Decimal("1.01966") == Decimal(drop["bills"][2]["usd"])
    assert "-20.1557" == drop["bills"][2]["change_percent"]


def test_no_change_is_told_as_none() -> None:
    same = Run("after_artifact", RUNS[0].served, RUNS[0].causes)

    assert "after_artifact: sent as many as keep, bill the same; no cached prefix broke." in list(
        conclusion([RUNS[0], same])
    )
