"""The table of baselines: what each name means and which settings it takes. It imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from askwell.errors import BadOption
from askwell.specs.mixture_spec import AUTO_LEAD_IN, NO_LEAD_IN, MixtureSpec
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

_SpecKind = TypeVar("_SpecKind", bound=BaseModel)


@dataclass(frozen=True)
class Baseline:
    """How a baseline is built."""

    about: str
    how: Literal["untuned", "top-1", "trained", "searched", "fine-tuned"]
    prompts: Literal["one", "several", "none", "one or none"]
    """How many prompts it takes."""
    mixture: MixtureSpec = MixtureSpec()  # noqa: RUF009 - frozen
    training: TrainingSpec = TrainingSpec()  # noqa: RUF009 - frozen
    """How it is tuned, if it is trained like our mixtures."""

    @property
    def can_continue(self) -> bool:
        """Whether it can be continued after an interruption."""
        return self.how in ("trained", "searched")


_PRODUCT = MixtureSpec(combine="product")
# Baselines that learn as published have nothing before the sentence unless named; hard prompts have what ours have.
_PLAIN = MixtureSpec().with_named_opening
# OptiPrompt's settings: ten epochs in steps of 16 facts, with a step size that rises to 3e-3 and falls again, like our
# cycle.
_DENSE = TrainingSpec(epochs=10, batch_facts=16, learning_rate=3e-3)

BASELINES: Mapping[BaselineName, Baseline] = {
    "lama": Baseline("one manual prompt, untuned", "untuned", "one"),
    "few-shot": Baseline(
        "one manual prompt after train facts written in its words (--shots), untuned",
        "untuned",
        "one",
        MixtureSpec(shots=8),
    ),
    "lpaqa-top1": Baseline("the best of several prompts on train", "top-1", "several"),
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
    "optiprompt-manual": Baseline("dense vectors that start as a manual prompt", "trained", "one", _PLAIN, _DENSE),
    "optiprompt-random": Baseline("five dense vectors that start at random", "trained", "none", _PLAIN, _DENSE),
    "autoprompt": Baseline(
        "trigger tokens found by a gradient-guided search, for answers of one token", "searched", "one or none", _PLAIN
    ),
    "fine-tuning": Baseline(
        "the whole LM tuned, with one manual prompt: an upper reference", "fine-tuned", "one", _PLAIN
    ),
}


def need_prompts(name: BaselineName, count: int) -> None:
    """Raise an error if the baseline does not take this many prompts."""
    match BASELINES[name].prompts:
        case "one" if count != 1:
            raise BadOption(
                f"{name} takes one manual prompt, but {count} were given; name one with `prompts`", prompts="--prompts"
            )
        case "several" if count < 2:
            raise BadOption(
                f"{name} chooses among several prompts or combines them, but {count or 'none'} can be used here; give "
                "more with `prompts`, or use the baseline lama for one manual prompt",
                prompts="--prompts",
            )
        case "none" if count:
            raise BadOption(f"{name} makes its own prompt; leave `prompts` out", prompts="--prompts")
        case "one or none" if count > 1:
            raise BadOption(f"{name} starts from one prompt or from none, but {count} were given")


@dataclass(frozen=True)
class BaselineSettings:
    """All choices of one baseline; None for the kinds of learning that it does not use."""

    mixture: MixtureSpec
    training: TrainingSpec | None
    search: AutoPromptSpec | None
    fine_tuning: FineTuningSpec | None


def baseline_settings(
    name: BaselineName,
    training: TrainingSpec = TrainingSpec(),  # noqa: B008 - frozen
    search: AutoPromptSpec = AutoPromptSpec(),  # noqa: B008 - frozen
    fine_tuning: FineTuningSpec = FineTuningSpec(),  # noqa: B008 - frozen
    **mixture: Any,
) -> BaselineSettings:
    """Return the baseline's settings, updated by those given; it is an error to give one that it does not have."""
    how = BASELINES[name].how
    chosen = _training_of(name, training, search, fine_tuning)
    return BaselineSettings(
        _mixture_of(name, **mixture),
        chosen if how == "trained" else None,
        search if how == "searched" else None,
        fine_tuning if how == "fine-tuned" else None,
    )


def _mixture_of(name: BaselineName, **given: Any) -> MixtureSpec:
    baseline = BASELINES[name]
    if baseline.how == "searched":
        if given.get("answers") == "any-length":
            raise BadOption(
                f"`answers` any-length: {name} only searches with answers that are one token of the LM",
                answers="--answers",
            )
        if "longest_answer" in given:
            raise BadOption(
                f"`longest_answer`: {name} only searches with answers that are one token of the LM",
                longest_answer="--longest-answer",
            )
        given["answers"] = "one-token"
    if given.get("lead_in") == AUTO_LEAD_IN:  # chosen, unless the baseline says that there is none
        del given["lead_in"]
    if given.get("lead_in", NO_LEAD_IN) != NO_LEAD_IN and "none" in baseline.prompts:
        raise BadOption(f"`lead_in`: {name} searches for its own words; leave it out", lead_in="--lead-in")
    of_examples = [option for option in ("shots", "shot_separator", "shot_draws") if option in given]
    if of_examples and baseline.how not in ("untuned", "top-1"):
        option = of_examples[0]
        message = f"`{option}` is not a setting of {name}: it has no examples"
        raise BadOption(message, **{option: f"--{option.replace('_', '-')}"})
    if given.get("shots") == 0 and baseline.mixture.shots:
        raise BadOption("`shots` 0: without examples, the baseline is lama", shots="--shots")
    return _validated(MixtureSpec, baseline.mixture.model_dump() | given)


def _training_of(
    name: BaselineName, training: TrainingSpec, search: AutoPromptSpec, fine_tuning: FineTuningSpec
) -> TrainingSpec:
    how = BASELINES[name].how
    fits = {"trained": training, "searched": search, "fine-tuned": fine_tuning}
    prefix = {"fine-tuned": "fine-tuning."}
    for kind, spec in fits.items():
        given = sorted(spec.model_fields_set - {"threads"})
        if given and kind != how:
            option = f"--{prefix.get(kind, '')}{given[0].replace('_', '-')}"
            raise BadOption(f"{option} is not a setting of {name}{_own_options(fits.get(how), prefix.get(how, ''))}")
    own = BASELINES[name].training.model_dump(exclude_unset=True)
    given = training.model_dump(exclude_unset=True)
    if {"pairs", "minutes", "epochs"} & given.keys():  # one budget replaces another
        own = {key: value for key, value in own.items() if key not in ("pairs", "minutes", "epochs")}
    return _validated(TrainingSpec, own | given)


def _validated(kind: type[_SpecKind], values: dict[str, Any]) -> _SpecKind:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # our own, which names the option
            raise BadOption(first["msg"].removeprefix("Value error, ")) from None
        name = ".".join(str(part) for part in first["loc"])
        problem = first["msg"][0].lower() + first["msg"][1:]
        options = {name: f"--{name.replace('_', '-')}"}
        raise BadOption(f"`{name}` {first['input']}: {problem}", **options) from None


def _own_options(spec: BaseModel | None, prefix: str) -> str:
    if spec is None:
        return ": it learns nothing"
    return "; it takes " + ", ".join(f"--{prefix}{field.replace('_', '-')}" for field in type(spec).model_fields)
