"""What a policy that is not in force says of a request, and the tokens that it would leave out of
it: the first half of a shadow (`shadow`).

Its verdicts are taken once, as real ones, and go on with the record of what was sent, together with
the tokens that it would have left out, and those of the latest steps that it may still leave out.
So a shadow needs of the past no more than the last record. Where that has nothing of it, all its
verdicts are derived from the history (law 6), and its tokens estimated.

A shadow never has more than what left: what was dropped under an earlier policy stays dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec.structs import replace

from proxy.core import policy
from proxy.core.contract import Drops
from proxy.core.policy import Policy
from proxy.core.ratio import Ratio, is_whole
from proxy.core.sent import Element, Held, Sent, Shadowed
from proxy.core.thought import Thought
from proxy.core.turn import Turn
from proxy.core.verdict import DROP, KEEP, Kind, Verdict

Verdicts = Mapping[int, Verdict | None]
Say = Callable[[Turn, Callable[[int], bool]], Verdicts]
"""What a policy says of the steps of a request that are not settled, by index."""


@dataclass(frozen=True)
class Left:
    """A request as it left; `last` is the one that it was compared with, and `intact` says that it
    extends or repeats that one.
    """

    turn: Turn
    elements: Sequence[Element]
    last: Sent | None
    intact: bool

    @cached_property
    def front(self) -> int:
        """Elements before the messages."""
        return len(self.elements) - len(self.turn.messages)

    @cached_property
    def known(self) -> int:
        """Elements of the last request."""
        return len(self.last.elements) if self.last else 0

    @cached_property
    def begun(self) -> int:
        """Steps that the last request had, whole or not."""
        return sum(self.front + step.first < self.known for step in self.turn.steps)

    def recorded(self, policy: str) -> Shadowed | None:
        """What the last request tells of a shadow, where this one goes on from there."""
        rows = self.last.shadows if self.last and self.intact else ()
        return next((row for row in rows if row.policy == policy), None)

    def may_go(self, index: int) -> bool:
        """Whether the step's reasoning is there, and can be taken out: it is not signed."""
        message = self.turn.messages[self.turn.steps[index].first]
        left = self.elements[self.place(index)].reasoning
        return left > 0 and (bool(message.edits) or left > message.kept.reasoning)

    def place(self, index: int) -> int:
        """The element of a step that may have reasoning."""
        return self.front + self.turn.steps[index].first

    def places(self, steps: Iterable[int]) -> tuple[int, ...]:
        """The elements of those steps whose reasoning can go."""
        return tuple(map(self.place, filter(self.may_go, sorted(steps))))


class Shade(msgspec.Struct, frozen=True):
    """What a policy says of a request. `steps` are those that it drops, `open` those that it leaves
    undecided; `gone` are the elements whose reasoning it would have left out, `before` those of the
    last request.
    """

    policy: str
    steps: frozenset[int]
    open: frozenset[int]
    gone: tuple[int, ...]
    before: tuple[int, ...]
    fresh: Mapping[str, int]
    record: Shadowed | None


def shade(left: Left, rule: Policy, say: Say, drops: Drops) -> Shade:
    """`drops` is what the contract allows of what the policy says."""
    record = left.recorded(str(rule))
    known = _settled(record, left.begun) if record and rule.append_only else {}
    said = _legal(rule, say(left.turn, known.__contains__), known, drops)
    steps = _dropped(known) | _dropped(said)
    before, fresh = steps, Counter(it.kind.value for it in said.values() if it)
    if not rule.append_only:
        shorter = replace(left.turn, steps=left.turn.steps[: left.begun])
        before = _dropped(_legal(rule, say(shorter, known.__contains__), known, drops))
        fresh = Counter({Kind.DROP.value: len(steps - before)})
    gone, was = left.places(steps), left.places(at for at in before if at < left.begun)
    undecided = frozenset(at for at, it in said.items() if it is None)
    return Shade(str(rule), steps, undecided, gone, was, +fresh, record)


