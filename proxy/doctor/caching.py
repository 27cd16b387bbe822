"""What counts of cached tokens tell of a cache: its block, its minimum, what it re-uses.

A conversation that only grows is asked again and again. Of each prompt as many tokens are in the
cache already as the prompt before it had (dropped steps, so that no generated token counts), and
what the provider reports is that number by its own rule:

- Reports are multiples of the block, and fall short of what is shared by less than a block (and by
  the same few tokens each time, where a template ends its prompts otherwise than it goes on).
- Where nothing is reported although something is shared, the minimum lies above that.
- A report above what was ever sent can only be what was generated.

A provider may miss what it has (another machine, a cache that takes a second to fill): a hit
proves, a miss does not. A report of less than half of what is shared is taken for a miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.core.contract import CacheRule, Reuse, UserTurn
from proxy.doctor.answers import NOT_ASKED, Answer

RUNGS = (300, 1000, 1090, 1300, 2000, 2115, 2400, 4000, 4165, 4600)
"""Prompt sizes, in tokens, after the first one's, until something is read from the cache: on both
sides of 1,024, 2,048 and 4,096, the minima that providers name.
"""
UNREPORTED_RUNGS = 5
"""So many are asked where a report is missing each time."""
ENOUGH_HITS = 5
WITNESSES = 2
"""So many echoes have to show that only prompts are re-used: one may have been rendered otherwise
than it was generated. That generated tokens are, one shows.
"""
_PLACES = (110, 95, 121, 84)
"""Where in a block of 128 the sizes after a hit fall: in the upper half of it and of its halves,
and nowhere twice, down to blocks of 16.
"""
_LEAST_GROWTH = 90
_LEAST_BLOCK = 16
"""A block is one token or so many at the least: vLLM's 16, SGLang's pages, what providers tell."""
_MOST_OF_A_TEMPLATE = 24
"""Tokens that a template may put behind a prompt and take back in the next one."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One prompt of the growing conversation. `common`: tokens of it that were sent before."""

    answer: Answer
    common: int = 0

    @property
    def hit(self) -> bool:
        cached = self.answer.cached or 0
        return self.common > 0 and 2 * cached >= self.common

    @property
    def missed(self) -> bool:
        return self.common > 0 and self.answer.ok and not self.hit


@dataclass(frozen=True, slots=True)
class Echoed:
    """A real reply (`asked`), sent back whole (`kept`) and without its reasoning (`dropped`).

    `answered`: tool results came after it, not a user message. `mute`: nothing is read from a
    history, so `kept` is without its reasoning too.
    """

    asked: Answer
    kept: Answer = NOT_ASKED
    dropped: Answer = NOT_ASKED
    answered: bool = False
    mute: bool = False


def next_size(chain: Sequence[Rung]) -> int | None:
    """Tokens that the next prompt should have; None where enough is known."""
    last = chain[-1].answer.prompt
    if last is None or len(hits(chain)) >= ENOUGH_HITS or len(chain) > len(RUNGS) + ENOUGH_HITS:
        return None
    if count := len(hits(chain)):
        least = last + _LEAST_GROWTH
        return least + (_PLACES[count - 1] - least) % 128
    silent = all(rung.answer.cached is None for rung in chain)
    if silent and len(chain) >= UNREPORTED_RUNGS:
        return None
    return next((size for size in RUNGS if size > last * 1.04), None)


def is_doubtful(chain: Sequence[Rung]) -> bool:
    """Whether the miss at the end may be one of time: nothing was read yet, or as much was before.

    That is asked at the first two prompts after the first, where a doubt is cheap.
    """
    read = [rung.answer.cached or 0 for rung in hits(chain)]
    return len(chain) == 2 or (len(chain) <= 4 and bool(read) and chain[-1].common >= min(read))


def hits(chain: Sequence[Rung]) -> list[Rung]:
    return [rung for rung in chain if rung.hit]


def block_of(chain: Sequence[Rung]) -> int | None:
    """Tokens; None where fewer than three hits, or none that agree, were seen."""
    pairs = [(rung.common, rung.answer.cached or 0) for rung in hits(chain)]
    if len(pairs) < 3:
        return None
    short = [common - cached for common, cached in pairs]
    if min(short) == max(short):
        return 1
    spread = max(short) - min(min(short), 8)
    divisors = _divisors(math.gcd(*(cached for _, cached in pairs)))
    return next((d for d in divisors if d > spread and d >= _LEAST_BLOCK), None)


def _divisors(number: int) -> Iterator[int]:
    return (d for d in range(1, number + 1) if number % d == 0)


