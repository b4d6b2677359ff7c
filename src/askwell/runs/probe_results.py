"""The runs of a probe in short, one on each line of a file: scores, and what became of every test fact.

A card is made from these lines alone. They are small enough to be kept under version control, and a probe does not
repeat a run that has a line, so that it goes on where its store is not.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from askwell.data.names import cardinalities, relation_label
from askwell.errors import BadFile
from askwell.evaluation.metrics import METRICS
from askwell.evaluation.outcomes import Outcome
from askwell.files import problem_in, read_text, write_whole
from askwell.runs.folder import Run
from askwell.runs.record import Environment
from askwell.runs.worker import RunTask

RESULTS = "results.jsonl"


class ProbedFact(NamedTuple):
    """What became of a test fact; probabilities have three decimals."""

    x: str
    y: str
    is_first: bool
    """Whether y is ranked first, other right answers of x left out."""
    is_known: bool
    """Whether that is known: y counts as first if the search for a better answer was cut."""
    log_probability: FiniteFloat | None
    """Of y; None if it is impossible."""
    answer: str
    """The most probable one."""
    probability: Annotated[float, Field(ge=0, le=1)]
    is_right: bool
    """Whether the answer is any of the right ones."""
    by_control: bool
    """Whether the control that is best on dev, and needs no knowledge, ranks y first."""
    train_lines: int
    """How often y occurs in train."""


class ProbedRun(BaseModel):
    """A run in short."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    version: Literal[1] = 1
    id: str
    """The hash of its spec."""
    lm: str
    lm_sha256: str
    relation: str
    label: str
    """The relation in words."""
    kind: str | None
    """1-1, N-1 or N-M, where that is known."""
    setting: str
    seed: int
    prompts: int
    shots: int
    answers: str
    dev: float | None
    """P@1 on dev."""
    control: str | None
    """The control that is best on dev."""
    control_dev: float | None
    bits: float | None
    """How many bits of the right answer it knows beyond the control, as a mean over facts."""
    facts: tuple[ProbedFact, ...]
    left_out: int
    """Test facts that could not be asked."""
    environment: Environment

    @property
    def p_at_1(self) -> float:
        """P@1 on test, in per cent."""
        return 100 * sum(fact.is_first for fact in self.facts) / len(self.facts)

    @property
    def p_at_1_at_least(self) -> float:
        """P@1 if every fact whose search was cut has a better answer."""
        return self.p_at_1 - 100 * self.unsettled / len(self.facts)

    @property
    def unsettled(self) -> int:
        """Facts whose search was cut before it was known whether y is the best answer."""
        return sum(not fact.is_known for fact in self.facts)

    @property
    def seconds(self) -> float:
        """How long it took, on one core."""
        return self.environment.seconds or 0.0

    def outcomes(self, *, of_control: bool = False) -> list[Outcome]:
        """Return the outcomes of its facts, or those of its control. Of ranks it is known whether they are 1."""
        return [
            Outcome(
                relation=self.relation,
                x=fact.x,
                y=fact.y,
                golds=(fact.y,),
                rank=1.0 if (fact.by_control if of_control else fact.is_first) else math.inf,
                raw_rank=math.nan,
                log_probability=math.nan
                if of_control
                else (-math.inf if fact.log_probability is None else fact.log_probability),
                answers=() if of_control else (fact.answer,),
                probabilities=() if of_control else (fact.probability,),
                rank_at_most=math.nan if of_control or fact.is_known else math.inf,
            )
            for fact in self.facts
        ]


def in_short(run: Run, task: RunTask, data: Path | None) -> ProbedRun:
    """Return a finished run in short."""
    record, spec = run.record, run.record.spec
    found, lines = record.knowledge, Counter(fact.y for fact in task.relation.train)
    control = None if found is None else found.control
    ranks = {(one.x, one.y): one.rank for one in run.controls.get(control or "", {}).get("test", ())}
    facts = [
        ProbedFact(
            one.x,
            one.y,
            one.rank <= 1,
            METRICS["P@1"].is_known(one),
            None if one.log_probability == -math.inf else round(one.log_probability, 3),
            one.answers[0] if one.answers else "",
            round(one.probabilities[0], 3) if one.probabilities else 0.0,
            one.raw_rank == 1 or bool({*one.answers[:1]} & {*one.golds}),
            ranks.get((one.x, one.y), math.inf) <= 1,
            lines[one.y],
        )
        for one in run.test
    ]
    return ProbedRun(
        id=record.id,
        lm=spec.lm,
        lm_sha256=spec.lm_sha256,
        relation=spec.relation,
        label=relation_label(spec.relation, data),
        kind=cardinalities([spec.relation], data).get(spec.relation),
        setting=spec.setting,
        seed=spec.seed,
        prompts=len(record.prompts),
        shots=record.mixture.shots,
        answers=record.test.answers,
        dev=None if record.dev is None else record.dev.score("P@1"),
        control=control,
        control_dev=None if found is None else found.controls[found.control]["dev"],
        bits=None if found is None or found.bits is None else round(found.bits.bits, 3),
        facts=tuple(facts),
        left_out=record.test.left_out_count,
        environment=record.environment,
    )


def read_results(path: Path) -> dict[str, ProbedRun]:
    """Return the runs of a file by id; none if there is no such file."""
    if not path.is_file():
        return {}
    runs = {}
    # Not splitlines(), which also breaks lines inside of texts, at U+2028 and others.
    lines = enumerate(read_text(path).split("\n"), start=1)
    for number, line in ((number, line) for number, line in lines if line):
        try:
            run = ProbedRun.model_validate_json(line)
        except ValidationError as error:
            raise BadFile(path, f"line {number}: {problem_in(error)}") from None
        runs[run.id] = run
    return runs


def write_results(runs: Mapping[str, ProbedRun], path: Path) -> None:
    """Write a line for each run, sorted by LM, relation, setting and seed."""
    kept = sorted(runs.values(), key=lambda run: (run.lm, run.relation, run.setting, run.seed))
    write_whole(path, "".join(run.model_dump_json() + "\n" for run in kept))
