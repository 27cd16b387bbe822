"""What a provider's prompt cache reads of a prompt: arithmetic over segments of tokens.

An engine keeps the states of a prompt by position, so it can use them again only from the beginning
on and only as long as nothing differs. From that follow all rules here:

- What is read is a common beginning of the prompt and of something held, in whole blocks. The last
  token of a prompt is always processed: the first token of the answer comes out of it.
- What stays held is a serving rule: the prompt, the prompt and what was generated, or nothing.
  The last generated token was never fed back, so it is not held.
- What was held behind the first difference is lost. Tokens of it that stand in the prompt again are
  processed anew: they are the rebuilt ones. The rest is new. read + rebuilt + new = input, always.

llama.cpp's server obeys it with equality (rule prompt+generated, block 1): with P prompt and G
generated tokens, C(k+1) = P(k) + G(k) - 1 where the history is kept, C(k+1) = P(k) where the last
step's reasoning went.

No clock is known here: a rule's `ttl` has no say, nothing held is taken to have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proxy.core.contract import CacheRule, Reuse

BRANCHES = 8
"""Rows worth a look: a later one begins with nearly all of an earlier one of its conversation."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A row of tokens. Of two segments with one key the shorter is the beginning of the longer. One
    without tokens is a border: behind another model, or other parameters, nothing is shared.
    """

    key: bytes
    tokens: int


Segments = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """The input tokens of one request: read from the cache, held once and processed anew, new."""

    read: int
    rebuilt: int
    new: int

    @property
    def input(self) -> int:
        return self.read + self.rebuilt + self.new

    @property
    def uncached(self) -> int:
        return self.rebuilt + self.new


def size(segments: Iterable[Segment]) -> int:
    """Tokens."""
    return sum(segment.tokens for segment in segments)


def held(rule: CacheRule, prompt: Segments, generated: Segments, whole: bool = False) -> Segments:
    """What stays when a request is over. With `whole` the last generated token stays too: its
    state, computed by the next request that holds it, is booked with the one that generated it.
    """
    if rule.reuse is Reuse.NONE:
        return ()
    fed = generated if whole else _fed_back(generated)
    kept = prompt if rule.reuse is Reuse.PROMPT else (*prompt, *fed)
    return kept if size(kept) >= rule.minimum else ()


def _fed_back(generated: Segments) -> Segments:
    """All but the last token."""
    filled = tuple(segment for segment in generated if segment.tokens)
    if not filled:
        return ()
    last = replace(filled[-1], tokens=filled[-1].tokens - 1)
    return filled[:-1] if last.tokens == 0 else (*filled[:-1], last)


def split(rule: CacheRule, rows: Sequence[Segments], prompt: Segments) -> Split:
    """How a prompt is served. `rows` are what is held, oldest first.

    The row that it shares most with counts, the youngest of several.
    """
    best = max(reversed(rows), key=lambda row: _common(row, prompt)[1], default=())
    index, common = _common(best, prompt)
    total = size(prompt)
    read = min(common, max(total - 1, 0)) // rule.block * rule.block
    if read < rule.minimum:
        read = 0
    rebuilt = common - read + _again(best[index:], prompt[index:])
    return Split(read, rebuilt, total - read - rebuilt)


def _common(row: Segments, prompt: Segments) -> tuple[int, int]:
    """How many leading segments both have, and how many leading tokens."""
    tokens = 0
    for index, (a, b) in enumerate(zip(row, prompt, strict=False)):
        if a.key != b.key:
            return index, tokens
        tokens += min(a.tokens, b.tokens)
        if a.tokens != b.tokens:
            return index + 1, tokens
    return min(len(row), len(prompt)), tokens


def _again(lost: Sequence[Segment], wanted: Sequence[Segment]) -> int:
    """Tokens of `wanted` that stand in `lost` too, each lost segment used once."""
    left: dict[bytes, list[int]] = {}
    for segment in lost:
        left.setdefault(segment.key, []).append(segment.tokens)
    return sum(min(s.tokens, left[s.key].pop(0)) for s in wanted if left.get(s.key))


def replayed(
    rule: CacheRule, served: Sequence[tuple[Segments, Segments]], whole: bool = False
) -> tuple[Split, ...]:
    """How each request of a conversation is served; a request is a prompt and what it generated.
    `whole` is that of `held`.
    """
    rows = [held(rule, *request, whole) for request in served]
    return tuple(
        split(rule, rows[max(0, index - BRANCHES) : index], prompt)
        for index, (prompt, _) in enumerate(served)
    )


# A rule in a word


def written(rule: CacheRule) -> str:
    """As people write it: `prompt`, `prompt+generated:64`, `prompt:128:1024`."""
    if rule.minimum:
        return f"{rule.reuse.value}:{rule.block}:{rule.minimum}"
    return rule.reuse.value if rule.block == 1 else f"{rule.reuse.value}:{rule.block}"


def parse(text: str) -> CacheRule:
    """Read `reuse[:block[:minimum]]`; ValueError says what came and what is wanted."""
    reuse, *numbers = text.strip().split(":")
    known = {it.value: it for it in Reuse}
    if reuse not in known or len(numbers) > 2 or not all(map(_is_size, numbers)):
        raise ValueError(
            f"cache rule {text[:40]!r}: wanted {', '.join(known)}, then if wanted the block and "
            "the minimum in tokens, as in prompt:128:1024"
        )
    block, minimum = (*map(int, numbers), *(1, 0)[len(numbers) :])
    if block == 0:
        raise ValueError(f"cache rule {text[:40]!r}: a block has 1 token or more")
    return CacheRule(known[reuse], block, minimum)


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7
