"""A public model on a text that is written out: what hard prompts with a lead-in or with examples must agree with.

The text is tokenised as a whole by the public tokenizer, and the model reads its token ids; nothing here asks askwell.
"""

from typing import Any

import torch
from builders import tiny
from torch import Tensor


def next_log_probs(name: str, model: Any, tokenizer: Any, before_y: str, after_y: str) -> Tensor:
    """log p(· | text) at y, in a text that is written up to y and from y on."""
    if tiny.FAMILY[name] == "causal":
        ids = tokenizer(before_y)["input_ids"]
        return _log_probs(model(input_ids=torch.tensor([ids])), -1)
    whole = tokenizer(before_y + tokenizer.mask_token + after_y)["input_ids"]
    at = whole.index(tokenizer.mask_token_id)
    if tiny.FAMILY[name] == "masked":
        return _log_probs(model(input_ids=torch.tensor([whole])), at)
    decoder = [model.config.decoder_start_token_id, *whole[:at]]
    read = model(input_ids=torch.tensor([whole]), decoder_input_ids=torch.tensor([decoder]))
    return _log_probs(read, -1)


@torch.no_grad()
def _log_probs(read: Any, at: int) -> Tensor:
    return read.logits[0, at].log_softmax(0)
