"""What is asked, in which order, and when it is enough. All conclusions are drawn elsewhere.

1. the list of models, a whole reply, streams with and without `include_usage`;
2. histories with a unique text in each carrier, with none, with an empty one, with null;
3. a real reply echoed whole and without its reasoning;
4. a conversation that grows, until the cache's rule shows; at its end 3. again where a reply was
   too short for the blocks, and a new user message.

What an answer makes pointless is not asked. A key that is refused, and an upstream that is not
there, end it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.doctor import caching, carried, prompts
from proxy.doctor.answers import NOT_ASKED, Answer, Listed
from proxy.doctor.door import Door
from proxy.doctor.growing import Growing
from proxy.doctor.prompts import Dialect, Messages
from proxy.doctor.record import Record
from proxy.doctor.visit import NotExamined, Tick, Visit, key_refused


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an examination may take: requests, prompt and generated tokens."""

    requests: int
    prompt: int
    generated: int


MOST = Estimate(requests=50, prompt=100_000, generated=3_400)
"""Where nothing is read from the cache before 4,096 tokens, and nothing is taken as first asked.

A request that a busy upstream turned away, and that was asked once more, counts once.
"""
USUAL = Estimate(requests=30, prompt=20_000, generated=1_200)
"""Where prompts from 1,024 tokens on are cached, or smaller ones: then it is half of that."""


async def examine(door: Door, model: str, salt: str, tick: Tick) -> Record:
    """All answers of one examination; `tick` is told each question. Raises NotExamined."""
    visit = Visit(door, Dialect(model), salt, tick)
    listed = await _models(visit)
    first = await _first_reply(visit)
    record = Record(visit.dialect, listed, first)
    if not first.ok:
        _complain_if_hopeless(door, record)
        return record
    streamed, bare = await _streams(visit)
    record = replace(record, streamed=streamed, bare=bare)
    record = replace(record, loop=await _carriers(visit, record))
    record = replace(record, dialect=visit.dialect)
    visit.dialect = replace(visit.dialect, empty=carried.empty_carrier(record))
    return await _cache(visit, record) if first.prompt is not None else record


async def _models(visit: Visit) -> Listed:
    visit.tick("models")
    listed = await visit.door.models(visit.dialect.model)
    if listed.answer.status == 401:
        raise NotExamined(key_refused(visit.door, 401))
    return listed


def _complain_if_hopeless(door: Door, record: Record) -> None:
    status = record.first.status
    if status == 403:
        raise NotExamined(key_refused(door, status))
    if status == 0 and record.listed.answer.status == 0:
        raise NotExamined(f"{door.url}: {record.first.trouble}; is --upstream right?")


async def _first_reply(visit: Visit) -> Answer:
    """A whole reply, asked again in another way as long as a refusal names one."""
    salt = visit.fresh_salt()
    while True:
        messages = prompts.opening(visit.dialect, salt)
        body = prompts.body(visit.dialect, salt, messages, prompts.BRIEF_TOKENS)
        answer = await visit.ask("a whole reply", body)
        other = prompts.adapted(visit.dialect, answer.said) if answer.refused else None
        if other is None:
            return answer
        visit.dialect = other


async def _streams(visit: Visit) -> tuple[Answer, Answer]:
    salt = visit.fresh_salt()
    messages = prompts.opening(visit.dialect, salt)
    body = prompts.body(visit.dialect, salt, messages, prompts.BRIEF_TOKENS, stream=True)
    streamed = await visit.ask("a stream, usage asked", prompts.asking_for_usage(body))
    return streamed, await visit.ask("a stream", body)


async def _carriers(visit: Visit, record: Record) -> dict[str, Answer]:
    """By carrier, and `absent`, `empty`, `null`, `plain` (see `Record.loop`)."""
    salt, loop, dialect = visit.fresh_salt(), dict[str, Answer](), visit.dialect
    start = prompts.opening(dialect, salt)
    counted = record.first.prompt is not None

    async def put(name: str, messages: Messages) -> None:
        body = prompts.body(dialect, salt, (*start, *messages), 1)
        loop[name] = await visit.ask(f"history: {name}", body)

    await put("absent", prompts.step(dialect, 0, 6))
    if loop["absent"].refused and prompts.wants_longer(dialect, loop["absent"].said):
        visit.dialect = dialect = replace(dialect, least=prompts.LEAST_TOKENS)
        await put("absent", prompts.step(dialect, 0, 6))
    for carrier in prompts.CARRIERS if counted else prompts.STRINGS[:1]:
        await put(carrier, prompts.step(dialect, 0, 6, carrier))
    string = carried.string_carrier(replace(record, loop=loop))
    empty = prompts.step(replace(dialect, empty=string), 0, 6)
    await put("empty", empty)
    said, *rest = prompts.step(dialect, 0, 6)
    await put("null", (prompts.nulled(said, string), *rest))
    if loop["absent"].refused and loop["empty"].ok:
        await put("plain", (*empty, *prompts.plain_turn()))
    return loop


async def _cache(visit: Visit, record: Record) -> Record:
    """The questions that only counts answer."""
    carrier = carried.preferred(record)
    echoes = [await Growing(visit, carrier).reply()]
    grown = Growing(visit, carrier)  # apart: an echo must not be what a longer prompt begins with
    await grown.climb()
    block = caching.block_of(grown.chain)
    for _ in range(caching.WITNESSES):
        if block is not None and caching.reuse_of(grown.chain, echoes, block) is None:
            echoes.append(await grown.late_reply(block))
    plain, thoughtful = await grown.user_turn() if carrier else (NOT_ASKED, NOT_ASKED)
    return replace(
        record,
        chain=tuple(grown.chain),
        echoes=tuple(echoes),
        before_turn=grown.last,
        turn_plain=plain,
        turn_carried=thoughtful,
    )
