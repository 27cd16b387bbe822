"""Whatever stops or kills a process: what has begun may end, and nobody is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from proxy.app import STORE_AWAY, opened
from proxy.core.tariff import Unpriced
from proxy.errors import ProxyError
from proxy.workers import Workers
from tests.client import http_client
from tests.doors import redis_server as servers
from tests.journey.falling import falls
from tests.journey.provider import chunk, providing, stream
from tests.journey.proxy_server import settings_for

PIECES = 12
LONG = stream(*(chunk({"content": "x"}) for _ in range(PIECES)), pause=0.1)
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with servers.running(servers.valkey()) as server:
        yield server.url


@dataclass(frozen=True)
class Proxy:
    """`lethe serve`, in a process group of its own."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def workers(self) -> list[int]:
        return [pid for pid in _children(self.process.pid) if b"spawn_main" in _command(pid)]

    def signalled(self, number: signal.Signals) -> None:
        """Ctrl-C, a terminal that closes: to the whole group."""
        os.killpg(self.process.pid, number)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 15)


def _children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _started(folder: Path, *options: str) -> Proxy:
    port, log = _free(), folder / "said"
    command = [
        sys.executable, "-m", "proxy", "serve", "--port", str(port), "--admin-port", str(_free()),
        *options,
    ]  # fmt: skip
    environ = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
    # Where the workers leave their numbers; gone at the end, whoever comes last.
    environ["TMPDIR"] = str(folder)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environ, start_new_session=True
        )
    return Proxy(process, port, log)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not holds():  # noqa: ASYNC110  (another process's doing, told by nobody)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def two_workers(redis: str, upstream: str, folder: Path, *more: str) -> AsyncIterator[Proxy]:
    options = ("--upstream", upstream, "--redis", redis, "--workers", "2", *more)
    proxy = await asyncio.to_thread(_started, folder, *options)
    left: list[int] = []
    try:
        await _until(lambda: len(proxy.workers) == 2)
        left = proxy.workers
        yield proxy
    finally:
        for pid in (proxy.process.pid, *left):
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        proxy.process.wait()


@asynccontextmanager
async def open_stream(proxy: Proxy) -> AsyncIterator[AsyncIterator[str]]:
    """A streamed completion whose first line has come."""
    url = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
    async with http_client() as client, client.stream("POST", url, json=BODY) as it:
        lines = it.aiter_lines()
        assert (await anext(lines)).startswith("data: ")
        yield lines


async def _refused(port: int) -> None:
    """Until nobody listens there any more."""
    async with asyncio.timeout(5):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.05)


def to_master(proxy: Proxy) -> None:
    proxy.process.terminate()


def to_group(number: signal.Signals) -> Callable[[Proxy], None]:
    return lambda proxy: proxy.signalled(number)


def to_all(proxy: Proxy) -> None:
    """As systemd does, which knows no groups and no sessions."""
    for pid in (*proxy.workers, proxy.process.pid):
        os.kill(pid, signal.SIGTERM)


WAYS = {
    "SIGTERM to the master": to_master,
    "SIGTERM to all processes": to_all,
    "SIGINT to the group": to_group(signal.SIGINT),
    "SIGHUP to the group": to_group(signal.SIGHUP),
}


async def stopped(way: str, redis: str, folder: Path) -> tuple[str, int, list[int], bool]:
    """The last line of a stream that was open, the exit code, who is left, and an outburst."""
    async with (
        providing(lambda came: LONG) as provider,
        two_workers(redis, provider.url, folder) as proxy,
        open_stream(proxy) as lines,
    ):
        workers = proxy.workers
        WAYS[way](proxy)
        await _refused(proxy.port)
        rest = [line async for line in lines if line]
        code = await proxy.ended()
        left = [pid for pid in workers if _alive(pid)]
        return rest[-1], code, left, "Traceback" in proxy.log.read_text()


