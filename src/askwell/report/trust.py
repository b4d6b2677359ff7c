"""How far the score of a cell can be trusted: controls, parts of the facts, calibration, agreement, nearest words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from askwell.data.facts import Fact
from askwell.data.sources import data_folder
from askwell.data.testbed import PREFIX, relations, told
from askwell.evaluation.abstention import RiskCoverage, risk_coverage
from askwell.evaluation.calibration import Calibration, calibration, questions_of
from askwell.evaluation.controls import PRIOR_CORRECTED
from askwell.evaluation.knowledge import Answered, Knowledge, knowledge
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.partitions import EASY, HARD, Parts, by_cardinality, by_control
from askwell.evaluation.several_runs import RunConsistency, run_consistency
from askwell.files import to_json
from askwell.report.cells import INIT, KeptRun, RunGroup, Score, place_of
from askwell.report.rows import Line
from askwell.runs.folder import Run
from askwell.specs.run import ControlKind

BySplit = Mapping[str, Sequence[Outcome]]
ControlRuns = Mapping[str, Mapping[ControlKind, Run]]
"""The control runs of each run by its id, by the kind of LM that knows nothing."""


def control_runs(runs: Sequence[Run]) -> ControlRuns:
    """The control runs among some, under the ids of the runs that they are the same as but for the LM."""
    found: dict[str, dict[ControlKind, Run]] = {}
    for run in runs:
        spec = run.record.spec
        if spec.control is not None:
            found.setdefault(spec.model_copy(update={"control": None}).id, {})[spec.control] = run
    return found


def controls_of(runs: Sequence[KeptRun], of_runs: ControlRuns) -> dict[str, Answered]:
    """Dev and test outcomes by seed of every control that all of these runs have."""
    by_name: dict[str, list[tuple[int, BySplit]]] = {}
    for run in runs:
        for name, by_split in _of_run(run, of_runs).items():
            by_name.setdefault(name, []).append((run.spec.seed, by_split))
    return {
        name: Answered(dev=_by_seed(found, "dev"), test=_by_seed(found, "test"))
        for name, found in by_name.items()
        if len(found) == len(runs) and name != PRIOR_CORRECTED
    }


def corrected_score(runs: Sequence[KeptRun]) -> float | None:
    """P@1 of the prior-corrected answers over all test facts, in per cent; None where a run has none."""
    return _weighed(runs, [run.corrected_score for run in runs])


def _of_run(run: KeptRun, of_runs: ControlRuns) -> dict[str, BySplit]:
    found = {name: by_split for name, by_split in run.controls.items() if {"dev", "test"} <= by_split.keys()}
    for kind, control in of_runs.get(run.spec.id, {}).items():
        found[kind] = {"dev": control.dev, "test": control.test}
    return found


def _by_seed(found: Sequence[tuple[int, BySplit]], split: str) -> dict[int, list[Outcome]]:
    by_seed: dict[int, list[Outcome]] = {}
    for seed, by_split in found:
        by_seed.setdefault(seed, []).extend(by_split[split])
    return by_seed


TOLD, WITHHELD = "told", "withheld"
_LAMA = Path("meta/lama_relations.jsonl")


def known_parts(outcomes: Sequence[Outcome]) -> Mapping[str, Parts]:
    """The outcomes by told and withheld, and by cardinality: those of relations of which that is known."""
    kinds = cardinalities({outcome.relation for outcome in outcomes})
    of_testbed = [outcome for outcome in outcomes if outcome.relation.startswith(PREFIX)]
    found = {
        "told": _by_told(of_testbed),
        "cardinality": by_cardinality([outcome for outcome in outcomes if outcome.relation in kinds], kinds),
    }
    return {name: parts for name, parts in found.items() if parts}


def cardinalities(names: Iterable[str]) -> dict[str, str]:
    """1-1, N-1 or N-M for relations of the testbed, and for T-REx's if LAMA's list of them is in the data folder."""
    of_testbed = {PREFIX + relation.name: relation.cardinality for relation in relations()}
    data = data_folder(None)
    of_lama = _lama(data / _LAMA) if data is not None and (data / _LAMA).is_file() else {}
    found = {name: of_testbed.get(name) or of_lama.get(name.rpartition("/")[2]) for name in names}
    return {name: kind for name, kind in found.items() if kind is not None}


@cache
def _lama(path: Path) -> dict[str, str]:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {record["relation"]: record["type"] for record in records if "type" in record}


def _by_told(outcomes: Sequence[Outcome]) -> Parts:
    parts: Parts = {TOLD: [], WITHHELD: []}
    for outcome in outcomes:
        is_told = Fact(outcome.x, outcome.y) in told(outcome.relation.removeprefix(PREFIX))
        parts[TOLD if is_told else WITHHELD].append(outcome)
    return {name: members for name, members in parts.items() if members}


Part = dict[str, int | float]
"""The number of facts of a part, and its P@1 in per cent."""


@dataclass(frozen=True)
class CellTrust:
    """All figures of one LM, source and kind; what the runs do not tell is None, or not there."""

    line: Line
    kind: str
    score: Score
    """P@1, micro."""
    facts: int
    left_out: int
    vocabularies: tuple[str, ...]
    knowledge: Knowledge | None
    corrected: float | None
    """P@1 of the answers corrected by the prior."""
    parts: dict[str, dict[str, Part]]
    """By what tells facts apart, then by part."""
    calibration: Calibration
    risk_coverage: RiskCoverage
    answered: tuple[int, int, int] | None
    """Questions, answers given and wrong ones among them, with thresholds from dev for a risk of 10 %."""
    agreement: float | None
    """Of all pairs of prompts, the share with the same answer; the mean over runs."""
    seeds: RunConsistency | None
    projected: float | None
    """P@1 of the nearest words in place of the tuned vectors."""
    leaked: int
    """Test facts that stand in train, too."""

    @property
    def label(self) -> str:
        """What it is about."""
        return f"{self.line.lm}, {self.line.label}, {self.kind}"

    def as_json(self) -> dict[str, Any]:
        """All figures by name, with what they are figures of."""
        return {
            "facts": self.line.fact_set,
            "lm": self.line.lm,
            "prompts": self.line.label,
            "kind": self.kind,
            "averaging": "micro over test facts and seeds; calibration over questions",
            "test_facts": self.facts,
            "left_out": self.left_out,
            "vocabulary": list(self.vocabularies),
            "P@1": {"mean": self.score.mean, "deviation": self.score.deviation, "seeds": self.score.seeds},
            "knowledge": None if self.knowledge is None else to_json(self.knowledge.figures()),
            "prior_corrected_P@1": self.corrected,
            "parts": self.parts,
            "calibration": to_json(self.calibration),
            "risk_coverage_area": self.risk_coverage.area,
            "at_10_per_cent_risk": None
            if self.answered is None
            else dict(zip(("questions", "answered", "wrong"), self.answered, strict=True)),
            "prompts_agree": self.agreement,
            "seeds_agree": None if self.seeds is None else to_json(self.seeds),
            "projected_P@1": self.projected,
            "leaked_pairs": self.leaked,
        }


def trust_in(lines: Sequence[Line], of_runs: ControlRuns) -> list[CellTrust]:
    """The figures of every tuned cell of the lines, held against their controls."""
    return [
        _of_cell(line, kind, group, of_runs)
        for line in lines
        for kind, group in sorted(line.groups.items(), key=lambda known: place_of(known[0]))
        if kind != INIT
    ]


def _of_cell(line: Line, kind: str, group: RunGroup, of_runs: ControlRuns) -> CellTrust:
    by_seed: dict[int, list[Outcome]] = {}
    for run in group.runs:
        by_seed.setdefault(run.spec.seed, []).extend(run.test)
    every = [outcome for outcomes in by_seed.values() for outcome in outcomes]
    controls = controls_of(group.runs, of_runs)
    found = knowledge(by_seed, controls) if controls else None
    questions = [questions_of(outcomes) for outcomes in by_seed.values()]
    confidences = np.concatenate([part.confidences for part in questions])
    right = np.concatenate([part.right for part in questions])
    parts = _summed_parts([run.partitions for run in group.runs])
    parts |= {name: _scored(known) for name, known in known_parts(every).items()}
    if controls:
        tests = [outcomes for control in controls.values() for outcomes in _lists(control.test)]
        parts["control"] = _scored({name: by_control(every, tests).get(name, []) for name in (EASY, HARD)})
    return CellTrust(
        line=line,
        kind=kind,
        score=group.score("P@1"),
        facts=group.facts,
        left_out=group.left_out,
        vocabularies=tuple(sorted({run.vocabulary for run in group.runs})),
        knowledge=found,
        corrected=corrected_score(group.runs),
        parts=parts,
        calibration=calibration(confidences, right),
        risk_coverage=risk_coverage(confidences, right),
        answered=_answered(group.runs),
        agreement=_weighed(group.runs, [run.agreement for run in group.runs]),
        seeds=run_consistency(list(by_seed.values())) if len(by_seed) > 1 else None,
        projected=_projected(group.runs),
        leaked=sum(next(iter(runs.values())).leaked_pairs for runs in group.by_relation.values()),
    )


def _lists(outcomes: Any) -> list[Sequence[Outcome]]:
    return list(outcomes.values()) if isinstance(outcomes, Mapping) else [outcomes]


def _scored(parts: Mapping[str, Sequence[Outcome]]) -> dict[str, Part]:
    return {
        name: {"facts": len(outcomes), "P@1": 100 * sum(o.rank <= 1 for o in outcomes) / len(outcomes)}
        for name, outcomes in parts.items()
        if outcomes
    }


def _summed_parts(
    of_runs: Sequence[Mapping[str, Mapping[str, Mapping[str, int | float]]]],
) -> dict[str, dict[str, Part]]:
    """The parts of several runs together, each score weighed by its facts."""
    summed: dict[str, dict[str, Part]] = {}
    for of_run in of_runs:
        for name, parts in of_run.items():
            for part, scores in parts.items():
                kept = summed.setdefault(name, {}).setdefault(part, {"facts": 0, "P@1": 0.0})
                facts = kept["facts"] + scores["facts"]
                kept["P@1"] = (kept["P@1"] * kept["facts"] + scores["P@1"] * scores["facts"]) / facts
                kept["facts"] = facts
    return summed


def _answered(runs: Sequence[KeptRun]) -> tuple[int, int, int] | None:
    found = [run.at_risk for run in runs if run.at_risk is not None]
    if len(found) < len(runs):
        return None
    questions, answered, wrong = (sum(numbers) for numbers in zip(*found, strict=True))
    return questions, answered, wrong


def _projected(runs: Sequence[KeptRun]) -> float | None:
    """P@1 of the nearest words; a run whose prompts are words still has its own score, if another's are not."""
    if all(run.projected_score is None for run in runs):
        return None
    return _weighed(runs, [run.score("P@1") if run.has_words_already else run.projected_score for run in runs])


def _weighed(runs: Sequence[KeptRun], values: Sequence[float | None]) -> float | None:
    """The mean over the runs' facts; None where a run does not have the figure."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return sum(value * run.facts for value, run in zip(known, runs, strict=True)) / sum(run.facts for run in runs)
