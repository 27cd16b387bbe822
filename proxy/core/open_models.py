"""Open models whose architecture is published: numbers of their `config.json`, by name.

Each is named as its repository on Hugging Face, where the file is; only the text model counts.
"""

from __future__ import annotations

from proxy.core.architecture import Architecture, Attention, FeedForward, Latent, Layers, Linear


def find(name: str) -> Architecture:
    """By its name, with or without the owner, in any case. Raises ValueError, which names all."""
    wanted = name.strip().lower()
    for model in MODELS:
        known = model.name.lower()
        if wanted in (known, known.partition("/")[2]):
            return model
    known = ", ".join(model.name.partition("/")[2] for model in MODELS)
    raise ValueError(f"no architecture of {name[:60]!r} is known; known: {known}")


def _model(name: str, hidden: int, *layers: Layers) -> Architecture:
    return Architecture(name, hidden, layers, f"huggingface.co/{name}: config.json")


def _hybrid(name: str, hidden: int, layers: int, full: Attention, linear: Linear,
            inside: FeedForward) -> Architecture:  # fmt: skip
    """Three layers in four are linear."""
    quarter = layers // 4
    return _model(name, hidden, Layers(quarter, full, inside), Layers(3 * quarter, linear, inside))


def _gpt_oss(name: str, layers: int, experts: int) -> Architecture:
    """Every other layer has a window of 128."""
    inside = FeedForward(2880, active=4, experts=experts)
    return _model(
        name,
        2880,
        Layers(layers // 2, Attention(64, 8, 64), inside),
        Layers(layers // 2, Attention(64, 8, 64, window=128), inside),
    )


def _latent(name: str, heads: int, dense: int, experts: int) -> Architecture:
    """The shape of DeepSeek-V3: 61 layers, the first of them dense."""
    attention = Latent(heads, q_rank=1536, kv_rank=512, plain=128, rotary=64, value=128)
    sparse = FeedForward(2048, active=8, shared=2048, experts=experts)
    return _model(
        name,
        7168,
        Layers(dense, attention, FeedForward(18_432)),
        Layers(61 - dense, attention, sparse),
    )


MODELS: tuple[Architecture, ...] = (
    _model("Qwen/Qwen3-8B", 4096, Layers(36, Attention(32, 8, 128), FeedForward(12_288))),
    _model("Qwen/Qwen3-32B", 5120, Layers(64, Attention(64, 8, 128), FeedForward(25_600))),
    _model(
        "Qwen/Qwen3-30B-A3B",
        2048,
        Layers(48, Attention(32, 4, 128), FeedForward(768, active=8, experts=128)),
    ),
    _model(
        "Qwen/Qwen3-235B-A22B",
        4096,
        Layers(94, Attention(64, 4, 128), FeedForward(1536, active=8, experts=128)),
    ),
    _hybrid(
        "Qwen/Qwen3-Next-80B-A3B-Thinking",
        2048,
        48,
        Attention(16, 2, 256, gated=True),
        Linear(16, 32, 128, 128),
        FeedForward(512, active=10, shared=512, experts=512),
    ),
    _hybrid(
        "Qwen/Qwen3.5-27B",
        5120,
        64,
        Attention(24, 4, 256, gated=True),
        Linear(16, 48, 128, 128),
        FeedForward(17_408),
    ),
    _hybrid(
        "Qwen/Qwen3.5-397B-A17B",
        4096,
        60,
        Attention(32, 2, 256, gated=True),
        Linear(16, 64, 128, 128),
        FeedForward(1024, active=10, shared=1024, experts=512),
    ),
    _model(
        "meta-llama/Llama-3.1-8B-Instruct",
        4096,
        Layers(32, Attention(32, 8, 128), FeedForward(14_336)),
    ),
    _model(
        "meta-llama/Llama-3.1-70B-Instruct",
        8192,
        Layers(80, Attention(64, 8, 128), FeedForward(28_672)),
    ),
    _gpt_oss("openai/gpt-oss-20b", 24, 32),
    _gpt_oss("openai/gpt-oss-120b", 36, 128),
    _model(
        "zai-org/GLM-4.5-Air",
        4096,
        Layers(1, Attention(96, 8, 128), FeedForward(10_944)),
        Layers(45, Attention(96, 8, 128), FeedForward(1408, active=8, shared=1408, experts=128)),
    ),
    _model(
        "zai-org/GLM-4.5",
        5120,
        Layers(3, Attention(96, 8, 128), FeedForward(12_288)),
        Layers(89, Attention(96, 8, 128), FeedForward(1536, active=8, shared=1536, experts=160)),
    ),
    _latent("deepseek-ai/DeepSeek-V3", heads=128, dense=3, experts=256),
    _latent("moonshotai/Kimi-K2-Thinking", heads=64, dense=1, experts=384),
)
