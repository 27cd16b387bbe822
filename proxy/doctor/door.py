"""The one room that speaks to the upstream that is examined: one question, one bounded answer.

Every request has a limit of time over all of it, and every answer one of size. A key goes into one
header and nowhere else. Where the upstream is busy or failed by itself the question is asked once
more; redirects are not followed, because a key would travel along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from proxy.core.paths import url_for
from proxy.doctor.answers import Answer, Listed, read, read_models

SECONDS = 120.0
"""For one request, from the first byte sent to the last one read."""
MOST_BYTES = 4 * 1024 * 1024
LONGEST_WAIT = 20.0
"""Seconds to wait where the upstream says that it is busy."""
_AGAIN = frozenset({429, 500, 502, 503, 504})

Nap = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Came:
    status: int = 0
    kind: str = ""
    body: bytes = b""
    trouble: str = ""
    wait: float = 1.0


@dataclass(frozen=True, slots=True)
class Door:
    """`key` is empty where none is sent. `nap` waits, `seconds` bounds a request."""

    client: httpx.AsyncClient
    url: str
    key: str
    nap: Nap
    seconds: float = SECONDS

    async def models(self, model: str) -> Listed:
        came = await self._asked("GET", "/v1/models", None)
        if came.trouble:
            return Listed(Answer(came.status, came.trouble))
        return read_models(came.status, came.body, model)

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer to a chat completion, streamed where the body asks for that."""
        came = await self._asked("POST", "/v1/chat/completions", body)
        if came.trouble:
            return Answer(came.status, came.trouble)
        return read(came.status, came.kind, came.body, bool(body.get("stream")), self.key)

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Came:
        came = await self._once(method, path, body)
        if came.status in _AGAIN:
            await self.nap(came.wait)
            came = await self._once(method, path, body)
        return came

    async def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Came:
        try:
            async with asyncio.timeout(self.seconds):
                return await self._sent(method, path, body)
        except (TimeoutError, httpx.TimeoutException):
            return _Came(trouble=f"no whole answer within {self.seconds:g} s")
        except httpx.ConnectError:
            return _Came(trouble="nobody answers there (connection refused, or no such host)")
        except (httpx.TransportError, httpx.DecodingError):
            return _Came(trouble="the connection was closed before the answer was whole")

    async def _sent(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Came:
        url, headers = url_for(self.url, path, b""), _headers(self.url, self.key)
        async with self.client.stream(method, url, json=body, headers=headers) as reply:
            taken = bytearray()
            async for chunk in reply.aiter_bytes():
                taken += chunk
                if len(taken) > MOST_BYTES:
                    return _Came(reply.status_code, trouble=f"more than {MOST_BYTES} bytes")
            kind = reply.headers.get("content-type", "").lower()
            wait = _seconds(reply.headers.get("retry-after", ""))
            return _Came(reply.status_code, kind, bytes(taken), wait=wait)


def _headers(url: str, key: str) -> Mapping[str, str]:
    if not key:
        return {}
    if (urlsplit(url).hostname or "").endswith(".azure.com"):
        return {"api-key": key}
    return {"authorization": f"Bearer {key}"}


def _seconds(retry_after: str) -> float:
    """What the header asks for, a second where it says nothing, and never long."""
    return min(float(retry_after), LONGEST_WAIT) if retry_after.isdecimal() else 1.0
