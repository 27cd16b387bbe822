"""Conclusions from counts: what is reported, what the cache does, what a new user message does."""

from __future__ import annotations

from proxy.core.contract import Reuse, StreamUsage, UserTurn
from proxy.doctor import caching, prompts
from proxy.doctor import carried as carried_by
from proxy.doctor.answers import Answer
from proxy.doctor.carried import uncounted
from proxy.doctor.conclusion import Conclusion, unknown
from proxy.doctor.record import Record
from proxy.page.plain import noun, numbered


def usage(record: Record) -> Conclusion[bool]:
    first = record.first
    if not first.ok:
        return unknown("usage", first.why)
    if first.prompt is None:
        return Conclusion("usage", False, "not reported", "a whole reply bore none")
    generated = numbered(first.generated, "generated token")
    how = f"a whole reply told {first.prompt} prompt and {generated}"
    return Conclusion("usage", True, "reported", how)


def stream_usage(record: Record) -> Conclusion[StreamUsage]:
    what, asking, bare = "usage in streams", record.streamed, record.bare
    if bare.ok and bare.usage:
        how = "a stream told it without include_usage"
        return Conclusion(what, StreamUsage.ALWAYS, "always", how)
    if asking.ok and asking.usage:
        how = "told with include_usage, not without"
        return Conclusion(what, StreamUsage.ASK, "when asked", how)
    if asking.refused and bare.ok:
        how = f"include_usage: {asking.why}; without it: answered"
        return Conclusion(what, StreamUsage.REFUSED, "refused", how)
    if asking.ok:
        return unknown(what, "a stream told none, asked or not")
    return unknown(what, asking.why)


def _cached_answers(record: Record) -> list[Answer]:
    echoed = [answer for it in record.echoes for answer in (it.asked, it.kept, it.dropped)]
    return [record.first, *record.loop.values(), *(rung.answer for rung in record.chain), *echoed]


def reports_cache(record: Record) -> Conclusion[bool]:
    what = "cached tokens"
    if not record.first.ok or record.first.prompt is None:
        return unknown(what, uncounted(record))
    if caching.reported(_cached_answers(record)):
        most = max(answer.cached or 0 for answer in _cached_answers(record))
        return Conclusion(what, True, "reported", f"the most that was told is {most}")
    return Conclusion(what, False, "not reported", "no reply named them, repeated prompts neither")


# The cache


def _hits_told(record: Record) -> str:
    pairs = [f"{it.answer.cached} of {it.common}" for it in caching.hits(record.chain)]
    return ", ".join(pairs)


def block(record: Record, block: int | None) -> Conclusion[int]:
    what, hits = "cache block", _hits_told(record)
    if block is not None:
        how = f"read of what had been sent before: {hits}"
        return Conclusion(what, block, numbered(block, "token"), how)
    if hits:
        return unknown(what, f"no one block fits what was read: {hits}")
    return unknown(what, _no_hits(record))


def minimum(record: Record, minimum: int | None) -> Conclusion[int]:
    what = "cache minimum"
    if minimum is None:
        return unknown(what, _no_hits(record) if not _hits_told(record) else "the block is unknown")
    missed = [rung.common for rung in record.chain if rung.missed]
    least = min(rung.answer.cached or 0 for rung in caching.hits(record.chain))
    if minimum == 0:
        return Conclusion(what, 0, "none", f"the least that was read is {least}")
    how = f"nothing read of {', '.join(map(str, missed))}; the least that was read is {least}"
    return Conclusion(what, minimum, numbered(minimum, "token"), how)


def _no_hits(record: Record) -> str:
    if reports_cache(record).value is not True:
        return "cached tokens are not reported"
    most = max((rung.common for rung in record.chain), default=0)
    return f"nothing was read, not of {numbered(most, 'token')} just sent before"


def reuse(record: Record, reuse: Reuse | None) -> Conclusion[Reuse]:
    what = "cache re-uses"
    told = "; ".join(_echo_told(it) for it in record.echoes if it.kept.ok)
    match reuse:
        case Reuse.GENERATED:
            return Conclusion(what, reuse, "prompt and generated tokens", told)
        case Reuse.PROMPT:
            return Conclusion(what, reuse, "the prompt only", told)
        case Reuse.NONE if record.chain and reports_cache(record).value:
            return Conclusion(what, reuse, "nothing", _no_hits(record))
        case _:
            hits = _hits_told(record)
            why = f"no echo of a reply was telling: {told or 'none came'}"
            return unknown(what, why if hits else _no_hits(record))


def _echo_told(echoed: caching.Echoed) -> str:
    sent, made, kept = echoed.asked.prompt, echoed.asked.generated, echoed.kept
    if sent is None or made is None:
        return "a reply was not counted"
    most = f"P + G - 1 = {sent + made - 1}"
    return f"sent P = {sent}, generated G = {made} ({most}), then {kept.cached} read"


def visible(record: Record) -> Conclusion[bool]:
    """Whether a dropped reasoning is seen in the counts of the next request."""
    what = "a drop shows"
    told = [it for it in record.echoes if it.kept.prompt and it.dropped.prompt]
    if not told:
        return unknown(what, "no real reply bore reasoning that could be dropped")
    echoed = told[-1]
    fewer = (echoed.kept.prompt or 0) - (echoed.dropped.prompt or 0)
    how = (
        f"echoed whole {echoed.kept.cached} of {echoed.kept.prompt} read, "
        f"reasoning dropped {echoed.dropped.cached} of {echoed.dropped.prompt}"
    )
    if fewer > 0:
        return Conclusion(what, True, f"yes: {numbered(fewer, 'prompt token')} fewer", how)
    return Conclusion(what, False, "no: the prompt is as long", how)


def user_turn(record: Record, block: int | None, minimum: int | None) -> Conclusion[UserTurn]:
    what, before = "a new user message", record.before_turn
    plain, carried = record.turn_plain, record.turn_carried
    rule = None if block is None or minimum is None else (block, minimum)
    words = prompts.THOUGHT_WORDS
    if not carried_by.reads(record).value:
        return unknown(what, "no reasoning is read, so none can be dropped")
    found = caching.user_turn_of(before, plain, carried, words, rule)
    if found is None:
        return unknown(what, carried.why if plain.ok else plain.why)
    more = (carried.prompt or 0) - (plain.prompt or 0)
    grown = f"{more:+d} {noun(more, 'token')} in the prompt"
    how = f"{words} words of reasoning in the loop before it: {grown}"
    match found:
        case UserTurn.KEEPS:
            return Conclusion(what, found, "keeps the reasoning before it", how)
        case UserTurn.DROPS:
            told = "drops the reasoning before it: a kept one's prefix breaks there"
            return Conclusion(what, found, told, how)
        case UserTurn.STUB:
            how += f"; without any, {plain.cached} of {before.prompt} were read"
            return Conclusion(what, found, "renders all before it anew: the prefix breaks", how)
