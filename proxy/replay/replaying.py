"""Replays one session: every request through the core under every policy, laid beside a modelled
prompt cache, and counted.

All policies go through the session side by side, so it is read once. The sizes of the elements come
from what left when it was recorded, which the policy of that time tells: that is one lane more,
where it is not among those that are asked for. The continuation is fixed: whatever is forgotten,
the same replies follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from proxy.core import artifact, fingerprint, turn
from proxy.core.cachemodel import Segments, size
from proxy.core.fingerprint import Message
from proxy.core.sent import Element
from proxy.core.turn import Known, Turn
from proxy.core.usage import Usage
from proxy.core.wire.chat import Unreadable
from proxy.replay.course import Course
from proxy.replay.lane import Lane
from proxy.replay.plan import KEEP, Plan, parsed, recorded_under
from proxy.replay.rows import Row
from proxy.replay.sessions import Asked, Session, Unusable
from proxy.replay.sizes import BYTES_A_TOKEN, Foretold, Sizes
from proxy.replay.sources import Chunk, found_in

_SCOPE = bytes(16)
NEAR = 0.02
"""How far a prompt may be from what was foretold, as a share of it."""


def replay(session: Session, file: str, plan: Plan) -> Row:
    """Raises Unusable where nothing of it can be replayed."""
    run = _Run(session, plan)
    for asked in session.requests():
        run.take(asked)
    if not run.requests:
        raise Unusable("none of its requests can be read")
    return run.row(session, file)


class _Run:
    def __init__(self, session: Session, plan: Plan) -> None:
        try:
            self.policy = recorded_under(plan, session.label)
        except ValueError as error:
            raise Unusable(f"the policy it was recorded under: {error}") from None
        names = dict.fromkeys((self.policy, *plan.policies))
        self._plan, self._reader = plan, _Reader()
        self._sizes = Sizes(plan.ratios.get(session.model, BYTES_A_TOKEN))
        self._lanes = {name: Lane(parsed(name), artifact.judge) for name in names}
        self._courses = {name: Course(plan.caches, plan.prices) for name in plan.policies}
        self._reply: _Reply | None = None
        self._fit = _Fit()
        self.requests = self._unread = self._steps = 0
        self._output = self._reasoning = self._estimated = 0

    def take(self, asked: Asked) -> None:
        """One request; one whose body cannot be read is left out."""
        try:
            it = self._reader.read(asked.body)
        except Unreadable:
            self._unread += 1
            return
        front = self._reader.front(it, self._plan.rendered)
        chain = tuple([message.link for message in it.messages])
        self._take_echo(it)
        sealed = {name: lane.seal(it, front, chain) for name, lane in self._lanes.items()}
        self._fit.take(self._sizes, sealed[self.policy].elements, asked.usage)
        self._reply = _Reply(asked, it, self._sizes)
        reply, kept = self._reply, (*front, *[message.kept for message in it.messages])

        def generated() -> Segments:
            return reply.segments(self._sizes)

        for name, course in self._courses.items():
            usage = asked.usage if name == self.policy else None
            course.take(sealed[name], kept, self._sizes, usage, reply.output, generated)
        self.requests += 1
        self._steps = max(self._steps, len(it.steps))
        self._output += reply.output
        self._reasoning += reply.reasoning
        self._estimated += reply.output if reply.estimated else 0

    def weighed(self) -> tuple[float, float]:
        """Bytes, and the tokens that they are by recorded counts."""
        return self._sizes.weighed

    def _take_echo(self, it: Turn) -> None:
        """A reply that was not recorded is what stands in its place in the next request."""
        if self._reply is not None and self._reply.element is None:
            self._reply.take_echo(it, self._sizes)

    def row(self, session: Session, file: str) -> Row:
        fit = self._fit
        return Row(
            file, session.id, session.format, session.model, session.label, self.policy,
            self.requests, self._unread, self._steps,
            self._output, self._reasoning, self._estimated,
            fit.anchored, fit.foretold, fit.near, fit.recorded, fit.modelled,
            tuple([self._courses[name].under() for name in self._plan.policies]),
        )  # fmt: skip


class _Reader:
    """Reads bodies, each from where the one before it ends, as far as it extends it."""

    def __init__(self) -> None:
        self._known: Known | None = None
        self._begun = b""
        self._tools: tuple[bytes, tuple[Element, ...]] = (b"", ())

    def read(self, body: bytes) -> Turn:
        known = self._known if self._begun and body.startswith(self._begun) else None
        it = turn.read(body, _SCOPE, known)
        self._known = turn.knowledge(it, known)
        self._begun = body[: self._known.head.end] if self._known else b""
        return it

    def front(self, it: Turn, rendered: Sequence[str]) -> tuple[Element, ...]:
        raw = it.fields.get("tools", b"") + it.fields.get("functions", b"")
        if raw != self._tools[0]:
            self._tools = raw, turn.tools_element(raw)
        return turn.front_of(it, rendered, False, self._tools[1])


class _Reply:
    """What came back on a request, in the form in which it would come back to the provider."""

    def __init__(self, asked: Asked, it: Turn, sizes: Sizes) -> None:
        self._usage, self._end = asked.usage, len(it.messages)
        self._last = it.messages[-1].link if it.messages else b""
        self.element: Element | None = None
        if asked.reply:
            self._take(fingerprint.read(asked.reply, 0, len(asked.reply), b""), sizes)
        self.estimated = asked.usage.output is None
        self.output = asked.usage.output or (size(self.segments(sizes)) if self.estimated else 0)
        self.reasoning = self._thought(sizes)

    def _take(self, message: Message, sizes: Sizes) -> None:
        self.element = message.kept
        sizes.take_reply(message.kept, self._usage)

    def take_echo(self, it: Turn, sizes: Sizes) -> None:
        if len(it.messages) <= self._end or not self._end:
            return
        echo = it.messages[self._end]
        if it.messages[self._end - 1].link == self._last and echo.role == "assistant":
            self._take(echo, sizes)

    def segments(self, sizes: Sizes) -> Segments:
        return sizes.segments(self.element) if self.element else ()

    def _thought(self, sizes: Sizes) -> int:
        if self._usage.reasoning is not None:
            return min(self._usage.reasoning, self.output)
        said = self.segments(sizes)
        return said[0].tokens if len(said) > 1 else 0


@dataclass(slots=True)
class _Fit:
    """How well the sizes hold against the recorded counts."""

    anchored: int = 0
    foretold: int = 0
    near: int = 0
    recorded: int = 0
    modelled: int = 0

    def take(self, sizes: Sizes, elements: tuple[Element, ...], usage: Usage) -> None:
        fits, foretold = sizes.take_prompt(elements, usage)
        self.anchored += fits
        if foretold:
            self.foretold += 1
            self.near += _is_near(foretold)
        if usage.input is not None:
            self.recorded += usage.input
            self.modelled += sizes.total


def _is_near(it: Foretold) -> bool:
    return abs(it.tokens - it.recorded) <= NEAR * it.recorded


# Sizes of models


SAMPLED = 32
"""Sessions that are looked at, of the first chunks, to learn what a token of a model has in
bytes.
"""


def learned(plan: Plan, chunks: Sequence[Chunk]) -> Plan:
    """The plan with what the first sessions that have counts say of their models' tokens: for those
    that have none. The same for every process, so that all give the same numbers.
    """
    keep = replace(plan, policies=(KEEP,), caches=(), prices=())
    seen: dict[str, tuple[float, float]] = {}
    for found in islice((it for chunk in chunks for it in found_in(chunk)), SAMPLED):
        if found.session is None:
            continue
        size, tokens = _weighed(found.session, keep)
        before = seen.get(found.session.model, (0.0, 0.0))
        seen[found.session.model] = (before[0] + size, before[1] + tokens)
    return replace(plan, ratios={name: a / b for name, (a, b) in seen.items() if b})


def _weighed(session: Session, plan: Plan) -> tuple[float, float]:
    try:
        run = _Run(session, plan)
        for asked in session.requests():
            run.take(asked)
    except Unusable:
        return 0.0, 0.0
    return run.weighed()
