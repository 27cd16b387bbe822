"""What a model does with a position and with a pair, in FLOPs, from its architecture.

c, a position: two FLOPs for each weight that it is multiplied with, and what its attention does at
a fixed price: a window of it, or a recurrent state. The embedding is a look-up, and the output head
works only where a token is to be predicted: neither is counted. Norms, positions, biases and
activations are below a per cent of it and left out.

β, a pair: in each layer of full attention and for each head two FLOPs a number of the key (the
score) and two a number of the value (the sum). Windowed layers attend so many positions at most and
linear ones keep a state: their price does not grow, it is part of c, and pairs cost nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from proxy.core.operations import Price


@dataclass(frozen=True, slots=True)
class Attention:
    """Heads of size `head`, keys and values shared by groups of them. `gated`: as wide a gate
    beside the queries. `window`: so many positions are attended, 0 for all.
    """

    heads: int
    kv_heads: int
    head: int
    gated: bool = False
    window: int = 0

    def weights(self, hidden: int) -> int:
        queries = self.heads * (2 if self.gated else 1)
        return hidden * self.head * (queries + 2 * self.kv_heads + self.heads)

    @property
    def pair(self) -> int:
        return 0 if self.window else 4 * self.heads * self.head

    @property
    def steady(self) -> int:
        return 4 * self.heads * self.head * self.window


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention, as prompts are processed: keys and values are unfolded from
    `kv_rank` numbers. A key has `plain` numbers of its own and `rotary` that all heads share.
    """

    heads: int
    q_rank: int
    kv_rank: int
    plain: int
    rotary: int
    value: int

    def weights(self, hidden: int) -> int:
        queries = self.q_rank * (hidden + self.heads * (self.plain + self.rotary))
        unfolded = self.kv_rank * self.heads * (self.plain + self.value)
        return queries + hidden * (self.kv_rank + self.rotary + self.heads * self.value) + unfolded

    @property
    def pair(self) -> int:
        return 2 * self.heads * (self.plain + self.rotary + self.value)

    @property
    def steady(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Linear:
    """Gated delta rule: every value head keeps a state of `key` by `value` numbers, which decays,
    is read, corrected, and read again; its output is gated.
    """

    key_heads: int
    value_heads: int
    key: int
    value: int

    def weights(self, hidden: int) -> int:
        keys = 2 * self.key_heads * self.key
        values = 3 * self.value_heads * self.value
        return hidden * (keys + values + 2 * self.value_heads)

    @property
    def pair(self) -> int:
        return 0

    @property
    def steady(self) -> int:
        return 6 * self.value_heads * self.key * self.value


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Gated, of `inner` numbers. Of `experts` so many are `active` for a position, and one of
    `shared` numbers is for all; without experts it is one that is always active.
    """

    inner: int
    active: int = 1
    shared: int = 0
    experts: int = 0

    def weights(self, hidden: int) -> int:
        return 3 * hidden * (self.inner * self.active + self.shared) + hidden * self.experts


@dataclass(frozen=True, slots=True)
class Layers:
    """So many layers of one kind."""

    count: int
    attention: Attention | Latent | Linear
    feed_forward: FeedForward

    def position(self, hidden: int) -> int:
        weights = self.attention.weights(hidden) + self.feed_forward.weights(hidden)
        return self.count * (2 * weights + self.attention.steady)

    @property
    def pair(self) -> int:
        return self.count * self.attention.pair


@dataclass(frozen=True, slots=True)
class Architecture:
    """`hidden` is the width of the residual stream; `source` says where the numbers are from."""

    name: str
    hidden: int
    layers: tuple[Layers, ...]
    source: str = ""

    @property
    def price(self) -> Price:
        """In FLOPs."""
        return Price(
            Fraction(sum(it.position(self.hidden) for it in self.layers)),
            Fraction(sum(it.pair for it in self.layers)),
        )


# As people write it


Numbers = Mapping[str, int]

_DERIVED: dict[str, Callable[[Numbers], int]] = {
    "kv_heads": lambda it: it["heads"],
    "head_size": lambda it: it["hidden"] // it["heads"],
    "active": lambda it: 1,
    "shared": lambda it: 0,
    "experts": lambda it: 0,
    "linear": lambda it: 0,
    "sliding": lambda it: 0,
    "window": lambda it: 0,
}
_NEEDED = ("hidden", "layers", "heads", "ffn")
FORM = ",".join(f"{key}=N" for key in (*_NEEDED, *_DERIVED))
"""All keys: `ffn` is the inner size of the feed-forward or of one expert, `active` the experts of
a position, `shared` the inner size of the shared one; `linear` and `sliding` are layers, of all
`layers`, without full attention. The first four are needed.
"""


def parse(text: str) -> Architecture:
    """Read `hidden=4096,layers=36,…`; ValueError says what came and what is wanted."""
    given = dict(_pair(part) for part in text.split(","))
    missing = [key for key in _NEEDED if not given.get(key)]
    if missing:
        raise ValueError(
            f"architecture {text[:60]!r} lacks {', '.join(missing)} (above 0); wanted {FORM}"
        )
    it: dict[str, int] = {}
    for key in (*_NEEDED, *_DERIVED):
        it[key] = given[key] if key in given else _DERIVED[key](it)
    if it["linear"] + it["sliding"] > it["layers"] or bool(it["sliding"]) != bool(it["window"]):
        raise ValueError(
            f"architecture {text[:60]!r}: linear and sliding are counted among layers, and "
            "sliding and window go together"
        )
    return Architecture(text, it["hidden"], _layers(it))


def _pair(part: str) -> tuple[str, int]:
    key, _, value = part.strip().partition("=")
    known = key in _NEEDED or key in _DERIVED
    if not known or not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise ValueError(f"architecture: got {part[:40]!r}; wanted {FORM}")
    return key, int(value)


def _layers(it: Numbers) -> tuple[Layers, ...]:
    heads = it["heads"], it["kv_heads"], it["head_size"]
    inside = FeedForward(it["ffn"], it["active"], it["shared"], it["experts"])
    return (
        Layers(it["layers"] - it["linear"] - it["sliding"], Attention(*heads), inside),
        Layers(it["sliding"], Attention(*heads, window=it["window"]), inside),
        Layers(
            it["linear"],
            Linear(it["kv_heads"], it["heads"], it["head_size"], it["head_size"]),
            inside,
        ),
    )
