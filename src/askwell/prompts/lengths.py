"""How long a masked LM's answers are: p(m | r, x, t), from how sure the LM is of the first of m blanks."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Lengths(nn.Module):
    """p(m | r, x, t) = softmax over m of c_m + β s_m(t, x), s_m being the log of the largest probability that the LM
    gives to a token at the first of m blanks.

    c starts at log p(m | r) and β at 0, which is p(m | r). No gradient goes through s: prompts are tuned to be right,
    not to be sure.
    """

    def __init__(self, log_lengths: Sequence[float], **like: Any) -> None:
        super().__init__()
        self.initial = tuple(log_lengths)
        """log p(m | r), from one token on."""
        self.logits = nn.Parameter(torch.tensor(self.initial, **like))
        """c."""
        self.slope = nn.Parameter(torch.zeros((), **like))
        """β."""

    def forward(self, sureness: Float[Tensor, "*pairs lengths"]) -> Float[Tensor, "*pairs lengths"]:
        """Return log p(m | r, x, t) from s_m(t, x)."""
        return (self.logits + self.slope * sureness).log_softmax(-1)

    @property
    def are_fixed(self) -> bool:
        """Whether they are p(m | r), and no gradient is wanted that would change them: s need not be read."""
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters()):
            return False
        return not self.slope.any() and torch.equal(self.logits, self.logits.new_tensor(self.initial))
