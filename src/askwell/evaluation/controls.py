"""Controls: answers that do not look at x, so that their scores need no knowledge of x.

- "majority" ranks the ys of train by how often they occur there (repeated lines counted). A y that does not occur in
  train ranks after all that do; all such answers of the vocabulary are tied. Ys that are not among the LM's answers are
  skipped.
- "prior" gives the mean of the prompts' own answers p(y | x, r) over x's of train.
- "prior-masked-x" gives what the prompts answer to one mask token in place of x, where the LM is asked with masks.

There is also "prior-corrected", which does look at x: answers are ranked by log p(y | x, r) - log prior(y), so
that an answer which the prompts give to everything counts for little. It is another score of the same LM, not one of
the controls that a score is compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from askwell.answers.strategy import Answers, Prior
from askwell.data.facts import Relation, SplitName
from askwell.errors import UsageError
from askwell.evaluation.metrics import RANK_METRICS, Scores, scores_of
from askwell.evaluation.outcomes import Outcome

MAJORITY, PRIOR, PRIOR_MASKED_X, PRIOR_CORRECTED = "majority", "prior", "prior-masked-x", "prior-corrected"


def priors_of(answers: Answers, relation: Relation, *, seed: int = 0) -> tuple[dict[str, Prior], dict[str, str]]:
    """Return majority, prior and prior with x masked, by name, and why those that are missing are not available."""
    priors: dict[str, Prior] = {}
    missing: dict[str, str] = {}
    try:
        priors[MAJORITY] = answers.majority(relation)
    except UsageError as problem:
        missing[MAJORITY] = str(problem)
    try:
        priors[PRIOR] = answers.mean_prior(relation, seed=seed)
    except UsageError as problem:
        missing |= dict.fromkeys([PRIOR, PRIOR_CORRECTED] if answers.is_listed else [PRIOR], str(problem))
    if (masked := answers.masked_prior()) is not None:
        priors[PRIOR_MASKED_X] = masked
    return priors, missing


@dataclass(frozen=True)
class ControlFigures:
    """What a control is, and its scores on each split, as means over facts."""

    description: str
    test: Scores | None = None
    dev: Scores | None = None


@dataclass(frozen=True)
class Controls:
    """The outcomes of the controls, and of the prior-corrected answers, on some splits of a relation."""

    descriptions: dict[str, str]
    """What each is, by name."""
    outcomes: dict[str, dict[SplitName, list[Outcome]]]
    """By name and split."""
    missing: dict[str, str]
    """What is not available (a control, a split), and why."""

    @property
    def controls(self) -> dict[str, dict[SplitName, list[Outcome]]]:
        """The outcomes of the controls alone."""
        return {name: by_split for name, by_split in self.outcomes.items() if name != PRIOR_CORRECTED}

    def figures(self) -> dict[str, ControlFigures]:
        """Return the scores of each, by name."""
        return {
            name: ControlFigures(self.descriptions[name], *(_scores(by_split.get(split)) for split in ("test", "dev")))
            for name, by_split in self.outcomes.items()
        }


def controls_together(found: Sequence[Controls]) -> Controls:
    """Combine the controls that all of several mixtures have; if one LM is causal, none of them has x masked."""
    if not found:
        return Controls({}, {}, {})
    names = [name for name in found[0].outcomes if all(name in one.outcomes for one in found)]
    descriptions = {}
    for name in names:
        each = list(dict.fromkeys(one.descriptions[name] for one in found))
        descriptions[name] = each[0] if len(each) == 1 else f"{each[0]}; likewise for each relation"
    outcomes = {
        name: {
            split: [outcome for one in found for outcome in one.outcomes[name].get(split, [])]
            for split in found[0].outcomes[name]
        }
        for name in names
    }
    return Controls(descriptions, outcomes, {})


def _scores(outcomes: Sequence[Outcome] | None) -> Scores | None:
    return None if outcomes is None else scores_of(outcomes, RANK_METRICS)
