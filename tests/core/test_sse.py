"""Framing: law 8 as properties, the format as vector files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import sse
from proxy.core.sse import Gatherer, Splitter, UsageFilter, data_of, json_of, values_of

VECTORS = Path(__file__).parent.parent / "vectors" / "sse"
FILES = sorted(VECTORS.glob("*.json"))
FRAMING = [path for path in FILES if not path.name.startswith("usage_")]
FILTER = [path for path in FILES if path.name.startswith("usage_")]

USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3}}'
pieces = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"data", b":", b": ", b" ", b"x", b"\xef\xbb\xbf"]
    + [b"data: {}", b": beat", USAGE, USAGE[:30], USAGE[30:], b"\xff", "é".encode()]
)
texts = st.lists(pieces, max_size=24).map(b"".join)


@st.composite
def cut(draw: st.DrawFn, wire: st.SearchStrategy[bytes] = texts) -> tuple[bytes, list[bytes]]:
    """A text, and the same cut at any places, empty chunks included."""
    text = draw(wire)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return text, [text[a:b] for a, b in pairwise([0, *places, len(text)])]


def read(path: Path) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads(path.read_text())
    return vector


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def split(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = Splitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.rest()


def relay(chunks: list[bytes]) -> tuple[bytes, bytes, int]:
    filter = UsageFilter()
    out = b"".join(map(filter.feed, chunks))
    return out, filter.close(), filter.removed


def is_usage(value: Any) -> bool:
    return isinstance(value, dict) and value.get("choices") == [] and "usage" in value


class Kept(Gatherer):
    """Keeps what it is given, as events."""

    def __init__(self, longest: int = sse.LONGEST_EVENT, batch: int = 1) -> None:
        super().__init__(longest)
        self._batch = batch
        self._due = batch
        self.events: list[bytes] = []

    def read(self, text: bytes) -> None:
        self.events += text.split(b"\n\n")

    def feed(self, chunk: bytes) -> None:
        super().feed(chunk)
        self._due = self._batch


def gather(chunks: list[bytes], **limits: int) -> Kept:
    gatherer = Kept(**limits)
    for chunk in chunks:
        gatherer.feed(chunk)
    gatherer.close()
    return gatherer


def payloads(events: list[bytes]) -> list[bytes]:
    return [data for data in map(data_of, events) if data is not None]


@pytest.mark.parametrize("path", FRAMING, ids=lambda path: path.stem)
def test_events_and_their_data_are_as_the_vector_says(path: Path) -> None:
    vector = read(path)

    events, rest = split([raw(vector["wire"])])

    assert [raw(event) for event in vector["events"]] == events
    assert raw(vector["rest"]) == rest
    assert [None if d is None else raw(d) for d in vector["data"]] == list(map(data_of, events))


@pytest.mark.parametrize("path", FRAMING, ids=lambda path: path.stem)
def test_a_vector_cut_into_single_bytes_gives_the_same_events(path: Path) -> None:
    wire = raw(read(path)["wire"])

    assert split([wire]) == split([wire[i : i + 1] for i in range(len(wire))])


@pytest.mark.parametrize("path", FRAMING, ids=lambda path: path.stem)
def test_a_vector_gathered_byte_by_byte_has_the_same_data(path: Path) -> None:
    vector = read(path)
    wire = raw(vector["wire"])
    expected = [raw(data) for data in vector["data"] if data is not None]
    left = payloads([raw(vector["rest"])])

    assert expected + left == payloads(gather([wire[i : i + 1] for i in range(len(wire))]).events)


@pytest.mark.parametrize("path", FILTER, ids=lambda path: path.stem)
def test_the_usage_filter_relays_what_the_vector_says(path: Path) -> None:
    vector = read(path)
    wire = raw(vector["wire"])
    expected = (raw(vector["relayed"]), raw(vector["held"]), vector["removed"])

    assert expected == relay([wire])
    assert expected == relay([wire[i : i + 1] for i in range(len(wire))])


@given(cut())
def test_events_do_not_depend_on_how_the_bytes_were_cut(given: tuple[bytes, list[bytes]]) -> None:
    text, chunks = given

    assert split([text]) == split(chunks)


@given(cut())
def test_no_byte_is_lost_or_added_by_splitting(given: tuple[bytes, list[bytes]]) -> None:
    text, chunks = given
    events, rest = split(chunks)

    assert text == b"".join(events) + rest


@given(cut())
def test_an_event_ends_with_its_only_empty_line(given: tuple[bytes, list[bytes]]) -> None:
    events, _ = split(given[1])

    for event in events:
        lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        assert [b"", b""] == [*lines[-2:]]
        assert b"" not in lines[:-2]


@given(cut(), st.integers(0, 40))
def test_what_is_taken_early_is_not_given_again(
    given: tuple[bytes, list[bytes]], count: int
) -> None:
    text, chunks = given
    splitter, out = Splitter(), b""
    for chunk in chunks:
        out += b"".join(splitter.feed(chunk)) + splitter.take(count)

    assert text == out + splitter.rest()


@given(cut(), st.integers(0, 40))
def test_an_event_ends_where_it_ends_although_it_was_taken_early(
    given: tuple[bytes, list[bytes]], count: int
) -> None:
    text, chunks = given
    splitter, ends, at = Splitter(), set(), 0
    for chunk in chunks:
        for event in splitter.feed(chunk):
            at += len(event)
            ends.add(at)
        at += len(splitter.take(count))
    whole, _ = split([text])

    assert {len(b"".join(whole[: i + 1])) for i in range(len(whole))} == ends


@given(cut())
def test_what_is_relayed_does_not_depend_on_how_the_bytes_were_cut(
    given: tuple[bytes, list[bytes]],
) -> None:
    text, chunks = given
    whole, held, removed = relay([text])
    parts, held_back, removed_too = relay(chunks)

    assert whole + held == parts + held_back
    assert removed == removed_too


@given(cut())
def test_only_usage_events_are_missing_from_what_is_relayed(
    given: tuple[bytes, list[bytes]],
) -> None:
    events, rest = split([given[0]])
    out, held, removed = relay(given[1])
    usage = [event for event in events if is_usage(json_of(data_of(event) or b""))]

    assert len(usage) == removed
    assert all(e in usage or e in out + held for e in events)
    assert (removed > 0) or given[0] == out + held


@given(cut())
def test_no_more_is_held_back_than_an_event_that_is_not_whole(
    given: tuple[bytes, list[bytes]],
) -> None:
    filter, splitter = UsageFilter(), Splitter()
    for chunk in given[1]:
        filter.feed(chunk)
        splitter.feed(chunk)
        assert splitter.rest().endswith(filter.close())


@given(cut(), st.integers(1, 64))
def test_gathered_events_have_the_data_of_split_ones(
    given: tuple[bytes, list[bytes]], batch: int
) -> None:
    text, chunks = given
    events, rest = split([text])
    gathered = gather(chunks, batch=batch)

    assert payloads([*events, rest]) == payloads(gathered.events)
    assert 0 == gathered.skipped


@given(cut(), st.integers(1, 64), st.integers(1, 90))
def test_an_event_that_is_too_long_is_left_out_however_it_was_cut(
    given: tuple[bytes, list[bytes]], batch: int, longest: int
) -> None:
    text, chunks = given
    whole = gather([text], longest=longest, batch=len(text) + 1)
    parts = gather(chunks, longest=longest, batch=batch)

    assert payloads(whole.events) == payloads(parts.events)
    assert whole.skipped == parts.skipped


def test_a_long_event_is_skipped_and_the_next_one_is_read() -> None:
    long = b"data: " + b"x" * 40
    chunks = [long[:20], long[20:], b"\ndata: y", b"\n\ndata: one\n\n"]

    gathered = gather(chunks, longest=20)

    assert [b"one"] == payloads(gathered.events)
    assert 1 == gathered.skipped


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("longest", [8, 9])
def test_an_event_is_too_long_by_its_own_bytes_alone(end: bytes, longest: int) -> None:
    text = end + b"data: one" + end * 2 + b"data: 2" + end * 2
    gathered = gather([text[i : i + 1] for i in range(len(text))], longest=longest)

    assert [b"one", b"2"][9 - longest :] == payloads(gathered.events)
    assert 9 - longest == gathered.skipped


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_end_of_a_long_event_is_seen_wherever_it_is_cut(end: bytes) -> None:
    text = b"data: " + b"x" * 40 + end * 2 + b"data: 2" + end * 2
    for at in range(40, len(text)):
        gathered = gather([text[:at], text[at:]], longest=20)
        assert [b"2"] == payloads(gathered.events)
        assert 1 == gathered.skipped


def test_a_long_event_that_ends_the_stream_is_skipped() -> None:
    gathered = gather([b"data: one\n\n", b"data: " + b"x" * 40, b"x"], longest=20)

    assert [b"one"] == payloads(gathered.events)
    assert 1 == gathered.skipped


def test_a_gatherer_waits_for_a_batch() -> None:
    gathered = Kept(batch=100)

    gathered.feed(b"data: one\n\n")

    assert [] == gathered.events


def test_a_gatherer_alone_reads_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Gatherer().read(b"data: one")


def test_the_work_for_an_event_that_never_ends_grows_with_its_length_alone() -> None:
    gatherer, joined = Gatherer(), 0
    for _ in range(4096):
        gatherer.feed(b"x" * 1024)
        joined += len(gatherer._chunks) == 1

    assert joined < 10


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_heartbeat_goes_on_at_once_although_it_is_no_event(end: bytes) -> None:
    filter = UsageFilter()

    assert b": beat" + end == filter.feed(b": beat" + end)
    assert b"" == filter.feed(b'data: {"choices":[],')
    assert end + b"data: [DONE]" + end + end == filter.feed(
        b'"usage":{}}' + end + end + end + b"data: [DONE]" + end + end
    )
    assert 1 == filter.removed


def test_an_event_too_long_to_be_a_usage_goes_on_before_it_is_whole() -> None:
    filter = UsageFilter()
    text = b'data: {"choices":[],"usage":{"pad":"' + b"x" * sse.LONGEST_USAGE
    end = b'"}}\n\n'

    assert text == filter.feed(text)
    assert b"y" == filter.feed(b"y")
    assert b"\ndata: " + USAGE[6:] == filter.feed(b"\n" + USAGE)
    assert end == filter.feed(end)
    assert b"" == filter.feed(USAGE + b"\n\n")
    assert 1 == filter.removed


def test_a_long_usage_event_passes_in_one_piece_too() -> None:
    text = b'data: {"choices":[],"usage":{"pad":"' + b"x" * sse.LONGEST_USAGE + b'"}}\n\n'

    assert (text, b"", 0) == relay([text])


def test_a_stream_of_whole_events_passes_as_the_very_chunks() -> None:
    filter = UsageFilter()
    chunk = b'data: {"choices":[{"delta":{}}],"usage":null}\n\n'

    assert chunk is filter.feed(chunk)
    assert [chunk] == Splitter().feed(chunk)


def test_values_of_a_field_come_in_order() -> None:
    event = b"event: a\nevent:b\ndata: x\nevent\n\n"

    assert [b"a", b"b", b""] == values_of(event, b"event")
    assert [] == values_of(event, b"id")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'\xef\xbb\xbf"a"', "a"),
        (rb'"\ud83d"', "\ud83d"),
        (b"[1e400]", [float("inf")]),
        (b"", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
        (b"1" * 10_000, None),
    ],
    ids=["object", "mark", "surrogate", "large", "empty", "cut", "bytes", "deep", "digits"],
)
def test_json_is_read_where_it_can_be(data: bytes, value: object) -> None:
    assert value == json_of(data)
