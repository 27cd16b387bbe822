"""What another policy would have made of an exchange that was sent with its reasoning (policy
`observe`): the way to look before one leaps.

A shadow is *mechanical*: it holds the continuation fixed, and asks what this very exchange would
have used had that policy been in force from the conversation's beginning. What left and what the
shadow would have sent differ in reasoning alone (`shade`), so its prompt is the provider's own
count less that reasoning. What of it would have been read from the cache follows from the cache
rule over the shadow's last prompt: an append-only policy's prompt begins with all of that one; a
retroactive one parts from it where a step has just left its window. Where the cache holds what was
generated, it holds the reply too, but behind its reasoning: only where that stays is it read.

What the provider reports comes first, as in `saving`: where it read less than the rule promises the
shadow would have been read no further than to the same place, where it read more at least to there.
What a model's template leaves out at a new user message is in neither prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate

import msgspec

from proxy.core.contract import CacheRule, Reuse, UserTurn
from proxy.core.saving import FRAME, PROMPTS, reckoned, with_read
from proxy.core.sent import Element, Part, Shadowed
from proxy.core.shade import Gone, Left
from proxy.core.usage import Usage


class Shadow(msgspec.Struct, frozen=True):
    """What one policy would have made of an exchange.

    `fresh` counts its new verdicts by name, `dropped` the steps whose reasoning it would not have
    sent; `record` has the tokens of that, and goes on to the next request. `usage` is what it would
    have used, and `sent` what was used, to be priced alike; None where the provider reported no
    input. `saving` is in dollars: what left cost more by that; a loss is negative. None without a
    price.
    """

    record: Shadowed
    fresh: Mapping[str, int]
    dropped: int
    sent: Usage | None = None
    usage: Usage | None = None
    cost: Decimal | None = None
    saving: Decimal | None = None

    @property
    def policy(self) -> str:
        return self.record.policy


def used(
    left: Left, found: Gone, usage: Usage, rule: CacheRule | None, user_turn: UserTurn
) -> tuple[Usage, Usage] | None:
    """What the exchange used, and what the shadow would have used, to be priced alike; None where
    its input is not known. Where reads are not reported, both have the modelled ones.
    """
    if usage.input is None:
        return None
    cache = _Cache(left, rule or PROMPTS, usage.input, _rendered(left, found, user_turn))
    if usage.cache_read is None:
        usage = with_read(usage, cache.sent() or 0)
        return usage, reckoned(usage, cache.total, cache.shadow() or 0)
    return usage, reckoned(usage, cache.total, cache.read(usage.cache_read))


@dataclass(frozen=True, slots=True)
class _Rendered:
    """What templates render: tokens by element that the shadow has less, in this prompt and in the
    last one; where those begin that the last one had; and the elements from the first to the last
    whose reasoning the last prompt showed and this one does not, since a user spoke.
    """

    now: Mapping[int, float]
    then: Mapping[int, float]
    starts: Mapping[int, int]
    hidden: range


def _rendered(left: Left, found: Gone, user_turn: UserTurn) -> _Rendered:
    if user_turn is UserTurn.KEEPS:
        return _Rendered(found.now, found.then, found.starts, range(0))
    now = _last_user(left.elements)
    then = _last_user(left.last.elements if left.last else ())
    return _Rendered(
        {place: tokens for place, tokens in found.now.items() if place > now},
        {place: tokens for place, tokens in found.then.items() if place > then},
        found.starts,
        range(then + 1, now),
    )


def _last_user(elements: Sequence[Element]) -> int:
    places = range(len(elements) - 1, -1, -1)
    spoken = (at for at in places if elements[at].part is Part.MESSAGE)
    return next((at for at in spoken if elements[at].role == "user"), -1)


class _Cache:
    """What its rule serves of both prompts. Positions in tokens."""

    def __init__(self, left: Left, rule: CacheRule, sent: int, less: _Rendered) -> None:
        self._left, self._rule, self._less, self._sent = left, rule, less, sent
        self._was = left.last.elements if left.last else ()
        self.total = max(0, sent - round(sum(less.now.values())))

    def sent(self) -> int | None:
        """What should have been read of the prompt that left; None where that cannot be told."""
        return self._served(self._common(), 0, self._echoed(), self._sent)

    def shadow(self) -> int | None:
        """The same of the shadow's prompt, after the shadow's last one."""
        common, then = self._common_shadow(), self._less.then
        less = round(sum(tokens for place, tokens in then.items() if place < common))
        echo = 0 if self._left.known in self._less.now else self._echoed()
        return self._served(common, less, echo, self.total)

    def read(self, read: int) -> int:
        """What would have been read of the shadow's prompt, where the provider reports `read`."""
        usual, modelled = self.sent(), self.shadow()
        if modelled is not None and read == usual:
            return modelled
        there = self._place(read)
        if modelled is None or usual is None:
            return there
        if read < usual:
            return min(modelled, there)
        # Where the shadow's prompt alone would have been broken, the rule decides.
        whole = self._common_shadow() >= self._common()
        return max(modelled, there) if whole else modelled

    def _common(self) -> int:
        """How many elements the last request and this one begin with, as the template has them."""
        now, hidden = self._left.elements, self._less.hidden
        common = self._left.known if self._left.intact else self._first_changed(frozenset())
        return next((at for at in hidden if at < common and now[at].reasoning), common)

    def _common_shadow(self) -> int:
        """The same of the shadow's: what it leaves out of both does not part them, what it leaves
        out of one does.
        """
        now, then = self._less.now.keys(), self._less.then.keys()
        both = frozenset(now & then)
        common = self._left.known if self._left.intact else self._first_changed(both)
        hidden = self._less.hidden
        shown = (at for at in hidden if self._left.elements[at].reasoning and at not in then)
        return min((*shown, *(now - then), common))

    def _first_changed(self, both: frozenset[int]) -> int:
        rows = enumerate(zip(self._was, self._left.elements, strict=False))
        differ = (
            at
            for at, (was, now) in rows
            if was.digest != now.digest and (at not in both or was.said != now.said)
        )
        return next(differ, min(len(self._was), len(self._left.elements)))

    def _echoed(self) -> int:
        """Generated tokens that follow the last request as they were generated: all but the last
        one, which was never fed back.
        """
        last, at, now = self._left.last, self._left.known, self._left.elements
        if last is None or self._rule.reuse is not Reuse.GENERATED or at >= len(now):
            return 0
        echoes = bool(last.reply) and now[at].digest == last.reply
        return last.output_tokens - 1 if echoes and last.output_tokens else 0

    def _served(self, common: int, less: int, echo: int, total: int) -> int | None:
        """What the rule serves of `total` tokens: up to where two prompts begin alike, in whole
        blocks. Of that `less` tokens are reasoning that the shadow has not.
        """
        rule, last = self._rule, self._left.last
        if rule.reuse is Reuse.NONE:
            return 0
        if last is None or last.prompt_tokens is None:
            return None
        tokens = last.prompt_tokens + echo
        if common < self._left.known and common in self._less.starts:
            tokens = self._less.starts[common]
        elif common < self._left.known:
            whole = sum(element.size for element in self._was)
            begun = sum(element.size for element in self._was[:common])
            tokens = round(last.prompt_tokens * begun / whole) if whole else 0
        tokens = max(0, min(tokens - less, total - 1)) // rule.block * rule.block
        return 0 if tokens < rule.minimum else tokens

    def _place(self, read: int) -> int:
        """Where the shadow's prompt is when the one that left is at `read`; no further than to
        where they part for the first time.
        """
        less, known, end = 0.0, self._left.known, read
        for place, start, frame in self._starts():
            if start + frame >= read:
                break
            if place >= known:
                end = round(start)
                break
            less += self._less.now[place]
        block = self._rule.block if read % self._rule.block == 0 else 1
        return max(0, end - round(less)) // block * block

    def _starts(self) -> list[tuple[int, float, float]]:
        """Where each element begins that the shadow has less of, and what comes in it before its
        reasoning. The end of the last request is a place that is known, where this one extends it.
        """
        sizes, last = [element.size for element in self._left.elements], self._left.last
        known, begun = 0, 0
        if self._left.intact and last is not None and last.prompt_tokens is not None:
            known, begun = self._left.known, min(last.prompt_tokens, self._sent)
        old = begun / max(1, sum(sizes[:known]))
        new = (self._sent - begun) / max(1, sum(sizes[known:]))
        scales = [old if at < known else new for at in range(len(sizes))]
        tokens = (size * scale for size, scale in zip(sizes, scales, strict=True))
        starts = list(accumulate(tokens, initial=0.0))
        return [
            (at, starts[at], min(FRAME, sizes[at]) * scales[at]) for at in sorted(self._less.now)
        ]
