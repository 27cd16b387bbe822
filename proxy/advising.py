"""Tells who runs this what a refusal has taught, and what to write down so that no other
conversation meets it: once for each upstream, model and lesson.
"""

from __future__ import annotations

import json

from proxy.core.contract import UNKNOWN, Contract, Remedy, places
from proxy.doors import Doors
from proxy.settings import UpstreamSettings

MOST_TOLD = 100
"""Lines of advice that one process gives: names of models come from outside."""
_LONGEST_MODEL = 100
_USAGE = ("to report usage in a stream", 'stream_usage = "refused"')
_WORDS = {
    Remedy.EMPTY: (
        "assistant messages that have no reasoning field; an empty one is taken",
        'requires = "every"',
    ),
    Remedy.RESTORE: (
        "assistant messages without the reasoning that was generated; what is kept of it is put "
        "back, and an empty field taken for the rest",
        'requires = "every"',
    ),
    Remedy.ABSENT: (
        "reasoning in assistant messages; without it they are taken",
        'requires = "absence", encoding = "absent"',
    ),
    Remedy.KEEP: (
        "assistant messages whose reasoning was taken out; with it they are taken",
        'drops = "never"',
    ),
}
"""What was refused, and the keys of a contract that say so."""


def advise(
    doors: Doors, up: UpstreamSettings, model: str, contract: Contract, remedy: Remedy | None
) -> None:
    """`remedy` is what helped; None: that usage was not asked for."""
    what, keys = _USAGE if remedy is None else _WORDS[remedy]
    named = json.dumps(model[:_LONGEST_MODEL])
    lesson = f"{up.name} {named if remedy else ''} {what}"
    if lesson in doors.state.told or len(doors.state.told) >= MOST_TOLD:
        return
    doors.state.told.add(lesson)
    doors.tell(
        f"lethe: upstream {up.name} refused, for model {named} under contract {contract.name}, "
        f"{what}. That is remembered for a while. To have it from the first request on, put into "
        f"the file that `providers` names: [[contract]] {_row(up, named, contract)}, {keys}"
    )


def _row(up: UpstreamSettings, model: str, contract: Contract) -> str:
    """For whom the row is: what the contract's own name stands for, else this host and model."""
    if up.contract:
        return f'name = "{contract.name}"'
    like = "" if contract.name == UNKNOWN.name else f', like = "{contract.name}"'
    return f'name = "own", hosts = ["{places(up.url)[0]}"], models = [{model}]{like}'
