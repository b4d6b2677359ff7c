"""The facts of a split that a mixture can be asked about, and the outcomes of asking them."""

from collections.abc import Iterable, Sequence

from jaxtyping import Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.encode import EncodedRelation, no_facts_left
from askwell.answers.strategy import Prior, PromptAnswers, Ranking
from askwell.data.facts import Fact, Relation, SplitName
from askwell.evaluation.labels import MOST_LABELS, LabelFigures, label_figures
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.mixture import Mixture


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
        facts: EncodedRelation | None = None,
    ) -> None:
        candidates = candidates or mixture.candidates
        facts = facts or mixture.encode_relation(relation, candidates=candidates)
        self.relation, self.answers = relation, mixture.answering(candidates, facts.kind)
        self.encoded, others = self.answers.choose(facts.split(split))
        self.left_out = (*facts.left_out(split), *others)
        if not len(self.encoded):
            raise no_facts_left(f"{split} facts of {relation.name}", self.left_out)

    def __len__(self) -> int:
        return len(self.encoded)

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
        return outcomes_of(self.relation, facts, own), outcomes_of(self.relation, facts, corrected)

    def prior_outcomes(self, prior: Prior, top: int = 10) -> list[Outcome]:
        """Return the outcomes if a prior is given as the answer to every x."""
        facts = self.encoded.facts
        return outcomes_of(self.relation, facts, prior.rank(facts, self.relation.golds, top))

    def labels(self, outcomes: Sequence[Outcome]) -> LabelFigures | None:
        """Return precision, recall and F1 of each answer, if there are only a few to choose from."""
        labels = self.answers.labels
        if labels is None or len(labels) > MOST_LABELS:
            return None
        return label_figures(outcomes, labels, self.answers.label_of)


def outcomes_of(relation: Relation, facts: Sequence[Fact], rankings: Sequence[Ranking]) -> list[Outcome]:
    """Convert rankings to the outcomes of a relation's facts; none if there are no rankings."""
    return [
        Outcome(relation=relation.name, x=fact.x, y=fact.y, golds=relation.golds[fact.x], **vars(ranking))
        for fact, ranking in zip(facts if rankings else (), rankings, strict=True)
    ]
