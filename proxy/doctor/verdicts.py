"""What each policy would do to the cache of this upstream, in words."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.contract import Drops, Reuse, UserTurn
from proxy.doctor.findings import Findings

POLICIES = ("keep", "drop", "after_artifact", "keep_latest")
_UNKNOWN = "what it does to the cache is not known, because the cache's rule is not"


@dataclass(frozen=True, slots=True)
class Told:
    policy: str
    words: str


def verdicts(found: Findings) -> tuple[Told, ...]:
    """One for each of `POLICIES`."""
    if found.reads.value == ():
        same = "nothing is read back from the history: every policy sends the same prompt"
        return tuple(Told(name, same) for name in POLICIES)
    if found.drops.value is Drops.NEVER:
        kept = "is refused here: reasoning may not go, so it is clamped to keep"
        return (Told("keep", _keep(found)), *(Told(name, kept) for name in POLICIES[1:]))
    words = (_keep(found), _drop(found), _after_artifact(found), _keep_latest(found))
    return tuple(Told(*pair) for pair in zip(POLICIES, words, strict=True))


def _keep(found: Findings) -> str:
    match found.reuse.value:
        case Reuse.GENERATED:
            words = "reads all that was sent and generated: only what is new is processed"
        case Reuse.PROMPT:
            words = (
                "reads the last prompt; each reply, its reasoning included, is processed once more"
            )
        case Reuse.NONE:
            return "processes the whole prompt on every request, all old reasoning in it"
        case _:
            words = _UNKNOWN
    return words + _at_a_user_turn(found)


def _at_a_user_turn(found: Findings) -> str:
    match found.user_turn.value:
        case UserTurn.DROPS:
            return (
                "; a new user message drops old reasoning by itself: all behind the first kept "
                "step is processed again"
            )
        case UserTurn.STUB:
            return "; a new user message renders old steps anew: all of them is processed again"
        case _:
            return ""


def _drop(found: Findings) -> str:
    match found.reuse.value:
        case Reuse.GENERATED:
            words = (
                "reads the last prompt; the actions of the last reply are processed once more, and "
                "every later prompt is shorter by its reasoning"
            )
        case Reuse.PROMPT:
            words = (
                "costs no cache at all: replies are processed once more anyway, without their "
                "reasoning now"
            )
        case Reuse.NONE:
            return "has no cache to lose: every prompt is shorter by all old reasoning"
        case _:
            words = _UNKNOWN
    if found.user_turn.value is UserTurn.DROPS:
        return f"{words}; a new user message finds nothing to drop, so the prefix stays whole"
    return words + _at_a_user_turn(found)


def _after_artifact(found: Findings) -> str:
    match found.reuse.value:
        case Reuse.GENERATED:
            words = (
                "as drop at steps that wrote something durable or show an error, as keep at the "
                "others: append-only either way"
            )
        case Reuse.PROMPT:
            words = "costs no cache either; kept reasoning is processed once, then read"
        case Reuse.NONE:
            return "has no cache to lose: shorter prompts by the steps that it drops"
        case _:
            words = _UNKNOWN
    return words + _at_a_user_turn(found)


def _keep_latest(found: Findings) -> str:
    match found.reuse.value:
        case Reuse.NONE:
            return "has no cache to lose: every prompt holds the latest reasoning alone"
        case None:
            return _UNKNOWN
        case _:
            return (
                "breaks the prefix on every turn: the step that leaves the window, and all behind "
                "it, is processed again"
            )
