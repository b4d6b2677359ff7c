"""The spec of a run on an LM, facts and prompts that are already loaded; and of one that starts from a mixture that
another LM learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter

from askwell.answers.candidates import GivenCandidates, as_candidates
from askwell.baselines.registry import BASELINES
from askwell.data.facts import Relation
from askwell.data.names import relation_label
from askwell.data.templates import Template, parsed_templates
from askwell.errors import checked
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.scoring import EvaluationFigures, Progress
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.prompts.prompt import with_label
from askwell.specs.base import Spec, no_such_option
from askwell.specs.mixture_spec import AUTO_LEAD_IN, NO_LEAD_IN, MixtureSpec
from askwell.specs.run_spec import TYPED, ControlKind, DeviceKind, Digits, PromptText, RunSpec, Start
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

_Kind = TypeVar("_Kind", bound=Spec)


@checked
def build_run_spec(
    lm: FrozenLM,
    relation: Relation,
    templates: str | Template | Sequence[Template | str],
    *,
    mixture: MixtureSpec | None = None,
    training: TrainingSpec | None = None,
    baseline: BaselineName | None = None,
    search: AutoPromptSpec | None = None,
    fine_tuning: FineTuningSpec | None = None,
    candidates: GivenCandidates = None,
    control: ControlKind | None = None,
    start: Start | None = None,
    prompts: str = TYPED,
    setting: str | None = None,
    threads: int | None = None,
    device: DeviceKind | None = None,
    dtype: Digits | None = None,
    best_only: bool = False,
    **choices: Any,
) -> RunSpec:
    """Return the spec of a run on things that are already loaded; `prompts` and `setting` name it in tables.

    Instead of `mixture`, `training`, `search` or `fine_tuning`, their fields can be given by name: `build_run_spec(lm,
    relation, templates, deep=True, pairs=400)`. Without `training` or one of its fields (and without a baseline that
    learns), the prompts are not tuned. The device and the precision are those of the LM, unless the run is to take
    place elsewhere. The context before a causal LM's sentences, where it is left open, is chosen during the run; the
    paper's recipe has none.
    """
    candidates, templates = as_candidates(candidates), parsed_templates(templates)
    learning = {"autoprompt": AutoPromptSpec, "fine-tuning": FineTuningSpec}.get(baseline or "", TrainingSpec)
    by_name = _by_spec(choices, MixtureSpec, learning)
    mixture = _chosen(MixtureSpec, mixture, by_name) or MixtureSpec()
    known = BASELINES.get(baseline) if baseline is not None else None  # an unknown name is refused with the spec
    if known is not None:
        mixture = MixtureSpec.model_validate(known.mixture.model_dump() | mixture.model_dump(exclude_unset=True))
    training = _chosen(TrainingSpec, training, by_name)
    search, fine_tuning = _chosen(AutoPromptSpec, search, by_name), _chosen(FineTuningSpec, fine_tuning, by_name)
    if training is not None and training.recipe == "paper":
        mixture = mixture.with_named_opening
    if len(lm.beginnings) == 1 and mixture.begin == "auto":  # so that "auto" and its only value are the same run
        mixture = mixture.with_named_opening.model_copy(update={"begin": next(iter(lm.beginnings))})
    mixture = with_label(mixture, relation_label(relation.name))
    fields: dict[str, Any] = {
        "lm": lm.identity.name,
        "lm_sha256": lm.identity.digest,
        "relation": relation.name,
        "facts_sha256": relation.digest,
        "prompts": prompts,
        "templates": tuple(PromptText(template=template.text, weight=template.weight) for template in templates),
        "setting": setting or baseline or setting_name(mixture, training),
        "mixture": mixture,
        "training": None if training is None else training.model_copy(update={"threads": None}),
        "candidates": None if candidates is None else candidates.name,
        "candidates_sha256": None if candidates is None else candidates.digest,
        "threads": threads or (None if training is None else training.threads) or torch.get_num_threads(),
        "device": device or TypeAdapter(DeviceKind).validate_python(lm.device.type),
        "dtype": dtype or TypeAdapter(Digits).validate_python(str(lm.dtype).removeprefix("torch.")),
        "control": control,
        "baseline": baseline,
        "search": search,
        "fine_tuning": fine_tuning,
        "start": start,
        "best_only": best_only,
    }
    return RunSpec.given(None, fields, to=build_run_spec)


def _by_spec(choices: Mapping[str, Any], *kinds: type[Spec]) -> dict[type[Spec], dict[str, Any]]:
    """Sort the choices by the spec that has a field of their name."""
    by_spec: dict[type[Spec], dict[str, Any]] = {}
    for name, value in choices.items():
        kind = next((kind for kind in kinds if name in kind.model_fields), None)
        if kind is None:
            raise no_such_option(name, build_run_spec, *kinds)
        by_spec.setdefault(kind, {})[name] = value
    return by_spec


def _chosen(kind: type[_Kind], spec: _Kind | None, by_name: Mapping[type[Spec], dict[str, Any]]) -> _Kind | None:
    """Return the spec that was given, or build it from its fields; None if neither was given."""
    fields = by_name.get(kind, {})
    return None if spec is None and not fields else kind.given(spec, fields, to=build_run_spec)


def setting_name(mixture: MixtureSpec, training: TrainingSpec | None) -> str:
    """Name an unnamed setting by how it differs from the defaults."""
    if training is None:
        parts = ["hard"]
    else:
        tuned = training.tune_vectors or (mixture.deep and training.tune_layers)
        parts = ["deep" if mixture.deep else "soft" if tuned and not mixture.keeps_words else "weights"]
        parts += ["EM"] if training.method == "em" else []
        parts += ["annealed"] if training.anneal < 1 else []
    parts += ["product"] if mixture.combine == "product" else []
    parts += [mixture.weighting] if mixture.weighting not in ("auto", "static") else []
    parts += [mixture.initial] if mixture.initial != "words" else []
    parts += [f"{mixture.copies} copies"] if mixture.copies > 1 else []
    parts += ["lead-in"] if mixture.lead_in not in (NO_LEAD_IN, AUTO_LEAD_IN) else []
    parts += [f"{mixture.shots} shots"] if mixture.shots else []
    parts += [f"prefix of {mixture.prefix}"] if mixture.prefix else []
    parts += ["shared opening"] if mixture.opening == "shared" else []
    return ", ".join(parts)


def prompts_name(sources: list[str]) -> str:
    """Name prompts in tables by the names of their sources; templates that were typed are called TYPED."""
    return " + ".join(dict.fromkeys(TYPED if "[X]" in source else Path(source).stem for source in sources))


# ── runs that start from a mixture of another LM ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TransferScores:
    """Test scores of a mixture on the LM that it was learned on, and of the other LM's prompts without it."""

    source: EvaluationFigures
    """On the LM that it was learned on."""
    words: EvaluationFigures
    """The same prompts as words, on the other LM."""


