"""Where the store is, read from its URL.

redis://[user:password@]host[:port][/db]      rediss:// with TLS (ssl_ca_certs, ssl_cert_reqs …)
unix://[user:password@]/path[?db=0]
redis+sentinel://[user:password@]host[:port][,host[:port] …]/service[/db]
redis+cluster://[user:password@]host[:port][,host[:port] …]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ssl import SSLContext, SSLError
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio.connection import SSLConnection, parse_url
from redis.exceptions import RedisError

from proxy.errors import SettingsError

_WANTED = (
    "redis://host, rediss://host, unix:///path, redis+sentinel://host,host/service "
    "or redis+cluster://host"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the store is. `nodes` are several with Sentinel and Cluster, none with a path."""

    kind: str
    nodes: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, Any], ...] | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)

    def context(self) -> SSLContext | None:
        """Raises SettingsError for certificates that cannot be read."""
        if self.tls is None:
            return None
        try:
            return SSLConnection(**dict(self.tls)).ssl_context.get()
        except (RedisError, OSError, SSLError, TypeError, ValueError) as error:
            raise SettingsError("the Redis URL's TLS options cannot be used") from error


def parse(url: str) -> Address:
    """Raises SettingsError, which does not repeat the URL: it may hold a password."""
    try:
        address = _parsed(url)
    except (ValueError, KeyError, IndexError) as error:
        raise SettingsError(f"the Redis URL cannot be read; wanted {_WANTED}") from error
    address.context()
    return address


def _parsed(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[2]
    secure = scheme.startswith("rediss")
    if scheme in ("redis", "rediss", "unix"):
        return _single(url)
    if scheme.partition("+")[0] not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
        raise ValueError("unknown scheme")
    parts = urlsplit(f"//{rest}")
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    sentinel_password = options.pop("sentinel_password", None)
    where = [piece for piece in parts.path.split("/") if piece]
    if (len(where) not in (1, 2)) if kind == "sentinel" else bool(where):
        raise ValueError("a service belongs to Sentinel, a path to no Cluster")
    return Address(
        kind,
        tuple(_node(host, 26379 if kind == "sentinel" else 6379) for host in hosts.split(",")),
        service=unquote(where[0]) if where else "",
        db=int(where[1]) if len(where) == 2 else 0,
        username=unquote(user) or None,
        password=unquote(password) or None,
        tls=_tls(options, secure),
        sentinel_password=sentinel_password,
    )


def _node(host: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("no host")
    return _named(parts.hostname), parts.port or default


def _named(host: str) -> str:
    """Raises ValueError for what cannot be looked up."""
    host.encode("idna")
    return host


def _single(url: str) -> Address:
    options: dict[str, Any] = dict(parse_url(url))
    secure = options.pop("connection_class", None) is SSLConnection
    host, port = options.pop("host", ""), options.pop("port", 6379)
    path = options.pop("path", "")
    if not (host or path):
        raise ValueError("neither host nor path")
    known = {name: options.pop(name, None) for name in ("username", "password")}
    db = int(options.pop("db", 0))
    return Address(
        "single",
        ((_named(host), port),) if host else (),
        path,
        db=db,
        tls=_tls(options, secure),
        **known,
    )


def _tls(options: dict[str, Any], secure: bool) -> tuple[tuple[str, Any], ...] | None:
    for name in options:
        if not (secure and name.startswith("ssl_")):
            raise ValueError(f"unknown option {name}")
    return tuple(options.items()) if secure else None
