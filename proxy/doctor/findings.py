"""What the answers say: one conclusion a question. Nothing is asked here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from proxy.core.contract import (
    CacheRule,
    Drops,
    Encoding,
    Pattern,
    Requires,
    Reuse,
    StreamUsage,
    UserTurn,
)
from proxy.doctor import caching, carried, counted
from proxy.doctor.answers import Answer
from proxy.doctor.conclusion import Conclusion, unknown
from proxy.doctor.record import Record
from proxy.page.plain import numbered


@dataclass(frozen=True, slots=True)
class Findings:
    """In the order in which they are told. `errors` and `rule` are what follows from them."""

    reachable: Conclusion[bool]
    key: Conclusion[bool]
    owned_by: Conclusion[str]
    streams: Conclusion[bool]
    writes: Conclusion[str]
    writes_streamed: Conclusion[str]
    reads: Conclusion[tuple[str, ...]]
    requires: Conclusion[Requires]
    encoding: Conclusion[Encoding]
    null: Conclusion[bool]
    drops: Conclusion[Drops]
    usage: Conclusion[bool]
    stream_usage: Conclusion[StreamUsage]
    reports_cache: Conclusion[bool]
    block: Conclusion[int]
    minimum: Conclusion[int]
    reuse: Conclusion[Reuse]
    visible: Conclusion[bool]
    user_turn: Conclusion[UserTurn]
    errors: tuple[Pattern, ...]
    rule: CacheRule | None

    @property
    def rows(self) -> list[Conclusion[Any]]:
        values = [getattr(self, field.name) for field in fields(self)]
        return [value for value in values if isinstance(value, Conclusion)]


def conclude(record: Record, keyed: bool) -> Findings:
    """`keyed`: whether a key was sent."""
    reuse, block, minimum = caching.rule_of(record.chain, record.echoes)
    return Findings(
        reachable=_reachable(record),
        key=_key(record, keyed),
        owned_by=_owned_by(record),
        streams=_streams(record),
        writes=_writes("reasoning comes in", record.first, "a whole reply"),
        writes_streamed=_writes("reasoning comes in, streamed", record.streamed, "a stream"),
        reads=carried.reads(record),
        requires=carried.requires(record),
        encoding=carried.encoding(record),
        null=carried.null(record),
        drops=carried.drops(record),
        usage=counted.usage(record),
        stream_usage=counted.stream_usage(record),
        reports_cache=counted.reports_cache(record),
        block=counted.block(record, block),
        minimum=counted.minimum(record, minimum),
        reuse=counted.reuse(record, reuse),
        visible=counted.visible(record),
        user_turn=counted.user_turn(record, block, minimum),
        errors=carried.errors(record),
        rule=caching.as_rule(reuse, block, minimum),
    )


# The way there


def _reachable(record: Record) -> Conclusion[bool]:
    what, first = "chat completions", record.first
    if first.ok:
        return Conclusion(what, True, "answered", _dialect_told(record))
    return unknown(what, first.why)


def _dialect_told(record: Record) -> str:
    dialect = record.dialect
    odd = [
        *([f"bounded by {dialect.limit}"] if dialect.limit != "max_tokens" else []),
        *([] if dialect.temperature else ["temperature not taken"]),
        *([] if dialect.tools else ["tools not taken: asked without"]),
    ]
    return "a whole reply came" + "".join(f"; {it}" for it in odd)


def _key(record: Record, keyed: bool) -> Conclusion[bool]:
    if not record.first.ok:
        return unknown("key", "no reply came")
    if keyed:
        return Conclusion("key", True, "taken", "a reply came to a request that bore it")
    return Conclusion("key", True, "none needed", "a reply came to a request without one")


def _owned_by(record: Record) -> Conclusion[str]:
    what, listed = "models list", record.listed
    if not listed.answer.ok:
        return unknown(what, f"/models: {listed.answer.why}")
    here = "names this model" if record.dialect.model in listed.ids else "does not name this model"
    owner = f"owned_by {listed.owned_by}" if listed.owned_by else "no owned_by"
    return Conclusion(what, listed.owned_by, owner, f"/models: {len(listed.ids)} listed, {here}")


def _streams(record: Record) -> Conclusion[bool]:
    answers = [answer for answer in (record.streamed, record.bare) if answer.ok]
    if not answers:
        return unknown("streaming", record.bare.why)
    if any(answer.streamed for answer in answers):
        ended = "ended with [DONE]" if all(a.seen.done for a in answers) else "ended, no [DONE]"
        return Conclusion("streaming", True, "yes", f"events came, {ended}")
    return Conclusion("streaming", False, "no", "asked for a stream, a whole body came")


def _writes(what: str, answer: Answer, where: str) -> Conclusion[str]:
    if not answer.ok:
        return unknown(what, answer.why)
    carriers = answer.seen.carriers
    if carriers:
        also = f"; the same in {', '.join(carriers[1:])}" if carriers[1:] else ""
        return Conclusion(what, carriers[0], carriers[0], f"{where} bore it{also}")
    hidden = answer.seen.usage.reasoning
    if hidden:
        return Conclusion(
            what, "", "none: hidden", f"{numbered(hidden, 'reasoning token')}, no text of them"
        )
    return Conclusion(what, None, "none seen", f"{where} bore none: it may come at other tasks")
