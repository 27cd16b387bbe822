"""What the control plane reads from the shared store: conversations, and messages at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from proxy.core.sent import Sent
from proxy.ledger.codec import NO_PARENT, Codec
from proxy.ledger.contract import Conversation, Entry, Grade, Summary
from proxy.ledger.scripts import FORGET, GRADE, Command, Keys

_PAGE = 200
_META = ("f", "l", "n", "o", "u")


class Reader(Protocol):
    """Any commands, in order. Raises for the store's trouble and for the server's own errors."""

    async def __call__(self, commands: Sequence[Command]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Place:
    root: bytes
    conversation: bytes


@dataclass(frozen=True, slots=True)
class Browser:
    read: Reader
    keys: Keys
    codec: Codec

    async def listed(
        self, scope: bytes | None, limit: int, before: float | None, since: float
    ) -> list[Summary]:
        """The most recently active first, of those active after `since`."""
        most: str = "+inf" if before is None else f"({before!r}"
        return await self._found(self.keys.index(scope), most, since, limit, lambda it: True)

    async def labelled(
        self, scope: bytes | None, task: str, limit: int, since: float
    ) -> list[Summary]:
        """Those that last bore the label, the most recently active first."""

        def wanted(it: Summary) -> bool:
            return it.last.get("task") == task and scope in (None, it.scope)

        index = self.keys.task(self.codec.label(task))
        return await self._found(index, "+inf", since, limit, wanted)

    async def _found(
        self, index: str, most: str, since: float, limit: int, wanted: Callable[[Summary], bool]
    ) -> list[Summary]:
        found: list[Summary] = []
        skip = 0
        while len(found) < limit:
            page = ("ZREVRANGEBYSCORE", index, most, since, "LIMIT", skip, _PAGE)
            (members,) = await self.read([page])
            found += filter(wanted, await self._summaries(members))
            if len(members) < _PAGE:
                break
            skip += _PAGE
        return found[:limit]

    async def _summaries(self, members: Sequence[bytes]) -> list[Summary]:
        places = [Place(member[16:], member[:16]) for member in members]
        rows = await self.read([c for place in places for c in self._summary_commands(place)])
        pairs = zip(rows[::2], rows[1::2], strict=True)
        return [
            summary
            for place, (meta, last) in zip(places, pairs, strict=True)
            if (summary := self._summary(place, meta, last)) is not None
        ]

    def _summary_commands(self, place: Place) -> Iterable[Command]:
        yield ("HMGET", self.keys.conversation(place.root, place.conversation), *_META)
        yield ("ZREVRANGE", self.keys.outcomes(place.root, place.conversation), 0, 0)

    def _summary(self, place: Place, meta: Sequence[Any], last: Sequence[bytes]) -> Summary | None:
        """None for what is gone, or what cannot be read."""
        first_at, last_at, turns, scope, grade = meta
        try:
            outcome = self.codec.read_outcome(last[0]) if last else None
            return Summary(
                place.conversation.hex(), bytes(scope), int(turns), float(first_at),
                float(last_at), outcome or {}, self._grade(place, grade),
            )  # fmt: skip
        except (TypeError, ValueError):
            return None

    def _grade(self, place: Place, raw: Any) -> Grade | None:
        return self.codec.read_grade(place.root, raw) if isinstance(raw, bytes) else None

    async def accounts(self, ids: Sequence[str]) -> list[tuple[Mapping[str, Any], ...]]:
        places = await self._places(ids)
        wanted = [
            ("ZRANGE", self.keys.outcomes(place.root, place.conversation), 0, -1)
            for place in places
            if place is not None
        ]
        rows = iter(await self.read(wanted))
        return [self._read(next(rows)) if place else () for place in places]

    def _read(self, raws: Sequence[bytes]) -> tuple[Mapping[str, Any], ...]:
        read = map(self.codec.read_outcome, raws)
        return tuple(outcome for outcome in read if outcome is not None)

    async def opened(self, id: str) -> Conversation | None:
        place = await self.find(id)
        if place is None:
            return None
        mine, outcomes, first, *_ = self.keys.all_of(place.root, place.conversation)
        replies = await self.read(
            [("HGETALL", mine), ("ZRANGE", outcomes, 0, -1), ("HGETALL", first)]
        )
        fields, raws, before = _fields(replies[0]), replies[1], _fields(replies[2])
        meta = [fields.get(name.encode()) for name in _META]
        summary = self._summary(place, meta, raws[-1:])
        if summary is None:
            return None
        return Conversation(
            summary=summary,
            outcomes=self._read(raws),
            last_sent=self._last_sent(fields),
            entries=self._entries({**before, **fields}),
        )

    async def find(self, id: str) -> Place | None:
        """By public id, or the latest that grew from a root of that id."""
        (place,) = await self._places([id])
        return place

    async def _places(self, ids: Sequence[str]) -> list[Place | None]:
        links = list(map(_link, ids))
        commands: list[Command] = []
        for link in filter(None, links):
            commands.append(("GET", self.keys.root_of(link)))
            commands.append(("ZREVRANGE", self.keys.grown(link), 0, 0))
        replies = iter(await self.read(commands))
        return [_place(link, next(replies), next(replies)) if link else None for link in links]

    def _entries(self, fields: Mapping[bytes, bytes]) -> dict[bytes, Entry]:
        read = (
            self.codec.read_entry(name[1:], raw)
            for name, raw in fields.items()
            if name[:1] == b"e" and len(name) > 1
        )
        return {entry.digest: entry for entry in read if entry is not None}

    def _last_sent(self, fields: Mapping[bytes, bytes]) -> Sent | None:
        """The latest record that can be put together."""
        read = (
            self.codec.read_head(name[1:], raw)
            for name, raw in fields.items()
            if name[:1] == b"s" and len(name) > 1
        )
        heads = sorted((head for head in read if head), key=lambda head: head.at, reverse=True)
        for head in heads:
            bodies = _bodies(fields, head.outgoing)
            built = self.codec.assembled(head.outgoing, bodies, None) if bodies else None
            if built is not None:
                return replace(head, elements=built[0])
        return None

    async def grade(self, place: Place, scope: bytes | None, grade: Grade) -> bool:
        """False where the conversation is not there, or not of this scope."""
        key = self.keys.conversation(place.root, place.conversation)
        value = self.codec.grade(place.root, grade)
        (kept,) = await self.read([GRADE.command([key], value, scope or b"")])
        return bool(kept)

    async def forget(self, place: Place) -> bool:
        conversation, root = place.conversation, place.root
        keys = self.keys.all_of(root, conversation)
        indexes = await self._indexes(place)
        gone, *_ = await self.read(
            [
                FORGET.command(keys, conversation),
                ("DEL", self.keys.root_of(conversation)),
                *(("ZREM", index, conversation + root) for index in indexes),
            ]
        )
        return bool(gone)

    async def _indexes(self, place: Place) -> list[str]:
        """Where the conversation is listed."""
        meta, last = await self.read(list(self._summary_commands(place)))
        scope = meta[_META.index("o")] or b""
        outcome = self.codec.read_outcome(last[0]) if last else None
        task = str((outcome or {}).get("task") or "")
        labelled = [self.keys.task(self.codec.label(task))] if task else []
        return [self.keys.index(None), self.keys.index(scope), *labelled]

    async def entries(self, place: Place, digests: Sequence[bytes]) -> dict[bytes, Entry]:
        names = [b"e" + digest for digest in digests]
        mine, _, first, *_ = self.keys.all_of(place.root, place.conversation)
        own, before = await self.read([("HMGET", mine, *names), ("HMGET", first, *names)])
        found = dict(zip(names, (a or b for a, b in zip(own, before, strict=True)), strict=True))
        return self._entries({name: raw for name, raw in found.items() if raw})


def _link(id: str) -> bytes | None:
    try:
        return bytes.fromhex(id)
    except ValueError:
        return None


def _place(link: bytes, root: Any, grown: Sequence[bytes]) -> Place | None:
    if grown:
        return Place(link, grown[0])
    return Place(root, link) if root and len(root) == 16 else None


def _fields(reply: Any) -> Mapping[bytes, bytes]:
    """The fields of a hash: redis-py's Cluster client gives a mapping, the wire a flat list."""
    if isinstance(reply, Mapping):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _bodies(fields: Mapping[bytes, bytes], outgoing: bytes) -> list[bytes] | None:
    """The bodies of a record and its parents; None where one is missing, or they go round."""
    bodies: list[bytes] = []
    while outgoing != NO_PARENT:
        body = fields.get(b"d" + outgoing)
        if body is None or len(bodies) > len(fields):
            return None
        bodies.append(body)
        outgoing = body[:16]
    return bodies
