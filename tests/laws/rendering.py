"""Writes JSON as clients do, what is bad included, so that tests decide every byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """JSON text that stands as it is: numbers beyond measure, NaN, what nobody should write."""

    text: str


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may repeat."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a client writes: its separators, its escapes, the order of its keys."""

    comma: str = ","
    colon: str = ":"
    ascii: bool = False
    html: bool = False
    slashes: bool = False
    order: str = "as_is"

    def render(self, value: Any) -> bytes:
        return self._text(value).encode("utf-8", "surrogateescape")

    def _text(self, value: Any) -> str:
        match value:
            case Literal():
                return value.text
            case str():
                return self._string(value)
            case Pairs():
                return self._object(value)
            case dict():
                return self._object(self._ordered(list(value.items())))
            case list():
                return "[" + self.comma.join(map(self._text, value)) + "]"
            case _:
                return json.dumps(value)

    def _object(self, pairs: list[tuple[str, Any]]) -> str:
        row = [self._string(key) + self.colon + self._text(value) for key, value in pairs]
        return "{" + self.comma.join(row) + "}"

    def _ordered(self, pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        match self.order:
            case "sorted":
                return sorted(pairs, key=lambda pair: pair[0])
            case "reversed":
                return pairs[::-1]
            case _:
                return pairs

    def _string(self, text: str) -> str:
        """Lone surrogates are always escaped; those of bad UTF-8 leave as the bytes they were."""
        out = json.dumps(text, ensure_ascii=self.ascii)
        if not self.ascii:
            out = "".join(f"\\u{ord(c):04x}" if _is_lone(c) else c for c in out)
        if self.html:
            out = out.replace("<", "\\u003c").replace(">", "\\u003E").replace("&", "\\u0026")
        return out.replace("/", "\\/") if self.slashes else out


def _is_lone(c: str) -> bool:
    return "\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff"


COMPACT = Style()
PYTHON = Style(", ", ": ", ascii=True)
STYLES = (
    COMPACT,
    PYTHON,
    Style(order="sorted"),
    Style(order="reversed"),
    Style(html=True, slashes=True),
    Style(" ,\n  ", "\t: ", slashes=True),
)
