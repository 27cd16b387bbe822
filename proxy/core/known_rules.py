"""What a provider or engine does with its prompt cache: a small table, by name or by the
upstream's host.

A rule that is not known is not guessed: nothing is expected of an upstream that is not here,
until its contract is named in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from proxy.core.expect import CacheRule, Reuse, UserTurn

RULES: Mapping[str, CacheRule] = {
    rule.name: rule
    for rule in (
        CacheRule(
            "llama.cpp",
            Reuse.GENERATED,
            user_turn=UserTurn.DROPS,
            system_first=True,
            source="llama.cpp's server, --cache-prompt; measured with equality, 2026-11. What a "
            "new user message does is the model's template: Qwen3's drops earlier reasoning",
        ),
        CacheRule(
            "vllm",
            Reuse.GENERATED,
            block=16,
            user_turn=UserTurn.DROPS,
            system_first=True,
            source="vLLM 0.33, config/cache.py: DEFAULT_BLOCK_SIZE = 16, full blocks only",
        ),
        CacheRule(
            "deepseek",
            Reuse.PROMPT,
            block=64,
            ttl=3600.0,
            source="recorded runs: cached(k+1) = floor64(prompt(k)) in 241 of 245 steps; kept for "
            "hours at the least: api-docs.deepseek.com/guides/kv_cache",
        ),
        CacheRule(
            "openai",
            Reuse.PROMPT,
            block=128,
            minimum=1024,
            ttl=300.0,
            source="platform.openai.com, prompt caching: from 1,024 tokens, 128 at a time, 5 to 10 "
            "minutes of inactivity",
        ),
    )
}
_HOSTS = {"api.deepseek.com": "deepseek", "api.openai.com": "openai"}


def rule_for(name: str | None, base_url: str) -> CacheRule | None:
    """The rule of a named contract, else of the host; None where nothing is known."""
    if name is not None:
        return RULES.get(name)
    host = urlsplit(base_url).hostname or ""
    return RULES.get(_HOSTS.get(host, ""))
