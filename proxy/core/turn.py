"""The spine: what happens to one request, as a row of pure steps.

    read      body → Turn          messages as byte ranges, each with its link
    propose   Turn → verdicts      what this worker would say of every step that is not settled
    (settle)  the ledger says what stands, ours or an earlier writer's
    seal      Turn + what stands → Sealed    the body as it leaves, laid beside what was last sent

A verdict is taken once, when a step is first seen in the history, and holds for ever, because a
provider's prompt cache serves a prefix only while it is byte for byte the same: what leaves may
grow at its end and nowhere else. So a verdict is a property of the *link* of the step (a digest of
all that was said up to there), never of the request; whoever asks again, on whatever worker, under
whatever policy, gets the verdict that stands. Where a store was lost, the policies that look only
at the append point give the same verdicts anew, and the bytes do not change.

Nothing is serialised: a sealed body is the body that came, less byte ranges. So where nothing is
taken out the very bytes that came leave, and all that is not reasoning is untouched by
construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from proxy.core import fingerprint, policy, prefix, steps
from proxy.core.artifact import Judgement
from proxy.core.fingerprint import Message, digest
from proxy.core.form import Shape
from proxy.core.policy import Policy
from proxy.core.prefix import Finding
from proxy.core.sent import Element, Part, Sent
from proxy.core.steps import Step
from proxy.core.verdict import Kind, Verdict
from proxy.core.wire import chat
from proxy.core.wire.chat import Edit, Head, Unreadable

__all__ = ["Known", "Sealed", "Turn", "Unreadable", "propose", "read", "seal", "unknown"]

_LEADING = frozenset({"system", "developer"})
LONGEST_MODEL = 200
"""Characters of a model's name as it is known. No provider has longer ones."""
Judge = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Judgement]
Pays = Callable[[int], bool]
"""Whether forgetting the reasoning of a step, by its index, pays (policy `horizon`)."""


class Carried(msgspec.Struct, frozen=True):
    """What sealing made of a turn's messages, for the next one, which begins with them: where the
    same verdicts stand on the same steps, the same is made of them. The counts are `Sealed`'s.
    """

    verdicts: tuple[Verdict | None, ...]
    elements: tuple[Element, ...]
    others: tuple[Element, ...]
    edits: tuple[Edit, ...]
    dropped: int
    dropped_bytes: int
    clamped: int


class Carry:
    """What the last turn left, and a place for what this one leaves: what was sealed, and hints by
    their names. Nothing depends on it but the time that things take, so it makes no difference
    between two turns.
    """

    __slots__ = ("hints", "last", "made")

    def __init__(self, before: Carry | None = None) -> None:
        self.last = before.made if before else None
        self.hints: Mapping[str, bytes] = before.hints if before else {}
        self.made: Carried | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Carry)


class Known(msgspec.Struct, frozen=True):
    """What was read of a body, up to the end of its last message: a later one may begin so."""

    head: Head
    leading: tuple[Message, ...]
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    carry: Carry


class Turn(msgspec.Struct, frozen=True):
    """One request as it came. `leading` are the system messages before the first other one: they
    are no links.

    `root` is the link of the first message, `conversation` that of the first assistant message, and
    the root where there is none yet. `model` is its name, in short where it is very long.
    """

    body: bytes
    fields: Mapping[str, bytes]
    scope: bytes
    model: str
    leading: tuple[Message, ...]
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    root: bytes
    conversation: bytes
    carry: Carry = msgspec.field(default_factory=Carry)

    def decoded(self, message: Message) -> Mapping[str, Any]:
        """The message as a mapping; empty where it is none."""
        try:
            value = chat.decode(self.body[message.start : message.end])
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def links(self, step: Step) -> tuple[bytes, ...]:
        return tuple(m.link for m in self.messages[step.first : step.end])


class Sealed(msgspec.Struct, frozen=True):
    """A request as it leaves.

    `elements` are in prompt order, `outgoing` digests them all. `dropped` and `kept` count steps
    that hold reasoning, by what was done with it; the bytes are those of the reasoning text.
    `clamped` counts those of the kept whose verdict could not be carried out, because their
    reasoning is signed or not to be told apart.
    """

    body: bytes
    edits: tuple[Edit, ...]
    elements: tuple[Element, ...]
    outgoing: bytes
    finding: Finding
    basis: Sent | None
    dropped: int
    kept: int
    dropped_bytes: int
    kept_bytes: int
    clamped: int


