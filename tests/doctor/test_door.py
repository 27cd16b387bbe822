"""One question, one bounded answer: keys, retries, limits."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from proxy.doctor import door as room
from proxy.doctor.answers import Answer
from proxy.doctor.door import Door
from proxy.doctor.probes import examine
from proxy.doctor.visit import NotExamined

Handler = Callable[[httpx.Request], httpx.Response]
REPLY = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}


async def completed(
    handler: Handler, url: str = "https://api.example.com", key: str = "k"
) -> tuple[Answer, list[float]]:
    """The answer, and how long it was waited."""
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
        return await Door(client, url, key, nap).complete({"model": "m"}), naps


@pytest.mark.parametrize(
    ("url", "key", "expected"),
    [
        ("https://api.example.com/v1", "k", {"authorization": "Bearer k"}),
        ("https://mine.openai.azure.com/openai/v1", "k", {"api-key": "k"}),
        ("https://api.example.com/v1", "", {}),
    ],
)
async def test_a_key_goes_into_the_one_header_that_is_read_there(
    url: str, key: str, expected: dict[str, str]
) -> None:
    came: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        came.append(request)
        return httpx.Response(200, json=REPLY)

    answer, _ = await completed(handler, url, key)
    sent = {name: came[0].headers.get(name) for name in ("authorization", "api-key")}

    assert answer.ok
    assert expected == {name: value for name, value in sent.items() if value is not None}
    assert f"{url}/chat/completions" == str(came[0].url)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, 1.0), ({"retry-after": "7"}, 7.0), ({"retry-after": "9999"}, room.LONGEST_WAIT),
     ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 1.0)],
)  # fmt: skip
async def test_where_it_is_busy_it_is_asked_once_more_after_a_bounded_while(
    headers: dict[str, str], seconds: float
) -> None:
    answers = [httpx.Response(429, headers=headers), httpx.Response(200, json=REPLY)]
    answer, naps = await completed(lambda request: answers.pop(0))

    assert answer.ok
    assert [seconds] == naps


async def test_where_it_stays_busy_that_is_the_answer() -> None:
    answer, naps = await completed(lambda request: httpx.Response(429))

    assert ("status 429", 1) == (answer.why, len(naps))


async def test_an_answer_without_end_is_let_go() -> None:
    body = b" " * (room.MOST_BYTES + 1)
    answer, _ = await completed(lambda request: httpx.Response(200, content=body))

    assert f"more than {room.MOST_BYTES} bytes" == answer.why


async def test_a_key_that_may_not_do_this_ends_it() -> None:
    async def nap(seconds: float) -> None:
        raise AssertionError("nobody was busy")

    transport = httpx.MockTransport(lambda request: httpx.Response(403))
    async with httpx.AsyncClient(transport=transport) as client:
        with pytest.raises(NotExamined, match="does not take this key \\(status 403\\)"):
            await examine(
                Door(client, "https://api.example.com", "k", nap), "m", "5a17", lambda name: None
            )
