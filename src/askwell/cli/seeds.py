"""Several runs of one relation, such as over seeds: mean and spread of their scores, and whether they agree."""

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from askwell.cli.run_folder import PER_FACT
from askwell.errors import BadOption
from askwell.files import to_json
from askwell.specs.mixture import MixtureSpec
from askwell.specs.training import TrainingSpec

if TYPE_CHECKING:
    from askwell.data.facts import Relation
    from askwell.evaluation.evaluate import Evaluation
    from askwell.evaluation.several_runs import RunConsistency, Spread


class SeveralRuns:
    """What several runs made of the same facts."""

    def __init__(self, evaluations: "Sequence[Evaluation]", left_out: Sequence[int]) -> None:
        from askwell.evaluation.several_runs import run_consistency, spreads_of

        self.relation = evaluations[0].outcomes[0].relation
        self.vocabulary = "; ".join(dict.fromkeys(evaluation.vocabulary for evaluation in evaluations))
        self.facts = sorted({len(evaluation.outcomes) for evaluation in evaluations})
        self.left_out = sorted({*left_out})
        self.spreads: Mapping[str, Spread] = spreads_of([evaluation.micro for evaluation in evaluations])
        self.consistency: RunConsistency = run_consistency([evaluation.outcomes for evaluation in evaluations])

    def as_json(self) -> dict[str, Any]:
        """All figures by name; scores in per cent, means over facts, shares from 0 to 1."""
        return {
            "relation": self.relation,
            "vocabulary": self.vocabulary,
            "runs": self.consistency.runs,
            "facts": self.facts,
            "left_out": self.left_out,
            "scores": {name: to_json(spread) for name, spread in self.spreads.items()},
            "consistency": to_json(self.consistency),
        }

    def show(self) -> None:
        """A table of the scores, and a sentence about the answers."""
        from rich.table import Table

        from askwell.cli.terminal import out

        facts, left_out = ("–".join(map(str, counts)) for counts in (self.facts, self.left_out))
        title = f"{self.relation}: {self.consistency.runs} runs, {facts} facts ({left_out} left out), {self.vocabulary}"
        table = Table("", "mean", "std. dev.", "min", "max", title=title)
        for name, spread in self.spreads.items():
            figures = (spread.mean, spread.deviation, spread.low, spread.high)
            table.add_row(name, *("–" if figure is None else f"{figure:.1f}" for figure in figures))
        out.print(table)
        right = self.consistency.same_of_right
        among = "" if right is None else f", {100 * right:.1f} % where one of the two is right"
        same = 100 * self.consistency.same
        out.print(f"Two runs give the same answer to {same:.1f} % of the x's{among}.", markup=False, soft_wrap=True)


def several_runs(evaluations: "Sequence[Evaluation]") -> list[SeveralRuns]:
    """For each relation that was evaluated more than once, all of its runs together."""
    by_relation: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_relation.setdefault(evaluation.outcomes[0].relation, []).append(evaluation)
    return [
        SeveralRuns(runs, [len(evaluation.left_out) for evaluation in runs])
        for runs in by_relation.values()
        if len(runs) > 1
    ]


def seeds_of(text: str) -> list[int]:
    """The seeds that --seeds names: a list such as 0,1,2, or how many, counted from 0."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise BadOption(f"--seeds {text}: give seeds such as 0,1,2, or how many there are to be")
    seeds = [int(part) for part in parts]
    if len(seeds) == 1:
        seeds = list(range(seeds[0]))
    if len(seeds) < 2 or len({*seeds}) < len(seeds):
        raise BadOption(f"--seeds {text}: a spread needs two different seeds or more")
    return seeds


def train_over_seeds(
    named: str,
    out: Path,
    mixture: MixtureSpec,
    training: TrainingSpec,
    *,
    relation_of: "Callable[[int], Relation]",
    train_one: Callable[[MixtureSpec, Path, bool], None],
    resume: bool,
    json: bool,
) -> None:
    """Trains the same once for each seed, into folders seed-0 and so on, and prints mean and spread of the scores.

    `train_one` is given the spec with its seed, the folder, and whether a run in it is to be gone on with; what it
    prints goes to stderr. With `resume`, runs that are whole are not done again.
    """
    from askwell.cli.terminal import note, print_json
    from askwell.evaluation.evaluate import Evaluation
    from askwell.evaluation.outcomes import read_outcomes
    from askwell.mixture.save import read_description

    seeds = seeds_of(named)
    relations = [relation_of(seed) for seed in seeds]
    if len({relation.digest for relation in relations}) > 1:
        raise BadOption(
            "--seeds: a single file of facts would be split anew for each seed, and runs on different facts are no "
            "spread of a score; give a folder with train.jsonl, dev.jsonl and test.jsonl"
        )
    evaluations, left_out = [], []
    for seed, relation in zip(seeds, relations, strict=True):
        folder, spec = out / f"seed-{seed}", mixture.model_copy(update={"seed": seed})
        if resume and _is_whole(folder):
            _check_same(folder, spec, training, relation)
            note(f"seed {seed} is done already, in {folder}")
        else:
            note(f"seed {seed}, into {folder}")
            begun = any(folder.glob("*")) if folder.is_dir() else False
            with contextlib.redirect_stdout(sys.stderr):
                train_one(spec, folder, resume and begun)
        outcomes = read_outcomes(folder / PER_FACT)
        vocabulary = read_description(folder).scores["test"]["vocabulary"]
        evaluations.append(Evaluation("test", vocabulary, tuple(outcomes), ()))
        left_out.append(len(relation.test) - len(outcomes))
    together = SeveralRuns(evaluations, left_out)
    if json:
        print_json(
            {
                "out": str(out),
                "seeds": seeds,
                **together.as_json(),
                "by_seed": {str(s): e.micro for s, e in zip(seeds, evaluations, strict=True)},
            }
        )
    else:
        together.show()


def _is_whole(folder: Path) -> bool:
    """Whether a run came to its end: its checkpoint is the last file to go."""
    from askwell.training.checkpoint import CHECKPOINT

    has_results = (folder / "config.json").is_file() and (folder / PER_FACT).is_file()
    return has_results and not (folder / CHECKPOINT).exists()


def _check_same(folder: Path, spec: MixtureSpec, training: TrainingSpec, relation: "Relation") -> None:
    """Refuses a finished run of other settings or facts."""
    from askwell.mixture.save import read_description

    known = read_description(folder)
    learned_from = known.learned_from
    same = (
        known.mixture_spec == spec
        and TrainingSpec.model_validate(learned_from["training"]) == training
        and learned_from["relation"]["sha256"] == relation.digest
    )
    if not same:
        raise BadOption(f"--resume: the run in {folder} is of other facts or options; name another --out")