def transfer_run(
    folder: str,
    source: Mixture,
    relation: Relation,
    lm: FrozenLM,
    training: TrainingSpec | None = None,
    progress: Progress = None,
) -> tuple[Mixture, RunSpec, TransferScores]:
    """Carry the mixture saved in a folder over to another LM, and return it with the spec of its run (tuned from there
    if `training` is given, otherwise asked as it is) and the scores of what it is compared with."""
    carried = source.transfer(lm, relation)
    templates = [prompt.template for prompt in carried.prompts[:: carried.spec.copies]]
    # Words show the same examples, if any, so that only what was learned makes the difference.
    words = Mixture(lm, templates, carried.spec, examples=carried.examples or None)
    words.answer_kind, words.candidates = carried.answer_kind, carried.candidates
    fields = {name: getattr(carried.spec, name) for name in MixtureSpec.model_fields}
    asked = MixtureSpec.model_validate(fields)
    if training is not None and source.candidates is not None:
        training = training.model_copy(update={"classify": True})
    tuned = None if training is None else setting_name(asked, training)
    return (
        carried,
        build_run_spec(
            lm,
            relation,
            templates,
            mixture=asked,
            training=training,
            candidates=source.candidates,
            prompts="carried over",
            setting="carried over" if tuned is None else f"{tuned}, from another LM's",
            start=Start(lm=source.lm.identity.name, mixture_sha256=read_description(folder).digest),
        ),
        TransferScores(
            evaluate_split(source, relation, progress=progress).figures(),
            evaluate_split(words, relation, progress=progress).figures(),
        ),
    )
