"""Counts a session under one policy: what each cache rule would have served of every prompt.

Of the last requests only those are laid beside a prompt that could serve most of it: the ones with
the longest common beginning, and those that it extends as a whole, since what was generated may
come on top. What all of these have in common with the prompt is then as good as one segment. So a
request costs what is new in it, not its whole history, and the numbers are those of
`core.cachemodel.replayed`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from proxy.core.cachemodel import BRANCHES, Segment, Segments, Split, held, size, split
from proxy.core.contract import CacheRule, Reuse
from proxy.core.operations import Work, work
from proxy.core.sent import Element
from proxy.core.turn import Sealed
from proxy.core.usage import Usage
from proxy.replay.plan import Paid, Priced, bill, paid
from proxy.replay.rows import Served, Under
from proxy.replay.sizes import Sizes

Request = tuple[Segments, Segments]
"""A prompt and what it generated."""
Generated = Callable[[], Segments]
"""What a request generated: it may be known only when the next one echoes it."""


class Past:
    """The last requests, with how many segments each has in common with the latest prompt."""

    def __init__(self, narrow: bool) -> None:
        self._narrow = narrow
        self._requests: deque[Request] = deque(maxlen=BRANCHES)
        self._shared: deque[int] = deque(maxlen=BRANCHES)
        self._last: Segments = ()

    def add(self, prompt: Segments, generated: Segments) -> None:
        """A request that is over; its prompt was the last that was laid beside the others."""
        self._requests.append((prompt, generated))
        self._shared.append(len(prompt))

    def beside(self, prompt: Segments) -> tuple[Sequence[Request], Segments]:
        """What could serve a prompt, and the prompt, with what they begin with as one segment."""
        self._compare(prompt)
        if not self._narrow or not self._requests:
            return self._requests, prompt
        most = max(self._shared)
        near = [
            (request, shared)
            for request, shared in zip(self._requests, self._shared, strict=True)
            if shared == most or _reaches(request, shared, most)
        ]
        base = min(shared for _, shared in near)
        begun = Segment(b"", size(prompt[:base]))
        rows = [((begun, *before[base:]), generated) for (before, generated), _ in near]
        return rows, (begun, *prompt[base:])

    def _compare(self, prompt: Segments) -> None:
        """Where two prompts part from a third at different places, they part from each other at
        the first of these.
        """
        at = first_difference(self._last, prompt)
        for index, shared in enumerate(self._shared):
            if shared > at:
                self._shared[index] = at
            elif shared == at:
                more = self._requests[index][0][at:]
                self._shared[index] = at + first_difference(more, prompt[at:])
        self._last = prompt


def _reaches(request: Request, shared: int, most: int) -> bool:
    """Whether a prompt begins with all of an earlier one, and what that generated goes on beyond
    the longest common beginning.
    """
    before, generated = request
    return shared == len(before) and shared + len(generated) > most


def first_difference(a: Segments, b: Segments) -> int:
    """The first place at which two rows differ; the shorter length where none does."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high) // 2
        if a[low : middle + 1] == b[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


class Course:
    """A session under one policy, counted under every cache rule."""

    def __init__(self, caches: Sequence[CacheRule], prices: Sequence[Priced]) -> None:
        self._counts = [_Count(rule, prices) for rule in caches]
        # A row that is too short to be held must not stand in the way of a longer one.
        self._past = Past(not any(rule.minimum for rule in caches))
        self._elements: tuple[Element, ...] = ()
        self._prompt: Segments = ()
        self._pending: Generated | None = None
        self._input = self._dropped = 0
        self._breaks: Counter[str] = Counter()

    def take(
        self, sealed: Sealed, kept: Iterable[Element], sizes: Sizes, recorded: Usage | None,
        output: int, generated: Generated,
    ) -> None:  # fmt: skip
        """One request. `kept` is what it would be with nothing dropped, `recorded` what it used
        where it was recorded under this very policy.
        """
        if self._pending:
            self._past.add(self._prompt, self._pending())
        self._prompt = self._rendered(sealed.elements, sizes)
        rows, prompt = self._past.beside(self._prompt)
        self._input += size(prompt)
        if sealed.dropped:
            self._dropped += _gone(sealed.elements, kept, sizes)
        if sealed.finding.is_break:
            self._breaks[sealed.finding.cause.value] += 1
        for count in self._counts:
            count.take(rows, prompt, output, recorded)
        self._elements, self._pending = sealed.elements, generated

    def _rendered(self, elements: tuple[Element, ...], sizes: Sizes) -> Segments:
        grew = elements[: len(self._elements)] == self._elements
        before, at = (self._prompt, len(self._elements)) if grew else ((), 0)
        return before + tuple([row for e in elements[at:] for row in sizes.segments(e)])

    def under(self) -> Under:
        served = tuple([count.served() for count in self._counts])
        return Under(self._input, self._dropped, dict(self._breaks), served)


def _gone(left: Iterable[Element], came: Iterable[Element], sizes: Sizes) -> int:
    """Tokens of reasoning that came and did not leave."""
    pairs = zip(left, came, strict=True)
    return sum(size(sizes.segments(b)) - size(sizes.segments(a)) for a, b in pairs if a is not b)


@dataclass(slots=True)
class _Count:
    """A session under one policy and one cache rule."""

    rule: CacheRule
    prices: Sequence[Priced]
    split: Split = Split(0, 0, 0)
    work: Work = Work()
    paid: Paid = Paid()
    tiered: defaultdict[int, Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    compared: int = 0
    exact: int = 0
    foretold: int = 0
    recorded: int = 0

    def take(
        self, past: Sequence[Request], prompt: Segments, output: int, recorded: Usage | None
    ) -> None:
        it = self._split(past, prompt, False)
        if recorded is not None and recorded.cache_read is not None and past:
            self.compared += 1
            self.exact += it.read == recorded.cache_read
            self.foretold += it.read
            self.recorded += recorded.cache_read
        self.split = Split(
            self.split.read + it.read, self.split.rebuilt + it.rebuilt, self.split.new + it.new
        )
        self.work += work(self._kept(past, prompt, it).read, it.input, output)
        tokens = paid(self.rule, it, output)
        self.paid += tokens
        for at, priced in enumerate(self.prices):
            if not priced.flat:
                self.tiered[at] += bill(tokens, priced.sheet(it.input))

    def _split(self, past: Sequence[Request], prompt: Segments, whole: bool) -> Split:
        return split(self.rule, [held(self.rule, *request, whole) for request in past], prompt)

    def _kept(self, past: Sequence[Request], prompt: Segments, it: Split) -> Split:
        """As operations are booked, the last generated token is held too (`core.operations`)."""
        whole = self.rule.reuse is Reuse.GENERATED
        return self._split(past, prompt, True) if whole else it

    def served(self) -> Served:
        it = self.split
        return Served(
            it.read, it.rebuilt, it.new, self.work.new, self.work.pairs,
            tuple([self._bill(at, priced) for at, priced in enumerate(self.prices)]),
            self.compared, self.exact, self.foretold, self.recorded,
        )  # fmt: skip

    def _bill(self, at: int, priced: Priced) -> Decimal:
        return bill(self.paid, priced.sheet(0)) if priced.flat else self.tiered[at]
