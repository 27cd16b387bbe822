"""The table of contracts: that it can be read, what it says of real providers, and who is asked."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy import contracts, providers
from proxy.cli import announce, cli
from proxy.contracts import Contracts
from proxy.core.contract import (
    Contract,
    Drops,
    Encoding,
    Remedy,
    Requires,
    Reuse,
    StreamUsage,
    Table,
    Template,
    UserTurn,
)
from proxy.errors import SettingsError
from proxy.loading import load
from proxy.settings import Settings, UpstreamSettings
from proxy.upstream import Upstream
from proxy.ways import Target
from tests.journey.provider import Answer, Came, providing
from tests.journey.proxy_server import running, settings_for

TABLE = providers.load()
ROWS: tuple[Contract | Template, ...] = (*TABLE.contracts, *TABLE.templates)


def known(*ups: UpstreamSettings, **more: Any) -> Contracts:
    return Contracts(Settings(upstreams=ups, **more))


def at(url: str, model: str = "", **more: Any) -> Contract:
    return known(UpstreamSettings(url=url, **more)).of("default", model).contract


# The built-in table


def test_every_row_says_where_it_is_from_and_when_it_was_looked_up() -> None:
    assert [] == [row.name for row in ROWS if not row.source or not row.date]


def test_where_a_policy_is_given_there_is_a_reason() -> None:
    kept = [row for row in ROWS if row.default_policy == "keep"]

    assert kept
    assert [] == [row.name for row in kept if not row.warning]


@pytest.mark.parametrize(
    ("url", "model", "name"),
    [
        ("https://api.deepseek.com", "deepseek-v4-pro", "deepseek-v4"),
        ("https://api.deepseek.com/v1", "deepseek-reasoner", "deepseek-v3.2"),
        ("https://api.deepseek.com", "deepseek-x", "deepseek"),
        ("https://api.moonshot.cn/v1", "kimi-k2-thinking", "kimi-k2.6"),
        ("https://api.moonshot.ai/v1", "kimi-k2.5", "kimi-k2"),
        ("https://api.moonshot.ai/v1", "kimi-k3", "kimi-k3"),
        ("https://api.z.ai/api/paas/v4", "glm-5.2", "zai"),
        ("https://api.z.ai/api/paas/v4", "glm-5.3", "zai-5.3"),
        ("https://api.z.ai/api/coding/paas/v4", "glm-5.2", "zai-coding-plan"),
        ("https://open.bigmodel.cn/api/paas/v4", "glm-4.5-air", "zai-4.6"),
        ("https://api.minimax.io/v1", "MiniMax-M2.5", "minimax"),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "qwen3.6-plus", "dashscope-3.6"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "qwen3.8-max", "dashscope-3.8"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-opus-5.5", "openrouter-claude-bound"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-opus-4.8", "openrouter-claude"),
        ("https://openrouter.ai/api/v1", "openai/gpt-5.6", "openrouter"),
        ("https://api.groq.com/openai/v1", "openai/gpt-oss-120b", "groq"),
        ("https://api.cerebras.ai/v1", "zai-glm-4.7", "cerebras-glm"),
        ("https://api.fireworks.ai/inference/v1", "kimi-k2p6", "fireworks"),
        ("https://api.together.xyz/v1", "moonshotai/Kimi-K2.6", "together"),
        ("https://api.x.ai/v1", "grok-4.7", "xai"),
        ("https://api.mistral.ai/v1", "magistral-medium-latest", "mistral"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-flash", "gemini"),
        ("https://api.openai.com/v1", "gpt-5.6", "openai"),
        ("https://mine.openai.azure.com/openai/deployments/d", "gpt-5", "azure-openai"),
        ("https://api.anthropic.com/v1", "claude-opus-5-5", "anthropic-openai"),
        ("http://127.0.0.1:8000/v1", "anything", "unknown"),
    ],
)
def test_real_upstreams_get_their_row(url: str, model: str, name: str) -> None:
    assert name == at(url, model).name


def test_what_is_known_of_deepseek() -> None:
    old, v4 = at("http://a", contract="deepseek-r1"), at("https://api.deepseek.com", "deepseek-v4")

    assert (Encoding.ABSENT, (), "drop") == (old.encoding, old.reads, old.default_policy)
    assert (Encoding.EMPTY, Requires.EVERY) == (v4.encoding, v4.requires)
    assert v4.cache is not None
    assert (Reuse.PROMPT, 64, 3600.0) == (v4.cache.reuse, v4.cache.block, v4.cache.ttl)


@pytest.mark.parametrize(
    ("name", "reads", "writes"),
    [
        ("vllm", ("reasoning", "reasoning_content"), "reasoning"),
        ("sglang", ("reasoning_content", "content_parts"), "reasoning_content"),
        ("llama.cpp", ("reasoning_content",), "reasoning_content"),
        ("ollama", ("reasoning",), "reasoning"),
        ("openrouter", ("reasoning_details", "reasoning", "reasoning_content"), "reasoning"),
        ("cerebras-glm", ("think",), "reasoning"),
        ("mistral", ("content_parts",), "content_parts"),
        ("minimax", ("think", "reasoning_details"), "think"),
    ],
)
def test_each_reads_and_writes_its_own_carriers(
    name: str, reads: tuple[str, ...], writes: str
) -> None:
    found = at("http://a", contract=name)

    assert (reads, writes) == (found.reads, found.writes)


@pytest.mark.parametrize(
    ("name", "reuse", "block", "minimum"),
    [
        ("llama.cpp", Reuse.GENERATED, 1, 0),
        ("vllm", Reuse.GENERATED, 16, 0),
        ("deepseek", Reuse.PROMPT, 64, 0),
        ("openai", Reuse.PROMPT, 128, 1024),
        ("anthropic-openai", Reuse.NONE, 1, 0),
    ],
)
def test_each_cache_has_its_rule(name: str, reuse: Reuse, block: int, minimum: int) -> None:
    rule = at("http://a", contract=name).cache

    assert rule is not None
    assert (reuse, block, minimum) == (rule.reuse, rule.block, rule.minimum)


def test_thinking_that_is_bound_goes_as_a_whole_or_not_at_all() -> None:
    url = "https://openrouter.ai/api/v1"

    for model in ("claude-fable-5.1", "claude-sonnet-5.5", "claude-haiku-5-5"):
        assert Drops.ALL_OR_NOTHING is at(url, f"anthropic/{model}").drops
    for model in ("anthropic/claude-fable-5", "google/gemini-3-pro"):
        assert Drops.NEVER is at(url, model).drops


@pytest.mark.parametrize(
    ("model", "turn", "policy", "preserve"),
    [
        ("Qwen/Qwen3.6-35B-A3B", UserTurn.DROPS, "", {"preserve_thinking": True}),
        ("qwen3.8:30b", UserTurn.KEEPS, "", None),
        ("zai-org/GLM-5.1-FP8", UserTurn.STUB, "keep", {"clear_thinking": False}),
        ("zai-org/GLM-5", UserTurn.STUB, "keep", {"clear_thinking": False}),
        ("GLM-5.3", UserTurn.KEEPS, "keep", None),
        ("moonshotai/Kimi-K2.6", UserTurn.STUB, "", {"preserve_thinking": True}),
        ("moonshotai/Kimi-K3", UserTurn.KEEPS, "", None),
        ("MiniMaxAI/MiniMax-M2.5", UserTurn.DROPS, "keep", None),
        ("deepseek-ai/DeepSeek-V3.2", UserTurn.STUB, "", None),
        ("deepseek-ai/DeepSeek-V4-Flash", UserTurn.KEEPS, "", None),
        ("another", UserTurn.DROPS, "", None),
    ],
)
def test_an_engine_renders_with_the_template_of_its_model(
    model: str, turn: UserTurn, policy: str, preserve: Mapping[str, Any] | None
) -> None:
    found = at("http://127.0.0.1:8000", model, contract="vllm")
    kept = json.loads(bytes(found.preserve)) if found.preserve else {}

    assert (turn, policy) == (found.user_turn, found.default_policy)
    assert preserve == kept.get("chat_template_kwargs")


REFUSALS = {
    "The `reasoning_content` in the thinking mode must be passed back to the API.": Remedy.EMPTY,
    "Param Incorrect: The reasoning_content in the thinking mode must be passed back to the API.":
        Remedy.EMPTY,
    "Missing `reasoning_content` field in the assistant message at message index 96":
        Remedy.EMPTY,
    "thinking is enabled but reasoning_content is missing in assistant tool call message at "
    "index 2": Remedy.EMPTY,
    "Please remove the reasoning_content from your message to reduce network traffic.":
        Remedy.ABSENT,
    "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : "
    "property 'reasoning_content' is unsupported)]": Remedy.ABSENT,
    '{"loc":["body","messages",3,"assistant","reasoning_content"],"msg":"Extra inputs are not '
    'permitted"}': Remedy.ABSENT,
    "Extra inputs are not permitted, field: 'messages[8].reasoning', value: ''": Remedy.ABSENT,
    "The `content[].thinking` in the thinking mode must be passed back to the API.":
        Remedy.RESTORE,
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.":
        Remedy.RESTORE,
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation.": Remedy.KEEP,
    "messages.3.content.0: Invalid `signature` in `thinking` block": Remedy.RESTORE,
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
    "modified.": Remedy.RESTORE,
    "Function call is missing a thought_signature in functionCall parts.": Remedy.RESTORE,
    "Corrupted thought signature": Remedy.RESTORE,
    "The encrypted content for item rs_0f could not be verified.": Remedy.ABSENT,
    "Item with id 'rs_0f' not found. Items are not persisted when `store` is set to false.":
        Remedy.ABSENT,
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSALS)
@pytest.mark.parametrize("change", [str, str.upper, json.dumps])
def test_a_refusal_in_any_gateway_s_spelling_has_its_remedy(words: str, change: Any) -> None:
    told = change(words)
    errors = at("http://gateway").errors

    found = next(p.remedy for p in errors if re.search(p.error, told, re.IGNORECASE))

    assert REFUSALS[words] is found


@pytest.mark.parametrize(
    "words",
    [
        "Unrecognized request argument supplied: stream_options",
        "Extra inputs are not permitted, field: 'reasoning_effort'",
        '{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}',
        "This model's maximum context length is 131072 tokens",
        "Invalid value for 'tool_choice'",
    ],
)
def test_another_refusal_has_none(words: str) -> None:
    patterns = [pattern.error for row in TABLE.contracts for pattern in row.errors]
    patterns += [pattern.error for pattern in TABLE.errors]

    assert [] == [pattern for pattern in patterns if re.search(pattern, words, re.IGNORECASE)]


# A file of one's own


def with_own(tmp_path: Path, text: str) -> Table:
    file = tmp_path / "own.toml"
    file.write_text(text)
    return providers.load(file)


def test_an_own_row_replaces_the_keys_of_the_one_with_its_name(tmp_path: Path) -> None:
    text = '[[contract]]\nname = "vllm"\ncache = { reuse = "prompt+generated", block = 32 }\n'

    found = with_own(tmp_path, text)
    vllm, was = found.named("vllm"), TABLE.named("vllm")

    assert vllm is not None
    assert was is not None
    assert vllm.cache is not None
    assert 32 == vllm.cache.block
    assert (was.reads, was.owned_by) == (vllm.reads, vllm.owned_by)
    assert [row.name for row in TABLE.contracts] == [row.name for row in found.contracts]


def test_a_new_row_comes_before_all_others_and_may_be_like_one(tmp_path: Path) -> None:
    text = (
        '[[contract]]\nname = "mine"\nlike = "vllm"\nhosts = ["api.openai.com"]\n'
        'preserve = { a = [1, true] }\nerrors = [{ error = "no", remedy = "keep" }]\n'
        '[[error]]\nerror = "nope"\nremedy = "empty"\n[[template]]\nname = "t"\nmodels = ["x"]\n'
    )
    found = with_own(tmp_path, text)
    mine = found.contracts[0]

    assert ("mine", ("api.openai.com",), ()) == (mine.name, mine.hosts, mine.owned_by)
    assert ("reasoning", "reasoning_content") == mine.reads
    assert mine.preserve is not None
    assert b'{"a":[1,true]}' == bytes(mine.preserve)
    assert ("t", "nope") == (found.templates[0].name, found.errors[0].error)


BAD = """
colour = 1
[[contract]]
name = "vllm"
chache = { reuse = "prompt" }
cache = { reuse = "some", block = 0 }
reads = ["thinking"]
drops = "sometimes"
requires = 1
preserve = "yes"
errors = [{ error = "(", remedy = "empty" }]
templated = "yes"
date = "last year"
default_policy = "forget"
affinity = { cookie = "x" }
[[contract]]
hosts = ["a.example"]
[[contract]]
name = "mine"
like = "vlm"
[[contract]]
name = "one"
like = "two"
[[contract]]
name = "two"
like = "one"
[[contract]]
name = "mine"
[[template]]
name = "t"
user_turn = "forgets"
cache = { reuse = "prompt" }
[[error]]
error = "no remedy"
"""


def test_all_that_is_wrong_is_told_at_once_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        with_own(tmp_path, BAD)

    said = str(refused.value).replace(f"{tmp_path}/", "")
    for complaint in (
        "own.toml: colour: is unknown; known: contract, template, error",
        "[[contract]] 1 (vllm): chache: is unknown; did you mean cache?",
        "[[contract]] 1 (vllm): cache: reuse: got 'some'; known: prompt+generated, prompt, none; "
        "block: got 0; wanted a whole number from 1",
        "[[contract]] 1 (vllm): reads: got 'thinking'; did you mean think? known: reasoning_con",
        "[[contract]] 1 (vllm): drops: got 'sometimes'; known: any, never, all_or_nothing",
        "[[contract]] 1 (vllm): requires: got 1; known: nothing, tool_calls, every",
        "[[contract]] 1 (vllm): preserve: got 'yes'; wanted a table",
        "[[contract]] 1 (vllm): errors: error: got '('; wanted a regular expression",
        "[[contract]] 1 (vllm): templated: got 'yes'; wanted true or false",
        "[[contract]] 1 (vllm): date: got 'last year'; wanted a date as 2026-11",
        "[[contract]] 1 (vllm): default_policy: policy 'forget' is unknown",
        "[[contract]] 1 (vllm): affinity: cookie: is unknown; known: body, header",
        "[[contract]] 2: name is wanted",
        "[[contract]] 3 (mine): like: no row is named 'vlm'; did you mean vllm",
        "[[contract]] 4 (one): like: goes round in a circle: one → two → one",
        "[[contract]] 6 (mine): another row has this name",
        "[[template]] 1 (t): user_turn: got 'forgets'; known: keeps, drops, stub",
        "[[template]] 1 (t): cache: is unknown",
        "[[error]] 1: remedy is wanted",
    ):
        assert complaint in said


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\xff", "it is not UTF-8"),
        (b"contract = ", "is not TOML"),
        (b"contract = 1", "contract: got 1; wanted tables, each below its own [[contract]]"),
        (b"contract = [1]", "[[contract]] 1: got 1; wanted a table"),
        (b'[[contract]]\nname = "a"\ncache = 1', "cache: got 1; wanted a table of reuse, block"),
        (b'[[contract]]\nname = "a"\ncache = {}', "cache: reuse is wanted"),
        (b'[[contract]]\nname = "a"\npreserve = { at = 2026-11-30 }', "preserve: wanted values"),
        (b'[[contract]]\nname = "a"\ndefault_policy = 1', "default_policy: got 1; wanted one of"),
        (b'[[error]]\nerror = 1\nremedy = "keep"', "error: got 1; wanted a regular expression"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(content)

    with pytest.raises(SettingsError) as refused:
        providers.load(file)

    assert complaint in str(refused.value)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        providers.load(tmp_path / "gone.toml")


# Settings over it


def refused_settings(tmp_path: Path, text: str) -> str:
    file = tmp_path / "lethe.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load({}, {}, file)
    return str(refused.value).replace(f"{tmp_path}/", "")


def test_a_contract_that_is_in_no_table_is_refused_with_the_close_names(tmp_path: Path) -> None:
    said = refused_settings(tmp_path, '[[upstream]]\nurl = "http://a"\ncontract = "lama.cpp"\n')

    assert "[[upstream]] 1 (default): no contract is named lama.cpp; did you mean llama.cpp" in said
    assert "lethe contracts tells all of them" in said


def test_a_bad_file_of_contracts_is_told_with_all_other_complaints(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[[contract]]\n")
    own = tmp_path / "own.toml"

    said = refused_settings(tmp_path, f'port = -1\nproviders = "{own}"\n')

    assert "port: got -1" in said
    assert "own.toml: [[contract]] 1: name is wanted" in said


def test_a_contract_of_the_own_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[[contract]]\nname = "mine"\nlike = "ollama"\n')
    file = tmp_path / "lethe.toml"
    own = tmp_path / "own.toml"
    file.write_text(f'providers = "{own}"\n[[upstream]]\nurl = "http://a"\ncontract = "mine"\n')

    settings = load({}, {}, file)

    assert ("reasoning",) == Contracts(settings).of("default", "m").contract.reads


def test_what_is_set_on_an_upstream_has_the_last_word() -> None:
    found = at("https://openrouter.ai/api/v1", system_first=True, stream_usage="ask")

    assert (True, StreamUsage.ASK) == (found.system_first, found.stream_usage)
    assert StreamUsage.ALWAYS is at("https://openrouter.ai/api/v1").stream_usage


def test_members_are_rendered_that_settings_or_contract_name() -> None:
    ups = UpstreamSettings(url="http://a", contract="sglang")

    found = known(ups, rendered_params=("mine", "cache_salt")).of("default", "m").contract

    assert ("mine", "cache_salt", "extra_key") == found.rendered


def test_choices_are_remembered_within_bounds() -> None:
    table = known(UpstreamSettings(url="https://api.z.ai"))

    first = table.of("default", "glm-5")
    for number in range(1500):
        table.of("default", f"m{number}")

    assert first == table.of("default", "glm-5")
    assert len(table._found) <= 1000


def test_warnings_are_told_of_upstreams_and_the_models_that_they_name() -> None:
    table = known(
        UpstreamSettings(url="https://api.minimax.io"),
        UpstreamSettings(url="http://a", name="engine", contract="vllm", models=("GLM-5*",)),
        UpstreamSettings(url="https://api.openai.com", name="quiet"),
    )

    default, engine = table.warnings()

    assert default.startswith("default (minimax): MiniMax says")
    assert engine.startswith("engine (vllm): Z.ai wants")


def test_they_are_told_when_the_proxy_starts(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(upstreams=(UpstreamSettings(url="https://api.minimax.io"),))

    announce(settings, "http://127.0.0.1:4100", "http://127.0.0.1:4101")

    assert "  warning     default (minimax): MiniMax says" in capsys.readouterr().err


# Who is asked


def listing(*owners: str) -> bytes:
    return json.dumps(
        {"data": [{"id": f"m{n}", "owned_by": owner} for n, owner in enumerate(owners)]}
    ).encode()


@pytest.mark.parametrize(
    ("body", "owners"),
    [
        (listing("vllm", "vllm"), {"m0": "vllm", "m1": "vllm"}),
        (b"<html>", {}),
        (b"[]", {}),
        (b'{"data": 1}', {}),
        (b'{"data": [1, {"id": 1, "owned_by": "a"}, {"id": "m", "owned_by": ""}]}', {}),
        (listing("x" * 300), {}),
    ],
)
def test_owners_are_read_out_of_whatever_comes(body: bytes, owners: Mapping[str, str]) -> None:
    assert owners == contracts.owners_in(body)


def test_an_engine_that_serves_many_models_is_known_by_each_or_by_all() -> None:
    up = UpstreamSettings(url="http://a")
    one, two = known(up), known(up)
    one.learn("default", {"a": "vllm", "b": "vllm"})
    two.learn("default", {"a": "vllm", "b": "sglang"})

    assert "vllm" == one.of("default", "an-adapter").contract.name
    names = [two.of("default", model).contract.name for model in ("a", "b", "c")]
    assert ["vllm", "sglang", "unknown"] == names


def test_only_who_is_not_known_is_asked() -> None:
    table = known()

    assert table.is_open(UpstreamSettings(url="http://10.0.0.1:8000/v1"))
    assert not table.is_open(UpstreamSettings(url="http://10.0.0.1:8000/v1", contract="vllm"))
    assert not table.is_open(UpstreamSettings(url="https://api.deepseek.com"))


async def asked(answer: Answer, **more: Any) -> tuple[list[Came], str, int]:
    """What a provider was asked, which contract came of it, and how many have not answered."""
    came: list[Came] = []

    def script(request: Came) -> Answer:
        came.append(request)
        return answer

    async with providing(script, all_of_it=True) as provider:
        up = UpstreamSettings(url=provider.url, **more)
        table, target = known(up), Target("default", provider.url, 5.0, 5.0)
        door = Upstream([target], clock=time.monotonic)
        await door.open()
        left = await contracts.ask_once(table, door, {"default": target}, [up])
        await door.close()
    return came, table.of("default", "m0").contract.name, len(left)


async def test_an_engine_says_what_it_is() -> None:
    (came,), name, left = await asked(Answer(chunks=(listing("llamacpp"),)), api_key="sk-up")

    assert ("GET", "/v1/models", "Bearer sk-up") == (
        came.method, came.path, came.headers["authorization"]
    )  # fmt: skip
    assert ("llama.cpp", 0) == (name, left)


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (Answer(401), 0),
        (Answer(503), 1),
        (Answer(chunks=(b"not json",)), 0),
        (Answer(chunks=(b"x" * (1 << 20), b"y" * 10)), 0),
    ],
)
async def test_whatever_else_it_says_nothing_is_known(answer: Answer, left: int) -> None:
    _, name, unanswered = await asked(answer)

    assert ("unknown", left) == (name, unanswered)


async def test_who_cannot_be_reached_is_asked_again_and_hurts_nobody() -> None:
    up = UpstreamSettings(url="http://127.0.0.1:9")
    table, target = known(up), Target("default", up.url, 1.0, 1.0)
    door = Upstream([target], clock=time.monotonic)
    await door.open()

    assert [up] == await contracts.ask_once(table, door, {"default": target}, [up])
    await door.close()


async def until(true: Any) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110  (what is waited for is read, and tells nobody)
            await asyncio.sleep(0.01)


async def test_the_proxy_asks_when_it_starts_and_takes_what_it_learns() -> None:
    def script(request: Came) -> Answer:
        return Answer(chunks=(listing("sglang"),))

    async with providing(script, all_of_it=True) as provider:
        async with running(settings_for(provider.url)) as proxy:
            table = proxy.doors.contracts
            await until(lambda: table.of("default", "m0").contract.name == "sglang")

        assert [("GET", "/v1/models")] == [(came.method, came.path) for came in provider.came]


# The command


def printed(*arguments: str, code: int = 0, **environ: str) -> str:
    result = CliRunner().invoke(cli, ["contracts", *arguments], env={"COLUMNS": "200", **environ})
    assert code == result.exit_code, result.output
    return result.output


def test_the_command_prints_all_of_them() -> None:
    told = json.loads(printed("--json"))
    table = printed()

    assert [row.name for row in TABLE.contracts] == [row["name"] for row in told["contracts"]]
    assert {"prompt+generated"} == {
        row["cache"]["reuse"] for row in told["contracts"] if row["name"] == "vllm"
    }
    for row in ROWS:
        assert row.name in table


def test_the_command_says_which_one_it_is_and_why() -> None:
    arguments = ("--upstream", "https://api.deepseek.com", "--model", "deepseek-v4-pro")
    told, text = json.loads(printed(*arguments, "--json")), printed(*arguments)

    assert ("deepseek-v4", "every") == (told["name"], told["requires"])
    assert "host: api.deepseek.com fits api.deepseek.com" in told["why"]
    assert {"reuse": "prompt", "block": 64, "minimum": 0, "ttl": 3600.0} == told["cache"]
    for words in ("deepseek-v4", told["why"], "2026-11", "reasoning_content", "api-docs.deepseek"):
        assert words in text


def test_the_command_knows_a_configured_upstream_by_name_and_by_url(tmp_path: Path) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text(
        '[[upstream]]\nname = "engine"\nurl = "http://10.0.0.1:8000/v1"\ncontract = "vllm"\n'
    )
    for upstream in ("engine", "http://10.0.0.1:8000/v1/"):
        told = json.loads(
            printed("--upstream", upstream, "--model", "GLM-5", "--config", str(file), "--json")
        )
        assert ("vllm", "keep") == (told["name"], told["default_policy"])
        assert 'named: contract = "vllm"; template glm-5' in told["why"]


async def test_the_command_asks_an_engine_what_it_is() -> None:
    def script(request: Came) -> Answer:
        return Answer(chunks=(listing("vllm"),))

    async with providing(script, all_of_it=True) as provider:
        told = json.loads(await asyncio.to_thread(printed, "--upstream", provider.url, "--json"))

    assert ("vllm", "owned_by: vllm fits vllm") == (told["name"], told["why"])


@pytest.mark.parametrize("upstream", ["engin", "ftp://a"])
def test_the_command_refuses_what_is_no_upstream(upstream: str) -> None:
    assert 2 == CliRunner().invoke(cli, ["contracts", "--upstream", upstream]).exit_code


def test_the_table_of_contracts_fits_eighty_columns_and_leaves_no_sentence_open() -> None:
    narrow, wide = (
        CliRunner().invoke(cli, ["contracts"], env={"COLUMNS": columns}).stdout
        for columns in ("80", "400")
    )

    assert max(map(len, narrow.splitlines())) <= 80
    assert [] == re.findall(r".*:\s*$", wide, re.MULTILINE)
