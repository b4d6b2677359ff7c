"""Takes published sets from a copy on this machine, checked like those that are fetched."""

from collections.abc import Sequence
from pathlib import Path

from askwell.data_folder import pulled_data_folder
from askwell.datasets.catalogue import DataFile, DataSet
from askwell.datasets.fetch import Pulled, pull_lock
from askwell.datasets.verify import condition, is_right, sha256_of
from askwell.errors import BadFile, BadOption, DamagedFile
from askwell.write import write_whole


def take_from(copy: Path, sets: Sequence[DataSet]) -> Pulled:
    """Copies the files of the sets into the cache, none if any of them is missing or altered.

    `copy` is a data folder (facts/, prompts/ …) or a checkout of a repository that publishes the sets.
    """
    if not copy.is_dir():
        raise BadOption(f"--from {copy} is no folder")
    folder = pulled_data_folder()
    with pull_lock(folder, lambda: None):
        conditions = [condition(data_set, folder) for data_set in sets]
        wanted = [file for found in conditions for file in (*found.missing, *found.altered)]
        sources = _checked(copy, wanted)
        for file in wanted:
            write_whole(folder / file.path, sources[file.path].read_bytes())
            if not is_right(folder / file.path, file):
                (folder / file.path).unlink()
                raise DamagedFile(f"{sources[file.path]} changed while it was copied; run the same command again")
    return Pulled(
        folder,
        len(wanted),
        sum(len(found.altered) for found in conditions),
        sum(len(found.right) for found in conditions),
    )


def _checked(copy: Path, wanted: Sequence[DataFile]) -> dict[str, Path]:
    """Where each file lies in the copy, all of them right."""
    places = {file.path: [copy / file.path, copy / file.origin.path] for file in wanted}
    found = {path: next((place for place in those if place.is_file()), None) for path, those in places.items()}
    missing = [path for path, place in found.items() if place is None]
    if missing:
        raise BadFile(
            copy / missing[0],
            f"there is no such file; {len(missing)} of {len(wanted)} files are not in the copy. To take only some sets,"
            " name them; `askwell data list` shows the names",
        )
    sources = {path: place for path, place in found.items() if place is not None}
    for file in wanted:
        if not is_right(sources[file.path], file):
            raise DamagedFile(
                f"{sources[file.path]} is not what was published: its SHA-256 is {sha256_of(sources[file.path])}, not"
                f" {file.sha256}; nothing was taken"
            )
    return sources
