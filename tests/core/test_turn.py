"""The spine, step by step: what each stage gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import fingerprint, policy, turn
from proxy.core.artifact import Judgement
from proxy.core.prefix import Cause
from proxy.core.sent import Part, Sent
from proxy.core.turn import Turn
from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.core.wire import chat
from tests.laws import reading
from tests.laws.histories import histories

SCOPE = b"s" * 16


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, *calls: str, thinking: str = "", **more: Any) -> dict[str, Any]:
    made = [
        {"id": c, "type": "function", "function": {"name": "f", "arguments": "{}"}} for c in calls
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    return {**message, **({"reasoning_content": thinking} if thinking else {}), **more}


def tool(call: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def body(*messages: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields, "messages": messages}).encode()


def read(*messages: Any, **fields: Any) -> Turn:
    return turn.read(body(*messages, **fields), SCOPE)


HISTORY = (
    system("be brief"),
    user("go"),
    assistant("", "c1", "c2", thinking="two at once"),
    tool("c2"),
    tool("c1"),
    assistant("done", thinking="all is well"),
    user("more"),
    assistant("yes", thinking="hm"),
)


def test_a_request_is_read_into_messages_steps_and_names() -> None:
    it = read(*HISTORY, stream=True)

    assert "m" == it.model
    assert [b'"m"', b"true"] == [it.fields["model"], it.fields["stream"]]
    assert ["system"] == [m.role for m in it.leading]
    assert ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"] == [
        m.role for m in it.messages
    ]
    assert [(1, 4, True), (4, 6, True), (6, 7, False)] == [
        (s.first, s.end, s.complete) for s in it.steps
    ]
    assert it.messages[0].link == it.root
    assert it.messages[1].link == it.conversation
    assert tuple(m.link for m in it.messages[1:4]) == it.links(it.steps[0])
    assert HISTORY[2] == it.decoded(it.messages[1])


def test_without_an_assistant_the_conversation_is_its_root() -> None:
    nothing, asked = read(), read(system("x"), user("go"))

    assert fingerprint.root_of(SCOPE) == nothing.root == nothing.conversation
    assert asked.messages[-1].link == asked.root == asked.conversation
    first = read(assistant("hi"))
    assert first.messages[0].link == first.root == first.conversation


@pytest.mark.parametrize("model", ["m" * turn.LONGEST_MODEL, "", "\ud83d", None, 5, ["m"]])
def test_a_model_is_known_by_its_name_and_what_is_no_name_by_none(model: Any) -> None:
    assert (model if isinstance(model, str) else "") == read(user("go"), model=model).model


def test_a_name_that_is_too_long_is_known_by_its_beginning_and_a_digest_of_it_all() -> None:
    long = "gpt-" + "m" * 1_000_000
    one, same, other = (read(user("go"), model=name) for name in (long, long, long + "x"))
    ends = read(user("go"), model=long + "\ud83d")

    assert one.model.startswith("gpt-mmm")
    assert turn.LONGEST_MODEL == len(one.model) == len(ends.model)
    assert one.model == same.model
    assert 3 == len({one.model, other.model, ends.model})
    assert turn.front_of(one, (), False, ()) != turn.front_of(other, (), False, ())


def test_leading_system_messages_are_no_links_and_later_ones_are() -> None:
    one, two = read(system("noon"), user("go")), read(system("one"), system("two"), user("go"))
    later = read(user("go"), system("noon"))

    assert one.messages[-1].link == two.messages[-1].link
    assert ["user", "system"] == [m.role for m in later.messages]


@pytest.mark.parametrize("model", [None, 5, "", {"a": 1}])
def test_a_model_that_is_no_text_is_none(model: Any) -> None:
    assert "" == read(user("x"), model=model).model


def test_a_message_that_is_no_object_decodes_to_nothing() -> None:
    it = turn.read(b'{"messages":[5,{"role":"user"},{"a":"\x01"}]}', SCOPE)

    assert [{}, {"role": "user"}, {}] == [it.decoded(m) for m in it.messages]


def test_more_messages_than_are_read_are_unreadable_however_they_are_read() -> None:
    some = b'{"messages":[' + b"1," * (chat.MAX_MESSAGES - 1) + b"1]}"
    more = some.replace(b"]", b",1]")
    it = turn.read(some, SCOPE)

    for known in (None, turn.knowledge(it)):
        with pytest.raises(turn.Unreadable, match="too_many_messages"):
            turn.read(more, SCOPE, known)


@given(histories(max_steps=3), st.data())
def test_reading_on_from_what_is_known_gives_the_same_turn(history, data) -> None:
    bodies = history.bodies()
    short, long = sorted(data.draw(st.tuples(*[st.integers(0, len(bodies) - 1)] * 2)))
    before = turn.read(bodies[short], SCOPE)
    known = turn.knowledge(before)

    assert known is not None
    after = turn.read(bodies[long], SCOPE, known)

    assert turn.read(bodies[long], SCOPE) == after
    assert turn.knowledge(after) == turn.knowledge(after, known)


def test_a_request_without_messages_leaves_nothing_to_know() -> None:
    assert turn.knowledge(read()) is None
    assert turn.knowledge(turn.read(b'{"m\\u0065ssages":[1]}', SCOPE)) is None


class Judge:
    """Notes what it is asked about and says that all of it wrote."""

    def __init__(self) -> None:
        self.asked: list[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = []

    def __call__(
        self, message: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]
    ) -> Judgement:
        self.asked.append((message, answers))
        return Judgement(True, False, "all")


def test_every_step_that_is_not_known_to_be_settled_is_proposed() -> None:
    it, judge = read(*HISTORY), Judge()

    proposal = turn.propose(it, policy.parse("after_artifact"), judge, {1}.__contains__)

    assert {0: DROP, 2: KEEP} == proposal
    assert [(HISTORY[2], list(HISTORY[3:5]))] == [(m, list(a)) for m, a in judge.asked]


def test_keep_latest_counts_from_the_end() -> None:
    rule = policy.parse("keep_latest:2")

    assert {0: DROP, 1: None, 2: None} == turn.propose(
        read(*HISTORY), rule, Judge(), lambda _: False
    )


def test_nothing_is_forgotten_for_a_horizon_that_nobody_knows() -> None:
    rule = policy.parse("horizon")

    proposal = turn.propose(read(*HISTORY), rule, Judge(), lambda _: False)

    assert {KEEP} == {*proposal.values()}


def test_random_looks_at_what_was_said_and_not_at_the_scope() -> None:
    text, rule = body(*HISTORY), policy.parse("random:0.5")
    one, two = turn.read(text, SCOPE), turn.read(text, b"t" * 16)

    assert one.root != two.root
    assert turn.propose(one, rule, Judge(), lambda _: False) == turn.propose(
        two, rule, Judge(), lambda _: False
    )


def seal(it: Turn, standing: Mapping[int, Verdict], **more: Any) -> turn.Sealed:
    front = turn.front_of(it, (), False, ())
    return turn.seal(it, standing, front, None, **more)


def test_what_stands_is_carried_out() -> None:
    it = read(*HISTORY)

    sealed = seal(it, {2: DROP, 0: DROP, 1: KEEP})

    left = json.loads(sealed.body)["messages"]
    assert ["", "all is well", ""] == [
        m["reasoning_content"] for m in left if m["role"] == "assistant"
    ]
    assert (2, 1, 0) == (sealed.dropped, sealed.kept, sealed.clamped)
    assert (len("two at once") + len("hm"), len("all is well")) == (
        sealed.dropped_bytes, sealed.kept_bytes,
    )  # fmt: skip
    assert [e.start for e in sealed.edits] == sorted(e.start for e in sealed.edits)
    assert len(it.body) - len(sealed.body) == sealed.dropped_bytes
    assert sealed.kept_bytes == sum(e.reasoning for e in sealed.elements)


def test_a_step_without_a_verdict_is_sent_as_it_came() -> None:
    it = read(*HISTORY)

    assert it.body is seal(it, {}).body


def test_untouched_means_not_one_byte() -> None:
    it = read(*HISTORY)

    sealed = seal(it, {0: DROP, 1: DROP}, untouched=True)

    assert it.body is sealed.body
    assert (0, 3, 0) == (sealed.dropped, sealed.kept, sealed.clamped)


SEALED = [
    assistant("x", thinking="a", thought_signature="c2ln"),
    assistant(
        "x", thinking="a", reasoning_details=[{"type": "reasoning.encrypted", "data": "ZW5j"}]
    ),
]


@pytest.mark.parametrize("message", SEALED)
def test_signed_reasoning_is_kept_and_the_clamp_is_counted(message: Any) -> None:
    it = read(user("go"), message, user("on"))

    for verdict in (DROP, Verdict(Kind.REPLACE, "short")):
        sealed = seal(it, {0: verdict})
        assert it.body is sealed.body
        assert (0, 1, 1) == (sealed.dropped, sealed.kept, sealed.clamped)


def test_reasoning_that_cannot_be_told_apart_is_kept_and_counted_so() -> None:
    twice = b'{"role":"assistant","reasoning":"a","content":"x","content":"x"}'
    text = b'{"messages":[' + twice + b',{"role":"user"}]}'
    it = turn.read(text, SCOPE)

    sealed = seal(it, {0: DROP})

    assert text is sealed.body
    assert (0, 1, 1) == (sealed.dropped, sealed.kept, sealed.clamped)


def test_a_verdict_on_a_step_without_reasoning_changes_nothing_and_counts_nothing() -> None:
    it = read(user("go"), assistant("x"), user("on"))

    sealed = seal(it, {0: DROP})

    assert it.body is sealed.body
    assert (0, 0, 0) == (sealed.dropped, sealed.kept, sealed.clamped)


@given(st.text() | st.just("\ud83d"))
def test_a_replacement_stands_where_the_first_reasoning_stood(text: str) -> None:
    two = assistant("<think>c</think>x", thinking="a", reasoning="b")
    it = read(user("go"), two, user("on"))

    sealed = seal(it, {0: Verdict(Kind.REPLACE, text)})

    assert {**two, "reasoning_content": text, "reasoning": "", "content": "x"} == json.loads(
        sealed.body.decode("utf-8", "surrogateescape")
    )["messages"][1]
    written = len(text.encode("utf-8", "surrogatepass"))
    assert it.messages[1].dropped.size + written == sealed.elements[3].size
    assert len(text.encode("utf-8", "surrogatepass")) == sealed.elements[3].reasoning
    dropped = seal(it, {0: DROP})
    assert (dropped.outgoing == sealed.outgoing) is (text == "")


def test_without_a_place_for_a_text_a_replacement_drops() -> None:
    it = read(user("go"), assistant("<think>c</think>x"), user("on"))

    sealed = seal(it, {0: Verdict(Kind.REPLACE, "short")})

    assert seal(it, {0: DROP}).body == sealed.body


def test_what_left_is_laid_beside_what_leaves() -> None:
    it = read(*HISTORY)
    first = seal(it, {})
    last = Sent(it.messages[-1].link, first.outgoing, first.elements, 0.0, "")

    again = turn.seal(it, {}, turn.front_of(it, (), False, ()), last)

    assert (Cause.COLD_START, Cause.RETRY) == (first.finding.cause, again.finding.cause)
    assert turn.outgoing_digest(again.elements) == again.outgoing == first.outgoing


def parts(elements: Sequence[Any]) -> str:
    return "".join(element.part.value for element in elements)


def test_the_front_is_in_the_order_in_which_the_provider_renders_it() -> None:
    it = read(system("a"), system("b"), user("go"), tools=[{"name": "f"}])
    tools = turn.tools_element(it.fields["tools"])

    assert "mptss" == parts(turn.front_of(it, (), False, tools))
    assert "mpsst" == parts(turn.front_of(it, (), True, tools))
    assert "mpss" == parts(turn.front_of(it, (), True, ()))
    assert {Part.SYSTEM} == {e.part for e in turn.front_of(it, (), True, ())[2:]}


def test_only_rendered_parameters_are_in_the_front() -> None:
    one = read(user("x"), reasoning_effort="low", seed=1)
    two = read(user("x"), reasoning_effort="low", seed=2)

    named = ("reasoning_effort",)
    assert turn.front_of(one, named, False, ()) == turn.front_of(two, named, False, ())
    assert turn.front_of(one, named, False, ()) != turn.front_of(one, (), False, ())


def test_a_parameter_that_nobody_can_read_counts_by_its_bytes() -> None:
    deep = [json.loads("[" * n + "]" * n) for n in (150, 151)]
    one, two = (
        turn.front_of(read(user("x"), thinking=value), ("thinking",), False, ()) for value in deep
    )

    assert one != two


@pytest.mark.parametrize("raw", [b"", b"[]", b"null"])
def test_no_tools_are_no_element(raw: bytes) -> None:
    assert () == turn.tools_element(raw)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (b'[{"a":1,"b":2}]', b'[ {"b":2, "a":1} ]', True),
        (b'[{"a":1,"cache_control":{}}]', b'[{"a":1}]', True),
        (b'[{"a":1.0}]', b'[{"a":1.00}]', False),
        (b'{"a":1}', b'{"a":2}', False),
        (b'"ab"', b'"ba"', False),
        (b"5", b"6", False),
        (b"[" * 150 + b"]" * 150, b"[" * 151 + b"]" * 151, False),
        (b'[{"a":1},{"b":2}]', b'[{"b":2},{"a":1}]', False),
    ],
)  # fmt: skip
def test_tools_are_compared_by_value(a: bytes, b: bytes, same: bool) -> None:
    one, two = turn.tools_element(a), turn.tools_element(b)

    assert same is (one[0].digest == two[0].digest)


def test_tools_in_another_order_have_one_gist() -> None:
    (one,), (two,) = (
        turn.tools_element(raw) for raw in (b'[{"a":1},{"b":2}]', b'[{"b":2},{"a":1}]')
    )

    assert one.gist == two.gist
    assert one.digest != two.digest


@given(histories(max_steps=2))
def test_elements_measure_what_is_rendered(history) -> None:
    it = turn.read(history.bodies()[-1], SCOPE)

    sealed = seal(it, dict.fromkeys(range(len(it.steps)), DROP))

    for message in it.messages:
        taken = message.kept.reasoning if message.edits else 0
        assert message.kept.size == message.dropped.size + taken
    assert reading.decoded(sealed.body) is not None
