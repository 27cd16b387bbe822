"""One reply so far: the fold of its deltas, or of a body, which is one of them.

The first choice is the reply (`index` 0, or none). A tool call is known by its `index`; where calls
share one, or have none, a new id or name begins a new call. Reasoning that came in several carriers
is one reasoning, of which the longest text holds: such texts are the same but for blanks, or
excerpts.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from proxy.core.chunks import Choice, Chunk, Delta, code_in, error_in
from proxy.core.reasoning import (
    is_reasoning_part,
    is_sealed,
    text_in,
    think_in,
    think_span,
    without_think,
)
from proxy.core.seen import Seen, ToolCall
from proxy.core.usage import NOTHING, merge, read_usage

MOST_TEXT = 8 * 1024 * 1024
"""Characters of text, reasoning and tool calls of one stream; what comes after is left out."""
MOST_CALLS = 256
"""Tool calls of one reply; what comes after is left out. The most on record is 3."""
MOST_ITEMS = 10_000
"""Items of one list in a reply; what comes after is left out."""
_CARRIERS = (
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "reasoning_details",
    "content_parts",
    "think",
)


class _Pile:
    """Text in pieces. Settled, it takes no more memory than the text itself."""

    __slots__ = ("fresh", "settled", "size")

    def __init__(self) -> None:
        self.fresh: list[str] = []
        self.settled: list[str] = []
        self.size = 0

    def settle(self) -> int:
        if self.fresh:
            self.settled.append("".join(self.fresh))
            self.size += len(self.settled[-1])
            self.fresh.clear()
        return self.size

    def text(self) -> str:
        """The whole; halves of a surrogate pair that came in two pieces are made one character."""
        if len(self.fresh) == 1 and not self.settled:
            text = self.fresh[0]
        else:
            self.settle()
            text = "".join(self.settled)
        if text.isascii():
            return text
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _Call:
    """One tool call so far. The first id and the first name hold."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = _Pile()

    def take(self, id: str, name: str, arguments: str) -> None:
        self.id = self.id or id
        self.name = self.name or name
        self.arguments.fresh.append(arguments)

    def settle(self) -> int:
        return len(self.id) + len(self.name) + self.arguments.settle()

    def made(self) -> ToolCall:
        return ToolCall(self.id, self.name, self.arguments.text())


class _Details:
    """A list of `reasoning_details` put together: pieces of one item share its index and type, and
    continue its texts.
    """

    __slots__ = ("_rows", "_size")

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._size = 0

    def take(self, items: list[Any], whole: bool) -> None:
        for item in items:
            if not isinstance(item, dict) or self._size > MOST_TEXT:
                self._size = MOST_TEXT + 1  # what is not all there is not put back
                return
            self._size += sum(len(value) for value in item.values() if isinstance(value, str)) + 1
            last = self._rows[-1] if self._rows else None
            if whole or last is None or not _goes_on(last, item):
                self._rows.append(dict(item))
            else:
                _join(last, item)

    def made(self) -> bytes:
        """Its JSON; nothing where it is not whole."""
        if self._size > MOST_TEXT:
            return b""
        try:
            return msgspec.json.encode(self._rows)
        except (UnicodeEncodeError, msgspec.EncodeError, RecursionError):
            return b""


_CONTINUED = ("text", "summary", "data")


def _goes_on(last: dict[str, Any], item: dict[str, Any]) -> bool:
    if item.get("index") is None and item.get("id") is None:
        return item.get("type") == last.get("type")
    return all(item.get(key) in (None, last.get(key)) for key in ("index", "type", "id"))


def _join(last: dict[str, Any], item: dict[str, Any]) -> None:
    for key, value in item.items():
        before = last.get(key)
        if key in _CONTINUED and isinstance(before, str) and isinstance(value, str):
            last[key] = before + value
        elif value is not None:
            last[key] = value


