"""Questions to a store, answered by DuckDB over the JSON files of its runs."""

import difflib
import json
import re
from dataclasses import dataclass
from typing import Any

import duckdb

from askwell.errors import BadOption, DamagedFile
from askwell.evaluation.metrics import METRICS as EVALUATION_METRICS
from askwell.evaluation.metrics import TABLE_METRICS
from askwell.runs.store import ENVIRONMENT, METRICS, RUNS, SPEC, Store

# What each column of the table of runs is, in terms of its three files.
_COLUMNS = {
    "id": "spec.id",
    "lm": "spec.json->>'lm'",
    "relation": "spec.json->>'relation'",
    "prompts": "spec.json->>'prompts'",
    "setting": "spec.json->>'setting'",
    "seed": "(spec.json->>'$.mixture.seed')::BIGINT",
    "control": "spec.json->>'control'",
    **{name: f"(metrics.json->>'$.test.micro.\"{name}\"')::DOUBLE" for name in TABLE_METRICS},
    "log_loss": "(metrics.json->>'$.test.log_loss')::DOUBLE",
    "dev_P@1": "(metrics.json->>'$.dev.micro.\"P@1\"')::DOUBLE",
    "facts": "(metrics.json->>'$.test.facts')::BIGINT",
    "left_out": "json_array_length(metrics.json->'$.test.left_out_facts')",
    "n_prompts": "(metrics.json->>'prompts')::BIGINT",
    "effective_prompts": "(metrics.json->>'effective_prompts')::DOUBLE",
    "temperature": "(metrics.json->>'temperature')::DOUBLE",
    "vocabulary": "metrics.json->>'$.test.vocabulary'",
    "candidates": "spec.json->>'candidates'",
    "tuned": "(spec.json->>'training') IS NOT NULL",
    "method": "spec.json->>'$.training.method'",
    "deep": "(spec.json->>'$.mixture.deep')::BOOLEAN",
    "data_dependent": "(spec.json->>'$.mixture.data_dependent')::BOOLEAN",
    "combine": "spec.json->>'$.mixture.combine'",
    "initial": "spec.json->>'$.mixture.initial'",
    "copies": "(spec.json->>'$.mixture.copies')::BIGINT",
    "threads": "(spec.json->>'threads')::BIGINT",
    "device": "spec.json->>'device'",
    "seconds": "(environment.json->>'seconds')::DOUBLE",
    "askwell": "environment.json->>'askwell'",
}
SHOWN = ("id", "lm", "relation", "prompts", "setting", "seed", "P@1", "MRR", "facts")
"""The columns that fit on a screen."""
_ORDER = ("lm", "relation", "prompts", "setting", "control NULLS FIRST", "seed", "id")
_BEST_FIRST = (*(metric.key for metric in EVALUATION_METRICS.values() if metric.higher_is_better), "dev_P@1")
# Names with an @ can be written without the quotes that SQL wants; the longest first, so that P@10 is not read as P@1.
_WITH_AT = sorted((name for name in _COLUMNS if "@" in name), key=len, reverse=True)
_BARE_SCORE = re.compile(rf"""(?<!["'\w])({"|".join(map(re.escape, _WITH_AT))})(?!["'\w])""")


@dataclass(frozen=True)
class Runs:
    """Some runs of a store, a row each."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def as_json(self) -> list[dict[str, Any]]:
        """A dictionary for each run."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def query_runs(store: Store, *, where: str | None = None, sort: str | None = None) -> Runs:
    """The runs for which the SQL condition `where` holds, sorted by a column (scores best first)."""
    columns = tuple(_COLUMNS)
    if sort is not None and sort not in columns:
        raise BadOption(f"--sort {sort}: there is no such column{_meant(sort)}")
    with duckdb.connect() as database:
        _read_runs(database, store)
        database.execute("SET enable_external_access = false")  # a condition is to look at runs, not at files
        names = ", ".join(_quoted(name) for name in columns)
        first = [] if sort is None else [f"{_quoted(sort)} {'DESC' if sort in _BEST_FIRST else 'ASC'} NULLS LAST"]
        order = ", ".join([*first, *_ORDER])
        condition = "WHERE (" + _BARE_SCORE.sub(r'"\1"', where) + ")" if where else ""
        try:
            rows = database.execute(f"SELECT {names} FROM runs {condition} ORDER BY {order}").fetchall()
        except duckdb.Error as error:
            problem = str(error).splitlines()[0]
            raise BadOption(f"--where {where}: {problem}. The columns are {', '.join(columns)}") from None
    return Runs(columns, tuple(rows))


def _read_runs(database: duckdb.DuckDBPyConnection, store: Store) -> None:
    if not store.done():
        listed = ", ".join(f"NULL AS {_quoted(name)}" for name in _COLUMNS)
        database.execute(f"CREATE TABLE runs AS SELECT {listed} WHERE false")
        return
    try:
        for name, file in (("spec", SPEC), ("metrics", METRICS), ("environment", ENVIRONMENT)):
            database.execute(
                f"CREATE TABLE {name} AS SELECT parse_filename(parse_dirpath(filename)) AS id, json(content) AS json "
                "FROM read_text(?)",
                [f"{_literal(str(store.folder / RUNS))}/*/{file}"],
            )
        listed = ", ".join(f"{what} AS {_quoted(name)}" for name, what in _COLUMNS.items())
        database.execute(
            f"CREATE TABLE runs AS SELECT {listed} FROM spec JOIN metrics USING (id) JOIN environment USING (id)"
        )
    except duckdb.Error as error:
        problem = _which(store) or str(error).splitlines()[0]
        raise DamagedFile(f"a run in {store.folder} cannot be read: {problem}") from None


def _which(store: Store) -> str | None:
    """The first file of a run that is no JSON."""
    for run in sorted(store.done()):
        for file in (SPEC, METRICS, ENVIRONMENT):
            path = store.run_folder(run) / file
            try:
                json.loads(path.read_bytes())
            except (OSError, ValueError) as error:
                return f"{path} is damaged ({error}); remove {path.parent}"
    return None


def _quoted(name: str) -> str:
    return f'"{name}"'


def _literal(path: str) -> str:
    """A path in which nothing stands for anything else when it is used as a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _meant(typed: str) -> str:
    close = difflib.get_close_matches(typed, _COLUMNS, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(_COLUMNS)}"
