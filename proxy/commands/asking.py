"""How a command asks the admin listener's API: where that is, and what to say where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from proxy.conflicts import is_loopback
from proxy.errors import ProxyError, SettingsError
from proxy.loading import load
from proxy.page import plain

if TYPE_CHECKING:
    import httpx

Json = Mapping[str, Any]
Ask = Callable[..., Json]
"""Asks for a path, with the query's members by name."""

_TIMEOUT = 10.0


class Unanswered(ProxyError):
    """The admin listener did not give what was asked; the message says what to type next."""

    code = "unanswered"


@dataclass(frozen=True, slots=True)
class Admin:
    """Where the admin listener is. `token` is sent to it and to nothing else."""

    url: str
    token: str | None


def admin_at(url: str | None, config: Path | None, environ: Mapping[str, str]) -> Admin:
    """From `--admin`, else as the proxy itself would find it. Raises SettingsError."""
    if url is not None:
        if not urlsplit(url).scheme.startswith("http") or not urlsplit(url).hostname:
            raise SettingsError(f"--admin: got {url!r}; wanted a URL: http://127.0.0.1:4101")
        return Admin(url.rstrip("/"), environ.get("LETHE_ADMIN_TOKEN") or None)
    own = load({}, environ, config, serving=False).admin
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(own.host, own.host)
    return Admin(f"http://{f'[{host}]' if ':' in host else host}:{own.port}", own.token)


@contextmanager
def asking(admin: Admin, timeout: float = _TIMEOUT) -> Iterator[Ask]:
    """A function that asks the API for a path. Raises Unanswered, which says what to do."""
    import httpx  # only here: a worker that serves has no use for it, and it takes 3 MB

    local = is_loopback(urlsplit(admin.url).hostname or "")
    with httpx.Client(base_url=admin.url, timeout=timeout, trust_env=not local) as client:
        try:
            _known(client, admin)
            headers = {"authorization": f"Bearer {admin.token}"} if admin.token else {}
            yield lambda path, **query: _answer(client.get(path, params=query, headers=headers))
        except httpx.TransportError as error:
            late = isinstance(error, httpx.TimeoutException)
            raise Unanswered(_unreachable(admin, late)) from error


def _known(client: httpx.Client, admin: Admin) -> None:
    """Make sure who answers before a token goes there: the main port would pass it on."""
    try:
        told = client.get("/readyz").json()
    except ValueError:
        told = None
    if not isinstance(told, dict) or "ledger" not in told:
        raise Unanswered(
            f"what answers at {admin.url} is not the admin listener of a Lethe "
            "(that is another port than the one clients call, 4101 by default): --admin URL"
        )


def _unreachable(admin: Admin, late: bool) -> str:
    what = "gives no answer in time" if late else "is not there"
    return (
        f"the admin listener at {admin.url} {what}\n"
        "  start a proxy:        lethe serve --upstream https://api.example.com\n"
        "  it is elsewhere:      --admin http://host:4101, or --config FILE as lethe serve had it"
    )


def _answer(reply: httpx.Response) -> Json:
    if reply.status_code == 401:
        raise Unanswered(
            "the admin listener wants its token: export LETHE_ADMIN_TOKEN=… "
            "(a client's key shows that key's own conversations)"
        )
    try:
        found = reply.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unanswered(f"status {reply.status_code} and no JSON from {reply.url.path}")
    if not reply.is_success:
        said = found.get("error")
        message = said.get("message") if isinstance(said, dict) else None
        raise Unanswered(plain.line(str(message or f"status {reply.status_code}")))
    return found
