"""Climbs the spine for one request: read, propose, settle, seal. What cannot be read is left as it
came.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy import adding, shadowing, writing
from proxy.core import artifact, dialect, explain, fingerprint, outcome, policy, prefix, turn
from proxy.core.additions import NOTHING, Added
from proxy.core.artifact import Judgement
from proxy.core.contract import Contract, Drops, Reuse
from proxy.core.dialect import Wire
from proxy.core.expect import Cached
from proxy.core.explain import Explanation
from proxy.core.horizon import Weighed
from proxy.core.policy import Name, Policy
from proxy.core.prefix import Cause
from proxy.core.sent import Element, Part, Sent
from proxy.core.shade import Shade
from proxy.core.shadow import Shadow
from proxy.core.thought import Thought
from proxy.core.turn import Sealed, Turn
from proxy.core.usage import Usage
from proxy.core.verdict import KEEP, Verdict
from proxy.core.wire import chat
from proxy.doors import Doors
from proxy.errors import LedgerError
from proxy.keys import Caller
from proxy.ledger.contract import Ask, Echo, Entry, Offer, Record, Settled
from proxy.outlook import task_of
from proxy.settings import UpstreamSettings
from proxy.weighing import Weigher

Names = Mapping[bytes, bytes]
_HINTED_CALLS = 8
_start = attrgetter("start")
_AGENT = frozenset({Part.TOOLS, Part.SYSTEM})


class Decided(msgspec.Struct, frozen=True):
    """What holds for a request, whatever is made of it. `settle_seconds` is the wait for the
    ledger. `replies` are those that its messages echo, None where none was found. `weighed` is
    what decided its new verdicts under `horizon`.
    """

    turn: Turn
    caller: Caller
    up: UpstreamSettings
    contract: Contract
    rule: Policy
    setting: str | None
    settled: Settled
    standing: Mapping[int, Verdict]
    front: tuple[Element, ...]
    hints: tuple[bytes, ...]
    fresh: Mapping[str, int]
    adopted: int
    forbidden: int
    settle_seconds: float
    wire: Wire
    replies: writing.Replies
    missed: int
    added: Added
    task: str = ""
    weighed: tuple[Weighed, ...] = ()


class Pruning(msgspec.Struct, frozen=True):
    """A request that was read, and all that was decided of it. `entries` are what the conversation
    did not hold yet, `done` counts what was done beside dropping, by name. `shades` are what shadow
    policies say of it, under `observe`.
    """

    decided: Decided
    turn: Turn
    sealed: Sealed
    explained: Explanation
    entries: tuple[Entry, ...]
    recall_seconds: float | None
    done: Mapping[str, int]
    shades: tuple[Shade, ...] = ()

    @property
    def rule(self) -> Policy:
        return self.decided.rule

    @property
    def settle_seconds(self) -> float:
        return self.decided.settle_seconds

    def without_bodies(self) -> Pruning:
        """The same less the request's bytes: while the reply is awaited, nobody needs them."""
        it, sealed = replace(self.turn, body=b""), replace(self.sealed, body=b"")
        return replace(self, decided=replace(self.decided, turn=it), turn=it, sealed=sealed)

    def told(self, cached: Cached | None) -> outcome.Pruned:
        it, decided = self.sealed, self.decided
        return outcome.Pruned(
            self.turn.conversation.hex(), self.turn.root.hex(), str(decided.rule),
            len(self.turn.steps),
            decided.fresh, decided.adopted, it.dropped, it.kept, it.dropped_bytes, it.kept_bytes,
            it.clamped, it.finding, decided.settled.shared, self.explained, cached,
            decided.forbidden, {**decided.added.counts, **self.done}, decided.missed,
            decided.weighed,
        )  # fmt: skip


async def prune(
    doors: Doors, caller: Caller, named: Names, it: Turn, up: UpstreamSettings
) -> Pruning:
    """Decide what is new, learn what stands, and seal. Raises BadHeader for a policy that is
    none.
    """
    return await sealed(doors, await decided(doors, caller, named, it, up))


