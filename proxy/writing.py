"""How one exchange writes its messages: the wire that its conversation is pinned to, the replies
that its messages echo, and the form that each takes.

A wire is the contract's, with what was learned since from a 400. It is pinned with the conversation
for each upstream and model when the first assistant message leaves, so that a contract which
changes meanwhile does not rewrite what a cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from proxy.core import dialect, echo, fingerprint, form
from proxy.core.contract import Contract, Requires, Reuse
from proxy.core.dialect import Wire
from proxy.core.fingerprint import Message
from proxy.core.form import Shape
from proxy.core.replies import Reply
from proxy.core.turn import Turn
from proxy.core.verdict import Kind, Verdict
from proxy.doors import Doors
from proxy.ledger.contract import Ask, Echo
from proxy.settings import Settings, UpstreamSettings

Replies = Mapping[bytes, Reply | None]
LESSON_SECONDS = 7 * 24 * 3600.0
"""For how long what a 400 taught holds for new conversations: providers change."""
LOOK_EVERY = 60.0
"""Seconds between two looks at what other workers have learned of an upstream and model."""


def wire_for(contract: Contract, up: UpstreamSettings, settings: Settings) -> Wire:
    """The wire of a contract under the settings."""
    generated = contract.cache is not None and contract.cache.reuse is Reuse.GENERATED
    wanted = contract.requires in (Requires.TOOL_CALLS, Requires.EVERY) or generated
    at_rest = settings.ledger.history == "full"
    restores = up.restore == "always" or (up.restore == "auto" and wanted and at_rest)
    repairs = up.echo_repair == "auto" and generated and at_rest
    return dialect.wire_of(contract, up.carrier == "as_sent", restores, repairs)


def names_of(up: UpstreamSettings, model: str) -> tuple[str, str]:
    """The pins of a wire: the first one, and the one that a 400 put in its place."""
    return _names(up.name, model)


MOST_NAMES = 256
"""Pairs of an upstream and a model whose names are remembered: every exchange asks for them."""


@lru_cache(MOST_NAMES)
def _names(upstream: str, model: str) -> tuple[str, str]:
    raw = model.encode("utf-8", "surrogatepass")
    tag = fingerprint.digest(upstream.encode(), raw, size=8).hex()
    return f"wire:{tag}", f"mended:{tag}"


async def offered(doors: Doors, it: Turn, up: UpstreamSettings, contract: Contract) -> Wire:
    """The wire that this conversation gets if none is pinned to it."""
    own = wire_for(contract, up, doors.settings)
    raw = await _learned(doors, up, it.model)
    return dialect.unpacked(raw, own) if raw else own


async def _learned(doors: Doors, up: UpstreamSettings, model: str) -> bytes | None:
    """What a 400 has taught of an upstream and model, here or on another worker."""
    key, now = (up.name, model), doors.ticks()
    at, raw = doors.state.lessons.get(key, (-LOOK_EVERY, None))
    if now - at < LOOK_EVERY:
        return raw
    if len(doors.state.lessons) >= MOST_LESSONS:
        doors.state.lessons.clear()
    doors.state.lessons[key] = (now, raw)
    raw = await doors.ledger.lesson(names_of(up, model)[0])
    doors.state.lessons[key] = (now, raw)
    return raw


MOST_LESSONS = 1_000


async def learn(doors: Doors, up: UpstreamSettings, model: str, wire: Wire) -> None:
    raw = dialect.packed(wire)
    doors.state.lessons[up.name, model] = (doors.ticks(), raw)
    await doors.ledger.learn(names_of(up, model)[0], raw, LESSON_SECONDS)


def asked_pins(up: UpstreamSettings, model: str, wire: Wire) -> Mapping[str, bytes | None]:
    """The pins to ask for, what counts first: whether a 400 put one there, and the first one."""
    first, mended = names_of(up, model)
    return {mended: None, first: dialect.packed(wire)}


def pinned(doors: Doors, it: Turn, up: UpstreamSettings) -> Wire | None:
    """The wire that this worker knows to stand; None where it has to be asked."""
    known = doors.ledger.pinned(it.root, it.conversation)
    if not known:
        return None
    first, mended = names_of(up, it.model)
    raw = known.get(mended) or known.get(first)
    return doors.forms.wire(raw) if raw else None


def echoes(doors: Doors, it: Turn, wire: Wire) -> tuple[Replies, tuple[Echo, ...]]:
    """What is known of the replies that the assistant messages echo, and what has to be asked."""
    if not wire.looks_back:
        return {}, ()
    places = [step.first for step in it.steps]
    known = doors.ledger.echoed([it.messages[at].link for at in places])
    asked = [_echo(it, at) for at in places if it.messages[at].link not in known]
    return known, tuple(asked)


async def found(doors: Doors, it: Turn, setting: str | None, wire: Wire) -> tuple[Replies, int]:
    """The replies that the assistant messages echo; how many of them are missed from now on."""
    known, asked = echoes(doors, it, wire)
    if not asked:
        return known, 0
    settled = await doors.ledger.settle(asks(it, setting, echoes=asked))
    return {**known, **settled.echoes}, settled.missed


def asks(it: Turn, setting: str | None, **more: object) -> Ask:
    """Nothing of a turn but what is named."""
    chain = tuple([m.link for m in it.messages])
    return replace(Ask(it.scope, it.root, it.conversation, chain, (), (), setting), **more)


def _echo(it: Turn, at: int) -> Echo:
    message = it.messages[at]
    before = it.messages[at - 1].link if at else fingerprint.root_of(it.scope)
    return Echo(message.link, echo.keys_of_echo(before, message))


def shapes(
    doors: Doors, it: Turn, standing: Mapping[int, Verdict], wire: Wire, replies: Replies
) -> dict[int, Shape]:
    """The messages that leave in a form of their own, by index."""
    found: dict[int, Shape] = {}
    for index, step in () if wire.is_plain else enumerate(it.steps):
        verdict = standing.get(index)
        kind = verdict.kind if verdict else Kind.KEEP
        if kind is Kind.REPLACE and not (wire.refuses or wire.keeps):
            continue
        message, carried = it.messages[step.first], wire.kind(kind)
        shape = _shape(doors, it.body, message, kind, carried, wire, replies.get(message.link))
        if shape is not None:
            found[step.first] = shape
    return found


def _shape(
    doors: Doors, body: bytes, message: Message, stands: Kind, kind: Kind, wire: Wire,
    reply: Reply | None,
) -> Shape | None:  # fmt: skip
    drop = kind is Kind.DROP
    if stands is not kind:
        # Refused there: it leaves as the other verdict would have it.
        return _against(doors, body, message, kind, wire, reply)
    if (drop or reply is None) and form.is_plain(message, drop, wire):
        return None
    return doors.forms.shape(body, message, kind, None if drop else reply, wire)


def _against(
    doors: Doors, body: bytes, message: Message, kind: Kind, wire: Wire, reply: Reply | None
) -> Shape | None:
    keep = kind is Kind.KEEP
    shape = doors.forms.shape(body, message, kind, reply if keep else None, wire)
    return shape or (Shape((), message.kept) if keep else None)


def counts(found: Sequence[Shape]) -> dict[str, int]:
    """What was done beside dropping, by name."""
    done: dict[str, int] = {}
    for shape in found:
        for what in shape.did:
            done[what] = done.get(what, 0) + 1
    return done
