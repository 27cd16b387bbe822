"""Every recorded response, through the proxy and real sockets: byte-equal at the client, however
it was cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.client import http_client
from tests.journey.provider import Answer, Came, providing
from tests.journey.proxy_server import running, settings_for
from tests.shared import need_shared

PATHS = {"chat.completions": "/v1/chat/completions", "responses": "/v1/responses"}
ASKED = b'{"model":"m","messages":[{"role":"user","content":"go"}],"stream":true}'
USAGE_ASKED = ASKED[:-1] + b',"stream_options":{"include_usage":true}}'


@dataclass(frozen=True)
class Recorded:
    name: str
    path: str
    status: int
    kind: str
    body: bytes


def recorded() -> Iterator[Recorded]:
    for path in sorted(need_shared("corpus", "responses").glob("*/*.json")):
        row = json.loads(path.read_text())
        kind = "text/event-stream" if row.get("stream") else "application/json"
        where = PATHS.get(row["endpoint"], "/v1/messages")
        yield Recorded(path.stem, where, int(row["status"]), kind, body_of(row))


def body_of(row: dict[str, object]) -> bytes:
    if isinstance(text := row.get("sse") or row.get("body_raw"), str):
        return text.encode("utf-8", "surrogatepass")
    return json.dumps(row.get("body"), ensure_ascii=False).encode()


def cut(body: bytes, chance: random.Random) -> tuple[bytes, ...]:
    places = sorted(chance.randrange(len(body) + 1) for _ in range(min(12, len(body))))
    ends = [0, *places, len(body)]
    return tuple(body[a:b] for a, b in zip(ends, ends[1:], strict=False) if b > a)


async def relayed(pieces: dict[str, tuple[bytes, ...]]) -> dict[str, bool]:
    """Whether each response came out as it went in; `pieces` are what the provider writes."""
    rows = {row.name: row for row in recorded()}

    def answers(came: Came) -> Answer:
        row = rows[came.headers["x-request-id"]]
        return Answer(row.status, {"content-type": row.kind}, pieces[row.name])

    equal = {}
    async with (
        providing(answers) as provider,
        running(settings_for(provider.url)) as proxy,
        http_client() as client,
    ):
        for name, row in rows.items():
            reply = await client.post(
                f"{proxy.url}{row.path}", content=USAGE_ASKED, headers={"x-request-id": name}
            )
            equal[name] = (row.status, row.body) == (reply.status_code, reply.content)
    return equal


async def test_in_one_piece_every_recorded_response_arrives_as_it_came() -> None:
    found = await relayed({row.name: (row.body,) for row in recorded()})

    print(f"\n{len(found)} recorded responses relayed, {sum(found.values())} byte-equal")
    assert [] == [name for name, equal in found.items() if not equal]


async def test_cut_at_random_places_every_recorded_response_arrives_as_it_came() -> None:
    chance = random.Random(7)

    found = await relayed({row.name: cut(row.body, chance) for row in recorded()})

    assert [] == [name for name, equal in found.items() if not equal]
