"""Everything that an exchange is handed: built once when the application starts, passed as an
argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.contracts import Contracts
from proxy.core.artifact import Rules
from proxy.forms import Forms
from proxy.keys import Keyring
from proxy.ledger.contract import Ledger
from proxy.memo import Memo
from proxy.observe import Observer
from proxy.outlook import Outlook
from proxy.prices import Prices
from proxy.ratios import Ratios
from proxy.settings import Settings
from proxy.upstream import Upstream
from proxy.ways import Target


@dataclass(slots=True)
class State:
    """What changes while a worker lives, and no store needs to know."""

    draining: bool = False
    refuses_usage: dict[str, float] = field(default_factory=dict)
    """Upstreams that answered `stream_options` with a 400, and until when they are not asked."""

    lessons: dict[tuple[str, str], tuple[float, bytes | None]] = field(default_factory=dict)
    """What a 400 has taught of an upstream and model, and when that was looked at last."""
    ratios: Ratios = field(default_factory=Ratios)
    """Bytes a token, learned by model."""
    told: set[str] = field(default_factory=set)
    """Advice that was given; it is given once."""
    outlook: Outlook = field(default_factory=Outlook)
    """How far conversations come, learned by key and task."""


@dataclass(frozen=True, slots=True)
class Doors:
    """`clock` is seconds since the epoch, `ticks` a monotonic counter in seconds.

    `targets` are by the name of the upstream, `rules` by the alias of the key. `tell` hands a line
    to who runs this.
    """

    settings: Settings
    keyring: Keyring
    targets: Mapping[str, Target]
    rules: Mapping[str, Rules]
    contracts: Contracts
    prices: Prices
    memo: Memo
    forms: Forms
    ledger: Ledger
    upstream: Upstream
    observer: Observer
    clock: Callable[[], float]
    ticks: Callable[[], float]
    new_id: Callable[[], str]
    tell: Callable[[str], None]
    state: State
