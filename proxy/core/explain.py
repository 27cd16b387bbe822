"""Says of a break where it is, what it costs and what to do: for people, off the hot path's
common case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from proxy.core.prefix import Cause, Finding
from proxy.core.sent import Element, Part, Sent
from proxy.core.wire import chat


class Confidence(Enum):
    CERTAIN = "certain"
    LIKELY = "likely"


@dataclass(frozen=True, slots=True)
class Explanation:
    """`path` is a JSON path into the request, `offset` counts characters inside the value there.

    `rebuilt` estimates the tokens that were cached and have to be processed anew; None where the
    provider never counted the prompt. `before` and `after` are digests of the element.
    """

    path: str = ""
    offset: int | None = None
    rebuilt: int | None = None
    confidence: Confidence = Confidence.CERTAIN
    fix: str = ""
    before: bytes = b""
    after: bytes = b""


NONE = Explanation()

_FIXES: Mapping[Cause, str] = {
    Cause.MODEL_CHANGED: "keep one model for a conversation; another one has no cache of it",
    Cause.PARAMS_CHANGED: "set it once, in the first request: it is rendered before the history",
    Cause.TOOLS_CHANGED: "send all tools from the first request on, or append late ones at the end",
    Cause.TOOLS_REORDERED: "send the tools in one order, sorted by name for instance",
    Cause.SYSTEM_CHANGED: "move what changes (date, git status, file list) into the latest message",
    Cause.MESSAGE_EDITED: "leave earlier messages as they were; say what is new in a new one",
    Cause.MESSAGE_INSERTED: "put new messages at the end, also file contents and reminders",
    Cause.MESSAGES_DROPPED: "drop from the history rarely and much at once, not on every turn",
    Cause.COMPACTION: "expected after a compaction; compact later if it comes too often",
    Cause.REASONING_STRIPPED: "have the client send reasoning always; the proxy drops it once",
    Cause.REASONING_CHANGED: "send reasoning back as it came",
    Cause.RESERIALIZED: "serialise a message once and send the same bytes afterwards",
    Cause.SELF: (
        "the policy changes what was sent before, which an append-only one does not, or what was "
        "put back is lost: keep the store up"
    ),
}
# These rest on what other messages look like, not on the element alone.
_LIKELY = frozenset({Cause.MESSAGE_INSERTED, Cause.MESSAGES_DROPPED, Cause.COMPACTION})


def explain(
    finding: Finding,
    last: Sent | None,
    now: Sequence[Element],
    before: bytes | None,
    after: bytes | None,
    generated: bool = False,
) -> Explanation:
    """Explain a break. `before` and `after` are the element's JSON text, None where it is not at
    rest. `generated` says that the cache holds what was generated, too.
    """
    if last is None or finding.element is None or not finding.is_break:
        return NONE
    was, new = last.elements[finding.element], now[finding.element]
    inner, offset, share = _within(before, after)
    root = _root(new, finding)
    return Explanation(
        path=root + inner,
        offset=offset,
        rebuilt=_rebuilt(last, now, finding.element, share, generated),
        confidence=Confidence.LIKELY if finding.cause in _LIKELY else Confidence.CERTAIN,
        fix=_FIXES.get(finding.cause, ""),
        before=was.digest,
        after=new.digest,
    )


def _root(new: Element, finding: Finding) -> str:
    match new.part:
        case Part.MODEL:
            return "$.model"
        case Part.PARAMS:
            return "$"
        case Part.TOOLS:
            return "$.tools"
        case _:
            return f"$.messages[{finding.message}]"


def _rebuilt(
    last: Sent, now: Sequence[Element], at: int, share: float, generated: bool
) -> int | None:
    """The tokens of `now` that had been cached and come after the break.

    By size: the provider's count of the last prompt is spread over its bytes.
    """
    total = sum(e.size for e in last.elements)
    if last.prompt_tokens is None or not total:
        return None
    held = {e.said for e in last.elements[at:]}
    size = (1 - share) * min(last.elements[at].size, now[at].size)
    size += sum(e.size for e in now[at + 1 :] if e.said in held)
    tokens = last.prompt_tokens * size / total
    if generated and last.reply and any(e.digest == last.reply for e in now[at:]):
        tokens += last.output_tokens or 0
    return round(tokens)


def _within(before: bytes | None, after: bytes | None) -> tuple[str, int | None, float]:
    """Inside an element: the path to the first value that differs, the offset in it, and which
    share of the element is the same up to there.
    """
    if before is None or after is None:
        return "", None, 0.0
    try:
        a, b = chat.decode(before), chat.decode(after)
    except ValueError:
        return "", None, 0.0
    path, offset = _first_difference(a, b)
    return path, offset, _same_share(before, after)


def _same_share(before: bytes, after: bytes) -> float:
    """How far two texts are the same, as a share of the first."""
    return common(before, after) / len(before) if before else 0.0


def common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The length of the common beginning. Halving compares slices, which C does."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _first_difference(a: Any, b: Any) -> tuple[str, int | None]:
    if isinstance(a, str) and isinstance(b, str):
        return "", common(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in (*b, *(key for key in a if key not in b)):
            if a.get(key) != b.get(key):
                path, offset = _first_difference(a.get(key), b.get(key))
                return f".{key}{path}", offset
    if isinstance(a, list) and isinstance(b, list):
        at = common(a, b)
        if at < min(len(a), len(b)):
            path, offset = _first_difference(a[at], b[at])
            return f"[{at}]{path}", offset
        return f"[{at}]", None
    return "", None
