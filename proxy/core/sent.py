"""What left: the elements of an outgoing prompt, in the order in which the provider renders
them.
"""

from __future__ import annotations

from enum import Enum

import msgspec

NO_TEXT = bytes(8)
"""The digest of no text."""


class Part(Enum):
    """What an element is. The values are one letter: they are stored with every element."""

    MODEL = "m"
    PARAMS = "p"
    TOOLS = "t"
    SYSTEM = "s"
    MESSAGE = "x"

    # Members are what they are; Enum's own hash is Python code, and asked for all the time.
    __hash__ = object.__hash__


class Element(msgspec.Struct, frozen=True, gc=False):
    """One element of the outgoing prompt.

    `digest` (16 bytes) covers everything that is rendered, with what clients flip put aside (key
    order, `cache_control`, a string or one text part). `said` (16 bytes) is the same without
    reasoning, so that two elements with equal `said` and other `digest` differ in reasoning
    alone. `gist` (8 bytes) is coarser still: texts stripped, arguments parsed, ids left out, so
    that a message that was only serialised anew keeps it (of tools: any order). `size` is about
    how much of it is rendered, in bytes: what it says with its reasoning, not its JSON.
    `reasoning` is the length in bytes of the reasoning text that left with it. `role` is the
    wire's. `put_back`: what its client had lost, or written anew, left as it was generated.
    """

    part: Part
    digest: bytes
    said: bytes
    gist: bytes
    size: int
    reasoning: int
    role: str
    text: bytes = NO_TEXT
    length: int = 0
    put_back: bool = False


class Held(msgspec.Struct, frozen=True, gc=False):
    """A step that a shadow policy has not decided yet, by its index: where its reasoning begins in
    the prompt that left, and how long it is, in tokens as a provider counted them.
    """

    step: int
    start: int
    tokens: int


class Shadowed(msgspec.Struct, frozen=True):
    """What a shadow policy would have left out of a request: the steps, a bit for each, that of the
    first one lowest, and the tokens of their reasoning (`estimated`: not all of them were counted
    by a provider). `held` may still go: the latest of them.
    """

    policy: str
    steps: bytes
    tokens: int
    estimated: bool
    held: tuple[Held, ...] = ()


class Sent(msgspec.Struct, frozen=True):
    """One request as it left, known by the link of its last message.

    `outgoing` is the rolling digest over all elements: equal digests, equal prompts. Token counts
    are the provider's and None where it reported nothing. `reasoning_tokens` are the reply's,
    `dropped_tokens` those of old reasoning that did not leave (`dropped_estimated`: not all of them
    were counted by a provider; None: not known). `at` is seconds since the epoch, by the clock of
    the worker that sent it. `shadows` are there under policy `observe` alone.
    """

    link: bytes
    outgoing: bytes
    elements: tuple[Element, ...]
    at: float
    upstream: str
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reply: bytes = b""
    conversation: bytes = b""
    reasoning_tokens: int | None = None
    dropped_tokens: int | None = None
    dropped_estimated: bool = False
    shadows: tuple[Shadowed, ...] = ()
