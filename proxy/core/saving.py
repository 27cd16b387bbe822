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

from proxy.core.contract import CacheRule, UserTurn
from proxy.core.served import FRAME, PROMPTS, Cache, last_user
from proxy.core.thought import Gone, Sides
from proxy.core.usage import Usage


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
    rendered = _rendered(sides, gone, user_turn)
    return _Kept(sides, rule or PROMPTS, usage.input, rendered).both(usage)


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
        now, then = last_user(sides.sent), last_user(last)
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


class _Kept(Cache):
    """The other prompt is that of `keep`, whose last request was kept as well."""

    def __init__(self, sides: Sides, rule: CacheRule, sent_total: int, rendered: _Rendered) -> None:
        total = max(sent_total, sent_total + round(sum(rendered.now)))
        super().__init__(
            sides.sent, sides.last, sides.intact, rule, sent_total, total, rendered.hidden
        )
        self._kept, self._more = sides.kept, rendered

    def other(self) -> int | None:
        known, more, common = self._known, self._more, self._other_common()
        thought = round(more.now[known]) if known < len(more.now) else 0
        echo = self._echoed(self._kept, thought)
        return self._served(common, round(sum(more.then[:common])), echo, self.total)

    def _other_common(self) -> int:
        pairs = enumerate(zip(self._elements, self._kept, strict=True))
        ours = () if self._intact else {at for at, (sent, kept) in pairs if sent is not kept}
        return self._shown(self._kept, self._alike(ours))

    def _place(self, read: int) -> int:
        """Behind the reasoning of every element whose text had begun there, by size."""
        more = 0.0
        for element, start, scale, each in zip(
            self._elements, *self._positions(), self._more.now, strict=True
        ):
            more += each if start + min(FRAME, element.size) * scale < read else 0
        return self._in_blocks(read + round(more), read)
