"""Reading a relation from a folder or a file."""

from pathlib import Path, PurePath
from typing import get_args

from askwell.data_folder import data_folder, find
from askwell.errors import BadFile, BadOption, UserMistake
from askwell.facts.fact import Relation, SplitName
from askwell.facts.parse import SUFFIXES, parse_facts
from askwell.facts.split import SplitRule, split_facts

_FILES = tuple(f"{split}.jsonl" for split in get_args(SplitName))
_EXPECTED = "a folder of facts has train.jsonl, dev.jsonl and test.jsonl"


def read_relation(
    source: str | Path, *, data: Path | None = None, split: SplitRule | str | None = None, seed: int = 0
) -> Relation:
    """The relation that a folder of splits or one file holds; a file is split by `split` (80-10-10 at random).

    `source` is a path, or a name in the data folder (`data`, else ASKWELL_DATA) such as trex_original/P19.
    """
    path = find(str(source), "facts", data_folder(data))
    # A path of the machine must not get into results: a name is what stands in the data folder, or the last part.
    name = _last_part(path) if path == Path(source) else PurePath(source).as_posix()
    if path.is_dir():
        if split is not None:
            raise BadOption(
                f"the split {split!r} cannot be had for {source}: it is a folder, and its own splits are used as they"
                " are; give one file to have it split"
            )
        return _read_folder(path, name)
    return _read_file(path, name, split or "random", seed)


def _read_folder(folder: Path, name: str) -> Relation:
    missing = [file for file in _FILES if not (folder / file).is_file()]
    if len(missing) == len(_FILES):
        raise BadFile(folder, f"no facts here: {_EXPECTED}{_relations_inside(folder)}")
    if missing:
        raise BadFile(folder / missing[0], f"there is no such file; {_EXPECTED}")
    train, dev, test = (parse_facts(folder / file) for file in _FILES)
    return Relation.of(name, train, dev, test)


def _read_file(path: Path, name: str, rule: SplitRule | str, seed: int) -> Relation:
    facts = parse_facts(path)
    try:
        train, dev, test = split_facts(facts, rule, seed)
    except BadOption:
        raise
    except UserMistake as error:
        raise BadFile(path, str(error)) from error
    return Relation.of(name, train, dev, test, removed=len(facts) - len(train) - len(dev) - len(test))


def _relations_inside(folder: Path) -> str:
    inside = sorted(file.parent.name for file in folder.glob(f"*/{_FILES[0]}"))
    if not inside:
        return f" (and one file of facts ends in {', '.join(SUFFIXES)})"
    shown = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
    return f"; this folder holds {len(inside)} of them: name one ({shown})"


def _last_part(path: Path) -> str:
    if path.name in ("", ".."):
        path = path.resolve()
    return path.name if path.is_dir() else path.stem
