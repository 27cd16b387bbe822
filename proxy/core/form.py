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
    """The wire after a request was refused with a 400 that wants this."""
    match remedy:
        case Remedy.EMPTY:
            return replace(wire, encoding=Encoding.EMPTY, requires=Requires.EVERY)
        case Remedy.RESTORE:
            empty = replace(wire, encoding=Encoding.EMPTY, requires=Requires.EVERY)
            return replace(empty, restores=True)
        case Remedy.ABSENT:
            absent = replace(wire, encoding=Encoding.ABSENT, requires=Requires.NOTHING)
            return replace(absent, restores=False, refuses=True)
        case Remedy.KEEP:
            return replace(wire, keeps=True)


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
    if not wire.reads and wire.encoding is Encoding.EMPTY and not _wants_field(message, wire):
        return not (drop and message.sealed and wire.seals_may_go)
    strings = [carrier for carrier in message.carriers if carrier in STRING_CARRIERS]
    if drop and (strings and wire.encoding is Encoding.ABSENT):
        return False
    if drop and message.sealed and wire.seals_may_go:
        return False
    if _wants_field(message, wire) and not any(_is_read(carrier, wire) for carrier in strings):
        return False
    return not wire.reads or all(carrier in wire.reads for carrier in strings)


def _wants_field(message: Message, wire: Wire) -> bool:
    """Whether it must have a string carrier there."""
    match wire.requires:
        case Requires.NOTHING | Requires.ABSENCE:
            return False
        case Requires.TOOL_CALLS:
            return bool(message.calls)
        case Requires.EVERY:
            return True


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
    except (scan.Odd, ValueError):
        return None
    draft = _Draft(body, message, rows, decoded, wire)
    if kind is Kind.DROP:
        return draft.dropped()
    return draft.kept(reply)


