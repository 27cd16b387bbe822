"""Conversations and turns as the page shows them, ready for a template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.ledger.contract import Conversation, Summary
from proxy.page import plain, told
from proxy.page.causes import meaning, words
from proxy.page.told import Account

FEW = 40
"""Turns up to which every one is shown; beyond it, rows of uneventful ones are folded."""
_FOLDED_FROM = 8
_LATEST = 10


@dataclass(frozen=True, slots=True)
class Told:
    """The prefix in one word: `tone` is `break`, `cache`, `note`, `calm` or `unknown`."""

    name: str
    word: str
    title: str
    tone: str


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation in the list. `hit` is from 0 to 100; None where it is unknown."""

    id: str
    root: str
    task: str
    model: str
    policy: str
    key: str
    turns: str
    prefix: Told
    hit: int | None
    hit_text: str
    input: str
    output: str
    dropped: str
    at: float
    ago: str
    search: str


def row(it: Summary, now: float) -> Row:
    last = it.last
    prefix = prefix_of(last)
    model, policy, key, task = (_name(last, name) for name in ("model", "policy", "key", "task"))
    told_of = (it.id, model, policy, key, task, prefix.word, prefix.name)
    word = "break" if told.is_break(last) else ""
    return Row(
        id=it.id,
        root=str(last.get("root") or ""),
        task=task,
        model=model or plain.UNKNOWN,
        policy=policy or plain.UNKNOWN,
        key=key or plain.UNKNOWN,
        turns=plain.count(it.turns),
        prefix=prefix,
        hit=_hundredths(told.hit_ratio(last)),
        hit_text=plain.percent(told.hit_ratio(last)),
        input=plain.short(told.tokens(last, "input")),
        output=plain.short(told.tokens(last, "output")),
        dropped=_estimated(told.dropped(last)),
        at=it.last_at,
        ago=plain.ago(now - it.last_at),
        search=" ".join((*told_of, word)).lower(),
    )


def _name(account: Account, name: str) -> str:
    return plain.line(str(account.get(name) or ""))


def _hundredths(share: float | None) -> int | None:
    return None if share is None else min(100, round(share * 100))


def _estimated(number: int | None) -> str:
    return f"~{plain.short(number)}" if number else plain.short(number)


def prefix_of(account: Account) -> Told:
    """What happened to the prefix; where it was whole, why the provider read too little of it."""
    cause = told.cause(account)
    if told.is_break(account):
        return _told(cause, "break")
    if told.is_shortfall(account):
        return _told(told.shortfall(account), "cache")
    if cause == "extended":
        return _told(cause, "calm")
    return _told(cause, "note") if cause else Told("", plain.UNKNOWN, "Not known", "unknown")


def _told(cause: str, tone: str) -> Told:
    return Told(cause, words(cause), meaning(cause).title, tone)


# One conversation


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found at a turn. `facts` are pairs of a name and a value, in reading order."""

    tone: str
    name: str
    title: str
    by: str
    confidence: str
    cost: str
    message: int | None
    facts: tuple[tuple[str, str], ...]
    difference: Mapping[str, Any] | None
    fix: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One request in the table. `ended` says how, where that was not as it should be."""

    number: int
    at: float
    prefix: Told
    input: str
    cached: str
    written: str
    new: str
    dropped: str
    output: str
    hit: str
    total: str
    ended: str
    verdicts: str
    findings: tuple[Finding, ...]

    @property
    def eventful(self) -> bool:
        return self.prefix.tone not in ("calm", "unknown") or bool(self.ended)


@dataclass(frozen=True, slots=True)
class Run:
    """Turns one after the other: shown one by one, or folded into one line."""

    turns: tuple[Turn, ...]
    folded: bool

    @property
    def first(self) -> int:
        return self.turns[0].number

    @property
    def last(self) -> int:
        return self.turns[-1].number

    @property
    def hits(self) -> str:
        """The hit ratio of a folded row: `14 to 99 %`."""
        found = [turn.hit for turn in self.turns if turn.hit != plain.UNKNOWN]
        if not found:
            return plain.UNKNOWN
        low, high = (choose(found, key=_percent_order) for choose in (min, max))
        return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _percent_order(text: str) -> float:
    return 0.5 if text.startswith("<") else float(text.partition(" ")[0])