def _settled(record: Shadowed, begun: int) -> dict[int, Verdict]:
    dropped = steps_in(record.steps)
    return {index: DROP if index in dropped else KEEP for index in range(begun)}


def _legal(
    rule: Policy, said: Verdicts, known: Mapping[int, Verdict], drops: Drops
) -> Mapping[int, Verdict | None]:
    if drops is Drops.ANY:
        return said
    stand = [known[at] for at in sorted(known)]
    return {at: it and policy.clamped(drops, rule, it, stand) for at, it in said.items()}


def _dropped(verdicts: Verdicts) -> frozenset[int]:
    return frozenset(at for at, it in verdicts.items() if it and it.kind is Kind.DROP)


def bits_of(steps: Iterable[int]) -> bytes:
    """A bit for each step, that of the first one lowest."""
    bits = sum(1 << index for index in steps)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def steps_in(bits: bytes) -> frozenset[int]:
    found = int.from_bytes(bits, "little")
    return frozenset(index for index in range(found.bit_length()) if found >> index & 1)


# What of it is counted, when the reply is there


@dataclass(frozen=True, slots=True)
class Gone:
    """Tokens of the reasoning that the shadow would not have sent, by element: of this request, of
    the last one, and this one's in sum. `starts` says where reasoning begins that was there until
    now, in tokens of what left, as far as that is known. `held` may still go.
    """

    now: Mapping[int, float]
    then: Mapping[int, float]
    total: Thought
    starts: Mapping[int, int]
    held: tuple[Held, ...]


MOST_HELD = 32
"""Undecided steps whose tokens go on with the record; those of a wider window are estimated."""


def gone(left: Left, it: Shade, ratio: Ratio) -> Gone:
    """As they were counted when they were new; by `ratio` where that is not known."""
    sizes = {place: left.elements[place].reasoning for place in (*it.before, *it.gone)}
    old = _old(it, sum(sizes[place] for place in it.before), ratio)
    then = shared(old.tokens, {place: sizes[place] for place in it.before})
    held = _held(left, it)
    counted = {left.place(one.step): one for one in held}
    fresh = {
        place: Thought(counted[place].tokens)
        if place in counted
        else Thought(ratio.estimated(sizes[place]), True)
        for place in it.gone
        if place not in then
    }
    return Gone(
        {**then, **{place: one.tokens for place, one in fresh.items()}},
        then,
        _sum(old, *fresh.values()),
        {place: counted[place].start for place in fresh if place in counted},
        tuple([one for one in held if one.step in it.open][-MOST_HELD:]),
    )


def _old(it: Shade, size: int, ratio: Ratio) -> Thought:
    """Of what was left out of the last request already, in bytes."""
    if not size:
        return Thought()
    if it.record is None:
        return Thought(ratio.estimated(size), True)
    return Thought(it.record.tokens, it.record.estimated)


def shared(tokens: int, sizes: Mapping[int, int]) -> dict[int, float]:
    """Tokens shared out by sizes."""
    whole = sum(sizes.values())
    return {place: size * tokens / whole for place, size in sizes.items()}


def _sum(*thoughts: Thought) -> Thought:
    estimated = any(one.estimated for one in thoughts)
    return Thought(sum(one.tokens for one in thoughts), estimated)


def _held(left: Left, it: Shade) -> tuple[Held, ...]:
    """The steps whose tokens are known: those that were held, and the reply to the last request,
    which was counted by who made it.
    """
    held, last, index = it.record.held if it.record else (), left.last, left.begun
    echoed = index < len(left.turn.steps) and left.place(index) == left.known
    if last is None or not left.intact or not echoed:
        return held
    counted, size = last.reasoning_tokens, left.elements[left.known].reasoning
    if counted is None or last.prompt_tokens is None or not is_whole(size, counted):
        return held
    return (*held, Held(index, last.prompt_tokens, counted))


def recorded(it: Shade, found: Gone) -> Shadowed:
    """What the next request needs to know."""
    total = found.total
    return Shadowed(it.policy, bits_of(it.steps), total.tokens, total.estimated, found.held)
