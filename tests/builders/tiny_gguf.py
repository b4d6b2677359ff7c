"""A tiny GGUF file, written with gguf's own writer."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from builders import tiny


def write_gguf(path: Path) -> None:
    """A llama of two layers with GPT-2's kind of tokenizer."""
    width, heads, layers, inner = 32, 4, 2, 64
    tokenizer: Any = tiny.TINY["llama"]()[1]
    description = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    special = set(tokenizer.all_special_tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in description["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(True)
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        values = random.normal(0, 0.35, shape) if len(shape) > 1 else 1 + 0.1 * random.normal(size=shape)
        writer.add_tensor(name, values.astype(np.float32))

    add("token_embd.weight", len(tokens), width)
    add("output_norm.weight", width)
    add("output.weight", len(tokens), width)
    for layer in range(layers):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", width, width)
        for part in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{part}.weight", inner, width)
        add(f"blk.{layer}.ffn_down.weight", width, inner)
        add(f"blk.{layer}.attn_norm.weight", width)
        add(f"blk.{layer}.ffn_norm.weight", width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
