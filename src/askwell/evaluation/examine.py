"""Examines a mixture in one pass over the facts: its outcomes, those of the controls, and what each prompt answers.

Each question is put to the LM once. The answers to a fact give the mixture's own outcome, the one corrected by the
prior, and each prompt's best answer; the prior itself needs the x's of train, and the masked x one more question.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.kinds import EncodedRelation
from askwell.answers.reply import no_facts_left
from askwell.answers.strategy import Prior, PromptAnswers, Ranking
from askwell.data.facts import Fact, Relation, SplitName
from askwell.errors import NothingLeft
from askwell.evaluation.knowledge import PRIOR, PRIOR_CORRECTED, Controls, priors_of
from askwell.evaluation.labels import label_figures, ranked_pairs
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, Progress, outcomes_of
from askwell.mixture.mixture import Mixture
from askwell.views.to_text import Bar

CHOSEN_ON: SplitName = "dev"
"""The best control is chosen on this split; controls need no LM for it."""


class AskedFacts:
    """The facts of a split that can be asked; it is an error if there are none.

    Answers are chosen among the given candidates, or among those that the mixture was tuned for.
    """

    def __init__(
        self,
        mixture: Mixture,
        relation: Relation,
        split: SplitName,
        candidates: Candidates | None = None,
        encoded: EncodedRelation | None = None,
        *,
        best_only: bool = False,
    ) -> None:
        candidates = candidates or mixture.candidates
        encoded = encoded or mixture.encode_relation(relation, candidates=candidates)
        self.relation, self.split, self.answers = relation, split, mixture.answering(candidates, encoded.kind)
        self.answers.best_only = best_only
        self.encoded, others = self.answers.choose(encoded.split(split))
        self.left_out = (*encoded.left_out(split), *others)
        if not len(self.encoded):
            raise no_facts_left(f"{split} facts of {relation.name}", self.left_out)

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def first_rows(self) -> list[int]:
        """The row of the first fact of each x."""
        return sorted({fact.x: row for row, fact in reversed([*enumerate(self.encoded.facts)])}.values())

    def batches(self) -> Iterable[Int[Tensor, " facts"]]:
        """Return the rows of all facts, in the batches in which they are asked."""
        return self.answers.batches(self.encoded)

    def ask(
        self,
        rows: Int[Tensor, " facts"],
        top: int = 10,
        record: list[PromptAnswers] | None = None,
        prior: Prior | None = None,
    ) -> tuple[list[Outcome], list[Outcome]]:
        """Return the outcomes of the facts in these rows, and the outcomes corrected by a prior where possible."""
        facts = [self.encoded.facts[row] for row in rows.tolist()]
        own, corrected = self.answers.rank(self.encoded, rows, self.relation.golds, top, record=record, prior=prior)
        return self._outcomes(facts, own), self._outcomes(facts, corrected)

    def prior_outcomes(self, prior: Prior, top: int = 10) -> list[Outcome]:
        """Return the outcomes if a prior is given as the answer to every x."""
        facts = self.encoded.facts
        return self._outcomes(facts, prior.rank(facts, self.relation.golds, top))

    def _outcomes(self, facts: Sequence[Fact], rankings: Sequence[Ranking]) -> list[Outcome]:
        return outcomes_of(self.relation, facts, rankings, self.answers.prompts.spec.match)

    def evaluation(self, outcomes: Sequence[Outcome]) -> Evaluation:
        """Build the evaluation from the outcomes of all facts."""
        answers = self.answers
        return Evaluation(
            self.split,
            answers.vocabulary,
            tuple(outcomes),
            self.left_out,
            len(answers.candidates_left_out),
            answers.name,
            None if answers.labels is None else label_figures(outcomes, answers.labels, answers.label_of),
            None if answers.labels is None else ranked_pairs(outcomes, answers.labels, answers.label_of),
        )


@dataclass(frozen=True)
class Examination:
    """What one pass over the facts of a relation shows about a mixture."""

    mixture: Mixture
    relation: Relation
    candidates: Candidates | None
    encoded: EncodedRelation
    evaluations: dict[SplitName, Evaluation]
    controls: Controls
    prompt_answers: PromptAnswers | None
    """What each prompt answers to the x's of test, in the order of `outcomes_by_x`; None if test was not asked."""
    mean_entropy_over_x: float | None
    """The mean over test facts of the entropy of p(t | r, x), in bits; None if weights do not depend on x."""
    missing: dict[SplitName, str]
    """Splits of which no fact could be asked, and why."""


