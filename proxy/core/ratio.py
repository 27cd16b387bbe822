"""How many bytes of text a model makes of one token, learned from what its provider reports.

Where nobody counts the tokens of a text, they are estimated from its bytes; an estimate is marked
as one wherever it is told.
"""

from __future__ import annotations

import msgspec

_PRIOR = 4
"""Bytes a token until more is known: English prose and code, for the tokenizers in use."""
_WEIGHT = 500
"""Tokens that the prior counts for: a reply or two outweighs it."""
_MOST = 200_000
"""Tokens that are remembered; above it the past fades by half, so that a change shows."""


class Ratio(msgspec.Struct, frozen=True, gc=False):
    """Bytes seen, and the tokens that they were."""

    size: int = _PRIOR * _WEIGHT
    tokens: int = _WEIGHT

    def learned(self, size: int, tokens: int) -> Ratio:
        """The ratio with one more text whose tokens were counted; the same one where the text
        cannot be all that was counted.
        """
        if not is_whole(size, tokens):
            return self
        size, tokens = self.size + size, self.tokens + tokens
        return Ratio(size, tokens) if tokens <= _MOST else Ratio(max(1, size // 2), tokens // 2)

    def estimated(self, size: int) -> int:
        """The tokens of so many bytes."""
        return round(size * self.tokens / self.size)


def is_whole(size: int, tokens: int) -> bool:
    """Whether a text of so many bytes can be all of so many tokens: each has a byte at least. Of
    hidden reasoning only a summary comes, and is shorter than what was counted.
    """
    return 0 < tokens <= size
