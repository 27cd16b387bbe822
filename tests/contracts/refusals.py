"""What providers refuse, and the words in which they do.

Each rule looks at a request and gives its refusal or None. Wordings are facts of other people's
servers, each with the place where it was reported; where none is on record, ours says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.contracts.rendering import Message, Request

V4_MISSING = "The `reasoning_content` in the thinking mode must be passed back to the API."
"""anomalyco/opencode#24083, warpdotdev/warp#11587, crewAIInc/crewAI#5878."""
MIMO_MISSING = f"Param Incorrect: {V4_MISSING}"
"""Xiaomi MiMo, in diegosouzapw/OmniRoute docs/routing/REASONING_REPLAY.md."""
V32_MISSING = (
    "Missing `reasoning_content` field in the assistant message at message index {index}. For more "
    "information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
)
"""OpenHands/benchmarks#353, continuedev/continue#9606 and #10193."""
R1_PRESENT = (
    "The reasoning_content is an intermediate result for display purposes only and will not be "
    "included in the context for inference. Please remove the reasoning_content from your message "
    "to reduce network traffic."
)
"""Euyug/Mirai-Gpt-Plugin#4."""
KIMI_MISSING = (
    "thinking is enabled but reasoning_content is missing in assistant tool call message at index "
    "{index}"
)
"""continuedev/continue#11527, agentscope-ai/QwenPaw#433, QuantumNous/new-api#3121."""
LLAMA_NULL = (
    "Failed to parse messages: [json.exception.type_error.302] type must be string, but is {kind}"
)
"""llama.cpp's server, measured with the engine's wheel of 2026-10."""
LLAMA_PART = "unsupported content[].type"
"""llama.cpp's server, measured with the engine's wheel of 2026-10; ggml-org/llama.cpp#17700."""
CLAUDE_SIGNATURE = "messages.{index}.content.{at}: Invalid `signature` in `thinking` block"
"""anthropics/anthropic-sdk-python#1598, router-for-me/CLIProxyAPI#2172."""
CLAUDE_BOUND = (
    "messages.{index}.content.{at}: Invalid `signature` in `thinking` block. The block is bound to "
    "a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
"""platform.claude.com, preserved thinking: fix-bound-to-a-different-conversation."""
CLAUDE_MODIFIED = (
    "messages.{index}.content.{at}: `thinking` or `redacted_thinking` blocks in the latest "
    "assistant message cannot be modified. These blocks must remain as they were in the original "
    "response."
)
"""openclaw/openclaw#44436."""
CLAUDE_EXPECTED = (
    "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
    "`tool_use`. When `thinking` is enabled, a final `assistant` message must start with a "
    "thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
)
"""lbjlaq/Antigravity-Manager#139."""
OPENAI_ENCRYPTED = "The encrypted content for item {id} could not be verified."
"""anomalyco/opencode#5104, maximhq/bifrost#5410."""
GEMINI_MISSING = (
    "Function call is missing a thought_signature in functionCall parts. This is required for "
    "tools to work correctly, and missing thought_signature may lead to degraded model "
    "performance. Additional data, function call `default_api:{name}` , position {index}."
)
"""0xsline/OpenChatCut#6, labring/aiproxy#450."""
GEMINI_INVALID = "Invalid thought signature"
"""docs.apiyi.com, gemini-thought-signature-missing."""
GEMINI_SENTINEL = "skip_thought_signature_validator"
MISTRAL_EMPTY = "Assistant message must have either content or tool_calls, but not none."
"""That it is refused: litellm's Mistral transformation; the wording is not on record there."""
MISTRAL_EXTRA = "Extra inputs are not permitted"
"""charmbracelet/crush#1590."""
GROQ_UNSUPPORTED = (
    "'messages.{index}' : for 'role:assistant' the following must be satisfied[('messages.{index}' "
    ": property 'reasoning_content' is unsupported)]"
)
"""janhq/jan#8136."""
ORPHAN = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
"""OpenAI's; here every upstream holds to it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    error: Any

    @property
    def body(self) -> bytes:
        return json.dumps(self.error, ensure_ascii=False).encode()


Rule = Callable[[Request], Refusal | None]


# Shapes of errors


def openai_error(message: str, status: int = 400) -> Refusal:
    inner = {
        "message": message, "type": "invalid_request_error", "param": None,
        "code": "invalid_request_error",
    }  # fmt: skip
    return Refusal(status, {"error": inner})


def moonshot_error(message: str) -> Refusal:
    return Refusal(400, {"error": {"message": message, "type": "invalid_request_error"}})


def llama_error(message: str, status: int) -> Refusal:
    kind = "server_error" if status == 500 else "invalid_request_error"
    return Refusal(status, {"error": {"code": status, "message": message, "type": kind}})


def google_error(message: str) -> Refusal:
    inner = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Refusal(400, [{"error": inner}])


def routed_error(message: str, provider: str) -> Refusal:
    """An upstream's error as OpenRouter hands it on: inside a text, in `metadata.raw`."""
    raw = json.dumps({"type": "error", "error": {"type": "invalid_request_error",
                                                 "message": message}})  # fmt: skip
    metadata = {"raw": raw, "provider_name": provider}
    return Refusal(
        400, {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}
    )


# Rules


def assistants(request: Request) -> Iterator[tuple[int, Message]]:
    """The assistant messages, each with its place among all messages."""
    rows = enumerate(request["messages"])
    return ((index, row) for index, row in rows if row["role"] == "assistant")


def thinks(request: Request) -> bool:
    """Thinking is on unless it is turned off."""
    thinking = request.get("thinking")
    return not (isinstance(thinking, Mapping) and thinking.get("type") == "disabled")


def lacks(message: Message) -> bool:
    return not isinstance(message.get("reasoning_content"), str)


def deepseek_v4(request: Request, wording: str = V4_MISSING) -> Refusal | None:
    """Once a conversation has tool calls, every assistant message needs the field, be it empty."""
    rows = [row for _, row in assistants(request)]
    if thinks(request) and any(row.get("tool_calls") for row in rows) and any(map(lacks, rows)):
        return openai_error(wording)
    return None


def mimo(request: Request) -> Refusal | None:
    """DeepSeek's rule behind another vendor's words."""
    return deepseek_v4(request, MIMO_MISSING)


def deepseek_v32(request: Request) -> Refusal | None:
    """Within the current user turn every assistant message needs the field."""
    messages = request["messages"]
    users = [index for index, row in enumerate(messages) if row["role"] == "user"]
    for index, row in assistants(request):
        if index > max(users, default=-1) and lacks(row):
            return openai_error(V32_MISSING.format(index=index))
    return None


def deepseek_r1(request: Request) -> Refusal | None:
    """The field must not be there, not even empty."""
    if any("reasoning_content" in row for _, row in assistants(request)):
        return openai_error(R1_PRESENT)
    return None


def kimi(request: Request) -> Refusal | None:
    """Assistant messages with tool calls need the field, be it empty."""
    for index, row in assistants(request):
        if thinks(request) and row.get("tool_calls") and lacks(row):
            return moonshot_error(KIMI_MISSING.format(index=index))
    return None


def llama(request: Request) -> Refusal | None:
    """Reasoning that is no string makes the server fail; parts that it does not know are a 400."""
    for _, row in assistants(request):
        value = row.get("reasoning_content", "")
        if not isinstance(value, str):
            return llama_error(LLAMA_NULL.format(kind="null" if value is None else "array"), 500)
        content = row.get("content")
        parts = content if isinstance(content, list) else []
        if any(part.get("type") != "text" for part in parts):
            return llama_error(LLAMA_PART, 400)
    return None


def mistral(request: Request) -> Refusal | None:
    for _, row in assistants(request):
        if not row.get("content") and not row.get("tool_calls"):
            return openai_error(MISTRAL_EMPTY)
    return None


def mistral_strings(request: Request) -> Refusal | None:
    """Members that it does not know are refused; reasoning is known in parts only."""
    for index, row in assistants(request):
        for name in ("reasoning_content", "reasoning"):
            if name in row:
                place = ["body", "messages", index, "assistant", name]
                told = {"type": "extra_forbidden", "loc": place, "msg": MISTRAL_EXTRA}
                return Refusal(422, {"object": "error", "message": {"detail": [told]}})
    return None


def groq(request: Request) -> Refusal | None:
    """`reasoning` is known, `reasoning_content` is not."""
    for index, row in assistants(request):
        if "reasoning_content" in row:
            return openai_error(GROQ_UNSUPPORTED.format(index=index))
    return None


def routed_deepseek(request: Request) -> Refusal | None:
    """DeepSeek's rule behind OpenRouter, which makes its field of any of three."""
    rows = [row for _, row in assistants(request)]
    names = ("reasoning_details", "reasoning", "reasoning_content")
    bare = [row for row in rows if not any(row.get(name) is not None for name in names)]
    if bare and any(row.get("tool_calls") for row in rows):
        return routed_error(V4_MISSING, "DeepSeek")
    return None


def results_answer_calls(request: Request) -> Refusal | None:
    """Each tool result answers a call of the assistant message before its run."""
    known: set[str] = set()
    for row in request["messages"]:
        if row["role"] == "assistant":
            known = {call["id"] for call in row.get("tool_calls") or ()}
        elif row["role"] == "tool" and row.get("tool_call_id") not in known:
            return openai_error(ORPHAN)
    return None


def first(rules: Sequence[Rule], request: Request) -> Refusal | None:
    """The first refusal of several rules."""
    return next((found for rule in rules if (found := rule(request)) is not None), None)