def turns(it: Conversation, first: int | None = None, last: int | None = None) -> list[Turn]:
    """The turns, oldest first; of those from number `first` to number `last`, where given."""
    start = told.first_turn(it)
    return [
        _turn(number, account, it)
        for number, account in enumerate(it.outcomes, start)
        if (first is None or number >= first) and (last is None or number <= last)
    ]


def _turn(number: int, account: Account, it: Conversation) -> Turn:
    ending = str(account.get("ending") or "complete")
    found = told.found_in(number, account, it.entries)
    return Turn(
        number=number,
        at=float(account.get("at") or 0),
        prefix=prefix_of(account),
        input=plain.count(told.tokens(account, "input")),
        cached=plain.count(told.tokens(account, "cache_read")),
        written=plain.count(told.tokens(account, "cache_write")),
        new=plain.count(told.new_tokens(account)),
        dropped=_dropped_text(told.dropped(account)),
        output=plain.count(told.tokens(account, "output")),
        hit=plain.percent(told.hit_ratio(account)),
        total=plain.milliseconds(told.part(account, "ms").get("total")),
        ended="" if ending == "complete" else words(ending),
        verdicts=_verdicts(account),
        findings=tuple(finding(each) for each in found if each["kind"] != "note"),
    )


def _dropped_text(number: int | None) -> str:
    return f"~{plain.count(number)}" if number else plain.count(number)


def _verdicts(account: Account) -> str:
    """This turn's new verdicts: `1 drop, 2 keep`."""
    fresh = told.part(told.part(account, "steps"), "fresh")
    return ", ".join(f"{steps} {plain.line(str(name))}" for name, steps in fresh.items() if steps)


def finding(found: Mapping[str, Any]) -> Finding:
    name = str(found["cause"])
    said = meaning(name)
    return Finding(
        tone=str(found["kind"]),
        name=name,
        title=said.title or words(name),
        by=plain.line(str(found.get("by") or "")),
        confidence=plain.line(str(found.get("confidence") or "")),
        cost=_cost(found),
        message=found.get("message"),
        facts=tuple(_facts(found)),
        difference=_difference(found.get("difference")),
        fix=plain.line(str(found.get("fix") or said.advice)),
    )


def _cost(found: Mapping[str, Any]) -> str:
    what = "rebuilt" if found["kind"] == "break" else "not read from the cache"
    number, dollars = found.get("tokens"), found.get("dollars")
    tokens = "unknown tokens" if number is None else f"~{plain.numbered(number, 'token')}"
    price = "" if dollars is None else f", {plain.dollars(dollars)}"
    return f"{tokens} {what}{price}"


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if path := found.get("path"):
        offset = found.get("offset")
        yield "Where", plain.line(str(path))
        if offset is not None:
            yield "Offset", plain.count(offset)
    elif found.get("message") is not None:
        yield "Where", f"message {found['message']}"
    if found.get("removed"):
        yield "Taken out", plain.count(found["removed"])
    if found["kind"] == "cache":
        yield "Expected", plain.count(found.get("expected"))
        yield "Reported", plain.count(found.get("reported"))


def _difference(found: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if found is None:
        return None
    return {
        name: plain.visible(text) if isinstance(text, str) else text for name, text in found.items()
    }


def runs(rows: Sequence[Turn]) -> list[Run]:
    """The turns as they are laid out: long stretches in which nothing happened are folded."""
    if len(rows) <= FEW:
        return [Run(tuple(rows), False)] if rows else []
    found: list[Run] = []
    settled, latest = rows[:-_LATEST], rows[-_LATEST:]
    for calm, stretch in _stretches(settled):
        found.append(Run(stretch, calm and len(stretch) >= _FOLDED_FROM))
    return [*found, Run(tuple(latest), False)]


def _stretches(rows: Sequence[Turn]) -> Iterator[tuple[bool, tuple[Turn, ...]]]:
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].eventful != rows[start].eventful:
            yield not rows[start].eventful, tuple(rows[start:at])
            start = at
