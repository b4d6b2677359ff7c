"""The runs of a store that tables are made of."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.errors import UserMistake
from askwell.specs import RunSpec
from askwell.store import Store
from askwell.store.query import query_runs
from askwell.tables.fact_sets import fact_set_of


@dataclass(frozen=True)
class KeptRun:
    """A whole run: what it was, what it scored, where it lies."""

    spec: RunSpec
    metrics: dict[str, Any]
    folder: Path

    @property
    def fact_set(self) -> str:
        """The set of its relation."""
        return fact_set_of(self.spec.relation)

    @property
    def facts(self) -> int:
        """Test facts that were asked."""
        return self.metrics["test"]["facts"]

    @property
    def left_out(self) -> int:
        """Test facts that could not be asked."""
        return len(self.metrics["test"]["left_out_facts"])

    @property
    def vocabulary(self) -> str:
        """Among which answers y was ranked."""
        return self.metrics["test"]["vocabulary"]

    def score(self, metric: str) -> float:
        """P@1, P@10 or MRR on test, in per cent."""
        return self.metrics["test"]["micro"][metric]


def kept_runs(store: Store, where: str | None = None) -> list[KeptRun]:
    """The runs for which the SQL condition holds, but not controls: those are no answers to what an LM knows."""
    if not store.done():
        raise UserMistake(f"{store.folder} holds no runs yet; `askwell sweep` puts them there")
    found = query_runs(store, where=where).as_json()
    if not found:
        raise UserMistake(f"--where {where}: no run of {store.folder} is so")
    runs = [KeptRun(store.spec(run["id"]), store.metrics(run["id"]), store.run_folder(run["id"])) for run in found]
    ordinary = [run for run in runs if run.spec.control is None]
    if not ordinary:
        raise UserMistake(f"all {len(runs)} runs are controls: LMs that know nothing; tables need runs of real LMs")
    return ordinary
