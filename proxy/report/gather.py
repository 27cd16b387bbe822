"""Gathers conversations from the admin API, page by page, the most recently active first.

A conversation that is active while the pages are read moves to the front, where it was passed
already: so the front is read again at the end, down to where it began, and the later row of a
conversation counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proxy.errors import ProxyError
from proxy.report.run import Run, read

Ask = Callable[..., Mapping[str, Any]]
"""Asks for a path, with the query's members by name, and gives the answer's JSON."""
PAGE = 100
_PATH = "/lethe/conversations"


class Partial(ProxyError):
    """The ledger's store did not answer: a report over a part would be taken for one of all."""

    code = "partial"


def gathered(
    ask: Ask, since: float | None = None, tick: Callable[[int], None] = lambda count: None
) -> list[Run]:
    """All that the caller may see, or those active at `since` (seconds since the epoch) or later;
    oldest first. `tick` is told how many there are so far. Raises Partial.
    """
    found: dict[str, Run] = {}
    for run in _read(ask, since):
        found.setdefault(run.id, run)
        tick(len(found))
    if found:
        began = max(run.at for run in found.values())
        found |= {run.id: run for run in _read(ask, began) if run.at > began}
    return sorted(found.values(), key=lambda run: (run.at, run.id))


def _read(ask: Ask, since: float | None) -> Iterator[Run]:
    query: dict[str, Any] = {"sums": True, "limit": PAGE}
    if since is not None:
        query["since"] = since
    while True:
        page = ask(_PATH, **query)
        if page.get("ledger") != "up":
            raise Partial("the ledger's store does not answer, so there is no report; try again")
        yield from map(read, page["conversations"])
        if page.get("next") is None:
            return
        query["before"] = page["next"]