async def decided(
    doors: Doors, caller: Caller, named: Names, it: Turn, up: UpstreamSettings
) -> Decided:
    """What holds: the policy, the verdicts, the wire and the replies. Raises BadHeader."""
    setting = doors.ledger.setting(caller.scope)
    contract = doors.contracts.of(up.name, it.model).contract
    rule = doors.keyring.policy(caller, named, setting, it.model, up, contract.default_policy)
    added = NOTHING
    if rule.name is not Name.OFF:
        it, added = await adding.added(doors, it, named, up, contract)
    front = doors.memo.front(it, contract.rendered, contract.system_first)
    hints = _hints(doors, named, it, front)
    known, task = _known(doors, it), task_of(named)
    weigh = partial(Weigher, doors, it, front, up, contract, task, known)
    asking = await _asking(doors, it, up, contract, rule, hints)
    began = doors.ticks()
    offers, settled = await _settle(doors, caller, asking, known, setting, weigh)
    missed = settled.missed
    if settled.setting != setting:
        setting = settled.setting
        rule = doors.keyring.policy(caller, named, setting, it.model, up, contract.default_policy)
        asking = replace(asking, rule=rule)
        offers, settled = await _settle(doors, caller, asking, known, setting, weigh)
        missed += settled.missed
    stand = {**known, **_stand(it, offers.verdicts, settled)}
    standing = policy.carried_out(contract.drops, len(it.steps), stand)
    wire = asking.standing_wire(settled)
    replies: writing.Replies = {**asking.replies, **settled.echoes}
    if wire.looks_back and not asking.wire.looks_back:
        # Another worker knew better; now it is known what has to be asked.
        replies, more = await writing.found(doors, it, setting, wire)
        missed += more
    return Decided(
        it, caller, up, contract, rule, setting, settled, standing, front, hints,
        _fresh(it, offers.verdicts, settled),
        len(offers.verdicts) if settled.last_sent is None and len(offers.verdicts) > 1 else 0,
        offers.forbidden,
        doors.ticks() - began,
        wire,
        replies,
        missed,
        added,
        task,
        offers.weigher.told(_put(it, offers.verdicts, settled)) if offers.weigher else (),
    )  # fmt: skip


def _fresh(it: Turn, offers: Mapping[int, Verdict | None], settled: Settled) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for verdict in _put(it, offers, settled).values():
        found[verdict.kind.value] = found.get(verdict.kind.value, 0) + 1
    return found


def _put(it: Turn, offers: Mapping[int, Verdict | None], settled: Settled) -> Mapping[int, Verdict]:
    """The verdicts that this very turn has brought."""
    return {
        index: verdict
        for index, verdict in offers.items()
        if verdict and it.messages[it.steps[index].first].link in settled.put
    }


async def sealed(doors: Doors, by: Decided, refused: Sequence[Element] = ()) -> Pruning:
    """Carry out what holds. `refused` is what left of it, and was not taken."""
    it, settled = by.turn, by.settled
    untouched = by.rule.name is Name.OFF
    shapes = {} if untouched else writing.shapes(doors, it, by.standing, by.wire, by.replies)
    done = turn.seal(
        it, by.standing, by.front, settled.last_sent, settled.by_hint, untouched, settled.tip,
        shapes, refused,
    )  # fmt: skip
    recalled = doors.ticks()
    explained = await _explained(doors, it, by.up, done.basis, done)
    recall = doors.ticks() - recalled if explained is not explain.NONE else None
    entries = _entries(doors, it, settled.last_sent, done, by.contract.rendered)
    shades = _shades(doors, by, done) if by.rule.name is Name.OBSERVE else ()
    did = writing.counts(tuple(shapes.values()))
    return Pruning(by, it, done, explained, entries, recall, did, shades)