class _Draft:
    """What becomes of a message's members, by key."""

    def __init__(
        self, body: bytes, message: Message, rows: Sequence[Member], decoded: Any, wire: Wire
    ) -> None:
        self._body, self._message, self._rows, self._wire = body, message, rows, wire
        self._decoded: Mapping[str, Any] = decoded
        self._values: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._inner: list[Edit] = []
        self._did: list[str] = []

    # What is dropped.

    def dropped(self) -> Shape | None:
        sealed = self._message.sealed
        if sealed and (not self._wire.seals_may_go or reasoning.signs_a_call(self._decoded)):
            return None
        for key in STRING_CARRIERS:
            if isinstance(text := self._decoded.get(key), str):
                self._empty(key, text)
        self._gone |= {key for key in LIST_CARRIERS if isinstance(self._decoded.get(key), list)}
        self._take_out_of_content()
        self._fill()
        reasons = bool(self._message.kept.reasoning) or sealed
        element = self._message.dropped if not sealed else _bare(self._message)
        return self._shaped(element, drops=reasons)

    def _empty(self, key: str, text: str) -> None:
        if self._wire.encoding is Encoding.ABSENT or not _is_read(key, self._wire):
            self._gone.add(key)
        elif text:
            self._values[key] = _EMPTY

    def _take_out_of_content(self) -> None:
        for member in self._rows:
            if member.key == "content":
                content = self._decoded["content"]
                self._inner += reasoning.content_out(self._body, member, content)

    def _fill(self) -> None:
        """Nothing, in the carrier that has to be there."""
        if not _wants_field(self._message, self._wire):
            return
        there = [key for key in STRING_CARRIERS if self._leaves(key)]
        key = self._string_carrier()
        if key and not any(_is_read(carrier, self._wire) for carrier in there):
            self._values[key] = _EMPTY
            self._did.append("placeholder")

    def _leaves(self, key: str) -> bool:
        """Whether the message leaves with this string carrier, be it empty."""
        came = isinstance(self._decoded.get(key), str) and key not in self._gone
        return came or key in self._values

    def _string_carrier(self) -> str:
        """The string that is read, the preferred one; empty where none is."""
        read = self._wire.reads or STRING_CARRIERS
        return next((carrier for carrier in read if carrier in STRING_CARRIERS), "")

    # What is kept.

    def kept(self, reply: Reply | None) -> Shape | None:
        texts = dict(reasoning.texts_of(self._decoded))
        if not self._message.sealed:
            if reply is not None and self._wire.restores:
                self._restore(reply, texts)
            elif self._wire.reads:
                self._move(texts)
            self._fill()
        if reply is not None and self._wire.repairs:
            self._repair(reply)
        return self._shaped(None)

    def _restore(self, reply: Reply, texts: Mapping[str, str]) -> None:
        """Every carrier that is read says what was generated, and one is there that does."""
        if reply.details and self._reads_details(reply):
            if msgspec.json.encode(self._decoded.get("reasoning_details")) != reply.details:
                self._put("reasoning_details", reply.details, "restored")
            return
        if not reply.reasoning:
            return self._move(texts)
        whole = _whole(reply)
        for carrier, text in texts.items():
            if _is_read(carrier, self._wire) and text != whole[carrier == "think"]:
                self._write(carrier, reply, "restored")
        if any(_is_read(carrier, self._wire) for carrier in texts):
            return self._leave_unread(texts)
        target = self._target(reply)
        if target:
            self._write(target, reply, "moved" if texts else "restored")
            self._leave_unread(texts)

    def _reads_details(self, reply: Reply) -> bool:
        reads = self._wire.reads or (reply.carrier,)
        return reads[0] == "reasoning_details"

    def _move(self, texts: Mapping[str, str]) -> None:
        """What came in a carrier that is not read goes to one that is."""
        if not texts or any(_is_read(carrier, self._wire) for carrier in texts):
            return self._leave_unread(texts)
        strings = [carrier for carrier in texts if carrier != "think"]
        target = self._target(None)
        if not strings or not target:
            return
        carrier = max(strings, key=lambda name: len(texts[name]))
        self._write(target, Reply(carrier, texts[carrier]), "moved")
        self._leave_unread(texts)

    def _target(self, reply: Reply | None) -> str:
        """Where reasoning is written that is in no carrier that is read."""
        reads = self._wire.reads
        if not reads and reply is not None:
            came = (reply.carrier, self._wire.writes, STRING_CARRIERS[0])
            return next(carrier for carrier in came if carrier in _WRITTEN)
        return next((carrier for carrier in reads if carrier in _WRITTEN), "")

    def _leave_unread(self, texts: Mapping[str, str]) -> None:
        """Strings that are not read go, empty ones too: there are APIs that refuse them."""
        if self._wire.reads:
            strings = [key for key in STRING_CARRIERS if isinstance(self._decoded.get(key), str)]
            unread = {key for key in (*strings, *texts) if key not in self._wire.reads}
            self._gone |= unread & {*STRING_CARRIERS, *LIST_CARRIERS}

    def _write(self, carrier: str, reply: Reply, what: str) -> None:
        text, thought = _whole(reply)
        if carrier in STRING_CARRIERS:
            self._put(carrier, chat.literal(text), what)
        elif carrier == "think":
            self._put_before(thought, what)
        elif carrier == "content_parts":
            self._put_part(text, what)

    def _put(self, key: str, value: bytes, what: str) -> None:
        self._values[key] = value
        self._did.append(what)

    def _put_before(self, thought: str, what: str) -> None:
        """`<think>…</think>` before the text; in the place of one that is there."""
        content = self._decoded.get("content")
        if content is None or isinstance(content, str):
            text = thought + reasoning.without_think(content or "")
            self._put("content", chat.literal(text), what)

    def _put_part(self, text: str, what: str) -> None:
        """A part of its own before the others; in the place of those that are there."""
        part = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
        content = self._decoded.get("content")
        rows = [b"[", msgspec.json.encode(part)]
        for raw in self._parts(content):
            rows += [b",", raw]
        self._put("content", b"".join([*rows, b"]"]), what)

    def _parts(self, content: Any) -> list[bytes]:
        """The parts of the content that are no reasoning, as they came."""
        if isinstance(content, str):
            return [b'{"type":"text","text":%b}' % chat.literal(content)] if content else []
        if not isinstance(content, list):
            return []
        (member,) = (row for row in self._rows if row.key == "content")
        spans = chat.elements(self._body, member.start, member.end)
        return [
            self._body[start:end]
            for (start, end), part in zip(spans, content, strict=True)
            if not reasoning.is_reasoning_part(part)
        ]

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
            if came != text and _say_the_same(came, text):
                self._inner.append(Edit(start, end, chat.literal(text)))
                self._did.append("arguments")

    def _argument_literals(self) -> list[tuple[int, int, str]]:
        """Where each call's argument text stands, and what it says."""
        (calls,) = (row for row in self._rows if row.key == "tool_calls")
        found = []
        for start, end in chat.elements(self._body, calls.start, calls.end):
            for outer in reasoning.members(self._body, start, end):
                if outer.key == "function" and self._body.startswith(b"{", outer.start):
                    for inner in reasoning.members(self._body, outer.start, outer.end):
                        if inner.key == "arguments":
                            text = chat.decode(self._body[inner.start : inner.end])
                            if isinstance(text, str):
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
        keys = {row.key: row for row in self._rows}
        edits = list(self._inner) if "content" not in self._values else [
            e for e in self._inner if not _within(e, keys.get("content"))
        ]  # fmt: skip
        for key, value in self._values.items():
            if (row := keys.get(key)) is not None and self._body[row.start : row.end] != value:
                edits.append(Edit(row.start, row.end, value))
        gone = [row.key in self._gone for row in self._rows]
        edits += reasoning.removed([(row.at, row.end) for row in self._rows], gone)
        added = [key for key in self._values if key not in keys]
        if added:
            edits.append(self._added(added, bare=all(gone)))
        return sorted(edits, key=lambda e: (e.start, e.end))

    def _added(self, keys: Sequence[str], bare: bool) -> Edit:
        rows = [b'"%b":%b' % (key.encode(), self._values[key]) for key in keys]
        at = self._message.start + 1
        return Edit(at, at, b",".join(rows) + (b"" if bare else b","))


_WRITTEN = (*STRING_CARRIERS, "think", "content_parts")


def _whole(reply: Reply) -> tuple[str, str]:
    """The reasoning as a text, and as `<think>…</think>`, each as it was generated."""
    if reply.carrier == "think":
        return reasoning.think_in(reply.reasoning), reply.reasoning
    return reply.reasoning, f"<think>{reply.reasoning}</think>"


def _say_the_same(a: str, b: str) -> bool:
    """Whether two argument texts are equal as values, numbers by their literals."""
    try:
        forms = [fingerprint.canonical(chat.exact(fingerprint.utf8(text))) for text in (a, b)]
    except ValueError:
        return False
    return forms[0] == forms[1]


def _within(edit: Edit, member: Member | None) -> bool:
    return member is not None and member.start <= edit.start and edit.end <= member.end


def _bare(message: Message) -> Element:
    """The element of a sealed message whose reasoning went whole."""
    whole = message.kept
    return replace(whole, digest=whole.said, reasoning=0, size=max(0, whole.size - whole.reasoning))
