"""What a prompt cache serves of two prompts that differ in reasoning alone: of the one that left,
and of another that could have. `saving` and `shadow` say which other one.

Positions are in tokens. The end of the last request is a place that is known, where this one
extends it; all others follow from the sizes of the elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from itertools import accumulate

import msgspec

from proxy.core.contract import CacheRule, Reuse
from proxy.core.sent import Element, Part, Sent
from proxy.core.usage import Usage

PROMPTS = CacheRule(Reuse.PROMPT)
"""Where no rule is known the cache is taken to hold prompts: what most providers do."""

FRAME = 32
"""Bytes of an element that templates put before its reasoning: tags and the role."""


class Cache(ABC):
    """What its rule serves of both prompts. `sent_total` and `total` are the tokens of the one that
    left and of the other; `last` is the request that the one that left was compared with, `intact`
    says that it extends or repeats that one. `hidden` are the elements from the first to the last
    whose reasoning the last prompt showed and this one does not, since a user spoke.
    """

    def __init__(
        self, elements: Sequence[Element], last: Sent | None, intact: bool, rule: CacheRule,
        sent_total: int, total: int, hidden: range,
    ) -> None:  # fmt: skip
        self._elements, self._last, self._intact = elements, last, intact
        self._rule, self._sent_total, self.total = rule, sent_total, total
        self._hidden = hidden
        self._was: Sequence[Element] = last.elements if last else ()
        self._known = len(self._was)

    @abstractmethod
    def other(self) -> int | None:
        """What should have been read of the other prompt, after the other one of the last request;
        None where that cannot be told.
        """

    @abstractmethod
    def _other_common(self) -> int:
        """How many elements that one and the other prompt begin with, as the template has them."""

    @abstractmethod
    def _place(self, read: int) -> int:
        """Where the other prompt is when the one that left is at `read`."""

    def sent(self) -> int | None:
        """What should have been read of the prompt that left; None where that cannot be told."""
        echo = self._echoed(self._elements, 0)
        return self._served(self._sent_common(), 0, echo, self._sent_total)

    def both(self, usage: Usage) -> tuple[Usage, Usage]:
        """What was used, and what the other prompt would have used, to be priced alike. Where reads
        are not reported, both have the modelled ones.
        """
        if usage.cache_read is None:
            usage = with_read(usage, self.sent() or 0)
            return usage, reckoned(usage, self.total, self.other() or 0)
        return usage, reckoned(usage, self.total, self.read(usage.cache_read))

    def read(self, read: int) -> int:
        """What would have been read of the other prompt, where the provider reports `read`."""
        usual, modelled = self.sent(), self.other()
        if modelled is not None and read == usual:
            return modelled
        there = self._place(read)
        if modelled is None or usual is None:
            return there
        if read < usual:
            return min(modelled, there)
        # Where the other prompt alone would have been broken, the rule decides.
        whole = self._other_common() >= self._sent_common()
        return max(modelled, there) if whole else modelled

    def _sent_common(self) -> int:
        return self._shown(self._elements, self._alike())

    def _shown(self, elements: Sequence[Element], common: int) -> int:
        """How many elements begin alike as the template renders them."""
        return next((at for at in self._hidden if at < common and elements[at].reasoning), common)

    def _alike(self, ours: Container[int] = ()) -> int:
        """How many elements the last request and this one begin with; reasoning is no difference in
        `ours`, where we took it out ourselves.
        """
        if self._intact:
            return self._known
        differ = (
            at
            for at, (was, now) in enumerate(zip(self._was, self._elements, strict=False))
            if was.digest != now.digest and (at not in ours or was.said != now.said)
        )
        return next(differ, min(self._known, len(self._elements)))

    def _echoed(self, elements: Sequence[Element], thought: int) -> int:
        """Generated tokens that follow the last request as they were generated: all but the last
        one, which was never fed back; where a client altered the rest, the reasoning alone.
        """
        last, at = self._last, self._known
        if last is None or self._rule.reuse is not Reuse.GENERATED or at >= len(elements):
            return 0
        if last.reply and elements[at].digest == last.reply and last.output_tokens:
            return last.output_tokens - 1
        return thought

    def _served(self, common: int, more: int, echo: int, total: int) -> int | None:
        """What the rule serves of `total` tokens: up to where two prompts begin alike, in whole
        blocks. `more` tokens of that are reasoning that the last prompt which left had not.
        """
        rule, last = self._rule, self._last
        if rule.reuse is Reuse.NONE:
            return 0
        if last is None or last.prompt_tokens is None:
            return None
        tokens = last.prompt_tokens + echo
        if common < self._known:
            tokens = self._begun(common, last.prompt_tokens)
        tokens = max(0, min(tokens + more, total - 1)) // rule.block * rule.block
        return 0 if tokens < rule.minimum else tokens

    def _begun(self, common: int, tokens: int) -> int:
        """Where an element begins of the last request, which had so many tokens."""
        whole = sum(element.size for element in self._was)
        begun = sum(element.size for element in self._was[:common])
        return round(tokens * begun / whole) if whole else 0

    def _positions(self) -> tuple[list[float], list[float]]:
        """Where each element that left begins, and its tokens a byte."""
        sizes, last = [element.size for element in self._elements], self._last
        known, begun = 0, 0
        if self._intact and last is not None and last.prompt_tokens is not None:
            known, begun = self._known, min(last.prompt_tokens, self._sent_total)
        old = begun / max(1, sum(sizes[:known]))
        new = (self._sent_total - begun) / max(1, sum(sizes[known:]))
        scales = [old if at < known else new for at in range(len(sizes))]
        tokens = (size * scale for size, scale in zip(sizes, scales, strict=True))
        return list(accumulate(tokens, initial=0.0))[:-1], scales

    def _in_blocks(self, tokens: int, read: int) -> int:
        """So many tokens, in whole blocks where what was read is."""
        block = self._rule.block if read % self._rule.block == 0 else 1
        return tokens // block * block


def with_read(usage: Usage, read: int) -> Usage:
    """What was used, had so many tokens been read of the cache."""
    return msgspec.structs.replace(usage, cache_read=read, cache_write=None, cache_write_1h=None)


def reckoned(used: Usage, total: int, read: int) -> Usage:
    """What another prompt would have used, of `total` tokens, `read` of them from the cache.

    Tokens that are not read are written to the cache where this exchange wrote to it, else they are
    plain input.
    """
    read = max(0, min(read, total - 1))
    more = (total - read) - ((used.input or 0) - (used.cache_read or 0))
    written = max(0, min(used.cache_write + more, total - read)) if used.cache_write else 0
    hour = used.cache_write_1h or 0
    return Usage(
        input=total,
        cache_read=read,
        cache_write=written,
        cache_write_1h=written if hour == used.cache_write else min(hour, written),
        output=used.output,
        reasoning=used.reasoning,
    )


def last_user(elements: Sequence[Element]) -> int:
    """The index of the last user message; -1 where there is none."""
    found = (
        at
        for at in range(len(elements) - 1, -1, -1)
        if elements[at].part is Part.MESSAGE and elements[at].role == "user"
    )
    return next(found, -1)
