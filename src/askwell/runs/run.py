"""Does one run, from the spec to its whole folder."""

import json
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from askwell.data.audit import audit_relation
from askwell.data.read_facts import SplitLines
from askwell.data.templates import parse_template
from askwell.errors import AskwellError, UserMistake, WrongLM
from askwell.evaluation.cautious import dev_answers
from askwell.evaluation.controls import Controls
from askwell.evaluation.evaluate import Evaluation
from askwell.evaluation.examine import Examination, examine
from askwell.evaluation.outcomes import write_controls, write_outcomes
from askwell.evaluation.partitions import partitions_of, scores_of_parts
from askwell.evaluation.trust import Trust, trust_of
from askwell.files import to_json, write_whole
from askwell.lms.controls import control_lm
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.description import About
from askwell.mixture.encode import count_reasons
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import save_mixture
from askwell.runs.environment import environment
from askwell.runs.store import (
    CONTROLS,
    ENVIRONMENT,
    HISTORY,
    METRICS,
    MIXTURE,
    PER_DEV_FACT,
    PER_FACT,
    SPEC,
    Store,
    Unfinished,
    is_store,
)
from askwell.runs.task import LMKey, RunDone, RunFailed, RunOutcome, RunTask
from askwell.specs.run import ControlKind
from askwell.training.loop import train
from askwell.training.result import TrainingResult

_loaded: dict[LMKey, FrozenLM] = {}
"""The LM of the last run: a worker loads it once and keeps it while its runs are on the same one."""
_controls: dict[tuple[LMKey, ControlKind, int], FrozenLM] = {}
"""The control LM of the last run that was on one, beside the LM that it is made from."""


