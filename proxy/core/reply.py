"""What came back, read beside the relay: usage, reasoning, text, tool calls, how it ended.

A stream and a body go through one fold, so they agree. Nothing here raises, whatever came, and
memory is bounded; what cannot be read is left out. The first choice is the reply (`index` 0, or
none). A tool call is known by its `index`; where calls share one, or have none, a new id or name
begins a new call. Reasoning that came in several carriers is one reasoning, of which the longest
text holds: such texts are the same but for blanks, or excerpts.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import brotli  # type: ignore[import-untyped]  # it comes without annotations
import msgspec
import zstandard

from proxy.core.reasoning import (
    is_reasoning_part,
    is_sealed,
    text_in,
    think_in,
    think_span,
    without_think,
)
from proxy.core.sse import Gatherer, data_of, json_of, values_of
from proxy.core.usage import NOTHING, Usage, merge, read_usage
from proxy.core.wire import scan

MOST_TEXT = 8 * 1024 * 1024
"""Characters of text, reasoning and tool calls of one stream; what comes after is left out."""
LONGEST_READ = 4 * 1024 * 1024
"""Bytes of one event of a stream; a longer one is left out."""
MOST_CALLS = 256
"""Tool calls of one reply; what comes after is left out. The most on record is 3."""
MOST_ITEMS = 10_000
"""Items of one list in a reply; what comes after is left out."""
MOST_VALUES = 1_000_000
"""Values in a body that is not streamed; of what holds more nothing is read."""
MOST_ODD = 2_000
"""Events of a stream that are no chunks. Behind these only those are read that promise something,
and behind as many of them that did not keep it, none.
"""
MOST_DECODED = 64 * 1024 * 1024
"""Bytes that one coded text may unfold to."""
MOST_CODINGS = 4
MOST_MEMBERS = 10_000
"""Members of one gzip text."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """`arguments` is the text as the model wrote it: JSON, or cut off where the reply was."""

    id: str
    name: str
    arguments: str


class Seen(msgspec.Struct, frozen=True):
    """What was read of one reply.

    `carriers` are the wire's fields in which reasoning came (`content_parts` and `think` where it
    came inside the content), the one whose text `reasoning` is first; where all came empty, those.
    `text` is the content without reasoning. `error` is a type or a code, never a message.
    `truncated`: something was left out for its size. `signed`: a signature or encrypted reasoning
    came. `done`: [DONE] came, or a whole JSON body. `thought` is the `<think>…</think>` before the
    text, with the blanks around it, as it came; `details` the JSON of a `reasoning_details` list,
    of a stream's with its pieces put together.
    """

    usage: Usage = NOTHING
    model: str = ""
    reasoning: str = ""
    carriers: tuple[str, ...] = ()
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    error: str = ""
    truncated: bool = False
    signed: bool = False
    done: bool = False
    thought: str = ""
    details: bytes = b""


class StreamReader(Gatherer):
    """Reads a stream of chat completion chunks: `feed` them all, then `finish`.

    Of an Anthropic or a Responses stream it reads usage, model and errors.
    """

    __slots__ = ("_most", "_odd", "_reply", "_safe", "_start", "_wire")

    def __init__(self, longest_event: int = LONGEST_READ, most_text: int = MOST_TEXT) -> None:
        super().__init__(longest_event)
        self._reply = _Reply()
        self._most = self._safe = most_text  # until then no text can be too much
        self._wire = self._start = 0
        self._odd = 0

    def so_far(self) -> Seen:
        """All whole events that were fed; more may follow."""
        self.catch_up()
        return self._reply.seen()

    def finish(self) -> Seen:
        """All that was fed, an event that never became whole included where it can be read."""
        self.close()
        self._reply.truncated = self._reply.truncated or self.skipped > 0
        return self._reply.seen()

    def read(self, text: bytes) -> None:
        """Nearly every piece between the two marks is one payload and nothing else."""
        self._start, self._wire = self._wire, self._wire + len(text)
        take = self._take if self._wire <= self._safe else self._take_sparingly
        first, *pieces = (b"\n\n" + text).split(b"\n\ndata: ")
        self._read_odd(first)
        for piece in self._patiently(pieces):
            chunk = _chunk_of(piece) if b"\n" not in piece else None
            if chunk is not None:
                take(chunk)
            else:
                self._read_odd(b"data: " + piece)
        self._reply.settle()

    def _read_odd(self, text: bytes) -> None:
        """Events in any form."""
        events = [event for event in text.split(b"\n\n") if b"data" in event]
        for event in self._patiently(events):
            data = data_of(event)
            if data is not None:
                self._read_data(data, values_of(event, b"event")[-1:])

    def _patiently(self, events: list[bytes]) -> Iterator[bytes]:
        """All events; once many were odd, those that promise something, and then none."""
        for event in events:
            if self._odd < MOST_ODD or (self._odd < 2 * MOST_ODD and _promise.search(event)):
                yield event
            else:
                self._reply.truncated = True

    def _read_data(self, data: bytes, names: list[bytes]) -> None:
        if data.strip() == b"[DONE]":
            self._reply.done = True
        elif (chunk := _chunk_of(data)) is not None:
            self._take_sparingly(chunk)
        else:
            self._odd += 1
            self._read_other(data)
        if names == [b"error"]:
            self._reply.error = self._reply.error or "error"

    def _read_other(self, data: bytes) -> None:
        value = _object_in(data)
        if value is not None:
            self._take_sparingly(_chunk_from(value, "delta"))
            self._reply.take_rest(value)

    def _take(self, chunk: _Chunk) -> None:
        try:
            self._reply.take(chunk)
        except RecursionError:  # JSON nested some thousand deep
            self._reply.truncated = True

    def _take_sparingly(self, chunk: _Chunk) -> None:
        """The same once the wire brought so many bytes that the text in them may be too much."""
        if self._wire > self._safe and chunk.choices and self._is_full():
            self._reply.truncated = True
            for choice in chunk.choices:
                choice.delta = None
        self._take(chunk)

    def _is_full(self) -> bool:
        """Whether as much text is held as may be; if not, it cannot be before `_safe`."""
        held = self._reply.settle()
        self._safe = max(self._safe, self._start + self._most - held)
        return held >= self._most


def read_body(body: bytes) -> Seen:
    """The reply in a body that was not streamed; an empty `Seen` where it is no JSON object."""
    if scan.busier_than(body, MOST_VALUES):
        return Seen(truncated=True)
    return _plain_body(body) or _odd_body(body)


def _plain_body(body: bytes) -> Seen | None:
    """The fast way to read a completion; None where the other must do."""
    try:
        chunk = _decode_body(body)
        if not chunk.choices or chunk.error:
            return None
        reply = _Reply(whole=True)
        reply.done = True
        reply.take(chunk)
        return reply.seen()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _odd_body(body: bytes) -> Seen:
    value = _object_in(body)
    if value is None:
        return Seen()
    reply = _Reply(whole=True)
    reply.done = True
    try:
        reply.take(_chunk_from(value, "message"))
    except RecursionError:  # JSON nested some thousand deep
        reply.truncated = True
    reply.take_rest(value)
    return reply.seen()


def read_error(body: bytes) -> str:
    """The code or type that an error body names: "error" where none, "" where it is no error."""
    value = None if scan.busier_than(body, MOST_VALUES) else _object_in(body)
    return _error_in(value) if value is not None else ""


def _object_in(body: bytes) -> dict[str, Any] | None:
    value = json_of(body)
    if isinstance(value, list) and value:  # Gemini wraps its errors
        value = value[0]
    return value if isinstance(value, dict) else None


def _error_in(value: dict[str, Any]) -> str:
    if error := value.get("error"):
        return _code_in(error)
    if "choices" in value:
        return ""
    if detail := value.get("detail"):  # Mistral, FastAPI
        return _code_in(detail[0] if isinstance(detail, list) else detail)
    return _code_in(value) if isinstance(value.get("message"), str) else ""


# A word, not a sentence: what an upstream says in words may be what was said to it.
_code = re.compile(r"[A-Za-z0-9][\w.:/-]{0,63}", re.ASCII)


def _code_in(error: Any) -> str:
    """A word for an error: its code, type or status, one in letters before a number."""
    if not isinstance(error, dict):
        return "error"
    named = [error.get(key) for key in ("code", "type", "status", "__type")]
    words = [str(n) for n in named if isinstance(n, str | int) and not isinstance(n, bool)]
    codes = [word for word in words if _code.fullmatch(word)]
    return next((code for code in codes if not code.isdecimal()), codes[0] if codes else "error")


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class _Delta(msgspec.Struct, gc=False):
    """What a delta or a message may hold. Any field may be anything."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    thought_signature: Any = None
    reasoning_opaque: Any = None
    thinking_blocks: Any = None
    extra_content: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    model: Any = None
    usage: Any = None
    timings: Any = None
    x_groq: Any = None
    error: Any = None


