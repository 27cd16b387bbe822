"""Strict upstreams, and the real proxy before one, up for many tests, in a thread of their own.

Provider, proxy and clients share one event loop, so that a test is a plain function: it hands a
coroutine in and gets what it returns.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from tests.contracts.families import FAMILIES, Family
from tests.contracts.strict import Strict
from tests.contracts.task import TASK
from tests.journey.provider import Answer, Came, providing
from tests.journey.proxy_server import running, settings_for

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds that anything here may take before it counts as hung."""


class Home:
    """Where coroutines of tests are run. `url` is where clients turn to."""

    def __init__(self) -> None:
        self.url = ""
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.over = asyncio.Event()

    async def lived(self, url: str) -> None:
        """Open to tests, until the end."""
        self.url, self._loop = url, asyncio.get_running_loop()
        self.ready.set()
        await self.over.wait()

    def end(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.over.set)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            raise RuntimeError("nobody is at home")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


@dataclass(slots=True)
class House:
    """One strict upstream with the proxy before it."""

    family: Family
    strict: Strict
    url: str


class Quarter(Home):
    """Houses, each built when it is first asked for; `folder` is where their settings lie."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._houses: dict[str, House] = {}
        self._group: asyncio.TaskGroup | None = None

    def house(self, name: str) -> House:
        if name not in self._houses:
            self._houses[name] = self.run(self._built(FAMILIES[name]))
        return self._houses[name]

    async def live(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            await self.lived("")

    async def _built(self, family: Family) -> House:
        ready: asyncio.Future[House] = asyncio.get_running_loop().create_future()
        if self._group is not None:
            self._group.create_task(self._stands(family, ready))
        return await ready

    async def _stands(self, family: Family, ready: asyncio.Future[House]) -> None:
        """What goes wrong at the start is told to whoever waits."""
        strict = Strict(family, TASK)
        try:
            async with providing(strict) as provider:
                file = settings_file(family, self._folder, provider.url)
                async with running(settings_for(provider.url, file)) as proxy:
                    ready.set_result(House(family, strict, proxy.url))
                    await self.over.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)


class Street(Home):
    """All strict upstreams behind one listener, each under a path of its own name; no proxy."""

    def __init__(self) -> None:
        super().__init__()
        self.doors = {name: Strict(family, TASK) for name, family in FAMILIES.items()}

    def __call__(self, came: Came) -> Answer:
        return self.doors[came.path.split("/")[1]](came)


def settings_file(family: Family, folder: Path, url: str) -> Path:
    """What a user would write for this upstream."""
    rows = ["[[upstream]]", f"url = {json.dumps(url)}"]
    if family.contract is not None:
        rows.append(f"contract = {json.dumps(family.contract)}")
    file = folder / f"{family.name}.toml"
    file.write_text("\n".join(rows) + "\n")
    return file


@contextmanager
def housed(folder: Path) -> Iterator[Quarter]:
    """Up until the block ends."""
    quarter = Quarter(folder)
    with _lived_in(quarter, quarter.live):
        yield quarter


@contextmanager
def lined() -> Iterator[Street]:
    """Up until the block ends."""
    street = Street()

    async def live() -> None:
        async with providing(street) as provider:
            await street.lived(provider.url)

    with _lived_in(street, live):
        yield street


@contextmanager
def _lived_in(home: Home, live: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """Run it in a thread. What goes wrong at its start or end is raised here."""
    failed: list[BaseException] = []

    def main() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(live())
        except BaseException as error:  # told where the test can see it
            failed.append(error)
        finally:
            home.ready.set()

    thread = threading.Thread(target=main)
    thread.start()
    home.ready.wait(PATIENCE)
    try:
        if not failed:
            yield
    finally:
        home.end()
        thread.join(PATIENCE)
    if failed:
        raise failed[0]
