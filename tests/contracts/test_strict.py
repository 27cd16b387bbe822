"""The strict upstreams themselves, asked directly: they refuse, render and count by their rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from proxy.core.contract import Reuse
from tests.contracts import caching, refusals, rendering, seals
from tests.contracts.agents import CLIENTS, Heard, ask, work
from tests.contracts.families import FAMILIES, Sealing
from tests.contracts.house import Street, lined
from tests.contracts.rendering import rendered
from tests.contracts.strict import Talk
from tests.contracts.task import TASK
from tests.doors.scripted import dialled


def called(call_id: str = "c0", **more: Any) -> dict[str, Any]:
    function = {"name": "bash", "arguments": "{}"}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def result(call_id: str = "c0", text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


USER = {"role": "user", "content": "Do it."}
ANSWER = {"role": "assistant", "content": "Done."}


def asking(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def refused(name: str, request: Mapping[str, Any]) -> str:
    """The text of a family's refusal; empty where it takes the request."""
    found = FAMILIES[name].refusal(request)
    return "" if found is None else found.body.decode()


@pytest.fixture(scope="module")
def street() -> Iterator[Street]:
    with lined() as opened:
        yield opened


def answered(street: Street, name: str, *requests: Mapping[str, Any]) -> tuple[Talk, list[Heard]]:
    """Over a socket, one after the other, by a caller that was not there before."""
    caller = _caller(street, name)

    async def asked() -> list[Heard]:
        async with dialled(int(street.url.rpartition(":")[2])) as line:
            target, key = f"/{name}/v1/chat/completions", {"authorization": f"Bearer {caller}"}
            return [await ask(line, target, key, json.dumps(row).encode()) for row in requests]

    heard = street.run(asked())
    return street.doors[name].talk(caller), heard


def worked(street: Street, name: str, client: str) -> tuple[Talk, list[Heard]]:
    """The whole task."""
    caller, model = _caller(street, name), FAMILIES[name].model
    key = {"authorization": f"Bearer {caller}"}
    heard = street.run(work(CLIENTS[client], f"{street.url}/{name}", model, key))
    return street.doors[name].talk(caller), heard


def _caller(street: Street, name: str) -> str:
    return f"k{street.doors[name].callers}"


# What is refused


def test_deepseek_v4_wants_the_field_on_every_assistant_message_once_there_were_calls() -> None:
    whole = called(reasoning_content="")
    wanted = refusals.V4_MISSING

    assert "" == refused("deepseek-v4", asking(USER, ANSWER, USER))
    assert "" == refused("deepseek-v4", asking(USER, whole, result()))
    assert wanted in refused("deepseek-v4", asking(USER, called(), result()))
    assert wanted in refused("deepseek-v4", asking(USER, whole, result(), ANSWER, USER))
    assert wanted in refused("deepseek-v4", asking(USER, ANSWER, USER, whole, result()))
    assert wanted in refused("deepseek-v4", asking(USER, called(reasoning_content=None), result()))


def test_deepseek_does_not_ask_for_reasoning_where_thinking_is_off() -> None:
    off = {"thinking": {"type": "disabled"}}

    assert "" == refused("deepseek-v4", asking(USER, called(), result(), **off))


def test_deepseek_v32_names_the_message_and_looks_at_the_current_user_turn_only() -> None:
    said = called(reasoning_content="hm")
    told = refused("deepseek-v3.2", asking(USER, said, result(), called("c1"), result("c1")))

    assert "at message index 3." in told
    assert "" == refused("deepseek-v3.2", asking(USER, called(), result(), ANSWER, USER))


def test_the_old_deepseek_takes_no_reasoning_not_even_an_empty_field() -> None:
    for text in ("hm", ""):
        told = refused("deepseek-r1", asking(USER, {**ANSWER, "reasoning_content": text}, USER))

        assert refusals.R1_PRESENT in told
    assert "" == refused("deepseek-r1", asking(USER, ANSWER, USER))


@pytest.mark.parametrize("name", ["kimi-k2", "kimi-k3"])
def test_kimi_wants_the_field_on_messages_with_calls_and_names_the_message(name: str) -> None:
    told = refused(name, asking(USER, ANSWER, USER, called(), result()))

    assert told.endswith('message at index 3", "type": "invalid_request_error"}}')
    assert "" == refused(name, asking(USER, ANSWER, USER, called(reasoning_content=""), result()))
    assert "" == refused(name, asking(USER, ANSWER, USER))


