"""Makes what others wrote safe to look at, and numbers easy to read.

Message text is hostile: it may hold control characters that move a terminal's cursor, direction
marks that make a line read otherwise than it is, and halves of characters that no encoder takes.
Each becomes something that can be seen. What is unknown is written `–` and never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

UNKNOWN = "–"
_KEPT = "\t\n"
# C0, DEL and C1; marks that turn the direction of text (Unicode TR 36); halves of a surrogate pair.
_odd = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with what cannot be seen made visible; tabs and line ends stay."""
    return _odd.sub(_shown, text.replace("\r\n", "\n"))


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


def line(text: str) -> str:
    """`visible`, in one line."""
    return visible(text).replace("\n", "↵").replace("\t", " ")


def count(number: float | None) -> str:
    """A whole number with its thousands apart: `52,310`."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def noun(number: float | None, word: str) -> str:
    """The word as it stands behind the number: `turn` behind 1 and -1, else `turns`."""
    return word if number in (1, -1) else f"{word}s"


def numbered(number: float | None, word: str) -> str:
    """`1 turn`, `2,000 turns`."""
    return f"{count(number)} {noun(number, word)}"


def short(number: float | None) -> str:
    """A number in few characters: `9,876`, `52.3k`, `1.2M`."""
    if number is None or number < 10_000:
        return count(number)
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.9995:
            scaled = number / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return count(number)


def dollars(amount: float, estimated: bool = True) -> str:
    """A sum of money to two digits that count, marked where estimated: `~$0.0012`, `$3.40`."""
    mark = "~" if estimated else ""
    if abs(amount) >= 1 or amount == 0:
        return f"{mark}${amount:,.2f}"
    return f"{mark}${float(f'{amount:.2g}'):.9f}".rstrip("0")


def money(sums: Mapping[str, Any] | None) -> str:
    """What turns came to, in words; a loss is told as one. Nothing where nothing has a price."""
    if sums is None:
        return ""
    saved = sums["mechanical_saving"]
    verb = "lost" if saved < 0 else "saved"
    told = f"cost {dollars(sums['cost'], False)} · mechanically {verb} "
    told += f"{dollars(abs(saved), sums['estimated'])} against keep"
    unpriced = sums["unpriced_turns"]
    return f"{told} · {numbered(unpriced, 'turn')} without a price" if unpriced else told


def percent(share: float | None) -> str:
    """A share from 0 to 1: `94 %`. Only all of it is 100, only nothing of it 0."""
    if share is None:
        return UNKNOWN
    whole = round(share * 100)
    if whole == 100 and share < 1:
        whole = 99
    return "<1 %" if whole == 0 and share > 0 else f"{whole} %"


def size(number: int) -> str:
    """Bytes: `312 B`, `4.1 kB`, `2.0 MB`."""
    for unit, name in ((1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} B"


def milliseconds(number: float | None) -> str:
    """`0.4 ms`, `320 ms`, `4.1 s`."""
    if number is None:
        return UNKNOWN
    if number < 1000:
        return f"{number:.1f} ms" if number < 10 else f"{number:.0f} ms"
    return f"{number / 1000:.1f} s"


def ago(seconds: float) -> str:
    """How long since: `now`, `12 s`, `3 min`, `2 h`, `5 d`."""
    if seconds < 2:
        return "now"
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"


def moment(at: float) -> str:
    """Seconds since the epoch as `2026-11-30 17:48:09`, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
