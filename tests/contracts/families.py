"""The providers and engines that are played: what each enforces, reads, renders and reports.

Facts and their sources are those of `config/providers.toml`, which the proxy under test reads; here
they stand a second time, in code of their own, so that the one can be tested with the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from proxy.core.contract import Reuse
from tests.contracts import refusals, rendering, seals
from tests.contracts.caching import Rule
from tests.contracts.rendering import Template


class Usage(Enum):
    """How cached tokens are told."""

    DETAILS = "prompt_tokens_details.cached_tokens"
    DEEPSEEK = "prompt_cache_hit_tokens and prompt_cache_miss_tokens, and the details"
    MOONSHOT = "cached_tokens at the top level"
    LLAMA = "the details and timings.cache_n"
    VLLM = "the details with created_cache_tokens"
    SGLANG = "the details and reasoning_tokens at the top level"
    DASHSCOPE = "the details with cache_creation_input_tokens"
    OPENROUTER = "the details with cache_write_tokens, and cost; in streams always"
    NONE = "not at all"


Sealing = Callable[[str, str], list[dict[str, Any]]]
"""From reasoning and what was sealed before, the items of a reply."""


@dataclass(frozen=True, slots=True)
class Family:
    """One upstream. `contract` names its row in the proxy's table; None: the proxy is not told.

    `reads` are the carriers that reasoning is taken from, the first that is there counts; `writes`
    is the one that replies come in (`none`: it is not shown). `rules` refuse. `restores` says
    whether lost reasoning has to be put back: where the provider wants it, or where its cache holds
    what was generated. `kimi_ids`: ids of calls count up from 0 in every conversation.
    """

    name: str
    contract: str | None
    model: str
    template: Template
    reads: tuple[str, ...]
    writes: str
    cache: Rule
    usage: Usage
    rules: tuple[refusals.Rule, ...] = ()
    restores: bool = False
    sealing: Sealing | None = None
    signs_calls: bool = False
    kimi_ids: bool = False

    @property
    def is_sealed(self) -> bool:
        """Whether what a message carries of reasoning is signed, and kept whatever is said."""
        return self.sealing is not None or self.signs_calls

    def refusal(self, request: rendering.Request) -> refusals.Refusal | None:
        return refusals.first((refusals.results_answer_calls, *self.rules), request)


_CONTENT = ("reasoning_content",)
_ROUTED = ("reasoning_details", "reasoning", "reasoning_content")
_GENERATED = Rule(Reuse.GENERATED)
_PROMPT_64 = Rule(Reuse.PROMPT, 64)
_PROMPT_128 = Rule(Reuse.PROMPT, 128)

ROWS = (
    Family(
        "deepseek-v4", "deepseek-v4", "deepseek-v4-pro", rendering.DEEPSEEK_V4, _CONTENT,
        "reasoning_content", _PROMPT_64, Usage.DEEPSEEK, (refusals.deepseek_v4,), restores=True,
    ),
    Family(
        "deepseek-v3.2", "deepseek-v3.2", "deepseek-reasoner", rendering.DEEPSEEK_V32, _CONTENT,
        "reasoning_content", _PROMPT_64, Usage.DEEPSEEK, (refusals.deepseek_v32,), restores=True,
    ),
    Family(
        "deepseek-r1", "deepseek-r1", "deepseek-reasoner", rendering.DEEPSEEK_R1, (),
        "reasoning_content", _PROMPT_64, Usage.DEEPSEEK, (refusals.deepseek_r1,),
    ),
    Family(
        "kimi-k2", "kimi-k2", "kimi-k2-thinking", rendering.KIMI_K2, _CONTENT, "reasoning_content",
        _GENERATED, Usage.MOONSHOT, (refusals.kimi,), restores=True, kimi_ids=True,
    ),
    Family(
        "kimi-k3", "kimi-k3", "kimi-k3", rendering.KIMI_K3, ("reasoning_content", "reasoning"),
        "reasoning_content", _GENERATED, Usage.MOONSHOT, (refusals.kimi,), restores=True,
        kimi_ids=True,
    ),
    Family(
        "glm-5", "zai", "glm-5", rendering.GLM_5, ("reasoning_content", "think"),
        "reasoning_content", _PROMPT_64, Usage.DETAILS,
    ),
    Family(
        "glm-5.3", "zai-5.3", "glm-5.3", rendering.GLM_53, ("reasoning_content", "think"),
        "reasoning_content", _PROMPT_64, Usage.DETAILS,
    ),
    Family(
        "minimax", "minimax", "MiniMax-M2", rendering.MINIMAX_M2, ("reasoning_content", "think"),
        "think", _PROMPT_64, Usage.DETAILS,
    ),
    Family(
        "qwen3.6", "dashscope-3.6", "qwen3.6-plus", rendering.QWEN_36,
        ("reasoning_content", "think"), "reasoning_content", _PROMPT_64, Usage.DASHSCOPE,
    ),
    Family(
        "qwen3.8", "dashscope-3.8", "qwen3.8-max", rendering.QWEN_38, _CONTENT, "reasoning_content",
        _PROMPT_64, Usage.DASHSCOPE,
    ),
    Family(
        "vllm", "vllm", "deepseek-ai/DeepSeek-V4-Flash", rendering.DEEPSEEK_V4,
        ("reasoning", "reasoning_content"), "reasoning", Rule(Reuse.GENERATED, 16), Usage.VLLM,
        restores=True,
    ),
    Family(
        "sglang", "sglang", "moonshotai/Kimi-K3", rendering.KIMI_K3,
        ("reasoning_content", "content_parts"), "reasoning_content", _GENERATED, Usage.SGLANG,
        restores=True,
    ),
    Family(
        "llama.cpp", "llama.cpp", "Kimi-K3-Q4_K_M", rendering.KIMI_K3, _CONTENT,
        "reasoning_content", _GENERATED, Usage.LLAMA, (refusals.llama,), restores=True,
    ),
    Family(
        "llama.cpp-drops", "llama.cpp", "qwen3.6-30b", rendering.QWEN_36,
        ("reasoning_content", "think"), "reasoning_content", _GENERATED, Usage.LLAMA,
        (refusals.llama,), restores=True,
    ),
    Family(
        "ollama", "ollama", "kimi-k3", rendering.KEEPING, ("reasoning",), "reasoning", _GENERATED,
        Usage.NONE, restores=True,
    ),
    Family(
        "openrouter", "openrouter-deepseek", "deepseek/deepseek-v4-pro", rendering.DEEPSEEK_V4,
        _ROUTED, "reasoning_details", _PROMPT_64, Usage.OPENROUTER, (refusals.routed_deepseek,),
        restores=True,
    ),
    Family(
        "openrouter-claude", "openrouter-claude", "anthropic/claude-opus-4.8", rendering.KEEPING,
        _ROUTED, "reasoning_details", _PROMPT_64, Usage.OPENROUTER, (seals.routed_claude,),
        sealing=seals.claude_details,
    ),
    Family(
        "openrouter-bound", "openrouter-claude-bound", "anthropic/claude-opus-5.5",
        rendering.KEEPING, _ROUTED, "reasoning_details", _PROMPT_64, Usage.OPENROUTER,
        (seals.routed_bound_claude,), sealing=seals.claude_details,
    ),
    Family(
        "openrouter-gpt", "openrouter", "openai/gpt-5.6", rendering.KEEPING,
        _ROUTED, "reasoning_details", _PROMPT_64, Usage.OPENROUTER, (seals.routed_gpt,),
        sealing=seals.gpt_details,
    ),
    Family(
        "gemini", "gemini", "gemini-3.1-pro-preview", rendering.SILENT, (), "none",
        Rule(Reuse.PROMPT, 1, 1024), Usage.DETAILS, (seals.gemini,), signs_calls=True,
    ),
    Family(
        "openai", "openai", "gpt-5.5", rendering.SILENT, (), "none",
        Rule(Reuse.PROMPT, 128, 1024), Usage.DETAILS,
    ),
    Family(
        "xai", "xai", "grok-4.7", rendering.KEEPING, _CONTENT, "reasoning_content",
        Rule(Reuse.GENERATED, 128), Usage.DETAILS,
    ),
    Family(
        "cerebras", "cerebras-glm", "zai-glm-5", rendering.GLM_5, ("think",), "reasoning",
        _PROMPT_128, Usage.DETAILS,
    ),
    Family(
        "groq", "groq", "openai/gpt-oss-120b", rendering.GLM_5, ("reasoning",), "reasoning",
        _PROMPT_128, Usage.DETAILS, (refusals.groq,),
    ),
    Family(
        "mistral", "mistral", "magistral-medium-latest", rendering.KEEPING, ("content_parts",),
        "content_parts", _PROMPT_64, Usage.DETAILS, (refusals.mistral, refusals.mistral_strings),
    ),
    Family(
        "fireworks", "fireworks", "kimi-k2p6", rendering.FIREWORKS, _CONTENT, "reasoning_content",
        _PROMPT_64, Usage.DETAILS,
    ),
    Family(
        "mimo", None, "mimo-v2.5-pro", rendering.DEEPSEEK_V4, _CONTENT, "reasoning_content",
        _PROMPT_64, Usage.DETAILS, (refusals.mimo,),
    ),
    Family(
        "claude-parts", None, "claude-opus-4-8", rendering.KEEPING, ("content_parts",),
        "content_parts", _PROMPT_64, Usage.DETAILS, (seals.claude,), sealing=seals.claude_parts,
    ),
)  # fmt: skip
FAMILIES: Mapping[str, Family] = {row.name: row for row in ROWS}