def _shades(doors: Doors, by: Decided, done: Sealed) -> tuple[Shade, ...]:
    """What the shadow policies say of what leaves."""
    it, names = by.turn, doors.settings.shadow
    weigher = Weigher(doors, it, by.front, by.up, by.contract, by.task, by.standing)
    drops = Drops.NEVER if by.wire.keeps else by.contract.drops
    left = shadowing.left_of(it, done)
    try:
        return shadowing.shades(names, left, drops, _judge(doors, by.caller), weigher)
    except Exception:
        # It is for people to look at; the request leaves whatever became of this.
        doors.observer.counts.add("lethe_faults_total", ("shadow",))
        return ()


async def _explained(
    doors: Doors, it: Turn, up: UpstreamSettings, last: Sent | None, sealed: Sealed
) -> Explanation:
    """Where a break is and what it costs. Only a client's break asks the ledger once more: our own
    (a retroactive policy's) come on every turn, and their place is known.
    """
    finding = sealed.finding
    if last is None or finding.element is None or not finding.is_break:
        return explain.NONE
    try:
        return await _told(doors, it, up, last, sealed)
    except Exception:
        # It is for people to read; the request is sealed and leaves whatever became of this.
        doors.observer.counts.add("lethe_faults_total", ("explain",))
        return explain.NONE


async def _told(
    doors: Doors, it: Turn, up: UpstreamSettings, last: Sent, sealed: Sealed
) -> Explanation:
    finding, at = sealed.finding, sealed.finding.element or 0
    contract = doors.contracts.of(up.name, it.model).contract
    before = after = None
    if finding.cause is not Cause.SELF and doors.settings.ledger.history == "full":
        before = await _text_before(doors, last, last.elements[at].digest)
        digest = sealed.elements[at].digest
        texts = _texts(it, sealed, {digest}, contract.rendered)
        after = texts[digest].left if digest in texts else None
    generated = contract.cache is not None and contract.cache.reuse is Reuse.GENERATED
    return explain.explain(finding, last, sealed.elements, before, after, generated)


async def _text_before(doors: Doors, last: Sent, digest: bytes) -> bytes | None:
    """What stood there, if the ledger tells it within the time that settling may take."""
    try:
        async with asyncio.timeout(doors.settings.ledger.timeout):
            entries = await doors.ledger.recall(last.conversation, [digest])
    except (TimeoutError, LedgerError):
        return None
    return entries[digest].left if digest in entries else None


class _Asking(msgspec.Struct, frozen=True):
    """What a turn asks of the ledger, beside its verdicts. `replies` are known already, `wire` is
    the one that stands as far as this worker knows, `pins` ask for it where that is not sure.
    """

    turn: Turn
    contract: Contract
    rule: Policy
    hints: tuple[bytes, ...]
    wire: Wire
    pins: Mapping[str, bytes | None]
    replies: writing.Replies
    echoes: tuple[Echo, ...]

    def standing_wire(self, settled: Settled) -> Wire:
        raw = next((settled.pins[name] for name in self.pins if name in settled.pins), None)
        return dialect.unpacked(raw, self.wire) if raw else self.wire


async def _asking(
    doors: Doors, it: Turn, up: UpstreamSettings, contract: Contract, rule: Policy,
    hints: tuple[bytes, ...],
) -> _Asking:  # fmt: skip
    if rule.name is Name.OFF:
        return _Asking(it, contract, rule, hints, Wire(), {}, {}, ())
    wire, pins = writing.pinned(doors, it, up), dict[str, bytes | None]()
    if wire is None:
        wire = await writing.offered(doors, it, up, contract)
        # Before an assistant has spoken nothing is written by it, so nothing is pinned.
        pins = dict(writing.asked_pins(up, it.model, wire)) if it.steps else {}
    replies, echoes = writing.echoes(doors, it, wire)
    return _Asking(it, contract, rule, hints, wire, pins, replies, echoes)


class _Offers(NamedTuple):
    """Verdicts by step; how many of them are not what the policy said, because the contract
    forbids that. `weigher` has what decided them, where they were weighed.
    """

    verdicts: Mapping[int, Verdict | None]
    forbidden: int
    weigher: Weigher | None = None


