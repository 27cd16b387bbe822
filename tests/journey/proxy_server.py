"""The real proxy on loopback ports, for tests that talk to it over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.app import bound, opened, serving
from proxy.doors import Doors
from proxy.loading import load
from proxy.settings import Settings


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    admin: str
    doors: Doors


def settings_for(upstream: str, file: Path | None = None, **options: Any) -> Settings:
    """Settings as the command line would give them; ports are the system's choice, the log is
    off.
    """
    given: Mapping[str, Any] = {"upstream": upstream, "port": 0, "admin_port": 0, "log": "off"}
    environ = options.pop("environ", {})
    return load({**given, **options}, environ, file)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Serve until the block ends."""
    main, admin = bound("127.0.0.1", 0), bound("127.0.0.1", 0)
    ports = [listener.getsockname()[1] for listener in (main, admin)]
    async with opened(settings) as doors, serving(doors, main, admin):
        yield Running(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", doors)
    main.close()
    admin.close()
