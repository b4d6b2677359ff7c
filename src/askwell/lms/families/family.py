"""What a family of LMs has to say for itself: how it is loaded, what its stacks are, how it is asked."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from askwell.lms.question import Question
from askwell.lms.special import SpecialTokens
from askwell.lms.tokens import PromptTokens
from askwell.lms.wording import Wording


@runtime_checkable
class Family(Protocol):
    """A kind of LM. To add one, write a file beside this one and name it in `families/__init__.py`."""

    @property
    def name(self) -> str:
        """The family's name."""
        ...

    @property
    def auto_class(self) -> Any:
        """The class of transformers that loads LMs of this family."""
        ...

    def fits(self, config: PretrainedConfig) -> bool:
        """Whether LMs of this config are asked in this family's way."""
        ...

    def stacks(self, model: PreTrainedModel) -> Mapping[str, nn.Module]:
        """The parts of the model that hold one run of layers each, in the order of `Question.streams`."""
        ...

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """The arguments of the model's forward for each stack's (embeddings, attention mask)."""
        ...

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The question for y; raises Unusable for a prompt that the family cannot use."""
        ...

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """The question for x's own tokens, with y blank: p(x | t)."""
        ...
