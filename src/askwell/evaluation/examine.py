"""Examines a mixture in one pass over the facts: its outcomes, those of the controls, and what each prompt answers.

Each question is put to the LM once. The answers to a fact give the mixture's own outcome, the one corrected by the
prior, and each prompt's best answer; the prior itself needs the x's of train, and the masked x one more question.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from askwell.answers.candidates import GivenCandidates, as_candidates
from askwell.answers.encode import EncodedRelation
from askwell.answers.strategy import PromptAnswers
from askwell.calls import checked
from askwell.data.facts import Relation, SplitName
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.asked_facts import AskedFacts
from askwell.evaluation.controls import PRIOR, PRIOR_CORRECTED, Controls, priors_of
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, evaluation_of
from askwell.mixture.mixture import Mixture
from askwell.views.progress_bar import Bar

CHOSEN_ON: SplitName = "dev"
"""The best control is chosen on this split; controls need no LM for it."""


@dataclass(frozen=True)
class Examination:
    """What one pass over the facts of a relation shows about a mixture."""

    evaluations: dict[SplitName, Evaluation]
    controls: Controls
    prompt_answers: PromptAnswers | None
    """What each prompt answers to the x's of test, in the order of `outcomes_by_x`; None if test was not asked."""
    mean_entropy_over_x: float | None
    """The mean over test facts of the entropy of p(t | r, x), in bits; None if weights do not depend on x."""
    missing: dict[SplitName, str]
    """Splits of which no fact could be asked, and why."""


@checked
def examine(
    mixture: Mixture,
    relation: Relation,
    splits: SplitName | Sequence[SplitName] = ("test", "dev"),
    *,
    candidates: GivenCandidates = None,
    top: int = 10,
    facts: EncodedRelation | None = None,
    controls: bool = True,
    prompts: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | bool | None = None,
) -> Examination:
    """Ask the mixture once about each fact of one or several splits; the first must have facts that can be asked.

    Controls are scored on these splits and on dev. With `controls=False` no prior is computed, and with `prompts=False`
    the answers of each prompt are not recorded. If it takes long, a terminal or notebook shows a progress bar, unless
    `progress` is False; if it is a function, it is called with the number of facts done and the total instead."""
    candidates = as_candidates(candidates)
    splits = cast("list[SplitName]", [splits] if isinstance(splits, str) else list(splits))
    if not splits:
        raise BadOption("examine needs at least one split: test, dev or train")
    asked: dict[SplitName, AskedFacts] = {}
    missing: dict[SplitName, str] = {}
    for split in dict.fromkeys([*splits, CHOSEN_ON] if controls else splits):
        try:
            asked[split] = AskedFacts(mixture, relation, split, candidates, facts)
        except NothingLeft as nothing:
            if split == splits[0]:
                raise
            missing[split] = str(nothing)
    total, done = sum(len(asked[split]) for split in splits if split in asked), 0
    evaluations: dict[SplitName, Evaluation] = {}
    record: list[PromptAnswers] | None = [] if prompts and "test" in splits else None
    with Bar("facts", None if progress is None else progress is True) as shown:
        tell = progress if callable(progress) else shown
        tell(0, total)  # priors may take as long as many facts
        priors, lacking = priors_of(asked[splits[0]].answers, relation, seed=seed) if controls else ({}, {})
        outcomes: dict[str, dict[SplitName, list[Outcome]]] = {
            name: {split: of_split.prior_outcomes(prior, top) for split, of_split in asked.items()}
            for name, prior in priors.items()
        }
        for split in (split for split in splits if split in asked):
            own: list[Outcome] = []
            corrected: list[Outcome] = []
            for rows in asked[split].batches():
                of_facts, of_corrected = asked[split].ask(
                    rows, top, record if split == "test" else None, priors.get(PRIOR)
                )
                own += of_facts
                corrected += of_corrected
                tell(done + len(own), total)
            done += len(own)
            evaluations[split] = evaluation_of(asked[split], split, own)
            if corrected:
                outcomes.setdefault(PRIOR_CORRECTED, {})[split] = corrected
    descriptions = {name: prior.description for name, prior in priors.items()}
    if PRIOR_CORRECTED in outcomes:
        described = f"log p(y | x, r) - log prior(y), the prior being {priors[PRIOR].description}"
        descriptions[PRIOR_CORRECTED] = described
    noted = PromptAnswers.joined(record) if record else None
    return Examination(
        evaluations=evaluations,
        controls=Controls(descriptions, outcomes, {**lacking, **(missing if controls else {})}),
        prompt_answers=None if noted is None else noted.of(_first_rows(asked["test"])),
        mean_entropy_over_x=_mean_entropy(noted.weights) if noted and mixture.weighting.reads_x else None,
        missing={split: why for split, why in missing.items() if split in splits},
    )


def _first_rows(asked: AskedFacts) -> list[int]:
    """Return the row of the first fact of each x."""
    first: dict[str, int] = {}
    for number, fact in enumerate(asked.encoded.facts):
        first.setdefault(fact.x, number)
    return list(first.values())


def _mean_entropy(weights: np.ndarray) -> float:
    """Compute the mean entropy of the rows, in bits."""
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return float(-(weights * logs).sum(1).mean() / math.log(2))