def examine(
    mixture: Mixture,
    relation: Relation,
    splits: Sequence[SplitName] = ("test", "dev"),
    *,
    candidates: Candidates | None = None,
    top: int = 10,
    best_only: bool = False,
    encoded: EncodedRelation | None = None,
    controls: bool = True,
    prompts: bool = True,
    seed: int = 0,
    progress: Progress = None,
) -> Examination:
    """Ask the mixture once about each fact of one or several splits; the first must have facts that can be asked.

    Controls are scored on these splits and on dev. With `controls=False` no prior is computed, and with `prompts=False`
    the answers of each prompt are not recorded. `top` answers to each fact are kept; with 0, ranks among answers of any
    length are found faster; with `best_only`, only the best of them are searched for, and later ranks are bounds."""
    encoded = encoded or mixture.encode_relation(relation, candidates=candidates or mixture.candidates)
    asked: dict[SplitName, AskedFacts] = {}
    missing: dict[SplitName, str] = {}
    for split in dict.fromkeys([*splits, CHOSEN_ON] if controls else splits):
        try:
            asked[split] = AskedFacts(mixture, relation, split, candidates, encoded, best_only=best_only)
        except NothingLeft as nothing:
            if split == splits[0]:
                raise
            missing[split] = str(nothing)
    total, done = sum(len(asked[split]) for split in splits if split in asked), 0
    evaluations: dict[SplitName, Evaluation] = {}
    record: list[PromptAnswers] | None = [] if prompts and "test" in splits else None
    with Bar(f"{' and '.join(splits)} facts", None if progress is None else progress is True) as shown:
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
            with mixture.pairs.keeping(asked[split].encoded.xs, unchanged=True):
                for rows in asked[split].batches():
                    of_facts, of_corrected = asked[split].ask(
                        rows, top, record if split == "test" else None, priors.get(PRIOR)
                    )
                    own += of_facts
                    corrected += of_corrected
                    tell(done + len(own), total)
            done += len(own)
            evaluations[split] = asked[split].evaluation(own)
            if corrected:
                outcomes.setdefault(PRIOR_CORRECTED, {})[split] = corrected
    descriptions = {name: prior.description for name, prior in priors.items()}
    if PRIOR_CORRECTED in outcomes:
        described = f"log p(y | x, r) - log prior(y), the prior being {priors[PRIOR].description}"
        descriptions[PRIOR_CORRECTED] = described
    noted = PromptAnswers.joined(record) if record else None
    return Examination(
        mixture,
        relation,
        candidates,
        encoded,
        evaluations,
        controls=Controls(descriptions, outcomes, {**lacking, **(missing if controls else {})}),
        prompt_answers=None if noted is None else noted.of(asked["test"].first_rows),
        mean_entropy_over_x=_mean_entropy(noted.weights) if noted and mixture.weighting.depends_on_x else None,
        missing={split: why for split, why in missing.items() if split in splits},
    )


def evaluate_split(
    mixture: Mixture,
    relation: Relation,
    split: SplitName = "test",
    *,
    candidates: Candidates | None = None,
    top: int = 10,
    encoded: EncodedRelation | None = None,
    progress: Progress = None,
) -> Evaluation:
    """Score a mixture on the facts of a split, with the `top` most probable answers to each, and no controls."""
    found = examine(
        mixture,
        relation,
        [split],
        candidates=candidates,
        top=top,
        encoded=encoded,
        controls=False,
        prompts=False,
        progress=progress,
    )
    return found.evaluations[split]


def _mean_entropy(weights: np.ndarray) -> float:
    """Compute the mean entropy of the rows, in bits."""
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return float(-(weights * logs).sum(1).mean() / math.log(2))
