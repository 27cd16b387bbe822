"""Builds the application: opens the doors at start, serves both ports, drains and closes at the
end.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import hashlib
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn

from proxy import contracts, routes, server
from proxy.counting import Counts
from proxy.doors import Doors, State
from proxy.errors import SettingsError
from proxy.forms import Forms
from proxy.keys import Keyring
from proxy.ledger import in_memory
from proxy.ledger.contract import Ledger
from proxy.memo import Memo
from proxy.observe import Observer
from proxy.prices import Prices
from proxy.settings import Settings, UpstreamSettings, artifact_rules
from proxy.upstream import Upstream
from proxy.ways import Target
from proxy.workers import Alone, Overseer, Workers

_SAVE_EVERY = 1.0
_WRITE_EVERY = 0.2
_CUT_SECONDS = 2.0
STORE_AWAY = (
    "lethe: the ledger's store (redis) does not answer. Exchanges go on, each worker by its own "
    "memory, and what there is to write waits for the store; lethe_ledger_up tells how it is"
)


@asynccontextmanager
async def opened(
    settings: Settings, folder: Path | None = None, tell: Callable[[str], None] | None = None
) -> AsyncIterator[Doors]:
    """The doors, open; closed again at the end. `folder` is where the workers leave their
    numbers.
    """
    with _log(settings.log) as log:
        say = _say if folder is None else partial(_say_once, folder)
        doors = _doors(settings, folder, log, tell or say)
        await doors.upstream.open()
        await doors.ledger.open()
        if doors.ledger.health().state != "up":
            doors.tell(STORE_AWAY)
        try:
            async with asyncio.TaskGroup() as group:
                over = asyncio.Event()
                ticking = group.create_task(_tick(doors, over))
                asking = group.create_task(
                    contracts.ask(
                        doors.contracts, doors.upstream, doors.targets, settings.upstreams
                    )
                )
                pricing = group.create_task(doors.prices.load())
                try:
                    yield doors
                finally:
                    asking.cancel()
                    pricing.cancel()
                    over.set()
                    await ticking
        finally:
            await doors.ledger.close()
            await doors.upstream.close()
            doors.observer.write_lines(doors.observer.taken_lines())
            doors.observer.leave()


def _doors(
    settings: Settings, folder: Path | None, log: BinaryIO | None, tell: Callable[[str], None]
) -> Doors:
    metrics = settings.metrics
    observer = Observer(folder, log, metrics.model_labels, metrics.key_labels, metrics.gen_ai)
    ledger = _ledger(settings)
    observer.gauges = partial(_gauge, ledger)
    numbers = count()
    start = secrets.token_hex(5)
    targets = {up.name: _target(up) for up in settings.upstreams}
    return Doors(
        settings=settings,
        keyring=Keyring(settings),
        targets=targets,
        rules={
            "": artifact_rules(settings),
            **{k.alias: artifact_rules(settings, k) for k in settings.keys},
        },
        contracts=contracts.Contracts(settings),
        prices=Prices(settings, tell),
        memo=Memo(secrets.randbits(63), settings.max_body_bytes),
        forms=Forms(secrets.randbits(63)),
        ledger=ledger,
        upstream=Upstream(targets.values(), clock=time.monotonic),
        observer=observer,
        clock=time.time,  # noqa: TID251  (the composition root: here the clock is handed out)
        ticks=time.perf_counter,
        new_id=lambda: f"{start}-{next(numbers):x}",
        tell=tell,
        state=State(),
    )


def _say(line: str) -> None:
    """A word to who runs this; few and short, so that writing them holds nobody up."""
    print(line, file=sys.stderr, flush=True)


def _say_once(folder: Path, line: str) -> None:
    """Where several workers have the same to tell, the first one does."""
    digest = hashlib.blake2b(line.encode(errors="backslashreplace"), digest_size=16).hexdigest()
    try:
        (folder / f"{digest}.told").touch(exist_ok=False)
    except FileExistsError:
        return
    except OSError:  # told twice is better than never
        pass
    _say(line)


def _ledger(settings: Settings) -> Ledger:
    own = settings.ledger
    clock = time.time  # noqa: TID251  (as above)
    if own.redis is None:
        return in_memory.InMemory(
            in_memory.Options(
                max_entries=own.max_entries,
                max_bytes=own.max_bytes,
                history=own.history,
                ttl=own.ttl,
            ),
            clock=clock,
        )
    from proxy.ledger import in_redis

    return in_redis.InRedis(
        in_redis.Options(
            url=own.redis, ttl=own.ttl, timeout=own.timeout, history=own.history,
            encryption_key=own.encryption_key,
        ),
        clock=clock,
    )  # fmt: skip


def _target(up: UpstreamSettings) -> Target:
    return Target(
        name=up.name, base=up.url, first_byte_timeout=up.first_byte_timeout,
        connect_timeout=up.connect_timeout, ca_file=up.ca_file, client_cert=up.client_cert,
        client_key=up.client_key, trust_env=up.trust_env, max_connections=up.max_connections,
    )  # fmt: skip


def _gauge(ledger: Ledger, counts: Counts) -> None:
    """What is read off the ledger when metrics are."""
    health = ledger.health()
    counts.set("lethe_ledger_queue", health.queued)
    counts.set("lethe_ledger_up", 1 if health.state == "up" else 0)
    for kind, failures in health.failures.items():
        counts.numbers["lethe_ledger_failures_total"][(kind,)] = failures


@contextmanager
def _log(where: str) -> Iterator[BinaryIO | None]:
    match where:
        case "off":
            yield None
        case "stdout":
            yield sys.stdout.buffer
        case "stderr":
            yield sys.stderr.buffer
        case path:
            with open(path, "ab") as file:
                yield file


async def _tick(doors: Doors, over: asyncio.Event) -> None:
    """Writes log lines and numbers off the path, until it is over. It is never cancelled: lines
    that were taken and wait for their thread would be lost.
    """
    saved = doors.ticks()
    while not over.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), _WRITE_EVERY)
        await asyncio.to_thread(doors.observer.write_lines, doors.observer.taken_lines())
        if doors.ticks() - saved >= _SAVE_EVERY:
            saved = doors.ticks()
            await asyncio.to_thread(doors.observer.save, doors.observer.own())


def _config(settings: Settings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app, http=server.Protocol, loop="none", lifespan="off", access_log=False, log_config=None,
        server_header=False, date_header=False, proxy_headers=False, ws="none",
        timeout_graceful_shutdown=max(1, round(settings.drain_timeout)), timeout_keep_alive=75,
        h11_max_incomplete_event_size=None, backlog=2048,
    )  # fmt: skip


@asynccontextmanager
async def serving(
    doors: Doors, main: socket.socket, admin: socket.socket
) -> AsyncIterator[Sequence[server.Server]]:
    """Both ports, served until the block ends and what has begun is over."""
    servers = [
        server.Server(_config(doors.settings, routes.main(doors))),
        server.Server(_config(doors.settings, routes.admin(doors))),
    ]
    with server.quiet():
        async with asyncio.TaskGroup() as group:
            for one, listener in zip(servers, (main, admin), strict=True):
                group.create_task(one.serve(sockets=[listener]))
            try:
                yield servers
            finally:
                stop(doors, servers)
        await _cut(servers)


async def _cut(servers: Sequence[uvicorn.Server]) -> None:
    """What is to wait no longer ends here, where its account can still be told."""
    left = [task for it in servers for task in it.server_state.tasks]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CUT_SECONDS)


@asynccontextmanager
async def running(
    settings: Settings, tell: Callable[[str], None] | None = None
) -> AsyncIterator[tuple[str, str]]:
    """One worker inside this process until the block ends: both addresses. Signals are not
    touched. What it has to tell goes to `tell`, else to stderr.
    """
    there = settings.admin
    with bound(settings.host, settings.port) as main, bound(there.host, there.port) as admin:
        async with opened(settings, None, tell) as doors, serving(doors, main, admin):
            yield _address(main), _address(admin)


def stop(doors: Doors, servers: Sequence[server.Server]) -> None:
    """Take no more; said twice, wait for nothing."""
    again = doors.state.draining
    doors.state.draining = True
    for it in servers:
        it.end(again)


async def serve_sockets(
    settings: Settings,
    main: socket.socket,
    admin: socket.socket,
    folder: Path | None,
    overseer: Overseer,
) -> None:
    """One worker: both ports, until it is told to stop; then what has begun may end."""
    told = asyncio.Event()
    async with opened(settings, folder) as doors, serving(doors, main, admin) as servers:

        def at_once() -> None:
            told.set()
            stop(doors, servers)

        overseer.heed(told.set, at_once)
        _freeze()
        await told.wait()


def _freeze() -> None:
    """What was built at start is never garbage: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _tune_malloc() -> None:
    """Keep freed megabytes for the next body rather than hand them back page by page, and all of
    them in one place, for threads too, which do little here (glibc only).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    m_trim_threshold, m_mmap_threshold, m_arena_max = -1, -3, -8
    mallopt(m_arena_max, 1)
    mallopt(m_mmap_threshold, 32 << 20)
    mallopt(m_trim_threshold, 48 << 20)


def run_worker(
    settings: Settings, folder: Path | None, sockets: list[socket.socket], overseer: Overseer
) -> None:
    """One worker process, to its end."""
    _tune_malloc()
    main, admin = sockets
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve_sockets(settings, main, admin, folder, overseer))
    if folder is not None and overseer.gone:
        shutil.rmtree(folder, ignore_errors=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, since asyncio sets TCP_NODELAY only where it reads TCP off the socket, not the default
    # 0.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another host or port"
        ) from error
    listener.listen(2048)
    listener.setblocking(False)
    listener.set_inheritable(True)
    return listener


def serve(settings: Settings, announce: Callable[[str, str], None]) -> None:
    """Serve until a signal. `announce` gets both addresses when they are bound."""
    main, admin = (
        bound(settings.host, settings.port),
        bound(settings.admin.host, settings.admin.port),
    )
    announce(_address(main), _address(admin))
    try:
        if settings.workers == 1:
            run_worker(settings, None, [main, admin], Alone())
        else:
            _serve_many(settings, [main, admin])
    finally:
        main.close()
        admin.close()


def _serve_many(settings: Settings, sockets: list[socket.socket]) -> None:
    with tempfile.TemporaryDirectory(prefix="lethe-") as name:
        work = partial(run_worker, settings, Path(name))
        grace = settings.drain_timeout + 5
        Workers(work, sockets, settings.workers, grace).run(time.monotonic)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
