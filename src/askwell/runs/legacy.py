"""Reads the folders that askwell 0.1.0 wrote for `train`, `baseline`, the runs of a sweep, and those of the demo."""

from pathlib import Path
from typing import Any

from askwell.errors import BadFile, DamagedFile
from askwell.files import read_bytes, read_document
from askwell.lms.identity import LMIdentity
from askwell.runs.record import ENVIRONMENT, HISTORY, MIXTURE, TEST_OUTCOMES, RunRecord
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import PromptText, RunSpec
from askwell.specs.training_spec import TrainingSpec

_SPEC, _METRICS, _CONFIG, _RESULT = "spec.json", "metrics.json", "config.json", "result.json"
_TRAINING = ("train_facts", "dev_facts", "left_out", "pairs", "planned_pairs", "best_pairs", "step_sizes")


def is_legacy_run(folder: Path) -> bool:
    """Whether a folder holds a complete run that 0.1.0 wrote."""
    has_outcomes = (folder / TEST_OUTCOMES).is_file()
    return has_outcomes and any((folder / name).is_file() for name in (_SPEC, _CONFIG, _RESULT))


def read_legacy_record(folder: Path) -> RunRecord:
    """The record of such a run, as far as it was kept."""
    try:
        if (folder / _SPEC).is_file():
            spec, known = _of_sweep(folder)
        elif (folder / _RESULT).is_file():
            spec, known = _of_demo(folder)
        else:
            spec, known = _of_train(folder)
        return RunRecord.model_validate({"id": spec.id, "spec": spec, **known})
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise DamagedFile(f"{folder} holds a run of askwell 0.1.0 that is damaged ({problem}); remove it") from error


def _of_sweep(folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    written, metrics = _json(folder / _SPEC), _json(folder / _METRICS)
    spec = RunSpec.model_validate({**written, "mixture": MixtureSpec.of_0_1_0(_object(written["mixture"]))})
    unusable = {prompt["template"] for prompt in metrics["left_out_prompts"]}
    usable = [prompt for prompt in spec.templates if prompt.template not in unusable]
    return spec, {
        **{name: value for name, value in metrics.items() if name in RunRecord.model_fields},
        "relation": _relation({"sha256": spec.facts_sha256, **metrics["relation"]}),
        "prompts": _prompts(usable, spec.mixture.copies, metrics["weights"]),
        "training": None if metrics["training"] is None else _training(_object(metrics["training"])),
        "history": _history(folder),
        "environment": _json(folder / ENVIRONMENT),
    }


def _of_train(folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    """`askwell train` and `askwell baseline` saved the mixture in the run's own folder."""
    config = _json(folder / _CONFIG)
    if config.get("format") != "askwell-mixture":
        raise BadFile(folder / _CONFIG, "is not the description of a saved askwell mixture")
    learned_from, relation = config["learned_from"], config["learned_from"]["relation"]
    training, baseline = learned_from.get("training"), learned_from.get("baseline")
    lm = LMIdentity.model_validate(config["base_lm"])
    spec = RunSpec(
        lm=lm.name,
        lm_sha256=lm.digest,
        relation=relation["name"],
        facts_sha256=relation["sha256"],
        prompts="given",
        templates=tuple(PromptText.model_validate(prompt) for prompt in config["prompts"]),
        setting=baseline or "train",
        mixture=MixtureSpec.of_0_1_0(_object(config["mixture_spec"])),
        training=None if training is None else TrainingSpec.model_validate({**training, "threads": None}),
        threads=(training or {}).get("threads") or 1,
        baseline=baseline,
    )
    metrics = _json(folder / _METRICS) if (folder / _METRICS).is_file() else {}
    of_card = {split: _of_card(split, _object(figures)) for split, figures in _object(config["scores"]).items()}
    return spec, {
        "lm": lm,
        "relation": {**_relation(_object(relation)), "split_by": learned_from.get("split_by")},
        "prompts": _prompts(spec.templates, spec.mixture.copies, config["mixture_weights"]),
        "left_out_prompts": [
            {"template": prompt["template"], "reason": prompt["reason"]} for prompt in config["left_out_prompts"]
        ],
        "effective_prompts": config["effective_prompts"],
        "temperature": config["temperature"] if spec.mixture.weighting == "data-dependent" else None,
        "untuned": of_card.get("test, untuned"),
        "test": metrics["test"] if "test" in metrics else of_card["test"],
        "dev": of_card.get("dev"),
        "training": _training(_object(learned_from)) if "train_facts" in learned_from else None,
        "history": _history(folder),
    }


def _of_demo(folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    kept = _json(folder / _RESULT)
    run, training = kept["run"], kept["run"]["training"]
    lm = LMIdentity.model_validate({name: value for name, value in run["lm"].items() if name != "runs"})
    spec = RunSpec(
        lm=lm.name,
        lm_sha256=lm.digest,
        relation=f"testbed:{run['relation']}",
        facts_sha256=run["facts"],
        prompts="demo",
        templates=tuple(PromptText(template=text, weight=weight) for text, weight in run["prompts"]),
        setting=folder.name.removeprefix(f"{run['relation']}-").rpartition("-")[0],
        mixture=MixtureSpec.of_0_1_0(_object(run["mixture"])),
        training=None if training is None else TrainingSpec.model_validate(training),
        threads=run["threads"],
    )
    config = folder / MIXTURE / _CONFIG
    given = [prompt.weight or 0.0 if spec.mixture.weights == "file" else 1.0 for prompt in spec.templates]
    weights = _json(config)["mixture_weights"] if config.is_file() else [one / sum(given) for one in given]
    return spec, {
        "lm": lm,
        "relation": {"name": spec.relation, "sha256": spec.facts_sha256, "counts": {}},
        "prompts": _prompts(spec.templates, 1, weights),
        "effective_prompts": kept["effective_prompts"],
        "test": kept["figures"],
        "history": kept["history"],
    }


def _relation(kept: dict[str, Any]) -> dict[str, Any]:
    counts = {name: count for name, count in kept.items() if name not in ("name", "sha256")}
    return {"name": kept["name"], "sha256": kept["sha256"], "counts": counts}


def _prompts(prompts: Any, copies: int, weights: Any) -> list[dict[str, Any]]:
    templates = [prompt.template for prompt in prompts for _ in range(copies)]
    return [{"template": text, "weight": weight} for text, weight in zip(templates, weights, strict=True)]


def _of_card(split: str, figures: dict[str, Any]) -> dict[str, Any]:
    """The few figures that a saved mixture kept of an evaluation; the others are missing."""
    scores = {name: figures[name] for name in ("P@1", "P@10", "MRR")}
    return {
        "facts": figures["facts"],
        "left_out": {},
        "left_out_facts": (),
        "split": "dev" if split == "dev" else "test",
        "vocabulary": figures["vocabulary"],
        "candidates_left_out": 0,
        "micro": scores,
        "macro": scores,
        "raw": {"micro": scores, "macro": scores},
        "log_loss": figures["log_loss"],
        "relations": {},
    }


def _training(kept: dict[str, Any]) -> dict[str, Any]:
    return {name: kept[name] for name in _TRAINING if name in kept}


def _history(folder: Path) -> list[Any]:
    path = folder / HISTORY
    lines = read_bytes(path).splitlines() if path.is_file() else []
    return [read_document(path, line) for line in lines]


def _json(path: Path) -> dict[str, Any]:
    return _object(read_document(path))


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError(f"an object was expected, not {str(document)[:40]}")
    return document
