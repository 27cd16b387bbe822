"""Settings that are each right and do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from proxy import providers
from proxy.core.contract import Table as Contracts
from proxy.reading import known_are
from proxy.settings import MOST_SHADOWS, KeySettings, Settings, UpstreamSettings


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach a listener there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Conflict = tuple[set[str], str]
"""The paths that are at odds, and the complaint; not made where one of them is bad by itself."""


def conflicts(settings: Settings, table: Contracts, serving: bool) -> Iterator[Conflict]:
    if serving:
        yield from _without_upstream(settings)
    yield from _shadows_at_odds(settings)
    yield from _without_shared_ledger(settings)
    yield from _listeners_at_odds(settings)
    for number, up in enumerate(settings.upstreams, 1):
        yield from _upstream_at_odds(settings, up, f"[[upstream]] {number} ({up.name})")
        yield from _without_contract(table, up, f"[[upstream]] {number} ({up.name})")
    for number, key in enumerate(settings.keys, 1):
        yield from _key_at_odds(settings, key, f"[[key]] {number} ({key.alias})")
    yield from _keys_at_odds(settings)


def _without_upstream(settings: Settings) -> Iterator[Conflict]:
    if not settings.upstreams:
        yield (
            {"upstream", "upstream.url"},
            "no upstream: give --upstream URL, set LETHE_UPSTREAM or write an [[upstream]] table",
        )


def _shadows_at_odds(settings: Settings) -> Iterator[Conflict]:
    names = settings.shadow
    if len(names) > MOST_SHADOWS:
        yield {"shadow"}, f"shadow: got {len(names)} policies; wanted {MOST_SHADOWS} at most"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield {"shadow"}, f"shadow: {name} stands twice; each policy is looked at once"


def _without_shared_ledger(settings: Settings) -> Iterator[Conflict]:
    if settings.workers > 1 and settings.ledger.redis is None:
        yield (
            {"workers", "ledger.redis"},
            f"{settings.workers} workers without Redis would each keep verdicts of their own and "
            "break each other's prefixes: give --redis URL (LETHE_REDIS, [ledger] redis), or run "
            "1 worker",
        )


def _listeners_at_odds(settings: Settings) -> Iterator[Conflict]:
    admin = settings.admin
    if not is_loopback(admin.host) and admin.token is None:
        yield (
            {"admin.host", "admin.token_env"},
            f"[admin] host {admin.host} can be reached from outside, and there is no token: set "
            f"{admin.token_env}, or listen on 127.0.0.1",
        )
    if admin.port == settings.port != 0:
        yield (
            {"port", "admin.port"},
            f"port and [admin] port are both {admin.port}; each listener wants its own",
        )


def _upstream_at_odds(settings: Settings, up: UpstreamSettings, where: str) -> Iterator[Conflict]:
    if not up.url:
        yield {"upstream.url"}, f"{where}: url is wanted"
    if sum(up.name == other.name for other in settings.upstreams) > 1:
        yield {"upstream.name"}, f"{where}: another upstream has this name; each wants its own"
    if up.client_key and not up.client_cert:
        yield (
            {"upstream.client_cert", "upstream.client_key"},
            f"{where}: client_key without client_cert",
        )
    aliases = [key.alias for key in settings.keys]
    for alias in up.keys:
        if alias not in aliases:
            yield (
                {"key.alias", "key", "upstream.keys"},
                f"{where}: no [[key]] has the alias {alias}; {known_are(alias, aliases)}",
            )


def _without_contract(table: Contracts, up: UpstreamSettings, where: str) -> Iterator[Conflict]:
    if up.contract is not None and table.named(up.contract) is None:
        close = providers.close_to(up.contract, [contract.name for contract in table.contracts])
        yield (
            {"upstream.contract", "providers"},
            f"{where}: no contract is named {up.contract}; {close}",
        )


def _key_at_odds(settings: Settings, key: KeySettings, where: str) -> Iterator[Conflict]:
    if (key.key_env is None) == (key.key_sha256 is None):
        yield (
            {"key.key_env", "key.key_sha256"},
            f"{where}: wanted either key_env or key_sha256, to know the key by",
        )
    names = [up.name for up in settings.upstreams]
    if key.upstream is not None and key.upstream not in names:
        yield (
            {"upstream", "upstream.name", "key.upstream"},
            f"{where}: no [[upstream]] is named {key.upstream}; {known_are(key.upstream, names)}",
        )
    if key.virtual:
        ups = [up for up in settings.upstreams if key.upstream in (None, up.name)]
        lacking = [up.name for up in ups if up.api_key is None]
        if lacking:
            yield (
                {"upstream", "upstream.name", "upstream.api_key_env", "key.upstream"},
                f"{where}: is virtual, and no api_key_env gives the key of {', '.join(lacking)}",
            )


def _keys_at_odds(settings: Settings) -> Iterator[Conflict]:
    aliases = [key.alias for key in settings.keys]
    for alias in sorted({alias for alias in aliases if aliases.count(alias) > 1}):
        yield {"key.alias"}, f"[[key]]: the alias {alias} stands twice; each key wants its own"
    by_digest: dict[str, list[str]] = {}
    for key in settings.keys:
        by_digest.setdefault(key.sha256, []).append(key.alias)
    for digest, names in by_digest.items():
        if digest and len(names) > 1:
            yield {"key.alias"}, f"[[key]]: {', '.join(names)} are one and the same key"
    if settings.virtual_keys and not any(key.virtual for key in settings.keys):
        yield (
            {"virtual_keys", "key", "key.virtual"},
            "virtual_keys is true and no [[key]] has virtual = true: nobody could get in",
        )