async def _settle(
    doors: Doors, caller: Caller, asking: _Asking, known: Mapping[int, Verdict],
    setting: str | None, weigh: Callable[[], Weigher],
) -> tuple[_Offers, Settled]:  # fmt: skip
    it, rule = asking.turn, asking.rule
    weigher = weigh() if rule.name is Name.HORIZON else None
    pays = partial(weigher.pays, rule) if weigher else turn.unknown
    proposed = turn.propose(it, rule, _judge(doors, caller), known.__contains__, pays)
    offers = _legal(asking.contract, rule, proposed, known, weigher)
    ask = Ask(
        caller.scope, it.root, it.conversation, tuple([m.link for m in it.messages]),
        tuple([Offer(it.links(it.steps[at]), verdict) for at, verdict in offers.verdicts.items()]),
        asking.hints,
        setting,
        asking.echoes,
        asking.pins,
    )  # fmt: skip
    return offers, await doors.ledger.settle(ask)


def _legal(
    contract: Contract, rule: Policy, proposed: Mapping[int, Verdict | None],
    known: Mapping[int, Verdict], weigher: Weigher | None,
) -> _Offers:  # fmt: skip
    """What the contract allows of what the policy says. What it would say later, of a step that
    leaves its window, is not waited for: where not every verdict is allowed, that is known now.
    """
    if contract.drops is Drops.ANY or rule.name is Name.OFF:
        return _Offers(proposed, 0, weigher)
    stand = [known[at] for at in sorted(known)]
    legal = {
        at: policy.clamped(contract.drops, rule, verdict or KEEP, stand)
        for at, verdict in proposed.items()
    }
    return _Offers(legal, sum([legal[at] != proposed[at] for at in proposed]), weigher)


