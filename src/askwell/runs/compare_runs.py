"""Compares the runs at two paths: one run, a folder of runs, a store, or a Parquet file of facts on either side."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from askwell.errors import BadOption
from askwell.evaluation.comparison import Comparison, Outcomes, Unit, compare
from askwell.evaluation.outcomes import read_outcomes
from askwell.files import to_json
from askwell.runs.folder import Run, is_run, outcomes_of
from askwell.runs.query import select_runs
from askwell.runs.record import TEST_OUTCOMES


@dataclass(frozen=True)
class ComparedRuns:
    """One side of a comparison."""

    name: str
    """The path, with the condition that chose among its runs."""
    outcomes: Outcomes
    vocabulary: str | None
    """The answers that its runs rank among, in words; None for a Parquet file of facts, which does not say."""


@dataclass(frozen=True)
class RunComparison:
    """The runs of two paths, A and B, compared on the facts that both answered."""

    a: ComparedRuns
    b: ComparedRuns
    found: Comparison

    def as_json(self, changed: int | None = None) -> dict[str, Any]:
        """Return the comparison as plain JSON, with the first `changed` of the changed facts; None for all of them."""
        shown = replace(self.found, changed=self.found.changed[:changed])
        return {
            "a": self.a.name,
            "b": self.b.name,
            "a_vocabulary": self.a.vocabulary,
            "b_vocabulary": self.b.vocabulary,
            **to_json(shown),
            "changed_facts": len(self.found.changed),
        }


def compare_runs(
    a: Path | str,
    b: Path | str,
    *,
    where_a: str | None = None,
    where_b: str | None = None,
    metric: str = "P@1",
    unit: Unit = "fact",
    seed: int = 0,
) -> RunComparison:
    """Compare the runs at two paths; `where_a` and `where_b` choose among several. See `compare`."""
    sides = compared_runs(a, where_a, argument="where_a"), compared_runs(b, where_b, argument="where_b")
    found = compare(sides[0].outcomes, sides[1].outcomes, metric=metric, unit=unit, seed=seed)
    return RunComparison(*sides, found)


def compared_runs(path: Path | str, where: str | None = None, *, argument: str = "where") -> ComparedRuns:
    """Read the test outcomes at a path: of a Parquet file of facts, of one run, or of those selected from several."""
    name, path = str(path) if where is None else f"{path} ({where})", Path(path)
    if (path / TEST_OUTCOMES).is_file() and not is_run(path):  # as `evaluate --per-fact` writes it
        path = path / TEST_OUTCOMES
    if path.is_file():
        if where is not None:
            option = f"--{argument.replace('_', '-')}"
            raise BadOption(f"`{argument}` chooses among several runs, but {path} is a file", **{argument: option})
        return ComparedRuns(name, read_outcomes(path), None)
    runs = _without_controls(select_runs(path, where, argument=argument), where)
    vocabularies = dict.fromkeys(run.record.test.vocabulary for run in runs)
    return ComparedRuns(name, outcomes_of(runs), "; ".join(vocabularies))


def _without_controls(runs: list[Run], where: str | None) -> list[Run]:
    """Drop controls on LMs that know nothing, unless there are only controls or the condition names them."""
    own = [run for run in runs if run.record.spec.control is None]
    return own if own and "control" not in (where or "") else runs
