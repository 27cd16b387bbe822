"""Where reasoning stands and how it is taken out: one case a file, then what holds for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import reasoning
from proxy.core.wire import chat
from tests.laws import reading
from tests.laws.histories import histories, texts

VECTORS = sorted((Path(__file__).parent.parent / "vectors" / "reasoning").glob("*.json"))
_BEFORE, _AFTER = b'{"messages":[', b"]}"


def found_in(message: bytes) -> tuple[reasoning.Found, bytes]:
    """What is found in a message in the middle of a body, and the message less its edits."""
    body = _BEFORE + message + _AFTER
    at, end = len(_BEFORE), len(_BEFORE) + len(message)
    found = reasoning.find(body, at, end, chat.exact(message))
    left = chat.apply(body, found.edits)
    assert left.startswith(_BEFORE)
    assert left.endswith(_AFTER)
    return found, left[at : -len(_AFTER)]


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_reasoning_is_found_and_taken_out_as_the_vector_says(path: Path) -> None:
    case: dict[str, Any] = json.loads(path.read_text())

    found, left = found_in(raw(case["came"]))

    assert raw(case["left"]) == left, case["rule"]
    assert [tuple(pair) for pair in case["texts"]] == list(found.texts)
    assert case["sealed"] is found.sealed
    sizes = [len(text.encode("utf-8", "surrogatepass")) for text in {t for _, t in found.texts}]
    assert sum(sizes) == found.size


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_what_is_left_holds_no_more_reasoning(path: Path) -> None:
    found, left = found_in(raw(json.loads(path.read_text())["came"]))
    again, same = found_in(left)

    assert left == same
    if found.edits:
        assert () == again.texts


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_slots_are_string_literals_that_held_reasoning(path: Path) -> None:
    body = _BEFORE + raw(json.loads(path.read_text())["came"]) + _AFTER
    message = body[len(_BEFORE) : -len(_AFTER)]

    found = reasoning.find(body, len(_BEFORE), len(body) - len(_AFTER), chat.exact(message))

    held = [text for carrier, text in found.texts if carrier in reasoning.STRING_CARRIERS]
    slots = [chat.decode(body[start:end]) for start, end in found.slots]
    assert slots == [] if found.sealed or not found.edits else sorted(slots) == sorted(held)
    assert all(chat.Edit(*slot, b'""') in found.edits for slot in found.slots)


@given(histories(max_steps=2))
def test_edits_are_in_order_and_touch_only_reasoning(history) -> None:
    for message in history.messages(len(history.chunks)):
        text = history.style.render(message)
        value = reading.decoded(text)
        if not isinstance(value, dict) or value.get("role") != "assistant":
            continue
        found, left = found_in(text)
        ends = [at for edit in found.edits for at in (edit.start, edit.end)]
        assert ends == sorted(ends)
        assert reading.without_reasoning(value) == reading.without_reasoning(reading.decoded(left))
        assert reading.reasoning_in(value) is bool(found.texts and not found.sealed)


@given(texts, texts)
def test_a_thought_and_what_is_said_make_up_the_text(before: str, after: str) -> None:
    text = before + after
    span = reasoning.think_span(text)
    said = reasoning.without_think(text)

    assert (said == text) is (span is None)
    if span:
        assert text == said[: span[0]] + text[span[0] : span[1]] + said[span[0] :]
    assert reading._spoken(text) == said
    assert reading._think(text) == reasoning.think_in(text)


def test_a_long_thought_full_of_escapes_is_cut_in_one_pass() -> None:
    """Half a million escapes in a thought, and a megabyte of text after it."""
    thought, said = "why\n" * (1 << 19), "x\n" * (1 << 19)
    for close in ("</think>", "<\\/think>"):
        message = json.dumps({"role": "assistant", "content": f"<think>{thought}</think>\n{said}"})

        _, left = found_in(message.replace("</think>", close).encode())

        assert {"role": "assistant", "content": said} == json.loads(left)


@pytest.mark.parametrize("blanks", ["", "   ", "\n" * 10])
def test_an_unclosed_thought_of_any_length_is_none(blanks: str) -> None:
    text = blanks + "<think>" * (1 << 17)

    assert reasoning.think_span(text) is None
    assert text is reasoning.without_think(text)


_SPELLINGS = ("</think>", "<\\/think>", "\\u003c/think>", "\\u003C\\u002fthin\\u006b\\u003E")


@pytest.mark.parametrize("close", _SPELLINGS)
def test_a_thought_ends_however_its_end_is_spelled(close: str) -> None:
    literal = f'"<think>no \\\\{_SPELLINGS[2][1:]}{close} \\n<think>b{close}\\n<think>said"'
    message = f'{{"role":"assistant","content":{literal}}}'

    _, left = found_in(message.encode())

    assert {"role": "assistant", "content": "<think>said"} == json.loads(left)


def test_a_thought_that_quotes_the_spelling_of_an_end_goes_on() -> None:
    text = "<think>as \\u003c/think> tells</think>said"

    _, left = found_in(json.dumps({"role": "assistant", "content": text}).encode())

    assert {"role": "assistant", "content": "said"} == json.loads(left)


_AS_MANY, _TOO_MANY = reasoning.MOST_THOUGHTS, reasoning.MOST_THOUGHTS + 1


def test_so_many_thoughts_at_the_start_are_thoughts_and_more_are_none() -> None:
    assert "x" == reasoning.without_think("<think>a</think> " * _AS_MANY + "x")
    assert "a" * _AS_MANY == reasoning.think_in("<think>a</think> " * _AS_MANY + "x")
    assert reasoning.think_span("<think>a</think> " * _TOO_MANY + "x") is None
    assert "" == reasoning.think_in("<think>a</think> " * _TOO_MANY + "x")


@pytest.mark.parametrize("text", ["{}<think>a</think>x", "<think>a</think>{}x"])
def test_so_many_blanks_stand_around_a_thought_and_no_more(text: str) -> None:
    blanks = "\n" * reasoning.MOST_BLANKS

    assert reasoning.think_span(text.format(blanks))
    assert reasoning.think_span(text.format(blanks + "\n")) is None


@given(
    st.recursive(st.none() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner))
)
def test_text_is_read_from_any_shape(value: Any) -> None:
    assert isinstance(reasoning.text_in(value), str)