class _Answer(_Choice, gc=False):
    """A choice of a body that was not streamed."""

    delta: _Delta | None = msgspec.field(default=None, name="message")


class _Body(_Chunk, gc=False):
    choices: list[_Answer] | None = None  # type: ignore[assignment]


_promise = re.compile(rb'"(?:choices|usage|error)"|\[DONE\]')
_decode = msgspec.json.Decoder(_Chunk).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_CARRIERS = (
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "reasoning_details",
    "content_parts",
    "think",
)


def _chunk_of(data: bytes) -> _Chunk | None:
    """The fast way to read one payload; None where the other must do."""
    try:
        chunk = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if chunk.choices is None else chunk


def _chunk_from(value: dict[str, Any], delta: str) -> _Chunk:
    """A chunk from any object, less what has the wrong shape. `delta` is the key of the message."""
    chunk = _made(_Chunk, value)
    choices = value.get("choices")
    chunk.choices = [
        _choice_from(c, delta)
        for c in (choices if isinstance(choices, list) else ())
        if isinstance(c, dict)
    ]
    return chunk


def _choice_from(value: dict[str, Any], key: str) -> _Choice:
    choice, delta = _made(_Choice, value), value.get(key)
    choice.delta = _made(_Delta, delta) if isinstance(delta, dict) else None
    return choice


