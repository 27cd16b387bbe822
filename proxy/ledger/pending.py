"""The writes that wait for the store: in order, bounded, the oldest let go first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.replies import Reply
from proxy.ledger.contract import Entry, Kept, Offer, Record
from proxy.ledger.thread import Held

_OVERHEAD = 600


@dataclass(frozen=True, slots=True)
class Note:
    """A record to write. Its account is sealed once, so that writing it twice adds nothing."""

    record: Record
    outcome: bytes

    @property
    def root(self) -> bytes:
        return self.record.root

    @property
    def conversation(self) -> bytes:
        return self.record.conversation

    @property
    def entries(self) -> Sequence[Entry]:
        return self.record.entries

    @property
    def weight(self) -> int:
        texts = sum(len(entry.left) + len(entry.came or b"") for entry in self.entries)
        return _OVERHEAD + len(self.outcome) + texts


@dataclass(frozen=True, slots=True)
class Late:
    """Verdicts, findings and pins that were settled without the store, to be put where it knows of
    none.
    """

    root: bytes
    conversation: bytes
    offers: tuple[Offer, ...]
    found: Mapping[bytes, Reply | None] = field(default_factory=dict)
    pins: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def entries(self) -> Sequence[Entry]:
        return ()

    @property
    def weight(self) -> int:
        offers = sum(100 + 60 * len(offer.links) for offer in self.offers)
        found = sum(200 + (reply.weight if reply else 0) for reply in self.found.values())
        pins = sum(200 + len(name) + len(value) for name, value in self.pins.items())
        return _OVERHEAD + offers + found + pins


@dataclass(frozen=True, slots=True)
class Untaken:
    """A reply that the store did not take in time."""

    kept: Kept
    held: Held

    @property
    def root(self) -> bytes:
        return self.kept.root

    @property
    def conversation(self) -> bytes:
        return self.kept.conversation

    @property
    def entries(self) -> Sequence[Entry]:
        return ()

    @property
    def weight(self) -> int:
        return _OVERHEAD + self.held.reply.weight


Job = Note | Late | Untaken


class Pending:
    def __init__(self, max_jobs: int, max_bytes: int) -> None:
        self._jobs: deque[Job] = deque()
        self._max_jobs, self._max_bytes = max_jobs, max_bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def push(self, job: Job) -> int:
        """Queue one; how many had to be let go."""
        self._jobs.append(job)
        self._bytes += job.weight
        return self._trim()

    def take(self, jobs: int, size: int) -> list[Job]:
        """The oldest: at most so many, and so many bytes, but one at least."""
        taken: list[Job] = []
        while self._jobs and len(taken) < jobs:
            if taken and size < self._jobs[0].weight:
                break
            job = self._jobs.popleft()
            self._bytes -= job.weight
            size -= job.weight
            taken.append(job)
        return taken

    def put_back(self, jobs: Sequence[Job]) -> int:
        """Queue again, before all others, what was taken; how many had to be let go."""
        self._jobs.extendleft(reversed(jobs))
        self._bytes += sum(job.weight for job in jobs)
        return self._trim()

    def drop(self, conversation: bytes) -> None:
        kept = [job for job in self._jobs if job.conversation != conversation]
        self._jobs = deque(kept)
        self._bytes = sum(job.weight for job in kept)

    def entries(self, *conversations: bytes) -> Iterable[Entry]:
        for job in self._jobs:
            if job.conversation in conversations:
                yield from job.entries

    def _trim(self) -> int:
        before = len(self._jobs)
        while self._jobs and (len(self._jobs) > self._max_jobs or self._bytes > self._max_bytes):
            self._bytes -= self._jobs.popleft().weight
        return before - len(self._jobs)
