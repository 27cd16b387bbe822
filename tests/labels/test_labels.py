"""Real steps that were judged by reading: how often the judgement agrees, printed and asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from proxy.core.artifact import judge
from tests.shared import need_shared

WANTED_F1 = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """One label, and what the judgement says of its step."""

    file: str
    chat: bool
    unsure: bool
    wrote: tuple[bool, bool]
    errored: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Score:
    """How often a judgement was rightly given, wrongly given and missed."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)

    @property
    def f1(self) -> float:
        return 2 * self.right / max(1, 2 * self.right + self.wrong + self.missed)


def test_the_judgement_agrees_with_the_labels(capsys):
    rows = list(judged(need_shared("labels", "steps.jsonl").parent.parent))
    sure = [row for row in rows if row.chat and not row.unsure]
    tables = {
        "chat wire": sure,
        "chat wire, unsure": [row for row in rows if row.chat and row.unsure],
        "other wires": [row for row in rows if not row.chat],
    }

    with capsys.disabled():
        print(f"\n{'':24}{'steps':>6}{'right':>7}{'wrong':>7}{'missed':>7}  precision recall   F1")
        for title, group in tables.items():
            for kind in ("wrote", "errored"):
                print(line(f"{title}: {kind}", group, score(group, kind)))

    assert 300 < len(sure)
    assert WANTED_F1 <= score(sure, "wrote").f1
    assert WANTED_F1 <= score(sure, "errored").f1
    assert score(sure, "wrote").recall <= score(sure, "wrote").precision


def line(title: str, rows: list[Row], found: Score) -> str:
    counts = f"{len(rows):>6}{found.right:>7}{found.wrong:>7}{found.missed:>7}"
    return f"{title:<24}{counts}  {found.precision:9.3f} {found.recall:6.3f} {found.f1:6.3f}"


def score(rows: list[Row], kind: str) -> Score:
    pairs = [getattr(row, kind) for row in rows]
    return Score(pairs.count((True, True)), pairs.count((False, True)), pairs.count((True, False)))


def judged(shared: Path) -> Iterator[Row]:
    """Every label with its judgement; of a pair the label comes first."""
    for text in (shared / "labels" / "steps.jsonl").read_text().splitlines():
        label = json.loads(text)
        path, messages = history(shared, label["file"], label.get("request"))
        message, answers = step(messages, label["step"])
        found = judge(message, answers)
        yield Row(
            label["file"],
            path.endswith("/chat/completions"),
            label["unsure"],
            (label["wrote"], found.wrote),
            (label["errored"], found.errored),
        )


@cache
def history(shared: Path, file: str, request: int | None) -> tuple[str, list[dict[str, Any]]]:
    """The wire's path and the messages in chat form."""
    if request is None:
        return "/chat/completions", json.loads((shared / "corpus" / file).read_text())["messages"]
    for text in (shared / "captures" / file).read_text().splitlines():
        record = json.loads(text)
        if record["n"] == request:
            body = json.loads(record["body"])
            path = record["path"]
            return path, body["messages"] if "messages" in body else list(chat(body["input"]))
    raise LookupError(f"{file} has no request {request}")


def step(messages: list[dict[str, Any]], number: int) -> tuple[dict[str, Any], list[Any]]:
    """The assistant message of that number and the messages that answer it, as steps are cut."""
    at = [i for i, m in enumerate(messages) if m.get("role") == "assistant"][number]
    end = at + 1
    called = messages[at].get("tool_calls") or uses(messages[at])
    while end < len(messages) and (results(messages[end]) if called else end == at + 1):
        end += 1
    answers = messages[at + 1 : end]
    return messages[at], [m for m in answers if called or m.get("role") != "assistant"]


def results(message: dict[str, Any]) -> bool:
    parts = message.get("content")
    return message.get("role") in ("tool", "function") or (
        isinstance(parts, list) and any(part.get("type") == "tool_result" for part in parts)
    )


def uses(message: dict[str, Any]) -> bool:
    parts = message.get("content")
    return isinstance(parts, list) and any(part.get("type") == "tool_use" for part in parts)


CALLS = {"function_call": "function", "custom_tool_call": "custom"}
RESULTS = ("function_call_output", "custom_tool_call_output")


def chat(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Items of the responses wire as chat messages: a run of the assistant's is one message."""
    run: dict[str, Any] | None = None
    for item in items:
        kind = item.get("type", "message")
        mine = kind in (*CALLS, "reasoning", "item_reference") or item.get("role") == "assistant"
        if not mine and run is not None:
            yield run
            run = None
        if mine:
            run = run or {"role": "assistant", "content": "", "tool_calls": []}
            add(run, kind, item)
        elif kind in RESULTS:
            yield {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
        else:
            yield {"role": item.get("role", "user"), "content": item.get("content")}
    if run is not None:
        yield run


def add(run: dict[str, Any], kind: str, item: dict[str, Any]) -> None:
    if kind in CALLS:
        body = {"name": item["name"], "arguments": item.get("arguments", item.get("input"))}
        run["tool_calls"].append({"id": item["call_id"], "type": CALLS[kind], CALLS[kind]: body})
    elif kind == "message":
        run["content"] += "".join(part["text"] for part in item["content"])