def _judge(doors: Doors, caller: Caller) -> turn.Judge:
    rules = doors.rules.get(caller.alias) or doors.rules[""]

    def judge(message: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> Judgement:
        return artifact.judge(message, answers, rules)

    return judge


def _known(doors: Doors, it: Turn) -> dict[int, Verdict]:
    """The verdicts that this worker knows, by step.

    Only a step's last visible link counts: settling always makes the verdict known there, and
    another worker may have seen more of the step's results than an earlier link tells.
    """
    last = [it.messages[step.end - 1].link for step in it.steps]
    by_link = doors.ledger.known(last)
    return {index: by_link[link] for index, link in enumerate(last) if link in by_link}


def _stand(it: Turn, offered: Iterable[int], settled: Settled) -> dict[int, Verdict]:
    """What stands on the steps that were offered, by their index."""
    firsts = [(index, it.messages[it.steps[index].first].link) for index in offered]
    return {index: settled.verdicts[link] for index, link in firsts if link in settled.verdicts}


def _hints(doors: Doors, named: Names, it: Turn, front: Sequence[Element]) -> tuple[bytes, ...]:
    """Under what a branch can be found whose early history changed, the surest first.

    Tool-call ids; then the session together with its tools and system prompt, so that titles and
    sub-agents of a session do not hide its main line; then the session alone.
    """
    names = [f"call:{call}" for call in _latest_calls(it)]
    agent = fingerprint.digest(*(e.digest for e in front if e.part in _AGENT)).hex()
    sessions = [f"session:{value}" for value in _sessions(doors, named, it)]
    names += [f"{session} {agent}" for session in sessions]
    names += sessions
    known = it.carry.hints
    it.carry.hints = {name: known.get(name) or fingerprint.hint(it.scope, name) for name in names}
    return tuple([it.carry.hints[name] for name in names])


def _latest_calls(it: Turn) -> list[str]:
    """The ids of the latest calls, the last one first."""
    found: list[str] = []
    for step in reversed(it.steps):
        if calls := it.messages[step.first].calls:
            found += [call for call in reversed(calls) if call]
            if len(found) >= _HINTED_CALLS:
                break
    return found[:_HINTED_CALLS]


@lru_cache(8)
def _session_headers(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple([name.encode() for name in ("x-lethe-session", *names)])


def _sessions(doors: Doors, named: Names, it: Turn) -> Iterable[str]:
    """What the client calls its session, surest name first."""
    for header in _session_headers(doors.settings.session_headers):
        if value := named.get(header):
            yield fingerprint.short(value.decode("latin-1"))
    key = chat.field(it.fields, "prompt_cache_key")
    if isinstance(key, str) and key:
        yield fingerprint.short(key)


def record(
    doors: Doors, caller: Caller, it: Pruning, line: bytes, at: float, upstream: str,
    usage: Usage, reply: bytes, thought: Thought, shadows: Sequence[Shadow] = (),
) -> Record:  # fmt: skip
    """What this exchange leaves behind: what left, what is new of it, and the account."""
    rows = it.turn.messages
    link = rows[-1].link if rows else it.turn.root
    sent = Sent(
        link, it.sealed.outgoing, it.sealed.elements, at, upstream, usage.input, usage.output,
        usage.cache_read, reply, it.turn.conversation, usage.reasoning, thought.tokens,
        thought.estimated, tuple([it.record for it in shadows]),
    )  # fmt: skip
    root, conversation = it.turn.root, it.turn.conversation
    return Record(
        caller.scope, root, conversation, sent, line, it.entries, it.decided.hints, it.decided.task
    )


def _entries(
    doors: Doors, it: Turn, last: Sent | None, sealed: Sealed, rendered: Sequence[str]
) -> tuple[Entry, ...]:
    """The elements that the conversation did not hold yet, as they leave and as they came."""
    if doors.settings.ledger.history != "full":
        return ()
    own = last.elements if last and last.conversation == it.conversation else ()
    # Nearly always all of what was held is the beginning of what leaves.
    at = prefix.first_difference(own, sealed.elements)
    held = {e.digest for e in own} if at < len(own) else set()
    fresh = [e.digest for e in sealed.elements[at:] if e.digest not in held]
    if not fresh:
        return ()
    front = len(sealed.elements) - len(it.messages)
    if at >= front:
        rows = zip(it.messages[at - front :], sealed.elements[at:], strict=True)
        new = [(m, e) for m, e in rows if e.digest not in held]
        return tuple([_entry(it.body, message, element, sealed) for message, element in new])
    texts = _texts(it, sealed, set(fresh), rendered)
    return tuple([texts[digest] for digest in fresh if digest in texts])


def _texts(
    it: Turn, sealed: Sealed, wanted: set[bytes], rendered: Sequence[str]
) -> dict[bytes, Entry]:
    """The JSON text of those elements that are wanted."""
    front = len(sealed.elements) - len(it.messages)
    messages = zip(it.messages, sealed.elements[front:], strict=True)
    found = {
        element.digest: Entry(element.digest, _front_text(it, element.part, rendered))
        for element in sealed.elements[:front]
        if element.digest in wanted and element.part is not Part.SYSTEM
    }
    for message, element in (*((m, m.kept) for m in it.leading), *messages):
        if element.digest in wanted:
            found[element.digest] = _entry(it.body, message, element, sealed)
    return found


def _front_text(it: Turn, part: Part, rendered: Sequence[str]) -> bytes:
    match part:
        case Part.MODEL:
            return it.fields.get("model", b"null")
        case Part.PARAMS:
            named = [name for name in rendered if name in it.fields]
            return b"{" + b",".join([b'"%b":%b' % (n.encode(), it.fields[n]) for n in named]) + b"}"
        case _:
            return it.fields.get("tools") or it.fields.get("functions") or b"[]"


def _entry(body: bytes, message: fingerprint.Message, element: Element, sealed: Sealed) -> Entry:
    came = body[message.start : message.end]
    edits = sealed.edits
    if element is message.kept or not edits:
        return Entry(element.digest, came)
    first, stop = (bisect_left(edits, at, key=_start) for at in (message.start, message.end))
    inside = [
        chat.Edit(e.start - message.start, e.end - message.start, e.text) for e in edits[first:stop]
    ]
    left = chat.apply(came, inside)
    return Entry(element.digest, left, came if inside else None)
