"""The outcomes that a run left behind, read from its folder."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import duckdb

from askwell.errors import BadFile
from askwell.evaluation.compare import Outcomes
from askwell.evaluation.outcomes import Outcome, read_outcomes
from askwell.files import read_text

PER_FACT = "facts.parquet"


def read_run(path: Path) -> Outcomes:
    """The outcomes of a run's folder or of one Parquet file; of a folder of runs, all of them together."""
    path = Path(path)
    if path.is_file():
        return _read(path)
    if not path.exists():
        raise BadFile(path, "there is no such folder or file; name a run's folder, or the Parquet file of its facts")
    if (path / PER_FACT).is_file():
        return _read(path / PER_FACT)
    runs = sorted(file.parent for file in path.glob(f"*/{PER_FACT}"))
    if not runs:
        raise BadFile(
            path,
            f"no {PER_FACT} here or one folder below; `askwell train` leaves one, `askwell evaluate --per-fact` too",
        )
    return read_runs(runs)


def read_runs(runs: Iterable[Path]) -> Outcomes:
    """The outcomes of several folders as one run.

    Several seeds (as config.json or spec.json says) are kept apart by seed. Two runs of one relation and seed cannot
    stand together.
    """
    by_seed: dict[int, list[Outcome]] = defaultdict(list)
    first_with: dict[tuple[int, str], Path] = {}
    for run in runs:
        seed, outcomes = _seed_of(run), _read(run / PER_FACT)
        for relation in sorted({outcome.relation for outcome in outcomes}):
            if (seed, relation) in first_with:
                raise BadFile(
                    run, f"{relation} with seed {seed} stands in {first_with[seed, relation]} too; name one of the two"
                )
            first_with[seed, relation] = run
        by_seed[seed] += outcomes
    return next(iter(by_seed.values())) if len(by_seed) == 1 else dict(by_seed)


def _seed_of(run: Path) -> int:
    """The seed of a run, from the saved mixture beside the outcomes or the spec of a sweep's run; 0 if neither is."""
    for name, part in (("config.json", "mixture_spec"), ("spec.json", "mixture")):
        path = run / name
        if path.is_file():
            try:
                return int(json.loads(read_text(path))[part]["seed"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadFile(path, "it does not say what a run's seed is, so runs cannot be paired by it") from error
    return 0


def _read(path: Path) -> list[Outcome]:
    expected = [field.name for field in fields(Outcome)]
    try:
        with duckdb.connect() as database:
            found = database.read_parquet(str(path)).columns
    except duckdb.Error as error:
        raise BadFile(path, f"this is no Parquet file of facts: {str(error).splitlines()[0]}") from error
    if found != expected:
        raise BadFile(path, f"expected the columns {', '.join(expected)}; found {', '.join(found)}")
    return read_outcomes(path)
