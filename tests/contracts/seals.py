"""Signed and encrypted reasoning: what a provider issues, and whether it came back whole.

A seal names its place, how many items there were, what sealed reasoning stood before it in the
conversation, and a digest over all of that and the text of every item. So a text that was altered,
an item that was left out or moved, and (where blocks are bound to their prefix) an earlier one that
is gone are each found without remembering what was issued. Real seals do the same and are opaque.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tests.contracts.refusals import (
    CLAUDE_BOUND,
    CLAUDE_EXPECTED,
    CLAUDE_MODIFIED,
    CLAUDE_SIGNATURE,
    GEMINI_INVALID,
    GEMINI_MISSING,
    GEMINI_SENTINEL,
    OPENAI_ENCRYPTED,
    Refusal,
    assistants,
    google_error,
    openai_error,
    routed_error,
)
from tests.contracts.rendering import Message, Request, is_thinking

Item = Mapping[str, Any]
_PLACES = ("signature", "data")


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=9).hexdigest()


def _seal(texts: Sequence[str], index: int, chain: str) -> str:
    place = f"{index}.{len(texts)}.{chain}"
    return f"{place}.{_digest(place, *texts)}"


# Issued


def claude_details(text: str, chain: str) -> list[dict[str, Any]]:
    """OpenRouter's items of a Claude reply: a signed text, and a block that is encrypted."""
    seals = [_seal([text, ""], index, chain) for index in (0, 1)]
    form = "anthropic-claude-v1"
    return [
        {"type": "reasoning.text", "text": text, "signature": seals[0], "format": form, "index": 0},
        {"type": "reasoning.encrypted", "data": seals[1], "format": form, "index": 1},
    ]


def gpt_details(text: str, chain: str) -> list[dict[str, Any]]:
    """OpenRouter's items of a GPT reply: a summary, and what is encrypted."""
    form = "openai-responses-v1"
    seal = _seal([text, ""], 1, chain)
    return [
        {"type": "reasoning.summary", "summary": text, "format": form, "index": 0},
        {"type": "reasoning.encrypted", "data": seal, "id": f"rs_{seal[-8:]}", "format": form,
         "index": 1},
    ]  # fmt: skip


def claude_parts(text: str, chain: str) -> list[dict[str, Any]]:
    """Thinking blocks as content parts, as gateways give them on this wire."""
    seals = [_seal([text, ""], index, chain) for index in (0, 1)]
    return [
        {"type": "thinking", "thinking": text, "signature": seals[0]},
        {"type": "redacted_thinking", "data": seals[1]},
    ]


def call_signature(step: int) -> str:
    """Gemini's, on the first call of a step."""
    return f"{step}.{_digest('call', str(step))}"


# Come back


def items_of(message: Message) -> list[Item]:
    """The items of a message that may be sealed."""
    details, content = message.get("reasoning_details"), message.get("content")
    rows = list(details) if isinstance(details, list) else []
    return rows + ([p for p in content if is_thinking(p)] if isinstance(content, list) else [])


def _seals_of(items: Sequence[Item]) -> list[str]:
    return [str(item[place]) for item in items for place in _PLACES if item.get(place)]


def chain_of(request: Request) -> str:
    """A digest of all sealed reasoning in a conversation so far."""
    seals = [seal for _, row in assistants(request) for seal in _seals_of(items_of(row))]
    return _digest(*seals)[:8]


def _is_whole(items: Sequence[Item]) -> bool:
    """Whether the items are those that were issued together, in order and unaltered."""
    texts = [
        item.get("text") or item.get("summary") or item.get("thinking") or "" for item in items
    ]
    for index, item in enumerate(items):
        for seal in _seals_of([item]):
            chain = seal.split(".")[2] if seal.count(".") == 3 else ""
            if seal != _seal(texts, index, chain):
                return False
    return True


def _chain_in(items: Sequence[Item]) -> str:
    return _seals_of(items)[0].split(".")[2]


Broken = tuple[str, int, str]
"""What is wrong (`signature`, `bound`), with which message, and the id of its item."""


def broken(request: Request, bound: bool) -> Broken | None:
    """The first sealed message that cannot be taken; one whose seals are all gone is none."""
    before: list[str] = []
    for index, row in assistants(request):
        items = items_of(row)
        seals = _seals_of(items)
        if not seals:
            continue
        if not _is_whole(items):
            return "signature", index, str(items[-1].get("id"))
        if bound and _chain_in(items) != _digest(*before)[:8]:
            return "bound", index, str(items[-1].get("id"))
        before += seals
    return None


def routed_claude(request: Request, bound: bool = False) -> Refusal | None:
    found = broken(request, bound)
    if found is None:
        return None
    wording = CLAUDE_BOUND if found[0] == "bound" else CLAUDE_SIGNATURE
    return routed_error(wording.format(index=found[1], at=0), "Anthropic")


def routed_bound_claude(request: Request) -> Refusal | None:
    """A block is bound to what stood before it: where one between others is gone, the later ones
    are refused.
    """
    return routed_claude(request, bound=True)


def routed_gpt(request: Request) -> Refusal | None:
    found = broken(request, bound=False)
    if found is None:
        return None
    return routed_error(OPENAI_ENCRYPTED.format(id=found[2]), "OpenAI")


def claude(request: Request) -> Refusal | None:
    """Content parts. In a tool loop the last assistant message must begin with its thinking."""
    rows = list(assistants(request))
    if not rows:
        return None
    index, last = rows[-1]
    found = broken(request, bound=False)
    if found is not None:
        wording = CLAUDE_MODIFIED if found[1] == index else CLAUDE_SIGNATURE
        return openai_error(wording.format(index=found[1], at=0))
    loop = last.get("tool_calls") and request["messages"][-1]["role"] == "tool"
    if loop and not _seals_of(items_of(last)):
        return openai_error(CLAUDE_EXPECTED.format(index=index))
    return None


def gemini(request: Request) -> Refusal | None:
    """In the current turn the first call of each step needs the signature that it came with."""
    users = [index for index, row in enumerate(request["messages"]) if row["role"] == "user"]
    for index, row in assistants(request):
        calls = row.get("tool_calls")
        if not calls or index < max(users, default=-1):
            continue
        signature = _call_signature(calls[0])
        if signature is None:
            name = calls[0]["function"]["name"]
            return google_error(GEMINI_MISSING.format(name=name, index=index))
        if signature not in _good(signature):
            return google_error(GEMINI_INVALID)
    return None


def _call_signature(call: Mapping[str, Any]) -> str | None:
    extra = call.get("extra_content") or {}
    return (extra.get("google") or {}).get("thought_signature")


def _good(signature: str) -> Iterator[str]:
    step = signature.partition(".")[0]
    yield GEMINI_SENTINEL
    if step.isdigit():
        yield call_signature(int(step))
