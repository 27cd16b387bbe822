"""The product's promise in some seconds: a scripted agent, the real proxy, a provider that counts.

The same task is worked on once under each policy, over sockets, with no key and no network beyond
loopback. All numbers are the provider's own counts of what reached it. Its answers do not depend on
what it was sent, so the runs differ in what is forgotten and in nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from decimal import Decimal

from proxy.core.cachemodel import Split, replayed
from proxy.core.contract import CacheRule, Reuse
from proxy.replay import scripted_agent
from proxy.replay.scripted_provider import ScriptedProvider, Served
from proxy.replay.scripted_task import Task, coding_task
from proxy.settings import AdminSettings, Settings, UpstreamSettings

POLICIES = ("keep", "drop", "after_artifact", "keep_latest:1")
"""The first is what the others are compared with."""

CACHE = CacheRule(Reuse.GENERATED, block=1)
"""What the provider runs: under this rule forgetting gains least, since `keep` rebuilds nothing."""

Proxy = Callable[[Settings], AbstractAsyncContextManager[tuple[str, str]]]
"""Opens the proxy and gives its address and that of its admin port."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Example prices, US dollars for a million tokens.

    Input that was not read from the cache is billed as `write` where the cache then holds it, and
    as `input` where nothing is held.
    """

    name: str
    input: Decimal
    write: Decimal
    read: Decimal
    output: Decimal


SHEETS = (
    Sheet("Sonnet-like", Decimal("2"), Decimal("2.50"), Decimal("0.10"), Decimal("10")),
    Sheet("DeepSeek-like", Decimal("0.28"), Decimal("0.28"), Decimal("0.028"), Decimal("0.42")),
)
"""With a fee for writing to the cache, and without. The first is the main table's."""


@dataclass(frozen=True, slots=True)
class Run:
    """The task under one policy. `causes` counts requests by what the proxy said of the prefix."""

    policy: str
    served: tuple[Served, ...]
    causes: Mapping[str, int]

    @property
    def tokens(self) -> Split:
        """All input, by kind, as the provider served it."""
        return total([it.split for it in self.served])

    @property
    def output(self) -> int:
        return sum(it.output for it in self.served)

    @property
    def breaks(self) -> int:
        """Requests that the proxy flagged because the cached prefix broke."""
        return sum(n for cause, n in self.causes.items() if cause.startswith("broken"))

    def bill(self, sheet: Sheet, cache: CacheRule = CACHE) -> Decimal:
        """US dollars, had the provider's cache been like that."""
        traffic = [(it.prompt, it.generated) for it in self.served]
        tokens = self.tokens if cache == CACHE else total(replayed(cache, traffic))
        fresh = sheet.input if cache.reuse is Reuse.NONE else sheet.write
        parts = tokens.read * sheet.read + tokens.uncached * fresh + self.output * sheet.output
        return parts / 1_000_000


def total(splits: list[Split] | tuple[Split, ...]) -> Split:
    return Split(
        sum(it.read for it in splits),
        sum(it.rebuilt for it in splits),
        sum(it.new for it in splits),
    )


async def measure(
    proxy: Proxy, steps: int, seed: int, clock: Callable[[], float], told: Callable[[str], None]
) -> tuple[Run, ...]:
    """Work through the task under every policy; `told` gets the policy after each answer.

    `clock` counts seconds monotonically. Raises UpstreamUnreachable where a run finds no end.
    """
    task = coding_task(steps, seed)
    provider = ScriptedProvider(task.script, CACHE)
    async with provider as upstream, proxy(settings_for(upstream)) as (address, _):
        url = f"{address}/v1"
        return tuple([await _run(task, provider, url, p, clock, told) for p in POLICIES])


async def _run(
    task: Task, provider: ScriptedProvider, url: str, policy: str,
    clock: Callable[[], float], told: Callable[[str], None],
) -> Run:  # fmt: skip
    key = (
        f"scripted-{policy}"  # a key of its own: its own scope at the proxy, its own cache upstream
    )
    causes: Counter[str] = Counter()
    async for heard in scripted_agent.run(task, url, key, policy, clock):
        causes[heard.told["prefix"]] += 1
        told(policy)
    return Run(policy, tuple(provider.served[key]), causes)


def settings_for(upstream: str) -> Settings:
    """The proxy as it comes, but for ports that the system chooses and no log."""
    return Settings(
        port=0,
        log="off",
        admin=AdminSettings(port=0),
        upstreams=(UpstreamSettings(url=upstream, trust_env=False),),
    )
