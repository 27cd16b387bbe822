"""A prompt cache over toy tokens: what is held when a request is over, and what is read of it.

A mark (`<|name|>`, `<think>`, `</think>`) is one token, everything between two marks is cut every
four characters. So a text that is continued behind a mark keeps its tokens, as with real
tokenizers; one that is continued in the middle of a run loses at most the run's last token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.contract import Reuse

CHARACTERS = 4
"""Characters of a token between marks."""
ROWS = 8
"""Requests of a conversation whose states are looked at."""
_MARK = re.compile(r"(<\|[a-z]+\|>|</?think>)")
Pieces = list[str]
"""A text, cut at its marks."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`block` and `minimum` in tokens."""

    reuse: Reuse
    block: int = 1
    minimum: int = 0


def pieces(text: str) -> Pieces:
    return [piece for piece in _MARK.split(text) if piece]


def tokens(cut: Sequence[str]) -> int:
    return sum(map(_tokens, cut))


def _tokens(piece: str) -> int:
    return 1 if _MARK.fullmatch(piece) else -(-len(piece) // CHARACTERS)


def held(rule: Rule, prompt: str, generated: str) -> Pieces:
    """What stays of a request. The last token that was generated was never fed back: its mark is
    not held.
    """
    if rule.reuse is Reuse.NONE:
        return []
    return pieces(prompt) if rule.reuse is Reuse.PROMPT else pieces(prompt + generated)[:-1]


def read(rule: Rule, rows: Sequence[Pieces], prompt: Pieces) -> int:
    """Tokens of a prompt that are served from the cache; its last is always processed."""
    whole, rest = max((_common(row, prompt) for row in rows[-ROWS:]), default=(0, 0))
    most = tokens(prompt[:whole]) + rest
    found = min(most, tokens(prompt) - 1) // rule.block * rule.block
    return found if found >= rule.minimum else 0


def _common(row: Pieces, prompt: Pieces) -> tuple[int, int]:
    """How many leading pieces both have, and how many tokens of the piece in which they part."""
    for at, (a, b) in enumerate(zip(row, prompt, strict=False)):
        if a != b:
            shared = len(os.path.commonprefix([a, b]))
            return at, 0 if _MARK.match(a) else shared // CHARACTERS
    return min(len(row), len(prompt)), 0
