"""The data folder: where it is, and which path a name in it refers to, such as trex_original/P19."""

import difflib
import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Literal

from askwell.data.facts import SPLIT_FILES
from askwell.errors import BadFile, BadOption
from askwell.files import cache_folder

VARIABLE = "ASKWELL_DATA"

SourceKind = Literal["facts", "prompts"]

_SUFFIXES: dict[SourceKind, tuple[str, ...]] = {"facts": (".jsonl", ".csv", ".tsv"), "prompts": (".jsonl",)}


def pulled_data_folder() -> Path:
    """Return the folder for the files of `askwell data pull`, whether it exists or not."""
    return cache_folder() / "data"


def data_folder(option: Path | None) -> Path | None:
    """Return the data folder: the option, else the environment variable ASKWELL_DATA, else the pulled data, else
    none."""
    if option is not None:
        folder, origin = Path(option), "`data`"
    elif value := os.environ.get(VARIABLE):
        folder, origin = Path(value), f"the environment variable {VARIABLE}"
    else:
        pulled = pulled_data_folder()
        return pulled if pulled.is_dir() else None
    if not folder.is_dir():
        raise BadOption(f"{origin} is {folder}, which is not a folder", data="--data")
    return folder


def need_data_folder(option: Path | None) -> Path:
    """Return the data folder; raises if there is none."""
    folder = data_folder(option)
    if folder is None:
        raise BadOption(
            f"there is no data in {pulled_data_folder()}; get it with `askwell data pull`, or name a folder with "
            "`data`",
            data="--data",
        )
    return folder


def find(source: str, kind: SourceKind, data: Path | None) -> Path:
    """Return the path that `source` means: itself if it exists, else the facts or prompts of that name in the data
    folder."""
    path = Path(source)
    if path.exists():
        return path
    if data is None:
        raise BadFile(
            source,
            "there is no such file or folder. If this is a name in a data folder, name that folder:"
            f" `data` FOLDER, or the environment variable {VARIABLE}; `askwell data pull` fetches the published sets",
            data="--data",
        )
    # An absolute path or one with '..' would lead out of the data folder, so it is not a name.
    if path.is_absolute() or ".." in path.parts:
        raise BadFile(source, "there is no such file or folder")
    base = data / kind
    places = [base / source, *(base / f"{PurePath(source)}{suffix}" for suffix in _SUFFIXES[kind])]
    for place in places:
        if place.exists():
            return place
    looked = ", ".join([str(path), *map(str, places)])
    pull = "; `askwell data list` shows what can be pulled" if data == pulled_data_folder() else ""
    raise BadFile(
        source, f"there is no such file or folder; looked for {looked}{pull}{_suggestion(source, kind, base)}"
    )


def _suggestion(source: str, kind: SourceKind, base: Path) -> str:
    names = sorted(_names(kind, base))
    same_end = [name for name in names if name.rpartition("/")[2] == source]
    close = same_end[:3] or difflib.get_close_matches(source, names, n=3)
    return f". Did you mean {' or '.join(close)}?" if close else ""


def _names(kind: SourceKind, base: Path) -> Iterator[str]:
    for path in base.rglob("*"):
        name = path.relative_to(base)
        if kind == "facts" and path.name in SPLIT_FILES:
            if path.name == "train.jsonl":
                yield name.parent.as_posix()
        elif path.suffix in _SUFFIXES[kind]:
            yield name.with_suffix("").as_posix()
