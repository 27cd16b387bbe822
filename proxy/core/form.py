"""How an assistant message leaves where it may not leave as it came: in a form that is read.

Clients lose reasoning, trim it, rename its field and serialise arguments anew; providers read one
field and not another, and some refuse a message whose field is missing. What is kept leaves as it
was generated, in a carrier that is read; what is dropped, and what cannot be found again, leaves as
nothing in the encoding that is taken. `null` is never written: an engine answers it with 500.

Signed and encrypted pieces stay whole. They go, whole, only where the contract allows it, and a
signature on a tool call never does.

A form depends on the message, the verdict, the reply that it echoes and the `Wire`, and on nothing
else: so it is the same on every later turn, and on every worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core import fingerprint, reasoning
from proxy.core.contract import Contract, Encoding, Remedy, Requires
from proxy.core.fingerprint import Message
from proxy.core.reasoning import LIST_CARRIERS, STRING_CARRIERS
from proxy.core.replies import Reply
from proxy.core.sent import Element
from proxy.core.verdict import Kind
from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit
from proxy.core.wire.scan import Member

_EMPTY = b'""'


class Wire(msgspec.Struct, frozen=True):
    """How reasoning is written for one upstream and model. It is pinned with a conversation.

    `reads` are the carriers that are read there, the preferred one first; empty: whichever came,
    and for what is put back that in which replies come, `writes`.
    `restores`: what a client lost is put back. `repairs`: arguments leave as they were generated.
    `refuses`: reasoning is an error there, whatever the verdict. `keeps`: taking it out is one.
    """

    reads: tuple[str, ...] = ()
    writes: str = ""
    encoding: Encoding = Encoding.EMPTY
    requires: Requires = Requires.NOTHING
    seals_may_go: bool = False
    restores: bool = False
    repairs: bool = False
    refuses: bool = False
    keeps: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether every message leaves as it came, or less its reasoning."""
        plain = self.encoding is Encoding.EMPTY and self.requires is Requires.NOTHING
        odd = self.reads or self.seals_may_go or self.refuses or self.keeps or self.looks_back
        return plain and not odd

    @property
    def looks_back(self) -> bool:
        """Whether the replies that messages echo are of use."""
        return self.restores or self.repairs

    def kind(self, standing: Kind) -> Kind:
        """What is carried out there of what stands."""
        if self.refuses:
            return Kind.DROP
        return Kind.KEEP if self.keeps else standing


class Shape(msgspec.Struct, frozen=True, gc=False):
    """One message as it leaves. `did` names what was done beside dropping, for the account."""

    edits: tuple[Edit, ...]
    element: Element
    did: tuple[str, ...] = ()
    drops: bool = False


def wire_of(contract: Contract, as_sent: bool, restores: bool, repairs: bool) -> Wire:
    """What a contract and the settings make of it; `as_sent` keeps the client's own carriers."""
    return Wire(
        () if as_sent else contract.reads, contract.writes, contract.encoding, contract.requires,
        contract.seals_may_go, restores, repairs, contract.requires is Requires.ABSENCE,
    )  # fmt: skip


def mended(wire: Wire, remedy: Remedy) -> Wire:
    """The wire after a request was refused with a 400 that wants this. The last refusal holds."""
    if remedy is Remedy.KEEP:
        return replace(wire, keeps=True, refuses=False)
    if remedy is Remedy.ABSENT:
        absent = replace(wire, encoding=Encoding.ABSENT, requires=Requires.NOTHING)
        return replace(absent, restores=False, refuses=True, keeps=False)
    empty = replace(wire, encoding=Encoding.EMPTY, requires=Requires.EVERY, refuses=False)
    return replace(empty, restores=True) if remedy is Remedy.RESTORE else empty


def packed(wire: Wire) -> bytes:
    """As it is pinned."""
    return msgspec.json.encode(wire)


def unpacked(raw: bytes, otherwise: Wire) -> Wire:
    """A pinned one; `otherwise` where a later version wrote what is not known here."""
    try:
        return msgspec.json.decode(raw, type=Wire)
    except msgspec.MsgspecError:
        return otherwise