def test_llama_fails_on_null_and_refuses_parts_that_it_does_not_know() -> None:
    null = FAMILIES["llama.cpp"].refusal(asking(USER, {**ANSWER, "reasoning_content": None}, USER))
    part = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}

    assert null is not None
    assert (500, True) == (null.status, b"must be string, but is null" in null.body)
    assert refusals.LLAMA_PART in refused("llama.cpp", asking(USER, part, USER))
    assert "" == refused("llama.cpp", asking(USER, called(), result()))


def test_mistral_wants_a_text_or_calls() -> None:
    told = refused("mistral", asking(USER, {"role": "assistant", "content": ""}, USER))

    assert refusals.MISTRAL_EMPTY in told


def test_no_upstream_takes_a_result_without_its_call() -> None:
    for name in FAMILIES:
        assert refusals.ORPHAN in refused(name, asking(USER, ANSWER, result()))


def test_unknown_members_are_taken() -> None:
    for name in FAMILIES:
        assert "" == refused(name, asking({**USER, "x": 1}, prompt_cache_key="p", odd={"a": []}))


SEALED: Mapping[str, tuple[Sealing, str]] = {
    "openrouter-claude": (seals.claude_details, "Invalid `signature` in `thinking` block"),
    "openrouter-bound": (seals.claude_details, "Invalid `signature` in `thinking` block"),
    "openrouter-gpt": (seals.gpt_details, "could not be verified"),
}


@pytest.mark.parametrize("name", SEALED)
def test_sealed_items_come_back_whole_or_not_at_all(name: str) -> None:
    issue, wording = SEALED[name]
    items = issue("hm", seals.chain_of(asking(USER)))
    text: dict[str, Any] = {key: "mh" for key in ("text", "summary") if key in items[0]}
    resigned = [items[0], {**items[1], "data": "1.2.x.y"}]

    def told(rows: list[dict[str, Any]]) -> str:
        return refused(name, asking(USER, {**ANSWER, "reasoning_details": rows}, USER))

    assert "" == told(items)
    assert "" == refused(name, asking(USER, {**ANSWER, "reasoning": "hm"}, USER))
    for altered in ([{**items[0], **text}, items[1]], resigned, items[1:], items[::-1]):
        assert wording in told(altered)


def test_a_bound_block_is_refused_once_an_earlier_one_is_gone() -> None:
    first = {**ANSWER, "reasoning_details": seals.claude_details("a", seals.chain_of(asking(USER)))}
    chain = seals.chain_of(asking(USER, first, USER))
    second = {**ANSWER, "reasoning_details": seals.claude_details("b", chain)}

    assert "" == refused("openrouter-bound", asking(USER, first, USER, second, USER))
    without = asking(USER, ANSWER, USER, second, USER)
    assert "bound to a different conversation" in refused("openrouter-bound", without)
    assert "" == refused("openrouter-claude", without)
    assert "" == refused("openrouter-bound", asking(USER, ANSWER, USER, ANSWER, USER))


def test_thinking_parts_begin_the_last_message_of_a_tool_loop_and_stay_as_they_were() -> None:
    parts = seals.claude_parts("hm", seals.chain_of(asking(USER)))
    altered = [{**parts[0], "thinking": "..."}, parts[1]]

    assert "" == refused("claude-parts", asking(USER, called(content=parts), result()))
    assert "Expected `thinking`" in refused("claude-parts", asking(USER, called(), result()))
    modified = refused("claude-parts", asking(USER, called(content=altered), result()))
    assert "in the latest assistant message cannot be modified" in modified


def test_gemini_wants_the_first_signature_of_each_step_of_the_current_turn() -> None:
    def signed(signature: str) -> dict[str, Any]:
        message = called()
        message["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": signature}}
        return message

    good = signed(seals.call_signature(1))
    assert "" == refused("gemini", asking(USER, good, result()))
    assert "" == refused("gemini", asking(USER, signed(refusals.GEMINI_SENTINEL), result()))
    assert "missing a thought_signature" in refused("gemini", asking(USER, called(), result()))
    assert refusals.GEMINI_INVALID in refused("gemini", asking(USER, signed("1.0"), result()))
    assert "" == refused("gemini", asking(USER, called(), result(), ANSWER, USER))


