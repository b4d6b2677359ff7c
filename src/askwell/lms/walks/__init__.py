"""Layer walks: the layers of well-known public models, walked row by row, without padding and without idle positions.

A walk uses the public model's own modules and weights. It is chosen by the model's exact class and is used only if it
gives what the public model gives (`check.py`); every other model runs as a whole, with hooks.
"""

from collections.abc import Callable, Mapping

from transformers import (
    AlbertForMaskedLM,
    BartForConditionalGeneration,
    BertForMaskedLM,
    CamembertForMaskedLM,
    DistilBertForMaskedLM,
    ElectraForMaskedLM,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    RobertaForMaskedLM,
    XLMRobertaForMaskedLM,
)

from askwell.lms.walks.attention import Tails
from askwell.lms.walks.bart import walk_bart
from askwell.lms.walks.bert import walk_albert, walk_bert, walk_distilbert, walk_electra, walk_roberta
from askwell.lms.walks.causal import walk_gpt2, walk_llama
from askwell.lms.walks.walk import Walk

WALKS: Mapping[type[PreTrainedModel], Callable[..., Walk]] = {
    BertForMaskedLM: walk_bert,
    RobertaForMaskedLM: walk_roberta,
    XLMRobertaForMaskedLM: walk_roberta,
    CamembertForMaskedLM: walk_roberta,
    ElectraForMaskedLM: walk_electra,
    DistilBertForMaskedLM: walk_distilbert,
    AlbertForMaskedLM: walk_albert,
    BartForConditionalGeneration: walk_bart,
    LlamaForCausalLM: walk_llama,
    Qwen2ForCausalLM: walk_llama,
    GPT2LMHeadModel: walk_gpt2,
}


def walk_of(model: PreTrainedModel, tails: Tails) -> Walk | None:
    """The walk for models of exactly this class, None where there is none."""
    make = WALKS.get(type(model))
    if make is None or any(kind != "full_attention" for kind in getattr(model.config, "layer_types", None) or ()):
        return None  # a window over the text shows only in long texts, so no check at load time would find it
    return make(model, tails)


__all__ = ["Tails", "Walk", "walk_of"]
