"""The JSON API over real sockets: what it tells and is told, whom it tells, what it forgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.settings import Settings
from tests.client import http_client
from tests.doors import redis_server
from tests.journey.provider import Provider, providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.talk import SYSTEM, grow, history, post, put, silent, talk
from tests.page.talking import provider, proxy

__all__ = ["provider", "proxy"]

TOKEN = "an-admin-token"
ADMIN = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def guarded(provider: Provider) -> AsyncIterator[Running]:
    async with running(with_token(provider)) as opened:
        yield opened


def with_token(provider: Provider) -> Settings:
    return settings_for(provider.url, environ={"LETHE_ADMIN_TOKEN": TOKEN})


def with_digests(provider: Provider, folder: Path) -> Settings:
    file = folder / "lethe.toml"
    file.write_text('[ledger]\nhistory = "digests"\n')
    return settings_for(provider.url, file)


async def get(proxy: Running, path: str, **headers: str) -> httpx.Response:
    async with http_client() as client:
        return await client.get(proxy.admin + path, headers=headers)


async def told(proxy: Running, path: str, **headers: str) -> Any:
    reply = await get(proxy, path, **headers)
    assert 200 == reply.status_code, reply.text
    return reply.json()


# What is told


async def test_conversations_are_listed_the_most_recently_active_first(proxy: Running) -> None:
    first = await grow(proxy, 2, "One.")
    second = await grow(proxy, 1, "Two.", x_lethe_task="bench")
    first = await talk(proxy, [history(3, "One.")])

    found = await told(proxy, "/lethe/conversations")

    assert [first, second] == [it["id"] for it in found["conversations"]]
    assert [4, 2] == [it["turns"] for it in found["conversations"]]
    assert ("bench", "m", "default", None) == tuple(
        found["conversations"][1][name] for name in ("task", "model", "upstream", "key")
    )
    assert 0.6 == found["conversations"][0]["last"]["hit_ratio"]
    assert ("full", "up", None) == (found["history"], found["ledger"], found["next"])


async def test_a_long_list_comes_page_by_page(proxy: Running) -> None:
    put(proxy, 25)

    pages: list[list[str]] = []
    query: str | None = "limit=10"
    while query is not None:
        page = await told(proxy, f"/lethe/conversations?{query}")
        pages.append([it["id"] for it in page["conversations"]])
        query = f"limit=10&before={page['next']!r}" if page["next"] is not None else None

    assert [10, 10, 5] == [len(page) for page in pages]
    assert 25 == len({id for page in pages for id in page})


async def test_one_conversation_has_its_turns_and_their_sums(proxy: Running) -> None:
    id = await grow(proxy, 3, x_lethe_policy="drop")

    found = await told(proxy, f"/lethe/conversations/{id}")

    assert [1, 2, 3, 4] == [turn["turn"] for turn in found["timeline"]]
    assert ["cold_start", *["extended"] * 3] == [
        turn["prefix"]["cause"] for turn in found["timeline"]
    ]
    assert (400, 240, 0.6, 0) == (
        found["totals"]["tokens"]["input"], found["totals"]["tokens"]["cache_read"],
        found["totals"]["hit_ratio"], found["totals"]["breaks"],
    )  # fmt: skip
    assert "messages" not in found


async def test_messages_come_as_both_sides_had_them_and_only_when_asked_for(
    proxy: Running, provider: Provider
) -> None:
    id = await grow(proxy, 2, x_lethe_policy="drop")

    found = await told(proxy, f"/lethe/conversations/{id}?text=true")

    rows = [it for it in found["messages"] if it["message"] is not None]
    assert history(2) == [json.loads(it["came"]) for it in rows]
    assert provider.last.json()["messages"] == [json.loads(it["left"]) for it in rows]
    assert "" == json.loads(rows[2]["left"])["reasoning_content"]


async def test_under_digests_no_text_is_told(provider: Provider, tmp_path: Path) -> None:
    async with running(with_digests(provider, tmp_path)) as proxy:
        id = await grow(proxy, 2)
        found = await told(proxy, f"/lethe/conversations/{id}?text=true")

    assert "digests" == found["history"]
    assert [(None, None)] * 8 == [(it["came"], it["left"]) for it in found["messages"]]
    assert all(it["bytes"] for it in found["messages"] if it["message"] is not None)


async def test_what_the_provider_did_not_report_is_null() -> None:
    async with providing(silent) as provider, running(settings_for(provider.url)) as proxy:
        id = await grow(proxy, 1)
        found = await told(proxy, f"/lethe/conversations/{id}")

    assert found["totals"]["hit_ratio"] is None
    assert found["totals"]["tokens"]["cache_read"] is None
    assert 200 == found["totals"]["tokens"]["input"]


async def test_a_break_is_a_finding_and_what_costs_nothing_a_note(proxy: Running) -> None:
    clock = history(2, system=SYSTEM + " It is noon.")
    id = await talk(proxy, [history(1), history(2), clock, clock])

    found = await told(proxy, f"/lethe/conversations/{id}/findings")
    noted = await told(proxy, f"/lethe/conversations/{id}/findings?notes=true")

    (only,) = [it for it in found["findings"] if it["kind"] == "break"]
    assert (3, "system_changed", "client", 0) == tuple(
        only[name] for name in ("turn", "cause", "by", "message")
    )
    assert only["tokens"] > 0
    assert {"cold_start", "retry"} <= {it["cause"] for it in noted["findings"]}


async def test_statistics_are_those_of_what_the_caller_may_see(guarded: Running) -> None:
    await grow(guarded, 2, "One.", key="sk-one")
    await grow(guarded, 1, "Two.", key="sk-two")

    everything = await told(guarded, "/lethe/stats", **ADMIN)
    own = await told(guarded, "/lethe/stats", authorization="Bearer sk-two")

    assert (2, 5) == (everything["conversations"]["listed"], everything["conversations"]["turns"])
    assert 5 == everything["proxy"]["exchanges"]
    assert 500 == everything["proxy"]["tokens"]["input"]
    assert (1, 2) == (own["conversations"]["listed"], own["conversations"]["turns"])
    assert "proxy" not in own


ODD = (
    b'{"model":"m","messages":[{"role":"user",'
    b'"content":"cut \\ud83d, \\u202e \xc3\xa9 <b>","n":NaN}]}'
)


async def test_odd_text_is_told_too(proxy: Running) -> None:
    headers = {"authorization": "Bearer sk", "content-type": "application/json"}
    async with http_client() as client:
        reply = await client.post(f"{proxy.url}/v1/chat/completions", content=ODD, headers=headers)

    id = reply.headers["x-lethe-conversation"]
    found = await told(proxy, f"/lethe/conversations/{id}?text=true")

    assert "cut \\ud83d, \\u202e é <b>" in found["messages"][-1]["left"]


# Whom it is told


async def test_without_a_token_on_loopback_everything_is_told(proxy: Running) -> None:
    await grow(proxy, 1, "One.", key="sk-one")
    await grow(proxy, 1, "Two.", key="sk-two")

    assert 2 == len((await told(proxy, "/lethe/conversations"))["conversations"])


async def test_a_client_sees_its_own_conversations_and_no_other(guarded: Running) -> None:
    one = await grow(guarded, 1, "One.", key="sk-one")
    two = await grow(guarded, 1, "Two.", key="sk-two")

    for header in ({"authorization": "Bearer sk-one"}, {"x-api-key": "sk-one"}):
        rows = (await told(guarded, "/lethe/conversations", **header))["conversations"]
        assert [one] == [it["id"] for it in rows]
        assert one == (await told(guarded, f"/lethe/conversations/{one}", **header))["id"]
        for path in (f"/lethe/conversations/{two}", f"/lethe/conversations/{two}/findings"):
            assert 404 == (await get(guarded, path, **header)).status_code

    assert {one, two} == {
        it["id"] for it in (await told(guarded, "/lethe/conversations", **ADMIN))["conversations"]
    }


@pytest.mark.parametrize("path", ["", "/{id}", "/{id}/findings"])
async def test_nobody_is_told_nothing(guarded: Running, path: str) -> None:
    id = await grow(guarded, 1)

    nobody = await get(guarded, f"/lethe/conversations{path.format(id=id)}")
    stranger = await get(
        guarded, f"/lethe/conversations{path.format(id=id)}", authorization="Bearer nonsense"
    )

    assert 401 == nobody.status_code
    assert "key_unknown" == nobody.json()["error"]["code"]
    assert id not in stranger.text.replace(f"no conversation '{id}'", "")
    assert 401 == (await get(guarded, "/lethe/stats")).status_code


async def test_another_host_name_is_refused(proxy: Running) -> None:
    assert 403 == (await get(proxy, "/lethe/conversations", host="evil.example")).status_code


async def test_what_is_not_there_is_not_found(proxy: Running) -> None:
    for id in ("00" * 16, "nonsense", "%00", "a" * 5_000):
        for path in (f"/lethe/conversations/{id}", f"/lethe/conversations/{id}/findings"):
            assert 404 == (await get(proxy, path)).status_code


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "before=nan", "before=x"])
async def test_a_query_that_cannot_be_is_refused(proxy: Running, query: str) -> None:
    refused = await get(proxy, f"/lethe/conversations?{query}")
    error = refused.json()["error"]

    assert (422, "invalid_request") == (refused.status_code, error["code"])
    assert query.partition("=")[0] == error["param"]
    assert error["message"].startswith(f"{error['param']}: ")


@pytest.mark.parametrize("path", ["/lethe", "/lethe/nothing", "/metrics/x", "/favicon.png"])
async def test_where_nothing_is_it_is_told_what_there_is(proxy: Running, path: str) -> None:
    missed = await get(proxy, path)

    assert (404, "not_found") == (missed.status_code, missed.json()["error"]["code"])
    assert "/lethe/ui" in missed.json()["error"]["message"]


async def test_a_method_that_is_not_taken_is_told_with_what_is(proxy: Running) -> None:
    async with http_client() as client:
        refused = await client.put(f"{proxy.admin}/lethe/stats")

    assert (405, "GET") == (refused.status_code, refused.headers["allow"])
    assert {
        "message": "got PUT; wanted GET", "type": "invalid_request_error", "param": None,
        "code": "method_not_allowed",
    } == refused.json()["error"]  # fmt: skip


# What is forgotten


async def test_a_forgotten_conversation_is_gone(proxy: Running) -> None:
    id = await grow(proxy, 2)
    other = await grow(proxy, 1, "Another.")

    async with http_client() as client:
        forgotten = await client.delete(f"{proxy.admin}/lethe/conversations/{id}")
        again = await client.delete(f"{proxy.admin}/lethe/conversations/{id}")

    assert (204, 404) == (forgotten.status_code, again.status_code)
    assert 404 == (await get(proxy, f"/lethe/conversations/{id}")).status_code
    assert [other] == [
        it["id"] for it in (await told(proxy, "/lethe/conversations"))["conversations"]
    ]


async def test_a_client_cannot_forget_what_is_not_its_own(guarded: Running) -> None:
    id = await grow(guarded, 1, key="sk-one")

    async with http_client() as client:
        url = f"{guarded.admin}/lethe/conversations/{id}"
        stranger = await client.delete(url, headers={"authorization": "Bearer sk-two"})
        nobody = await client.delete(url)
        owner = await client.delete(url, headers={"authorization": "Bearer sk-one"})

    assert (404, 401, 204) == (stranger.status_code, nobody.status_code, owner.status_code)


async def test_a_conversation_goes_on_after_it_was_forgotten(proxy: Running) -> None:
    id = await grow(proxy, 2)
    async with http_client() as client:
        await client.delete(f"{proxy.admin}/lethe/conversations/{id}")

    reply = await post(proxy, history(3))

    assert id == reply.headers["x-lethe-conversation"]
    assert "cold_start" == reply.headers["x-lethe-prefix"]


# What all requests came to


async def test_sums_are_told_of_all_requests_of_each_conversation(proxy: Running) -> None:
    await grow(proxy, 2, "One.", x_lethe_policy="drop", x_lethe_task="mend")
    noon = history(1, "Two.", SYSTEM + " It is noon.")
    await talk(proxy, [history(0, "Two."), noon], x_lethe_policy="keep")

    found = await told(proxy, "/lethe/conversations?sums=true")

    second, first = (it["sums"] for it in found["conversations"])
    assert ("mend", {"drop": 3}, {"m": 3}) == (first["task"], first["policies"], first["models"])
    assert (3, 3, 0) == (first["requests"], first["steps"], first["untold"])
    assert {"sum": 300, "steps": 3} == first["tokens"]["input"]
    assert {"sum": 180, "steps": 3} == first["tokens"]["cache_read"]
    assert ({}, {"client": 1}) == (first["breaks"], second["breaks"])
    assert (0, 3) == (first["dollars"]["priced"], first["dollars"]["unpriced"])


async def test_sums_come_in_pages_of_their_own_size(proxy: Running) -> None:
    put(proxy, 250)

    first = await told(proxy, "/lethe/conversations?sums=true&limit=1000")
    rest = await told(proxy, f"/lethe/conversations?sums=true&before={first['next']!r}")

    assert [200, 50] == [len(page["conversations"]) for page in (first, rest)]
    assert rest["next"] is None


async def test_only_what_was_active_since_is_told_where_that_is_asked(proxy: Running) -> None:
    put(proxy, 25)
    rows = (await told(proxy, "/lethe/conversations"))["conversations"]

    since = f"since={rows[9]['last_at']!r}"
    found = await told(proxy, f"/lethe/conversations?{since}&limit=20")
    page = await told(proxy, f"/lethe/conversations?{since}&limit=5")
    last = await told(proxy, f"/lethe/conversations?{since}&limit=5&before={page['next']!r}")

    assert ([row["id"] for row in rows[:10]], None) == (
        [row["id"] for row in found["conversations"]],
        found["next"],
    )
    assert [row["id"] for row in rows[5:10]] == [row["id"] for row in last["conversations"]]


# How it ended


async def tell(proxy: Running, said: Any, **headers: str) -> httpx.Response:
    """Post an outcome; a text goes as it is."""
    body = said if isinstance(said, str) else json.dumps(said)
    named = {"content-type": "application/json", **headers}
    async with http_client() as client:
        return await client.post(f"{proxy.admin}/lethe/outcomes", content=body, headers=named)


async def outcome_of(proxy: Running, id: str, **headers: str) -> Any:
    one = await told(proxy, f"/lethe/conversations/{id}", **headers)
    rows = (await told(proxy, "/lethe/conversations", **headers))["conversations"]
    assert [one["outcome"]] == [row["outcome"] for row in rows if row["id"] == id]
    return one["outcome"]


async def test_the_outcome_of_a_conversation_is_kept_with_it(proxy: Running) -> None:
    id = await grow(proxy, 1)
    before = await outcome_of(proxy, id)

    reply = await tell(proxy, {"conversation": id, "success": True, "score": 0.75})

    assert before is None
    assert (200, {"conversations": [id]}) == (reply.status_code, reply.json())
    found = await outcome_of(proxy, id)
    assert (True, 0.75) == (found["success"], found["score"])
    assert found["at"] > 1e9
    await tell(proxy, {"conversation": id, "success": False})
    later = await outcome_of(proxy, id)
    assert (False, None) == (later["success"], later["score"])


async def test_the_id_that_the_first_reply_bore_is_good_enough(proxy: Running) -> None:
    first = (await post(proxy, history(0))).headers["x-lethe-conversation"]
    id = await talk(proxy, [history(1)])

    reply = await tell(proxy, {"conversation": first, "success": True})

    assert first != id
    assert {"conversations": [id]} == reply.json()


async def test_the_outcome_of_a_task_goes_to_its_conversations_that_have_none(
    proxy: Running,
) -> None:
    keep = await grow(proxy, 1, "One.", x_lethe_task="mend", x_lethe_policy="keep")
    after_keep = await tell(proxy, {"task": "mend", "success": False})
    drop = await grow(proxy, 1, "One, again.", x_lethe_task="mend", x_lethe_policy="drop")
    other = await grow(proxy, 1, "Two.", x_lethe_task="other")
    after_drop = await tell(proxy, {"task": "mend", "success": True})
    once_more = await tell(proxy, {"task": "mend", "success": False})

    assert {"conversations": [keep], "standing": 0} == after_keep.json()
    assert {"conversations": [drop], "standing": 1} == after_drop.json()
    assert {"conversations": [], "standing": 2} == once_more.json()
    assert [False, True, None] == [
        (await outcome_of(proxy, id) or {"success": None})["success"] for id in (keep, drop, other)
    ]


async def test_a_label_is_the_one_that_the_header_brought(proxy: Running) -> None:
    long, odd = "x" * 150, "t\u00e2che \u20ac"
    headers = {"authorization": "Bearer sk", "content-type": "application/json"}
    async with http_client() as client:
        for label in (long, odd):
            body = json.dumps({"model": "m", "messages": history(0, label)})
            named = {k.encode(): v.encode() for k, v in {**headers, "x-lethe-task": label}.items()}
            await client.post(f"{proxy.url}/v1/chat/completions", content=body, headers=named)

    replies = [await tell(proxy, {"task": label, "success": True}) for label in (long, odd)]

    assert [1, 1] == [len(reply.json()["conversations"]) for reply in replies]


async def test_an_outcome_of_what_is_not_there_is_not_found(proxy: Running) -> None:
    for named in ({"conversation": "00" * 16}, {"conversation": "nonsense"}, {"task": "none"}):
        reply = await tell(proxy, {**named, "success": True})
        assert (404, "not_found") == (reply.status_code, reply.json()["error"]["code"])


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`"),
        ({"conversation": "00"}, "missing required field `success`"),
        ({"conversation": "00", "success": "yes"}, "Expected `bool`"),
        ({"conversation": "00", "success": True, "score": "high"}, "$.score"),
        ({"conversation": "00", "success": True, "scores": 1}, "unknown field"),
        ({"success": True}, "no conversation and no task"),
        ({"success": True, "conversation": "00", "task": "t"}, "both a conversation and a task"),
        ('{"task": "t", "success": true, "score": NaN}', "not JSON"),
        (" " * 20_000, "at most 16,384 bytes"),
    ],
)
async def test_what_is_no_outcome_is_refused_with_what_is_wanted(
    proxy: Running, said: Any, complaint: str
) -> None:
    reply = await tell(proxy, said)

    error = reply.json()["error"]
    assert (400, "bad_outcome") == (reply.status_code, error["code"])
    assert complaint in error["message"]
    assert '"success": true' in error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_an_outcome_has_to_say_that_it_is_json(proxy: Running, kind: str) -> None:
    """A page of another origin could post the others without being asked for leave."""
    id = await grow(proxy, 1)

    reply = await tell(proxy, {"conversation": id, "success": True}, **{"content-type": kind})

    assert 415 == reply.status_code
    assert await outcome_of(proxy, id) is None


async def test_a_client_grades_its_own_conversations_and_no_other(guarded: Running) -> None:
    one = await grow(guarded, 1, "One.", key="sk-one", x_lethe_task="mend")
    two = await grow(guarded, 1, "Two.", key="sk-two", x_lethe_task="mend")
    bearer = {"authorization": "Bearer sk-one"}

    stranger = await tell(guarded, {"conversation": two, "success": True}, **bearer)
    nobody = await tell(guarded, {"conversation": one, "success": True})
    by_task = await tell(guarded, {"task": "mend", "success": True}, **bearer)
    operator = await tell(guarded, {"task": "mend", "success": False}, **ADMIN)

    assert (404, 401) == (stranger.status_code, nobody.status_code)
    assert {"conversations": [one], "standing": 0} == by_task.json()
    assert {"conversations": [two], "standing": 1} == operator.json()
    assert [True, False] == [
        (await outcome_of(guarded, id, **ADMIN))["success"] for id in (one, two)
    ]


# With a shared store


@pytest.mark.parametrize("binary", redis_server.binaries())
async def test_a_shared_store_tells_the_same(provider: Provider, binary: str | None) -> None:
    noon = SYSTEM + " It is noon."
    with redis_server.running(binary, tcp=True) as store:
        async with running(settings_for(provider.url, redis=store.url)) as proxy:
            id = await talk(proxy, [history(1), history(2), history(2, system=noon)])
            found = await settled(proxy, id, 3)
            broken = await told(proxy, f"/lethe/conversations/{id}/findings")
            graded = await tell(proxy, {"conversation": id, "success": True})
            listed = await told(proxy, "/lethe/conversations?sums=true")
            store.pause()
            apart = await told(proxy, "/lethe/conversations")
            ungraded = await tell(proxy, {"conversation": id, "success": False})
            unsaid = await get(proxy, f"/lethe/conversations/{id}")
            pages = [await get(proxy, f"/lethe/ui{place}") for place in ("", f"/{id}")]
            store.resume()

    assert history(2, system=noon) == [
        json.loads(it["came"]) for it in found["messages"] if it["message"] is not None
    ]
    assert ["system_changed"] == [it["cause"] for it in broken["findings"] if it["kind"] == "break"]
    assert {"conversations": [id]} == graded.json()
    assert [(id, 3, True)] == [
        (it["id"], it["sums"]["steps"], it["outcome"]["success"]) for it in listed["conversations"]
    ]
    assert (503, "ledger") == (ungraded.status_code, ungraded.json()["error"]["code"])
    assert ([], True) == (apart["conversations"], apart["ledger"] != "up")
    assert [200, 503] == [page.status_code for page in pages]
    assert "Nothing to show now" in pages[0].text
    assert "The ledger does not answer" in pages[1].text
    assert (503, "ledger") == (unsaid.status_code, unsaid.json()["error"]["code"])


async def settled(proxy: Running, id: str, turns: int) -> Any:
    """The conversation, once its writes have reached the store."""
    async with asyncio.timeout(10):
        while True:
            reply = await get(proxy, f"/lethe/conversations/{id}?text=true")
            if reply.status_code == 200 and reply.json()["turns"] == turns:
                return reply.json()
            await asyncio.sleep(0.02)
