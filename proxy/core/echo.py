"""What a reply becomes when a client sends it back, just as it was generated or otherwise.

The digest of the element that it becomes unchanged is kept with what was sent: where the next
request bears it, the provider sees its own tokens again, and a cache that holds generated tokens
serves them.

What clients lose of a reply, or write anew, is kept too. An echo finds it by the link of what was
said before it, together with the tool-call ids that the reply carried and its canonical text, else
with the ids alone, else with the text alone. Ids repeat from one conversation to the next; with
that link they name one reply, unless the conversations were equal so far.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.core import fingerprint
from proxy.core.fingerprint import Message, digest
from proxy.core.replies import Reply
from proxy.core.seen import Seen


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


def reply_of(seen: Seen) -> Reply | None:
    """What of a reply is worth keeping; None where it is not whole, or has nothing to lose."""
    if seen.truncated or seen.error or not (seen.finish_reason or seen.done):
        return None
    carrier = seen.carriers[0] if seen.carriers else ""
    text = seen.thought if carrier == "think" else seen.reasoning
    arguments = tuple([call.arguments for call in seen.tool_calls])
    if not (text or seen.details or arguments):
        return None
    return Reply(carrier, text, seen.details, arguments)


def keys_of_reply(before: bytes, seen: Seen) -> tuple[bytes, ...]:
    """Under what a reply is kept; `before` is the link of the request's last message."""
    try:
        body = msgspec.json.encode(_message(seen))
    except (UnicodeEncodeError, msgspec.EncodeError):
        return ()
    said = fingerprint.read(body, 0, len(body), before)
    return keys_of_echo(before, said)


def keys_of_echo(before: bytes, message: Message) -> tuple[bytes, ...]:
    """Under what the reply may lie that a message echoes, strongest first.

    A reply without a call and without a text has nothing that tells it from another.
    """
    ids = [id.encode("utf-8", "surrogatepass") for id in message.calls if id]
    gist = message.kept.gist
    if not message.calls and not message.kept.length:
        return ()
    by_gist = digest(b"gist", before, gist)
    if not ids:
        return (by_gist,)
    # Conversations that begin alike may number their calls alike: what both say tells them apart.
    return digest(b"both", before, gist, *ids), digest(b"ids", before, *ids), by_gist
