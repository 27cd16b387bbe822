"""What forgetting saved of one exchange, or lost: the *mechanical* saving. It holds the
continuation fixed, and asks what this very exchange would have used with its reasoning kept.

The request that left and the one that `keep` would have sent differ in reasoning alone. What of it
would have been read from the cache follows from the cache rule over the kept history: the last
request, kept as well, and what it generated where the cache holds that. Old reasoning would have
been read. That of the latest step would have been read too where generated tokens stay cached, else
it would have been new input. On the other side, a cache that holds what was generated holds the
rest of that step only behind its reasoning: it is processed anew, once, where the reasoning went.
So a saving may be a loss.

What the provider reports comes first. Where it read less than the rule promises (expired, evicted,
another machine), the kept prompt would have been read no further than to the same place; where it
read more, at least to there. Where it reports no reads, both sides are modelled.

What a model's template leaves out at a new user message is in neither prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from proxy.core.contract import CacheRule, Reuse, UserTurn
from proxy.core.sent import Element, Part
from proxy.core.thought import Gone, Sides
from proxy.core.usage import Usage

PROMPTS = CacheRule(Reuse.PROMPT)
"""Where no rule is known the cache is taken to hold prompts: what most providers do."""

FRAME = 32
"""Bytes of an element that templates put before its reasoning: tags and the role."""


def kept(
    usage: Usage,
    sides: Sides,
    gone: Gone,
    rule: CacheRule | None,
    user_turn: UserTurn = UserTurn.KEEPS,
) -> tuple[Usage, Usage] | None:
    """What this exchange used, and what it would have used under `keep`, to be priced alike; None
    where its input is not known. Where reads are not reported, both have the modelled ones.
    """
    if usage.input is None:
        return None
    model = _Model(sides, rule or PROMPTS, usage.input, _rendered(sides, gone, user_turn))
    if usage.cache_read is None:
        usage = with_read(usage, model.sent() or 0)
        return usage, reckoned(usage, model.total, model.kept() or 0)
    return usage, reckoned(usage, model.total, model.kept_read(usage.cache_read))


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


@dataclass(frozen=True, slots=True)
class _Rendered:
    """What templates render: of reasoning that went the tokens that `keep` would have had more, in
    this prompt and in the last one; and the elements from the first to the last whose reasoning the
    last prompt showed and this one does not, since a user spoke.
    """

    now: Sequence[float]
    then: Sequence[float]
    hidden: range


def _rendered(sides: Sides, gone: Gone, user_turn: UserTurn) -> _Rendered:
    last = sides.last.elements if sides.last else ()
    if user_turn is UserTurn.KEEPS:
        if sides.intact:  # what had gone then has gone now: nearly every exchange
            return _Rendered(gone.by_element, gone.by_element[: len(last)], range(0))
        now = then = -1
    else:
        now, then = _last_user(sides.sent), _last_user(last)
    return _Rendered(
        [each if at > now else 0 for at, each in enumerate(gone.by_element)],
        [
            each if at > then and was.digest != kept.digest else 0
            for at, (each, was, kept) in enumerate(
                zip(gone.by_element, last, sides.kept, strict=False)
            )
        ],
        range(then + 1, now),
    )


def _last_user(elements: Sequence[Element]) -> int:
    found = (
        at
        for at in range(len(elements) - 1, -1, -1)
        if elements[at].part is Part.MESSAGE and elements[at].role == "user"
    )
    return next(found, -1)


class _Model:
    """The cache, as its rule says, under both histories. Positions in tokens."""

    def __init__(self, sides: Sides, rule: CacheRule, sent_total: int, rendered: _Rendered) -> None:
        self._sides, self._rule, self._more = sides, rule, rendered
        self._sent_total = sent_total
        self.total = max(sent_total, sent_total + round(sum(rendered.now)))

    @property
    def _sent_common(self) -> int:
        return self._shown(self._sides.sent, _common(self._sides))

    @property
    def _kept_common(self) -> int:
        return self._shown(self._sides.kept, _common_kept(self._sides))

    def sent(self) -> int | None:
        """What should have been read of the prompt that left; None where that cannot be told."""
        echo = self._echoed(self._sides.sent, 0)
        return self._read(self._sent_common, 0, echo, self._sent_total)

    def kept(self) -> int | None:
        """The same of the kept prompt, whose last request was kept as well."""
        known, more, common = self._sides.known, self._more, self._kept_common
        thought = round(more.now[known]) if known < len(more.now) else 0
        echo = self._echoed(self._sides.kept, thought)
        return self._read(common, round(sum(more.then[:common])), echo, self.total)

    def kept_read(self, read: int) -> int:
        """What would have been read under `keep`, where the provider reports `read`."""
        usual, modelled = self.sent(), self.kept()
        if modelled is not None and read == usual:
            return modelled
        there = self._place(read)
        if modelled is None or usual is None:
            return there
        if read < usual:
            return min(modelled, there)
        # Where the kept prompt alone would have been broken, the rule decides.
        return max(modelled, there) if self._kept_common >= self._sent_common else modelled

    def _shown(self, elements: Sequence[Element], common: int) -> int:
        """How many elements begin alike as the template renders them."""
        hidden = self._more.hidden
        return next((at for at in hidden if at < common and elements[at].reasoning), common)

    def _echoed(self, elements: Sequence[Element], thought: int) -> int:
        """Generated tokens that follow the last request as they were generated: all but the last
        one, which was never fed back; where a client altered the rest, the reasoning alone.
        """
        last, at = self._sides.last, self._sides.known
        if last is None or self._rule.reuse is not Reuse.GENERATED or at >= len(elements):
            return 0
        if last.reply and elements[at].digest == last.reply and last.output_tokens:
            return last.output_tokens - 1
        return thought

    def _read(self, common: int, more: int, echo: int, total: int) -> int | None:
        """What the rule serves of `total` tokens: up to where both begin alike, in whole blocks.
        `more` tokens of that are reasoning that the last prompt had not.
        """
        rule, last = self._rule, self._sides.last
        if rule.reuse is Reuse.NONE:
            return 0
        if last is None or last.prompt_tokens is None:
            return None
        tokens = last.prompt_tokens + echo
        if common < self._sides.known:
            size = sum(element.size for element in last.elements)
            begun = sum(element.size for element in last.elements[:common])
            tokens = round(last.prompt_tokens * begun / size) if size else 0
        tokens = max(0, min(tokens + more, total - 1)) // rule.block * rule.block
        return 0 if tokens < rule.minimum else tokens

    def _place(self, read: int) -> int:
        """Where the kept prompt is when the one that left is at `read`: behind the reasoning of
        every element whose text that had begun, by size.
        """
        more = 0.0
        for element, start, scale, each in zip(
            self._sides.sent, *self._positions(), self._more.now, strict=True
        ):
            more += each if start + min(FRAME, element.size) * scale < read else 0
        block = self._rule.block if read % self._rule.block == 0 else 1
        return (read + round(more)) // block * block

    def _positions(self) -> tuple[list[float], list[float]]:
        """Where each element that left begins, and its tokens a byte. The end of the last request
        is a place that is known, where this one extends it.
        """
        sizes, last = [element.size for element in self._sides.sent], self._sides.last
        known, begun = 0, 0
        if self._sides.intact and last is not None and last.prompt_tokens is not None:
            known, begun = self._sides.known, min(last.prompt_tokens, self._sent_total)
        old = begun / max(1, sum(sizes[:known]))
        new = (self._sent_total - begun) / max(1, sum(sizes[known:]))
        scales = [old if at < known else new for at in range(len(sizes))]
        tokens = (size * scale for size, scale in zip(sizes, scales, strict=True))
        return list(accumulate(tokens, initial=0.0))[:-1], scales


def _common(sides: Sides) -> int:
    """How many elements the last request and this one begin with."""
    if sides.intact:
        return sides.known
    last = sides.last.elements if sides.last else ()
    pairs = zip(last, sides.sent, strict=False)
    differ = (at for at, (a, b) in enumerate(pairs) if a.digest != b.digest)
    return next(differ, min(len(last), len(sides.sent)))


def _common_kept(sides: Sides) -> int:
    """The same had both been kept: what we took out ourselves is no difference."""
    if sides.intact:
        return sides.known
    last = sides.last.elements if sides.last else ()
    rows = enumerate(zip(last, sides.sent, sides.kept, strict=False))
    differ = (
        at
        for at, (was, sent, kept) in rows
        if was.digest != sent.digest and (sent is kept or was.said != sent.said)
    )
    return next(differ, min(len(last), len(sides.sent)))
