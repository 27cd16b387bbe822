"""Recorded replies, read and cut at random places, beside a plain reading of the same text."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.core.reply import StreamReader, read_body
from proxy.core.seen import Seen
from proxy.core.sse import Splitter, UsageFilter
from proxy.core.usage import Usage
from tests.shared import need_shared


@dataclass(frozen=True, slots=True)
class Recorded:
    name: str
    provider: str
    endpoint: str
    stream: bool
    text: bytes


def recorded() -> list[Recorded]:
    """Every recorded response, as the bytes that came (or the nearest to them that was kept)."""
    base = need_shared("corpus", "responses")
    return [_one(path) for path in sorted(base.glob("*/*.json"))]


def _one(path: Path) -> Recorded:
    file = json.loads(path.read_text())
    text = file.get("sse") or file.get("body_raw") or json.dumps(file.get("body"))
    stream = file.get("sse") is not None
    name = f"{path.parent.name}/{path.stem}"
    return Recorded(name, path.parent.name, file["endpoint"], stream, text.encode())


def chats(stream: bool) -> list[Recorded]:
    return [r for r in recorded() if r.endpoint == "chat.completions" and r.stream == stream]


def read(chunks: list[bytes]) -> Seen:
    reader = StreamReader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def seen(record: Recorded) -> Seen:
    return read([record.text]) if record.stream else read_body(record.text)


def pieces(text: bytes, chance: random.Random) -> list[bytes]:
    """The text cut anywhere, lines and characters included."""
    places = sorted(chance.randrange(len(text) + 1) for _ in range(min(60, len(text))))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def objects(record: Recorded) -> Iterator[dict[str, Any]]:
    """The JSON objects of a reply, found with nothing but lines and the standard library."""
    lines = record.text.decode().splitlines() if record.stream else ["data:" + _line(record)]
    for line in lines:
        if line.startswith("data:") and line[5:].strip() not in ("", "[DONE]"):
            value = json.loads(line[5:])
            if isinstance(value, dict):
                yield value


def _line(record: Recorded) -> str:
    return json.dumps(json.loads(record.text))


def messages(record: Recorded) -> Iterator[dict[str, Any]]:
    """The deltas of choice 0, or its message."""
    for value in objects(record):
        for choice in value.get("choices") or []:
            if choice.get("index", 0) == 0:
                yield choice.get("delta" if record.stream else "message") or {}


def plain_reasoning(record: Recorded) -> set[str]:
    """The text of each carrier, joined; more than one where carriers differ."""
    by_carrier: dict[str, str] = {}
    for message in messages(record):
        for key in ("reasoning_content", "reasoning"):
            if message.get(key):
                by_carrier[key] = by_carrier.get(key, "") + message[key]
        for item in message.get("reasoning_details") or []:
            text = item.get("text") or item.get("summary") or ""
            by_carrier["details"] = by_carrier.get("details", "") + text
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                for inner in part.get("thinking") or []:
                    by_carrier["parts"] = by_carrier.get("parts", "") + inner["text"]
    return {text for text in by_carrier.values() if text}


def plain_text(record: Recorded) -> str:
    text = ""
    for message in messages(record):
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(p["text"] for p in content if p["type"] == "text")
        text += content
    return text


def plain_calls(record: Recorded) -> list[list[str]]:
    """Id, name and arguments by index; in a body by place."""
    calls: dict[int, list[str]] = {}
    for message in messages(record):
        for place, call in enumerate(message.get("tool_calls") or []):
            index = call.get("index", place) if record.stream else place
            mine = calls.setdefault(index, ["", "", ""])
            function = call.get("function") or {}
            mine[0] = mine[0] or call.get("id") or ""
            mine[1] = mine[1] or function.get("name") or ""
            mine[2] += function.get("arguments") or ""
    return [calls[index] for index in sorted(calls)]


def plain_usage(record: Recorded) -> dict[str, Any]:
    """The last value of each field of any usage, nulls left out; details with a dot."""
    found: dict[str, Any] = {}
    for value in objects(record):
        groq = (value.get("x_groq") or {}).get("usage")
        for usage in (groq, value.get("usage")):
            for key, count in (usage or {}).items():
                inner = count.items() if isinstance(count, dict) else [("", count)]
                for name, number in inner:
                    if number is not None:
                        found[f"{key}.{name}".rstrip(".")] = number
        if "timings" in value:
            found["cache_n"] = value["timings"].get("cache_n")
    return found


READ = (
    "prompt_tokens_details.cached_tokens",
    "cached_tokens",
    "num_cached_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cache_n",
)
WRITE = ("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens")
REASONING = ("completion_tokens_details.reasoning_tokens", "reasoning_tokens")


def most(found: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return max((found[name] for name in names if found.get(name) is not None), default=None)


def assert_usage_is(usage: Usage, found: dict[str, Any]) -> None:
    assert usage.cache_read == most(found, READ)
    assert usage.cache_write == most(found, WRITE)
    assert usage.reasoning == most(found, REASONING)
    if isinstance(found.get("cost"), int | float):
        assert usage.cost == Decimal(str(found["cost"]))
    if "prompt_tokens" not in found:
        return
    total, prompt = found.get("total_tokens"), found["prompt_tokens"]
    assert usage.input is not None
    assert usage.output is not None
    parts = (usage.cache_read or 0) + (usage.cache_write or 0) + (usage.uncached or 0)
    assert usage.input == parts
    if total is not None and (usage.reasoning or 0) <= found["completion_tokens"]:
        assert total == usage.input + usage.output
    if prompt >= (usage.cache_read or 0) + (usage.cache_write or 0):
        assert usage.input == prompt


def test_a_stream_cut_at_random_places_is_read_as_in_one_piece() -> None:
    streams, chance = chats(stream=True), random.Random(8)
    for record in streams:
        whole = read([record.text])
        for _ in range(3):
            assert whole == read(pieces(record.text, chance)), record.name
        assert whole == read([record.text[i : i + 7] for i in range(0, len(record.text), 7)])

    print(f"{len(streams)} streams, each cut at 60 random places three times, and every 7 bytes")


def test_splitting_and_filtering_lose_no_byte_of_any_stream() -> None:
    streams, chance, removed = [r for r in recorded() if r.stream], random.Random(9), 0
    for record in streams:
        cuts = pieces(record.text, chance)
        splitter, filter, whole = Splitter(), UsageFilter(), UsageFilter()
        events = [event for chunk in cuts for event in splitter.feed(chunk)]
        relayed = b"".join(map(filter.feed, cuts)) + filter.close()

        assert record.text == b"".join(events) + splitter.rest(), record.name
        assert relayed == whole.feed(record.text) + whole.close(), record.name
        assert (filter.removed > 0) == (len(relayed) < len(record.text)), record.name
        removed += filter.removed

    print(f"{len(streams)} streams (all endpoints); {removed} usage events taken out")


def test_what_the_filter_takes_out_is_only_the_usage() -> None:
    told = Counter[str]()
    for record in chats(stream=True):
        filter = UsageFilter()
        relayed = filter.feed(record.text) + filter.close()
        left, whole = read([relayed]), read([record.text])

        assert left.text == whole.text, record.name
        assert left.tool_calls == whole.tool_calls, record.name
        assert left.done == whole.done, record.name
        told["taken out" if filter.removed else "nothing to take out"] += 1

    print(dict(told))


@pytest.mark.parametrize("stream", [True, False], ids=["streams", "bodies"])
def test_reasoning_and_text_are_those_of_a_plain_reading(stream: bool) -> None:
    carriers = Counter[str]()
    for record in _readable(stream):
        reply, reasoning, text = seen(record), plain_reasoning(record), plain_text(record)
        if reply.carriers[:1] == ("think",):
            assert not reasoning
            assert text == f"<think>{reply.reasoning}</think>" + text[len(text) - _after(text) :]
            assert text.endswith(reply.text)
        else:
            assert reply.reasoning == max(reasoning, key=len, default=""), record.name
            assert reply.text == text, record.name
        carriers[" + ".join(reply.carriers) or "none"] += 1

    print(f"{sum(carriers.values())} replies by carrier: {dict(carriers)}")


def _after(text: str) -> int:
    return len(text) - text.index("</think>") - len("</think>")


@pytest.mark.parametrize("stream", [True, False], ids=["streams", "bodies"])
def test_tool_calls_are_those_of_a_plain_reading(stream: bool) -> None:
    counts = Counter[int]()
    for record in _readable(stream):
        calls = [[c.id, c.name, c.arguments] for c in seen(record).tool_calls]
        assert calls == plain_calls(record), record.name
        counts[len(calls)] += 1

    print(f"replies by number of tool calls: {dict(sorted(counts.items()))}")


@pytest.mark.parametrize("stream", [True, False], ids=["streams", "bodies"])
def test_usage_is_that_of_a_plain_reading(stream: bool) -> None:
    counts = Counter[str]()
    for record in _readable(stream):
        usage, found = seen(record).usage, plain_usage(record)
        assert_usage_is(usage, found)
        counts["with usage" if found else "without usage"] += 1
        read = usage.cache_read
        counts["cache read " + ("unknown" if read is None else "0" if read == 0 else "> 0")] += 1

    print(dict(sorted(counts.items())))


@pytest.mark.parametrize("stream", [True, False], ids=["streams", "bodies"])
def test_how_a_reply_ended_is_that_of_a_plain_reading(stream: bool) -> None:
    ends = Counter[str]()
    for record in _readable(stream):
        reply, reasons, failed = seen(record), [], False
        for value in objects(record):
            choices = [c for c in value.get("choices") or [] if c.get("index", 0) == 0]
            reasons += [c["finish_reason"] for c in choices if c.get("finish_reason")]
            failed = failed or bool(value.get("error"))
        done = b"data: [DONE]" in record.text or not record.stream

        assert (reasons or [""])[-1] == reply.finish_reason, record.name
        assert failed == bool(reply.error), record.name
        assert done == reply.done, record.name
        ends[reply.error and f"error {reply.error}" or reply.finish_reason or "no reason"] += 1

    print(dict(ends))


def test_every_other_endpoint_is_read_for_usage_without_trouble() -> None:
    counts = Counter[tuple[str, bool]]()
    for record in recorded():
        if record.endpoint != "chat.completions":
            reply = seen(record)
            whole = reply.usage.input is not None or reply.error
            counts[record.endpoint, bool(whole)] += 1

    print({f"{name}, usage {known}": n for (name, known), n in sorted(counts.items())})
    assert not any(n for (_, known), n in counts.items() if not known)


def test_streams_and_bodies_of_one_provider_tell_the_same_fields() -> None:
    """Where a provider was recorded both ways, reasoning comes in the same carriers."""
    ways: dict[str, dict[bool, set[str]]] = {}
    for stream in (True, False):
        for record in _readable(stream):
            kept = ways.setdefault(record.provider, {True: set(), False: set()})
            kept[stream] |= set(seen(record).carriers) - {"think"}
    both = {name: way for name, way in ways.items() if all(way.values())}

    print(f"both ways: {sorted(both)}")
    for name, way in both.items():
        assert way[True] & way[False], name


def _readable(stream: bool) -> list[Recorded]:
    """Replies that came well: errors have their own test."""
    return [r for r in chats(stream) if b'"choices"' in r.text]
