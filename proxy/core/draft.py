"""One message as it is written anew: what each of its members is to say, and the edits that make it
so.

What is said in which carrier is decided in `form`. Here is how that is spelled where it stands: a
thought within a text, parts of a content, details, arguments as they were generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from proxy.core import fingerprint, reasoning
from proxy.core.reasoning import LIST_CARRIERS, STRING_CARRIERS
from proxy.core.replies import Reply
from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit
from proxy.core.wire.scan import Member

_INSIDE = ("think", "content_parts")
WRITTEN = (*STRING_CARRIERS, *_INSIDE)
"""The carriers that a text can be written into."""
_EMPTY = b'""'
_THINKING = b'{"type":"thinking","thinking":[{"type":"text","text":%b}]}'
_TEXT = b'{"type":"text","text":%b}'
_form = fingerprint.canonical


class Draft:
    """What becomes of a message's members, by key. `present` are the carriers that it came with,
    `texts` what they said, where they said something; `did` names what was done.

    Raises `scan.Odd` or ValueError where nobody can say where the members stand.
    """

    def __init__(self, body: bytes, start: int, end: int) -> None:
        self._body, self._start, self._end = body, start, end
        self._rows = {row.key: row for row in reasoning.members(body, start, end)}
        self.decoded: Mapping[str, Any] = chat.exact(body[start:end])
        self._content = self.decoded.get("content")
        self.present = reasoning.present(self.decoded)
        self.texts = dict(reasoning.texts_of(self.decoded))
        self.did: list[str] = []
        self._values: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._inner: list[Edit] = []
        self._part = b""

    # What goes.

    def leave_out(self, keys: Iterable[str]) -> None:
        self._gone.update(keys)

    def leave_out_reasoning(self) -> None:
        """What the content holds of it, in parts and before the text."""
        if row := self._rows.get("content"):
            self._inner += reasoning.content_out(self._body, row, self._content)

    def leave_out_parts(self) -> None:
        self._inner += reasoning.parts_out(self._body, self._rows["content"], self._content)

    def leave_out_thought(self) -> None:
        self._inner += reasoning.think_out(self._body, self._rows["content"], self._content)

    def empty(self, key: str) -> None:
        """Nothing, where a string carrier says something."""
        if self.decoded[key]:
            self._values[key] = _EMPTY

    def fill(self, key: str) -> None:
        """Nothing, in a carrier that has to be there."""
        self.did += [] if key in self._gone else ["placeholder"]
        self._values[key] = _EMPTY

    def has(self, key: str) -> bool:
        """Whether the message leaves with this carrier, be it empty."""
        return key in self._values or (key in self.present and key not in self._gone)

    # What is said.

    def say(self, carrier: str, reply: Reply, what: str) -> bool:
        """Make a carrier say what was generated; whether it does now."""
        if carrier == "reasoning_details":
            return self._say_in_details(reply, what)
        if not reply.reasoning or not self.may_hold(carrier):
            return False
        if carrier == "think":
            return self._say_in_text(reply, what)
        text = _text(reply)
        if self.texts.get(carrier) != text:
            self.did.append(what)
            if carrier == "content_parts":
                self._part = _THINKING % chat.literal(text)
            else:
                self._values[carrier] = chat.literal(text)
        return True

    def may_hold(self, carrier: str) -> bool:
        """Whether it is free: what stands there and is no reasoning was said, and stays."""
        if carrier in _INSIDE:
            return self._content is None or isinstance(self._content, str | list)
        value = self.decoded.get(carrier)
        return value is None or isinstance(value, list if carrier in LIST_CARRIERS else str)

    def _say_in_details(self, reply: Reply, what: str) -> bool:
        came = self.decoded.get("reasoning_details")
        if reply.details and self.may_hold("reasoning_details"):
            if came is None or _form(came) != _form(chat.exact(reply.details)):
                self._values["reasoning_details"] = reply.details
                self.did.append(what)
            return True
        if reasoning.text_in(came) == _text(reply):
            return True
        self._gone |= {"reasoning_details"} & {*self.texts}
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
            self.did.append(what)
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
        inside = [e for e in self._inner if start <= e.start and e.end <= end]
        return self._applied(start, end, inside)

    def _applied(self, start: int, end: int, edits: Sequence[Edit]) -> bytes:
        """That piece of the body after these edits."""
        inside = [replace(e, start=e.start - start, end=e.end - start) for e in edits]
        return chat.apply(self._body[start:end], inside)

    def repair(self, reply: Reply) -> None:
        """Arguments that say the same leave as the provider wrote them: it sees its own tokens."""
        calls = self.decoded.get("tool_calls")
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
                self.did.append("arguments")

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

    def written(self, edits: Sequence[Edit]) -> bytes:
        """The message after these edits."""
        return self._applied(self._start, self._end, edits)

    def edits(self) -> list[Edit]:
        """In order; none where nothing changes."""
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
        return Edit(self._start + 1, self._start + 1, b"".join(rows))


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


def _within(edit: Edit, member: Member | None) -> bool:
    return member is not None and member.start <= edit.start and edit.end <= member.end
