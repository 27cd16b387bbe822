"""Where a history is cut into steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import fingerprint, steps
from proxy.core.fingerprint import Message
from proxy.core.steps import Step

_START = b"\0" * 16


def rows(*messages: Any) -> list[Message]:
    """Messages from short forms: `u`, `a`, `a:id,id` (calls), `t:id`, `f` (an old result)."""
    found, link = [], _START
    for text in messages:
        body = json.dumps(_message(text)).encode()
        row = fingerprint.read(body, 0, len(body), link)
        found.append(row)
        link = row.link
    return found


def _message(form: str) -> Any:
    role, _, ids = form.partition(":")
    match role:
        case "u" | "s":
            return {"role": {"u": "user", "s": "system"}[role], "content": form}
        case "t":
            return {"role": "tool", "tool_call_id": ids} if ids else {"role": "tool"}
        case "f":
            return {"role": "function", "name": "f", "content": "x"}
        case "old":
            return {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
        case "a" if ids:
            calls = [{"id": id} if id != "-" else {} for id in ids.split(",")]
            return {"role": "assistant", "tool_calls": calls}
        case "a":
            return {"role": "assistant", "content": "x"}
        case _:
            return 5


CASES = [
    ("", []),
    ("u", []),
    ("u a", [(1, 2, False)]),
    ("u a u", [(1, 3, True)]),
    ("u a odd", [(1, 3, True)]),
    ("u a u u", [(1, 3, True)]),
    ("u a a u", [(1, 2, True), (2, 4, True)]),
    ("u a t:x", [(1, 3, True)]),
    ("a u", [(0, 2, True)]),
    ("u a:1", [(1, 2, False)]),
    ("u a:1 t:1", [(1, 3, True)]),
    ("u a:1 t:2", [(1, 3, False)]),
    ("u a:1 t", [(1, 3, False)]),
    ("u a:1 u", [(1, 2, False)]),
    ("u a:1 u t:1", [(1, 2, False)]),
    ("u a:1 a:2 t:2", [(1, 2, False), (2, 4, True)]),
    ("u a:1,2 t:2 t:1 u", [(1, 4, True)]),
    ("u a:1,2 t:1 u", [(1, 3, False)]),
    ("u a:1,1 t:1", [(1, 3, False)]),
    ("u a:1,1 t:1 t:1", [(1, 4, True)]),
    ("u a:- t", [(1, 3, True)]),
    ("u a:-,- t t:x", [(1, 4, True)]),
    ("u a:1 t:1 t:1 t:2", [(1, 3, True)]),
    ("u a:1 t:2 t:1 t:3", [(1, 4, True)]),
    ("u old f u", [(1, 3, True)]),
    ("u a:1 t:1 u a u", [(1, 3, True), (4, 6, True)]),
    ("u a:1 t:1 s a:2 t:2", [(1, 3, True), (4, 6, True)]),
]


@pytest.mark.parametrize(("history", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_history_is_cut_into_steps(history: str, expected: list[tuple[int, int, bool]]) -> None:
    assert [Step(*step) for step in expected] == list(steps.cut(rows(*history.split())))


_FORMS = "u a a:1 a:2 a:1,2 a:- a:1,1 t:1 t:2 t f old odd".split()
forms = st.lists(st.sampled_from(_FORMS), max_size=12)


@given(forms, st.integers(0, 12))
def test_what_is_known_of_the_beginning_changes_nothing(history: list[str], cut: int) -> None:
    messages = rows(*history)

    assert steps.cut(messages) == steps.cut(messages, steps.cut(messages[:cut]))


@given(forms, st.integers(0, 12))
def test_a_complete_step_is_never_changed_by_what_comes_after(history: list[str], cut: int) -> None:
    messages = rows(*history)

    done = [step for step in steps.cut(messages[:cut]) if step.complete]

    assert done == [step for step in steps.cut(messages) if step in done]


@given(forms)
def test_steps_do_not_overlap_and_each_begins_with_an_assistant(history: list[str]) -> None:
    messages = rows(*history)
    found = steps.cut(messages)

    assert [m.role for m in messages].count("assistant") == len(found)
    assert all(messages[step.first].role == "assistant" for step in found)
    assert all(a.end <= b.first for a, b in zip(found, found[1:], strict=False))


def test_many_calls_are_matched_in_one_pass() -> None:
    ids = [str(n) for n in range(20_000)]
    link, calls = _START, ",".join(ids)
    message = rows(f"a:{calls}")[0]
    answers = [
        Message(0, 0, "tool", link, (), id, (), (), False, message.kept, message.kept) for id in ids
    ]

    assert (Step(0, 20_001, True),) == steps.cut([message, *reversed(answers)])
