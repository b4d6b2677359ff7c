"""What a walk gains over the public model run as a whole, for each architecture of `lms/walks/architectures.py`.

The LMs have random weights and one shape; x's and prompts are as long as those of T-REx. A walk that gains less than
1.3 × in training is not worth its code.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import transformers
from contenders import our_epoch, our_evaluation
from measure import in_turns
from report import merge_summary, write_part
from shapes import RANDOM, facts_of, mixture_of

from askwell import load_lm
from askwell.lms.frozen import FrozenLM

if TYPE_CHECKING:
    from parts import Setting

SHAPE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 8192}
WIDE = {**SHAPE, "intermediate_size": 1024}
GROUPED = {**WIDE, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 64}
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "Mistral": ("MistralForCausalLM", "MistralConfig", GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", HEADS),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", {**HEADS, "query_pre_attn_scalar": 64}),
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**HEADS, "query_pre_attn_scalar": 64}),
    "OLMo 2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", WIDE),
    "OPT": ("OPTForCausalLM", "OPTConfig", {**SHAPE, "ffn_dim": 1024, "word_embed_proj_dim": 256}),
    "GPT-2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_inner": 1024, "vocab_size": 8192},
    ),
    "ModernBERT": ("ModernBertForMaskedLM", "ModernBertConfig", {**WIDE, "intermediate_size": 512}),
}
_DROPPED = ("attention_dropout", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")


def walks(setting: "Setting") -> None:
    """Measure the ratios of the whole model's time to the walk's."""
    rows: list[dict[str, Any]] = []
    for name in ["Gemma 2"] if setting.quick else ARCHITECTURES:
        lm = _random_lm(name)
        mixture = mixture_of(lm, 4 if setting.quick else 8, deep=False)
        facts = facts_of(mixture, 4 if setting.quick else 16)
        row: dict[str, Any] = {"architecture": name}
        for what, run in (("train", our_epoch(mixture, facts, 16)), ("evaluate", our_evaluation(mixture, facts))):
            times = in_turns({"whole": _as_a_whole(lm, run), "walk": run}, setting.rounds)
            row |= {f"{what}, {way}": each.as_json() for way, each in times.items()}
            row[f"{what}, ratio"] = times["whole"].median / times["walk"].median
        rows.append(row)
    write_part(setting.folder, "walks", rows)
    merge_summary(setting.folder, {"walks": {row["architecture"]: round(row["train, ratio"], 2) for row in rows}})


def _random_lm(name: str) -> FrozenLM:
    model, config, options = ARCHITECTURES[name]
    masked = "MaskedLM" in model
    tokenizer: Any = load_lm("testbed:bert" if masked else "testbed:causal", device="cpu").tokenizer
    torch.manual_seed(0)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    if masked:
        ids = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id, "pad_token_id": 0}
    made = getattr(transformers, config)(**options, **ids)
    for dropped in _DROPPED:
        if hasattr(made, dropped):
            setattr(made, dropped, 0.0)
    lm = FrozenLM(getattr(transformers, model)(made).eval(), tokenizer, name=RANDOM, device="cpu")
    if lm.walk is None:
        raise ValueError(f"{name} is not walked")
    lm.may_share_prefixes = False
    return lm


def _as_a_whole(lm: FrozenLM, run: Callable[[], object]) -> Callable[[], None]:
    def whole() -> None:
        walk, lm.walk = lm.walk, None
        try:
            run()
        finally:
            lm.walk = walk

    return whole
