"""Cuts a history into steps: one assistant message and what answers it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.fingerprint import Message

_RESULT_ROLES = frozenset({"tool", "function"})


class Step(msgspec.Struct, frozen=True, gc=False):
    """`messages[first]` is the assistant's, `messages[first + 1 : end]` answer it.

    It is complete when the results of all its calls stand in the history; without calls, when a
    message follows. There it ends: a complete step is never changed by what comes after it, not
    even by one more result. An assistant message that follows another answers nothing: it opens a
    step of its own.
    """

    first: int
    end: int
    complete: bool


def cut(messages: Sequence[Message], known: Sequence[Step] = ()) -> tuple[Step, ...]:
    """The steps of a history, oldest first. `known` are those of one that this one extends."""
    settled = known[:-1]
    start = known[-1].first if known else 0
    spoken = [at for at in range(start, len(messages)) if messages[at].role == "assistant"]
    return (*settled, *[_step(messages, at) for at in spoken])


def _step(messages: Sequence[Message], at: int) -> Step:
    calls = messages[at].calls
    end = at + 1
    if not calls:
        if end < len(messages) and messages[end].role != "assistant":
            return Step(at, end + 1, True)
        return Step(at, end, end < len(messages))
    open_ids, missing = set(filter(None, calls)), len(calls)
    while end < len(messages) and messages[end].role in _RESULT_ROLES and (open_ids or missing > 0):
        open_ids.discard(messages[end].answers)
        missing -= 1
        end += 1
    return Step(at, end, not open_ids and missing <= 0)
