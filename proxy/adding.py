"""What an upstream's settings add to a request, before it is judged: opt-in, and each pinned to the
conversation, so that what is switched on in mid-life rewrites nothing that a cache holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from proxy.core import additions, noise, tool_order
from proxy.core.additions import NOTHING, Added
from proxy.core.contract import Contract
from proxy.core.turn import Turn
from proxy.core.wire import chat
from proxy.doors import Doors
from proxy.ledger.contract import Ask
from proxy.settings import UpstreamSettings

Names = Mapping[bytes, bytes]
_YES, _NO = b"y", b"n"


async def added(
    doors: Doors, it: Turn, named: Names, up: UpstreamSettings, contract: Contract
) -> tuple[Turn, Added]:
    """The request with what is added to it, read anew, and the account of that."""
    if not _wanted(up):
        return it, NOTHING
    made = additions.together(
        await _preserved(doors, it, up, contract),
        _affinity(it, named, up, contract),
        await _ordered(doors, it, up),
        await _without_noise(doors, it, up),
    )
    if not made.edits:
        return it, made
    return doors.memo.read(chat.apply(it.body, made.edits), it.scope), made


def _wanted(up: UpstreamSettings) -> bool:
    return up.preserve or up.affinity or up.tool_order != "off" or bool(up.pinned_patterns)


async def _preserved(doors: Doors, it: Turn, up: UpstreamSettings, contract: Contract) -> Added:
    """Only a conversation that began with it goes on with it."""
    if not up.preserve or contract.preserve is None:
        return NOTHING
    pinned = await _pins(doors, it, {"preserve": _NO if it.steps else _YES})
    if pinned["preserve"] != _YES:
        return NOTHING
    wanted = msgspec.json.decode(contract.preserve)
    return additions.preserve(it.body, it.fields, wanted)


def _affinity(it: Turn, named: Names, up: UpstreamSettings, contract: Contract) -> Added:
    if not up.affinity:
        return NOTHING
    id = additions.affinity_id(it.root)
    return additions.affinity(it.body, it.fields, named, contract.affinity, id)


async def _ordered(doors: Doors, it: Turn, up: UpstreamSettings) -> Added:
    """In the order of the first request; each batch of late tools gets a pin of its own."""
    if up.tool_order == "off":
        return NOTHING
    pins: list[bytes] = []
    while (more := _offer(doors, it, up, pins)) is not None:
        name = f"tools.{len(pins)}"
        pins.append((await _pins(doors, it, {name: more}))[name])
    return tool_order.apply(it, pins)


def _offer(doors: Doors, it: Turn, up: UpstreamSettings, pins: Sequence[bytes]) -> bytes | None:
    """The next pin: the one that stands as far as this worker knows, else a new one."""
    known = doors.ledger.pinned(it.root, it.conversation).get(f"tools.{len(pins)}")
    return known or tool_order.offer(it, up.tool_order == "by_name", pins)


async def _without_noise(doors: Doors, it: Turn, up: UpstreamSettings) -> Added:
    if not up.pinned_patterns or doors.settings.ledger.history != "full":
        return NOTHING
    patterns = [re.compile(pattern) for pattern in up.pinned_patterns]
    known = doors.ledger.pinned(it.root, it.conversation).get("system_values")
    offered = known or noise.offer(it, patterns)
    pinned = await _pins(doors, it, {"system_values": offered})
    return noise.apply(it, patterns, pinned["system_values"])


async def _pins(doors: Doors, it: Turn, offered: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """What stands under these names; the ledger is asked for what this worker does not know."""
    known = doors.ledger.pinned(it.root, it.conversation)
    if offered.keys() <= known.keys():
        return known
    setting = doors.ledger.setting(it.scope)
    ask = Ask(it.scope, it.root, it.conversation, (), (), (), setting, (), offered)
    return (await doors.ledger.settle(ask)).pins
