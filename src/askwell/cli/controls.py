"""What a score would be without any knowledge, as `train` and `evaluate` show it."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.files import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from askwell.data.facts import Relation
    from askwell.evaluation.controls import Controls
    from askwell.evaluation.evaluate import Evaluation
    from askwell.evaluation.knowledge import Answered, Knowledge
    from askwell.evaluation.outcomes import Outcome

WithControls = Annotated[
    bool,
    Parameter(
        name="--controls",
        negative="--no-controls",
        help="Tell what answers score that do not look at x: train's most frequent ys, and what the prompts answer "
        "whatever x is; and by how much the score is above the best of them.",
    ),
]


class ShownControls:
    """Gathers the controls of mixtures, one after the other, and shows them beside the scores of all together."""

    def __init__(self) -> None:
        self._found: list[Controls] = []
        self.missing: dict[str, str] = {}
        """Relations without controls, and what they lack."""

    def add(self, relation: "Relation", controls: "Controls") -> None:
        """Takes the controls of a mixture; a relation that lacks something is left out."""
        lacks = [name for name in ("train", "dev") if not relation.split(name)]
        if lacks:
            self.missing[relation.name] = f"it has no {' and no '.join(lacks)} facts to make and choose them by"
        elif controls.missing:
            self.missing[relation.name] = "; ".join(dict.fromkeys(controls.missing.values()))
        else:
            self._found.append(controls)

    def as_json(self, test: "Evaluation") -> dict[str, Any]:
        """The controls' scores, and the gain over the best of them; None where there are no controls."""
        knowledge = self._knowledge(test)
        return {
            "controls": {
                name: {"description": self._description(name)}
                | {split: _scores(self._outcomes(name, split)) for split in splits}
                for name, splits in self._names().items()
            },
            "controls_missing": self.missing,
            "knowledge": None if knowledge is None else to_json(knowledge.figures()),
        }

    def show(self, test: "Evaluation") -> None:
        """Prints the controls in a few lines, and notes what is missing."""
        from askwell.cli.terminal import note, out

        for relation, lack in self.missing.items():
            note(f"no controls for {relation}: {lack}")
        for line in self._lines(test):
            out.print(line, markup=False, soft_wrap=True)

    def _lines(self, test: "Evaluation") -> list[str]:
        from askwell.evaluation.controls import PRIOR_CORRECTED

        knowledge = self._knowledge(test)
        if knowledge is None:
            return []
        each = ", ".join(f"{_in_words(name)} {scores.test:.1f}" for name, scores in knowledge.controls.items())
        gain = knowledge.gain
        verdict = "" if knowledge.is_there else "; that can be chance"
        corrected = _scores(self._outcomes(PRIOR_CORRECTED, "test"))["P@1"]
        return [
            f"P@1 without looking at x: {each}.",
            f"Gain over the best of them (chosen on dev: {_in_words(knowledge.best)}): {gain.gain:.1f} "
            f"({gain.low:.1f} to {gain.high:.1f} at {100 * gain.confidence:.0f} %){verdict}.",
            f"P@1 of the same answers when the prior is divided out: {corrected:.1f}.",
        ]

    def _knowledge(self, test: "Evaluation") -> "Knowledge | None":
        from askwell.evaluation.knowledge import knowledge

        controls = self._controls()
        return knowledge(test.outcomes, controls) if controls else None

    def _controls(self) -> "dict[str, Answered]":
        """The controls that all mixtures have: a causal LM has none with x masked."""
        from askwell.evaluation.controls import PRIOR_CORRECTED
        from askwell.evaluation.knowledge import Answered

        return {
            name: Answered(self._outcomes(name, "dev"), self._outcomes(name, "test"))
            for name in self._names()
            if name != PRIOR_CORRECTED
        }

    def _names(self) -> "dict[str, list[Any]]":
        if not self._found:
            return {}
        first = self._found[0].outcomes
        return {
            name: list(by_split)
            for name, by_split in first.items()
            if all(name in found.outcomes for found in self._found)
        }

    def _outcomes(self, name: str, split: Any) -> "list[Outcome]":
        return [outcome for found in self._found for outcome in found.outcomes[name][split]]

    def _description(self, name: str) -> str:
        each = list(dict.fromkeys(found.descriptions[name] for found in self._found))
        return each[0] if len(each) == 1 else f"{each[0]}; and so for each relation"


def _in_words(name: str) -> str:
    from askwell.evaluation.controls import MAJORITY, PRIOR, PRIOR_MASKED_X

    words = {MAJORITY: "train's ys by frequency", PRIOR: "the prompts' prior", PRIOR_MASKED_X: "the same with x masked"}
    return words[name]


def _scores(outcomes: "Sequence[Outcome]") -> dict[str, float]:
    from askwell.evaluation.metrics import RANK_METRICS, scores_of

    return scores_of(outcomes, RANK_METRICS)
