"""Filters and sorts runs with DuckDB, over a table with one row per run."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from askwell.errors import BadFile, BadOption
from askwell.evaluation.metrics import METRICS
from askwell.runs.folder import Run, read_runs
from askwell.runs.record import RunRecord


def _score(metric: str) -> Callable[[Run], float | None]:
    return lambda run: run.score(metric)


def _known(value: Callable[[RunRecord], Any]) -> Callable[[Run], Any]:
    return lambda run: value(run.record)


# The name of each column, its type, and its value.
_COLUMNS: Mapping[str, tuple[str, Callable[[Run], Any]]] = {
    "id": ("VARCHAR", _known(lambda record: record.id)),
    "lm": ("VARCHAR", _known(lambda record: record.spec.lm)),
    "relation": ("VARCHAR", _known(lambda record: record.spec.relation)),
    "prompts": ("VARCHAR", _known(lambda record: record.spec.prompts)),
    "setting": ("VARCHAR", _known(lambda record: record.spec.setting)),
    "seed": ("BIGINT", _known(lambda record: record.spec.seed)),
    "control": ("VARCHAR", _known(lambda record: record.spec.control)),
    **{metric.key: ("DOUBLE", _score(name)) for name, metric in METRICS.items()},
    "dev_P@1": ("DOUBLE", _known(lambda record: None if record.dev is None else record.dev.score("P@1"))),
    "facts": ("BIGINT", _known(lambda record: record.test.facts)),
    "left_out": ("BIGINT", _known(lambda record: record.test.left_out_count)),
    "n_prompts": ("BIGINT", _known(lambda record: len(record.prompts))),
    "effective_prompts": ("DOUBLE", _known(lambda record: record.effective_prompts)),
    "temperature": ("DOUBLE", _known(lambda record: record.temperature)),
    "vocabulary": ("VARCHAR", _known(lambda record: record.test.vocabulary)),
    "candidates": ("VARCHAR", _known(lambda record: record.spec.candidates)),
    "tuned": ("BOOLEAN", _known(lambda record: record.spec.training is not None)),
    "baseline": ("VARCHAR", _known(lambda record: record.spec.baseline)),
    "method": ("VARCHAR", _known(lambda record: record.spec.training and record.spec.training.method)),
    "deep": ("BOOLEAN", _known(lambda record: record.spec.mixture.deep)),
    "weighting": ("VARCHAR", _known(lambda record: record.spec.mixture.weighting)),
    "data_dependent": ("BOOLEAN", _known(lambda record: record.spec.mixture.weighting == "data-dependent")),
    "combine": ("VARCHAR", _known(lambda record: record.spec.mixture.combine)),
    "initial": ("VARCHAR", _known(lambda record: record.spec.mixture.initial)),
    "begin": ("VARCHAR", _known(lambda record: record.spec.mixture.begin)),
    "copies": ("BIGINT", _known(lambda record: record.spec.mixture.copies)),
    "threads": ("BIGINT", _known(lambda record: record.spec.threads)),
    "device": ("VARCHAR", _known(lambda record: record.spec.device)),
    "seconds": ("DOUBLE", _known(lambda record: record.environment.seconds)),
    "askwell": ("VARCHAR", _known(lambda record: record.environment.askwell)),
}
SHOWN = ("id", "lm", "relation", "prompts", "setting", "seed", "P@1", "MRR", "facts")
"""The columns that fit on a screen."""
_ORDER = ("lm", "relation", "prompts", "setting", "control NULLS FIRST", "seed", "id")
_BEST_FIRST = {*(metric.key for metric in METRICS.values() if metric.higher_is_better), "dev_P@1"}
# Names with an @ can be written without the quotes that SQL wants; the longest first, so that P@10 is not read as P@1.
_WITH_AT = sorted((name for name in _COLUMNS if "@" in name), key=len, reverse=True)
_BARE_SCORE = re.compile(rf"""(?<!["'\w])({"|".join(map(re.escape, _WITH_AT))})(?!["'\w])""")


@dataclass(frozen=True)
class RunTable:
    """Some runs, one row each."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    runs: tuple[Run, ...]
    """In the order of the rows."""

    def as_json(self) -> list[dict[str, Any]]:
        """A dictionary for each run."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def query_runs(runs: Sequence[Run], *, where: str | None = None, sort: str | None = None) -> RunTable:
    """The runs for which the SQL condition `where` holds, sorted by a column (scores best first)."""
    columns = tuple(_COLUMNS)
    if sort is not None and sort not in columns:
        raise BadOption(f"--sort {sort}: there is no such column{_meant(sort)}")
    values = [(number, *(value(run) for _, value in _COLUMNS.values())) for number, run in enumerate(runs)]
    with duckdb.connect() as database:
        typed = ", ".join(f"{_quoted(name)} {kind}" for name, (kind, _) in _COLUMNS.items())
        database.execute(f"CREATE TABLE runs (number BIGINT, {typed})")
        if values:
            database.executemany(f"INSERT INTO runs VALUES ({', '.join('?' * len(values[0]))})", values)
        database.execute("SET enable_external_access = false")  # a condition may look at runs, not at files
        first = [] if sort is None else [f"{_quoted(sort)} {'DESC' if sort in _BEST_FIRST else 'ASC'} NULLS LAST"]
        order = ", ".join([*first, *_ORDER])
        condition = "WHERE (" + _BARE_SCORE.sub(r'"\1"', where) + ")" if where else ""
        try:
            rows = database.execute(f"SELECT * FROM runs {condition} ORDER BY {order}").fetchall()
        except duckdb.Error as error:
            problem = str(error).splitlines()[0]
            raise BadOption(f"--where {where}: {problem}. The columns are {', '.join(columns)}") from None
    return RunTable(columns, tuple(row[1:] for row in rows), tuple(runs[row[0]] for row in rows))


def select_runs(path: Path | str, where: str | None = None, *, option: str = "--where") -> list[Run]:
    """The runs at a path (one run, a folder of runs, or a store) for which a condition holds; at least one.

    They come sorted by LM, relation, prompts, setting and seed.
    """
    chosen = query_runs(read_runs(path), where=where).runs
    if not chosen:
        raise BadOption(f"{option} {where}: matches no run in {path}")
    return list(chosen)


def choose_run(path: Path | str, where: str | None = None) -> Run:
    """The one run at a path that can be asked: of several for the same relation and LM, the best on dev.

    Controls are skipped, and so are runs in which nothing was tuned, since those saved nothing.
    """
    runs = [run for run in select_runs(path, where) if run.mixture is not None and run.record.spec.control is None]
    if not runs:
        raise BadFile(path, "no run here has a saved mixture: nothing was tuned")
    about = {(run.record.spec.lm, run.record.spec.relation) for run in runs}
    if len(about) > 1:
        known = "; ".join(sorted(f"relation = '{relation}' and lm = '{lm}'" for lm, relation in about)[:5])
        raise BadOption(f"{path} holds runs of several relations or LMs: choose one with --where, such as {known}")
    scored = query_runs(runs, sort="dev_P@1").runs
    return scored[0]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _meant(typed: str) -> str:
    close = difflib.get_close_matches(typed, _COLUMNS, n=1)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(_COLUMNS)}"
