"""The formats of recorded sessions: one reader a format, and how a record finds its own.

A reader is a room with `claims(record)` and `session(record, name)`. The first that claims a record
reads it. Exchanges are apart: there a record is one request, and many make a session.
"""

from __future__ import annotations

from typing import Any, Protocol

from proxy.replay.readers import lethe_log, message_list, trajectory
from proxy.replay.sessions import Session, Unusable


class Reader(Protocol):
    """`claims` looks at the shape alone; `session` raises Unusable."""

    def claims(self, record: Any) -> bool: ...

    def session(self, record: Any, name: str) -> Session: ...


READERS: tuple[Reader, ...] = (lethe_log, trajectory, message_list)


def session_of(record: Any, name: str) -> Session:
    """The session in a record; `name` is the id that it gets. Raises Unusable."""
    for reader in READERS:
        if reader.claims(record):
            return reader.session(record, name)
    raise Unusable(
        "neither a conversation (lethe show --messages --json), a trajectory, a list of messages, "
        "nor a request with its response"
    )
