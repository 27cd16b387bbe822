"""Climbs the spine for one request: read, propose, settle, seal. What cannot be read is left as it
came.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core import artifact, explain, fingerprint, outcome, prefix, turn
from proxy.core.artifact import Judgement
from proxy.core.expect import Cached, Reuse
from proxy.core.explain import Explanation
from proxy.core.policy import Name, Policy
from proxy.core.prefix import Cause
from proxy.core.pricing import Dropped
from proxy.core.sent import Element, Part, Sent
from proxy.core.turn import Sealed, Turn
from proxy.core.verdict import Verdict
from proxy.core.wire import chat
from proxy.doors import Doors
from proxy.errors import LedgerError
from proxy.keys import Caller
from proxy.ledger.contract import Ask, Entry, Offer, Record, Settled
from proxy.settings import UpstreamSettings

Names = Mapping[bytes, bytes]
_HINTED_CALLS = 8
_start = attrgetter("start")
_AGENT = frozenset({Part.TOOLS, Part.SYSTEM})


class Pruning(msgspec.Struct, frozen=True):
    """A request that was read, and all that was decided of it. `settle_seconds` is the wait for the
    ledger, `entries` what the conversation did not hold yet.
    """

    turn: Turn
    rule: Policy
    settled: Settled
    sealed: Sealed
    hints: tuple[bytes, ...]
    fresh: Mapping[str, int]
    adopted: int
    settle_seconds: float
    explained: Explanation
    entries: tuple[Entry, ...]
    recall_seconds: float | None

    def without_bodies(self) -> Pruning:
        """The same less the request's bytes: while the reply is awaited, nobody needs them."""
        it, sealed = replace(self.turn, body=b""), replace(self.sealed, body=b"")
        return replace(self, turn=it, sealed=sealed)

    def told(self, cached: Cached | None) -> outcome.Pruned:
        it = self.sealed
        return outcome.Pruned(
            self.turn.conversation.hex(), self.turn.root.hex(), str(self.rule),
            len(self.turn.steps),
            self.fresh, self.adopted, it.dropped, it.kept, it.dropped_bytes, it.kept_bytes,
            it.clamped, it.finding, self.settled.shared, self.explained, cached,
        )  # fmt: skip


async def prune(
    doors: Doors, caller: Caller, named: Names, it: Turn, up: UpstreamSettings
) -> Pruning:
    """Decide what is new, learn what stands, and seal. Raises BadHeader for a policy that is
    none.
    """
    setting = doors.ledger.setting(caller.scope)
    rule = doors.keyring.policy(caller, named, setting, it.model, up)
    front = doors.memo.front(it, doors.settings.rendered_params, _system_first(doors, up))
    hints = _hints(doors, caller, named, it, front)
    known = _known(doors, it)
    asked = doors.ticks()
    offers, settled = await _settle(doors, caller, it, rule, hints, known, setting)
    if settled.setting != setting:
        setting = settled.setting
        rule = doors.keyring.policy(caller, named, setting, it.model, up)
        offers, settled = await _settle(doors, caller, it, rule, hints, known, setting)
    waited = doors.ticks() - asked
    standing = {**known, **_stand(it, offers, settled)}
    untouched = rule.name is Name.OFF
    sealed = turn.seal(
        it, standing, front, settled.last_sent, settled.by_hint, untouched, settled.tip
    )
    fresh = Counter(
        verdict.kind.value
        for index, verdict in offers.items()
        if verdict and it.messages[it.steps[index].first].link in settled.put
    )
    adopted = len(offers) if settled.last_sent is None and len(offers) > 1 else 0
    recalled = doors.ticks()
    explained = await _explained(doors, it, up, sealed.basis, sealed)
    recall = doors.ticks() - recalled if explained is not explain.NONE else None
    entries = _entries(doors, it, settled.last_sent, sealed)
    return Pruning(
        it, rule, settled, sealed, hints, fresh, adopted, waited, explained, entries, recall
    )


def _system_first(doors: Doors, up: UpstreamSettings) -> bool:
    """The order in which the upstream renders a prompt: as it is set, else by its contract."""
    if up.system_first is not None:
        return up.system_first
    rule = doors.cache_rules[up.name]
    return rule is not None and rule.system_first


def dropped_tokens(it: Pruning) -> Dropped:
    """What left this request, in tokens, estimated: of steps that the last one held already, of
    those that are new, and what else the new ones say.
    """
    sealed, rows = it.sealed, it.turn.messages
    front = len(sealed.elements) - len(rows)
    known = len(sealed.basis.elements) - front if sealed.basis else len(rows)
    gone = [
        message
        for message, element in zip(rows[known:], sealed.elements[front + known :], strict=False)
        if message.edits and element is not message.kept
    ]
    now = sum(message.kept.reasoning for message in gone)
    behind = sum(message.dropped.size for message in gone)
    return Dropped(_tokens(sealed.dropped_bytes - now), _tokens(now), _tokens(behind))


