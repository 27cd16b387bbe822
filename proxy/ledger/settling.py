"""One turn's question to the shared store, and what its answer means beside what this worker knows.

Only what is not known for good is asked: steps whose last link has no known verdict, and records at
links as deep as the deepest known one or deeper (all links, where none is known). What was read
stays known: nothing can be put any more on a link whose step bears a verdict.

What the store holds and cannot be read counts as absent: the question is asked again without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from proxy.core.sent import Sent
from proxy.core.verdict import Verdict
from proxy.ledger import codec
from proxy.ledger.codec import Codec
from proxy.ledger.contract import Ask, Offer, Settled
from proxy.ledger.echoing import Echoing
from proxy.ledger.local import Memory
from proxy.ledger.pending import Late
from proxy.ledger.scripts import SETTLE, Command, Keys
from proxy.ledger.thread import Thread

_NONE = -1
_PUT = 0


class Settling:
    """Build commands, `take` each reply, until nothing is `unclear`; then `settled`."""

    def __init__(self, ask: Ask, memory: Memory, form: Codec, keys: Keys, ttl: int) -> None:
        self._ask, self._memory, self._codec, self._keys, self._ttl = ask, memory, form, keys, ttl
        self._thread: Thread = memory.touch(ask.scope, ask.root, ask.conversation)
        self._verdicts: dict[bytes, Verdict] = {}
        self._put: set[bytes] = set()
        self._absent: list[bytes] = []
        self._echoing: Echoing | None = None
        if ask.echoes or ask.pins:
            self._echoing = Echoing(ask, memory.echoes, form, self._absent)
        self._local = memory.last_sent(ask)
        self._links = list(reversed(ask.chain[self._local[0] if self._local else 0 :]))
        self._hints = [] if self._local else list(enumerate(ask.hints))
        self._shared: Sent | None = None
        self._tip: Sent | None = None
        self._hinted: int | None = None
        self._setting: str | None = None
        self._agreed = True
        self._asked: list[Offer] = [offer for offer in ask.offers if not self._is_known(offer)]
        self.lost: Late | None = None
        self._unreadable = self._diverged = 0

    @property
    def unreadable(self) -> int:
        return self._unreadable + (self._echoing.unreadable if self._echoing else 0)

    @property
    def diverged(self) -> int:
        return self._diverged + (self._echoing.diverged if self._echoing else 0)

    def _is_known(self, offer: Offer) -> bool:
        known = self._memory.standing(offer.links[-1:])
        if known is not None:
            self._verdicts[offer.links[0]] = known
        return known is not None

    # One node has it all.

    def command(self) -> Command:
        """All in one."""
        hints = [self._keys.hint(self._ask.scope, hint) for _, hint in self._hints]
        return self._command(self._keys.policy(self._ask.scope), *hints)

    def take(self, reply: Sequence[Any]) -> bool:
        """Whether something was unclear, so that `command` is to be asked again."""
        setting, *answer = reply
        self._setting = codec.read_policy(setting)
        if setting is not None and self._setting is None:
            # Nothing was put for the sake of what is no policy.
            self._unreadable += 1
            self._absent.append(setting)
            return True
        return self._take(*answer)

    def _touch(self) -> None:
        # The conversation may have been let go while the store was asked.
        ask = self._ask
        self._thread = self._memory.touch(ask.scope, ask.root, ask.conversation)

    # With a node for each tag.

    def scope_commands(self) -> list[Command]:
        """What lies under the scope's tag: to be asked first."""
        scope = self._ask.scope
        hints: list[Command] = [("GET", self._keys.hint(scope, hint)) for _, hint in self._hints]
        return [("GET", self._keys.policy(scope)), *hints]

    def take_scope(self, replies: Sequence[Any]) -> list[tuple[int, bytes, str]]:
        """The set policy, and where hints lead: the hint's place, link, conversation's key."""
        self._setting = codec.read_policy(replies[0])
        self._agreed = self._setting == self._ask.setting
        return [
            (place, value[1:17], value[17:].decode("latin-1"))
            for (place, _), value in zip(self._hints, replies[1:], strict=True)
            if isinstance(value, bytes) and self._keys.is_hint(value)
        ]

    def root_command(self) -> Command:
        """What lies under the root's tag."""
        return self._command()

    def take_root(self, reply: Sequence[Any]) -> bool:
        """Whether something was unclear, so that `root_command` is to be asked again."""
        return self._take(*reply[1:])

    def hint_command(self, link: bytes, key: str) -> Command:
        """The record that a hint led to, under another root's tag."""
        return SETTLE.command([key, key, key], self._ttl, b"", b"", b"", link, 0, 0)

    def take_hint(self, place: int, reply: Sequence[Any]) -> None:
        self._touch()
        if reply[4]:
            self._take_record(reply[4], place)

    @property
    def wants_hint(self) -> bool:
        return self._local is None and self._shared is None

    # Both.

    def _command(self, *keys: str) -> Command:
        ask = self._ask
        local = self._local[1].outgoing if self._local else b""
        mine = self._keys.all_of(ask.root, ask.conversation)[:3]
        return SETTLE.command(
            [*mine, *keys], self._ttl, local, self._witness(), codec.policy(ask.setting),
            b"".join(self._links), len(self._absent), *self._absent,
            len(self._asked), *self._pairs(),
            *(self._echoing.arguments() if self._echoing else ()),
        )  # fmt: skip

    def _witness(self) -> bytes:
        """The latest field that was put: where it is not, the store has lost something."""
        borne = self._thread.borne
        for link in reversed(borne):
            if borne[link]:
                return b"v" + link
        shelf = self._thread.shelf
        return shelf.witness() if shelf else b""

    def _pairs(self) -> Iterator[bytes]:
        for offer in self._asked:
            verdict = self._memory.standing(offer.links) or offer.verdict
            silent = verdict is None or not self._agreed
            yield b"".join(offer.links)
            yield (
                b"" if silent or verdict is None else self._codec.verdict(offer.links[-1], verdict)
            )

    def _take(
        self, witnessed: int, values: Sequence[Any], places: Sequence[int], found: Any, hint: int,
        tip: Any, *told: Sequence[Any],
    ) -> bool:  # fmt: skip
        self._touch()
        before = self._unreadable
        if not witnessed:
            self.lost = self._what_stood()
        asked, self._asked = self._asked, []
        for offer, value, place in zip(asked, values, places, strict=True):
            self._take_verdict(offer, value, place)
        if found:
            self._take_record(found, self._hints[hint - 1][0] if hint else None)
        self._tip = self._read_record(tip) if tip else None
        if self._echoing and told:
            self._echoing.take(self._thread, *told)
        return self._unreadable > before or bool(self._echoing and self._echoing.unclear)

    def _what_stood(self) -> Late:
        bearing = self._memory.bearing(self._ask.conversation)
        offers = tuple(Offer((link,), verdict) for link, verdict in bearing.items())
        stood = self._memory.echoes.standing(self._ask.conversation)
        return Late(self._ask.root, self._ask.conversation, offers, stood.found, stood.pins)

    def _take_verdict(self, offer: Offer, value: Any, place: int) -> None:
        last = offer.links[-1]
        standing = self._memory.standing(offer.links)
        if place == _PUT:
            if standing is None:
                self._put.add(offer.links[0])
            standing = standing or offer.verdict
            if standing is not None:
                self._memory.bear(self._thread, last, standing, True)
        elif place != _NONE:
            link = offer.links[place - 1]
            verdict = self._codec.read_verdict(link, value)
            if verdict is None:
                self._unreadable += 1
                self._absent.append(value)
                self._asked.append(offer)
                return
            # Where this worker has sent by another, that one stands for it.
            if self._memory.standing(offer.links[place - 1 :]) is None:
                self._memory.bear(self._thread, link, verdict, True)
                standing = verdict
            self._diverged += standing != verdict
        if standing is not None:
            self._memory.bear(self._thread, last, standing, False)
            self._verdicts[offer.links[0]] = standing

    def _take_record(self, found: Sequence[Any], hint: int | None) -> None:
        link, head, bodies = found
        local = self._local[1] if self._local else None
        sent = self._codec.read_head(link, head)
        built = self._codec.assembled(sent.outgoing, bodies, local) if sent else None
        if sent is None or built is None:
            self._unreadable += 1
            self._links = [other for other in self._links if other != link]
            self._hints = [(place, digest) for place, digest in self._hints if place != hint]
            return
        self._shared, self._hinted = replace(sent, elements=built[0]), hint
        own = link != self._ask.root or self._ask.root == self._ask.conversation
        if hint is None and own:
            self._learn(self._shared, built[1] if bodies else None, local)

    def _read_record(self, found: Sequence[Any]) -> Sent | None:
        """A record that is only looked at; none where it cannot be read."""
        link, head, bodies = found
        sent = self._codec.read_head(link, head)
        local = self._local[1] if self._local else None
        built = self._codec.assembled(sent.outgoing, bodies, local) if sent else None
        return replace(sent, elements=built[0]) if sent and built else None

    def _learn(self, shared: Sent, depth: int | None, local: Sent | None) -> None:
        """Keep the record, if it is news, and that the store holds it."""
        if local is None or local.link != shared.link or local.at < shared.at:
            shared = self._memory.add_sent(self._thread, shared)
        if depth is not None:
            self._thread.stored = (shared, depth)

    def settled(self) -> Settled:
        sent, by_hint = self._last_sent()
        self._memory.set_setting(self._ask.scope, self._setting)
        self._memory.shrink(self._thread)
        settled = Settled(
            self._verdicts,
            len(self._put),
            sent,
            by_hint,
            self._setting,
            True,
            self._latest(sent),
            frozenset(self._put),
        )
        if self._echoing is None:
            return settled
        it = self._echoing
        return replace(settled, echoes=it.found, missed=it.missed, pins=it.pins)

    def _latest(self, sent: Sent | None) -> Sent | None:
        """What the conversation sent last of all, by the store or by this worker, if not `sent`."""
        own = self._thread.trail.last
        known = [tip for tip in (self._tip, own) if tip is not None]
        tip = max(known, key=lambda tip: tip.at, default=None)
        return None if tip is None or (sent and tip.link == sent.link) else tip

    def _last_sent(self) -> tuple[Sent | None, bool]:
        """The deeper of the two, the later of equal ones; else what the stronger hint says."""
        local = self._local[1] if self._local else None
        if self._shared is not None and self._hinted is None:
            newer = local is None or local.link != self._shared.link or local.at < self._shared.at
            return (self._shared if newer else local), False
        if local is not None:
            return local, False
        hinted = self._memory.hinted(self._ask.scope, self._ask.hints)
        if self._hinted is not None and (hinted is None or self._hinted <= hinted[0]):
            return self._shared, True
        return (hinted[1], True) if hinted else (None, False)
