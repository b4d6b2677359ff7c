"""Reads the folders that askwell 0.1.0 wrote for `train`, `baseline`, the runs of a sweep, and those of the demo."""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from askwell.errors import BadFile, DamagedFile
from askwell.evaluation.evaluate import EvaluationFigures, RawScores
from askwell.lms.identity import LMIdentity
from askwell.runs.record import (
    ENVIRONMENT,
    HISTORY,
    MIXTURE,
    TEST_OUTCOMES,
    Environment,
    PromptRecord,
    RelationRecord,
    RunRecord,
    TrainingRecord,
)
from askwell.specs import MixtureSpec, PromptText, RunSpec, TrainingSpec

_SPEC, _METRICS, _CONFIG, _RESULT = "spec.json", "metrics.json", "config.json", "result.json"
_COUNTS = ("train_facts", "dev_facts", "left_out", "pairs", "planned_pairs", "best_pairs", "step_sizes")


def is_legacy_run(folder: Path) -> bool:
    """Whether a folder holds a complete run that 0.1.0 wrote."""
    has_outcomes = (folder / TEST_OUTCOMES).is_file()
    return has_outcomes and any((folder / name).is_file() for name in (_SPEC, _CONFIG, _RESULT))


def read_legacy_record(folder: Path) -> RunRecord:
    """The record of such a run, as far as it was kept."""
    try:
        if (folder / _SPEC).is_file():
            return _of_sweep(folder)
        if (folder / _RESULT).is_file():
            return _of_demo(folder)
        return _of_train(folder)
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise DamagedFile(f"{folder} holds a run of askwell 0.1.0 that is damaged ({problem}); remove it") from error


def _of_sweep(folder: Path) -> RunRecord:
    written = _json(folder / _SPEC)
    spec = RunSpec.model_validate({**written, "mixture": MixtureSpec.of_0_1_0(written["mixture"])})
    metrics, relation = _json(folder / _METRICS), _json(folder / _METRICS)["relation"]
    training = metrics["training"]
    weights = metrics["weights"]
    return RunRecord(
        id=spec.id,
        spec=spec,
        lm=LMIdentity.model_validate(metrics["lm"]),
        relation=RelationRecord(
            name=relation["name"],
            sha256=spec.facts_sha256,
            counts={name: count for name, count in relation.items() if name != "name"},
        ),
        prompts=_prompts(_usable(spec.templates, metrics["left_out_prompts"], spec.mixture), weights),
        left_out_prompts=metrics["left_out_prompts"],
        effective_prompts=metrics["effective_prompts"],
        temperature=metrics["temperature"],
        mean_entropy_over_x=metrics["mean_entropy_over_x"],
        test=_evaluation(metrics["test"]),
        dev=_evaluation(metrics["dev"]),
        controls=metrics["controls"],
        controls_missing=metrics["controls_missing"],
        trust=metrics["trust"],
        partitions=metrics["partitions"],
        audit=metrics["audit"],
        training=None if training is None else _training(training),
        history=_history(folder),
        environment=Environment.model_validate(_json(folder / ENVIRONMENT)),
    )


