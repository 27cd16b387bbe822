"""Real agents' requests in order: what leaves only grows wherever the client itself only appended.

Whether a client only appended is found without the code that is tested, from the decoded messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from proxy.core import reasoning, turn
from proxy.core.turn import Sealed
from proxy.memo import Memo
from tests.laws import checks, reading
from tests.laws.pipeline import SCOPE, Worker
from tests.shared import need_shared

SILENT = ("aider", "langgraph-deepseek", "mini-formaterror", "smolagents-toolcalling")
CONTENT = (
    "aisdk7-compat aisdk7-deepseek mini minitext openai-agents-chat opencode opencode~big "
    "openhands-deepseek pi pi~fault pydantic-ai-chat qwenagent"
).split()
BOTH = ("qwen@new", "qwen@new~fault")
# The fields in which each agent sends reasoning back, as its own requests show.
CARRIERS: dict[str, set[str]] = {
    **dict.fromkeys(SILENT, set()),
    **dict.fromkeys(CONTENT, {"reasoning_content"}),
    **dict.fromkeys(BOTH, {"reasoning_content", "reasoning"}),
}
AGENTS = tuple(CARRIERS)
RULES = ("drop", "after_artifact")


@cache
def bodies(path: Path) -> list[bytes]:
    """The bodies of an agent's main line, in order, less titles and summaries."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    chat = [row for row in rows if row["path"].endswith("/chat/completions")]
    return [row["body"].encode("utf-8", "surrogatepass") for row in chat if row["kind"] == "main"]


def agent(name: str) -> list[bytes]:
    return bodies(need_shared("captures", f"{name}.jsonl"))


def messages(body: bytes) -> list[Any]:
    return json.loads(body)["messages"]


def plain(message: Any) -> Any:
    """A message less its reasoning and its cache markers."""
    return reading.rendered(dict(reading.without_reasoning(message)))


def appended(before: bytes, after: bytes, whole: bool) -> bool:
    """Whether the second request only appends to the first; `whole` looks at reasoning too."""
    a, b = messages(before), messages(after)
    if not whole:
        a, b = [dict(plain(m)) for m in a], [dict(plain(m)) for m in b]
    return a == b[: len(a)]


def pairs(rows: list[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(rows, rows[1:], strict=False)


def sent(requests: list[bytes], rule: str, memo: Memo | None = None) -> list[Sealed]:
    worker = Worker(rule, memo=memo)
    return [worker.send(body) for body in requests]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", AGENTS)
def test_what_leaves_grows_wherever_the_client_only_appended(name: str, rule: str) -> None:
    requests = agent(name)
    left = sent(requests, rule)

    whole = [appended(a, b, whole=True) for a, b in pairs(requests)]
    for (shorter, longer), grown in zip(pairs(left), whole, strict=True):
        if grown:
            checks.extends(shorter, longer)
            assert not longer.finding.is_break


@pytest.mark.parametrize("name", AGENTS)
def test_a_client_that_strips_old_reasoning_breaks_nothing_that_was_dropped(name: str) -> None:
    requests = agent(name)
    left = sent(requests, "drop")

    bare = [appended(a, b, whole=False) for a, b in pairs(requests)]
    for (shorter, longer), grown in zip(pairs(left), bare, strict=True):
        if grown:
            digests = [e.digest for e in shorter.elements]
            assert digests == [e.digest for e in longer.elements[: len(digests)]]
            assert not longer.finding.is_break


@pytest.mark.parametrize("name", AGENTS)
def test_reasoning_in_the_history_is_recognised_in_every_carrier(name: str) -> None:
    found: set[str] = set()
    for body in agent(name):
        it = turn.read(body, SCOPE)
        for row in it.messages:
            message = it.decoded(row)
            if message.get("role") != "assistant":
                continue
            carriers = {carrier for carrier, _ in reasoning.texts_of(message)}
            assert reading.reasoning_in(message) is bool(carriers) is bool(row.edits)
            found |= carriers

    assert CARRIERS[name] == found


@pytest.mark.parametrize("name", AGENTS)
def test_no_reasoning_of_a_finished_step_leaves_under_drop_and_nothing_else_is_missing(
    name: str,
) -> None:
    requests = agent(name)
    for body, sealed in zip(requests, sent(requests, "drop"), strict=True):
        checks.takes_only_reasoning(body, sealed.body)
        checks.is_legal(body, sealed.body)
        open_steps = sum(not step.complete for step in turn.read(body, SCOPE).steps)
        kept = [m for m in reading.decoded(sealed.body)["messages"] if reading.reasoning_in(m)]
        assert len(kept) <= open_steps


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", AGENTS)
def test_what_is_remembered_of_bodies_changes_nothing(name: str, rule: str) -> None:
    requests = agent(name)

    assert sent(requests, rule) == sent(requests, rule, Memo(3, 1 << 20))


@pytest.mark.parametrize("name", [*CONTENT, *BOTH])
def test_after_artifact_drops_some_and_keeps_some(name: str) -> None:
    fullest = max(sent(agent(name), "after_artifact"), key=lambda it: it.dropped + it.kept)

    assert fullest.dropped > 0
    assert fullest.kept > 0


def test_most_agents_only_append() -> None:
    """Else the tests above would say little."""
    grown = [appended(a, b, whole=True) for name in AGENTS for a, b in pairs(agent(name))]

    assert sum(grown) > 0.9 * len(grown)
