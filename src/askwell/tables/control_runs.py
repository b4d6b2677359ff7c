"""What the controls of some runs scored: the cheap ones beside each run, and the runs on LMs that know nothing."""

from collections.abc import Mapping, Sequence

from askwell.evaluation.evaluate import Outcome
from askwell.evaluation.outcomes import read_outcomes
from askwell.specs import ControlKind
from askwell.store import Store
from askwell.store.folder import CONTROLS, PER_DEV_FACT, PER_FACT
from askwell.store.query import query_runs
from askwell.sweep.control_file import read_controls
from askwell.tables.kept import KeptRun
from askwell.trust import Answered
from askwell.trust.prior import PRIOR_CORRECTED

BySplit = Mapping[str, Sequence[Outcome]]
ControlRuns = Mapping[str, Mapping[ControlKind, str]]
"""The ids of the control runs of each run, by the kind of LM that knows nothing."""


def control_runs(store: Store) -> ControlRuns:
    """The control runs of a store, under the ids of the runs that they are the same as but for the LM."""
    found: dict[str, dict[ControlKind, str]] = {}
    for run in query_runs(store, where="control IS NOT NULL").as_json():
        spec = store.spec(run["id"])
        if spec.control is not None:
            found.setdefault(spec.model_copy(update={"control": None}).id, {})[spec.control] = run["id"]
    return found


def controls_of(runs: Sequence[KeptRun], store: Store, of_runs: ControlRuns) -> dict[str, Answered]:
    """Dev and test outcomes by seed of every control that all of these runs have."""
    by_name: dict[str, list[tuple[int, BySplit]]] = {}
    for run in runs:
        for name, by_split in _of_run(run, store, of_runs).items():
            by_name.setdefault(name, []).append((run.spec.seed, by_split))
    return {
        name: Answered(dev=_by_seed(found, "dev"), test=_by_seed(found, "test"))
        for name, found in by_name.items()
        if len(found) == len(runs) and name != PRIOR_CORRECTED
    }


def corrected_score(runs: Sequence[KeptRun]) -> float | None:
    """P@1 of the prior-corrected answers over all test facts, in per cent; None where a run has none."""
    right = asked = 0.0
    for run in runs:
        scores = run.metrics.get("controls", {}).get(PRIOR_CORRECTED)
        if scores is None or "test" not in scores:
            return None
        right, asked = right + scores["test"]["P@1"] * run.facts, asked + run.facts
    return right / asked


def _of_run(run: KeptRun, store: Store, of_runs: ControlRuns) -> dict[str, BySplit]:
    path = run.folder / CONTROLS
    found: dict[str, BySplit] = {}
    if path.is_file():
        cheap = read_controls(path)
        found |= {name: by_split for name, by_split in cheap.items() if {"dev", "test"} <= by_split.keys()}
    for kind, id_ in of_runs.get(run.spec.id, {}).items():
        folder = store.run_folder(id_)
        found[kind] = {"dev": read_outcomes(folder / PER_DEV_FACT), "test": read_outcomes(folder / PER_FACT)}
    return found


def _by_seed(found: Sequence[tuple[int, BySplit]], split: str) -> dict[int, list[Outcome]]:
    by_seed: dict[int, list[Outcome]] = {}
    for seed, by_split in found:
        by_seed.setdefault(seed, []).extend(by_split[split])
    return by_seed
