"""What is decided of one step's reasoning: once, and for ever."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    KEEP = "keep"
    DROP = "drop"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`text` is what stands in the reasoning's place; only a REPLACE has one."""

    kind: Kind
    text: str = ""

    def encoded(self) -> bytes:
        """The form at rest: one letter, then the text of a REPLACE."""
        return self.kind.value[0].encode() + self.text.encode("utf-8", "surrogatepass")


KEEP = Verdict(Kind.KEEP)
DROP = Verdict(Kind.DROP)


def decoded(raw: bytes) -> Verdict | None:
    """Read the form at rest; None for what this version cannot read, which counts as absent."""
    match raw[:1]:
        case b"k" if len(raw) == 1:
            return KEEP
        case b"d" if len(raw) == 1:
            return DROP
        case b"r":
            return _replacing(raw[1:])
        case _:
            return None


def _replacing(text: bytes) -> Verdict | None:
    try:
        return Verdict(Kind.REPLACE, text.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return None
