"""A conversation: a real reply and its echoes, or longer and longer prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.doctor import caching, prompts
from proxy.doctor.answers import NOT_ASKED, Answer
from proxy.doctor.caching import Echoed, Rung
from proxy.doctor.prompts import Json
from proxy.doctor.visit import FILL_SECONDS, Visit


class Growing:
    """Every prompt begins with the one before it. `carrier` is one that is read, if any.

    No step has reasoning, so that of each prompt no more is cached than what was sent before.
    """

    def __init__(self, visit: Visit, carrier: str) -> None:
        self.chain: list[Rung] = []
        self.last = NOT_ASKED  # the prompt with all messages so far
        self._visit = visit
        self._salt = visit.fresh_salt()
        self._messages: list[Json] = [*prompts.opening(visit.dialect, self._salt)]
        self._carrier = carrier
        self._steps = 0
        self._seen: list[tuple[int, int]] = []  # words and tokens of the steps

    async def reply(self) -> Echoed:
        """A real reply to the first prompt, and its echoes."""
        return await self._echoed(await self._replied())

    async def climb(self) -> None:
        """Grow until the cache's rule shows or there is no hope of it."""
        self.last = await self._ask("a first prompt", self._messages)
        self.chain.append(Rung(self.last))
        while (size := caching.next_size(self.chain)) is not None:
            rung = await self._grown(size)
            if rung.missed and caching.is_doubtful(self.chain) and not self._visit.patient:
                await self._once_more(rung)

    async def late_reply(self, block: int) -> Echoed:
        """A real reply where it fills a block and the prompt is above the minimum."""
        before = self.last.prompt or 0
        self._grow(before, caching.room_for_a_reply(before, block))
        await self._visit.let_it_fill()
        answer = await self._replied()
        self.last = answer if answer.ok else self.last
        return await self._echoed(answer)

    async def user_turn(self) -> tuple[Answer, Answer]:
        """A new user message behind all; the same with a thought in the first step."""
        if not self._steps:
            return NOT_ASKED, NOT_ASKED
        turn = prompts.new_turn(self._visit.dialect)
        await self._visit.let_it_fill()
        plain = await self._ask("a new user message", [*self._messages, *turn])
        thinking = prompts.carried(self._messages[2], self._carrier, prompts.thought())
        messages = [*self._messages[:2], thinking, *self._messages[3:], *turn]
        return plain, await self._ask("the same with a thought", messages)

    def _body(self, messages: Sequence[Json], most: int) -> dict[str, Any]:
        return prompts.body(self._visit.dialect, self._salt, tuple(messages), most)

    async def _ask(self, name: str, messages: Sequence[Json]) -> Answer:
        return await self._visit.ask(name, self._body(messages, 1))

    async def _replied(self) -> Answer:
        """A real reply: one that calls a tool, where that can be had.

        Behind a tool result no template takes reasoning away, as many do behind a user message.
        """
        body = self._body(self._messages, prompts.REPLY_TOKENS)
        answer = await self._visit.ask("a long reply", body)
        if not self._visit.dialect.tools or not answer.ok or _calls(answer):
            return answer
        again = await self._visit.ask("a tool call", prompts.forced(body))
        return again if _calls(again) else answer

    async def _echoed(self, answer: Answer) -> Echoed:
        if answer.message is None:
            return Echoed(answer)
        kept = prompts.echo(answer.message, self._carrier)
        answered = _calls(answer)
        await self._visit.let_it_fill()
        whole = await self._ask("the reply echoed", [*self._messages, *kept])
        if not answer.seen.reasoning or not self._carrier:
            return Echoed(answer, whole, answered=answered, mute=not self._carrier)
        less = prompts.forgotten(kept, self._visit.dialect)
        bare = await self._ask("its reasoning dropped", [*self._messages, *less])
        return Echoed(answer, whole, bare, answered)

    def _grow(self, before: int, size: int) -> int:
        """Add a step, so that the prompt has about so many tokens; the words that it took."""
        words = caching.words_for(size - before, self._seen)
        self._messages += prompts.step(self._visit.dialect, self._steps, words)
        self._steps += 1
        return words

    async def _grown(self, size: int) -> Rung:
        """Ask for a prompt of about so many tokens that begins with the last one."""
        before = self.chain[-1].answer.prompt or 0
        words = self._grow(before, size)
        await self._visit.let_it_fill()
        rung = Rung(await self._ask(f"{size:,} tokens", self._messages), before)
        self.chain.append(rung)
        self.last = rung.answer
        if rung.answer.prompt is not None:
            self._seen.append((words, rung.answer.prompt - before))
        return rung

    async def _once_more(self, missed: Rung) -> None:
        """Ask the same again, after a while: the first miss may have been a cache that was slow.

        It was slow where the same has been read of a prompt that was no longer.
        """
        await self._visit.door.nap(FILL_SECONDS)
        again = await self._ask("the same again", self._messages)
        rung = Rung(again, max(0, (again.prompt or 0) - 1))
        if not rung.hit:
            return
        if missed.common >= min(it.answer.cached or 0 for it in (*caching.hits(self.chain), rung)):
            self._visit.patient = True
            self.chain = [it for it in self.chain if not it.missed]  # they told of time, not size
        self.chain.append(rung)


def _calls(answer: Answer) -> bool:
    return answer.message is not None and bool(prompts.called(answer.message))
