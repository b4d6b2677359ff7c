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
            raise _bad(f"{name} takes one manual prompt, but {count} were given; name one with `prompts`", "prompts")
        case "several" if count < 2:
            raise _bad(
                f"{name} chooses among several prompts or combines them, but {count or 'none'} can be used here; give "
                "more with `prompts`, or use the baseline lama for one manual prompt",
                "prompts",
            )
        case "none" if count:
            raise _bad(f"{name} makes its own prompt; leave `prompts` out", "prompts")
        case "one or none" if count > 1:
            raise BadOption(f"{name} starts from one prompt or from none, but {count} were given")


def _bad(message: str, *arguments: str) -> BadOption:
    """Return the error with this message, whose arguments have options of the same names."""
    return BadOption(message, **{argument: f"--{argument.replace('_', '-')}" for argument in arguments})


def baseline_settings(
    name: BaselineName,
    training: TrainingSpec = TrainingSpec(),  # noqa: B008 - frozen
    search: AutoPromptSpec = AutoPromptSpec(),  # noqa: B008 - frozen
    fine_tuning: FineTuningSpec = FineTuningSpec(),  # noqa: B008 - frozen
    **mixture: Any,
) -> dict[str, Any]:
    """Return the choices of a run of the baseline, updated by those given; it is an error to give one that it does not
    have. The specs of the kinds of learning that it does not use are None."""
    how = BASELINES[name].how
    trained = _training_of(name, training, search, fine_tuning)
    return {
        "mixture": _mixture_of(name, **mixture),
        "training": trained if how == "trained" else None,
        "search": search if how == "searched" else None,
        "fine_tuning": fine_tuning if how == "fine-tuned" else None,
    }


def _mixture_of(name: BaselineName, **given: Any) -> MixtureSpec:
    baseline = BASELINES[name]
    if baseline.how == "searched":
        refused = f"{name} only searches with answers that are one token of the LM"
        if (answers := given.get("answers", "auto")) not in ("auto", "one-token"):
            raise _bad(f"`answers` {answers}: {refused}", "answers")
        if "longest_answer" in given:
            raise _bad(f"`longest_answer`: {refused}", "longest_answer")
        given["answers"] = "one-token"
    if given.get("lead_in") == AUTO_LEAD_IN:  # chosen, unless the baseline says that there is none
        del given["lead_in"]
    if given.get("lead_in", NO_LEAD_IN) != NO_LEAD_IN and "none" in baseline.prompts:
        raise _bad(f"`lead_in`: {name} searches for its own words; leave it out", "lead_in")
    of_examples = [option for option in ("shots", "shot_separator", "shot_draws") if option in given]
    if of_examples and baseline.how not in ("untuned", "top-1"):
        raise _bad(f"`{of_examples[0]}` is not a setting of {name}: it has no examples", of_examples[0])
    if given.get("shots") == 0 and baseline.mixture.shots:
        raise _bad("`shots` 0: without examples, the baseline is lama", "shots")
    return _validated(MixtureSpec, baseline.mixture.model_dump() | given)


def _training_of(
    name: BaselineName, training: TrainingSpec, search: AutoPromptSpec, fine_tuning: FineTuningSpec
) -> TrainingSpec:
    how = BASELINES[name].how
    fits = {"trained": training, "searched": search, "fine-tuned": fine_tuning}
    prefix = {"fine-tuned": "fine_tuning."}
    for kind, spec in fits.items():
        given = sorted(spec.model_fields_set - {"threads"})
        if given and kind != how:
            argument = f"{prefix.get(kind, '')}{given[0]}"
            own = [f"{prefix.get(how, '')}{field}" for field in type(fits[how]).model_fields] if how in fits else []
            takes = f"; it takes {', '.join(f'`{field}`' for field in own)}" if own else ": it learns nothing"
            raise _bad(f"`{argument}` is not a setting of {name}{takes}", argument, *own)
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
        raise _bad(f"`{name}` {first['input']}: {problem}", name) from None
