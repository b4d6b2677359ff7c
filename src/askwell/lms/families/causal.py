"""Causal LMs (GPT-2, Llama, Qwen, SmolLM2 and their like)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from askwell.lms.question import Question, Stream, Token, Unusable, lay_out
from askwell.lms.special import SpecialTokens
from askwell.lms.tokens import PromptTokens
from askwell.lms.wording import Wording


class Causal:
    """The next token after all that stands before y is the answer; what stands after y is cut."""

    name = "causal"
    auto_class = AutoModelForCausalLM

    def fits(self, config: PretrainedConfig) -> bool:
        """Whether LMs of this config are causal LMs."""
        return config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not config.is_encoder_decoder

    def stacks(self, model: PreTrainedModel) -> Mapping[str, nn.Module]:
        """The one stack."""
        return {"layers": model.base_model}

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """The model's arguments."""
        embeddings, attention_mask = embedded["layers"]
        return {"inputs_embeds": embeddings, "attention_mask": attention_mask, "use_cache": False}

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:  # noqa: ARG002
        """The sentence up to y, read at its last token."""
        sentence = lay_out(prompt, wording.prefix, (), y=-1)
        if not sentence.y_after_x:
            raise Unusable("y stands before x, and a causal LM reads only what stands before y")
        return Question({"layers": sentence.until_y()}, sentence.y_at - 1, read_after_x=True)

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The sentence up to x's end, from a start token on, so that x's first token has something before it."""
        left = lay_out(prompt, wording.prefix, (), y=-1).until_after_x().left
        if not left or left[0].id != special.text_start:
            left = (Token(special.text_start), *left)
        return Question({"layers": Stream(left, ())}, len(left) - 1, read_after_x=False, reads_x=True)