def _made(kind: type[_Struct], value: dict[str, Any]) -> _Struct:
    return kind(**{name: value[name] for name in kind.__struct_fields__ if name in value})


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


class _Reply:
    """One reply so far: the fold of its deltas. `whole`: each tool call comes in one piece."""

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

    def take(self, chunk: _Chunk) -> None:
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
            self.error = self.error or _code_in(chunk.error)

    def _take_end(self, choice: _Choice) -> None:
        self.finish_reason = _text(choice.finish_reason) or self.finish_reason
        if choice.error:
            self.error = self.error or _code_in(choice.error)

    def _take_delta(self, delta: _Delta) -> None:
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

    def _take_usage(self, chunk: _Chunk) -> None:
        raw = {"usage": chunk.usage, "timings": chunk.timings, "x_groq": chunk.x_groq}
        usage = read_usage(raw)
        self.usage = usage if self.usage is NOTHING else merge(self.usage, usage)

    def take_rest(self, value: dict[str, Any]) -> None:
        """What an object without choices tells: an error, or what another API's events hold inside.

        Anthropic's message_start has a `message`, events of the Responses API have a `response`.
        """
        if "choices" in value:
            return
        self.error = self.error or _error_in(value)
        for inner in (value.get("message"), value.get("response")):
            if isinstance(inner, dict):
                self.take(_Chunk(None, *(inner.get(key) for key in ("model", "usage"))))
                self.error = self.error or _error_in(inner)

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


class _Stage(Protocol):
    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        """Add what `data` unfolds to to `out`; more than `room` bytes tell that there are more."""


class _Gzip:
    """Members one after the other, and zeros between them.

    Fed in slices: with every member that ends, all that is left of the data is copied.
    """

    SLICE = 16 * 1024

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False
        self._members = 0

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        for at in range(0, len(data), self.SLICE):
            self._unfold(data[at : at + self.SLICE], room, out)

    def _unfold(self, data: bytes, room: int, out: bytearray) -> None:
        while len(out) <= room and (data := data if self._begun else data.lstrip(b"\0")):
            out += self._member.decompress(data, room + 1 - len(out))
            self._begun = not self._member.eof
            data = self._member.unused_data
            if not self._begun:
                self._next()

    def _next(self) -> None:
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise zlib.error("too many members")
        self._member = zlib.decompressobj(wbits=31)


class _Deflate:
    """With the zlib header of RFC 9110, or without, as some servers send it."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: Any = None

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        if self._stream is None:
            self._head = data = self._head + data
            if len(data) < 2:
                return
            wrapped = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(wbits=15 if wrapped else -15)
        out += self._stream.decompress(data, room + 1)


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        # The limit is no exact one, but what stops short of it is all there is.
        out += self._stream.process(data, output_buffer_limit=room + 1)


class _Zstd:
    """Fed in slices: four bytes may unfold to 128 KiB, and there is no other bound on one call."""

    SLICE = 512
    WINDOW = 8 * 1024 * 1024  # RFC 9659: the most that this content coding may ask for

    def __init__(self) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=self.WINDOW)
        self._stream = decompressor.decompressobj(read_across_frames=True)

    def unfold(self, data: bytes, room: int, out: bytearray) -> None:
        for at in range(0, len(data), self.SLICE):
            if len(out) > room:
                break
            out += self._stream.decompress(data[at : at + self.SLICE])


_STAGES: dict[str, Callable[[], _Stage]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


class Decoder:
    """Undoes a Content-Encoding as the bytes come, for reading along.

    Where the input cannot be decoded, its coding is not known, or it unfolds to more than `most`
    bytes or one piece to more than `at_once`, `failed` is set and nothing more comes out; where it
    is for the size, `too_large` too. Never raises.
    """

    __slots__ = ("_at_once", "_room", "_stages", "failed", "too_large")

    def __init__(
        self, content_encoding: str, most: int = MOST_DECODED, at_once: int = MOST_DECODED
    ) -> None:
        names = [name.strip().lower() for name in content_encoding.split(",")]
        coded = [name for name in reversed(names) if name not in ("", "identity")]
        self.failed = not _STAGES.keys() >= set(coded) or len(coded) > MOST_CODINGS
        self.too_large = False
        self._stages = [] if self.failed else [_STAGES[name]() for name in coded]
        self._room, self._at_once = most, at_once

    def feed(self, chunk: bytes) -> bytes:
        """What can be told so far."""
        if self.failed:
            return b""
        if not self._stages:
            return chunk
        for stage in self._stages:
            chunk = self._unfolded(stage, chunk)
        self._room -= len(chunk)
        return chunk

    def _unfolded(self, stage: _Stage, data: bytes) -> bytes:
        out, room = bytearray(), min(self._room, self._at_once)
        try:
            stage.unfold(data, room, out)
        except (zlib.error, brotli.error, zstandard.ZstdError):
            self.failed = True
        if len(out) > room:
            self.failed = self.too_large = True
        return bytes(out[:room])

    def close(self) -> bytes:
        """What was held back: nothing, all that can be told is told at once."""
        return b""
