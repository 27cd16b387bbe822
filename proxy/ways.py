"""How one gets to an upstream: straight, through a proxy that forwards, or through a tunnel; with
the trust that is configured for it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment as bypass  # type: ignore[attr-defined]

from aiohappyeyeballs import start_connection

from proxy.errors import SettingsError, UpstreamUnreachable
from proxy.http1 import Connection, Cut, NotHttp

# RFC 8305 § 8.
_NEXT_ADDRESS = 0.25
# A reasoning model may be silent for minutes: probes keep middleboxes from forgetting the
# connection and find a peer that has vanished, after 60 + 5 * 15 s.
_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 5))


@dataclass(frozen=True, slots=True)
class Target:
    """One upstream as configured. Times in seconds, files as paths."""

    name: str
    base: str
    """Absolute URL without a trailing slash; `core.paths` says what is appended."""
    first_byte_timeout: float
    """How long the upstream may leave us waiting, until the reply's headers. Models may think for
    minutes before their first byte; the time a client takes to send a streamed body is not in it.
    """
    connect_timeout: float
    """To a usable connection; the wait for a free one under `max_connections` is part of it."""
    ca_file: str | None = None
    """PEM bundle to trust instead of the system's."""
    client_cert: str | None = None
    client_key: str | None = None
    trust_env: bool = True
    """Whether `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are honoured."""
    max_connections: int = 0
    """Connections of one worker to this upstream; 0 for no bound."""


def checked(target: Target) -> SplitResult:
    """The parts of its URL. Raises SettingsError for one that cannot be used."""
    try:
        base = urlsplit(target.base)
        usable = base.scheme in _PORTS and base.hostname and base.port != 0
    except ValueError:
        usable = False
    if not usable or base.username or not base.netloc.isascii():
        raise SettingsError(
            f"upstream '{target.name}': want http(s)://host…, without a user name in it"
        )
    return base


def _tls(target: Target) -> ssl.SSLContext:
    """The system's trust, unless the target brings certificates."""
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
        context.set_alpn_protocols(["http/1.1"])
        if target.client_cert:
            context.load_cert_chain(target.client_cert, target.client_key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (target.ca_file, target.client_cert, target.client_key)))
        raise SettingsError(
            f"upstream '{target.name}': no certificates in {files}: {error.strerror}"
        ) from error
    return context


@dataclass(frozen=True, slots=True)
class Way:
    """How one gets to an upstream: straight, through a proxy that forwards, or through a tunnel.

    `extra` are header lines that go with each request.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    extra: tuple[bytes, ...] = ()
    absolute: bool = False
    tunnel: _Tunnel | None = None

    def target(self, url: str) -> bytes:
        """What a request line says of a URL."""
        return (url if self.absolute else "/" + url.split("/", 3)[3]).encode()

    async def open(self, made: Callable[[], Connection]) -> Connection:
        """A connection ready for requests. Raises OSError; UpstreamUnreachable of a proxy."""
        outer = await self._reached(made)
        if self.tunnel is None:
            return outer
        try:
            return await self.tunnel.through(outer, made)
        except BaseException:
            outer.abort()
            raise

    async def _reached(self, made: Callable[[], Connection]) -> Connection:
        dialled = await _dialled(self.host, self.port)
        name = self.host if self.tls else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                made, sock=dialled, ssl=self.tls, server_hostname=name
            )
        except BaseException:
            dialled.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class _Tunnel:
    """A TLS upstream behind a proxy. `credential` is the proxy's header line, or empty."""

    host: str
    port: int
    tls: ssl.SSLContext
    credential: bytes

    async def through(self, outer: Connection, made: Callable[[], Connection]) -> Connection:
        """A connection inside the one to the proxy. Raises OSError and UpstreamUnreachable."""
        to = f"{self.host}:{self.port}".encode()
        lines = [b"CONNECT %b HTTP/1.1" % to, b"Host: %b" % to]
        lines += [self.credential] if self.credential else []
        incoming = outer.begin(bodiless=True, tunnel=True)
        outer.write(b"\r\n".join([*lines, b"\r\n"]))
        try:
            await incoming.here
        except (NotHttp, Cut) as error:
            raise ConnectionResetError(errno.ECONNRESET, "") from error
        if incoming.status != 200:
            raise UpstreamUnreachable(f"the proxy on the way to {self.host} said {incoming.status}")
        inner = made()
        transport = await outer.loop.start_tls(
            outer.transport.inner, inner, self.tls, server_hostname=self.host
        )
        assert transport is not None
        inner.connection_made(transport)
        return inner


async def _dialled(host: str, port: int) -> socket.socket:
    """A socket to the host: a second address is tried where the first one does not answer soon."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    dialled = await start_connection(
        [(f, t, p, n, a) for f, t, p, n, a in found], happy_eyeballs_delay=_NEXT_ADDRESS, loop=loop
    )
    dialled.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):
            dialled.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return dialled


def way_to(target: Target, base: SplitResult, proxies: Mapping[str, str]) -> Way:
    """Raises SettingsError for a proxy of the environment that cannot be used."""
    tls = _tls(target) if base.scheme == "https" or target.ca_file or target.client_cert else None
    host, port = base.hostname or "", base.port or _PORTS[base.scheme]
    found = proxies.get(base.scheme) or proxies.get("all")
    if not found or bypass(f"{host}:{port}", dict(proxies)):
        return Way(host, port, tls if base.scheme == "https" else None)
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme not in _PORTS or not proxy.hostname:
        raise SettingsError(
            f"a {proxy.scheme} proxy is named by the environment; http and https work"
        )
    credential = _credential(proxy)
    outer = ssl.create_default_context() if proxy.scheme == "https" else None
    at = (proxy.hostname, proxy.port or _PORTS[proxy.scheme], outer)
    if base.scheme == "http" or tls is None:
        return Way(*at, (credential,) if credential else (), absolute=True)
    return Way(*at, tunnel=_Tunnel(host, port, tls, credential))


def _credential(proxy: SplitResult) -> bytes:
    if proxy.username is None:
        return b""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return b"Proxy-Authorization: Basic " + b64encode(pair)


_PORTS = {"http": 80, "https": 443}
