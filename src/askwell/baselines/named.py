"""The table of baselines: what each name means. It imports nothing heavy; `run` does what it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from askwell.errors import BadOption
from askwell.specs import MixtureSpec, TrainingSpec
from askwell.specs.baselines import BaselineName


@dataclass(frozen=True)
class Baseline:
    """How a baseline is built."""

    about: str
    how: Literal["untuned", "top-1", "trained", "searched", "fine-tuned"]
    prompts: Literal["one", "several", "none", "one or none"]
    """How many prompts it takes."""
    mixture: MixtureSpec = MixtureSpec()  # noqa: RUF009 - frozen
    training: TrainingSpec = TrainingSpec()  # noqa: RUF009 - frozen
    """How it is tuned, where it is trained as our own mixtures are."""


_PRODUCT = MixtureSpec(combine="product")
# OptiPrompt's own settings: ten epochs in steps of 16 facts that grow to 3e-3 and shrink again, as our cycle does.
_DENSE = TrainingSpec(epochs=10, batch_facts=16, learning_rate=3e-3)

BASELINES: Mapping[BaselineName, Baseline] = {
    "lama": Baseline("one manual prompt, as it stands", "untuned", "one"),
    "few-shot": Baseline(
        "one manual prompt behind train facts in its own words (--shots), all as they stand",
        "untuned",
        "one",
        MixtureSpec(shots=8),
    ),
    "lpaqa-top1": Baseline("the one of several prompts that answers most train facts", "top-1", "several"),
    "lpaqa-uniform": Baseline("all prompts, their log-probabilities averaged", "untuned", "several", _PRODUCT),
    "lpaqa-weights": Baseline(
        "all prompts, their log-probabilities weighted as published in the prompt file",
        "untuned",
        "several",
        MixtureSpec(combine="product", weights="file"),
    ),
    "lpaqa-product": Baseline(
        "all prompts, their log-probabilities with weights learned on train", "trained", "several", _PRODUCT
    ),
    "optiprompt-manual": Baseline("dense vectors that start as a manual prompt", "trained", "one", training=_DENSE),
    "optiprompt-random": Baseline("five dense vectors that start at random", "trained", "none", training=_DENSE),
    "autoprompt": Baseline("trigger tokens found by a search that gradients lead", "searched", "one or none"),
    "fine-tuning": Baseline("the whole LM tuned, with one manual prompt: an upper reference", "fine-tuned", "one"),
}


def need_prompts(name: BaselineName, count: int) -> None:
    """Raises if so many prompts are not what the baseline takes."""
    match BASELINES[name].prompts:
        case "one" if count != 1:
            raise BadOption(f"{name} takes one manual prompt, and {count} were given; name one with --prompts")
        case "several" if count < 2:
            raise BadOption(
                f"{name} chooses among several prompts or combines them, and {count or 'none'} can be used here; give "
                "more with --prompts, or take the baseline lama for one manual prompt"
            )
        case "none" if count:
            raise BadOption(f"{name} makes its own prompt; leave --prompts out")
        case "one or none" if count > 1:
            raise BadOption(f"{name} starts from one prompt or from none, and {count} were given")
