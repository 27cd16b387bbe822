"""Policies: pure functions from a finished step to a verdict, taken once, at its append point.

A policy sees the step as it was when it was first forwarded and nothing that came later, so an
empty ledger gives the same verdicts as a full one (law 6). `keep_latest` is the exception that
people ask for: it decides a step when the step leaves its window, which rewrites what was sent, and
says so. `horizon` sees the step alone too, but weighs it by what is known at the time of prices and
of past conversations: without a ledger it may judge otherwise (law 6 does not hold for it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from hashlib import blake2b

from proxy.core.artifact import Judgement
from proxy.core.contract import Drops
from proxy.core.verdict import DROP, KEEP, Kind, Verdict


class Name(Enum):
    KEEP = "keep"
    DROP = "drop"
    AFTER_ARTIFACT = "after_artifact"
    KEEP_LATEST = "keep_latest"
    RANDOM = "random"
    HORIZON = "horizon"
    OBSERVE = "observe"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Policy:
    """`window` belongs to `keep_latest`, `share` (0 to 1) to `random`, `remaining` to `horizon`:
    what is expected to come still, None where that is not said with it.
    """

    name: Name
    window: int = 0
    share: Decimal = Decimal(0)
    remaining: int | None = None

    def __str__(self) -> str:
        match self.name:
            case Name.KEEP_LATEST:
                return f"{self.name.value}:{self.window}"
            case Name.RANDOM:
                return f"{self.name.value}:{self.share:f}"
            case Name.HORIZON if self.remaining is not None:
                return f"{self.name.value}:{self.remaining}"
            case _:
                return str(self.name.value)

    @property
    def append_only(self) -> bool:
        """Whether what leaves under it only ever grows (law 1)."""
        return self.name not in (Name.KEEP_LATEST, Name.OFF)


@dataclass(frozen=True, slots=True)
class About:
    """One line of `lethe policies`."""

    form: str
    verdict: str
    prefix: str


ABOUT: tuple[About, ...] = (
    About("keep", "keep every step's reasoning", "append-only"),
    About("drop", "drop every finished step's reasoning", "append-only"),
    About(
        "after_artifact",
        "drop once the step wrote something durable or an error is visible; else keep",
        "append-only",
    ),
    About(
        "keep_latest:n",
        "keep the latest n steps' reasoning, drop a step's as it leaves the window",
        "retroactive: rewrites cached history on every turn",
    ),
    About("random:p", "drop a share p of the steps, by a hash of what was said", "append-only"),
    About(
        "horizon:n",
        "drop where more is to come than the retention horizon: n requests or positions, or as "
        "past conversations went; else keep",
        "append-only",
    ),
    About(
        "observe", "keep, and record what the policies in `shadow` would have done", "append-only"
    ),
    About("off", "change nothing, not one byte", "outside the promise while it lasts"),
)
NAMES: tuple[str, ...] = tuple(about.form for about in ABOUT)


def parse(text: str) -> Policy:
    """Read a policy as people write it; ValueError says what came and what is known."""
    head, colon, tail = text.strip().partition(":")
    try:
        name = Name(head)
    except ValueError:
        raise ValueError(f"policy {text[:40]!r} is unknown; known: {', '.join(NAMES)}") from None
    match name:
        case Name.KEEP_LATEST:
            return Policy(name, window=_window(text, tail if colon else "1"))
        case Name.RANDOM:
            return Policy(name, share=_share(text, tail))
        case Name.HORIZON if colon:
            return Policy(name, remaining=_remaining(text, tail))
    if colon:
        raise ValueError(f"policy {text[:40]!r}: {head} takes no value; write {head!r}")
    return Policy(name)


def _window(text: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 6 and 1 <= int(value) <= 100_000):
        raise ValueError(
            f"policy {text[:40]!r}: want a whole number of steps from 1, as in keep_latest:1"
        )
    return int(value)


def _remaining(text: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) >= 1):
        raise ValueError(
            f"policy {text[:40]!r}: want a whole number of requests or positions from 1, as in "
            "horizon:40, or nothing, to learn it from past conversations"
        )
    return int(value)


_SHARE = re.compile(r"(0|0?\.[0-9]{1,20}|1|1\.0{1,20})")


def _share(text: str, value: str) -> Decimal:
    share = Decimal(value) if _SHARE.fullmatch(value) else Decimal(-1)
    if not 0 <= share <= 1:
        raise ValueError(f"policy {text[:40]!r}: want a share from 0 to 1, as in random:0.5")
    return share


def _unknown() -> bool:
    """What is not known is no reason to forget."""
    return False


def decide(
    policy: Policy, complete: bool, later: int, said: bytes, judge: Callable[[], Judgement],
    pays: Callable[[], bool] = _unknown,
) -> Verdict | None:  # fmt: skip
    """The verdict on one step, None where the policy does not settle it yet.

    `later` counts the steps after it, `said` is the digest of what its messages said. `judge` looks
    at what it did and `pays` weighs it by its horizon; each is called only where the policy asks.
    A step first seen incomplete is kept for ever.
    """
    match policy.name:
        case Name.KEEP_LATEST if later < policy.window:
            return None
        case _ if not complete:
            return KEEP
        case Name.KEEP | Name.OFF | Name.OBSERVE:
            return KEEP
        case Name.DROP | Name.KEEP_LATEST:
            return DROP
        case Name.RANDOM:
            return DROP if _fraction(said) < policy.share else KEEP
        case Name.HORIZON:
            return DROP if pays() else KEEP
    assert policy.name is Name.AFTER_ARTIFACT
    seen = judge()
    return DROP if seen.wrote or seen.errored else KEEP


def clamped(
    drops: Drops, policy: Policy, proposed: Verdict, standing: Iterable[Verdict]
) -> Verdict:
    """The nearest verdict that is legal where a contract says so of dropping.

    All or nothing: as the conversation's `standing` verdicts are, so all its steps are; without
    one, only a policy that drops every step may begin to.
    """
    if drops is not Drops.ALL_OR_NOTHING:
        return proposed if drops is Drops.ANY else KEEP
    first = next(iter(standing), None)
    if first is not None:
        return KEEP if first.kind is Kind.KEEP else DROP
    return DROP if policy.name is Name.DROP and proposed.kind is Kind.DROP else KEEP


def carried_out(drops: Drops, steps: int, standing: Mapping[int, Verdict]) -> Mapping[int, Verdict]:
    """What may leave of what stands on so many steps, by their index: a conversation may have come
    from another upstream, and two workers may have begun to judge it under two policies.

    All or nothing: the first step's verdict goes for all, so that no mixture ever leaves.
    """
    if drops is Drops.ANY:
        return standing
    if drops is Drops.ALL_OR_NOTHING and standing.get(0, KEEP).kind is not Kind.KEEP:
        return dict.fromkeys(range(steps), DROP)
    return dict.fromkeys(standing, KEEP)


def _fraction(said: bytes) -> Decimal:
    """A number in [0, 1) that is the same wherever the same was said."""
    digest = blake2b(said, digest_size=8, person=b"lethe-random").digest()
    return Decimal(int.from_bytes(digest, "big")) / Decimal(2**64)
