"""What this worker has learned of how many bytes each model makes of a token."""

from __future__ import annotations

from proxy.core.ratio import Ratio
from proxy.core.seen import Seen

_MOST = 500
_NEW = Ratio()


class Ratios:
    """Ratios by upstream and model; the one that was learned of longest ago goes first."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Ratio] = {}

    def of(self, upstream: str, model: str) -> Ratio:
        return self._known.get((upstream, model), _NEW)

    def learn(self, upstream: str, model: str, seen: Seen) -> None:
        """One reply: its reasoning where that was counted apart, else all of it."""
        usage = seen.usage
        if seen.truncated or usage.output is None:
            return
        thought = _size(seen.reasoning)
        size, tokens = thought, usage.reasoning
        if tokens is None:
            calls = (f"{call.name}{call.arguments}" for call in seen.tool_calls)
            size, tokens = thought + _size(seen.text) + sum(map(_size, calls)), usage.output
        before = self.of(upstream, model)
        after = before.learned(size, tokens)
        if after is not before:
            self._known.pop((upstream, model), None)
            self._known[upstream, model] = after
            if len(self._known) > _MOST:
                self._known.pop(next(iter(self._known)))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
