"""Starts what is compared, each on a core of its own, and stops it by its process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import system
from tests.doors import redis_server

DIRECT, NGINX, LETHE, SHARED = "direct", "nginx", "Lethe", "with Valkey"
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Contender:
    """Where it listens, and its first process; none for the upstream, whose time is of no
    interest.
    """

    name: str
    port: int
    pid: int | None = None

    def pids(self) -> list[int]:
        """All its processes, the worker last. nginx starts its own a little after it listens."""
        return [] if self.pid is None else system.family(self.pid)


@contextmanager
def started(upstream: int, own: int, core: int, folder: Path) -> Iterator[list[Contender]]:
    """All that can be had here, started anew, in the report's order. `own` is the bench's core."""
    with ExitStack() as stack:
        found = [Contender(DIRECT, upstream)]
        if nginx := nginx_path():
            found.append(stack.enter_context(_nginx(nginx, upstream, core, folder)))
        found.append(stack.enter_context(_lethe(LETHE, upstream, core, folder)))
        if url := stack.enter_context(_valkey(own, folder)):
            redis = ("--redis", url)
            found.append(stack.enter_context(_lethe(SHARED, upstream, core, folder, *redis)))
        yield found


def nginx_path() -> str | None:
    """Debian keeps it where only root's PATH looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def _lethe(name: str, upstream: int, core: int, folder: Path, *more: str) -> Iterator[Contender]:
    port, admin = free_port(), free_port()
    command = [
        sys.executable, "-m", "proxy", "serve", "--upstream", f"http://127.0.0.1:{upstream}",
        "--port", str(port), "--admin-port", str(admin), "--policy", "drop",
        "--log", str(folder / f"{port}.log"), *more,
    ]  # fmt: skip
    with running(command, folder / f"{port}.err", core) as process:
        _wait(process, port, folder / f"{port}.err")
        yield Contender(name, port, process.pid)


_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.err warn;
{user}
events {{ worker_connections 1024; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  client_max_body_size 64m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream bench {{
    server 127.0.0.1:{upstream};
    keepalive 64;
    keepalive_requests 100000000;
    keepalive_timeout 600s;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://bench;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      client_body_buffer_size 256k;
    }}
  }}
}}
"""


@contextmanager
def _nginx(path: str, upstream: int, core: int, folder: Path) -> Iterator[Contender]:
    port, config = free_port(), folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(_CONFIG.format(folder=folder, user=user, upstream=upstream, port=port))
    command = [path, "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.err")]
    with running(command, folder / "nginx.out", core) as process:
        _wait(process, port, folder / "nginx.err")
        yield Contender(NGINX, port, process.pid)


@contextmanager
def _valkey(core: int, folder: Path) -> Iterator[str | None]:
    """The URL of a server on the bench's core; None where the wheel is not installed."""
    path = redis_server.valkey()
    if path is None:
        yield None
        return
    port, told = free_port(), folder / "valkey.out"
    command = [path, "--port", str(port), "--save", "", "--dir", str(folder)]
    with running(command, told, core) as process:
        _wait(process, port, told)
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def running(
    command: Sequence[str], told: Path, core: int, **more: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process on one core; asked to stop at the end, killed where it does not."""
    with told.open("wb") as file:
        # Children and threads inherit the core; it is set before the process can have any.
        process = subprocess.Popen(command, **{"stdout": file, "stderr": file, **more})
        os.sched_setaffinity(process.pid, {core})
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], port: int, told: Path) -> None:
    """Until it listens. Raises RuntimeError, with what it said, where it ends or takes too long."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not listen: {told.read_text()[-2000:]}")