def is_plain(message: Message, drop: bool, wire: Wire) -> bool:
    """Whether the message leaves as it came, or less what `Message.edits` take out: true of nearly
    all, and told without looking into the body.
    """
    if drop and message.sealed and wire.seals_may_go:
        return False
    if not message.carriers:
        return not _wants_field(message, wire)
    strings = [carrier for carrier in message.carriers if carrier in STRING_CARRIERS]
    if drop and strings and wire.encoding is Encoding.ABSENT:
        return False
    if _wants_field(message, wire) and not any(_is_read(carrier, wire) for carrier in strings):
        return False
    # A thought at the start of a text is a text to those who do not read it.
    return all(_is_read(carrier, wire) or carrier == "think" for carrier in message.carriers)


def _wants_field(message: Message, wire: Wire) -> bool:
    """Whether it must have a string carrier there."""
    if wire.requires is Requires.TOOL_CALLS:
        return bool(message.calls)
    return wire.requires is Requires.EVERY


def _is_read(carrier: str, wire: Wire) -> bool:
    return not wire.reads or carrier in wire.reads


def shape(
    body: bytes, message: Message, kind: Kind, reply: Reply | None, wire: Wire
) -> Shape | None:
    """The message at `message.start` as it leaves, edits in order; None where it is to leave as it
    came, or nobody can say where its members stand.
    """
    try:
        rows = reasoning.members(body, message.start, message.end)
        decoded = chat.exact(body[message.start : message.end])
        draft = _Draft(body, message, rows, decoded, wire)
        if kind is Kind.DROP:
            return draft.dropped()
        return draft.kept(reply if reply is not None and echoes(decoded, reply) else None)
    except (scan.Odd, ValueError):
        return None


def echoes(message: Mapping[str, Any], reply: Reply) -> bool:
    """Whether the calls of a message say what the reply's do, where both have as many. Ids repeat:
    two replies to one history may bear the same, and what the one thought is not the other's.
    """
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or len(calls) != len(reply.arguments):
        return True
    texts = [_arguments_of(call) for call in calls]
    return all(
        isinstance(text, str) and (text == own or _say_the_same(text, own))
        for text, own in zip(texts, reply.arguments, strict=True)
    )


def _arguments_of(call: Any) -> Any:
    inner = call.get("function") or call.get("custom") if isinstance(call, dict) else None
    return inner.get("arguments", inner.get("input")) if isinstance(inner, dict) else None


