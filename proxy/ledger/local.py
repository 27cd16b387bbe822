"""One worker's own memory of conversations: verdicts, what was sent, hints, set policies; bounded.

It is the whole truth of the ledger in memory, and what the ledger in Redis answers from while its
store is away. Nothing here waits: every verb is done when it returns, so no two of them interleave.
What is let go is a whole conversation, the one longest unused first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from proxy.core.replies import Reply
from proxy.core.sent import Sent
from proxy.core.verdict import Verdict
from proxy.ledger.contract import Ask, Entry, Grade, Kept, Record, Settled
from proxy.ledger.echoes import Echoes
from proxy.ledger.thread import Held, Thread

# What the objects take, measured with tracemalloc and rounded up: good for a bound.
_VERDICT, _SENT, _ELEMENT, _HINT, _ENTRY, _OUTCOME = 200, 900, 350, 350, 350, 150
_GRADE, _TASK, _SHADOW, _HELD = 150, 100, 250, 120

MAX_SETTINGS = 100_000
MAX_OUTCOMES = 2_000
# A first message that many begin with is no conversation: what it gathers is bounded by itself.
MAX_FIRST_ENTRIES = 2_000


class Memory:
    """`max_entries` counts conversations, `max_bytes` is what they hold, estimated from above.

    `ttl` is in seconds since a conversation's last turn, by `clock`.
    """

    def __init__(
        self, max_entries: int, max_bytes: int, ttl: float, clock: Callable[[], float]
    ) -> None:
        self.threads: OrderedDict[bytes, Thread] = OrderedDict()
        self.grown: dict[bytes, dict[bytes, None]] = {}
        self.weight = 0
        self.let_go = 0
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._ttl, self._clock = ttl, clock
        self._verdicts: dict[bytes, Verdict] = {}
        self._hints: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        self._settings: OrderedDict[bytes, str] = OrderedDict()
        self._with_texts: OrderedDict[bytes, Thread] = OrderedDict()
        self.echoes = Echoes(self.threads, self._weigh, max_bytes)

    # What is known.

    def known(self, links: Sequence[bytes]) -> dict[bytes, Verdict]:
        get = self._verdicts.get
        return {link: verdict for link in links if (verdict := get(link)) is not None}

    def standing(self, links: Sequence[bytes]) -> Verdict | None:
        """The verdict on the latest of these links that bears one."""
        get = self._verdicts.get
        for link in reversed(links):
            if (verdict := get(link)) is not None:
                return verdict
        return None

    def setting(self, scope: bytes) -> str | None:
        return self._settings.get(scope)

    def set_setting(self, scope: bytes, policy: str | None) -> None:
        if policy is None:
            self._settings.pop(scope, None)
            return
        self._settings[scope] = policy
        self._settings.move_to_end(scope)
        while len(self._settings) > MAX_SETTINGS:
            self._settings.popitem(last=False)

    def last_sent(self, ask: Ask) -> tuple[int, Sent] | None:
        """The record at the deepest link of the chain, with its place in the chain."""
        thread = self.threads.get(ask.conversation)
        if thread is not None and (found := thread.trail.deepest(ask.chain)) is not None:
            return found
        root = None if ask.root == ask.conversation else self.threads.get(ask.root)
        return None if root is None else root.trail.deepest(ask.chain)

    def hinted(self, scope: bytes, hints: Sequence[bytes]) -> tuple[int, Sent] | None:
        """The record that the strongest of these hints leads to, with the hint's place."""
        for place, hint in enumerate(hints):
            conversation, link = self._hints.get((scope, hint), (b"", b""))
            thread = self.threads.get(conversation)
            if thread is not None and (sent := thread.trail.at(link)) is not None:
                return place, sent
        return None

    # What is added.

    def settle(self, ask: Ask) -> Settled:
        """Settle by this memory alone."""
        thread = self.touch(ask.scope, ask.root, ask.conversation)
        agreed = self._settings.get(ask.scope) == ask.setting
        verdicts: dict[bytes, Verdict] = {}
        put: set[bytes] = set()
        for offer in ask.offers:
            standing = self.standing(offer.links)
            if standing is None and offer.verdict is not None and agreed:
                self.bear(thread, offer.links[-1], offer.verdict, True)
                verdicts[offer.links[0]] = offer.verdict
                put.add(offer.links[0])
            elif standing is not None:
                self.bear(thread, offer.links[-1], standing, False)
                verdicts[offer.links[0]] = standing
        sent, tip = self.last_sent(ask), thread.trail.last
        by_hint = None if sent else self.hinted(ask.scope, ask.hints)
        settled = Settled(
            verdicts=verdicts,
            won=len(put),
            put=frozenset(put),
            last_sent=(sent or by_hint or (0, None))[1],
            by_hint=by_hint is not None,
            setting=self._settings.get(ask.scope),
            shared=True,
            tip=None if sent and tip and sent[1].link == tip.link else tip,
        )
        if ask.echoes or ask.pins:
            found, missed, pins = self.echoes.settle(thread, ask)
            settled = replace(settled, echoes=found, missed=missed, pins=pins)
        self.shrink(thread)
        return settled

    def bear(self, thread: Thread, link: bytes, verdict: Verdict, here: bool) -> None:
        """Know a verdict by a link; `here`: it stands on that very link. The first one stays."""
        if link in thread.borne:
            thread.borne[link] = thread.borne[link] or here
            return
        thread.borne[link] = here
        self._verdicts[link] = verdict
        self._weigh(thread, _VERDICT + len(verdict.text))

    def add_sent(self, thread: Thread, sent: Sent) -> Sent:
        """Keep a record; the same comes back, sharing its elements with the records before it."""
        kept, fresh = thread.trail.add(sent)
        beside = sum([_SHADOW + len(shadow.held) * _HELD for shadow in sent.shadows])
        self._weigh(thread, _SENT + fresh * _ELEMENT + len(sent.upstream) + beside)
        return kept

    def add_hints(self, thread: Thread, link: bytes, hints: Sequence[bytes]) -> None:
        for hint in hints:
            key = (thread.scope, hint)
            holder = self.threads.get(self._hints.get(key, (b"", b""))[0])
            if holder is not None and holder is not thread:
                holder.hints.discard(key)
                self._weigh(holder, -_HINT)
            if key not in thread.hints:
                thread.hints.add(key)
                self._weigh(thread, _HINT)
            self._hints[key] = (thread.conversation, link)

    def add_entries(self, thread: Thread, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.digest not in thread.entries:
                thread.entries[entry.digest] = entry
                self._weigh(thread, _ENTRY + len(entry.left) + len(entry.came or b""))
        if thread.entries:
            self._with_texts[thread.conversation] = thread
            self._with_texts.move_to_end(thread.conversation)
        if thread.conversation == thread.root and len(thread.entries) > MAX_FIRST_ENTRIES:
            self._shed(thread)

    def add_outcome(self, thread: Thread, at: float, outcome: bytes) -> None:
        """Keep an account. A first turn's, under the root, goes over to what grew from it."""
        root = self.threads.get(thread.root)
        if root is not None and root is not thread:
            root.listed = False
            if not thread.turns and root.outcomes:
                self._weigh(root, -_OUTCOME - len(root.outcomes[-1][1]))
                root.turns -= 1
                self._told(thread, *root.outcomes.pop())
                self._hand_on_grade(root, thread)
        self._told(thread, at, outcome)
        if thread.root != thread.conversation:
            self.grown.setdefault(thread.root, {})[thread.conversation] = None
        thread.listed = True

    def add_task(self, thread: Thread, task: str) -> None:
        """Know the label that the conversation bears now."""
        if task != thread.task:
            before = _TASK + len(thread.task) if thread.task else 0
            self._weigh(thread, (_TASK + len(task) if task else 0) - before)
            thread.task = task

    def add_grade(self, thread: Thread, grade: Grade | None) -> None:
        """Keep how it ended, in the place of what was known of that."""
        self._weigh(thread, _GRADE * ((grade is not None) - (thread.grade is not None)))
        thread.grade = grade

    def _hand_on_grade(self, root: Thread, thread: Thread) -> None:
        if root.grade is not None:
            self.add_grade(thread, root.grade)
            self.add_grade(root, None)

    def _told(self, thread: Thread, at: float, outcome: bytes) -> None:
        thread.first_at = thread.first_at if thread.turns else at
        thread.last_at = at
        thread.turns += 1
        thread.outcomes.append((at, outcome))
        self._weigh(thread, _OUTCOME + len(outcome))
        if len(thread.outcomes) > MAX_OUTCOMES:
            self._weigh(thread, -_OUTCOME - len(thread.outcomes.popleft()[1]))

    def remember(self, record: Record) -> Thread:
        """Note what left, and how to find it; not what it said, nor what came of it."""
        thread = self.touch(record.scope, record.root, record.conversation)
        sent = self.add_sent(thread, record.sent)
        self.add_hints(thread, sent.link, record.hints)
        return thread

    def keep(self, kept: Kept, id: bytes = b"") -> Held:
        """Put a reply where its echoes look for it; `id` is its name in the shared store."""
        thread = self.touch(kept.scope, kept.root, kept.conversation)
        held = Held(kept.keys, kept.reply, id)
        self.echoes.keep(thread, held)
        self.shrink(thread)
        return held

    # Bounds.

    def touch(self, scope: bytes, root: bytes, conversation: bytes) -> Thread:
        """The conversation, made where it is new, as the one last used."""
        thread = self.threads.get(conversation)
        if thread is None:
            thread = self.threads[conversation] = Thread(scope, root, conversation)
            self.weight += thread.weight
        now = thread.used_at = self._clock()
        if (first := self.threads.get(root)) is not None:
            first.used_at = now
            self.threads.move_to_end(root)
        self.threads.move_to_end(conversation)
        return thread

    def shrink(self, current: Thread) -> None:
        """Let go what is longest unused: first what was said, which is only for people to read,
        then whole conversations, the current one's accounts before it.
        """
        before = current.used_at - self._ttl
        while self.weight > self._max_bytes and self._with_texts:
            self._shed_texts(self._with_texts.popitem(last=False)[1])
        while self.threads:
            oldest = next(iter(self.threads.values()))
            full = len(self.threads) > self._max_entries or self.weight > self._max_bytes
            if not full and oldest.used_at >= before:
                return
            if oldest is current and (current.entries or current.outcomes):
                self._shed(current)
                continue
            self.drop(oldest.conversation)
            self.let_go += full

    def _shed(self, thread: Thread) -> None:
        self._shed_texts(thread)
        outcomes = sum(_OUTCOME + len(outcome) for _, outcome in thread.outcomes)
        thread.outcomes.clear()
        self._weigh(thread, -outcomes)

    def _shed_texts(self, thread: Thread) -> None:
        self._with_texts.pop(thread.conversation, None)
        if not thread.entries:
            return
        entries = sum([_ENTRY + len(e.left) + len(e.came or b"") for e in thread.entries.values()])
        thread.entries.clear()
        self._weigh(thread, -entries)

    def drop(self, conversation: bytes) -> bool:
        """Let go one conversation and all that it holds."""
        thread = self.threads.pop(conversation, None)
        if thread is None:
            return False
        self._with_texts.pop(conversation, None)
        for link in thread.borne:
            self._verdicts.pop(link, None)
        for hint in thread.hints:
            self._hints.pop(hint, None)
        self.echoes.drop(thread)
        siblings = self.grown.get(thread.root, {})
        siblings.pop(conversation, None)
        if not siblings:
            self.grown.pop(thread.root, None)
        self.weight -= thread.weight
        return True

    def forget(self, conversation: bytes) -> None:
        """Let go one conversation, and of its root's what it took from there."""
        if (thread := self.threads.get(conversation)) is not None:
            self.echoes.forget(thread)
            self.drop(conversation)

    def _weigh(self, thread: Thread, more: int) -> None:
        thread.weight += more
        self.weight += more

    def bearing(self, conversation: bytes) -> Mapping[bytes, Verdict]:
        """The verdicts that stand on links of this conversation."""
        thread = self.threads.get(conversation)
        here = () if thread is None else (link for link, h in thread.borne.items() if h)
        return {link: self._verdicts[link] for link in here}


class Recalling:
    """What a ledger answers at once, of what this worker remembers."""

    _memory: Memory

    def known(self, links: Sequence[bytes]) -> Mapping[bytes, Verdict]:
        return self._memory.known(links)

    def setting(self, scope: bytes) -> str | None:
        return self._memory.setting(scope)

    def echoed(self, links: Sequence[bytes]) -> Mapping[bytes, Reply | None]:
        return self._memory.echoes.echoed(links)

    def pinned(self, root: bytes, conversation: bytes) -> Mapping[str, bytes]:
        return self._memory.echoes.pinned(conversation)