def _tokens(size: int) -> int:
    """Four bytes a token: an estimate."""
    return size // 4


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
    before = after = None
    if finding.cause is not Cause.SELF and doors.settings.ledger.history == "full":
        before = await _text_before(doors, last, last.elements[at].digest)
        digest = sealed.elements[at].digest
        texts = _texts(it, sealed, {digest}, doors.settings.rendered_params)
        after = texts[digest].left if digest in texts else None
    rule = doors.cache_rules[up.name]
    generated = rule is not None and rule.reuse is Reuse.GENERATED
    return explain.explain(finding, last, sealed.elements, before, after, generated)


async def _text_before(doors: Doors, last: Sent, digest: bytes) -> bytes | None:
    """What stood there, if the ledger tells it within the time that settling may take."""
    try:
        async with asyncio.timeout(doors.settings.ledger.timeout):
            entries = await doors.ledger.recall(last.conversation, [digest])
    except (TimeoutError, LedgerError):
        return None
    return entries[digest].left if digest in entries else None


async def _settle(
    doors: Doors, caller: Caller, it: Turn, rule: Policy, hints: tuple[bytes, ...],
    known: Mapping[int, Verdict], setting: str | None,
) -> tuple[Mapping[int, Verdict | None], Settled]:  # fmt: skip
    offers = turn.propose(it, rule, _judge(doors, caller), known.__contains__)
    ask = Ask(
        caller.scope, it.root, it.conversation, tuple([m.link for m in it.messages]),
        tuple([Offer(it.links(it.steps[index]), verdict) for index, verdict in offers.items()]),
        hints,
        setting,
    )  # fmt: skip
    return offers, await doors.ledger.settle(ask)


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


def _hints(
    doors: Doors, caller: Caller, named: Names, it: Turn, front: Sequence[Element]
) -> tuple[bytes, ...]:
    """Under what a branch can be found whose early history changed, the surest first.

    Tool-call ids; then the session together with its tools and system prompt, so that titles and
    sub-agents of a session do not hide its main line; then the session alone.
    """
    calls = [call for m in it.messages[-4 * _HINTED_CALLS :] for call in m.calls if call]
    names = [f"call:{call}" for call in reversed(calls[-_HINTED_CALLS:])]
    agent = fingerprint.digest(*(e.digest for e in front if e.part in _AGENT)).hex()
    sessions = [f"session:{value}" for value in _sessions(doors, named, it)]
    names += [f"{session} {agent}" for session in sessions]
    return tuple(
        fingerprint.digest(caller.scope, name.encode("utf-8", "surrogatepass"))
        for name in (*names, *sessions)
    )


def _sessions(doors: Doors, named: Names, it: Turn) -> Iterable[str]:
    """What the client calls its session, surest name first."""
    for header in ("x-lethe-session", *doors.settings.session_headers):
        value = named.get(header.encode())
        if value:
            yield value.decode("latin-1")
    key = chat.field(it.fields, "prompt_cache_key")
    if isinstance(key, str) and key:
        yield key


def record(
    doors: Doors, caller: Caller, it: Pruning, line: Mapping[str, Any], at: float, upstream: str,
    tokens: tuple[int | None, int | None, int | None], reply: bytes,
) -> Record:  # fmt: skip
    """What this exchange leaves behind: what left, what is new of it, and the account."""
    prompt, output, cached = tokens
    rows = it.turn.messages
    link = rows[-1].link if rows else it.turn.root
    sent = Sent(
        link, it.sealed.outgoing, it.sealed.elements, at, upstream, prompt, output, cached, reply,
        it.turn.conversation,
    )  # fmt: skip
    root, conversation = it.turn.root, it.turn.conversation
    return Record(caller.scope, root, conversation, sent, line, it.entries, it.hints)


def _entries(doors: Doors, it: Turn, last: Sent | None, sealed: Sealed) -> tuple[Entry, ...]:
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
    texts = _texts(it, sealed, set(fresh), doors.settings.rendered_params)
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
            rows = (b'"%b":%b' % (n.encode(), it.fields[n]) for n in rendered if n in it.fields)
            return b"{" + b",".join(rows) + b"}"
        case _:
            return it.fields.get("tools") or it.fields.get("functions") or b"[]"


def _entry(body: bytes, message: fingerprint.Message, element: Element, sealed: Sealed) -> Entry:
    came = body[message.start : message.end]
    edits = sealed.edits if element is not message.kept else ()
    first, stop = (bisect_left(edits, at, key=_start) for at in (message.start, message.end))
    inside = [
        chat.Edit(e.start - message.start, e.end - message.start, e.text) for e in edits[first:stop]
    ]
    left = chat.apply(came, inside)
    return Entry(element.digest, left, came if inside else None)
