"""What a provider generated, as far as clients lose or alter it on the way back; and whether a
message is what came back of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import Any

import msgspec

from proxy.core import fingerprint
from proxy.core.wire import chat

# What the object takes, measured with tracemalloc and rounded up: good for a bound.
_REPLY = 500


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One reply. `reasoning` is its text as it was generated, `carrier` the field it came in (empty
    where there was none); `details` is the raw JSON of a `reasoning_details` list, empty without
    one. `arguments` are the argument texts of its tool calls, in order.
    """

    carrier: str
    reasoning: str
    details: bytes = b""
    arguments: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """What it takes in memory, in bytes."""
        texts = (self.carrier, self.reasoning, *self.arguments)
        return _REPLY + len(self.details) + sum(map(getsizeof, texts))


def echoes(message: Mapping[str, Any], reply: Reply) -> bool:
    """Whether the calls of a message say what the reply's do, where both have as many. Ids repeat:
    two replies to one history may bear the same, and what the one thought is not the other's.
    """
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or len(calls) != len(reply.arguments):
        return True
    texts = [_arguments_of(call) for call in calls]
    return all(
        isinstance(text, str) and (text == own or _say_the_same(text, own))
        for text, own in zip(texts, reply.arguments, strict=True)
    )


def _arguments_of(call: Any) -> Any:
    inner = call.get("function") or call.get("custom") if isinstance(call, dict) else None
    return inner.get("arguments", inner.get("input")) if isinstance(inner, dict) else None


def _say_the_same(a: str, b: str) -> bool:
    """Whether two argument texts are equal as values, numbers by their literals."""
    try:
        return _same(*(chat.exact(fingerprint.utf8(text)) for text in (a, b)))
    except ValueError:
        return False


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
