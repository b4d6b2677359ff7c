"""The runs that tables are made of: their facts, their kind, their figures, and what those of one cell score together.

A run's spec decides what kind it is; the free names of settings do not.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from askwell.errors import UserMistake
from askwell.evaluation.controls import PRIOR_CORRECTED
from askwell.evaluation.metrics import METRICS, Average
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.trust import WORDS_ALREADY
from askwell.runs.folder import Run
from askwell.runs.record import RunRecord
from askwell.specs.run import RunSpec

NO_SET = "own facts"
"""Relations that are not named as a part of a set."""
TESTBED, GOOGLE_RE, CONCEPTNET = "testbed", "google_re", "conceptnet"
# The names of the released folders, and the names of the paper's tables.
_PAPER_NAMES = {
    "trex_original": "trex_original",
    "trex_extend": "trex_extended",
    "trex_extended": "trex_extended",
    GOOGLE_RE: GOOGLE_RE,
    CONCEPTNET: CONCEPTNET,
}


def fact_set_of(relation: str) -> str:
    """The set of a relation: what stands before the ':' or '/' of its name."""
    first, *rest = re.split(r"[:/]", relation, maxsplit=1)
    return first if rest and first else NO_SET


def is_distinct_y(fact_set: str) -> bool:
    """Whether the set was split so that no y stands in two splits, as its name says."""
    return "distinct" in fact_set


def paper_name(fact_set: str) -> str | None:
    """The name of the set in the paper's tables; None if it is not there."""
    return _PAPER_NAMES.get(fact_set)


INIT, SOFT, DEEP = "init", "soft", "deep"
WEIGHTS, VECTORS = "weights only", "vectors only"
ARROWS = (INIT, SOFT, DEEP)
"""The kinds that follow each other in the paper's tables."""
EM, PRODUCT, PUBLISHED = "EM", "product of experts", "published weights"
STATIC = "static"
"""The weighting that does not depend on x; every other one makes a row of its own, under its name."""

_SHALLOW = {("vectors", "weights"): SOFT, ("weights",): WEIGHTS, ("vectors",): VECTORS, (): "nothing tuned"}
_DEEP = {("vectors", "layers", "weights"): DEEP}
# They are told by the kind, by the row or by the seed; all else is how a kind of run was done.
_IN_THE_KIND = {"tune_vectors", "tune_layers", "tune_weights", "method"}
_IN_THE_ROW = {"deep", "weighting", "initial", "copies", "combine", "weights", "seed"}


@dataclass(frozen=True)
class RunKind:
    """What was tuned, and what else makes a run another one than the plain kind."""

    tuned: str
    """init, soft, deep, weights only, vectors only; or in words what of a deep mixture was tuned."""
    extras: tuple[str, ...] = ()
    """EM, data-dependent, 3 copies, …: each makes a row of its own."""


def kind_of(spec: RunSpec) -> RunKind:
    """The kind of a run."""
    mixture, training = spec.mixture, spec.training
    extras = [
        *([EM] if training is not None and training.method == "em" else []),
        *([mixture.weighting] if mixture.weighting != STATIC else []),
        *([PRODUCT] if mixture.combine == "product" else []),
        *([PUBLISHED] if mixture.weights == "file" else []),
        *([f"{mixture.copies} copies"] if mixture.copies > 1 else []),
    ]
    return RunKind(_tuned(spec), tuple(extras))


def place_of(tuned: str) -> tuple[int, str]:
    """Where a kind stands among others."""
    order = (*ARROWS, WEIGHTS, VECTORS)
    return order.index(tuned) if tuned in order else len(order), tuned


def source_of(spec: RunSpec) -> str:
    """The name of the prompts; vectors that start at random only stand at the prompts' places, and are told apart."""
    initial = spec.mixture.initial
    return spec.prompts if initial == "words" else f"{initial} ({spec.prompts})"


def how_of(spec: RunSpec) -> dict[str, Any]:
    """All choices of a run that neither its kind, its row nor its seed tells."""
    training = {} if spec.training is None else spec.training.model_dump(mode="json", exclude=_IN_THE_KIND)
    return {
        **spec.mixture.model_dump(mode="json", exclude=_IN_THE_ROW),
        **training,
        "threads": spec.threads,
        "device": spec.device,
        "dtype": spec.dtype,
    }


