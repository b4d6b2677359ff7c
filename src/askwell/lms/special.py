"""The special tokens of an LM that questions need."""

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from askwell.errors import LMUnavailable


class SpecialTokens:
    """Special tokens by what they are for; one that the LM lacks is an error when it is asked for."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> None:
        self._tokenizer, self._config = tokenizer, config

    @property
    def mask(self) -> int:
        """The mask token."""
        return self._need(self._tokenizer.mask_token_id, "mask token")

    @property
    def text_start(self) -> int:
        """BOS, or EOS where there is no BOS."""
        start = self._tokenizer.bos_token_id
        return self._need(start if start is not None else self._tokenizer.eos_token_id, "BOS or EOS token")

    @property
    def decoder_start(self) -> int:
        """The token with which a seq2seq decoder starts."""
        return self._need(getattr(self._config, "decoder_start_token_id", None), "decoder_start_token_id")

    def _need(self, token: int | None, what: str) -> int:
        if token is None:
            raise LMUnavailable(f"this LM ({self._config.model_type}) has no {what}, and asking it needs one")
        return token
