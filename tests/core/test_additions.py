"""What is added beside: only what is named, only where the client left it unsaid, and once."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import additions, noise, tool_order, turn
from proxy.core.additions import NOTHING, Added
from proxy.core.contract import Affinity
from proxy.core.wire import chat
from proxy.core.wire.chat import Edit
from tests.laws import reading
from tests.laws.histories import odd_values
from tests.laws.rendering import COMPACT, STYLES, Literal, Pairs, Style

KIMI = {"thinking": {"type": "enabled", "keep": "all"}}
ZAI = {"thinking": {"type": "enabled", "clear_thinking": False}}
QWEN = {"preserve_thinking": True}
ENGINE = {"chat_template_kwargs": {"preserve_thinking": True}}
FIREWORKS = {"reasoning_history": "preserved"}
SEVERAL = {**ENGINE, **QWEN}
WANTED = (KIMI, ZAI, QWEN, ENGINE, FIREWORKS, SEVERAL)
MESSAGES = '"messages":[{"role":"user","content":"hi"}]'
KEY, HEADER = Affinity(body="prompt_cache_key"), Affinity(header="X-Grok-Conv-Id")


def preserve(body: bytes, wanted: dict[str, Any]) -> Added:
    return additions.preserve(body, chat.layout(body).fields, wanted)


def kept(members: str, wanted: dict[str, Any]) -> str:
    """The members of a request before its messages, once the wish was added."""
    body = f"{{{members}{MESSAGES}}}".encode()
    left = chat.apply(body, preserve(body, wanted).edits).decode()
    assert left.endswith(MESSAGES + "}")
    return left[1 : -len(MESSAGES) - 1]


def affinity(body: bytes, where: Affinity | None, *sent: bytes) -> Added:
    return additions.affinity(body, chat.layout(body).fields, dict.fromkeys(sent, b"x"), where, "1")


@pytest.mark.parametrize(
    ("wanted", "came", "left"),
    [
        (KIMI, "", '"thinking":{"keep":"all","type":"enabled"},'),
        (KIMI, '"thinking":{},', '"thinking":{"keep":"all","type":"enabled"},'),
        (KIMI, '"thinking": { } ,', '"thinking": {"keep":"all","type":"enabled" } ,'),
        (KIMI, '"thinking":{"type":"enabled"},', '"thinking":{"keep":"all","type":"enabled"},'),
        (KIMI, '"thinking":{"keep":"all"},', '"thinking":{"type":"enabled","keep":"all"},'),
        (KIMI, r'"th\u0069nking":{},', r'"th\u0069nking":{"keep":"all","type":"enabled"},'),
        (ZAI, '"thinking":{"x":1e400},',
         '"thinking":{"clear_thinking":false,"type":"enabled","x":1e400},'),
        (QWEN, "", '"preserve_thinking":true,'),
        (FIREWORKS, '"model":"m",', '"reasoning_history":"preserved","model":"m",'),
        (ENGINE, '"chat_template_kwargs":{"enable_thinking":false},',
         '"chat_template_kwargs":{"preserve_thinking":true,"enable_thinking":false},'),
        (SEVERAL, '"chat_template_kwargs":{},',
         '"preserve_thinking":true,"chat_template_kwargs":{"preserve_thinking":true},'),
    ],
)  # fmt: skip
def test_what_keeps_reasoning_is_added_where_the_client_left_it_unsaid(
    wanted: dict[str, Any], came: str, left: str
) -> None:
    assert left == kept(came, wanted)


@pytest.mark.parametrize(
    ("wanted", "came"),
    [
        (KIMI, '"thinking":{"type":"disabled"},'),
        (KIMI, '"thinking":{"type":"enabled","keep":null},'),
        (KIMI, '"thinking":null,'),
        (KIMI, '"thinking":"enabled",'),
        (KIMI, '"thinking":{"type":"enabled","type":"disabled"},'),
        (KIMI, '"thinking":{"type":"enabled"},"thinking":{"type":"enabled"},'),
        (KIMI, '"enable_thinking":false,'),
        (KIMI, '"reasoning_effort":"none",'),
        (KIMI, '"reasoning":{"enabled":false},'),
        (KIMI, '"chat_template_kwargs":{"thinking":false},'),
        (QWEN, '"preserve_thinking":false,'),
        (QWEN, '"preserve_thinking":1,'),
        (QWEN, '"preserve_thinking":1e400,'),
        (QWEN, f'"preserve_thinking":{"9" * 5000},'),
        (QWEN, '"preserve_thinking":null,'),
        (SEVERAL, '"chat_template_kwargs":{"preserve_thinking":false},'),
        (SEVERAL, '"preserve_thinking":false,'),
        ({"messages": []}, ""),
        ({}, ""),
    ],
)
def test_a_client_that_says_otherwise_in_any_part_gets_nothing(
    wanted: dict[str, Any], came: str
) -> None:
    assert came == kept(came, wanted)


@pytest.mark.parametrize("wanted", WANTED)
def test_a_client_that_says_so_itself_keeps_its_very_body(wanted: dict[str, Any]) -> None:
    body = COMPACT.render({**wanted, "messages": []})

    assert NOTHING == preserve(body, wanted)
    assert body is chat.apply(body, preserve(body, wanted).edits)


def test_a_request_without_thinking_may_still_keep_the_thoughts_before_it() -> None:
    assert (
        kept('"enable_thinking":false,', QWEN)
        == '"preserve_thinking":true,"enable_thinking":false,'
    )


def test_what_is_no_object_gets_no_addition() -> None:
    assert NOTHING == additions.preserve(b" [] ", {}, QWEN)
    assert NOTHING == additions.affinity(b" [] ", {}, {}, KEY, "1")
    assert b"{}" == chat.apply(b"{}", NOTHING.edits)
    assert b'{"preserve_thinking":true}' == chat.apply(
        b"{}", additions.preserve(b"{}", {}, QWEN).edits
    )


thinkings = st.dictionaries(
    st.sampled_from(("type", "keep", "clear_thinking", "preserve_thinking", "budget", "x")),
    odd_values | st.sampled_from(("enabled", "disabled", "all", True, False)),
    max_size=3,
)
requests = st.fixed_dictionaries(
    {"messages": st.just([{"role": "user", "content": "hi"}])},
    optional={
        "thinking": thinkings | odd_values,
        "chat_template_kwargs": thinkings | odd_values,
        "preserve_thinking": odd_values,
        "reasoning_history": odd_values | st.just("preserved"),
        "prompt_cache_key": odd_values,
        "x_unknown": odd_values,
    },
)


def filled(value: Any, wanted: Any) -> Any:
    """A second opinion on what an object becomes; raises ValueError where the client objects."""
    if not isinstance(wanted, dict):
        if isinstance(value, Literal) or type(value) is not type(wanted) or value != wanted:
            raise ValueError
        return value
    if not isinstance(value, dict):
        raise ValueError
    inner = {key: filled(value[key], wanted[key]) for key in value.keys() & wanted.keys()}
    return {**wanted, **value, **inner}


@given(requests, st.sampled_from(WANTED), st.sampled_from(STYLES))
def test_only_the_wish_is_added_once_and_every_other_literal_stays(
    request: dict[str, Any], wanted: dict[str, Any], style: Style
) -> None:
    body = style.render(Pairs(request.items()))
    came = reading.decoded(body)
    try:
        expected = filled(came, wanted)
    except ValueError:
        expected = came
    added = preserve(body, wanted)
    left = chat.apply(body, added.edits)

    assert expected == reading.decoded(left)
    assert NOTHING == preserve(left, wanted)
    assert (left is body) is (added == NOTHING)
    assert ({} if added == NOTHING else {"preserve": 1}) == added.counts
    assert list(added.edits) == sorted(added.edits, key=lambda edit: edit.start)
    assert all(edit.start == edit.end for edit in added.edits)


@given(requests, st.sampled_from(STYLES))
def test_only_an_absent_affinity_key_is_added_and_once(
    request: dict[str, Any], style: Style
) -> None:
    body = style.render(Pairs(request.items()))
    came = reading.decoded(body)
    left = chat.apply(body, affinity(body, KEY).edits)

    assert {"prompt_cache_key": "1", **came} == reading.decoded(left)
    assert (left is body) is ("prompt_cache_key" in request)
    assert NOTHING == affinity(left, KEY)


def test_an_affinity_header_is_added_where_the_client_sent_none() -> None:
    body = COMPACT.render({"messages": []})
    added = affinity(body, HEADER)

    assert Added((), ((b"x-grok-conv-id", b"1"),), {"affinity": 1}) == added
    assert NOTHING == affinity(body, HEADER, b"x-grok-conv-id")
    assert added == affinity(body, HEADER, b"x-other")


@pytest.mark.parametrize("where", [None, Affinity(), Affinity(body="messages")])
def test_a_contract_without_a_place_for_an_id_gets_none(where: Affinity | None) -> None:
    assert NOTHING == affinity(COMPACT.render({"messages": []}), where)


def test_of_two_places_either_that_the_client_filled_is_its_word() -> None:
    both = Affinity(body="session_id", header="x-session-id")
    body = COMPACT.render({"messages": []})
    added = affinity(body, both)

    assert b'{"session_id":"1","messages":[]}' == chat.apply(body, added.edits)
    assert ((b"x-session-id", b"1"),) == added.headers
    assert NOTHING == affinity(body, both, b"x-session-id")
    assert NOTHING == affinity(COMPACT.render({"session_id": None, "messages": []}), both)


def test_an_affinity_id_is_stable_and_is_no_root() -> None:
    root = bytes(range(16))

    assert additions.affinity_id(root) == additions.affinity_id(root)
    assert root.hex() != additions.affinity_id(root)
    assert additions.affinity_id(root) != additions.affinity_id(bytes(16))
    assert 32 == len(additions.affinity_id(root))


def test_several_additions_to_one_body_are_one() -> None:
    body = COMPACT.render({"thinking": {}, "messages": []})
    one, two = preserve(body, KIMI), affinity(body, KEY)
    all_of = additions.together(one, two, NOTHING, affinity(body, HEADER))
    twice = additions.together(Added(counts={"x": 1}), Added((Edit(1, 2),), counts={"x": 2}))

    assert {"preserve": 1, "affinity": 2} == all_of.counts
    assert ((b"x-grok-conv-id", b"1"),) == all_of.headers
    assert {
        "prompt_cache_key": "1",
        "thinking": {"type": "enabled", "keep": "all"},
        "messages": [],
    } == msgspec.json.decode(chat.apply(body, all_of.edits))
    assert Added((Edit(1, 2),), counts={"x": 3}) == twice


RUN = (re.compile(r"run (\w+);"),)
TOOLS = [{"type": "function", "function": {"name": name}, "x": 2**64} for name in ("c", "a", "b")]


@st.composite
def noisy(draw: st.DrawFn) -> list[bytes]:
    """The requests of a client that appends messages, and changes what stands before them."""
    style, bodies = draw(st.sampled_from(STYLES)), []
    rows: list[Any] = []
    for _ in range(3):
        system: Any = {"role": "system", "content": f"run {draw(st.sampled_from('xyz'))}; é/"}
        rows = [*rows, {"role": "user", "content": draw(st.sampled_from(("hi", "run x;")))}]
        members = {"tools": draw(st.permutations(TOOLS)), "thinking": {}}
        bodies.append(style.render(Pairs([*members.items(), ("messages", [system, *rows])])))
    return bodies


@given(noisy(), st.booleans())
def test_the_requests_of_a_noisy_client_leave_so_that_each_begins_as_the_one_before(
    bodies: list[bytes], by_name: bool
) -> None:
    turns = [turn.read(body, bytes(16)) for body in bodies]
    values, order = noise.offer(turns[0], RUN), tool_order.offer(turns[0], by_name)
    assert order is not None
    before = ""
    for it in turns:
        added = additions.together(
            additions.preserve(it.body, it.fields, KIMI),
            additions.affinity(it.body, it.fields, {}, KEY, additions.affinity_id(it.root)),
            noise.apply(it, RUN, values),
            tool_order.apply(it, [order]),
        )
        left = chat.apply(it.body, added.edits)
        assert reading.text_of(left).startswith(before)
        before = reading.up_to_last_message(left)
