"""`askwell audit`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import Data, Json, SplitBy
from askwell.errors import BadOption

if TYPE_CHECKING:
    from askwell.audit import SetAudit, Splits


def audit(
    facts: Annotated[
        str,
        Parameter(
            help="One relation, or a folder or name of many, such as trex_original in the data folder; testbed:capital "
            "is a relation of the testbed, testbed: all of them."
        ),
    ],
    /,
    *,
    clean: Annotated[
        bool,
        Parameter(
            help="Make a split without leaks: train loses what stands in dev or test, dev what stands in test, and "
            "repeated lines go; every fact of test stays.",
            negative="",
        ),
    ] = False,
    out: Annotated[Path | None, Parameter(help="With --clean: the new folder that it goes to.")] = None,
    split_by: SplitBy = None,
    seed: Annotated[int, Parameter(help="Seed of the split of a single file.")] = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Audit the splits of facts: repeated and leaked facts, class balance, and what trivial answers score.

    Shares are in per cent of test's lines. A fact leaks if the same x and y stand in train; y stands inside x whatever
    the case of its letters; an x has several golds if test has several ys for it; trivial answers are made from
    train's lines (of ys that are equally common, the first in the file).
    """
    from askwell.audit import audit_splits, clean_splits, sentences, write_clean
    from askwell.audit.clean import need_new_folder
    from askwell.cli.terminal import counted, note, print_json
    from askwell.cli.terminal import out as terminal

    if clean != (out is not None):
        raise BadOption("--clean and --out FOLDER belong together")
    if out is not None:
        need_new_folder(out)
    splits, is_set = _read(facts, split_by, seed, data)
    # A path of the machine does not get into results.
    name = (Path(facts).name or facts) if Path(facts).exists() else facts
    found = audit_splits(name, splits)
    document: dict[str, Any] = found.as_json()
    if out is not None:
        document["clean"] = write_clean(name, [clean_splits(one) for one in splits], out, is_set=is_set)
    if json:
        print_json(document)
    else:
        _print_table(found)
        terminal.print("\n".join(sentences(found)), soft_wrap=True, markup=False)
    if out is not None:
        removed, repeated = (document["clean"][key] for key in ("leaks_removed", "repeated_removed"))
        note(
            f"{out} is a split without leaks: {counted(removed['train'], 'fact')} of train, "
            f"{counted(removed['dev'], 'fact')} of dev and {counted(sum(repeated.values()), 'repeated line')} "
            "are left out"
        )


def _read(facts: str, split_by: str | None, seed: int, data: Path | None) -> tuple[list["Splits"], bool]:
    """The relations, and whether they are a set rather than one relation."""
    from askwell.audit import Splits, read_splits
    from askwell.data_folder import data_folder, find
    from askwell.names import read_relation
    from askwell.testbed.world import PREFIX, relation_names

    if facts == PREFIX:
        read = {name: Splits.of(read_relation(PREFIX + name, split=split_by)) for name in relation_names()}
        return [replace(splits, name=name) for name, splits in read.items()], True
    if facts.startswith(PREFIX):
        return [Splits.of(read_relation(facts, split=split_by))], False
    splits = read_splits(facts, data=data, split=split_by, seed=seed)
    path = find(facts, "facts", data_folder(data))
    return splits, path.is_dir() and not (path / "test.jsonl").exists()


def _print_table(audit: "SetAudit") -> None:
    from rich.markup import escape
    from rich.table import Table

    from askwell.audit import SetAudit
    from askwell.cli.terminal import out

    columns = {
        "unseen y": "unseen_y",
        "y in x": "y_in_x",
        "golds>1": "several_golds",
        "majority": "majority",
        "train's y": "copy_train_y",
        "x's y": "copy_x",
    }
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for column in ("test", "leaked", *columns):
        table.add_column(column, justify="right", no_wrap=True)

    def add(name: str, of: SetAudit) -> None:
        counts = (str(of.test), str(of.total("leaked_pairs")))
        table.add_row(escape(name), *counts, *(f"{of.micro(share):.1f}" for share in columns.values()))

    for relation in audit.relations:
        add(relation.name, SetAudit(audit.name, (relation,)))
    if len(audit.relations) > 1:
        add("all", audit)
    out.print(table)
