"""How far the score of a cell can be trusted: controls, parts of the facts, calibration, agreement, nearest words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from askwell.data.names import cardinalities
from askwell.data.testbed import PREFIXES, is_told
from askwell.evaluation.confidence import Calibration, RiskCoverage, calibration, questions_of, risk_coverage
from askwell.evaluation.knowledge import PRIOR_CORRECTED, Knowledge, KnownShare, knowledge, mean_of_runs
from askwell.evaluation.metrics import mean_of_known
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import EASY, FEW, HARD, Parts, PartScores, by_control, parted
from askwell.evaluation.trust import WORDS_ALREADY
from askwell.files import to_json
from askwell.runs.run_group import ControlRuns, KeptRun, RunGroup, Spread, controls_of
from askwell.runs.several_runs import RunConsistency, run_consistency
from askwell.views.study_cells import INIT, place_of
from askwell.views.study_rows import Line, StudyCell

TOLD, WITHHELD = "told", "withheld"


def known_parts(outcomes: Sequence[Outcome]) -> Mapping[str, Parts]:
    """Partition the outcomes by told and withheld, and by cardinality, for relations where these are known."""
    kinds = cardinalities({outcome.relation for outcome in outcomes})
    of_testbed = [outcome for outcome in outcomes if outcome.relation.startswith(PREFIXES)]
    found = {
        "told": parted(of_testbed, lambda one: TOLD if is_told(*one.key) else WITHHELD),
        "cardinality": parted(outcomes, lambda one: kinds.get(one.relation)),
    }
    return {name: parts for name, parts in found.items() if parts}


@dataclass(frozen=True)
class CellTrust(StudyCell):
    """All figures of a cell; what the runs lack is None, or missing."""

    score: Spread
    """P@1, micro."""
    knowledge: Knowledge | None
    corrected: float | None
    """P@1 of the answers corrected by the prior."""
    parts: dict[str, dict[str, PartScores]]
    """By partition, then by part."""
    calibration: Calibration
    risk_coverage: RiskCoverage
    answered: tuple[int, int, int] | None
    """Questions, answers given and wrong ones among them, with thresholds from dev for a risk of 10 %."""
    agreement: float | None
    """The fraction of all pairs of prompts that give the same answer, as a mean over runs."""
    seeds: RunConsistency | None
    projected: float | None
    """P@1 of the nearest words in place of the tuned vectors."""
    leaked: int
    """Test facts that are also in train."""
    known: KnownShare | None = None
    """How many x's the LM knows an answer to, as a mean over runs."""

    @property
    def title(self) -> str:
        """What it is about."""
        return f"{self.line.lm}, {self.label}"

    @property
    def is_of_few(self) -> bool:
        """Whether its facts are too few for more than its score."""
        return self.group.facts < FEW

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name, with what they are figures of."""
        names = ("questions", "answered", "wrong")
        return to_json(
            {
                "facts": self.line.fact_set,
                "lm": self.line.lm,
                "prompts": self.line.label,
                "kind": self.kind,
                "averaging": "micro over test facts and seeds; calibration over questions",
                "test_facts": self.group.facts,
                "left_out": self.group.left_out,
                "vocabulary": sorted({run.record.test.vocabulary for run in self.group.runs}),
                "P@1": {"mean": self.score.mean, "deviation": self.score.deviation, "seeds": self.score.runs},
                "knowledge": self.knowledge,
                "prior_corrected_P@1": self.corrected,
                "parts": self.parts,
                "calibration": self.calibration,
                "risk_coverage_area": self.risk_coverage.area,
                "at_10_per_cent_risk": self.answered and dict(zip(names, self.answered, strict=True)),
                "prompts_agree": self.agreement,
                "seeds_agree": self.seeds,
                "projected_P@1": self.projected,
                "leaked_pairs": self.leaked,
                **({} if self.known is None else {"known": self.known}),
            }
        )


def trust_in(lines: Sequence[Line], of_runs: ControlRuns) -> list[CellTrust]:
    """Compute the figures of every tuned cell of the lines, compared with their controls."""
    return [
        _of_cell(line, kind, line.groups[kind], of_runs)
        for line in lines
        for kind in sorted(line.groups, key=place_of)
        if kind != INIT
    ]


def _of_cell(line: Line, kind: str, group: RunGroup, of_runs: ControlRuns) -> CellTrust:
    by_seed, runs = group.outcomes, [part for run in group.runs for part in run.parts]
    every, facts = [one for outcomes in by_seed.values() for one in outcomes], [run.facts for run in runs]
    controls = controls_of(runs, of_runs)
    confidences, right = map(np.concatenate, zip(*map(questions_of, by_seed.values()), strict=True))
    parts = _summed_parts([run.record.partitions for run in runs])
    parts |= {name: _scored(known) for name, known in known_parts(every).items()}
    if controls:
        by_ease = by_control(every, [outcomes for of in controls.values() for outcomes in of["test"].values()])
        parts["control"] = _scored({name: by_ease[name] for name in (EASY, HARD) if name in by_ease})
    return CellTrust(
        line=line,
        kind=kind,
        group=group,
        score=group.score("P@1"),
        knowledge=knowledge(by_seed, controls),
        corrected=mean_of_known([*map(_corrected, runs)], facts),
        parts=parts,
        calibration=calibration(confidences, right),
        risk_coverage=risk_coverage(confidences, right),
        answered=_answered(runs),
        agreement=mean_of_known([*map(_agreement, runs)], facts),
        seeds=run_consistency(list(by_seed.values())) if len(by_seed) > 1 else None,
        projected=mean_of_known([*map(_projected, runs)], facts) if any(map(_is_projected, runs)) else None,
        leaked=sum(_leaked(part) for run in group.firsts for part in run.parts),
        known=mean_of_runs([None if run.record.trust is None else run.record.trust.known for run in runs]),
    )


def _scored(parts: Mapping[str, Sequence[Outcome]]) -> dict[str, PartScores]:
    return {
        name: {"facts": len(outcomes), "P@1": 100 * sum(o.rank <= 1 for o in outcomes) / len(outcomes)}
        for name, outcomes in parts.items()
    }


def _summed_parts(of_runs: Iterable[Mapping[str, Mapping[str, PartScores]]]) -> dict[str, dict[str, PartScores]]:
    """Return the parts of several runs together, each score weighted by its facts."""
    summed: dict[str, dict[str, PartScores]] = {}
    for of_run in of_runs:
        for name, parts in of_run.items():
            for part, scores in parts.items():
                kept = summed.setdefault(name, {}).setdefault(part, {"facts": 0, "P@1": 0.0})
                facts = int(kept["facts"] + scores["facts"])
                kept["P@1"] = (kept["P@1"] * kept["facts"] + scores["P@1"] * scores["facts"]) / facts
                kept["facts"] = facts
    return summed


def _answered(runs: Sequence[KeptRun]) -> tuple[int, int, int] | None:
    trusts = [run.record.trust for run in runs if run.record.trust is not None]
    found = [trust.at_risk for trust in trusts if trust.at_risk is not None]
    if len(found) < len(runs):
        return None
    return sum(one.questions for one in found), sum(one.answered for one in found), sum(one.wrong for one in found)


def _agreement(run: KeptRun) -> float | None:
    trust = run.record.trust
    return None if trust is None or trust.consistency is None else trust.consistency.all.pairs


def _corrected(run: KeptRun) -> float | None:
    corrected = run.record.controls.get(PRIOR_CORRECTED)
    return None if corrected is None or corrected.test is None else corrected.test["P@1"]


def _is_projected(run: KeptRun) -> bool:
    return run.record.trust is not None and run.record.trust.projection is not None


def _projected(run: KeptRun) -> float | None:
    """Return P@1 of the nearest words; the score itself of a run whose prompts are still words."""
    trust = run.record.trust
    if trust is None:
        return None
    if trust.projection is not None:
        return trust.projection.projected["P@1"]
    return run.score("P@1") if trust.missing.get("projection") == WORDS_ALREADY else None


def _leaked(run: KeptRun) -> int:
    audit = run.record.audit
    return run.record.relation.counts.get("test_in_train", 0) if audit is None else audit.leaked_pairs