class _Draft:
    """What becomes of a message's members, by key."""

    def __init__(
        self, body: bytes, message: Message, rows: Sequence[Member], decoded: Any, wire: Wire
    ) -> None:
        self._body, self._message, self._wire = body, message, wire
        self._rows = {row.key: row for row in rows}
        self._decoded: Mapping[str, Any] = decoded
        self._content = decoded.get("content")
        self._present = reasoning.present(decoded)
        self._texts = dict(reasoning.texts_of(decoded))
        self._values: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._inner: list[Edit] = []
        self._part = b""
        self._did: list[str] = []

    # What is dropped.

    def dropped(self) -> Shape | None:
        sealed = self._message.sealed
        if sealed and (not self._wire.seals_may_go or reasoning.signs_a_call(self._decoded)):
            return None
        reasons = sealed or bool(self._texts)
        for key in self._present:
            if key in STRING_CARRIERS:
                self._empty(key)
            elif key in LIST_CARRIERS and (reasons or not _is_read(key, self._wire)):
                self._gone.add(key)
        if reasons and (row := self._rows.get("content")):
            self._inner += reasoning.content_out(self._body, row, self._content)
        self._fill()
        if sealed:
            return self._shaped(_bare(self._message), drops=True)
        # Without reasoning only what is empty goes; it may be rendered all the same.
        return self._shaped(self._message.dropped if reasons else None, drops=reasons)

    def _empty(self, key: str) -> None:
        if self._wire.encoding is Encoding.ABSENT or not _is_read(key, self._wire):
            self._gone.add(key)
        elif self._decoded[key]:
            self._values[key] = _EMPTY

    def _fill(self) -> None:
        """Nothing, in the carrier that has to be there."""
        if key := self._wanted():
            self._did += [] if key in self._gone else ["placeholder"]
            self._values[key] = _EMPTY

    def _wanted(self) -> str:
        """The carrier that has to be there and is not; empty where that is so of none."""
        if not _wants_field(self._message, self._wire) or any(map(self._leaves, STRING_CARRIERS)):
            return ""
        read = self._wire.reads or (*self._present, *STRING_CARRIERS)
        free = (key for key in read if key in STRING_CARRIERS and self._may_hold(key))
        return next(free, "")

    def _leaves(self, key: str) -> bool:
        """Whether the message leaves with this carrier, be it empty, and it is read."""
        there = key in self._values or (key in self._present and key not in self._gone)
        return there and _is_read(key, self._wire)

    # What is kept.

    def kept(self, reply: Reply | None) -> Shape | None:
        if self._message.sealed:
            return None
        if reply is not None and self._wire.restores and (reply.reasoning or reply.details):
            self._restore(reply)
        elif self._wire.reads:
            self._move()
        self._fill()
        if reply is not None and self._wire.repairs:
            self._repair(reply)
        return self._shaped(None)

    def _restore(self, reply: Reply) -> None:
        """Every carrier that is read says what was generated, and one is there that does."""
        first = (*self._wire.reads, reply.carrier)[0]
        wanted = (first,) if first == "reasoning_details" and reply.details else ()
        read = [key for key in self._present if self._reads(key, reply)]
        held = [self._say(key, reply, "restored") for key in dict.fromkeys((*read, *wanted))]
        if not any(held) and not self._put_in(reply):
            return None if reply.reasoning else self._move()
        self._leave_unread()
        if key := self._wanted():
            self._say(key, reply, "restored")
        if "think" in self._present and "think" not in read:
            # It was generated elsewhere, and is read there: in the text it would be said twice.
            self._inner += reasoning.think_out(self._body, self._rows["content"], self._content)

    def _reads(self, carrier: str, reply: Reply) -> bool:
        """A thought that was generated within a text is read there."""
        return _is_read(carrier, self._wire) or carrier == reply.carrier == "think"

    def _put_in(self, reply: Reply) -> bool:
        """Write what is in no carrier that is read into the first that can hold it."""
        own = (reply.carrier,) if reply.carrier == "think" else ()
        reads = self._wire.reads or (reply.carrier, self._wire.writes, *STRING_CARRIERS)
        what = "moved" if self._texts else "restored"
        return any(self._say(key, reply, what) for key in (*own, *reads) if key in _WRITTEN)

    def _move(self) -> None:
        """What came in a carrier that is not read goes to one that is."""
        fields = [carrier for carrier in self._texts if carrier != "think"]
        if fields and not any(_is_read(carrier, self._wire) for carrier in self._texts):
            longest = max(fields, key=lambda carrier: len(self._texts[carrier]))
            if not self._put_in(Reply("", self._texts[longest])):
                return
        self._leave_unread()

    def _leave_unread(self) -> None:
        """What is not read goes, empty fields too: there are APIs that refuse them."""
        unread = {key for key in self._present if not _is_read(key, self._wire)}
        self._gone |= unread & {*STRING_CARRIERS, *LIST_CARRIERS}
        if "content_parts" in unread:
            self._inner += reasoning.parts_out(self._body, self._rows["content"], self._content)

    # How it is written.

    def _say(self, carrier: str, reply: Reply, what: str) -> bool:
        """Make a carrier say what was generated; whether it does now."""
        if carrier == "reasoning_details":
            return self._say_in_details(reply, what)
        if not reply.reasoning or not self._may_hold(carrier):
            return False
        if carrier == "think":
            return self._say_in_text(reply, what)
        text = _text(reply)
        if self._texts.get(carrier) != text:
            self._did.append(what)
            if carrier == "content_parts":
                self._part = _THINKING % chat.literal(text)
            else:
                self._values[carrier] = chat.literal(text)
        return True

    def _may_hold(self, carrier: str) -> bool:
        """Whether it is free: what stands there and is no reasoning was said, and stays."""
        if carrier in _INSIDE:
            return self._content is None or isinstance(self._content, str | list)
        value = self._decoded.get(carrier)
        return value is None or isinstance(value, list if carrier in LIST_CARRIERS else str)

    def _say_in_details(self, reply: Reply, what: str) -> bool:
        came = self._decoded.get("reasoning_details")
        if reply.details and self._may_hold("reasoning_details"):
            if came is None or _form(came) != _form(chat.exact(reply.details)):
                self._values["reasoning_details"] = reply.details
                self._did.append(what)
            return True
        if reasoning.text_in(came) == _text(reply):
            return True
        self._gone |= {"reasoning_details"} & {*self._texts}
        return False

    def _say_in_text(self, reply: Reply, what: str) -> bool:
        """`<think>…</think>` before the text; in the place of one that is there."""
        parts = self._content if isinstance(self._content, list) else []
        has_text = reasoning.first_text_part(parts) is not None
        if not has_text and not all(map(reasoning.is_reasoning_part, parts)):
            return False
        text = reasoning.first_text(self._content)
        at, end, thought = _place(reply, text)
        whole = text[:at] + thought + text[end:]
        if reasoning.think_in(whole) != _text(reply) or _rest(whole) != _rest(text):
            return False
        if whole != text:
            self._did.append(what)
            if has_text or isinstance(self._content, str):
                self._inner.append(self._in_literal(end, reply, thought))
            else:
                self._values["content"] = chat.literal(thought)
        return True

    def _in_literal(self, end: int, reply: Reply, thought: str) -> Edit:
        """The edit that puts a thought where one stands, else in the place of the first `end`
        characters.
        """
        raw, row = chat.literal(thought)[1:-1], self._rows["content"]
        place = reasoning.think_place(self._body, row, self._content)
        if place is not None:
            return Edit(place.start, place.end if _is_exact(reply) else place.closed, raw)
        first, last = reasoning.first_literal(self._body, row, self._content)
        return Edit(first + 1, first + scan.raw_offset(self._body[first:last], end), raw)

    def _with_part(self) -> bytes:
        """The content with a part of its own before the others; in the place of those that are
        there.
        """
        rows = [self._part, *self._said()]
        return b"[" + b",".join(rows) + b"]"

    def _said(self) -> list[bytes]:
        """The parts of the content that are no reasoning, as they leave."""
        row, content = self._rows.get("content"), self._content
        if "content" in self._values or row is None or not content:
            text = self._values.get("content")
            return [_TEXT % text] if text else []
        if isinstance(content, str):
            return [_TEXT % self._raw(row.start, row.end)]
        spans = chat.elements(self._body, row.start, row.end)
        return [
            self._raw(*span)
            for span, part in zip(spans, content, strict=True)
            if not reasoning.is_reasoning_part(part)
        ]

    def _raw(self, start: int, end: int) -> bytes:
        inside = [
            replace(e, start=e.start - start, end=e.end - start)
            for e in self._inner
            if start <= e.start and e.end <= end
        ]
        return chat.apply(self._body[start:end], inside)

    def _repair(self, reply: Reply) -> None:
        """Arguments that say the same leave as the provider wrote them: it sees its own tokens."""
        calls = self._decoded.get("tool_calls")
        if not isinstance(calls, list) or len(calls) != len(reply.arguments):
            return
        try:
            places = self._argument_literals()
        except (scan.Odd, ValueError):
            return
        if len(places) != len(reply.arguments):
            return
        for (start, end, came), text in zip(places, reply.arguments, strict=True):
            if came != text:
                self._inner.append(Edit(start, end, chat.literal(text)))
                self._did.append("arguments")

    def _argument_literals(self) -> list[tuple[int, int, str]]:
        """Where the argument text of each call of a function stands, and what it says."""
        calls, found = self._rows["tool_calls"], []
        for start, end in chat.elements(self._body, calls.start, calls.end):
            for outer in reasoning.members(self._body, start, end):
                if outer.key == "function" and self._body.startswith(b"{", outer.start):
                    for inner in reasoning.members(self._body, outer.start, outer.end):
                        if inner.key == "arguments":
                            text = chat.decode(self._body[inner.start : inner.end])
                            found.append((inner.start, inner.end, text))
        return found

    # What comes of it.

    def _shaped(self, element: Element | None, drops: bool = False) -> Shape | None:
        edits = self._edits()
        if not edits:
            return None
        if element is None:
            at, end = self._message.start, self._message.end
            inside = [replace(e, start=e.start - at, end=e.end - at) for e in edits]
            out = chat.apply(self._body[at:end], inside)
            element = fingerprint.read(out, 0, len(out), b"").kept
        return Shape(tuple(edits), element, tuple(self._did), drops)

    def _edits(self) -> list[Edit]:
        if self._part:
            self._values["content"] = self._with_part()
        content = self._rows.get("content") if "content" in self._values else None
        edits = [e for e in self._inner if not _within(e, content)]
        there = [(row, self._values[key]) for key, row in self._rows.items() if key in self._values]
        edits += [
            Edit(row.start, row.end, value)
            for row, value in there
            if self._body[row.start : row.end] != value
        ]
        gone = [key in self._gone and key not in self._values for key in self._rows]
        edits += reasoning.removed([(row.at, row.end) for row in self._rows.values()], gone)
        added = [key for key in self._values if key not in self._rows]
        if added:
            edits.append(self._added(added))
        return sorted(edits, key=lambda e: (e.start, e.end))

    def _added(self, keys: Sequence[str]) -> Edit:
        """Before the first member; there is one, the role."""
        rows = [b'"%b":%b,' % (key.encode(), self._values[key]) for key in keys]
        return Edit(self._message.start + 1, self._message.start + 1, b"".join(rows))