class Fold:
    """A reply that is taken piece by piece. `whole`: each tool call comes in one piece."""

    __slots__ = (
        "_by_index",
        "_calls",
        "_came",
        "_details",
        "_text",
        "_whole",
        "done",
        "error",
        "finish_reason",
        "model",
        "signed",
        "truncated",
        "usage",
    )

    def __init__(self, whole: bool = False) -> None:
        self._whole = whole
        self._text = _Pile()
        self._came: dict[str, _Pile] = {}
        self._details: _Details | None = None
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self.usage = NOTHING
        self.model: Any = ""
        self.finish_reason = self.error = ""
        self.signed = self.done = self.truncated = False

    def take(self, chunk: Chunk) -> None:
        for choice in chunk.choices or ():
            if not choice.index:
                if choice.finish_reason or choice.error:
                    self._take_end(choice)
                if choice.delta is not None:
                    self._take_delta(choice.delta)
                break
        if chunk.model:
            self.model = chunk.model
        if chunk.usage or chunk.timings or chunk.x_groq:
            self._take_usage(chunk)
        if chunk.error:
            self.error = self.error or code_in(chunk.error)

    def _take_end(self, choice: Choice) -> None:
        self.finish_reason = _text(choice.finish_reason) or self.finish_reason
        if choice.error:
            self.error = self.error or code_in(choice.error)

    def _take_delta(self, delta: Delta) -> None:
        if delta.content:
            if isinstance(delta.content, str):
                self._text.fresh.append(delta.content)
            else:
                self._take_parts(delta.content)
        if delta.reasoning_content is not None:
            self._take_reasoning("reasoning_content", delta.reasoning_content)
        if delta.reasoning is not None:
            self._take_reasoning("reasoning", delta.reasoning)
        if delta.reasoning_text is not None:
            self._take_reasoning("reasoning_text", delta.reasoning_text)
        if delta.reasoning_details:
            self._take_details(delta.reasoning_details)
        if delta.tool_calls:
            self._take_calls(delta.tool_calls)
        if delta.extra_content or delta.thought_signature:
            self.signed = True
        if delta.reasoning_opaque or delta.thinking_blocks:
            self.signed = True

    def _take_parts(self, parts: Any) -> None:
        for part in self._items(parts):
            if isinstance(part, dict):
                self._take_part(part)

    def _items(self, value: Any) -> list[Any]:
        """The items of a list, up to the most; none where it is no list."""
        if not isinstance(value, list):
            return []
        self.truncated = self.truncated or len(value) > MOST_ITEMS
        return value[:MOST_ITEMS]

    def _take_part(self, part: dict[str, Any]) -> None:
        if isinstance(part.get("type"), str) and is_reasoning_part(part):
            self._take_reasoning("content_parts", text_in(part))
            self.signed = self.signed or is_sealed({"content": [part]})
        else:
            self._text.fresh.append(_text(part.get("text")))

    def _take_reasoning(self, carrier: str, text: Any) -> None:
        if isinstance(text, str):
            pile = self._came.get(carrier)
            if pile is None:
                pile = self._came[carrier] = _Pile()
            pile.fresh.append(text)

    def _take_details(self, details: Any) -> None:
        text = _plain(details)
        if text is None:
            text = text_in(details)
            self.signed = self.signed or is_sealed({"reasoning_details": details})
        self._take_reasoning("reasoning_details", text)
        if self._details is None:
            self._details = _Details()
        self._details.take(self._items(details), self._whole)

    def _take_calls(self, items: Any) -> None:
        for item in self._items(items):
            if isinstance(item, dict):
                self._take_call(item)

    def _take_call(self, item: dict[str, Any]) -> None:
        function = item.get("function") or item.get("custom")
        function = function if isinstance(function, dict) else {}
        id, name = _text(item.get("id")), _text(function.get("name"))
        call = self._call_at(item.get("index"), id, name)
        if call is not None:
            call.take(id, name, _arguments(function.get("arguments", function.get("input"))))
        if item.get("extra_content") or item.get("thought_signature"):
            self.signed = True

    def _call_at(self, index: Any, id: str, name: str) -> _Call | None:
        """The call that a piece belongs to: an open one, or a new one, or none beyond the most."""
        by_index = isinstance(index, int)
        last = self._calls[-1] if self._calls else None
        call = self._by_index.get(index) if by_index else last
        if call is not None and not self._whole:
            if not (id or name) or not _begins_another(call, by_index, id, name):
                return call
        return self._opened(index if by_index else None)

    def _opened(self, index: int | None) -> _Call | None:
        if len(self._calls) == MOST_CALLS:
            self.truncated = True
            return None
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _take_usage(self, chunk: Chunk) -> None:
        raw = {"usage": chunk.usage, "timings": chunk.timings, "x_groq": chunk.x_groq}
        usage = read_usage(raw)
        self.usage = usage if self.usage is NOTHING else merge(self.usage, usage)

    def take_rest(self, value: dict[str, Any]) -> None:
        """What an object without choices tells: an error, or what another API's events hold inside.

        Anthropic's message_start has a `message`, events of the Responses API have a `response`.
        """
        if "choices" in value:
            return
        self.error = self.error or error_in(value)
        for inner in (value.get("message"), value.get("response")):
            if isinstance(inner, dict):
                self.take(Chunk(None, *(inner.get(key) for key in ("model", "usage"))))
                self.error = self.error or error_in(inner)

    def settle(self) -> int:
        """Make the pieces one; how many characters are held."""
        piles = (self._text, *self._came.values())
        return sum(pile.settle() for pile in piles) + sum(call.settle() for call in self._calls)

    def seen(self) -> Seen:
        text, thought = self._text.text(), ""
        came = {carrier: pile.text() for carrier, pile in self._came.items()}
        if span := think_span(text):
            thought = text[: span[1]]
            came["think"], text = think_in(text), without_think(text)
        held = [carrier for carrier, reasoning in came.items() if reasoning] or list(came)
        held.sort(key=lambda carrier: (-len(came[carrier]), _CARRIERS.index(carrier)))
        return Seen(
            usage=self.usage,
            model=_text(self.model),
            reasoning=came[held[0]] if held else "",
            carriers=tuple(held),
            text=text,
            tool_calls=tuple([call.made() for call in self._calls]),
            finish_reason=self.finish_reason,
            error=self.error,
            truncated=self.truncated,
            signed=self.signed,
            done=self.done,
            thought=thought,
            details=self._details.made() if self._details else b"",
        )


_PLAIN_DETAIL = frozenset({"type", "text", "format", "index", "id"})


def _plain(details: Any) -> str | None:
    """The text of details that hold nothing else, as nearly all do while they stream."""
    if not isinstance(details, list) or len(details) != 1 or not isinstance(details[0], dict):
        return None
    item = details[0]
    plain = item.get("type") == "reasoning.text" and item.keys() <= _PLAIN_DETAIL
    text = item.get("text") if plain else None
    return text if isinstance(text, str) else None


def _begins_another(call: _Call, by_index: bool, id: str, name: str) -> bool:
    """Whether a piece begins a new call although one is open where it points.

    Engines have sent a fresh id with every piece, and gateways index 0 for every call: only a new
    id together with a name is sure. Without an index a name alone, or an id alone, must do.
    """
    new_id = bool(id and call.id and id != call.id)
    if by_index:
        return new_id and bool(name)
    return new_id or bool(name and (not id or id != call.id))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    """Argument text; an object in its place (some servers send one) as its JSON text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
