"""The whole examination over real sockets, against providers with other rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.core.contract import (
    CacheRule,
    Drops,
    Encoding,
    Remedy,
    Requires,
    Reuse,
    StreamUsage,
    UserTurn,
)
from proxy.doctor.door import Door
from proxy.doctor.findings import Findings, conclude
from proxy.doctor.probes import MOST, examine
from proxy.doctor.visit import NotExamined
from tests.client import http_client
from tests.doctor.provider import Json, Rules, Scripted, bears, lacks
from tests.journey.provider import Answer, Script, providing

DEEPSEEK = "The `reasoning_content` in the thinking mode must be passed back to the API."
KIMI = (
    "thinking is enabled but reasoning_content is missing in assistant tool call message at "
    "index {index}"
)


async def _no_nap(seconds: float) -> None:
    await asyncio.sleep(0)


async def asked_of(script: Script, key: str = "", seconds: float = 20.0) -> Findings:
    async with providing(script) as upstream, http_client() as client:
        door = Door(client, upstream.url, key, _no_nap, seconds)
        try:
            record = await examine(door, "m", "5a17", lambda name: None)
        except NotExamined as error:
            ended = error  # raised outside: the provider's group would wrap it
        else:
            return conclude(record, bool(key))
    raise ended


async def found(rules: Rules) -> Findings:
    return await asked_of(Scripted(rules).script)


@pytest.mark.parametrize(
    "rule",
    [
        CacheRule(Reuse.GENERATED),
        CacheRule(Reuse.GENERATED, 16),
        CacheRule(Reuse.GENERATED, 32),
        CacheRule(Reuse.PROMPT),
        CacheRule(Reuse.PROMPT, 16),
        CacheRule(Reuse.PROMPT, 64),
        CacheRule(Reuse.GENERATED, 64),
        CacheRule(Reuse.PROMPT, 128, 1024),
        CacheRule(Reuse.GENERATED, 128, 1024),
        CacheRule(Reuse.PROMPT, 1, 2048),
        CacheRule(Reuse.PROMPT, 128, 4096),
        CacheRule(Reuse.NONE),
    ],
    ids=lambda rule: f"{rule.reuse.value}-{rule.block}-{rule.minimum}",
)
async def test_a_cache_s_rule_is_found_by_asking(rule: CacheRule) -> None:
    provider = Scripted(Rules(cache=rule))
    result = await asked_of(provider.script)

    assert rule == result.rule
    assert len(provider.bodies) < MOST.requests
    assert sum(prompt for prompt, _ in provider.spent) <= MOST.prompt
    assert sum(generated for _, generated in provider.spent) <= MOST.generated


@pytest.mark.parametrize("user_turn", UserTurn)
@pytest.mark.parametrize("minimum", [0, 1024])
async def test_what_a_new_user_message_does_is_found(user_turn: UserTurn, minimum: int) -> None:
    block = 128 if minimum else 16
    rule = CacheRule(Reuse.PROMPT, block, minimum)
    result = await found(Rules(cache=rule, user_turn=user_turn))

    assert user_turn is result.user_turn.value
    assert rule == result.rule


@pytest.mark.parametrize("carrier", ["reasoning_content", "reasoning", "reasoning_details"])
async def test_the_carrier_that_is_read_and_written_is_found(carrier: str) -> None:
    result = await found(Rules(reads=(carrier,), writes=carrier))

    assert (carrier,) == result.reads.value
    assert carrier == result.writes.value == result.writes_streamed.value
    assert Reuse.GENERATED is result.reuse.value
    assert result.visible.value is True


async def test_of_several_carriers_the_one_that_replies_come_in_is_first() -> None:
    result = await found(Rules(reads=("reasoning_content", "reasoning"), writes="reasoning"))

    assert ("reasoning", "reasoning_content") == result.reads.value


async def test_replies_in_one_carrier_are_echoed_in_the_one_that_is_read() -> None:
    result = await found(Rules(reads=("reasoning",), writes="reasoning_content"))

    assert ("reasoning",) == result.reads.value
    assert Reuse.GENERATED is result.reuse.value


async def test_thoughts_in_the_content_are_a_carrier_where_no_field_is_read() -> None:
    result = await found(Rules(reads=("think",), writes="think"))

    assert ("think",) == result.reads.value
    assert "think" == result.writes.value


async def test_a_provider_without_reasoning_has_no_carrier() -> None:
    result = await found(Rules(reads=(), writes=""))

    assert () == result.reads.value
    assert result.writes.value is None
    assert result.visible.value is None


async def test_a_field_that_must_be_there_is_found_with_its_error_s_wording() -> None:
    result = await found(Rules(refuses=lacks("reasoning_content", DEEPSEEK)))

    assert Requires.TOOL_CALLS is result.requires.value
    assert Encoding.EMPTY is result.encoding.value
    assert (DEEPSEEK.replace("`", ".").replace("API.", r"API\."), Remedy.EMPTY) == (
        result.errors[0].error,
        result.errors[0].remedy,
    )
    assert CacheRule(Reuse.GENERATED) == result.rule


async def test_the_index_in_an_error_may_be_any() -> None:
    result = await found(Rules(refuses=lacks("reasoning_content", KIMI)))

    assert KIMI.replace("{index}", r"\d+") == result.errors[0].error


async def test_a_field_that_every_message_must_have_is_found() -> None:
    def refuses(body: Json) -> str:
        said = [m for m in body["messages"] if m["role"] == "assistant"]
        return "" if all(isinstance(m.get("reasoning_content"), str) for m in said) else DEEPSEEK

    result = await found(Rules(refuses=refuses))

    assert Requires.EVERY is result.requires.value
    assert UserTurn.KEEPS is result.user_turn.value


async def test_a_field_that_must_not_be_there_is_found() -> None:
    rules = Rules(
        reads=(),
        refuses=bears("reasoning_content", "property 'reasoning_content' is unsupported"),
        cache=CacheRule(Reuse.PROMPT, 64),
    )
    result = await found(rules)

    assert Requires.NOTHING is result.requires.value
    assert Encoding.ABSENT is result.encoding.value
    assert [Remedy.ABSENT] == [pattern.remedy for pattern in result.errors]
    assert CacheRule(Reuse.PROMPT, 64) == result.rule


async def test_reasoning_that_may_never_go_is_found() -> None:
    def refuses(body: Json) -> str:
        acts = [m for m in body["messages"] if m.get("tool_calls")]
        return "" if all(m.get("reasoning_content") for m in acts) else "thinking is missing"

    result = await found(Rules(refuses=refuses))

    assert Drops.NEVER is result.drops.value
    assert [Remedy.RESTORE] == [pattern.remedy for pattern in result.errors]


@pytest.mark.parametrize(
    ("usage", "found_in_streams"), [("asked", StreamUsage.ASK), ("always", StreamUsage.ALWAYS)]
)
async def test_whether_streams_tell_usage_is_found(
    usage: str, found_in_streams: StreamUsage
) -> None:
    result = await found(Rules(usage=usage))

    assert found_in_streams is result.stream_usage.value
    assert result.streams.value is True


async def test_stream_options_that_are_refused_are_found() -> None:
    def refuses(body: Json) -> str:
        return "unknown field stream_options" if "stream_options" in body else ""

    assert StreamUsage.REFUSED is (await found(Rules(refuses=refuses))).stream_usage.value


async def test_without_usage_nothing_is_counted_and_little_is_asked() -> None:
    provider = Scripted(Rules(usage="never"))
    result = await asked_of(provider.script)

    assert result.usage.value is False
    assert [None] * 3 == [result.reads.value, result.rule, result.user_turn.value]
    assert Requires.NOTHING is result.requires.value
    assert len(provider.bodies) < 10


async def test_without_cached_tokens_the_cache_stays_unknown() -> None:
    provider = Scripted(Rules(tells_cached=False, user_turn=UserTurn.DROPS))
    result = await asked_of(provider.script)

    assert result.reports_cache.value is False
    assert [None] * 2 == [result.rule, result.reuse.value]
    assert UserTurn.DROPS is result.user_turn.value
    assert sum(prompt for prompt, _ in provider.spent) < 12_000


@pytest.mark.parametrize(
    ("refuses", "words"),
    [
        (lambda body: "max_tokens" in body, "use 'max_completion_tokens' instead"),
        (lambda body: "temperature" in body, "temperature must be 1"),
        (lambda body: "tools" in body, "this model does not support tools"),
        (lambda body: body["max_tokens"] < 16, "max_tokens must be at least 16"),
    ],
    ids=["limit", "temperature", "tools", "least"],
)
async def test_what_is_not_taken_is_left_out(refuses: Callable[[Json], bool], words: str) -> None:
    result = await found(Rules(refuses=lambda body: words if refuses(body) else ""))

    assert result.reachable.value is True
    assert ("reasoning_content",) == result.reads.value
    assert (1, 0) == (result.block.value, result.minimum.value)


async def test_a_model_that_calls_no_tools_is_examined_all_the_same() -> None:
    result = await found(Rules(calls=False))

    assert CacheRule(Reuse.GENERATED) == result.rule


async def test_a_key_that_is_refused_ends_it_at_the_first_request() -> None:
    provider = Scripted(Rules(keys=("right",)))

    with pytest.raises(NotExamined, match="does not take this key") as caught:
        await asked_of(provider.script, key="sk-wrong")

    assert [] == provider.bodies
    assert "sk-wrong" not in str(caught.value)


async def test_a_key_that_is_missing_is_asked_for() -> None:
    with pytest.raises(NotExamined, match="wants a key"):
        await asked_of(Scripted(Rules(keys=("right",))).script)


async def test_a_key_that_is_taken_is_told() -> None:
    result = await asked_of(Scripted(Rules(keys=("right",))).script, key="right")

    assert "taken" == result.key.found


async def test_a_key_that_a_list_of_models_does_not_ask_for_is_refused_later() -> None:
    provider = Scripted(Rules(keys=("right",)))

    def open_list(came: object) -> Answer:
        return Answer() if came.path == "/v1/models" else provider.answer(came)  # type: ignore[attr-defined,arg-type]

    with pytest.raises(NotExamined, match="does not take this key"):
        await asked_of(open_list, key="wrong")


async def test_nobody_there_is_told_with_what_to_do() -> None:
    async with http_client() as client:
        door = Door(client, "http://127.0.0.1:9", "", _no_nap)
        with pytest.raises(NotExamined, match="is --upstream right"):
            await examine(door, "m", "5a17", lambda name: None)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(chunks=(b"<html><body>hello</body></html>",)), "HTML that is no JSON"),
        (Answer(chunks=(b'{"choices": [{"mess',)), "JSON that was cut short"),
        (Answer(chunks=(b"\xff\xfe\x00garbage",)), "something that is no JSON"),
        (Answer(chunks=(b'{"ok": true}',)), "no chat completion"),
        (Answer(404, chunks=(b'{"error": {"message": "no such model"}}',)), "no such model"),
        (Answer(302, {"location": "https://elsewhere.example"}), "leads elsewhere"),
        (Answer(503, chunks=(b"busy",)), "status 503"),
        (Answer(chunks=(b"x", b"y"), pause=5.0), "no whole answer within"),
        (Answer(headers={"content-length": "99"}, chunks=(b"{}",)), "closed before"),
        (Answer(headers={"content-encoding": "gzip"}, chunks=(b"no gzip",)), "closed before"),
    ],
    ids=["html", "cut", "bytes", "other", "404", "302", "503", "late", "short", "coding"],
)
async def test_garbage_is_a_finding_with_its_reason(answer: Answer, why: str) -> None:
    provider = Scripted(Rules())

    def script(came: object) -> Answer:
        listing = came.path == "/v1/models"  # type: ignore[attr-defined]
        return provider.answer(came) if listing else answer  # type: ignore[arg-type]

    result = await asked_of(script, seconds=0.3 if answer.pause else 20.0)

    assert result.reachable.value is None
    assert why in result.reachable.how
    assert result.rule is None
    assert all(row.value is None for row in result.rows if row is not result.owned_by)


async def test_an_upstream_that_turns_to_garbage_is_told_as_far_as_it_went() -> None:
    provider = Scripted(Rules())

    def script(came: object) -> Answer:
        return provider.answer(came) if len(provider.bodies) < 8 else Answer()  # type: ignore[arg-type]

    result = await asked_of(script)

    assert result.reachable.value is True
    assert result.rule is None


async def test_a_cache_that_takes_time_is_given_time() -> None:
    provider, naps = Scripted(Rules(cache=CacheRule(Reuse.PROMPT, 64))), []
    filled: list[list[str]] = []

    def script(came: object) -> Answer:
        answer = provider.answer(came)  # type: ignore[arg-type]
        filled.extend(provider.held)
        provider.held.clear()
        return answer

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        provider.held.extend(filled)

    async with providing(script) as upstream, http_client() as client:
        door = Door(client, upstream.url, "", nap)
        record = await examine(door, "m", "5a17", lambda name: None)

    assert CacheRule(Reuse.PROMPT, 64) == conclude(record, False).rule
    assert naps
