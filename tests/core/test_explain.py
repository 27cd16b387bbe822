"""Of a break: where it is, how much of it is rebuilt, what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core import explain
from proxy.core.explain import Confidence, Explanation
from proxy.core.prefix import NOT_BREAKS, By, Cause, Finding
from proxy.core.sent import Element, Part, Sent


def element(name: str, part: Part = Part.MESSAGE, size: int = 100) -> Element:
    whole = name.encode().ljust(16, b".")
    return Element(part, whole, whole, whole[:8], size, 0, "user")


FRONT = (element("m", Part.MODEL, 0), element("p", Part.PARAMS, 0), element("t", Part.TOOLS))
WAS = (*FRONT, element("a"), element("b"), element("c"))
NOW = (*FRONT, element("a"), element("B"), element("c"), element("d"))
EDITED = Finding(Cause.MESSAGE_EDITED, By.CLIENT, 4, 1)


def told(
    before: Any = None, after: Any = None, finding: Finding = EDITED, prompt: int | None = 400
) -> Explanation:
    texts = [None if text is None else json.dumps(text).encode() for text in (before, after)]
    sent = Sent(b"l", b"o", WAS, 0.0, "up", prompt, 50, None, NOW[6].digest)
    return explain.explain(finding, sent, NOW, texts[0], texts[1])


@pytest.mark.parametrize(
    ("before", "after", "path", "offset"),
    [
        ({"content": "abcX"}, {"content": "abcY"}, "$.messages[1].content", 3),
        ({"content": "ab"}, {"content": "abc"}, "$.messages[1].content", 2),
        ({"role": "u"}, {"role": "u", "x": 1}, "$.messages[1].x", None),
        ({"role": "u", "x": 1}, {"role": "u"}, "$.messages[1].x", None),
        ({"c": [1, {"t": "a"}]}, {"c": [1, {"t": "b"}]}, "$.messages[1].c[1].t", 0),
        ({"c": [1]}, {"c": [1, 2]}, "$.messages[1].c[1]", None),
        ({"c": 1}, {"c": "1"}, "$.messages[1].c", None),
        ({"c": 1}, {"c": 1}, "$.messages[1]", None),
        (None, {"c": 1}, "$.messages[1]", None),
    ],
)
def test_the_place_is_a_path_and_an_offset(
    before: Any, after: Any, path: str, offset: int | None
) -> None:
    found = told(before, after)

    assert (path, offset) == (found.path, found.offset)


def test_text_that_is_no_json_has_no_inner_place() -> None:
    sent = Sent(b"l", b"o", WAS, 0.0, "up", 400)

    assert "$.messages[1]" == explain.explain(EDITED, sent, NOW, b"{", b"{").path


@pytest.mark.parametrize(
    ("at", "root"), [(0, "$.model"), (1, "$"), (2, "$.tools"), (3, "$.messages[0]")]
)
def test_every_part_has_a_root(at: int, root: str) -> None:
    finding = Finding(Cause.SYSTEM_CHANGED, By.CLIENT, at, 0)

    assert root == told(finding=finding).path


def test_what_comes_after_the_break_is_rebuilt_as_far_as_it_was_there() -> None:
    # 400 tokens over 400 bytes; the changed message and the one after it, not the new one.
    assert 200 == told().rebuilt
    assert told(prompt=None).rebuilt is None


def test_a_reply_that_was_cached_is_rebuilt_too() -> None:
    sent = Sent(b"l", b"o", WAS, 0.0, "up", 400, 50, None, NOW[6].digest)

    assert 250 == explain.explain(EDITED, sent, NOW, None, None, generated=True).rebuilt
    empty = Sent(
        b"l", b"o", tuple(element(e.digest.decode(), e.part, 0) for e in WAS), 0.0, "up", 9
    )
    assert explain.explain(EDITED, empty, NOW, None, None).rebuilt is None


def test_an_empty_text_shares_nothing() -> None:
    sent = Sent(b"l", b"o", WAS, 0.0, "up", 400)

    assert 200 == explain.explain(EDITED, sent, NOW, b"", b"{}").rebuilt


def test_every_break_has_advice_and_what_is_none_has_nothing() -> None:
    for cause in Cause:
        found = told(finding=Finding(cause, By.CLIENT, 4, 1))
        assert bool(found.fix) is (cause not in NOT_BREAKS)
    assert Confidence.LIKELY is told(finding=Finding(Cause.COMPACTION, By.CLIENT, 4, 1)).confidence
    assert explain.NONE is explain.explain(EDITED, None, NOW, None, None)
