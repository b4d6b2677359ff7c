"""Masked LMs (BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA generators, ModernBERT and their like)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from askwell.lms.question import Question, Stream, X, lay_out
from askwell.lms.special import SpecialTokens
from askwell.lms.tokens import PromptTokens
from askwell.lms.wording import Wording


class Masked:
    """One mask stands at y's blank; the LM's distribution there is the answer."""

    name = "masked"
    auto_class = AutoModelForMaskedLM

    def fits(self, config: PretrainedConfig) -> bool:
        """Whether LMs of this config are masked LMs."""
        is_causal = any("CausalLM" in name or "LMHead" in name for name in config.architectures or [])
        is_decoder = config.is_encoder_decoder or getattr(config, "is_decoder", False)
        return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not is_causal and not is_decoder

    def stacks(self, model: PreTrainedModel) -> Mapping[str, nn.Module]:
        """The one stack."""
        return {"layers": model.base_model}

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """The model's arguments."""
        embeddings, attention_mask = embedded["layers"]
        return {"inputs_embeds": embeddings, "attention_mask": attention_mask}

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The whole sentence with a mask at y."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        return Question({"layers": Stream(sentence.left, sentence.right)}, sentence.y_at, sentence.y_after_x)

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The whole sentence with masks at y and at all of x's tokens."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        stream = Stream(sentence.left, sentence.right, X.MASKED)
        return Question({"layers": stream}, len(sentence.left), read_after_x=False, reads_x=True)