def _of_train(folder: Path) -> RunRecord:
    """`askwell train` and `askwell baseline` saved the mixture in the run's own folder."""
    config = _json(folder / _CONFIG)
    if config.get("format") != "askwell-mixture":
        raise BadFile(folder / _CONFIG, "is not the description of a saved askwell mixture")
    identity = LMIdentity.model_validate(config["base_lm"])
    learned_from, scores = config["learned_from"], config["scores"]
    relation, training = learned_from["relation"], learned_from.get("training")
    metrics = _json(folder / _METRICS) if (folder / _METRICS).is_file() else {}
    mixture = MixtureSpec.of_0_1_0(config["mixture_spec"])
    templates = tuple(PromptText.model_validate(prompt) for prompt in config["prompts"])
    baseline = learned_from.get("baseline")
    threads = (training or {}).get("threads") or 1
    spec = RunSpec(
        lm=identity.name,
        lm_sha256=identity.digest,
        relation=relation["name"],
        facts_sha256=relation["sha256"],
        prompts="given",
        templates=templates,
        setting=baseline or "train",
        mixture=mixture,
        training=None if training is None else TrainingSpec.model_validate({**training, "threads": None}),
        threads=threads,
        baseline=baseline,
    )
    of_card = {split: _of_card(split, figures) for split, figures in scores.items()}
    return RunRecord(
        id=spec.id,
        spec=spec,
        lm=identity,
        relation=RelationRecord(
            name=relation["name"],
            sha256=relation["sha256"],
            split_by=learned_from.get("split_by"),
            counts={name: count for name, count in relation.items() if name not in ("name", "sha256")},
        ),
        prompts=_prompts([prompt.template for prompt in templates for _ in range(mixture.copies)],
                         config["mixture_weights"]),
        left_out_prompts=[
            {"template": prompt["template"], "reason": prompt["reason"]} for prompt in config["left_out_prompts"]
        ],
        effective_prompts=config["effective_prompts"],
        temperature=config["temperature"] if mixture.weighting == "data-dependent" else None,
        untuned=of_card.get("test, untuned"),
        test=_evaluation(metrics["test"]) if "test" in metrics else of_card["test"],
        dev=of_card.get("dev"),
        training=_training(learned_from) if "train_facts" in learned_from else None,
        history=_history(folder),
    )  # fmt: skip


def _of_demo(folder: Path) -> RunRecord:
    kept = _json(folder / _RESULT)
    run = kept["run"]
    lm = LMIdentity.model_validate({name: value for name, value in run["lm"].items() if name != "runs"})
    templates = tuple(PromptText(template=text, weight=weight) for text, weight in run["prompts"])
    mixture = MixtureSpec.of_0_1_0(run["mixture"])
    training = run["training"]
    relation = f"testbed:{run['relation']}"
    spec = RunSpec(
        lm=lm.name,
        lm_sha256=lm.digest,
        relation=relation,
        facts_sha256=run["facts"],
        prompts="demo",
        templates=templates,
        setting=folder.name.removeprefix(f"{run['relation']}-").rpartition("-")[0],
        mixture=mixture,
        training=None if training is None else TrainingSpec.model_validate(training),
        threads=run["threads"],
    )
    config = folder / MIXTURE / _CONFIG
    given = [prompt.weight or 0.0 if mixture.weights == "file" else 1.0 for prompt in templates]
    weights = _json(config)["mixture_weights"] if config.is_file() else [one / sum(given) for one in given]
    return RunRecord(
        id=spec.id,
        spec=spec,
        lm=lm,
        relation=RelationRecord(name=relation, sha256=run["facts"], counts={}),
        prompts=_prompts([prompt.template for prompt in templates], weights),
        effective_prompts=kept["effective_prompts"],
        test=_evaluation(kept["figures"]),
        history=tuple(kept["history"]),
    )


def _evaluation(figures: dict[str, Any]) -> EvaluationFigures:
    return TypeAdapter(EvaluationFigures).validate_python(figures)


def _of_card(split: str, figures: dict[str, Any]) -> EvaluationFigures:
    """The few figures that a saved mixture kept of an evaluation; the others are missing."""
    scores = {name: figures[name] for name in ("P@1", "P@10", "MRR")}
    return EvaluationFigures(
        facts=figures["facts"],
        left_out={},
        left_out_facts=(),
        split="dev" if split == "dev" else "test",
        vocabulary=figures["vocabulary"],
        candidates_left_out=0,
        micro=scores,
        macro=scores,
        raw=RawScores(scores, scores),
        log_loss=figures["log_loss"],
        relations={},
    )


def _training(kept: dict[str, Any]) -> TrainingRecord:
    return TrainingRecord(**{name: kept[name] for name in _COUNTS if name in kept})


def _usable(templates: tuple[PromptText, ...], left_out: list[dict[str, str]], mixture: MixtureSpec) -> list[str]:
    without = {prompt["template"] for prompt in left_out}
    return [one.template for one in templates if one.template not in without for _ in range(mixture.copies)]


def _prompts(templates: list[str], weights: list[float]) -> tuple[PromptRecord, ...]:
    return tuple(PromptRecord(template=text, weight=weight) for text, weight in zip(templates, weights, strict=True))


def _history(folder: Path) -> tuple[Any, ...]:
    path = folder / HISTORY
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return tuple(json.loads(line) for line in lines)


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
