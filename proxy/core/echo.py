"""What a reply becomes when a client sends it back just as it was generated.

The digest of that element is kept with what was sent: where the next request bears it, the provider
sees its own tokens again, and a cache that holds generated tokens serves them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.core import fingerprint
from proxy.core.reply import Seen


def digest_of(seen: Seen) -> bytes:
    """The digest of the reply's element (16 bytes); empty where its exact form cannot be known."""
    if seen.truncated or not seen.done or "think" in seen.carriers or seen.signed:
        return b""
    try:
        body = msgspec.json.encode(_message(seen))
    except (UnicodeEncodeError, msgspec.EncodeError):
        return b""
    return fingerprint.read(body, 0, len(body), b"").kept.digest


def _message(seen: Seen) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": seen.text}
    if seen.reasoning and seen.carriers:
        message[seen.carriers[0]] = seen.reasoning
    if seen.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in seen.tool_calls
        ]
    return message
