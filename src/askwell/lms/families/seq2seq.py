"""Denoising seq2seq LMs (BART and its like)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, PretrainedConfig, PreTrainedModel

from askwell.lms.question import Question, Stream, X, lay_out
from askwell.lms.special import SpecialTokens
from askwell.lms.tokens import PromptTokens
from askwell.lms.wording import Wording


class Seq2Seq:
    """The encoder reads the prompt with a mask at y; the decoder is held to a copy of the prompt up to y."""

    name = "seq2seq"
    auto_class = AutoModelForSeq2SeqLM

    def fits(self, config: PretrainedConfig) -> bool:
        """Whether LMs of this config have an encoder and a decoder."""
        return config.is_encoder_decoder

    def stacks(self, model: PreTrainedModel) -> Mapping[str, nn.Module]:
        """Encoder and decoder."""
        return {"encoder": model.get_encoder(), "decoder": model.get_decoder()}

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """The model's arguments."""
        embeddings, attention_mask = embedded["encoder"]
        decoder_embeddings, decoder_attention_mask = embedded["decoder"]
        return {
            "inputs_embeds": embeddings,
            "attention_mask": attention_mask,
            "decoder_inputs_embeds": decoder_embeddings,
            "decoder_attention_mask": decoder_attention_mask,
            "use_cache": False,
        }

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The decoder's next token after its copy of all that stands before y."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        copy = lay_out(prompt, [special.decoder_start, *wording.prefix], (), special.mask)
        streams = {"encoder": Stream(sentence.left, sentence.right), "decoder": copy.until_y()}
        return Question(streams, copy.y_at - 1, copy.y_after_x)

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The decoder's tokens at x, where the encoder sees masks at x and at y."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        copy = lay_out(prompt, [special.decoder_start, *wording.prefix], (), special.mask).until_after_x()
        streams = {"encoder": Stream(sentence.left, sentence.right, X.MASKED), "decoder": copy}
        return Question(streams, len(copy.left) - 1, read_after_x=False, reads_x=True)
