"""Two workers on one ledger, in any order and at the same time: first writer wins, and for ever.

The machine grows histories, lets either worker (or both at once) settle their steps with verdicts
that have nothing to do with each other, keep replies, ask for their echoes and pin values, and
holds every answer against what was answered before. It runs on a shared memory whose every verb
yields in its middle, and on a real server with two ledgers that have memories of their own. The
mutants at the end show that it can fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from itertools import cycle, pairwise
from typing import Any, ClassVar, Protocol

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)  # fmt: skip
from msgspec.structs import replace

from proxy.core.replies import Reply
from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.ledger.contract import Ask, Echo, Kept, Offer, Record, Settled
from proxy.ledger.in_memory import InMemory, Options
from proxy.ledger.in_redis import InRedis
from proxy.ledger.in_redis import Options as RedisOptions
from tests.doors.redis_server import Server, binaries, running
from tests.ledger.words import (
    NOW,
    SCOPE,
    Clock,
    ask,
    conversation_of,
    digest,
    elements,
    record,
    reply,
    written,
)  # fmt: skip

History = tuple[str, ...]

MESSAGES = ("assistant 1", "assistant 2", "tool x", "tool y")
VERDICTS = (KEEP, DROP, Verdict(Kind.REPLACE, "one state"), Verdict(Kind.REPLACE, "another"))
LIMITS = settings(
    max_examples=60, stateful_step_count=25, deadline=None,
    suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
)  # fmt: skip

# A mutant only has to be found, not told in its shortest form.
PHASES = (Phase.explicit, Phase.generate)

WORDS = ("ids", "text")
PINS = st.dictionaries(st.sampled_from(["encoding", "order"]), st.sampled_from([b"1", b"2", b"3"]))

histories = Bundle("histories")
replies = st.integers(1, 3).map(reply)
words = st.lists(st.sampled_from(WORDS), unique=True, max_size=2)
verdicts = st.sampled_from(VERDICTS)
messages = st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=4)


def chain_of(history: History) -> tuple[bytes, ...]:
    return tuple(digest(history[: end + 1]) for end in range(len(history)))


def steps_of(history: History) -> list[tuple[bytes, ...]]:
    """The links of each step: an assistant message and what follows it up to the next one."""
    chain = chain_of(history)
    starts = [at for at, message in enumerate(history) if message.startswith("assistant")]
    return [chain[a:b] for a, b in pairwise([*starts, len(chain)])]


def echoes_of(history: History, these: Sequence[str]) -> list[Echo]:
    """The assistant messages, each looked for under the link before it and these words."""
    chain = chain_of(history)
    return [
        Echo(chain[at], keys_after(chain[at - 1], these))
        for at, message in enumerate(history)
        if message.startswith("assistant")
    ]


def keys_after(link: bytes, these: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(digest(link, word) for word in these)


class Worker(Protocol):
    """What the machine needs of a ledger."""

    def known(self, links: Sequence[bytes]) -> Any: ...

    def echoed(self, links: Sequence[bytes]) -> Any: ...

    def pinned(self, root: bytes, conversation: bytes) -> Any: ...

    async def settle(self, ask: Ask) -> Settled: ...

    async def keep(self, kept: Kept) -> bool: ...

    def remember(self, record: Record) -> None: ...


class Machine(RuleBasedStateMachine):
    """`decided` has what was answered for a step, by the last link of it that was visible; `found`
    what was answered for an echo, by its link; `pinned` what was, by conversation and name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.workers: list[Worker] = []
        self.decided: dict[bytes, Verdict] = {}
        self.sent: dict[bytes, Record] = {}
        self.kept: dict[bytes, Reply] = {}
        self.found: dict[bytes, Reply | None] = {}
        self.pinned: dict[tuple[bytes, str], bytes] = {}
        self.clock = 0

    async def make(self, pauses: list[int]) -> list[Worker]:
        raise NotImplementedError

    async def end(self) -> None:
        """Let go of the workers."""

    async def lands(self, worker: Worker) -> None:
        """Wait until what a worker remembered can be found by the other."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.end())
        self.runner.close()

    @initialize(pauses=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def begin(self, pauses: list[int]) -> None:
        self.workers = self.run(self.make(pauses))

    @initialize(target=histories)
    def first(self) -> History:
        return ("user",)

    @rule(target=histories, history=histories, more=messages)
    def grow(self, history: History, more: list[str]) -> History:
        return (*(history if len(history) > 1 else ("user", "assistant 1")), *more)[:12]

    @rule(target=histories, history=histories, length=st.integers(2, 6), more=messages)
    def fork(self, history: History, length: int, more: list[str]) -> History:
        return (*history[:length], *more) if len(history) > 1 else history

    def question(self, worker: Worker, history: History, verdict: Verdict | None) -> Ask:
        """Offer what is not known for good, as the spine does."""
        fresh = [links for links in steps_of(history) if not worker.known(links[-1:])]
        return ask(chain_of(history), *(Offer(links, verdict) for links in fresh))

    def check_known(self, worker: Worker, history: History) -> None:
        for links in steps_of(history):
            for verdict in worker.known(links[-1:]).values():
                assert self.decided[links[-1]] == verdict

    def expected(self, links: Sequence[bytes]) -> Verdict | None:
        """What stands for a step by all answers so far."""
        return next((self.decided[link] for link in reversed(links) if link in self.decided), None)

    @rule(history=histories, at=st.integers(0, 1), verdict=verdicts)
    def settle(self, history: History, at: int, verdict: Verdict) -> None:
        worker = self.workers[at]
        self.check_known(worker, history)
        question = self.question(worker, history, verdict)
        before = {offer.links: self.expected(offer.links) for offer in question.offers}

        answer = self.run(worker.settle(question))

        for offer in question.offers:
            given = answer.verdicts[offer.links[0]]
            assert (before[offer.links] or verdict) == given
            self.decided[offer.links[-1]] = given
        assert sum(stood is None for stood in before.values()) == answer.won
        self.check_last_sent(history, answer)
        self.check_known(worker, history)

    @rule(history=histories, at=st.integers(0, 1))
    def only_ask(self, history: History, at: int) -> None:
        worker = self.workers[at]
        question = self.question(worker, history, None)

        answer = self.run(worker.settle(question))

        for offer in question.offers:
            stood = self.expected(offer.links)
            assert answer.verdicts.get(offer.links[0]) == stood
            if stood is not None:
                self.decided[offer.links[-1]] = stood
        assert 0 == answer.won

    @rule(one=histories, other=histories, mine=verdicts, theirs=verdicts)
    def settle_at_once(self, one: History, other: History, mine: Verdict, theirs: Verdict) -> None:
        questions = [
            self.question(self.workers[0], one, mine), self.question(self.workers[1], other, theirs)
        ]  # fmt: skip
        before = dict(self.decided)

        async def both() -> list[Settled]:
            async with asyncio.TaskGroup() as group:
                pairs = zip(self.workers, questions, strict=True)
                tasks = [group.create_task(worker.settle(q)) for worker, q in pairs]
            return [task.result() for task in tasks]

        answers = self.run(both())

        answered: dict[bytes, Verdict] = {}
        fresh = set()
        for question, answer in zip(questions, answers, strict=True):
            for offer in question.offers:
                given = answer.verdicts[offer.links[0]]
                stood = next(
                    (before[link] for link in reversed(offer.links) if link in before), None
                )
                assert given == stood if stood else given in (mine, theirs)
                # Whoever saw the same of a step got the same answer.
                assert given == answered.setdefault(offer.links[-1], given)
                if stood is None:
                    fresh.add(offer.links[-1])
        self.decided |= answered
        # A step seen in part may have been put in part only, before or after the whole of it.
        parts = [links for links in fresh if any(links in q for q in _longer(questions, links))]
        assert len(fresh) - len(parts) <= sum(answer.won for answer in answers) <= len(fresh)

    # Replies, their echoes, and pins.

    def reply_to(self, history: History, place: int, it: Reply, these: Sequence[str]) -> Kept:
        """A reply to one of the turns of a history: to the first, or to any later one."""
        starts = [at for at, message in enumerate(history) if message.startswith("assistant")]
        chain = chain_of(history)[: starts[place % len(starts)] if starts else 1]
        keys = keys_after(chain[-1], these)
        return Kept(SCOPE, chain[0], conversation_of(chain), keys, it)

    def now_kept(self, it: Kept) -> None:
        for key in it.keys:
            self.kept.setdefault(key, it.reply)

    def to_find(self, echo: Echo) -> Reply | None:
        """What is found for an echo by all answers so far, and all replies kept so far."""
        if echo.link in self.found:
            return self.found[echo.link]
        return next((self.kept[key] for key in echo.keys if key in self.kept), None)

    def to_pin(self, chain: Sequence[bytes], name: str, value: bytes) -> bytes:
        first = self.pinned.get((chain[0], name), value)
        return self.pinned.get((conversation_of(chain), name), first)

    def wants(self, worker: Worker, history: History, these: Sequence[str], pins: Any) -> Ask:
        """Ask for what is not known for good, as the spine does."""
        chain = chain_of(history)
        known = worker.echoed(chain)
        assert {link: self.found[link] for link in known} == dict(known)
        for name, value in worker.pinned(chain[0], conversation_of(chain)).items():
            assert self.pinned[conversation_of(chain), name] == value
        echoes = [echo for echo in echoes_of(history, these) if echo.link not in known]
        return ask(chain, echoes=echoes, pins=pins)

    def now_pinned(self, question: Ask, answer: Settled) -> None:
        for name, value in answer.pins.items():
            self.pinned[question.conversation, name] = value

    @rule(
        history=histories, place=st.integers(0, 5), at=st.integers(0, 1), it=replies, these=words
    )  # fmt: skip
    def keep(
        self, history: History, place: int, at: int, it: Reply, these: list[str]
    ) -> None:  # fmt: skip
        kept = self.reply_to(history, place, it, these)

        assert self.run(self.workers[at].keep(kept))
        self.now_kept(kept)

    @rule(history=histories, at=st.integers(0, 1), these=words, pins=PINS)
    def echo_and_pin(
        self, history: History, at: int, these: list[str], pins: dict[str, bytes]
    ) -> None:
        worker = self.workers[at]
        question = self.wants(worker, history, these, pins)
        expected = {echo.link: self.to_find(echo) for echo in question.echoes}
        chain = chain_of(history)
        to_pin = {name: self.to_pin(chain, name, value) for name, value in pins.items()}
        missed = sum(
            found is None and link not in self.found for link, found in expected.items()
        )  # fmt: skip

        answer = self.run(worker.settle(question))

        assert (expected, missed) == (dict(answer.echoes), answer.missed)
        assert to_pin == dict(answer.pins)
        self.found |= answer.echoes
        self.now_pinned(question, answer)

    @rule(
        one=histories, other=histories, place=st.integers(0, 5), it=replies, these=words,
        mine=PINS, theirs=PINS,
    )  # fmt: skip
    def keep_echo_and_pin_at_once(
        self, one: History, other: History, place: int, it: Reply, these: list[str], mine: Any,
        theirs: Any,
    ) -> None:  # fmt: skip
        kept = self.reply_to(other, place, it, these)
        questions = [
            self.wants(self.workers[0], one, WORDS, mine),
            self.wants(self.workers[1], other, WORDS, theirs),
        ]
        before = {echo.link: self.to_find(echo) for q in questions for echo in q.echoes}
        stood = dict(self.pinned)

        async def all_three() -> list[Settled]:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self.workers[0].keep(kept))
                pairs = zip(self.workers, questions, strict=True)
                tasks = [group.create_task(worker.settle(q)) for worker, q in pairs]
            assert keeping.result()
            return [task.result() for task in tasks]

        answers = self.run(all_three())

        self.now_kept(kept)
        after = {echo.link: self.to_find(echo) for q in questions for echo in q.echoes}
        told: dict[Any, Any] = {}
        for question, answer in zip(questions, answers, strict=True):
            for link, found in answer.echoes.items():
                assert found in (before[link], after[link])
                assert found == told.setdefault(link, found)
            for name, value in answer.pins.items():
                pin = (question.conversation, name)
                assert value == stood[pin] if pin in stood else True
                assert value == told.setdefault(pin, value)
        for question, answer in zip(questions, answers, strict=True):
            self.found |= answer.echoes
            self.now_pinned(question, answer)

    @rule(history=histories, at=st.integers(0, 1))
    def remember(self, history: History, at: int) -> None:
        self.clock += 1
        chain = chain_of(history)
        kept = record(chain, elements(*history), NOW + self.clock)
        self.workers[at].remember(kept)
        self.run(self.lands(self.workers[at]))
        self.sent[chain[-1]] = kept

    def check_last_sent(self, history: History, answer: Settled) -> None:
        deepest = next((link for link in reversed(chain_of(history)) if link in self.sent), None)
        expected = self.sent[deepest].sent if deepest else None
        assert expected == answer.last_sent


def _longer(questions: Sequence[Ask], last: bytes) -> Iterator[tuple[bytes, ...]]:
    """The offered steps that go on after a link."""
    for question in questions:
        for offer in question.offers:
            if last in offer.links[:-1]:
                yield offer.links


# On a memory that both share.


class Pausing:
    """A worker with a cache of its own. It yields before and after it asks the shared memory."""

    def __init__(self, shared: InMemory, pauses: Iterator[int]) -> None:
        self.shared, self.pauses = shared, pauses
        self.cache: dict[bytes, Verdict] = {}
        self.found: dict[bytes, Reply | None] = {}

    def known(self, links: Sequence[bytes]) -> dict[bytes, Verdict]:
        return {link: self.cache[link] for link in links if link in self.cache}

    def echoed(self, links: Sequence[bytes]) -> dict[bytes, Reply | None]:
        return {link: self.found[link] for link in links if link in self.found}

    def pinned(self, root: bytes, conversation: bytes) -> Mapping[str, bytes]:
        return self.shared.pinned(root, conversation)

    async def pause(self) -> None:
        for _ in range(next(self.pauses)):
            await asyncio.sleep(0)

    async def settle(self, ask: Ask) -> Settled:
        await self.pause()
        answer = await self.put(ask)
        await self.pause()
        for offer in ask.offers:
            if offer.links[0] in answer.verdicts:
                self.cache[offer.links[-1]] = answer.verdicts[offer.links[0]]
        self.found |= answer.echoes
        return answer

    async def keep(self, kept: Kept) -> bool:
        await self.pause()
        taken = await self.shared.keep(kept)
        await self.pause()
        return taken

    async def put(self, ask: Ask) -> Settled:
        return await self.shared.settle(ask)

    def remember(self, record: Record) -> None:
        self.shared.remember(record)


class OnMemory(Machine):
    worker: ClassVar[type[Pausing]] = Pausing

    async def make(self, pauses: list[int]) -> list[Worker]:
        shared, schedule = InMemory(Options(), Clock()), cycle(pauses)
        return [self.worker(shared, schedule), self.worker(shared, schedule)]


def test_two_workers_on_one_memory_have_one_truth() -> None:
    run_state_machine_as_test(OnMemory, settings=settings(LIMITS, max_examples=150))


# On a real server.


class OnRedis(Machine):
    """Every worker has a memory of its own, and may lose it."""

    server: ClassVar[Server]

    async def make(self, pauses: list[int]) -> list[Worker]:
        self.server.flush()
        return [await self.opened(), await self.opened()]

    async def opened(self) -> InRedis:
        ledger = InRedis(RedisOptions(self.server.url, timeout=10.0), Clock())
        await ledger.open()
        return ledger

    async def lands(self, worker: Worker) -> None:
        assert isinstance(worker, InRedis)
        await written(worker)

    @rule(at=st.integers(0, 1))
    def restart(self, at: int) -> None:
        self.workers[at] = self.run(self.replaced(self.workers[at]))

    async def replaced(self, worker: Worker) -> InRedis:
        assert isinstance(worker, InRedis)
        await worker.close()
        return await self.opened()

    async def end(self) -> None:
        for worker in self.workers:
            assert isinstance(worker, InRedis)
            failures = worker.health().failures
            await worker.close()
            assert {} == dict(failures)


@pytest.mark.parametrize("binary", binaries())
def test_two_workers_on_one_server_have_one_truth(binary: str | None) -> None:
    with running(binary) as server:
        machine = type("OnRedisHere", (OnRedis,), {"server": server})
        run_state_machine_as_test(machine, settings=LIMITS)


# Mutants: each breaks one promise, and the machine finds it.


class LastWins(Pausing):
    async def put(self, ask: Ask) -> Settled:
        answer = await self.shared.settle(ask)
        ours = {o.links[0]: o.verdict for o in ask.offers if o.verdict is not None}
        for offer in ask.offers:
            if offer.verdict is not None:
                self.shared._memory._verdicts[offer.links[-1]] = offer.verdict
        return replace(answer, verdicts={**answer.verdicts, **ours})


class NotAtomic(Pausing):
    async def put(self, ask: Ask) -> Settled:
        asking = replace(ask, offers=tuple(replace(o, verdict=None) for o in ask.offers))
        stood = (await self.shared.settle(asking)).verdicts
        await self.pause()
        fresh = tuple(o for o in ask.offers if o.links[0] not in stood and o.verdict)
        for offer in fresh:
            self.shared._memory._verdicts.pop(offer.links[-1], None)
        answer = await self.shared.settle(replace(ask, offers=fresh))
        return replace(
            answer,
            verdicts={**stood, **{o.links[0]: o.verdict for o in fresh if o.verdict}},
            won=len(fresh),
        )


class EarliestLink(Pausing):
    async def put(self, ask: Ask) -> Settled:
        answer = await self.shared.settle(ask)
        known = self.shared.known
        early = {
            offer.links[0]: next(iter(known(offer.links).values()))
            for offer in ask.offers
            if known(offer.links)
        }
        return replace(answer, verdicts={**answer.verdicts, **early})


class OwnProposal(Pausing):
    async def put(self, ask: Ask) -> Settled:
        answer = await self.shared.settle(ask)
        ours = {o.links[0]: o.verdict for o in ask.offers if o.verdict is not None}
        return replace(answer, verdicts={**answer.verdicts, **ours})


class LastLinkOnly(Pausing):
    async def put(self, ask: Ask) -> Settled:
        last = tuple(replace(o, links=o.links[-1:]) for o in ask.offers)
        answer = await self.shared.settle(replace(ask, offers=last))
        first_of = {o.links[-1]: o.links[0] for o in ask.offers}
        return replace(answer, verdicts={first_of[link]: v for link, v in answer.verdicts.items()})


class Forgetful(Pausing):
    async def put(self, ask: Ask) -> Settled:
        answer = await self.shared.settle(ask)
        for offer in ask.offers:
            self.shared._memory.drop(ask.conversation)
            self.cache.pop(offer.links[-1], None)
        return answer


class StaleRecord(Pausing):
    def remember(self, record: Record) -> None:
        cut = record.sent.elements[:-1]
        self.shared.remember(replace(record, sent=replace(record.sent, elements=cut)))


class LastFinding(Pausing):
    async def put(self, ask: Ask) -> Settled:
        for echo in ask.echoes:
            self.shared._memory.echoes._found.pop(echo.link, None)
        return await self.shared.settle(ask)


class MissNotSettled(Pausing):
    async def put(self, ask: Ask) -> Settled:
        answer = await self.shared.settle(ask)
        for link in [link for link, found in answer.echoes.items() if found is None]:
            self.shared._memory.echoes._found.pop(link)
        return answer


class LastReply(Pausing):
    async def keep(self, kept: Kept) -> bool:
        for thread in self.shared._memory.threads.values():
            if thread.shelf:
                thread.shelf.by_key = {
                    key: held for key, held in thread.shelf.by_key.items() if key not in kept.keys
                }
        return await super().keep(kept)


class LastPin(Pausing):
    async def put(self, ask: Ask) -> Settled:
        thread = self.shared._memory.threads.get(ask.conversation)
        if thread and thread.shelf:
            thread.shelf.pins.clear()
        return await self.shared.settle(ask)


class PinOfNoRoot(Pausing):
    async def put(self, ask: Ask) -> Settled:
        answer = await self.shared.settle(replace(ask, root=ask.conversation))
        return answer if ask.pins else await self.shared.settle(ask)


@pytest.mark.parametrize(
    "mutant",
    [
        LastWins, NotAtomic, EarliestLink, OwnProposal, LastLinkOnly, Forgetful, StaleRecord,
        LastFinding, MissNotSettled, LastReply, LastPin, PinOfNoRoot,
    ],
)  # fmt: skip
def test_machine_finds_the_mutant(mutant: type[Pausing]) -> None:
    machine = type(mutant.__name__, (OnMemory,), {"worker": mutant})
    limits = settings(LIMITS, max_examples=1_000, derandomize=True, database=None, phases=PHASES)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=limits)
