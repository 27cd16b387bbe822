"""Findings, turns and conversations for a terminal. What is printed can steer none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.page import judged, plain
from proxy.page import told as account
from proxy.page.causes import meaning, words
from proxy.page.messages import Block, provider_side
from proxy.page.shown import prefix_of

Json = Mapping[str, Any]

_TURNS = 20
_CHARACTERS = 600
_LONGEST = 30
_WEIGHED = 20
"""Steps whose numbers are shown where not all are wanted."""
_TONES = {"break": "bold red", "cache": "yellow", "note": "cyan", "calm": "", "unknown": "dim"}


# lethe why


def why_view(found: Json, notes: bool) -> RenderableType:
    """The findings of one conversation, for people."""
    rows: list[RenderableType] = [_title(found), Text()]
    for finding in found["findings"]:
        rows += [_finding(finding, found["history"]), Text()]
    if not found["findings"]:
        turns = plain.numbered(found["turns"], "turn")
        rows.append(Text(f"No break in {turns}: what was sent only grew."))
        if not notes:
            rows.append(Text(f"Forks, retries and cold starts: {_all('why', found)}", "dim"))
    weighed, most = found.get("weighed") or (), None if notes else _WEIGHED
    return Group(*rows, *_weighed(weighed, most, _all("why", found)))


def _all(command: str, found: Json) -> str:
    """What to type to see all of this very conversation."""
    return f"lethe {command} {plain.line(str(found['id']))[:12]} --all"


def _weighed(rows: Sequence[Json], most: int | None, more: str) -> Iterator[RenderableType]:
    """What decided steps under `horizon`; `more` shows all of them."""
    shown = rows if most is None else rows[-most:]
    if not rows:
        return
    yield Text()
    yield Text("Steps by their retention horizon", "bold")
    table = Table.grid(padding=(0, 2))
    for row in shown:
        table.add_row(
            f"  turn {row['turn']}", f"step {row.get('step')}", Text(judged.words(row))
        )  # fmt: skip
    yield table
    if len(shown) < len(rows):
        yield Text(f"the last {len(shown)} of {len(rows)}; all: {more}", "dim")


def _title(found: Json) -> Text:
    told = [found["id"], found["model"], found["policy"], found["key"]]
    parts = [plain.line(str(part)) for part in told if part]
    parts.append(plain.numbered(found["turns"], "turn"))
    return Text.assemble((parts[0], "bold"), " · ", " · ".join(parts[1:]))


def _finding(finding: Json, history: str) -> RenderableType:
    cause, tone = finding["cause"], _TONES[finding["kind"]]
    said = meaning(cause)
    head = Text.assemble(f"turn {finding['turn']}  ", (cause, tone), _whose(finding))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=8)
    table.add_column(overflow="fold")
    for name, value in _facts(finding, said.advice, history):
        table.add_row(f"  {name}", value)
    return Group(head, Text(f"  {said.title or words(cause)}"), table)


def _whose(finding: Json) -> str:
    by, sure = (plain.line(str(finding.get(name) or "")) for name in ("by", "confidence"))
    if by in ("", "nobody"):
        return ""
    return f"  by {by}" + (f", {sure}" if sure else "")


def _facts(finding: Json, advice: str, history: str) -> Iterator[tuple[str, Text]]:
    place = finding.get("path")
    if place is None and finding.get("message") is not None:
        place = f"message {finding['message']}"
    if place is not None:
        offset = finding.get("offset")
        at = f", offset {plain.count(offset)}" if offset is not None else ""
        yield "where", Text(plain.line(str(place)) + at)
    if finding["kind"] != "note":
        yield "cost", Text(_cost(finding))
    yield from _before_and_after(finding.get("difference"))
    if finding["kind"] == "break" and not finding.get("difference") and history == "digests":
        yield "text", Text('not kept: [ledger] history = "digests"', "dim")
    if fix := finding.get("fix") or advice:
        yield "fix", Text(plain.line(str(fix)))


def _cost(finding: Json) -> str:
    number = finding.get("tokens")
    tokens = "unknown" if number is None else f"~{plain.numbered(number, 'token')}"
    if finding["kind"] == "break":
        dollars = finding.get("dollars")
        price = "" if dollars is None else f", {plain.dollars(dollars)}"
        return f"{tokens} rebuilt{price}"
    expected, reported = plain.count(finding.get("expected")), plain.count(finding.get("reported"))
    return f"{tokens} not read from the cache (expected {expected}, reported {reported})"


def _before_and_after(difference: Json | None) -> Iterator[tuple[str, Text]]:
    if difference is None:
        return
    for name, side, style in (("before", "was", "red"), ("after", "now", "green")):
        text = difference[side]
        if text is None:
            yield name, Text("not kept", "dim")
            continue
        parts = [plain.line(part) for part in (difference["shared"], text, difference["rest"])]
        yield name, Text.assemble(parts[0], (parts[1], f"bold {style}"), parts[2])


# lethe show


def show_view(found: Json, messages: bool, whole: bool) -> RenderableType:
    """One conversation, for people."""
    turns = found["timeline"]
    shown = turns if whole else turns[-_TURNS:]
    rows: list[RenderableType] = [_title(found), _sums(found["totals"]), Text(), _turn_table(shown)]
    if len(shown) < len(turns):
        more = f"the last {len(shown)} of {len(turns)}; all: {_all('show', found)}"
        rows.append(Text(more, "dim"))
    rows += _shadows(found.get("shadows") or ())
    first = turns[0]["turn"] if turns else 1
    most = None if whole else _WEIGHED
    rows += _weighed(judged.weighed(turns, first), most, _all("show", found))
    if messages:
        rows += _messages(found, None if whole else _CHARACTERS)
    return Group(*rows)


def _sums(totals: Json) -> Text:
    tokens, breaks = totals["tokens"], totals["breaks"]
    parts = (
        f"input {plain.short(tokens['input'])}",
        f"{plain.percent(totals['hit_ratio'])} read from the cache",
        f"output {plain.short(tokens['output'])}",
        f"reasoning not sent {_dropped(totals['dropped_tokens_estimated'])}",
    )
    told = plain.numbered(breaks, "break")
    money = plain.money(totals["dollars"])
    return Text.assemble(
        " · ".join(parts), " · ", (told, "red" if breaks else ""), f"\n{money}" if money else ""
    )


def _shadows(rows: Sequence[Json]) -> Iterator[RenderableType]:
    """What other policies would have come to."""
    if not rows:
        return
    table = _table("policy", "steps dropped", "input", "sent", "hit", "bill", "paid", "change")
    for row in rows:
        mark = "~" if row["estimated"] else ""
        table.add_row(
            plain.line(row["policy"]), plain.count(row["dropped"]),
            mark + plain.short(row["input"]), plain.short(row["sent"]),
            plain.percent(row["hit_ratio"]), _dollars(row["dollars"], row["estimated"]),
            _dollars(row["paid"], False), _change(row["dollars"], row["paid"]),
        )  # fmt: skip
    yield Text()
    yield Text("What other policies would have sent and cost, the continuation held fixed", "bold")
    yield table


def _dollars(amount: float | None, estimated: bool) -> str:
    return plain.UNKNOWN if amount is None else plain.dollars(amount, estimated)


def _change(dollars: float | None, paid: float | None) -> str:
    """`−9.8 %`, as a share of what was paid."""
    if dollars is None or not paid:
        return plain.UNKNOWN
    return f"{(dollars - paid) / paid * 100:+.1f} %".replace("-", "−")


def _turn_table(turns: Sequence[Json]) -> Table:
    table = _table(
        "turn", "prefix", "input", "cached", "written", "new", "hit", "dropped", "output"
    )
    for turn in turns:
        tokens = turn.get("tokens") or {}
        table.add_row(
            str(turn["turn"]), _prefix(turn), plain.count(tokens.get("input")),
            plain.count(tokens.get("cache_read")), plain.count(tokens.get("cache_write")),
            plain.count(account.new_tokens(turn)), plain.percent(account.hit_ratio(turn)),
            _dropped(account.dropped(turn)), plain.count(tokens.get("output")),
        )  # fmt: skip
    return table


def _prefix(turn: Json) -> Text:
    told = prefix_of(turn)
    return Text(plain.line(told.word), _TONES[told.tone])


def _dropped(number: int | None) -> str:
    return f"~{plain.short(number)}" if number else plain.short(number)


_TO_THE_LEFT = frozenset({"prefix", "conversation", "model", "policy", "key"})
_MAY_SHRINK = frozenset({"model", "policy", "key"})


def _table(*columns: str) -> Table:
    """A table whose numbers stand to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "left" if name in _TO_THE_LEFT else "right"
        table.add_column(name, justify=justify, no_wrap=name not in _MAY_SHRINK)
    return table


