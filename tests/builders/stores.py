"""A store made by hand: runs whose ranks are given, and whose figures are worked out here in plain Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from askwell.data.facts import SplitName
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import EvaluationFigures, LeftOut
from askwell.lms.identity import LMIdentity
from askwell.runs.folder import write_run
from askwell.runs.record import RunRecord
from askwell.runs.store import Store
from askwell.specs.mixture_spec import MixtureSpec, SettledMixtureSpec
from askwell.specs.run_spec import PromptText, RunSpec
from askwell.specs.training_spec import TrainingSpec
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
        mixture=MixtureSpec.model_validate({"seed": seed, "lead_in": "none", **(mixture or {})}),
        training=TrainingSpec(**(training or {})) if tuned else None, **more,
    )  # fmt: skip


def settled(mixture: MixtureSpec) -> SettledMixtureSpec:
    """What a spec becomes where there is nothing to choose by."""
    begin = "space" if mixture.begin == "auto" else mixture.begin
    return SettledMixtureSpec.model_validate({**mixture.with_named_opening.model_dump(), "begin": begin})


def lm_of(name: str) -> LMIdentity:
    """Return the identity of an LM that does not exist."""
    return LMIdentity(
        name=name, revision=None, architecture="BertForMaskedLM", family="masked", tokenizer_sha256="t",
        config_sha256="c", tensors_sha256="w",
    )  # fmt: skip


def figures_of(ranks: Sequence[float], lm: str, relation: str, split: SplitName, left_out: int) -> EvaluationFigures:
    """The figures of facts with these ranks, worked out in plain Python."""
    scores = {
        "P@1": 100 * sum(rank == 1 for rank in ranks) / len(ranks),
        "P@10": 100 * sum(rank <= 10 for rank in ranks) / len(ranks),
        "MRR": 100 * sum(1 / rank for rank in ranks) / len(ranks),
    }
    return EvaluationFigures(
        facts=len(ranks), left_out={"no reason": left_out} if left_out else {},
        left_out_facts=tuple(LeftOut("x", "y", "no reason") for _ in range(left_out)), split=split,
        vocabulary=f"all 9 answers of {lm}", candidates_left_out=0, micro=scores, macro=scores,
        raw={"micro": scores, "macro": scores}, log_loss=1.0, relations={relation: {"facts": len(ranks), **scores}},
    )  # fmt: skip


def record_of(
    spec: RunSpec,
    ranks: Sequence[float],
    *,
    left_out: int = 0,
    counts: Mapping[str, int] | None = None,
    **known: Any,
) -> RunRecord:
    """The record of a run that gave each of its facts such a rank; dev and test are the same facts."""
    return RunRecord.model_validate(
        {
            "id": spec.id,
            "spec": spec,
            "mixture": settled(spec.mixture),
            "lm": lm_of(spec.lm),
            "relation": {
                "name": spec.relation,
                "sha256": spec.facts_sha256,
                "counts": {"read": 10 * len(ranks), **(counts or {})},
            },
            "prompts": [{"template": prompt.template, "weight": 0.5} for prompt in spec.templates],
            "effective_prompts": 2.0,
            "test": figures_of(ranks, spec.lm, spec.relation, "test", left_out),
            "dev": figures_of(ranks, spec.lm, spec.relation, "dev", left_out),
            "environment": {"askwell": "1", "seconds": 2.0},
            **known,
        }
    )


def keep(
    store: Store,
    ranks: Sequence[float],
    relation: str = A,
    *,
    left_out: int = 0,
    history: Sequence[tuple[int, float]] = (),
    counts: Mapping[str, int] | None = None,
    known: Mapping[str, Any] | None = None,
    controls: Mapping[str, Sequence[float]] | None = None,
    confidences: Sequence[float] | None = None,
    **spec: Any,
) -> RunSpec:
    """Puts a run into the store that gave each of its facts such a rank; `known` are further fields of its record."""
    made = spec_of(relation, **spec)
    outcomes = run_of_distinct_ys(ranks, relation, confidences)
    lines = [{"pairs": pairs, "dev": {"P@1": score}} for pairs, score in history]
    record = record_of(made, ranks, left_out=left_out, counts=counts, history=lines, **(known or {}))
    both: dict[str, dict[SplitName, list[Outcome]]] = {
        name: {"test": run_of_distinct_ys(of, relation), "dev": run_of_distinct_ys(of, relation)}
        for name, of in (controls or {}).items()
    }
    write_run(store.run_folder(made.id), record, {"test": outcomes, "dev": outcomes}, both)
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
