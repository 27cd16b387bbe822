"""What one provider or engine allows and does with reasoning and prompt caches.

A contract is data with a source and a date. What is not known is not guessed: nothing is expected
of an upstream without one, and what is sent to it is what every provider takes.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Reuse(Enum):
    """What stays in the cache when a request is over."""

    GENERATED = "prompt+generated"
    PROMPT = "prompt"
    NONE = "none"


class Drops(Enum):
    """Where the reasoning of a finished step may be taken out."""

    ANY = "any"
    NEVER = "never"
    ALL_OR_NOTHING = "all_or_nothing"


class Encoding(Enum):
    """What is written for dropped reasoning in a string carrier."""

    EMPTY = "empty"
    ABSENT = "absent"


class Requires(Enum):
    """Which assistant messages must have the string carrier, be it empty."""

    NOTHING = "nothing"
    TOOL_CALLS = "tool_calls"
    EVERY = "every"


class UserTurn(Enum):
    """What a new user message does to the reasoning before it, in the provider's own template."""

    KEEPS = "keeps"
    DROPS = "drops"
    STUB = "stub"


class StreamUsage(Enum):
    ASK = "ask"
    ALWAYS = "always"
    REFUSED = "refused"


class Remedy(Enum):
    """What mends a request that was refused with a 400."""

    EMPTY = "empty"
    RESTORE = "restore"
    ABSENT = "absent"
    KEEP = "keep"


class CacheRule(msgspec.Struct, frozen=True):
    """`block` and `minimum` in tokens, `ttl` in seconds (None: not known)."""

    reuse: Reuse
    block: int = 1
    minimum: int = 0
    ttl: float | None = None


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression, searched without case in the text of a 400, and what mends it."""

    error: str
    remedy: Remedy


class Affinity(msgspec.Struct, frozen=True):
    """Where a stable id of the conversation is taken: a member of the body or a header."""

    body: str = ""
    header: str = ""


class Contract(msgspec.Struct, frozen=True):
    """`reads` are the carriers that are read back from the history, the preferred one first;
    `writes` is the one its replies come in. Carriers are `reasoning_content`, `reasoning`,
    `reasoning_details`, `content_parts` and `think`. `seals_may_go`: signed and encrypted items
    may be removed, whole. `preserve` is JSON by top-level member: what keeps old reasoning in the
    prompt over a new user message. `rendered` are the members that are rendered before the
    messages. `reports_cache`: a missing count of cached tokens, or 0, means what it says.
    """

    name: str
    hosts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    owned_by: tuple[str, ...] = ()
    templated: bool = False
    reads: tuple[str, ...] = ()
    writes: str = ""
    drops: Drops = Drops.ANY
    encoding: Encoding = Encoding.EMPTY
    seals_may_go: bool = False
    requires: Requires = Requires.NOTHING
    user_turn: UserTurn = UserTurn.KEEPS
    preserve: msgspec.Raw | None = None
    system_first: bool = False
    rendered: tuple[str, ...] = ()
    cache: CacheRule | None = None
    reports_cache: bool = True
    usage_hint: str = ""
    stream_usage: StreamUsage = StreamUsage.ASK
    errors: tuple[Pattern, ...] = ()
    affinity: Affinity | None = None
    default_policy: str = ""
    warning: str = ""
    source: str = ""
    date: str = ""
