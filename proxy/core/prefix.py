"""Lays what leaves beside what was last sent, and names the first place where they part.

A and B are rows of elements in prompt order. A provider's cache holds A; it serves B as far as the
two are equal. B that only extends A costs nothing. Everything else is told; where an earlier
element changed, it is a break with a cause from a closed list and the name of who made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from operator import is_

import msgspec
from msgspec.structs import replace

from proxy.core.sent import Element, Part, Sent


class Cause(Enum):
    COLD_START = "cold_start"
    EXTENDED = "extended"
    RETRY = "retry"
    REWIND = "rewind"
    FORK = "fork"
    SIDE_REQUEST = "side_request"
    MODEL_CHANGED = "model_changed"
    PARAMS_CHANGED = "params_changed"
    TOOLS_CHANGED = "tools_changed"
    TOOLS_REORDERED = "tools_reordered"
    SYSTEM_CHANGED = "system_changed"
    MESSAGE_EDITED = "message_edited"
    MESSAGE_INSERTED = "message_inserted"
    MESSAGES_DROPPED = "messages_dropped"
    COMPACTION = "compaction"
    REASONING_STRIPPED = "reasoning_stripped"
    REASONING_CHANGED = "reasoning_changed"
    RESERIALIZED = "reserialized"
    SELF = "self"

    # Members are what they are; Enum's own hash is Python code, and asked for all the time.
    __hash__ = object.__hash__


NOT_BREAKS = frozenset(
    {Cause.COLD_START, Cause.EXTENDED, Cause.RETRY, Cause.REWIND, Cause.FORK, Cause.SIDE_REQUEST}
)
_OF_WHAT_IS_PUT_BACK = frozenset(
    {Cause.REASONING_STRIPPED, Cause.REASONING_CHANGED, Cause.RESERIALIZED}
)
INTACT = frozenset({Cause.EXTENDED, Cause.RETRY})
"""Where a request begins with all of the last one."""


class By(Enum):
    CLIENT = "client"
    PROXY = "proxy"
    PROVIDER = "provider"
    NOBODY = "nobody"


class Finding(msgspec.Struct, frozen=True, gc=False):
    """`element` is the index in prompt order of the first element that differs, None where none
    does.

    `message` is its index in the wire's `messages` (None where it is no message). `stale` is the
    size in bytes of what was cached and has to be read anew: A from that element on, at most what B
    has there. `removed` counts A's elements that are gone.
    """

    cause: Cause
    by: By
    element: int | None = None
    message: int | None = None
    stale: int = 0
    removed: int = 0

    @property
    def is_break(self) -> bool:
        return self.cause not in NOT_BREAKS


Begins = Callable[[int, Element], bool]


def compare(
    last: Sent | None,
    now: Sequence[Element],
    other_forms: Sequence[Element],
    by_hint: bool = False,
    begins: Begins = lambda at, earlier: False,
    tip: Sent | None = None,
) -> tuple[Finding, Sent | None]:
    """What happened to the prefix between `last` and `now`.

    `other_forms` holds, for every element of `now`, the form that the opposite verdict would have
    given it: where what was last sent has that form, the change is our own doing. So it is where we
    had put something back and have lost it, with a store for instance. `begins` tells
    whether the text of an element of `now` begins with an earlier one's. `by_hint` says that
    `last` was found by a session or a tool call, not by the chain. `tip` is what the conversation
    sent last of all, if that is another record: it counts where it went further along with `now`.

    Gives the finding, and the record that it was found against.
    """
    last, tip = _as_ordered(last, now), _as_ordered(tip, now)
    if tip is not None and _counts(tip, last, now, by_hint, begins):
        last, by_hint = tip, False
    return _compare(last, now, other_forms, by_hint, begins), last


def _as_ordered(sent: Sent | None, now: Sequence[Element]) -> Sent | None:
    """The record with tools and system in the order of `now`: which of the two comes first is what
    is known of a provider, and may be learned in between; nothing that was sent is changed by it.
    """
    if sent is None or len(sent.elements) <= _FRONT or len(now) <= _FRONT:
        return sent
    rows, first = sent.elements, now[_FRONT].part
    if {rows[_FRONT].part, first} != _EITHER_FIRST:
        return sent
    tools, system = (_of_part(rows, part) for part in (Part.TOOLS, Part.SYSTEM))
    others = Part.TOOLS if first is Part.SYSTEM else Part.SYSTEM
    if not (tools and system and _of_part(now, others)):
        return sent
    middle = (*system, *tools) if first is Part.SYSTEM else (*tools, *system)
    return replace(sent, elements=(*rows[:_FRONT], *middle, *rows[_FRONT + len(middle) :]))


# Model and parameters come before tools and system.
_FRONT = 2
_EITHER_FIRST = {Part.TOOLS, Part.SYSTEM}


def _of_part(row: Sequence[Element], part: Part) -> tuple[Element, ...]:
    return tuple([element for element in row if element.part is part])


def _counts(
    tip: Sent, last: Sent | None, now: Sequence[Element], by_hint: bool, begins: Begins
) -> bool:
    """Whether what was sent last parted from `now` later than `last` did.

    `last` lies at the end of an earlier request; another one may have gone further the same way and
    then been changed. Where both went equally far, that is so if its next message was only begun (a
    reply that was cut off, an error that grew), or if more of it comes back further on.
    """
    at = first_difference(tip.elements, now)
    if at >= min(len(now), len(tip.elements)) or now[at].part is not Part.MESSAGE:
        return last is None and at >= len(tip.elements)
    if last is None or by_hint:
        return _shares_a_message(tip.elements, now)
    if at == len(last.elements):
        return begins(at, tip.elements[at]) or _shares_a_message(tip.elements[at:], now[at:])
    return at > len(last.elements)


def _compare(
    last: Sent | None,
    now: Sequence[Element],
    other_forms: Sequence[Element],
    by_hint: bool,
    begins: Begins,
) -> Finding:
    if last is None:
        return Finding(Cause.COLD_START, By.NOBODY)
    was = last.elements
    if by_hint and (not _shares_a_message(was, now) or _other_agent(was, now)):
        return _unlike(was, now)
    at = first_difference(was, now)
    if at == len(was):
        return Finding(Cause.RETRY if at == len(now) else Cause.EXTENDED, By.NOBODY)
    if at == len(now):
        return Finding(Cause.REWIND, By.CLIENT, removed=len(was) - at)
    cause, removed, by = *_cause(was, now, at, begins), By.CLIENT
    lost = cause in _OF_WHAT_IS_PUT_BACK and was[at].put_back and not now[at].put_back
    if lost or was[at].digest == other_forms[at].digest:
        cause, by = Cause.SELF, By.PROXY
    if cause in NOT_BREAKS:
        return Finding(cause, by, at, _message_index(now, at), removed=removed)
    stale = min(sum(element.size for element in row[at:]) for row in (was, now))
    return Finding(cause, by, at, _message_index(now, at), stale, removed)


def first_difference(was: Sequence[Element], now: Sequence[Element]) -> int:
    """The first index at which the two are not the same; the shorter length where none is."""
    # Nearly all of two turns in a row are the very same objects.
    same = [*map(is_, was, now), False]
    at = same.index(False)
    while at < len(same) - 1 and was[at].digest == now[at].digest:
        at = same.index(False, at + 1)
    return at


def _message_index(now: Sequence[Element], at: int) -> int | None:
    if now[at].part not in (Part.MESSAGE, Part.SYSTEM):
        return None
    return sum(1 for e in now[:at] if e.part in (Part.MESSAGE, Part.SYSTEM))


def _shares_a_message(was: Sequence[Element], now: Sequence[Element]) -> bool:
    said = {e.said for e in was if e.part is Part.MESSAGE}
    return any(e.said in said for e in now if e.part is Part.MESSAGE)


def _other_agent(was: Sequence[Element], now: Sequence[Element]) -> bool:
    """Whether one alone has tools and the system prompts differ: a title, a summary, a memory."""
    return bool(_of(was, Part.TOOLS)) is not bool(_of(now, Part.TOOLS)) and (
        _of(was, Part.SYSTEM) != _of(now, Part.SYSTEM)
    )


def _of(row: Sequence[Element], part: Part) -> list[bytes]:
    return [element.digest for element in row if element.part is part]


def _unlike(was: Sequence[Element], now: Sequence[Element]) -> Finding:
    """Of one session, without a message in common: another agent, a compaction, a new start."""
    if any(_of(was, part) != _of(now, part) for part in (Part.TOOLS, Part.SYSTEM)):
        if _of(was, Part.TOOLS) and _of(now, Part.TOOLS) != _of(was, Part.TOOLS):
            return Finding(Cause.SIDE_REQUEST, By.CLIENT)
        return Finding(Cause.COLD_START, By.NOBODY)
    gone, put = len(_of(was, Part.MESSAGE)), len(_of(now, Part.MESSAGE))
    if gone < 2 or put >= gone or not _answered(now):
        return Finding(Cause.COLD_START, By.NOBODY)
    at = len(now) - put
    stale = sum(element.size for element in was[at:])
    return Finding(Cause.COMPACTION, By.CLIENT, at, _message_index(now, at), stale, gone)


def _answered(now: Sequence[Element]) -> bool:
    """Whether an assistant has spoken: a summary stands where the history was."""
    return any(element.role == "assistant" for element in now)


def _cause(
    was: Sequence[Element], now: Sequence[Element], at: int, begins: Begins
) -> tuple[Cause, int]:
    if _other_agent(was, now):
        return Cause.SIDE_REQUEST, 0
    match was[at].part, now[at].part:
        case (Part.MODEL, _) | (_, Part.MODEL):
            return Cause.MODEL_CHANGED, 0
        case (Part.PARAMS, _) | (_, Part.PARAMS):
            return Cause.PARAMS_CHANGED, 0
        case (Part.TOOLS, Part.TOOLS) if was[at].gist == now[at].gist:
            return Cause.TOOLS_REORDERED, 0
        case (Part.TOOLS, _) | (_, Part.TOOLS):
            return Cause.TOOLS_CHANGED, 0
        case (Part.SYSTEM, _) | (_, Part.SYSTEM):
            return Cause.SYSTEM_CHANGED, 0
        case _:
            return _message_cause(was[at:], now[at:], begins(at, was[at]))


def _message_cause(
    was: Sequence[Element], now: Sequence[Element], longer: bool
) -> tuple[Cause, int]:
    """Both begin with a message, and the two messages differ."""
    if was[0].said == now[0].said:
        stripped = was[0].reasoning and not now[0].reasoning
        return (Cause.REASONING_STRIPPED if stripped else Cause.REASONING_CHANGED), 0
    if was[0].gist == now[0].gist:
        return Cause.RESERIALIZED, 0
    old, new = _places(was), _places(now)
    if was[0].said in new:
        return Cause.MESSAGE_INSERTED, 0
    if now[0].said in old:
        return Cause.MESSAGES_DROPPED, old[now[0].said]
    gone = next((at for at, e in enumerate(was) if e.said in new), len(was))
    put = new[was[gone].said] if gone < len(was) else len(now)
    if gone == len(was) and _asked_anew(now) and not longer:
        return Cause.FORK, gone
    if gone >= 2 and put < gone:
        return Cause.COMPACTION, gone
    return Cause.MESSAGE_EDITED, gone


def _places(row: Sequence[Element]) -> dict[bytes, int]:
    """Where each message stands first."""
    return {row[at].said: at for at in range(len(row) - 1, -1, -1)}


def _asked_anew(now: Sequence[Element]) -> bool:
    """Whether a user speaks here, and nobody has answered yet."""
    return now[0].role == "user" and not _answered(now)
