"""Keeps what a mixture made of each fact, as Parquet."""

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb

from askwell.errors import CannotWrite
from askwell.evaluation.evaluate import Outcome
from askwell.write import write_aside

_COLUMNS = {
    "relation": "VARCHAR",
    "x": "VARCHAR",
    "y": "VARCHAR",
    "golds": "VARCHAR[]",
    "rank": "DOUBLE",
    "raw_rank": "DOUBLE",
    "log_probability": "DOUBLE",
    "answers": "VARCHAR[]",
    "probabilities": "DOUBLE[]",
}


def write_outcomes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Writes a row a fact, in the order given; a probability of 0 has no log_probability."""
    try:
        _write(outcomes, path)
    except (OSError, duckdb.Error) as error:
        raise CannotWrite(f"{path} cannot be written: {str(error).splitlines()[0]}") from error


def _write(outcomes: Sequence[Outcome], path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        with rows.open("w", encoding="utf-8") as file:
            for outcome in outcomes:
                row = asdict(outcome)
                if not math.isfinite(outcome.log_probability):
                    row["log_probability"] = None
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        with duckdb.connect() as database:
            database.execute("SET threads = 1")  # rows stay in order, and the same rows give the same file
            source = database.read_json(str(rows), columns=_COLUMNS, format="newline_delimited")
            write_aside(path, lambda aside: source.write_parquet(str(aside)))


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes of a file that `write_outcomes` has written."""
    with duckdb.connect() as database:
        rows = database.read_parquet(str(path)).fetchall()
    outcomes = []
    for row in rows:
        fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
        if fields["log_probability"] is None:
            fields["log_probability"] = -math.inf
        fields |= {name: tuple(fields[name]) for name in ("golds", "answers", "probabilities")}
        outcomes.append(Outcome(**fields))
    return outcomes