def _tuned(spec: RunSpec) -> str:
    if spec.training is None:
        return INIT
    deep = spec.mixture.deep
    parts = [
        *(["vectors"] if spec.training.tune_vectors and spec.mixture.combine == "mixture" else []),
        *(["layers"] if spec.training.tune_layers and deep else []),
        *(["weights"] if spec.training.tune_weights else []),
    ]
    named = (_DEEP if deep else _SHALLOW).get(tuple(parts))
    return named or f"deep, {' and '.join(parts) or 'nothing'} tuned"


@dataclass(frozen=True)
class KeptRun:
    """A whole run. Whatever tables and figures need to know of it they read here."""

    run: Run

    def __hash__(self) -> int:
        """By its spec, which no two runs share."""
        return hash(self.spec.id)

    @property
    def record(self) -> RunRecord:
        """All that is known of it."""
        return self.run.record

    @property
    def spec(self) -> RunSpec:
        """What was run."""
        return self.run.record.spec

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.run.folder

    @property
    def fact_set(self) -> str:
        """The set of its relation."""
        return fact_set_of(self.spec.relation)

    @property
    def facts(self) -> int:
        """Test facts that were asked."""
        return self.record.test.facts

    @property
    def left_out(self) -> int:
        """Test facts that could not be asked."""
        return self.record.test.left_out_count

    @property
    def vocabulary(self) -> str:
        """Among which answers y was ranked."""
        return self.record.test.vocabulary

    def score(self, metric: str) -> float:
        """The score on test."""
        score = self.run.score(metric)
        return math.inf if score is None else score

    @property
    def facts_read(self) -> int:
        """Facts of its relation in all splits, as they were read."""
        return self.record.relation.counts.get("read", 0)

    @property
    def leaked_pairs(self) -> int:
        """Test facts that stand in train, too."""
        return (
            self.record.relation.counts.get("test_in_train", 0)
            if self.record.audit is None
            else (self.record.audit.leaked_pairs)
        )

    @property
    def prompts(self) -> int:
        """The number of its prompts."""
        return len(self.record.prompts)

    @property
    def effective_prompts(self) -> float:
        """2^H of its weights."""
        return self.record.effective_prompts

    @property
    def temperature(self) -> float | None:
        """Of weights that depend on x."""
        return self.record.temperature

    @property
    def entropy(self) -> float | None:
        """Of its weights, in bits; the mean over x of weights that depend on it, None if that was not measured."""
        if self.spec.mixture.weighting == STATIC:
            return math.log2(self.effective_prompts)
        return self.record.mean_entropy_over_x

    @property
    def corrected_score(self) -> float | None:
        """P@1 of its answers corrected by the prior; None if that was not computed."""
        corrected = self.record.controls.get(PRIOR_CORRECTED)
        return None if corrected is None or corrected.test is None else corrected.test["P@1"]

    @property
    def partitions(self) -> Mapping[str, Mapping[str, Mapping[str, int | float]]]:
        """Scores of parts of its test facts, by what tells them apart and by part."""
        return self.record.partitions

    @property
    def at_risk(self) -> tuple[int, int, int] | None:
        """Questions, answers given and wrong ones among them, with a threshold from dev for a risk of 10 %."""
        found = None if self.record.trust is None else self.record.trust.at_risk
        return None if found is None else (found.questions, found.answered, found.wrong)

    @property
    def agreement(self) -> float | None:
        """Of all pairs of its prompts, the share with the same answer."""
        found = None if self.record.trust is None else self.record.trust.consistency
        return None if found is None else found.all.pairs

    @property
    def projected_score(self) -> float | None:
        """P@1 of the nearest words in place of its vectors; None if that was not computed."""
        found = None if self.record.trust is None else self.record.trust.projection
        return None if found is None else found.projected["P@1"]

    @property
    def has_words_already(self) -> bool:
        """Whether its prompts are words themselves, so that there is nothing to project."""
        return self.record.trust is not None and self.record.trust.missing.get("projection") == WORDS_ALREADY

    @property
    def test(self) -> list[Outcome]:
        """The outcome of each test fact."""
        return self.run.test

    @property
    def controls(self) -> Mapping[str, Mapping[str, Sequence[Outcome]]]:
        """By control and split, where answers that need no knowledge of the LM rank the same facts."""
        return self.run.controls

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Dev P@1 by the number of pairs trained on."""
        return [
            (float(line.pairs), float(line.dev["P@1"]))
            for line in self.record.history
            if line.pairs is not None and line.dev["P@1"] is not None
        ]

    @property
    def mixture(self) -> Path | None:
        """The folder of its tuned mixture."""
        return self.run.mixture


def kept_runs(runs: Sequence[Run]) -> list[KeptRun]:
    """The runs that tables show: not controls, which are no answers to what an LM knows."""
    ordinary = [KeptRun(run) for run in runs if run.record.spec.control is None]
    if not ordinary:
        raise UserMistake(f"all {len(runs)} runs are controls: LMs that know nothing; tables need runs of real LMs")
    return ordinary


@dataclass(frozen=True)
class Score:
    """A mean over seeds, in the metric's unit."""

    metric: str
    mean: float
    deviation: float | None
    """The standard deviation over seeds; None if there are not two."""
    seeds: int
    """How many seeds all relations have in common."""

    @property
    def text(self) -> str:
        """The score as its metric is shown, and its deviation if there is one."""
        shown = METRICS[self.metric].text
        return shown(self.mean) if self.deviation is None else f"{shown(self.mean)} ± {shown(self.deviation)}"


