"""What holds for an upstream and a model: its contract, and its own settings over that.

The table is read once, when the process starts. An upstream that is neither named nor known by its
host is asked for its models: engines say in `owned_by` what they are. That is off the path, and no
exchange waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import orjson
from msgspec.structs import replace

from proxy import __version__, providers
from proxy.core import contract as core
from proxy.core import paths, turn
from proxy.core.contract import Asked, Chosen, Contract, StreamUsage, UserTurn
from proxy.settings import Settings, UpstreamSettings
from proxy.upstream import Reply, Upstream
from proxy.ways import Target

_REMEMBERED = 1000
ASK_SECONDS = 2.0
"""Seconds for a list of models to come."""
AGAIN_SECONDS = 60.0
"""Until who could not be reached is asked again: engines may load a model for minutes."""
_LARGEST_LIST = 1 << 20


class Contracts:
    """The contracts of the configured upstreams. Raises SettingsError for a table that cannot be
    used.
    """

    def __init__(self, settings: Settings) -> None:
        own = Path(settings.providers) if settings.providers else None
        self.table = providers.load(own)
        self._ups = {up.name: up for up in settings.upstreams}
        self._rendered = settings.rendered_params
        self._owners: dict[str, Mapping[str, str]] = {}
        self._found: dict[tuple[str, str], Chosen] = {}

    def of(self, upstream: str, model: str) -> Chosen:
        """What holds there, and why; by the upstream's name."""
        key = (upstream, model)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            found = self._found[key] = self._choose(self._ups[upstream], model)
        return found

    def _choose(self, up: UpstreamSettings, model: str) -> Chosen:
        owner = _owner(self._owners.get(up.name, {}), model)
        chosen = core.choose(self.table, Asked(up.url, model, owner, up.contract or ""))
        return replace(chosen, contract=_with_settings(chosen.contract, up, self._rendered))

    def is_open(self, up: UpstreamSettings) -> bool:
        """Whether nothing tells yet what it is: neither a name nor a row for its host."""
        places = core.places(up.url)
        return not up.contract and not any(
            core.first_fit(contract.hosts, *places) for contract in self.table.contracts
        )

    def learn(self, upstream: str, owners: Mapping[str, str]) -> None:
        """What an engine calls itself, by model; holds from the next exchange on."""
        self._owners[upstream] = owners
        for key in [key for key in self._found if key[0] == upstream]:
            del self._found[key]

    def warnings(self) -> list[str]:
        """What is known against forgetting at the upstreams, as far as no request is needed."""
        told: dict[str, None] = {}
        for up in self._ups.values():
            for model in ("", *up.models):
                contract = self.of(up.name, model.strip("*")).contract
                if contract.warning:
                    told[f"{up.name} ({contract.name}): {contract.warning}"] = None
        return list(told)


def _with_settings(contract: Contract, up: UpstreamSettings, rendered: tuple[str, ...]) -> Contract:
    """What is set has the last word; members that are rendered are those of both."""
    first, usage = up.system_first, up.stream_usage
    return replace(
        contract,
        system_first=contract.system_first if first is None else first,
        stream_usage=contract.stream_usage if usage is None else StreamUsage(usage),
        rendered=core.joined(rendered, contract.rendered),
        user_turn=UserTurn.KEEPS if _preserves(contract, up) else contract.user_turn,
    )


def _preserves(contract: Contract, up: UpstreamSettings) -> bool:
    """Whether old reasoning stays in the prompt because we ask for it."""
    return up.preserve and contract.preserve is not None and bytes(contract.preserve) != b"{}"


def _owner(owners: Mapping[str, str], model: str) -> str:
    """What the model's entry says, else what all entries say."""
    if model in owners:
        return owners[model]
    said = set(owners.values())
    return said.pop() if len(said) == 1 else ""


async def ask(
    contracts: Contracts,
    door: Upstream,
    targets: Mapping[str, Target],
    ups: Iterable[UpstreamSettings],
) -> None:
    """Ask the upstreams that nothing is known of what they are, until each has answered."""
    left = [up for up in ups if up.detect and contracts.is_open(up)]
    while left := await ask_once(contracts, door, targets, left):  # noqa: ASYNC110  (nobody tells)
        await asyncio.sleep(AGAIN_SECONDS)


async def ask_once(
    contracts: Contracts,
    door: Upstream,
    targets: Mapping[str, Target],
    ups: Sequence[UpstreamSettings],
) -> list[UpstreamSettings]:
    """Ask all of them at once; those that did not answer."""
    answers = await asyncio.gather(*(_owners(door, targets[up.name], up) for up in ups))
    for up, owners in zip(ups, answers, strict=True):
        if owners:
            contracts.learn(up.name, owners)
    return [up for up, owners in zip(ups, answers, strict=True) if owners is None]


async def _owners(door: Upstream, target: Target, up: UpstreamSettings) -> Mapping[str, str] | None:
    """What it calls itself, by model; None where it did not answer."""
    headers = [
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"user-agent", b"lethe/" + __version__.encode()),
    ]
    if up.api_key:
        headers.append((b"authorization", b"Bearer " + up.api_key.encode()))
    url = paths.url_for(up.url, "/v1/models", b"")
    try:
        async with asyncio.timeout(ASK_SECONDS):
            reply = await door.send(target, "GET", url, headers, None)
            try:
                return await _said(reply)
            finally:
                await reply.aclose()
    except Exception:
        # Nobody waits for it, and nothing rests on it: whatever came in the way, exchanges go on.
        return None


async def _said(reply: Reply) -> Mapping[str, str] | None:
    if reply.status >= 500:
        return None
    return owners_in(await _read(reply)) if reply.status == 200 else {}


async def _read(reply: Reply) -> bytes:
    """The body, as far as a list of models is of use."""
    pieces, size = [], 0
    async for piece in reply.chunks:
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST_LIST:
            return b""
    return b"".join(pieces)


def owners_in(body: bytes) -> dict[str, str]:
    """`owned_by` by the model's id; empty for what is no list of models."""
    try:
        rows = orjson.loads(body)["data"]
    except (ValueError, KeyError, TypeError):
        return {}
    pairs = [(row.get("id"), row.get("owned_by")) for row in _tables(rows)]
    return {
        model: owner for model, owner in pairs[:_REMEMBERED] if _is_name(model) and _is_name(owner)
    }


def _tables(rows: object) -> list[dict[str, object]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= turn.LONGEST_MODEL