async def test_every_way_of_stopping_lets_an_open_stream_end(
    redis_url: str, tmp_path: Path
) -> None:
    for way in WAYS:
        tmp_path.joinpath(way).mkdir()
    ends = await asyncio.gather(*(stopped(way, redis_url, tmp_path / way) for way in WAYS))

    wanted: tuple[str, int, list[int], bool] = ("data: [DONE]", 0, [], False)
    assert dict.fromkeys(WAYS, wanted) == dict(zip(WAYS, ends, strict=True))


async def test_a_worker_that_dies_is_replaced_and_none_outlives_its_master(
    redis_url: str, tmp_path: Path
) -> None:
    async with (
        providing(lambda came: LONG) as provider,
        two_workers(redis_url, provider.url, tmp_path) as proxy,
    ):
        first = proxy.workers
        os.kill(first[0], signal.SIGKILL)
        await _until(lambda: len({*proxy.workers} - {*first}) == 1)
        workers = proxy.workers
        async with open_stream(proxy) as lines:
            proxy.process.kill()
            await _refused(proxy.port)
            rest = [line async for line in lines if line]
        await _until(lambda: not any(_alive(pid) for pid in workers))

    assert "data: [DONE]" == rest[-1]
    assert "ended with -9; another starts" in proxy.log.read_text()
    assert [] == [name for name in os.listdir(tmp_path) if name.startswith("lethe-")]


async def test_a_second_stop_waits_for_nothing_but_its_account(
    redis_url: str, tmp_path: Path
) -> None:
    slow = stream(*(chunk({"content": "x"}) for _ in range(40)), pause=0.5)
    log = tmp_path / "exchanges"
    async with (
        providing(lambda came: slow) as provider,
        two_workers(redis_url, provider.url, tmp_path, "--log", str(log)) as proxy,
        open_stream(proxy) as lines,
    ):
        proxy.process.terminate()
        await asyncio.sleep(1.2)
        proxy.process.terminate()
        with pytest.raises(httpx.RemoteProtocolError):
            [line async for line in lines]
        code = await proxy.ended()

    assert 0 == code
    assert ["draining"] == [json.loads(row)["ending"] for row in log.read_text().splitlines()]
    assert "Traceback" not in proxy.log.read_text()


async def test_settings_that_a_worker_cannot_use_end_all_with_two_and_one_message(
    redis_url: str, tmp_path: Path
) -> None:
    bad, config = tmp_path / "bad.pem", tmp_path / "lethe.toml"
    bad.write_text("no certificate")
    config.write_text(f'[[upstream]]\nurl = "https://127.0.0.1:9"\nca_file = "{bad}"\n')
    proxy = await asyncio.to_thread(
        _started, tmp_path, "--config", str(config), "--redis", redis_url, "--workers", "2"
    )

    code = await proxy.ended()

    said = proxy.log.read_text()
    assert 2 == code
    assert 1 == said.count(str(bad))
    assert "Traceback" not in said
    assert "another starts" not in said


def test_workers_that_never_serve_are_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProxyError, match="none of 3 workers"):
        Workers(falls, [], 1, 1.0).run(lambda: time.monotonic() * 20)

    assert 2 == capfd.readouterr().err.count("ended with 3; another starts")


async def test_what_all_workers_have_to_tell_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for("http://127.0.0.1:9")
    async with opened(settings, tmp_path) as one, opened(settings, tmp_path) as other:
        for doors in (one, other):
            doors.prices.missed("default", "m", Unpriced.PROVIDER)
        other.prices.missed("default", "another", Unpriced.PROVIDER)
    said = capsys.readouterr().err

    assert 1 == said.count("no price for model 'm'")
    assert 1 == said.count("no price for model 'another'")


async def test_a_store_that_does_not_answer_is_told_at_the_start_without_its_secrets() -> None:
    said: list[str] = []
    away = settings_for("http://127.0.0.1:9", redis="redis://:secret@127.0.0.1:9/0")
    async with opened(away, None, said.append):
        pass

    assert [STORE_AWAY] == said
    assert "secret" not in STORE_AWAY


async def test_a_store_that_answers_is_not_told_of(redis_url: str) -> None:
    said: list[str] = []
    there = settings_for("http://127.0.0.1:9", redis=redis_url)
    async with opened(there, None, said.append):
        pass

    assert [] == said
