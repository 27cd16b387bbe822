"""What models cost: the rows of the configuration first, then a price list of the providers.

The list is genai-prices', read once by a program of its own (`proxy.pricelist`): its data would
stay in a worker's memory and hold up what it serves while it is read. What comes out is kept: 0.1
MB for most providers, 1.7 for the one with the most models. Nobody waits for it: until it is there,
an exchange has no price, and is counted as one whose price was pending. Upstreams at a bare address
or a name without a dot are nobody's, and not asked for.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from proxy import pricefile
from proxy.core import tariff
from proxy.core.tariff import Extract, Rate, Rates, Row, Tariff, Unpriced
from proxy.pricefile import PriceRow
from proxy.settings import Settings, UpstreamSettings

PATIENCE = 30.0
"""Seconds for the list to be read; it takes a third of one."""
_REMEMBERED = 1000
_MOST_TOLD = 100
_MOST_READ = 64 << 20

Found = Tariff | Unpriced


Answer = Callable[[bytes], bytes]
"""What `proxy.pricelist` does with a question."""


class Prices:
    """Tariffs by upstream and model. A model without one is not priced, which is not the same as
    free: `tell` is handed a line the first time, for the first hundred of them.
    """

    def __init__(self, settings: Settings, tell: Callable[[str], None] = lambda line: None) -> None:
        rows, _ = pricefile.read(Path(settings.prices) if settings.prices else None)
        self._rows = tuple((row, _tariff(row)) for row in rows)
        self._asked = _asked(settings.upstreams)
        self._list: Extract | Unpriced = Unpriced.PENDING if self._asked else Unpriced.PROVIDER
        self._found: dict[tuple[str, str], Found] = {}
        self._tell, self._told = tell, set[tuple[str, str]]()

    def of(self, upstream: str, model: str) -> Found:
        """What a model costs at an upstream, by the upstream's name; or why nobody knows."""
        known = self._found.get((upstream, model))
        if known is None:
            known = self._look_up(upstream, model)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            if known is not Unpriced.PENDING:
                self._found[upstream, model] = known
        return known

    def _look_up(self, upstream: str, model: str) -> Found:
        for row, prices in self._rows:
            if fnmatchcase(model, row.model) and fnmatchcase(upstream, row.upstream):
                return prices
        if isinstance(self._list, Extract):
            return self._list.find(upstream, model)
        return self._list if upstream in self._asked else Unpriced.PROVIDER

    def missed(self, upstream: str, model: str, why: Unpriced) -> None:
        """Tell of a model without a price, once. Its name comes from outside: told in ASCII."""
        if why in _UNTOLD or (upstream, model) in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add((upstream, model))
        self._tell(
            f"lethe: no price for model {model[:100]!a} at upstream {upstream}: {_REASONS[why]}. "
            "Its exchanges are counted as unpriced, never as free; a [[price]] table in the file "
            "that `prices` names gives it one"
        )

    async def load(self, answer: Answer | None = None) -> None:
        """Read the list, with `answer` in this very process. Whatever fails is told, and harms no
        exchange.
        """
        if not self._asked:
            return
        question = msgspec.json.encode(_question(self._asked))
        try:
            raw = answer(question) if answer else await _in_a_process_of_its_own(question)
            self._list = tariff.read_extract(raw)
        except (OSError, ValueError, TimeoutError, ImportError) as error:
            self._list = Unpriced.NO_LIST
            self._tell(f"lethe: the price list cannot be read ({type(error).__name__}): {_MISSING}")


_UNTOLD = frozenset({Unpriced.PENDING, Unpriced.NO_LIST, Unpriced.USAGE})
_REASONS = {
    Unpriced.PROVIDER: "the price list knows no provider at its host (the upstream's `priced_as` "
    "names one)",
    Unpriced.MODEL: "the price list has none",
}
_MISSING = "is the package genai-prices installed? Models are priced by [[price]] tables alone"


def _asked(upstreams: tuple[UpstreamSettings, ...]) -> dict[str, UpstreamSettings]:
    """The upstreams that the list is to be asked for, by name."""
    return {up.name: up for up in upstreams if up.priced_as or _is_public(up.url)}


def _is_public(url: str) -> bool:
    """Whether the host is a name that a provider could have."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        ip_address(host)
        return False
    return "." in host


def _question(asked: dict[str, UpstreamSettings]) -> dict[str, dict[str, str]]:
    """What `proxy.pricelist` reads."""
    return {
        "bases": {name: up.url for name, up in asked.items() if up.priced_as is None},
        "named": {name: up.priced_as for name, up in asked.items() if up.priced_as is not None},
    }


async def _in_a_process_of_its_own(question: bytes) -> bytes:
    """Raises OSError where it does not run or fails, TimeoutError where it takes too long."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.pricelist", limit=_MOST_READ,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            answer, _ = await process.communicate(question)
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    if process.returncode:
        raise OSError(f"it ended with {process.returncode}")
    return answer


def rates_of(row: PriceRow) -> Rates:
    """What a `[[price]]` table gives."""
    read, write, hour = (
        None if price is None else Rate(price)
        for price in (row.cache_read, row.cache_write, row.cache_write_1h)
    )
    return Rates(Rate(row.input), Rate(row.output), read, write, hour)


def _tariff(row: PriceRow) -> Tariff:
    return Tariff(row.model, "", (Row(rates_of(row)),), row.source or "configuration", row.date)


def listed(
    model: str, providers: Iterable[str], file: Path | None, answer: Answer
) -> tuple[Tariff, ...]:
    """All that is known of a model's price, without an upstream: the rows of `file` that fit its
    name, then the list's at each of the providers.
    """
    rows, _ = pricefile.read(file)
    own = (_tariff(row) for row in rows if fnmatchcase(model, row.model))
    question = {"bases": {}, "named": {name: name for name in providers}}
    known = tariff.read_extract(answer(msgspec.json.encode(question)))
    found = (known.find(name, model) for name in known.upstreams)
    return (*own, *(one for one in found if isinstance(one, Tariff)))
