"""More tiny LMs, for tests of walks: their layers differ from those in `tiny` by a norm, a rotary detail, a cap or a
window; everything around the layers is the same. They share GPT-2's tokenizer, or ModernBERT's."""

from collections.abc import Callable

from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from builders.tiny import FAMILY, POSITIONS, Family, TinyLM, build, gpt2_tokenizer, make_modernbert

WINDOW = 40
"""Longer than any sentence of the tests that are not about windows."""
_SHAPE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2, "head_dim": 10}
"""The size of a head does not follow from the hidden size."""


def _causal(model: type, config: type, seed: int, **options: object) -> TinyLM:
    tokenizer = gpt2_tokenizer()
    positions = {"max_position_embeddings": POSITIONS, "pad_token_id": tokenizer.eos_token_id}
    return build(model, config, tokenizer, seed, "bos eos", **positions, **options)


def make_qwen2(window: int | None = WINDOW) -> TinyLM:
    """With a window in its later layers."""
    windowed = {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 1}
    return _causal(Qwen2ForCausalLM, Qwen2Config, 20, **_SHAPE, num_key_value_heads=2, **windowed)


def make_qwen3() -> TinyLM:
    """Queries and keys are normalised head by head."""
    return _causal(Qwen3ForCausalLM, Qwen3Config, 21, **_GROUPED)


def make_mistral(window: int | None = WINDOW) -> TinyLM:
    """A window in every layer."""
    return _causal(MistralForCausalLM, MistralConfig, 22, **_GROUPED, sliding_window=window)


def make_gemma2(window: int = WINDOW) -> TinyLM:
    """Norms before and behind, scaled word vectors, a window in every other layer, and caps that are felt."""
    caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 9.0}
    return _causal(
        Gemma2ForCausalLM, Gemma2Config, 23, **_GROUPED, sliding_window=window, query_pre_attn_scalar=7, **caps
    )


def make_gemma3(window: int = WINDOW) -> TinyLM:
    """As Gemma 2 with norms of queries and keys, two rotary embeddings and no caps."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    turns = {"full_attention": {"rope_type": "default", "rope_theta": 50.0}}
    turns |= {"sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}
    options = {"layer_types": kinds, "rope_parameters": turns, "query_pre_attn_scalar": 7}
    return _causal(Gemma3ForCausalLM, Gemma3TextConfig, 24, **_GROUPED, sliding_window=window, **options)


def make_olmo2() -> TinyLM:
    """Norms behind the blocks, and of all queries and keys together."""
    return _causal(Olmo2ForCausalLM, Olmo2Config, 25, **_SHAPE, num_key_value_heads=2)


def make_pythia(parallel: bool = True) -> TinyLM:
    """A quarter of each head is rotated; attention and feed-forward block read the same rows."""
    turns = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.25}
    dropped = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    options = {"rope_parameters": turns, "use_parallel_residual": parallel, **dropped}
    return _causal(GPTNeoXForCausalLM, GPTNeoXConfig, 26, **_SHAPE, **options)


def make_pythia_serial() -> TinyLM:
    """The same, one block after the other."""
    return make_pythia(parallel=False)


def make_opt(before: bool = True) -> TinyLM:
    """Learned positions that begin at 2; norms come before the blocks, or behind them as in its one odd size."""
    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 40}
    options = {"word_embed_proj_dim": 32, "dropout": 0.0, "do_layer_norm_before": before}
    return _causal(OPTForCausalLM, OPTConfig, 27, **shape, **options)


def make_modernbert_wide(window: int = WINDOW) -> TinyLM:
    """Layers with a window have another pace of rotation."""
    turns = {
        "full_attention": {"rope_type": "default", "rope_theta": 50.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
    }
    return make_modernbert(28, window, rope_parameters=turns, attention_bias=True)


WALKED: dict[str, Callable[[], TinyLM]] = {
    "qwen2": make_qwen2,
    "qwen3": make_qwen3,
    "mistral": make_mistral,
    "gemma2": make_gemma2,
    "gemma3": make_gemma3,
    "olmo2": make_olmo2,
    "pythia": make_pythia,
    "pythia-serial": make_pythia_serial,
    "opt": make_opt,
    "modernbert-wide": make_modernbert_wide,
}
FAMILIES: dict[str, Family] = dict(FAMILY)
FAMILIES |= dict.fromkeys(WALKED, "causal")
FAMILIES["modernbert-wide"] = "masked"