def read(body: bytes, scope: bytes, known: Known | None = None) -> Turn:
    """Read a request. `known` must be of a body with the same first bytes. Raises `Unreadable`."""
    found = chat.continued(body, known.head) if known else None
    if found is None or known is None:
        known, found = None, chat.layout(body)
    leading = list(known.leading) if known else []
    messages = list(known.messages) if known else []
    if len(leading) + len(messages) + len(found.spans) > chat.MAX_MESSAGES:
        raise Unreadable("too_many_messages")
    link = messages[-1].link if messages else fingerprint.root_of(scope)
    for start, end in found.spans:
        message = fingerprint.read(body, start, end, link)
        if not messages and message.role in _LEADING:
            leading.append(message)
        else:
            messages.append(message)
            link = message.link
    cut = steps.cut(messages, known.steps if known else ())
    root, conversation = _names(messages, cut, scope)
    return Turn(
        body, found.fields, scope, _model_in(found.fields),
        tuple(leading), tuple(messages), cut, root, conversation,
        Carry(known.carry if known else None),
    )  # fmt: skip


def _model_in(fields: Mapping[str, bytes]) -> str:
    model = chat.field(fields, "model")
    return fingerprint.short(model, LONGEST_MODEL) if isinstance(model, str) else ""


def _names(messages: Sequence[Message], cut: Sequence[Step], scope: bytes) -> tuple[bytes, bytes]:
    root = messages[0].link if messages else fingerprint.root_of(scope)
    return root, messages[cut[0].first].link if cut else root


def knowledge(turn: Turn, before: Known | None = None) -> Known | None:
    """What a later body that begins like this one need not read again; None where that cannot be
    told.

    `before` is what this one was read with: the beginning of both is the same.
    """
    rows = (*turn.leading, *turn.messages)
    if not rows:
        return None
    fields = (
        before.head.fields if before else chat.head_fields(turn.body, turn.fields, rows[0].start)
    )
    if fields is None:
        return None
    return Known(Head(fields, rows[-1].end), turn.leading, turn.messages, turn.steps, turn.carry)


def unknown(index: int) -> bool:
    """What is not known is no reason to forget."""
    return False


def propose(
    turn: Turn, rule: Policy, judge: Judge, settled: Callable[[int], bool], pays: Pays = unknown
) -> Mapping[int, Verdict | None]:
    """The policy's verdict on every step that is not known to be settled, by the step's index."""
    return {
        index: _verdict(turn, index, rule, judge, pays)
        for index in range(len(turn.steps))
        if not settled(index)
    }


def _verdict(turn: Turn, index: int, rule: Policy, judge: Judge, pays: Pays) -> Verdict | None:
    step, later = turn.steps[index], len(turn.steps) - index - 1
    rows = turn.messages[step.first : step.end]
    said = digest(*(row.kept.said for row in rows)) if rule.name is policy.Name.RANDOM else b""

    def judged() -> Judgement:
        message, *answers = [turn.decoded(row) for row in rows]
        return judge(message, answers)

    return policy.decide(rule, step.complete, later, said, judged, lambda: pays(index))


def seal(
    turn: Turn,
    standing: Mapping[int, Verdict],
    front: Sequence[Element],
    last: Sent | None,
    by_hint: bool = False,
    untouched: bool = False,
    tip: Sent | None = None,
    shapes: Mapping[int, Shape] | None = None,
    refused: Sequence[Element] = (),
) -> Sealed:
    """Carry out what stands. `standing` maps step index to verdict; a step without one is sent as
    it came. `shapes` are the messages, by index, that leave in a form of their own, whatever the
    verdict.

    `front` are the elements before the messages. `untouched` is policy `off`: not one byte is
    changed. `refused` are the elements of the same turn as it left first: what differs from them is
    our doing.
    """
    shapes = {} if untouched or shapes is None else shapes
    made = _made(turn, {} if untouched else standing, shapes)
    elements, others = [*front, *made.elements], [*front, *made.others]
    edits = made.edits
    if shapes:
        elements, others, edits = _shaped(turn, front, made, shapes)
    else:
        turn.carry.made = made
    kept = [e.reasoning for e in elements if e.reasoning]

    def begins(at: int, earlier: Element) -> bool:
        return at >= len(front) and fingerprint.begins_with(
            turn.decoded(turn.messages[at - len(front)]), earlier
        )

    finding, basis = prefix.compare(last, elements, refused or others, by_hint, begins, tip)
    return Sealed(
        body=chat.apply(turn.body, edits),
        edits=edits,
        elements=tuple(elements),
        outgoing=outgoing_digest(elements),
        finding=finding,
        basis=basis,
        dropped=made.dropped,
        kept=len(kept),
        dropped_bytes=made.dropped_bytes,
        kept_bytes=sum(kept),
        clamped=made.clamped,
    )


_NOTHING = Carried((), (), (), (), 0, 0, 0)