def _messages(found: Json, most: int | None) -> Iterator[RenderableType]:
    """The last request as the provider saw it; what did not leave is struck out."""
    for element in found["messages"]:
        if element["message"] is None:
            continue
        yield Text()
        size = plain.size(element["bytes"])
        yield Text.assemble(
            (plain.line(element["role"] or ""), "bold"), (f"  {element['message']}  {size}", "dim")
        )
        if element["left"] is None:
            yield Text("text not kept", "dim")
        else:
            for block in provider_side(element, most):
                yield _block(block)


def _block(block: Block) -> Text:
    cut = f" … {plain.numbered(block.hidden, 'more character')}" if block.hidden else ""
    if block.kind == "reasoning":
        gone = block.state == "dropped"
        head = (f"[reasoning {block.state}] ", "red" if gone else "dim")
        body = (block.text, "dim strike" if gone else "italic")
    else:
        named = f"{block.kind} {block.label}".strip()
        head = ("" if block.kind == "text" else f"[{named}] ", "dim")
        body = (block.text, "")
    return Text.assemble(head, body, (cut, "dim"))


# lethe top


_COLUMNS = (
    "conversation", "model", "policy", "key", "turns", "prefix", "hit", "input", "dropped",
    "output", "active",
)  # fmt: skip
# What a narrow terminal does without, by the characters that it takes to have it.
_WANTED = {"key": 120, "output": 120, "dropped": 110, "policy": 95}