def test_a_refusal_arrives_with_its_status_and_uses_up_no_reply(street: Street) -> None:
    bad, good = (asking(USER, called(**more), result()) for more in ({}, {"reasoning_content": ""}))
    talk, heard = answered(street, "kimi-k3", bad, good)

    assert [400, 200] == [it.status for it in heard]
    assert TASK[0].text == heard[1].message["content"]
    assert (1, 1) == (len(talk.refused), len(talk.served))


# Which field is read


@pytest.mark.parametrize(
    ("name", "message", "read"),
    [
        ("vllm", {"reasoning_content": "a"}, "a"),
        ("vllm", {"reasoning": "b"}, "b"),
        ("vllm", {"reasoning_content": "a", "reasoning": "b"}, "b"),
        ("sglang", {"reasoning": "b"}, None),
        ("llama.cpp", {"reasoning": "b"}, None),
        ("llama.cpp", {"reasoning": "b", "reasoning_content": "a"}, "a"),
        ("ollama", {"reasoning_content": "a"}, None),
        ("ollama", {"reasoning": "b"}, "b"),
        ("kimi-k3", {"reasoning": "b"}, "b"),
        ("openrouter", {"reasoning_content": "a"}, "a"),
        ("openrouter", {"reasoning_content": "a", "reasoning": "b"}, "b"),
        (
            "openrouter",
            {"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "d"}]},
            "d",
        ),
        ("cerebras", {"reasoning": "b"}, None),
        ("cerebras", {"content": "<think>t</think>Done."}, "t"),
        ("minimax", {"content": "<think>t</think>Done."}, "t"),
        ("minimax", {"content": "<think>t</think>Done.", "reasoning_content": "a"}, "a"),
        ("mistral", {"reasoning_content": "a"}, None),
        (
            "mistral",
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "p"}]}]},
            "p",
        ),
        ("openai", {"reasoning_content": "a"}, None),
    ],
)
def test_reasoning_is_read_from_the_field_that_the_upstream_knows(
    name: str, message: dict[str, Any], read: str | None
) -> None:
    family = FAMILIES[name]
    prompt = rendered(family.template, family.reads, asking(USER, {**ANSWER, **message}))

    assert (read,) == prompt.thoughts


# What a template renders


def prompt_of(name: str, *messages: Mapping[str, Any], **more: Any) -> str:
    family = FAMILIES[name]
    return rendered(family.template, family.reads, asking(*messages, **more)).text


THOUGHT = called(reasoning_content="hm")


def test_a_prompt_is_its_messages_and_the_head_of_the_answer() -> None:
    system = {"role": "system", "content": "Be good."}
    asked = (system, USER, THOUGHT, result())

    assert (
        '<|tools|>[{"a": 1}]<|end|><|system|>Be good.<|end|><|user|>Do it.<|end|>'
        "<|assistant|><think>hm</think><|call|>bash({})<|end|><|tool|>ok<|end|>"
        "<|assistant|><think>"
    ) == prompt_of("xai", *asked, tools=[{"a": 1}])
    qwen = prompt_of("qwen3.8", *asked, tools=[{"a": 1}])
    assert qwen.startswith('<|system|>Be good.<|end|><|tools|>[{"a": 1}]<|end|><|user|>')


@pytest.mark.parametrize("name", FAMILIES)
def test_absent_and_empty_reasoning_render_alike_and_ids_do_not_show(name: str) -> None:
    absent = prompt_of(name, USER, called(), result())

    assert absent == prompt_of(name, USER, called(reasoning_content=""), result())
    if not FAMILIES[name].template.ids:
        assert absent == prompt_of(name, USER, called("c9"), result("c9"))


KEEPS = ("sglang", "llama.cpp", "kimi-k3", "qwen3.8", "glm-5.3", "xai")
DROPS = ("kimi-k2", "glm-5", "qwen3.6", "fireworks", "deepseek-v3.2", "deepseek-v4")


@pytest.mark.parametrize("name", KEEPS)
def test_a_template_that_keeps_only_grows_over_a_user_turn(name: str) -> None:
    before = prompt_of(name, USER, THOUGHT, result())

    assert prompt_of(name, USER, THOUGHT, result(), ANSWER, USER).startswith(before)


