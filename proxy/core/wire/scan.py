"""Where things stand in JSON text: the byte ranges of members and elements, without decoding them.

The exact but slow way, for the tail of a body, for one message, and for what fast decoders refuse
(lone surrogates, NaN). It checks the structure one level deep; what stands inside a value is
balanced, no more. Offsets are absolute. Time is linear in the text, whatever it holds. Raises `Odd`
where the text is not what it should be.
"""

from __future__ import annotations

import json
import re

import msgspec

MAX_MEMBERS = 10_000

# Possessive repeats: linear in time and memory, however long a string is and however many escapes
# it has.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_string = re.compile(_STRING, re.DOTALL)
# The bare quote opens a string that never ends: looking on behind it would be quadratic.
_token = re.compile(_STRING + rb'|[{\[]++|[}\]]++|"', re.DOTALL)
_plain_string = re.compile(rb'"[^"]*+"')
_blank = re.compile(rb"[ \t\r\n]*+")
_scalar = re.compile(rb"-?(?:[0-9][0-9.eE+\-]*+|Infinity|NaN)|true|false|null")


class Odd(ValueError):
    """The text is not the JSON that was wanted here."""


class TooMany(Odd):
    """There are more members or elements than are looked at."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """One member of an object: where its key begins, the key decoded, the range of its value."""

    at: int
    key: str
    start: int
    end: int


def skip_blank(text: bytes, at: int) -> int:
    """The first offset from `at` on that holds no JSON blank."""
    match = _blank.match(text, at)
    return match.end() if match else at


def value_end(text: bytes, at: int) -> int:
    """The offset after the value that begins at `at`."""
    first = text[at : at + 1]
    if first == b'"':
        return _string_end(text, at)
    if first in (b"{", b"["):
        return _balanced_end(text, at)
    match = _scalar.match(text, at)
    if not match:
        raise Odd(f"no JSON value at byte {at}")
    return match.end()


def _string_end(text: bytes, at: int) -> int:
    match = _string.match(text, at)
    if not match:
        raise Odd(f"unfinished string at byte {at}")
    return match.end()


def _balanced_end(text: bytes, at: int) -> int:
    depth = 0
    for match in _token.finditer(text, at):
        start, end = match.span()
        mark = text[start]
        if mark in b"{[":
            depth += end - start
        elif mark in b"}]":
            if depth <= end - start:
                return start + depth
            depth -= end - start
        elif end - start == 1:
            break
    raise Odd(f"unfinished value at byte {at}")


_MARKS = b",[{"
_IN_STRINGS = 4
# So many times the marks may stand in strings: those may hold JSON that is read in its turn.
_MOST_QUOTES = 4
# Quotes to a mark outside of strings: two strings to a member, two quotes to a string.


def busier_than(text: bytes, limit: int) -> bool:
    """Whether more values than `limit` begin in a text, by its commas and opening brackets.

    Nothing is built and no step is taken a value, so that the answer is always cheap.
    """
    if len(text) <= limit or (marks := count_of(_MARKS, text)) <= limit:
        return False
    if marks > _IN_STRINGS * limit:
        return True
    outside = _outside_strings(text, limit * _MOST_QUOTES)
    return outside is None or count_of(_MARKS, outside) > limit


def count_of(marks: bytes, text: bytes) -> int:
    """How many bytes of a text are one of these."""
    return len(text) - len(text.translate(None, marks))


def _outside_strings(text: bytes, most_quotes: int) -> bytes | None:
    """A text without its strings; None where it has more quotes than that."""
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return _plain_string.sub(b'""', bare) if bare.count(b'"') <= most_quotes else None


_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


def has_number_of(digits: int, text: bytes, most_quotes: int) -> bool:
    """Whether a number of so many digits stands in a text, or it has too many quotes to be told."""
    if b"0" * digits not in text.translate(_ZEROS):
        return False
    outside = _outside_strings(text, most_quotes)
    return outside is None or b"0" * digits in outside.translate(_ZEROS)


def _after(text: bytes, at: int, closing: bytes) -> tuple[int, bool]:
    """Step over the comma or the closing bracket: the next offset, and whether the end was met."""
    at = skip_blank(text, at)
    mark = text[at : at + 1]
    if mark == closing:
        return at + 1, True
    if mark != b",":
        raise Odd(f"neither comma nor end at byte {at}")
    return skip_blank(text, at + 1), False


def members(text: bytes, at: int = 0) -> list[Member]:
    """The members of the object that begins at `at`, in order, repeated keys included."""
    found, at = [], _open(text, at, b"{")
    if text[at : at + 1] == b"}":
        return []
    done = False
    while not done:
        member = _member(text, at)
        found.append(member)
        at, done = _after(text, member.end, b"}")
        if len(found) > MAX_MEMBERS:
            raise TooMany(f"more than {MAX_MEMBERS} members")
    return found


def _member(text: bytes, at: int) -> Member:
    end = _string_end(text, at)
    colon = skip_blank(text, end)
    if text[colon : colon + 1] != b":":
        raise Odd(f"no colon at byte {colon}")
    start = skip_blank(text, colon + 1)
    return Member(at, text_of(text[at:end]), start, value_end(text, start))


def elements(text: bytes, at: int, limit: int) -> list[tuple[int, int]]:
    """The ranges of the elements of the array that begins at `at`; `TooMany` beyond `limit`."""
    found, at = [], _open(text, at, b"[")
    if text[at : at + 1] == b"]":
        return []
    done = False
    while not done:
        end = value_end(text, at)
        found.append((at, end))
        at, done = _after(text, end, b"]")
        if len(found) > limit:
            raise TooMany(f"more than {limit} elements")
    return found


def _open(text: bytes, at: int, bracket: bytes) -> int:
    at = skip_blank(text, at)
    if text[at : at + 1] != bracket:
        raise Odd(f"no {bracket.decode()} at byte {at}")
    return skip_blank(text, at + 1)


def text_of(literal: bytes) -> str:
    """Decode a string literal with its quotes; bad UTF-8 and lone surrogates survive as such."""
    try:
        return str(json.loads(literal.decode("utf-8", "surrogateescape"), strict=False))
    except ValueError:
        raise Odd("a string holds an unknown escape") from None


# One character each: an escaped surrogate pair, an escape. Else a stretch of characters as they
# are.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_piece = re.compile(rb"(" + _HIGH + _LOW + rb'|\\u[0-9a-fA-F]{4}|\\[^u])|[^"\\]++', re.DOTALL)


def raw_offset(literal: bytes, count: int, at: int = 1) -> int:
    """The offset in the literal after `count` more characters of its text, from offset `at` on."""
    while count > 0:
        match = _piece.match(literal, at)
        if not match:
            raise Odd("the text is shorter than that")
        if match.group(1):
            at, count = match.end(), count - 1
            continue
        # No character takes more than four bytes.
        plain = literal[at : min(match.end(), at + 4 * count)]
        taken = plain.decode("utf-8", "surrogateescape")[:count]
        at, count = at + len(taken.encode("utf-8", "surrogateescape")), count - len(taken)
    return at
