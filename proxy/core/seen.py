"""What was read of one reply."""

from __future__ import annotations

import msgspec

from proxy.core.usage import NOTHING, Usage


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """`arguments` is the text as the model wrote it: JSON, or cut off where the reply was."""

    id: str
    name: str
    arguments: str


class Seen(msgspec.Struct, frozen=True):
    """What was read of one reply.

    `carriers` are the wire's fields in which reasoning came (`content_parts` and `think` where it
    came inside the content), the one whose text `reasoning` is first; where all came empty, those.
    `text` is the content without reasoning. `error` is a type or a code, never a message.
    `truncated`: something was left out for its size. `signed`: a signature or encrypted reasoning
    came. `done`: [DONE] came, or a whole JSON body. `thought` is the `<think>…</think>` before the
    text, with the blanks around it, as it came; `details` the JSON of a `reasoning_details` list,
    of a stream's with its pieces put together.
    """

    usage: Usage = NOTHING
    model: str = ""
    reasoning: str = ""
    carriers: tuple[str, ...] = ()
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    error: str = ""
    truncated: bool = False
    signed: bool = False
    done: bool = False
    thought: str = ""
    details: bytes = b""