def top_view(found: Json, now: float, width: int = 120) -> RenderableType:
    """Conversations as they are. `now` is in seconds since the epoch, `width` in characters."""
    columns = [name for name in _COLUMNS if width >= _WANTED.get(name, 0)]
    table = _table(*columns)
    for row in found["rows"]:
        cells = _top_row(row, now)
        table.add_row(*[cells[name] for name in columns])
    if not found["rows"]:
        hint = "No conversation yet: point an agent at the proxy."
        if found["ledger"] != "up":
            hint = "The ledger's store does not answer: nothing to show now."
        return Group(_head(found), Text(), Text(hint, "dim"))
    return Group(_head(found), Text(), table)


def _head(found: Json) -> Text:
    seen, last = found["conversations"], found["last_turns"]
    listed = plain.numbered(seen["listed"], "conversation")
    parts = [
        listed.replace(" ", "+ ") if seen["more"] else listed,
        f"{plain.count(seen['active'])} active",
    ]
    if "proxy" in found:
        parts.append(f"{plain.count(found['proxy']['in_flight'])} in flight")
    parts.append(f"last turns: {plain.percent(last['hit_ratio'])} read from a cache")
    breaks, up = last["breaks"], found["ledger"] == "up"
    return Text.assemble(
        ("lethe", "bold"), "  ", " · ".join(parts), ", ",
        (f"{breaks} broken", "red" if breaks else ""),
        " · ", (f"ledger {plain.line(found['ledger'])}", "" if up else "red"),
    )  # fmt: skip


def _top_row(row: Json, now: float) -> dict[str, RenderableType]:
    last = row["last"]
    tokens = last["tokens"] or {}
    return {
        "conversation": row["id"][:10],
        **{name: _shrinking(row[name]) for name in _MAY_SHRINK},
        "turns": plain.count(row["turns"]),
        "prefix": _prefix(last),
        "hit": plain.percent(last["hit_ratio"]),
        "input": plain.short(tokens.get("input")),
        "dropped": _dropped(last["dropped_tokens_estimated"]),
        "output": plain.short(tokens.get("output")),
        "active": plain.ago(now - row["last_at"]),
    }


def _shrinking(name: Any) -> Text:
    """A name that gives way where the terminal is narrow."""
    shown = plain.line(str(name or plain.UNKNOWN))[:_LONGEST]
    return Text(shown, no_wrap=True, overflow="ellipsis")
