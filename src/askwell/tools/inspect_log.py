"""A run as an eval log of Inspect: each test fact is a sample, with its answers, its scores and the prompts."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from askwell.data.facts import SplitName
from askwell.evaluation.metrics import METRICS, TABLE_METRICS
from askwell.evaluation.outcomes import Outcome
from askwell.files import to_json, write_whole
from askwell.runs.folder import Run
from askwell.runs.record import RECORD

_SPLIT: SplitName = "test"
_SCORER = "askwell"


def write_inspect_log(run: Run, folder: Path) -> Path:
    """Write the log into a folder of logs, under a name that `inspect view` lists, and return the file."""
    made = datetime.fromtimestamp((run.folder / RECORD).stat().st_mtime, UTC)
    log = inspect_log(run, made)
    task = log["eval"]["task"].replace(":", "-").replace("/", "-")
    path = folder / f"{made:%Y-%m-%dT%H-%M-%S}+00-00_{task}_{run.record.id[:22]}.json"
    write_whole(path, json.dumps(log, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    return path


def inspect_log(run: Run, made: datetime) -> dict[str, Any]:
    """Return the log of a run that was made at this time, as JSON holds it (Inspect's version 2)."""
    record, spec = run.record, run.record.spec
    when, prompts = made.isoformat(timespec="seconds"), to_json(record.prompts)
    samples = [_sample(number, outcome, spec.asked_lm, prompts) for number, outcome in enumerate(run.test, start=1)]
    metrics = {name: {"name": name, "value": METRICS[name].mean(run.test)} for name in TABLE_METRICS}
    of_controls = {name: figures.test for name, figures in record.controls.items() if figures.test is not None}
    about = {
        "setting": spec.setting,
        "prompts": prompts,
        "scores are": "in per cent",
        "ranked among": record.test.vocabulary,
        "controls": to_json(of_controls),
        "knowledge": None if record.knowledge is None else to_json(record.knowledge),
        "left out": record.test.left_out,
    }
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": record.id[:22],
            "run_id": record.id[:22],
            "task_id": record.id[:22],
            "created": when,
            "task": spec.relation,
            "task_args": {"prompts": spec.prompts, "setting": spec.setting, "seed": spec.seed},
            "dataset": {
                "name": f"{spec.relation} ({_SPLIT})",
                "samples": len(samples),
                "sample_ids": [sample["id"] for sample in samples],
                "shuffled": False,
            },
            "model": f"askwell/{spec.asked_lm}",
            "config": {"epochs": 1},
            "packages": {"askwell": record.environment.askwell},
            "metadata": about,
        },
        "plan": {
            "name": "plan",
            "steps": [{"solver": "mixture" if record.training else "prompts", "params": {"setting": spec.setting}}],
        },
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples),
            "scores": [{"name": _SCORER, "scorer": _SCORER, "metrics": metrics}],
        },
        "stats": {"started_at": when, "completed_at": when},
        "samples": samples,
    }


def _sample(number: int, outcome: Outcome, lm: str, prompts: list[dict[str, Any]]) -> dict[str, Any]:
    answer = outcome.answers[0] if outcome.answers else ""
    found = [f"{y} {100 * p:.1f} %" for y, p in zip(outcome.answers, outcome.probabilities, strict=True)]
    rank = f"rank {outcome.rank:g}" if math.isfinite(outcome.rank) else "not among the first ten"
    asked = "\n".join(f"{prompt['weight']:.4f}  {prompt['template'].replace('[X]', outcome.x)}" for prompt in prompts)
    reply = {"role": "assistant", "content": answer}
    return {
        "id": number,
        "epoch": 1,
        "input": outcome.x,
        "target": list(dict.fromkeys((outcome.y, *outcome.golds))),
        "messages": [{"role": "user", "content": asked}, reply],
        "output": {"model": lm, "choices": [{"message": reply, "stop_reason": "stop"}]},
        "scores": {
            _SCORER: {
                "value": {name: METRICS[name].scale * METRICS[name].value(outcome) for name in TABLE_METRICS},
                "answer": answer,
                "explanation": f"{outcome.y}: {rank}. Answers: {', '.join(found)}",
                "metadata": {
                    "rank": _finite(outcome.rank),
                    "log_probability": _finite(outcome.log_probability),
                    "answers": list(outcome.answers),
                    "probabilities": list(outcome.probabilities),
                },
            }
        },
        "metadata": {"relation": outcome.relation, "y": outcome.y},
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