def _made(turn: Turn, standing: Mapping[int, Verdict], shapes: Mapping[int, Shape]) -> Carried:
    """What the verdicts make of the messages, those of `shapes` aside; of what was carried over
    only what is new.
    """
    verdicts = tuple([standing.get(index) for index in range(len(turn.steps))])
    known = turn.carry.last if not shapes else None
    if known is None or verdicts[: len(known.verdicts)] != known.verdicts:
        known = _NOTHING
    rows = turn.messages[len(known.elements) :]
    fresh, others = [row.kept for row in rows], [row.dropped for row in rows]
    edits, gone, clamped = list(known.edits), [], 0
    for index in range(len(known.verdicts), len(verdicts)):
        verdict, at = verdicts[index], turn.steps[index].first
        if verdict is None or verdict.kind is Kind.KEEP:
            continue
        message, place = turn.messages[at], at - len(known.elements)
        if at in shapes:
            if shapes[at].drops:
                gone.append(message.kept.reasoning)
        elif message.edits:
            fresh[place], others[place], cuts = _carried_out(message, verdict)
            edits += cuts
            gone.append(message.kept.reasoning)
        elif message.kept.reasoning:
            clamped += 1
    return Carried(
        verdicts,
        (*known.elements, *fresh),
        (*known.others, *others),
        tuple(edits),
        known.dropped + len(gone),
        known.dropped_bytes + sum(gone),
        known.clamped + clamped,
    )


def _shaped(
    turn: Turn, front: Sequence[Element], made: Carried, shapes: Mapping[int, Shape]
) -> tuple[list[Element], list[Element], tuple[Edit, ...]]:
    """Elements, other forms and edits, with the messages that have a form of their own."""
    elements, others = [*front, *made.elements], [*front, *made.others]
    edits = list(made.edits)
    for at, shape in shapes.items():
        edits += shape.edits
        elements[at + len(front)] = shape.element
        others[at + len(front)] = turn.messages[at].kept
    edits.sort(key=_start)
    return elements, others, tuple(edits)


_start = attrgetter("start", "end")


def outgoing_digest(elements: Sequence[Element]) -> bytes:
    """One digest over a whole prompt: equal digests, equal prompts."""
    return digest(b"".join([element.digest for element in elements]))


def _carried_out(message: Message, verdict: Verdict) -> tuple[Element, Element, Sequence[Edit]]:
    """The element that leaves, the one that the opposite verdict would have sent, the edits."""
    if verdict.kind is Kind.DROP or not verdict.text or not message.slots:
        return message.dropped, message.kept, message.edits
    return _replaced(message, verdict.text)


def _replaced(message: Message, text: str) -> tuple[Element, Element, Sequence[Edit]]:
    """The text takes the place of the first string that held reasoning; all else goes."""
    literal = chat.literal(text)
    first = message.slots[0]
    edits = [
        Edit(e.start, e.end, literal) if (e.start, e.end) == first else e for e in message.edits
    ]
    raw = text.encode("utf-8", "surrogatepass")
    bare = message.dropped
    element = Element(
        bare.part, digest(bare.said, b"replace", raw), bare.said, bare.gist,
        bare.size + len(raw), len(raw), bare.role,
    )  # fmt: skip
    return element, message.kept, edits


def front_of(
    turn: Turn, rendered: Sequence[str], system_first: bool, tools: tuple[Element, ...]
) -> tuple[Element, ...]:
    """The elements before the messages, in prompt order."""
    model = _front(Part.MODEL, turn.model.encode("utf-8", "surrogatepass"))
    named = [name for name in rendered if name in turn.fields]
    params = _front(Part.PARAMS, *[b"%b=%b" % (n.encode(), _form(turn.fields[n])) for n in named])
    system = tuple([_as_system(message.kept) for message in turn.leading])
    return (model, params, *system, *tools) if system_first else (model, params, *tools, *system)


def _form(raw: bytes) -> bytes:
    """A value in canonical form; its bytes where no reader can decode it."""
    try:
        return fingerprint.canonical(chat.exact(raw))
    except ValueError:
        return raw


def _front(part: Part, *forms: bytes) -> Element:
    whole = digest(*forms)
    return Element(part, whole, whole, whole[:8], sum(map(len, forms)), 0, "")


def tools_element(raw: bytes) -> tuple[Element, ...]:
    """The tools as one element, none where there are none. Their `gist` is that of any order."""
    if not raw or raw in (b"[]", b"null"):
        return ()
    try:
        tools = chat.exact(raw)
    except ValueError:
        tools = None
    forms = list(map(fingerprint.canonical, tools)) if isinstance(tools, list) else [_form(raw)]
    whole = digest(*forms)
    return (Element(Part.TOOLS, whole, whole, digest(*sorted(forms), size=8), len(raw), 0, ""),)


def _as_system(e: Element) -> Element:
    return Element(Part.SYSTEM, e.digest, e.said, e.gist, e.size, 0, e.role)