_INSIDE = ("think", "content_parts")
_WRITTEN = (*STRING_CARRIERS, *_INSIDE)
_THINKING = b'{"type":"thinking","thinking":[{"type":"text","text":%b}]}'
_TEXT = b'{"type":"text","text":%b}'
_form = fingerprint.canonical


def _is_exact(reply: Reply) -> bool:
    """Whether the blanks around its thought are known: it was generated within a text."""
    return reply.carrier == "think"


def _text(reply: Reply) -> str:
    return reasoning.think_in(reply.reasoning) if _is_exact(reply) else reply.reasoning


def _place(reply: Reply, text: str) -> tuple[int, int, str]:
    """From where to where a text gives way to the thought of a reply, and the thought. The blanks
    behind a thought are its own where they are known, else the text's.
    """
    span, thought = reasoning.think_span(text), reply.reasoning
    blanks = len(text) - len(text.lstrip())
    if not _is_exact(reply):
        end = len(text[: span[1]].rstrip()) if span else 0
        return (span[0] if span else 0), end, f"<think>{thought}</think>"
    return (*span, thought.lstrip()) if span else (0, blanks, thought)


def _rest(text: str) -> str:
    return reasoning.without_think(text).lstrip()


def _say_the_same(a: str, b: str) -> bool:
    """Whether two argument texts are equal as values, numbers by their literals."""
    try:
        return _same(*(chat.exact(fingerprint.utf8(text)) for text in (a, b)))
    except ValueError:
        return False


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _within(edit: Edit, member: Member | None) -> bool:
    return member is not None and member.start <= edit.start and edit.end <= member.end


def _bare(message: Message) -> Element:
    """The element of a sealed message whose reasoning went whole."""
    whole = message.kept
    return replace(whole, digest=whole.said, reasoning=0, size=max(0, whole.size - whole.reasoning))