@dataclass(frozen=True)
class RunGroup:
    """Runs of one LM, source and kind, one for each relation and seed."""

    runs: tuple[KeptRun, ...]

    @cached_property
    def by_relation(self) -> Mapping[str, Mapping[int, KeptRun]]:
        """The runs by relation and seed."""
        runs: dict[str, dict[int, KeptRun]] = {}
        for run in sorted(self.runs, key=lambda run: (run.spec.relation, run.spec.seed)):
            runs.setdefault(run.spec.relation, {})[run.spec.seed] = run
        return runs

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the runs."""
        return frozenset(run.spec.id for run in self.runs)

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the relations, sorted."""
        return tuple(self.by_relation)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that every relation was run with."""
        return tuple(sorted(frozenset.intersection(*(frozenset(runs) for runs in self.by_relation.values()))))

    @property
    def outcome_seeds(self) -> frozenset[int]:
        """The seeds that any relation was run with."""
        return frozenset(run.spec.seed for run in self.runs)

    @property
    def facts(self) -> int:
        """Test facts that were asked, over all relations."""
        return sum(next(iter(runs.values())).facts for runs in self.by_relation.values())

    @property
    def left_out(self) -> int:
        """Test facts that could not be asked, over all relations."""
        return sum(next(iter(runs.values())).left_out for runs in self.by_relation.values())

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the settings, sorted."""
        return tuple(sorted({run.spec.setting for run in self.runs}))

    def score(self, metric: str, average: Average = "micro") -> Score:
        """The mean over facts (micro) or of the relations' means (macro); a relation counts by its mean over seeds."""
        over_seeds = [
            (fmean(run.score(metric) for run in runs.values()), next(iter(runs.values())).facts)
            for runs in self.by_relation.values()
        ]
        each = [
            _averaged([(runs[seed].score(metric), runs[seed].facts) for runs in self.by_relation.values()], average)
            for seed in self.seeds
        ]
        return Score(metric, _averaged(over_seeds, average), stdev(each) if len(each) > 1 else None, len(each))

    @cached_property
    def outcomes(self) -> dict[int, list[Outcome]]:
        """What was made of each test fact, by seed."""
        found: dict[int, list[Outcome]] = {}
        for runs in self.by_relation.values():
            for seed, run in runs.items():
                found.setdefault(seed, []).extend(run.test)
        return found


def _averaged(scores: Sequence[tuple[float, int]], average: Average) -> float:
    if average == "macro":
        return fmean(score for score, _ in scores)
    return sum(score * facts for score, facts in scores) / sum(facts for _, facts in scores)
