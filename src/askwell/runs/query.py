"""Filters and sorts runs with DuckDB, over a table with one row per run; compares the runs at two paths."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from askwell.errors import BadFile, BadOption, did_you_mean
from askwell.evaluation.comparison import Comparison, Outcomes, Unit, compare
from askwell.evaluation.metrics import METRICS
from askwell.evaluation.outcomes import read_outcomes
from askwell.files import to_json
from askwell.runs.folder import RUN_COLUMNS, Run, Runs, is_run, load_runs, outcomes_of, place_of, row_of
from askwell.runs.record import TEST_OUTCOMES

COLUMNS = tuple(RUN_COLUMNS)
_BEST_FIRST = {*(metric.key for metric in METRICS.values() if metric.higher_is_better), "dev_P@1", "untuned_P@1"}
# Names with an @ need not be quoted as SQL requires; the longest come first, so that P@10 is not read as P@1.
_WITH_AT = sorted((name for name in RUN_COLUMNS if "@" in name), key=len, reverse=True)
_BARE_SCORE = re.compile(rf"""(?<!["'\w])({"|".join(map(re.escape, _WITH_AT))})(?!["'\w])""")

_UNKNOWN = re.compile(r'^Binder Error: Referenced column "([^"]+)" not found')

# Tables show the first eight characters of an id, which are enough to name a run.
_SHORT_ID = re.compile(r"\bid\s*={1,2}\s*'([0-9a-f]{8,63})'")


def query_runs(runs: Sequence[Run], *, where: str | None = None, sort: str | None = None) -> Runs:
    """Select the runs for which the SQL condition `where` holds, sorted by a column (scores best first)."""
    if sort is not None and sort in METRICS:
        sort = METRICS[sort].key
    if sort is not None and sort not in RUN_COLUMNS:
        raise BadOption(f"`sort` {sort}: there is no such column{did_you_mean(sort, COLUMNS)}", sort="--sort")
    chosen = sorted(_where(runs, where) if where else runs, key=place_of)
    if sort is not None:
        values = {id(run): RUN_COLUMNS[sort][1](run) for run in chosen}
        known = [run for run in chosen if values[id(run)] is not None]
        known.sort(key=lambda run: values[id(run)], reverse=sort in _BEST_FIRST)
        chosen = known + [run for run in chosen if values[id(run)] is None]
    return Runs(chosen)


def _where(runs: Sequence[Run], condition: str) -> list[Run]:
    import duckdb

    rows = [(number, *row_of(run).values()) for number, run in enumerate(runs)]
    with duckdb.connect() as database:
        typed = ", ".join(f'"{name}" {kind}' for name, (kind, _) in RUN_COLUMNS.items())
        database.execute(f"CREATE TABLE runs (number BIGINT, {typed})")
        if rows:
            database.executemany(f"INSERT INTO runs VALUES ({', '.join('?' * len(rows[0]))})", rows)
        database.execute("SET enable_external_access = false")  # a condition may read runs, but no files
        quoted = _SHORT_ID.sub(r"starts_with(id, '\1')", _BARE_SCORE.sub(r'"\1"', condition))
        try:
            found = database.execute(f"SELECT number FROM runs WHERE ({quoted})").fetchall()
        except duckdb.Error as error:
            unknown = _UNKNOWN.search(str(error))
            problem = (
                f"there is no column {unknown[1]}{did_you_mean(unknown[1], COLUMNS)}"
                if unknown
                else f"{str(error).splitlines()[0]}. The columns are {', '.join(COLUMNS)}"
            )
            raise BadOption(f"`where` {condition}: {problem}", where="--where") from None
    return [runs[number] for (number,) in found]


def select_runs(path: Path | str, where: str | None = None, *, argument: str = "where") -> Runs:
    """Select the runs at a path (one run, a folder of runs, or a store) for which a condition holds; at least one.

    They are sorted by LM, relation, prompts, setting and seed.
    """
    chosen = query_runs(load_runs(path), where=where)
    if not chosen:
        option = f"--{argument.replace('_', '-')}"
        raise BadOption(f"`{argument}` {where}: matches no run in {path}", **{argument: option})
    return chosen


def choose_run(path: Path | str, where: str | None = None) -> Run:
    """Choose the one run at a path that can be asked: of several for the same relation and LM, the best on dev.

    Controls are skipped, and so are runs in which nothing was tuned, since those saved nothing.
    """
    runs = [run for run in select_runs(path, where) if run.mixture is not None and run.record.spec.control is None]
    if not runs:
        raise BadFile(path, "no run here has a saved mixture: nothing was tuned")
    about = {(run.record.spec.lm, run.record.spec.relation) for run in runs}
    if len(about) > 1:
        known = "; ".join(sorted(f"relation = '{relation}' and lm = '{lm}'" for lm, relation in about)[:5])
        raise BadOption(
            f"{path} holds runs of several relations or LMs: choose one with `where`, such as {known}", where="--where"
        )
    return query_runs(runs, sort="dev_P@1")[0]


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
    sides = _compared_runs(a, where_a, argument="where_a"), _compared_runs(b, where_b, argument="where_b")
    found = compare(sides[0].outcomes, sides[1].outcomes, metric=metric, unit=unit, seed=seed)
    return RunComparison(*sides, found)


def _compared_runs(path: Path | str, where: str | None = None, *, argument: str = "where") -> ComparedRuns:
    """Read the test outcomes at a path: of a Parquet file of facts, of one run, or of those selected from several."""
    name, path = str(path) if where is None else f"{path} ({where})", Path(path)
    if (path / TEST_OUTCOMES).is_file() and not is_run(path):  # as `evaluate --per-fact` writes it
        path = path / TEST_OUTCOMES
    if path.is_file():
        if where is not None:
            option = f"--{argument.replace('_', '-')}"
            raise BadOption(f"`{argument}` chooses among several runs, but {path} is a file", **{argument: option})
        return ComparedRuns(name, read_outcomes(path), None)
    runs = select_runs(path, where, argument=argument)
    if "control" not in (where or ""):  # controls on LMs that know nothing are compared only if they are meant
        runs = Runs(run for run in runs if run.record.spec.control is None) or runs
    vocabularies = dict.fromkeys(run.record.test.vocabulary for run in runs)
    return ComparedRuns(name, outcomes_of(runs), "; ".join(vocabularies))
