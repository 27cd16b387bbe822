"""A refusal's wording becomes a pattern that finds it again."""

from __future__ import annotations

import re

import pytest

from proxy.doctor.wording import LONGEST, pattern_of


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "the 'reasoning_content' in the thinking mode must be passed back to the API.",
        ),
        (
            "reasoning_content is missing in assistant tool call message at index 3",
            "reasoning_content is missing in assistant tool call message at index 112",
        ),
        (
            "bad request (req_8f2a91c0d4e7) for call lethe0000: no (thinking) [x]",
            "bad request (req_00aa11bb22cc33) for call call_9: no (thinking) [x]",
        ),
        (
            "id 3f2b8c1e-9a77-4f0e-8f3e-1d2c3b4a5968 refused",
            "id aaaabbbb-1111-2222-3333-ccccddddeeee refused",
        ),
    ],
)
def test_quotes_numbers_and_ids_may_differ(seen: str, again: str) -> None:
    pattern = re.compile(pattern_of(seen), re.IGNORECASE)

    assert pattern.search(seen)
    assert pattern.search(again)
    assert not pattern.search("something else")


def test_a_long_message_is_cut_at_a_word() -> None:
    said = "word " * 100
    pattern = pattern_of(said)

    assert len(pattern) <= LONGEST
    assert pattern.endswith("word")
    assert re.search(pattern, said)


def test_a_plain_message_stays_readable() -> None:
    assert r"field required-now\." == pattern_of("field required-now.")
