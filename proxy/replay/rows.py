"""What the replay of one session comes to: values that add up, and travel between processes.

Tokens are of all requests of the session together. A session under one policy has, for each cache
rule, the same input, cut into what would have been read, rebuilt and new.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from proxy.replay.sessions import Label


class Served(msgspec.Struct, frozen=True):
    """Under one cache rule. `positions` and `pairs` are what had to be computed; `bills` are in US
    dollars, in the order of the plan's prices. Of the requests whose reads were recorded under this
    very policy and that were not the first: `compared` of them, `exact` told to the token, and the
    sums of both.
    """

    read: int
    rebuilt: int
    new: int
    positions: int
    pairs: int
    bills: tuple[Decimal, ...]
    compared: int = 0
    exact: int = 0
    foretold_reads: int = 0
    recorded_reads: int = 0


class Under(msgspec.Struct, frozen=True):
    """Under one policy. `dropped` are tokens of reasoning that did not leave, counted anew on every
    request; `breaks` counts requests with a broken prefix by cause; `served` is in the order of the
    plan's cache rules.
    """

    input: int
    dropped: int
    breaks: dict[str, int]
    served: tuple[Served, ...]


class Row(msgspec.Struct, frozen=True):
    """One session. `under` is in the order of the plan's policies. `policy` is the one it was
    recorded under. `unread` counts requests whose bodies could not be read and that are left out,
    `anchored` those whose recorded prompt fixed the sizes; of those with a count before them
    `foretold`, of which `near` within 2 %. `recorded` and `modelled` are the sums of the prompts'
    recorded counts and of their sizes, where both are known.
    """

    file: str
    id: str
    format: str
    model: str
    label: Label
    policy: str
    requests: int
    unread: int
    steps: int
    output: int
    reasoning: int
    estimated_output: int
    anchored: int
    foretold: int
    near: int
    recorded: int
    modelled: int
    under: tuple[Under, ...]


class Skipped(msgspec.Struct, frozen=True):
    """What was not replayed: where (lines from 1; 0 is the whole file), and why."""

    file: str
    line: int
    why: str
