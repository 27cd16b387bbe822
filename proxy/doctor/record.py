"""All answers of one examination, as one value: what every conclusion is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.doctor.answers import NOT_ASKED, Answer, Listed
from proxy.doctor.caching import Echoed, Rung
from proxy.doctor.prompts import Dialect


@dataclass(frozen=True, slots=True)
class Record:
    """`loop` are histories of one tool call, by where reasoning stood in it: a carrier, `absent`,
    `empty` (`""`), `null`, `plain` (a second assistant message, a plain one, without the field).
    `chain` is the growing conversation, `before_turn` its last prompt, `turn_plain` and
    `turn_carried` that with a new user message, without and with reasoning in it.
    """

    dialect: Dialect
    listed: Listed
    first: Answer
    streamed: Answer = NOT_ASKED
    bare: Answer = NOT_ASKED
    loop: Mapping[str, Answer] = field(default_factory=dict)
    chain: tuple[Rung, ...] = ()
    echoes: tuple[Echoed, ...] = ()
    before_turn: Answer = NOT_ASKED
    turn_plain: Answer = NOT_ASKED
    turn_carried: Answer = NOT_ASKED

    def history(self, name: str) -> Answer:
        return self.loop.get(name, NOT_ASKED)
