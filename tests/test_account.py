"""An exchange is told once, with what it came to, however it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.account import Account
from proxy.app import opened
from proxy.core.outcome import Route
from proxy.doors import Doors
from proxy.errors import ClientGone, UpstreamUnreachable
from proxy.relay import Ending
from proxy.settings import Settings, UpstreamSettings


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    up = UpstreamSettings(url="http://127.0.0.1:9", detect=False)
    async with opened(Settings(upstreams=(up,), log="off")) as doors:
        yield doors


class Client:
    """Notes what it was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def __call__(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def code(self) -> str:
        return str(json.loads(self.sent[1]["body"])["error"]["code"])


async def ended(account: Account, client: Client, error: BaseException | None) -> None:
    """Run an exchange to an end of this kind."""
    async with account.kept(client):
        if error is not None:
            raise error


def told(doors: Doors) -> list[tuple[str, ...]]:
    """Status and ending of every exchange that was told."""
    numbers = doors.observer.numbers()["lethe_requests_total"]
    return [labels[1:] for labels, count in numbers.items() for _ in range(int(count))]


def faults(doors: Doors) -> list[str]:
    numbers = doors.observer.numbers()["lethe_faults_total"]
    return [labels[0] for labels, count in numbers.items() if count]


@pytest.mark.parametrize(("had", "status"), [(0, 503), (200, 200)])
async def test_one_that_is_cancelled_is_told_as_ours_and_goes_on_being_cancelled(
    doors: Doors, had: int, status: int
) -> None:
    account, client = Account(doors, Route.CHAT, {}), Client()
    account.status = had

    with pytest.raises(asyncio.CancelledError):
        await ended(account, client, asyncio.CancelledError())

    assert (status, Ending.DRAINING) == (account.status, account.ending)
    assert [(str(status), "draining")] == told(doors)
    assert (None, 0) == (client.status, doors.observer.in_flight)


@pytest.mark.parametrize(("had", "status"), [(0, 499), (200, 200)])
async def test_a_client_that_is_gone_is_sent_nothing(doors: Doors, had: int, status: int) -> None:
    account, client = Account(doors, Route.CHAT, {}), Client()
    account.status = had

    await ended(account, client, ClientGone("the client went away"))

    assert [(str(status), "client_gone")] == told(doors)
    assert (None, 0) == (client.status, doors.observer.in_flight)


async def test_a_refusal_of_ours_becomes_an_answer(doors: Doors) -> None:
    account, client = Account(doors, Route.CHAT, {}), Client()

    await ended(account, client, UpstreamUnreachable("nobody there"))

    assert (502, "upstream_unreachable") == (client.status, client.code)
    assert [("502", "failed")] == told(doors)
    assert [] == faults(doors)


async def test_what_nobody_foresaw_is_ours_and_counted(doors: Doors) -> None:
    account, client = Account(doors, Route.CHAT, {}), Client()

    await ended(account, client, ZeroDivisionError())

    assert 500 == client.status
    assert [("500", "failed")] == told(doors)
    assert ["exchange"] == faults(doors)


async def test_once_a_reply_has_begun_a_failure_is_not_answered(doors: Doors) -> None:
    account, client = Account(doors, Route.CHAT, {}), Client()
    account.status = 200

    with pytest.raises(ZeroDivisionError):
        await ended(account, client, ZeroDivisionError())

    assert None is client.status
    assert [("200", "failed")] == told(doors)
    assert ["exchange"] == faults(doors)


async def test_one_that_ends_well_is_told_once(doors: Doors) -> None:
    account, client = Account(doors, Route.CHAT, {}), Client()
    account.status, account.ending = 200, Ending.COMPLETE
    account.close()

    await ended(account, client, None)

    assert [("200", "complete")] == told(doors)
    assert 0 == doors.observer.in_flight
