"""Keeps the order of a conversation's tools, so that what is rendered before the messages stands.

Gateways and clients send the same tools in another order, and insert those that come late among
the others. The first request's order is pinned to the conversation, sorted by name or as it came,
and every later one leaves in it; tools that come late go behind. Tools are moved whole, bytes and
all (a `cache_control` goes with its tool); what stands between them stays in its place.

A pin is immutable, so late tools get pins of their own, one for each time that some come:

    pins = [what stands for offer(turn, by_name)]
    while (more := offer(turn, by_name, pins)) is not None:
        pins.append(what stands for more)
    apply(turn, pins)

Late tools without a pin follow by name where the first pin is sorted, else in the client's own
order. The first holds while new ones sort behind those that came late before them, the second while
the client appends: else the prompt changes where the new one goes in.

Tools without a name, or two of one name, are not ordered at all: not one byte changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxy.core.additions import NOTHING, Added, top_level
from proxy.core.fingerprint import digest
from proxy.core.turn import Turn
from proxy.core.wire import chat, scan
from proxy.core.wire.chat import Edit

MOST_PINS = 8
"""Pins of one conversation; tools that come still later have none."""
MOST_TOOLS = 500
"""Tools of one pin, 8 bytes each: four kilobytes. Those above get the next pin."""
_BY_NAME, _AS_CAME = b"n", b"c"
_SIZE = 8


class _Tool(NamedTuple):
    """One tool: its name, the digest by which pins know it, its range in the value of `tools`."""

    name: str
    key: bytes
    start: int
    end: int


def offer(turn: Turn, by_name: bool, pins: Sequence[bytes] = ()) -> bytes | None:
    """What to pin next: the first request's order (always bytes), then the tools that are in no pin
    so far; None where there are none of those. Every pin says how late tools follow, and the first
    of them holds.
    """
    known = _places(pins) if pins else {}
    if known is None or len(pins) >= MOST_PINS:
        return None
    mode = pins[0][:1] if pins else _BY_NAME if by_name else _AS_CAME
    late = [tool for tool in _tools(turn) if tool.key not in known]
    if pins and not late:
        return None
    if mode == _BY_NAME:
        late.sort()
    return mode + b"".join([tool.key for tool in late[:MOST_TOOLS]])


def apply(turn: Turn, pins: Sequence[bytes]) -> Added:
    """Put the tools into the pinned order: one edit, or none where they stand in it."""
    places = _places(pins)
    if places is None:
        return NOTHING
    try:
        edit = _reordered(turn, _tools(turn), places, pins[0][:1] == _BY_NAME)
    except scan.Odd:
        return NOTHING
    name = "tools_order" if pins[0][:1] == _BY_NAME else "late_tools"
    return Added((edit,), counts={name: 1}) if edit else NOTHING


def _places(pins: Sequence[bytes]) -> Mapping[bytes, int] | None:
    """The place of every pinned tool; None where there is no pin, or one that is none."""
    if not pins or any(not _is_pin(pin) for pin in pins):
        return None
    keys = [pin[at : at + _SIZE] for pin in pins for at in range(1, len(pin), _SIZE)]
    return {key: place for place, key in enumerate(dict.fromkeys(keys))}


def _is_pin(pin: bytes) -> bool:
    return pin[:1] in (_BY_NAME, _AS_CAME) and len(pin) % _SIZE == 1


def _tools(turn: Turn) -> list[_Tool]:
    """The tools in the order in which they came; none where not all have a name of their own."""
    raw = turn.fields.get("tools", b"")
    if not raw.startswith(b"["):
        return []
    try:
        spans = chat.elements(raw, 0, len(raw))
        names = [_name(chat.decode(raw[start:end])) for start, end in spans]
    except ValueError:
        return []
    if not all(names) or len(set(names)) < len(names):
        return []
    return [_Tool(name, _key(name), *span) for name, span in zip(names, spans, strict=True)]


def _key(name: str) -> bytes:
    return digest(name.encode("utf-8", "surrogatepass"), size=_SIZE)


def _name(tool: Any) -> str:
    """The name of a tool; empty where it has none, as a provider's own tools do."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function") or tool.get("custom") or tool
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""


def _reordered(
    turn: Turn, tools: Sequence[_Tool], places: Mapping[bytes, int], by_name: bool
) -> Edit | None:
    def place(tool: _Tool) -> tuple[int, str]:
        behind = tool.name if by_name else ""
        return (places[tool.key], "") if tool.key in places else (len(places), behind)

    wanted = sorted(tools, key=place)
    if wanted == tools:
        return None
    raw = turn.fields["tools"]
    found = top_level(turn.body, "tools")
    text = bytearray()
    for at, tool in enumerate(wanted):
        stop = tools[at + 1].start if at + 1 < len(tools) else tools[at].end
        text += raw[tool.start : tool.end] + raw[tools[at].end : stop]
    return Edit(found.start + tools[0].start, found.start + tools[-1].end, bytes(text))
