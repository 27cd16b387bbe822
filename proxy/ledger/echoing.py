"""What one turn asks the shared store of echoes and pins, and what its answer means.

Only what this worker does not know for good is asked. A reply that it kept goes by its id, so that
the store need not send it back; the reply itself goes with it where the store may not have it yet,
or said that it lost it. What was told once stays: where this worker has told another finding
meanwhile, because the store was away, its own one holds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.replies import Reply
from proxy.ledger.codec import Codec
from proxy.ledger.contract import Ask
from proxy.ledger.echoes import Echoes
from proxy.ledger.scripts import told
from proxy.ledger.thread import Held, Thread

_PUT, _WANTED = 1, -1


class _Question(msgspec.Struct, frozen=True):
    """One echo. `bring`: what this worker holds goes with it."""

    link: bytes
    keys: tuple[bytes, ...]
    held: Held | None
    bring: bool

    def row(self, form: Codec) -> tuple[bytes, bytes, bytes, bytes]:
        held = self.held
        reply = form.reply(held.reply)[1] if held and self.bring else b""
        return self.link, b"".join(self.keys), held.id if held else b"", reply


class Echoing:
    """`absent` gathers what the store holds and cannot be read."""

    def __init__(self, ask: Ask, echoes: Echoes, form: Codec, absent: list[bytes]) -> None:
        self._ask, self._echoes, self._codec, self._absent = ask, echoes, form, absent
        known = echoes.pinned(ask.conversation)
        self.found = echoes.echoed([echo.link for echo in ask.echoes])
        self.pins = {name: known[name] for name in ask.pins if name in known}
        self.missed = self.unreadable = self.diverged = 0
        self._questions: list[_Question] = []
        for echo in ask.echoes:
            if echo.link not in self.found:
                held = echoes.held(ask, echo.keys)
                bring = held is not None and not held.stored
                self._questions.append(_Question(echo.link, echo.keys, held, bring))
        offered = echoes.offered(ask)
        self._offered = {name: offered[name] for name in offered if name not in known}

    def arguments(self) -> list[Any]:
        """Nothing, where there is nothing to ask any more."""
        form, root = self._codec, self._ask.root
        rows = [question.row(form) for question in self._questions]
        pins = [
            (name.encode(), b"" if v is None else form.pin(root, name, v))
            for name, v in self._offered.items()
        ]
        return told(rows, pins)

    def take(self, thread: Thread, echoes: Sequence[Any], pins: Sequence[Any]) -> None:
        """What is unclear is left, to be asked again."""
        questions, self._questions = self._questions, []
        for question, row in zip(questions, echoes, strict=True):
            self._take_echo(thread, question, *row)
        offered, self._offered = self._offered, {}
        for (name, ours), raw in zip(offered.items(), pins, strict=True):
            self._take_pin(thread, name, ours, raw)

    @property
    def unclear(self) -> bool:
        return bool(self._questions or self._offered)

    def _take_echo(
        self, thread: Thread, it: _Question, became: int, reference: bytes, raw: bytes | None
    ) -> None:
        if became == _WANTED:
            self._questions.append(replace(it, bring=True))
            return
        id = reference[1:]
        reply = self._read(it, id, raw) if id else None
        if id and reply is None:
            # Without its keys this echo is a miss, or what this worker holds.
            self.unreadable += 1
            self._absent.append(reference)
            self._questions.append(replace(it, keys=(), bring=it.held is not None))
            return
        told = self._echoes.find(thread, it.link, reply)
        self.found[it.link] = told
        self.diverged += told != reply
        self.missed += became == _PUT and reply is None

    def _read(self, it: _Question, id: bytes, raw: bytes | None) -> Reply | None:
        """The reply that the store names; it sends it only where this worker holds another."""
        if raw is None and it.held is not None:
            it.held.stored = True
            return it.held.reply
        return self._codec.read_reply(id, raw or b"")

    def _take_pin(self, thread: Thread, name: str, ours: bytes | None, raw: bytes | None) -> None:
        stands = ours
        if raw is not None:
            read = self._codec.read_pin(self._ask.root, name, raw)
            if read is None:
                self.unreadable += 1
                self._absent.append(raw)
                self._offered[name] = ours
                return
            stands = read
        if stands is None:
            return
        self.pins[name] = self._echoes.pin(thread, name, stands)
        self.diverged += self.pins[name] != stands
