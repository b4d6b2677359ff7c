"""The folder of a store, and what lies where in it.

STORE/
  store.json                 the store's own id, by which a worker elsewhere knows that it sees the same folder
  runs/<id>/                 a whole run; <id> is the hash of its spec
    spec.json                its RunSpec
    metrics.json             figures on test and dev, and what is known of the mixture
    facts.parquet            what was made of each test fact; dev.parquet: of each dev fact
    controls.parquet         what answers that need no knowledge made of them
    history.jsonl            dev scores while it was tuned; empty if it was not
    mixture/                 the saved mixture, if it was tuned
    environment.json         versions, git hash, seconds
  failed/<id>.json           why a run could not be done; it is tried again next time
  unfinished/                runs under way, or left behind by a killed process
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from askwell.errors import BadFile, DamagedFile
from askwell.specs import RunSpec
from askwell.store.unfinished import Unfinished, remove_left_behind
from askwell.write import write_whole

RUNS, FAILED, UNFINISHED, STORE = "runs", "failed", "unfinished", "store.json"
SPEC, METRICS, ENVIRONMENT, HISTORY = "spec.json", "metrics.json", "environment.json", "history.jsonl"
PER_FACT, PER_DEV_FACT, MIXTURE = "facts.parquet", "dev.parquet", "mixture"
CONTROLS = "controls.parquet"
_FORMAT, _VERSION = "askwell-store", 1


@dataclass(frozen=True)
class Store:
    """A store that is there."""

    folder: Path
    id: str

    @property
    def unfinished(self) -> Path:
        """Where runs under way lie."""
        return self.folder / UNFINISHED

    def run_folder(self, run: str) -> Path:
        """The folder of a run, whether it is there or not."""
        return self.folder / RUNS / run

    def done(self) -> frozenset[str]:
        """The ids of all whole runs."""
        runs = self.folder / RUNS
        return frozenset(path.name for path in runs.iterdir()) if runs.is_dir() else frozenset()

    def is_done(self, run: str) -> bool:
        """Whether a run is whole."""
        return self.run_folder(run).is_dir()

    def spec(self, run: str) -> RunSpec:
        """The spec of a whole run."""
        path = self.run_folder(run) / SPEC
        try:
            return RunSpec.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise DamagedFile(f"{path} is damaged ({str(error).splitlines()[0]}); remove {path.parent}") from error

    def metrics(self, run: str) -> dict[str, Any]:
        """The figures of a whole run."""
        return self._read(self.run_folder(run) / METRICS)

    def environment(self, run: str) -> dict[str, Any]:
        """What a whole run was made with."""
        return self._read(self.run_folder(run) / ENVIRONMENT)

    def make(self) -> None:
        """Makes the store, if it is not there."""
        path = self.folder / STORE
        if not path.exists():
            write_whole(path, json.dumps({"format": _FORMAT, "version": _VERSION, "id": self.id}) + "\n")

    def put(self, run: str, files: Mapping[str, bytes]) -> None:
        """Keeps a run whose files were made elsewhere."""
        with Unfinished(run, self.unfinished) as unfinished:
            for name, content in files.items():
                write_whole(unfinished.result / name, content)
            unfinished.finish(self.run_folder(run))
        self.forget_failure(run)

    def note_failure(self, spec: RunSpec, message: str, trace: str | None) -> None:
        """Keeps why a run could not be done."""
        record = {"id": spec.id, "message": message, "traceback": trace, "spec": spec.model_dump(mode="json")}
        write_whole(self.folder / FAILED / f"{spec.id}.json", json.dumps(record, ensure_ascii=False, indent=1) + "\n")

    def forget_failure(self, run: str) -> None:
        """Removes the record of a failure, if there is one."""
        (self.folder / FAILED / f"{run}.json").unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Why which runs could not be done."""
        folder = self.folder / FAILED
        return [self._read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []

    def clean(self, but: frozenset[str] = frozenset()) -> int:
        """Removes what killed processes left behind, but not of runs that are to go on; says how many there were."""
        return remove_left_behind(self.unfinished, but)

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DamagedFile(f"{path} is damaged ({error}); remove it or its run's folder") from error


def new_or_open_store(folder: Path) -> Store:
    """The store in a folder; if there is none, one that is not on the disk until `make` is called."""
    return open_store(folder) if (folder / STORE).exists() else Store(folder, uuid.uuid4().hex)


def open_store(folder: Path) -> Store:
    """The store in a folder."""
    path = folder / STORE
    if not path.is_file():
        raise BadFile(folder, f"holds no {STORE}, so it is no store of runs; `askwell sweep` makes one")
    about = Store._read(path)
    if about.get("format") != _FORMAT or about.get("version") != _VERSION:
        raise DamagedFile(f"{path} is not of a store that this askwell reads (version {_VERSION})")
    return Store(folder, about["id"])


def is_store(folder: Path, id_: str) -> bool:
    """Whether a folder, as it is seen here, is the store of that id."""
    try:
        return open_store(folder).id == id_
    except (BadFile, DamagedFile):
        return False