@pytest.mark.parametrize("name", DROPS)
def test_a_template_that_drops_rewrites_the_turn_before(name: str) -> None:
    before = prompt_of(name, USER, THOUGHT, result())
    after = prompt_of(name, USER, THOUGHT, result(), ANSWER, USER)

    assert "hm</think>" in before.replace("\n", "")
    assert "hm" not in after


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("kimi-k2", {"thinking": {"type": "enabled", "keep": "all"}}),
        ("glm-5", {"thinking": {"type": "enabled", "clear_thinking": False}}),
        ("glm-5", {"chat_template_kwargs": {"clear_thinking": False}}),
        ("qwen3.6", {"preserve_thinking": True}),
        ("qwen3.6", {"chat_template_kwargs": {"preserve_thinking": True}}),
        ("fireworks", {"reasoning_history": "preserved"}),
        ("deepseek-v4", {"tools": [{"type": "function"}]}),
    ],
)
def test_a_flag_or_tools_make_a_template_keep(name: str, flags: dict[str, Any]) -> None:
    before = prompt_of(name, USER, THOUGHT, result(), **flags)

    assert prompt_of(name, USER, THOUGHT, result(), ANSWER, USER, **flags).startswith(before)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("glm-5.3", {"thinking": {"clear_thinking": True}}),
        ("qwen3.8", {"preserve_thinking": False}),
    ],
)
def test_a_flag_makes_a_template_drop(name: str, flags: dict[str, Any]) -> None:
    assert "hm" not in prompt_of(name, USER, THOUGHT, result(), ANSWER, USER, **flags)


def test_results_stand_in_the_order_of_their_calls_where_the_encoder_sorts_them() -> None:
    both = called(reasoning_content="")
    both["tool_calls"] = [*both["tool_calls"], called("c1")["tool_calls"][0]]
    rows = [result("c0", "first"), result("c1", "second")]

    assert prompt_of("deepseek-v4", USER, both, *rows) == prompt_of(
        "deepseek-v4", USER, both, *reversed(rows)
    )
    assert prompt_of("glm-5.3", USER, both, *rows) != prompt_of(
        "glm-5.3", USER, both, *reversed(rows)
    )


def test_kimi_k3_sorts_the_keys_of_tools_and_others_do_not() -> None:
    one, other = [{"a": 1, "b": 2}], [{"b": 2, "a": 1}]

    assert prompt_of("kimi-k3", USER, tools=one) == prompt_of("kimi-k3", USER, tools=other)
    assert prompt_of("glm-5.3", USER, tools=one) != prompt_of("glm-5.3", USER, tools=other)


def test_effort_stands_before_all_else() -> None:
    for name in ("deepseek-v4", "kimi-k3", "glm-5.3"):
        assert prompt_of(name, USER, reasoning_effort="max").startswith("<|effort|>max")


# What the cache serves


def test_tokens_are_marks_and_runs_of_four_characters() -> None:
    cut = caching.pieces("<|user|>abcdefghi<|end|>")

    assert ["<|user|>", "abcdefghi", "<|end|>"] == cut
    assert 5 == caching.tokens(cut)


@pytest.mark.parametrize(
    ("rule", "read"),
    [
        (caching.Rule(Reuse.GENERATED), 7),
        (caching.Rule(Reuse.GENERATED, 4), 4),
        (caching.Rule(Reuse.PROMPT), 4),
        (caching.Rule(Reuse.PROMPT, 3), 3),
        (caching.Rule(Reuse.PROMPT, 1, 5), 0),
        (caching.Rule(Reuse.NONE), 0),
    ],
)
def test_what_is_read_follows_the_rule(rule: caching.Rule, read: int) -> None:
    prompt, generated = "<|user|>abcd<|end|><|assistant|>", "efghijkl<|call|><|end|>"
    held = caching.held(rule, prompt, generated)

    then = caching.pieces(f"{prompt}{generated}<|user|>more<|end|>")
    assert read == caching.read(rule, [held], then)


def test_the_last_token_of_a_prompt_is_never_read_and_half_a_token_neither() -> None:
    rule = caching.Rule(Reuse.PROMPT)
    held = caching.held(rule, "<|user|>abcdefgh", "")

    assert 2 == caching.read(rule, [held], caching.pieces("<|user|>abcdefgh"))
    assert 2 == caching.read(rule, [held], caching.pieces("<|user|>abcdefxh<|end|>"))


