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

import msgspec
from msgspec.structs import replace

from proxy.core import fingerprint, reasoning
from proxy.core.contract import Encoding, Requires
from proxy.core.dialect import Wire
from proxy.core.draft import WRITTEN, Draft
from proxy.core.fingerprint import Message
from proxy.core.reasoning import LIST_CARRIERS, STRING_CARRIERS
from proxy.core.replies import Reply, echoes
from proxy.core.sent import Element
from proxy.core.verdict import Kind
from proxy.core.wire import scan
from proxy.core.wire.chat import Edit


class Shape(msgspec.Struct, frozen=True, gc=False):
    """One message as it leaves. `did` names what was done beside dropping, for the account."""

    edits: tuple[Edit, ...]
    element: Element
    did: tuple[str, ...] = ()
    drops: bool = False


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
        draft = Draft(body, message.start, message.end)
        form = _Form(message, wire, draft)
        if kind is Kind.DROP:
            return form.dropped()
        return form.kept(reply if reply is not None and echoes(draft.decoded, reply) else None)
    except (scan.Odd, ValueError):
        return None


class _Form:
    """What is to be said in which carrier of one message."""

    def __init__(self, message: Message, wire: Wire, draft: Draft) -> None:
        self._message, self._wire, self._draft = message, wire, draft

    # What is dropped.

    def dropped(self) -> Shape | None:
        draft, sealed = self._draft, self._message.sealed
        if sealed and (not self._wire.seals_may_go or reasoning.signs_a_call(draft.decoded)):
            return None
        reasons = sealed or bool(draft.texts)
        for key in draft.present:
            if key in STRING_CARRIERS:
                self._empty(key)
            elif key in LIST_CARRIERS and (reasons or not _is_read(key, self._wire)):
                draft.leave_out({key})
        if reasons:
            draft.leave_out_reasoning()
        self._fill()
        if sealed:
            return self._shaped(_bare(self._message), drops=True)
        # Without reasoning only what is empty goes; it may be rendered all the same.
        return self._shaped(self._message.dropped if reasons else None, drops=reasons)

    def _empty(self, key: str) -> None:
        if self._wire.encoding is Encoding.ABSENT or not _is_read(key, self._wire):
            self._draft.leave_out({key})
        else:
            self._draft.empty(key)

    def _fill(self) -> None:
        """Nothing, in the carrier that has to be there."""
        if key := self._wanted():
            self._draft.fill(key)

    def _wanted(self) -> str:
        """The carrier that has to be there and is not; empty where that is so of none."""
        if not _wants_field(self._message, self._wire) or any(map(self._leaves, STRING_CARRIERS)):
            return ""
        read = self._wire.reads or (*self._draft.present, *STRING_CARRIERS)
        free = (key for key in read if key in STRING_CARRIERS and self._draft.may_hold(key))
        return next(free, "")

    def _leaves(self, key: str) -> bool:
        """Whether the message leaves with this carrier, be it empty, and it is read."""
        return self._draft.has(key) and _is_read(key, self._wire)

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
            self._draft.repair(reply)
        return self._shaped(None)

    def _restore(self, reply: Reply) -> None:
        """Every carrier that is read says what was generated, and one is there that does."""
        draft, first = self._draft, (*self._wire.reads, reply.carrier)[0]
        wanted = (first,) if first == "reasoning_details" and reply.details else ()
        read = [key for key in draft.present if self._reads(key, reply)]
        held = [draft.say(key, reply, "restored") for key in dict.fromkeys((*read, *wanted))]
        if not any(held) and not self._put_in(reply):
            return None if reply.reasoning else self._move()
        self._leave_unread()
        if key := self._wanted():
            draft.say(key, reply, "restored")
        if "think" in draft.present and "think" not in read:
            # It was generated elsewhere, and is read there: in the text it would be said twice.
            draft.leave_out_thought()

    def _reads(self, carrier: str, reply: Reply) -> bool:
        """A thought that was generated within a text is read there."""
        return _is_read(carrier, self._wire) or carrier == reply.carrier == "think"

    def _put_in(self, reply: Reply) -> bool:
        """Write what is in no carrier that is read into the first that can hold it."""
        own = (reply.carrier,) if reply.carrier == "think" else ()
        reads = self._wire.reads or (reply.carrier, self._wire.writes, *STRING_CARRIERS)
        what = "moved" if self._draft.texts else "restored"
        return any(self._draft.say(key, reply, what) for key in (*own, *reads) if key in WRITTEN)

    def _move(self) -> None:
        """What came in a carrier that is not read goes to one that is."""
        texts = self._draft.texts
        fields = [carrier for carrier in texts if carrier != "think"]
        if fields and not any(_is_read(carrier, self._wire) for carrier in texts):
            longest = max(fields, key=lambda carrier: len(texts[carrier]))
            if not self._put_in(Reply("", texts[longest])):
                return
        self._leave_unread()

    def _leave_unread(self) -> None:
        """What is not read goes, empty fields too: there are APIs that refuse them."""
        unread = {key for key in self._draft.present if not _is_read(key, self._wire)}
        self._draft.leave_out(unread & {*STRING_CARRIERS, *LIST_CARRIERS})
        if "content_parts" in unread:
            self._draft.leave_out_parts()

    # What comes of it.

    def _shaped(self, element: Element | None, drops: bool = False) -> Shape | None:
        edits = self._draft.edits()
        if not edits:
            return None
        if element is None:
            out = self._draft.written(edits)
            element = fingerprint.read(out, 0, len(out), b"").kept
        if not _PUT_BACK.isdisjoint(self._draft.did):
            element = replace(element, put_back=True)
        return Shape(tuple(edits), element, tuple(self._draft.did), drops)


_PUT_BACK = frozenset({"restored", "arguments"})


def _bare(message: Message) -> Element:
    """The element of a sealed message whose reasoning went whole."""
    whole = message.kept
    return replace(whole, digest=whole.said, reasoning=0, size=max(0, whole.size - whole.reasoning))
