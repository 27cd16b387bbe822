"""A refusal's wording as a pattern that finds it again in another request's."""

from __future__ import annotations

import re

LONGEST = 160
"""Characters of a message that a pattern takes: the first sentence and more, on record."""
_varying = re.compile(
    r"""[`'"‘’“”]"""  # quotes: gateways write them otherwise
    r"|\b[0-9a-fA-F-]{12,}\b"  # ids
    r"|\b(?:req|chatcmpl|call|lethe)[-_]?\w*\d\w*"
    r"|\d+"
)


def pattern_of(said: str) -> str:
    """A regular expression for this message; quotes, numbers and ids may be others."""
    text = said[:LONGEST]
    if len(said) > LONGEST:
        text = text.rpartition(" ")[0] or text
    made, at = [], 0
    for match in _varying.finditer(text):
        made += [_literal(text[at : match.start()]), _any(match[0])]
        at = match.end()
    return "".join([*made, _literal(text[at:])])


def _literal(text: str) -> str:
    """Escaped, and a blank as such: it needs no backslash."""
    return re.escape(text).replace("\\ ", " ").replace("\\-", "-")


def _any(found: str) -> str:
    if found.isdecimal():
        return r"\d+"
    return "." if len(found) == 1 else r"\S+"