def minimum_of(chain: Sequence[Rung], block: int) -> int:
    """The least that is read from the cache, in tokens; 0 where every size was.

    It lies above what was missed and not above the least that was read: of these the largest power
    of two, as providers choose them, else the least that was read.
    """
    read = min(rung.answer.cached or 0 for rung in hits(chain))
    missed = [rung.common // block * block for rung in chain if rung.missed]
    above = max((size for size in missed if size < read), default=0)
    if above == 0:
        return 0
    power: int = 1 << (read.bit_length() - 1)
    return power if power > above else read


def reported(answers: Sequence[Answer]) -> bool:
    """Whether any of them tells cached tokens, be it 0."""
    return any(answer.cached is not None for answer in answers)


def reuse_of(chain: Sequence[Rung], echoes: Sequence[Echoed], block: int | None) -> Reuse | None:
    """What stays in the cache when a request is over; None where that cannot be told."""
    if any(map(reads_generated, echoes)):
        return Reuse.GENERATED
    if not hits(chain):
        told = any(rung.missed and rung.answer.cached is not None for rung in chain)
        return Reuse.NONE if told else None
    witnesses = [it for it in echoes if block is not None and reads_prompt_only(it, block)]
    return Reuse.PROMPT if len(witnesses) >= WITNESSES else None


def reads_generated(echoed: Echoed) -> bool:
    """Whether more was read than the prompt that was sent."""
    prompt, cached = echoed.asked.prompt, echoed.kept.cached
    return prompt is not None and cached is not None and cached > prompt


def reads_prompt_only(echoed: Echoed, block: int) -> bool:
    """Whether generated tokens stood in the prompt again, filled a block, and were not read."""
    prompt, generated = echoed.asked.prompt, echoed.asked.generated
    again, cached = echoed.kept.prompt, echoed.kept.cached
    if not prompt or not generated or again is None or not cached:
        return False
    if not prompt // 2 <= cached <= prompt:
        return False
    if echoed.mute and echoed.asked.seen.reasoning:
        return True  # nobody can send back what was generated
    reach = min(prompt + generated - 1, again - 1) // block * block
    return prompt < reach and stands_again(echoed)


def stands_again(echoed: Echoed) -> bool:
    """Whether the whole reply, its reasoning included, is in the prompt that echoes it."""
    asked, kept, dropped = echoed.asked, echoed.kept, echoed.dropped
    grown = (kept.prompt or 0) - (asked.prompt or 0) >= (asked.generated or 0)
    if not asked.seen.reasoning:
        return grown
    fewer = (kept.prompt or 0) - (dropped.prompt or 0) if dropped.ok else 0
    return grown and echoed.answered and fewer > 0


def rule_of(
    chain: Sequence[Rung], echoes: Sequence[Echoed]
) -> tuple[Reuse | None, int | None, int | None]:
    """Re-use, block and minimum, as far as each is known."""
    block = block_of(chain)
    minimum = None if block is None else minimum_of(chain, block)
    return reuse_of(chain, echoes, block), block, minimum


def as_rule(reuse: Reuse | None, block: int | None, minimum: int | None) -> CacheRule | None:
    """A rule of which every part is known; None else, as half a rule would be a guess."""
    if reuse is Reuse.NONE:
        return CacheRule(Reuse.NONE)
    if reuse is None or block is None or minimum is None:
        return None
    return CacheRule(reuse, block, minimum)


def user_turn_of(
    before: Answer, plain: Answer, carried: Answer, words: int, rule: tuple[int, int] | None
) -> UserTurn | None:
    """What a new user message does to the reasoning before it.

    `before` is the prompt of the loop without reasoning, `plain` that with an answer and a user
    message behind it, `carried` the same with a text of so many words as reasoning in the loop.
    `rule` is block and minimum, where they are known. STUB: even the loop without reasoning is
    rendered otherwise then, so its prefix breaks.
    """
    if plain.prompt is None or carried.prompt is None:
        return None
    if 2 * (carried.prompt - plain.prompt) >= words:
        return UserTurn.KEEPS
    if rule is None or plain.cached is None or before.prompt is None:
        return UserTurn.DROPS
    block, minimum = rule
    if plain.cached == 0 == minimum:  # not even the system message: a miss, which proves nothing
        return UserTurn.DROPS
    survives = plain.cached >= (before.prompt - _MOST_OF_A_TEMPLATE) // block * block
    return UserTurn.DROPS if survives else UserTurn.STUB


def words_for(tokens: int, seen: Sequence[tuple[int, int]]) -> int:
    """How many words make a step of so many tokens; `seen` are words and tokens of steps so far."""
    ratio, markup = 1.3, 40.0
    if seen:
        words, took = seen[-1]
        ratio = _ratio((took - markup) / words)
    if len(seen) > 1 and abs(words - seen[-2][0]) >= 20:
        ratio = _ratio((took - seen[-2][1]) / (words - seen[-2][0]))
        markup = took - ratio * words
    return max(6, round((tokens - markup) / ratio))


def _ratio(tokens_a_word: float) -> float:
    return min(8.0, max(0.5, tokens_a_word))


def room_for_a_reply(prompt: int, block: int) -> int:
    """Tokens that the next prompt should have, so that a short reply fills a block."""
    least = prompt + 60
    if block < 16:
        return least
    return least + (4 * block // 5 - least) % block
