"""`lethe serve` as it is run: two worker processes, what they count, and waiting for it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from tests.client import http_client
from tests.doors.redis_server import free_port


@dataclass(frozen=True, slots=True)
class Workers:
    url: str
    admin: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@asynccontextmanager
async def two_workers(upstream: str, redis: str, *options: str) -> AsyncIterator[Workers]:
    """Two workers that both serve."""
    main, admin = free_port(), free_port()
    command = [
        sys.executable, "-m", "proxy", "serve", "--upstream", upstream,
        "--redis", redis, "--workers", "2", "--port", str(main),
        "--admin-port", str(admin), "--log", "off", *options,
    ]  # fmt: skip
    process = await asyncio.to_thread(_started, command)
    try:
        workers = Workers(f"http://127.0.0.1:{main}", f"http://127.0.0.1:{admin}")
        await until_counted(workers.admin, lambda text: total(text, "lethe_workers") == 2)
        yield workers
    finally:
        process.terminate()
        process.wait(20)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a count in this process, which nobody tells."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_counted(admin: str, holds: Callable[[str], bool]) -> str:
    """The metrics, as soon as this holds of them."""
    async with http_client() as client, asyncio.timeout(30):
        while True:
            try:
                text = (await client.get(f"{admin}/metrics")).text
            except httpx.TransportError:
                text = ""
            if holds(text):
                return text
            await asyncio.sleep(0.05)


async def metrics(admin: str) -> str:
    return await until_counted(admin, lambda text: bool(text))


def total(text: str, name: str, having: str = "") -> float:
    """The sum of a metric over all its series with these labels."""
    rows = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for labels, value in rows if having in labels)
