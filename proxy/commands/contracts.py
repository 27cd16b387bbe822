"""`lethe contracts`: the table of contracts, and which one an upstream and model get, and why."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from proxy import contracts as contracts_room
from proxy.commands import options
from proxy.commands.telling import told
from proxy.contracts import Contracts
from proxy.core.contract import (
    CacheRule,
    Chosen,
    Contract,
    Drops,
    Encoding,
    Requires,
    Reuse,
    Template,
    UserTurn,
)
from proxy.errors import SettingsError
from proxy.loading import load
from proxy.page.plain import numbered
from proxy.settings import Settings, UpstreamSettings
from proxy.upstream import Upstream
from proxy.ways import Target

if TYPE_CHECKING:
    from rich.table import Table

_UPSTREAM = typer.Option(
    metavar="URL|NAME", help="One upstream: its base URL, or its name in the configuration."
)
_MODEL = typer.Option(metavar="NAME", help="With --upstream: the model that clients ask for there.")


def contracts(
    upstream: Annotated[str | None, _UPSTREAM] = None,
    model: Annotated[str, _MODEL] = "",
    config: Annotated[Path | None, options.CONFIG] = None,
    as_json: Annotated[bool, options.JSON] = False,
) -> None:
    """What providers and engines allow, and what an upstream gets.

    A contract says what a provider or an engine takes, refuses and caches. Without --upstream all
    of them are listed; with it, the one that holds there, in full, and why.

    \b
      lethe contracts --upstream https://api.deepseek.com --model deepseek-chat
    """
    with told():
        settings = load({}, os.environ, config, serving=False)
        if upstream is None and model:
            raise SettingsError("--model: it needs --upstream URL, where that model is served")
        if upstream is None:
            _print_table(Contracts(settings), as_json)
        else:
            up = _named(settings, upstream)
            _print_chosen(_chosen(replace(settings, upstreams=(up,)), up, model), as_json)


# One upstream


def _named(settings: Settings, upstream: str) -> UpstreamSettings:
    """The configured upstream of that name or URL, else one with nothing but the URL."""
    url = upstream.rstrip("/")
    for up in settings.upstreams:
        if upstream == up.name or url == up.url:
            return up
    if "://" not in upstream:
        names = ", ".join(up.name for up in settings.upstreams) or "none"
        raise SettingsError(f"no upstream is named {upstream}; configured: {names}; or give a URL")
    return load({"upstream": upstream}, {}, None).upstreams[0]


def _chosen(settings: Settings, up: UpstreamSettings, model: str) -> Chosen:
    known = Contracts(settings)
    if up.detect and known.is_open(up):
        asyncio.run(_ask(known, up))
    return known.of(up.name, model)


async def _ask(known: Contracts, up: UpstreamSettings) -> None:
    """Ask it what it is, as the proxy does when it starts."""
    seconds = contracts_room.ASK_SECONDS
    target = Target(
        up.name, up.url, seconds, seconds, up.ca_file, up.client_cert, up.client_key, up.trust_env
    )
    door = Upstream([target], clock=time.monotonic)
    await door.open()
    try:
        await contracts_room.ask_once(known, door, {up.name: target}, [up])
    finally:
        await door.close()


def _print_chosen(chosen: Chosen, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    fields = plain(chosen.contract)
    if as_json:
        print(json.dumps({"why": chosen.why, **fields}, indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_row("contract", chosen.contract.name)
    table.add_row("why", chosen.why)
    for key, value in fields.items():
        if key not in ("name", "errors"):
            table.add_row(key, _words(value))
    for row in chosen.contract.errors:
        table.add_row(f"400 → {row.remedy.value}", row.error)
    Console().print(table, markup=False)


def _words(value: Any) -> str:
    match value:
        case None | "" | []:
            return "–"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(value)
        case dict():
            return ", ".join(f"{key} {_inside(inner)}" for key, inner in value.items())
        case _:
            return str(value)


def _inside(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list | bool) else _words(value)


# All of them


def plain(row: Contract | Template) -> dict[str, Any]:
    """A row as JSON has it, with every key."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(row))
    return found


def _print_table(known: Contracts, as_json: bool) -> None:
    from rich.console import Console

    table = known.table
    if as_json:
        told = {
            "contracts": [plain(row) for row in table.contracts],
            "templates": [plain(row) for row in table.templates],
            "errors": msgspec.to_builtins(table.errors),
        }
        print(json.dumps(told, indent=2))
        return
    console = Console()
    console.print(_contracts_table(table.contracts), markup=False)
    console.print()
    console.print(_templates_table(table.templates), markup=False)
    console.print("\nOne of them in full: lethe contracts --upstream URL --model NAME")


def _contracts_table(rows: Iterable[Contract]) -> Table:
    table = _empty("contract", "is for", "what it does")
    for contract in rows:
        table.add_row(contract.name, _is_for(contract), "; ".join(_does(contract)))
    return table


def _is_for(contract: Contract) -> str:
    owners = [f"owned_by {owner}" for owner in contract.owned_by]
    return "\n".join((*contract.hosts, *owners, *contract.models)) or "by its name alone"


def _does(contract: Contract) -> Iterator[str]:
    match contract.drops:
        case Drops.ANY:
            yield "drops are legal" + _left(contract.encoding)
        case Drops.NEVER:
            yield "drops are refused"
        case Drops.ALL_OR_NOTHING:
            yield "drops are legal for a whole conversation"
    if contract.requires is not Requires.NOTHING:
        calls = "" if contract.requires is Requires.EVERY else " with tool calls"
        yield f"every assistant message{calls} needs its reasoning field"
    if contract.user_turn is not UserTurn.KEEPS:
        yield f"a new user message {contract.user_turn.value} earlier reasoning".replace(
            "stub", "leaves a stub of"
        )
    yield _cache(contract.cache)
    policy = f"{contract.default_policy} by default" if contract.default_policy else ""
    if told := ": ".join(filter(None, (policy, contract.warning))):
        yield told


def _left(encoding: Encoding) -> str:
    return " (the member goes)" if encoding is Encoding.ABSENT else ""


def _cache(rule: CacheRule | None) -> str:
    if rule is None:
        return "cache rule not known"
    if rule.reuse is Reuse.NONE:
        return "no cache"
    least = f" from {rule.minimum}" if rule.minimum else ""
    ttl = f", {rule.ttl:.0f} s" if rule.ttl else ""
    return f"cache {rule.reuse.value}, {numbered(rule.block, 'token')} at a time{least}{ttl}"


def _templates_table(rows: Iterable[Template]) -> Table:
    table = _empty("template", "is for", "what it does")
    for template in rows:
        table.add_row(template.name, "\n".join(template.models), "; ".join(_renders(template)))
    return table


def _renders(template: Template) -> Iterator[str]:
    if template.user_turn is not None:
        yield f"user turn: {template.user_turn.value}"
    if preserve := plain(template)["preserve"]:
        yield f"keeps with {json.dumps(preserve)}"
    if template.default_policy:
        yield f"{template.default_policy} by default"


def _empty(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    table.columns[0].no_wrap = True
    return table
