"""What a reply used, told the same way for every provider: one usage object in, one `Usage` out.

`None` is "not reported" and never the same as 0. `input` is the total, cached tokens included:
Anthropic's `input_tokens` leaves them out, everyone else's `prompt_tokens` has them. `output` is
what is billed as output, reasoning included. So `cache_read + cache_write + uncached = input`
always, where an unknown part counts as 0.

Reports that contradict themselves are mended by two rules:

- Cached tokens that do not fit into the input were left out of it, and are added. So too where
  `total_tokens` exceeds input and output by just them (GLM-5.1 behind charm-hyper).
- Reasoning that does not fit into the output was left out of it, and is added. So too where
  `total_tokens` exceeds input and output by just that (xAI), or by anything where no reasoning
  count is reported at all (Google's OpenAI-compatible endpoint tells thoughts in the total alone).

One count may stand under several names; gateways fill a name that they do not know with 0, so the
largest holds. A count is a whole number from 0 to 10^12; booleans, strings and negatives are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

MOST_TOKENS = 10**12
TICKS_PER_USD = 10**10
"""xAI's `cost_in_usd_ticks`, checked against its prices and recorded replies."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens and money of one reply; `None` is unknown, 0 is a reported zero.

    `cache_write_1h` is the part of `cache_write` that stays for an hour, where that is told. `cost`
    is what the provider itself says, in US dollars.
    """

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cost: Decimal | None = None

    @property
    def uncached(self) -> int | None:
        """Input that was neither read from a cache nor written to one; never negative."""
        if self.input is None:
            return None
        return max(0, self.input - (self.cache_read or 0) - (self.cache_write or 0))


NOTHING = Usage()

# Which name tells what. A dict is an object within.
_CREATION = {
    "ephemeral_5m_input_tokens": "write_5m",
    "ephemeral_1h_input_tokens": "write_1h",
    "ephemeral_24h_input_tokens": "write_24h",
}
_WRITES = frozenset({"write", *_CREATION.values()})
_INPUT_DETAILS = {
    "cached_tokens": "read",
    "cache_write_tokens": "write",  # OpenAI, OpenRouter
    "created_cache_tokens": "write",  # vLLM
    "cache_creation_input_tokens": "write",  # DashScope
    "cache_creation": _CREATION,  # DashScope
}
_OUTPUT_DETAILS = {
    "reasoning_tokens": "reasoning",
    "thinking_tokens": "reasoning",  # Anthropic
}
_NAMES: dict[str, Any] = {
    "prompt_tokens": "prompt",
    "input_tokens": "input",  # Anthropic, Responses
    "completion_tokens": "completion",
    "output_tokens": "completion",  # Anthropic, Responses
    "total_tokens": "total",
    "prompt_tokens_details": _INPUT_DETAILS,
    "input_tokens_details": _INPUT_DETAILS,  # Responses
    "completion_tokens_details": _OUTPUT_DETAILS,
    "output_tokens_details": _OUTPUT_DETAILS,  # Anthropic, Responses
    "reasoning_tokens": "reasoning",  # Copilot, SGLang
    "cached_tokens": "read",  # Moonshot, Together
    "num_cached_tokens": "read",  # Mistral
    "prompt_cache_hit_tokens": "read",  # DeepSeek
    "prompt_cache_miss_tokens": "miss",
    "cache_read_input_tokens": "read",  # Anthropic, gateways
    "cache_creation_input_tokens": "write",
    "cache_creation": _CREATION,
}
_TIMINGS = {"cache_n": "read", "prompt_n": "miss", "predicted_n": "predicted"}  # llama.cpp
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")


def read_usage(raw: Mapping[str, Any]) -> Usage:
    """The usage in `raw`: a usage object, or the chunk or body that holds one under `usage`.

    Siblings are read too: `x_groq.usage` where there is no other, and llama.cpp's `timings`.
    """
    usage, found = _usage_in(raw), dict[str, int]()
    _collect(usage, _NAMES, found)
    if isinstance(timings := raw.get("timings"), dict):
        _collect(timings, _TIMINGS, found)
    read, write = found.get("read"), _written(found)
    prompt, completion = _prompt(usage, found), found.get("completion", found.get("predicted"))
    reasoning = found.get("reasoning")
    total = _input(prompt, read, write, _beyond(found, prompt, completion, reasoning))
    return Usage(
        input=total,
        cache_read=read,
        cache_write=write,
        cache_write_1h=found.get("write_1h"),
        output=_output(completion, reasoning, _beyond(found, total, completion, None)),
        reasoning=reasoning,
        cost=_cost(usage),
    )


def merge(a: Usage, b: Usage) -> Usage:
    """Two reports of one reply as one: field by field, the last that is known holds."""
    total = a.input if b.input is None else b.input
    read = a.cache_read if b.cache_read is None else b.cache_read
    write = a.cache_write if b.cache_write is None else b.cache_write
    hour = a.cache_write_1h if b.cache_write_1h is None else b.cache_write_1h
    reasoning = a.reasoning if b.reasoning is None else b.reasoning
    return Usage(
        input=_input(total, read, write, 0),
        cache_read=read,
        cache_write=write,
        cache_write_1h=hour if hour is None else min(hour, write or 0),
        output=_output(a.output if b.output is None else b.output, reasoning, 0),
        reasoning=reasoning,
        cost=a.cost if b.cost is None else b.cost,
    )


def _usage_in(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    usage, groq = raw.get("usage"), raw.get("x_groq")
    if isinstance(usage, dict):
        return usage
    inner = groq.get("usage") if isinstance(groq, dict) else None
    return inner if isinstance(inner, dict) else raw


def _collect(raw: Mapping[str, Any], names: Mapping[str, Any], found: dict[str, int]) -> None:
    """Put the largest count of every kind that `names` knows into `found`."""
    for key, value in raw.items():
        kind = names.get(key)
        if kind is None or value is None:
            continue
        if isinstance(kind, str):
            count = _count(value)
            if count is not None and count >= found.get(kind, 0):
                found[kind] = count
        elif isinstance(value, dict):
            _collect(value, kind, found)


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _written(found: Mapping[str, int]) -> int | None:
    """Tokens written to a cache: as one number, or by how long they stay."""
    if found.keys().isdisjoint(_WRITES):
        return None
    by_age = [found[kind] for kind in _CREATION.values() if kind in found]
    written = [found["write"]] if "write" in found else []
    return max((*written, sum(by_age))) if by_age or written else None


def _prompt(usage: Mapping[str, Any], found: Mapping[str, int]) -> int | None:
    """Total input as reported, in whichever form."""
    if "input" in found and not found.get("prompt"):
        return found["input"] + _cached_beside(usage, found)
    if "prompt" in found:
        return found["prompt"]
    return found["read"] + found["miss"] if "read" in found and "miss" in found else None


def _cached_beside(usage: Mapping[str, Any], found: Mapping[str, int]) -> int:
    """What Anthropic names beside `input_tokens`, which there is only what no cache took."""
    if "input_tokens_details" in usage or all(usage.get(name) is None for name in _BESIDE_INPUT):
        return 0
    return found.get("read", 0) + (_written(found) or 0)


def _beyond(
    found: Mapping[str, int], total: int | None, completion: int | None, known: int | None
) -> int:
    """How far `total_tokens` exceeds input and output; 0 where by a `known` number, or not."""
    if "total" not in found or total is None or completion is None:
        return 0
    beyond = found["total"] - total - completion
    return beyond if beyond > 0 and beyond != known else 0


def _input(total: int | None, read: int | None, write: int | None, beyond: int) -> int | None:
    if total is None:
        return None
    cached = (read or 0) + (write or 0)
    return total + cached if cached > total or 0 < cached == beyond else total


def _output(completion: int | None, reasoning: int | None, beyond: int) -> int | None:
    if completion is None:
        return None
    if reasoning is None:
        return completion + beyond
    return completion + reasoning if reasoning > completion or reasoning == beyond else completion


def _cost(usage: Mapping[str, Any]) -> Decimal | None:
    if "cost" not in usage and "cost_in_usd_ticks" not in usage:
        return None
    cost = usage.get("cost")
    if isinstance(cost, dict):  # Perplexity
        cost = cost.get("total_cost")
    amount, ticks = _amount(cost), _amount(usage.get("cost_in_usd_ticks"))
    return ticks / TICKS_PER_USD if amount is None and ticks is not None else amount


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = Decimal(repr(value))
    return amount if amount.is_finite() and amount >= 0 else None
