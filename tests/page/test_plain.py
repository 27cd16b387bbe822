"""Hostile text becomes visible, numbers become readable, what is unknown stays unknown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.page import plain


@given(st.text(st.characters(exclude_categories=())))
def test_visible_text_steers_no_terminal_and_can_be_encoded(text: str) -> None:
    shown = plain.visible(text)

    shown.encode("utf-8")
    assert not [c for c in shown if ord(c) < 0x20 and c not in "\t\n"]
    assert not [c for c in shown if 0x7F <= ord(c) <= 0x9F or 0x202A <= ord(c) <= 0x202E]


@given(st.text(st.characters(exclude_categories=())))
def test_a_line_is_one_line(text: str) -> None:
    assert "\n" not in plain.line(text)


def test_what_cannot_be_seen_is_named() -> None:
    assert "a␛[31mb" == plain.visible("a\x1b[31mb")
    assert "a[U+202E]b" == plain.visible("a\u202eb")
    assert "a\ufffdb" == plain.visible("a\ud83db")
    assert "one\ntwo" == plain.visible("one\r\ntwo")
    assert "漢字 🎉 é" == plain.visible("漢字 🎉 é")


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "–"), (0, "0"), (9_876, "9,876"), (10_000, "10.0k"), (52_310, "52.3k"),
        (99_960, "100k"), (999_499, "999k"), (999_999, "1.0M"), (1_234_567, "1.2M"),
        (2_500_000_000, "2.5G"),
    ],
)  # fmt: skip
def test_large_numbers_are_short_and_unknown_ones_are_a_dash(
    number: float | None, shown: str
) -> None:
    assert shown == plain.short(number)


@pytest.mark.parametrize(
    ("share", "shown"),
    [(None, "–"), (0, "0 %"), (0.001, "<1 %"), (0.5, "50 %"), (0.999, "99 %"), (1, "100 %")],
)
def test_only_all_of_it_is_a_hundred_per_cent(share: float | None, shown: str) -> None:
    assert shown == plain.percent(share)


def test_spans_of_time_and_sizes_have_their_unit() -> None:
    assert ["now", "12 s", "3 min", "2 h", "5 d"] == [
        plain.ago(seconds) for seconds in (0.5, 12, 200, 7_300, 450_000)
    ]
    assert ["–", "0.4 ms", "320 ms", "4.1 s"] == [
        plain.milliseconds(number) for number in (None, 0.4, 320, 4_100)
    ]
    assert ["312 B", "4.1 kB", "2.0 MB"] == [plain.size(n) for n in (312, 4_100, 2_000_000)]
    assert "2026-11-30 00:53:20" == plain.moment(1_796_000_000)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "~$0.00"), (3.4, "~$3.40"), (0.00123, "~$0.0012"), (0.000000004, "~$0.000000004")],
)
def test_money_is_shown_to_two_digits_that_count(amount: float, shown: str) -> None:
    assert shown == plain.dollars(amount)
    assert shown.removeprefix("~") == plain.dollars(amount, estimated=False)


def sums(saved: float, estimated: bool = True, unpriced: int = 0) -> dict[str, Any]:
    return {
        "cost": 3.4, "mechanical_saving": saved, "estimated": estimated, "unpriced_turns": unpriced
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (None, ""),
        (sums(0.5), "cost $3.40 · mechanically saved ~$0.5 against keep"),
        (sums(-0.5, estimated=False), "cost $3.40 · mechanically lost $0.5 against keep"),
        (sums(0, False, 2), "cost $3.40 · mechanically saved $0.00 against keep · "
         "2 turns without a price"),
    ],
)  # fmt: skip
def test_a_loss_is_told_as_a_loss_and_an_estimate_as_one(
    found: dict[str, Any] | None, shown: str
) -> None:
    assert shown == plain.money(found)


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 turns"), (1, "1 turn"), (2_000, "2,000 turns"), (None, "– turns")]
)
def test_a_number_and_its_noun_agree(number: int | None, shown: str) -> None:
    assert shown == plain.numbered(number, "turn")


def test_one_less_is_one_too() -> None:
    assert "-1 point" == f"-1 {plain.noun(-1, 'point')}"