def do_run(task: RunTask) -> RunOutcome:
    """Does a run. Where the worker sees the store the run lies there at the end; else its files are given back."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(task.spec.threads)
        return _do(task)
    except AskwellError as error:
        return RunFailed(task.spec.id, str(error))
    except Exception as error:  # one run that breaks must not take hours of others with it; nothing of it is lost
        return RunFailed(task.spec.id, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        torch.set_num_threads(threads)


def lm_of(task: RunTask) -> FrozenLM:
    """The LM of a run, as it was planned; of a control, the one that knows nothing."""
    key = task.lm
    if key not in _loaded:
        _loaded.clear()  # before the next is loaded: two may not fit
        _controls.clear()
        _loaded[key] = load_lm(
            key.source, revision=key.revision, device=key.device, dtype=key.dtype, compiled=key.compiled
        )
    lm = _loaded[key]
    if lm.identity.digest != task.spec.lm_sha256:
        raise WrongLM(f"{task.lm_source} is here another LM than where the sweep was planned")
    return lm if task.spec.control is None else _control_of(lm, key, task.spec.control, task.spec.seed)


def _control_of(lm: FrozenLM, key: LMKey, kind: ControlKind, seed: int) -> FrozenLM:
    if (key, kind, seed) not in _controls:
        _controls.clear()
        _controls[key, kind, seed] = control_lm(lm, kind, seed)
    return _controls[key, kind, seed]


def _do(task: RunTask) -> RunDone:
    spec, began = task.spec, time.monotonic()
    lm = lm_of(task)
    began_to_ask = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="askwell-") as elsewhere:
        shared = is_store(task.store, task.store_id)
        parent = Store(task.store, task.store_id).unfinished if shared else Path(elsewhere)
        with Unfinished(spec.id, parent) as unfinished:
            p_at_1 = _fill(task, lm, unfinished)
            seconds = {
                "seconds": round(time.monotonic() - began_to_ask, 3),
                "seconds_to_load": round(began_to_ask - began, 3),
            }
            _write_json(unfinished.result / ENVIRONMENT, {**environment(), **seconds})
            if shared:
                store = Store(task.store, task.store_id)
                unfinished.finish(store.run_folder(spec.id))
                store.forget_failure(spec.id)
                return RunDone(spec.id, p_at_1, seconds["seconds"])
            return RunDone(spec.id, p_at_1, seconds["seconds"], _files(unfinished.result))


def _fill(task: RunTask, lm: FrozenLM, unfinished: Unfinished) -> float:
    """Writes all files of the run but its environment; gives P@1 on test."""
    spec, folder = task.spec, unfinished.result
    templates = [parse_template(prompt.template, prompt.weight) for prompt in spec.templates]
    mixture = Mixture(lm, templates, spec.mixture)
    result = None
    if spec.training is not None:
        result = train(mixture, task.relation, spec.training, folder=unfinished.folder, resume=True)
    examination = examine(mixture, task.relation, candidates=task.candidates, seed=spec.seed)
    if "dev" in examination.missing:
        raise UserMistake(examination.missing["dev"])
    test, dev, controls = examination.evaluations["test"], examination.evaluations["dev"], examination.controls
    write_outcomes(dev.outcomes, folder / PER_DEV_FACT)
    write_outcomes(test.outcomes, folder / PER_FACT)
    write_controls(controls.outcomes, folder / CONTROLS)
    trust = trust_of(mixture, task.relation, examination, candidates=task.candidates)
    if result is not None:
        about = About(
            learned_from=result.learned_from(task.relation),
            scores={"dev": result.dev_scores, "test": test.for_card()},
            dev_answers=to_json(dev_answers(dev, task.candidates)),
        )
        (folder / MIXTURE).mkdir()
        save_mixture(mixture, folder / MIXTURE, about=about)
    history = result.history if result is not None else ()
    lines = [json.dumps(line.as_json(), ensure_ascii=False) + "\n" for line in history]
    write_whole(folder / HISTORY, "".join(lines))
    _write_json(folder / METRICS, _metrics(task, mixture, result, examination, trust))
    _write_json(folder / SPEC, spec.model_dump(mode="json"))
    return test.micro["P@1"]


def _metrics(
    task: RunTask,
    mixture: Mixture,
    result: TrainingResult | None,
    examination: Examination,
    trust: Trust,
) -> dict[str, Any]:
    test, dev, controls = examination.evaluations["test"], examination.evaluations["dev"], examination.controls
    return {
        "test": to_json(test.figures()),
        "dev": to_json(dev.figures()),
        "trust": to_json(trust),
        "controls": {name: to_json(control) for name, control in controls.figures().items()},
        "controls_missing": controls.missing,
        "partitions": _partitions(task, test, controls),
        "audit": asdict(audit_relation(SplitLines.of(task.relation))),
        "relation": {"name": task.relation.name, **task.relation.counts.as_json()},
        "lm": mixture.lm.identity.model_dump(mode="json"),
        "prompts": len(mixture.prompts),
        "weights": mixture.weights.tolist(),
        "left_out_prompts": [
            {"template": prompt.template.text, "reason": prompt.reason} for prompt in mixture.left_out_prompts
        ],
        "effective_prompts": mixture.effective_prompts,
        "temperature": mixture.temperature,
        "mean_entropy_over_x": examination.mean_entropy_over_x,
        "training": None
        if result is None
        else {
            "best": result.best.as_json(),
            "left_out": {split: count_reasons(left) for split, left in result.left_out.items()},
            "train_facts": result.train_facts,
            "dev_facts": result.dev_facts,
            "pairs": result.pairs,
            "planned_pairs": result.planned_pairs,
            "best_pairs": result.best.pairs,
            "step_sizes": result.step_sizes,
        },
    }


def _partitions(task: RunTask, test: Evaluation, controls: Controls) -> dict[str, Any]:
    """The scores of the parts of the test facts, each with its number of facts; easy is what a cheap control knows."""
    of_controls = [by_split["test"] for by_split in controls.controls.values()]
    partitions = partitions_of(test.outcomes, {task.relation.name: task.relation}, of_controls)
    return {
        name: {part: {"facts": len(parts[part]), **scores} for part, scores in scores_of_parts(parts).items()}
        for name, parts in partitions.items()
    }


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
