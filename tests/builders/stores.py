"""A store made by hand: runs whose ranks are given, and whose figures are worked out here in plain Python."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from askwell.data.facts import SplitName
from askwell.evaluation.outcomes import Outcome, write_controls, write_outcomes
from askwell.runs.store import Store
from askwell.specs.mixture import MixtureSpec
from askwell.specs.run import PromptText, RunSpec
from askwell.specs.training import TrainingSpec
from builders.outcomes import run_of_distinct_ys

A, B = "set:a", "set:b"


def new_store(folder: Path) -> Store:
    store = Store(folder, "id")
    store.make()
    return store


def spec_of(
    relation: str = A,
    *,
    lm: str = "bert-base-cased",
    prompts: str = "mined",
    setting: str = "soft",
    seed: int = 0,
    tuned: bool = True,
    mixture: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    templates: Sequence[str] = ("[X] in [Y] .", "[X] of [Y] ."),
    **more: Any,
) -> RunSpec:
    return RunSpec(
        lm=lm, lm_sha256=more.pop("lm_sha256", "1" * 64), relation=relation,
        facts_sha256=more.pop("facts_sha256", f"facts of {relation}"), prompts=prompts,
        templates=tuple(PromptText(template=template) for template in templates), setting=setting,
        mixture=MixtureSpec(seed=seed, **(mixture or {})),
        training=TrainingSpec(**(training or {})) if tuned else None, **more,
    )  # fmt: skip


def keep(
    store: Store,
    ranks: Sequence[float],
    relation: str = A,
    *,
    left_out: int = 0,
    history: Sequence[tuple[int, float]] = (),
    metrics: Mapping[str, Any] | None = None,
    controls: Mapping[str, Sequence[float]] | None = None,
    confidences: Sequence[float] | None = None,
    **spec: Any,
) -> RunSpec:
    """Puts a run into the store that gave each of its facts such a rank; dev and test are the same facts."""
    made = spec_of(relation, **spec)
    outcomes = run_of_distinct_ys(ranks, relation, confidences)
    scores = {
        "P@1": 100 * sum(rank == 1 for rank in ranks) / len(ranks),
        "P@10": 100 * sum(rank <= 10 for rank in ranks) / len(ranks),
        "MRR": 100 * sum(1 / rank for rank in ranks) / len(ranks),
    }
    test = {
        "facts": len(ranks), "left_out_facts": [{}] * left_out, "vocabulary": f"all 9 answers of {made.lm}",
        "micro": scores, "log_loss": 1.0,
    }  # fmt: skip
    figures = {
        "test": test, "dev": test, "prompts": len(made.templates), "effective_prompts": 2.0, "temperature": None,
        "mean_entropy_over_x": None, "relation": {"read": 10 * len(ranks)}, **(metrics or {}),
    }  # fmt: skip
    lines = [json.dumps({"pairs": pairs, "dev": {"P@1": score}}) + "\n" for pairs, score in history]
    more: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_outcomes(outcomes, Path(folder) / "facts.parquet")
        parquet = (Path(folder) / "facts.parquet").read_bytes()
        if controls is not None:
            both: dict[str, dict[SplitName, list[Outcome]]] = {
                name: {"test": run_of_distinct_ys(of, relation), "dev": run_of_distinct_ys(of, relation)}
                for name, of in controls.items()
            }
            write_controls(both, Path(folder) / "controls.parquet")
            more["controls.parquet"] = (Path(folder) / "controls.parquet").read_bytes()
    documents = {
        "spec.json": made.model_dump(mode="json"),
        "metrics.json": figures,
        "environment.json": {"askwell": "1", "seconds": 2.0},
    }
    files = {name: json.dumps(content).encode() for name, content in documents.items()}
    files |= {"facts.parquet": parquet, "dev.parquet": parquet, **more}
    store.put(made.id, files | {"history.jsonl": "".join(lines).encode()})
    return made


def keep_arrows(store: Store, **spec: Any) -> None:
    """Two relations with init, soft (two seeds) and deep: what stands in each cell is worked out in the tests."""
    for relation, ranks in {A: (1, 20, 20, 20), B: (20, 2)}.items():
        keep(store, ranks, relation, setting="init", tuned=False, left_out=1, **spec)
    for seed, both in {0: {A: (1, 1, 1, 20), B: (2, 20)}, 1: {A: (1, 1, 20, 20), B: (1, 1)}}.items():
        for relation, ranks in both.items():
            keep(store, ranks, relation, setting="soft", seed=seed, left_out=1, **spec)
    for relation, ranks in {A: (1, 1, 1, 1), B: (1, 1)}.items():
        keep(store, ranks, relation, setting="deep", mixture={"deep": True}, left_out=1, **spec)
