"""How past conversations went on: what this worker has seen of them, by key and task.

Where a conversation stands, and where others of the same key and task ended, says how much is still
to come (`core.horizon.expected`). One is over when nothing was heard of it for a while; the length
of one that is under way says nothing. Every worker learns by itself, from the first use of the
policy `horizon` on, and forgets when it ends. All is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from proxy.core import horizon
from proxy.core.horizon import Expectation, Unit

OVER = 900.0
"""Seconds without a request after which a conversation is taken to be over: models think, and
tools run, for minutes.
"""
MOST_GROUPS = 256
"""Pairs of a key and a task; the one that was used longest ago goes first."""
MOST_LIVES = 64
"""Conversations of a pair, as above."""
_LONGEST_TASK = 100


def task_of(named: Mapping[bytes, bytes]) -> str:
    """The label that a request bears, empty where it has none."""
    return named.get(b"x-lethe-task", b"")[:_LONGEST_TASK].decode("ascii", "replace")


class Whose(msgspec.Struct, frozen=True, gc=False):
    """Of whom a request is: the scope of its key and the label of its task; the link of its first
    message, and its conversation.
    """

    scope: bytes
    task: str
    root: bytes
    conversation: bytes


class Life(msgspec.Struct, frozen=True, gc=False):
    """How far a conversation came. `link` is that of the last message of its last request,
    `requests` counts that one too. Tokens are the provider's: the last prompt, its reply, and the
    reply's reasoning (None: not told); `dropped` did not leave. `at` is seconds since the epoch.
    """

    link: bytes
    requests: int
    prompt: int
    output: int
    reasoning: int | None
    dropped: int
    at: float

    @property
    def positions(self) -> int:
        """All that there was of it, once: what did not leave was generated all the same."""
        return self.prompt + self.dropped + self.output

    def length(self, unit: Unit) -> int:
        return self.requests if unit is Unit.REQUESTS else self.positions


_Lives = OrderedDict[bytes, Life]
_NOBODY: Mapping[bytes, Life] = {}


class Outlook:
    """`awake` where the policy is in use; before that there is no need to note anything."""

    def __init__(self) -> None:
        self.awake = False
        self._groups: OrderedDict[tuple[bytes, str], _Lives] = OrderedDict()

    def note(self, whose: Whose, life: Life) -> None:
        """A request that was answered; in the place of what was known of its conversation."""
        lives = self._lives(whose)
        if whose.root != whose.conversation:
            # Of its first request nothing but the root was known.
            lives.pop(whose.root, None)
        lives[whose.conversation] = life
        lives.move_to_end(whose.conversation)
        if len(lives) > MOST_LIVES:
            lives.popitem(last=False)

    def last(self, whose: Whose, link: bytes) -> Life | None:
        """What is known of the conversation up to a message, if that ended its last request."""
        lives = self._groups.get((whose.scope, whose.task), _NOBODY)
        found = lives.get(whose.conversation) or lives.get(whose.root)
        return found if found is not None and found.link == link else None

    def expected(self, whose: Whose, unit: Unit, stands: int, now: float) -> Expectation | None:
        """What is still to come for a conversation that stands there, in requests or positions;
        None where nothing can be said.
        """
        lives = self._groups.get((whose.scope, whose.task), _NOBODY)
        own = (whose.root, whose.conversation)
        over = [life for id, life in lives.items() if now - life.at > OVER and id not in own]
        return horizon.expected([life.length(unit) for life in over], stands)

    def _lives(self, whose: Whose) -> _Lives:
        group = (whose.scope, whose.task)
        lives = self._groups.setdefault(group, OrderedDict())
        self._groups.move_to_end(group)
        if len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)
        return lives
