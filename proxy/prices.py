"""The prices of a model: the first configured pattern that fits; none where none does."""

from __future__ import annotations

from fnmatch import fnmatchcase

from proxy.core import pricing
from proxy.core.pricing import Sheet
from proxy.settings import Settings

_REMEMBERED = 1000


class Prices:
    """Price sheets by model. A model without one is not priced, which is not the same as free."""

    def __init__(self, settings: Settings) -> None:
        self._rows = [
            (row.model, pricing.sheet(row.input, row.cache_read, row.cache_write, row.output))
            for row in settings.prices
        ]
        self._found: dict[str, Sheet | None] = {}

    def of(self, model: str) -> Sheet | None:
        if not self._rows:
            return None
        if model not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            fits = (prices for pattern, prices in self._rows if fnmatchcase(model, pattern))
            self._found[model] = next(fits, None)
        return self._found[model]