GENERATED = [
    name
    for name, it in FAMILIES.items()
    if it.cache.reuse is Reuse.GENERATED
    and not it.template.trims
    and it.template.since is not rendering.after_last_answer
]
"""Those that render an answer that comes back just as it was generated."""


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("client", ["exact", "exact-stream"])
def test_a_step_that_comes_back_as_it_was_generated_is_read_to_its_last_token(
    street: Street, name: str, client: str
) -> None:
    family = FAMILIES[name]
    talk, _ = worked(street, name, client)

    told = [it.tokens for it in talk.served]
    due = [(a.prompt + a.generated - 1) // family.cache.block for a in told[:-1]]
    assert due == [b.cached // family.cache.block for b in told[1:]]


@pytest.mark.parametrize("name", ["deepseek-v4", "mistral"])
def test_a_cache_of_prompts_serves_the_prompt_before_in_blocks(street: Street, name: str) -> None:
    talk, _ = worked(street, name, "exact")

    told = [it.tokens for it in talk.served]
    assert [a.prompt // 64 * 64 for a in told[:-1]] == [b.cached for b in told[1:]]


# What a client gets


MIRRORS = [name for name, it in FAMILIES.items() if it.writes in (*it.reads, "none")]
"""Those that read what they write: not so the old DeepSeek, Cerebras and Groq."""


@pytest.mark.parametrize("name", MIRRORS)
@pytest.mark.parametrize("client", ["exact", "exact-stream"])
def test_a_client_that_sends_all_back_is_never_refused_and_its_prompt_only_grows(
    street: Street, name: str, client: str
) -> None:
    family = FAMILIES[name]
    talk, heard = worked(street, name, client)

    assert [200] * len(TASK) == [it.status for it in heard]
    for index in range(len(TASK) - 1):
        a, b = (talk.served[i].prompt for i in (index, index + 1))
        assert a.since != b.since or b.history.startswith(a.history)
    if family.reads:
        thoughts = [thought or "" for thought in talk.served[-1].prompt.thoughts]
        assert [step.reasoning for step in TASK[:-1]] == thoughts


@pytest.mark.parametrize("name", ["deepseek-v4", "kimi-k2", "kimi-k3", "deepseek-v3.2"])
def test_a_client_that_loses_reasoning_is_refused_at_once(street: Street, name: str) -> None:
    _, heard = worked(street, name, "langgraph")

    assert [200, 400] == [it.status for it in heard]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_amounts_to_the_same_message(street: Street, name: str) -> None:
    plain, streamed = asking(USER), asking(USER, stream=True)
    messages = [answered(street, name, body)[1][0].message for body in (plain, streamed)]

    for message in messages:
        message["tool_calls"][0].pop("id")  # each its own
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("deepseek-v4", ("prompt_cache_hit_tokens",)),
        ("kimi-k3", ("cached_tokens",)),
        ("vllm", ("prompt_tokens_details", "cached_tokens")),
        ("openrouter", ("prompt_tokens_details", "cached_tokens")),
    ],
)
def test_cached_tokens_are_told_in_the_provider_s_own_field(
    street: Street, name: str, path: tuple[str, ...]
) -> None:
    long = {"role": "user", "content": "word " * 200}
    talk, (first, again) = answered(street, name, asking(long), asking(long))

    assert 0 == _at(first.usage, path)
    assert 64 < talk.served[1].tokens.cached == _at(again.usage, path)


def test_deepseek_s_hits_and_misses_make_up_the_prompt(street: Street) -> None:
    _, (heard,) = answered(street, "deepseek-v4", asking(USER))
    told = heard.usage

    hits, misses = told["prompt_cache_hit_tokens"], told["prompt_cache_miss_tokens"]
    assert told["prompt_tokens"] == hits + misses


def test_ollama_tells_nothing_of_its_cache(street: Street) -> None:
    talk, (_, again) = answered(street, "ollama", asking(USER), asking(USER))

    assert 0 < talk.served[1].tokens.cached
    assert {"prompt_tokens", "completion_tokens", "total_tokens"} == set(again.usage)


def test_usage_comes_in_a_stream_where_it_is_asked_for_and_from_openrouter_always(
    street: Street,
) -> None:
    asked = asking(USER, stream=True, stream_options={"include_usage": True})
    told = {
        name: [bool(it.usage) for it in (answered(street, name, request, asked))[1]]
        for name, request in (
            ("vllm", asking(USER, stream=True)),
            ("openrouter", asking(USER, stream=True)),
        )
    }

    assert {"vllm": [False, True], "openrouter": [True, True]} == told


def test_kimi_s_ids_count_from_nought_in_every_conversation(street: Street) -> None:
    talk, _ = worked(street, "kimi-k3", "exact")
    ids = [call[0] for it in talk.served for call in it.reply.step.calls]

    assert ["functions.bash:0", "functions.read_file:1", "functions.read_file:2"] == ids[:3]


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
