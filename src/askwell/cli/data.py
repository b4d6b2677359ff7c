"""`askwell data list`, `pull`, `verify`, `import` and `templates`.

`askwell stats`: the paper's two tables about its data.

`askwell audit`.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import Data, Json, SplitBy
from askwell.data.importers import Format
from askwell.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from askwell.data.audit import SetAudit
    from askwell.data.catalogue import DataSet
    from askwell.data.download import Pulled
    from askwell.data.read_facts import Splits
    from askwell.data.statistics import PromptStatistics, RelationStatistics
    from askwell.data.verify import Condition

Sets = Annotated[
    list[str] | None,
    Parameter(
        help="Sets as `askwell data list` names them, all if none is given: facts/conceptnet, or facts, or conceptnet."
    ),
]


def list_data(*, data: Data = None, json: Json = False) -> None:
    """List the published sets: what they hold, where they come from, and which are here."""
    from askwell.cli.terminal import counted, out, print_json
    from askwell.data.catalogue import SETS
    from askwell.data.sources import data_folder, pulled_data_folder
    from askwell.data.verify import condition

    folder = data_folder(data) or pulled_data_folder()
    conditions = [condition(data_set, folder) for data_set in SETS]
    if json:
        print_json({"folder": str(folder), "sets": [_description(found) for found in conditions]})
        return
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("set", no_wrap=True, style="bold")
    table.add_column("relations", no_wrap=True, justify="right")
    table.add_column("holds", no_wrap=True, justify="right")
    table.add_column("", overflow="fold")
    table.add_column("what it is", overflow="fold")
    for found in conditions:
        data_set = found.data_set
        relations = "" if data_set.relations is None else str(data_set.relations)
        table.add_row(data_set.name, relations, f"{data_set.lines} {data_set.unit}", found.summary, data_set.about)
    out.print(table)
    lacking = [found for found in conditions if not found.is_whole]
    publishers = dict.fromkeys(f"{data_set.origin.repository} ({data_set.licence})" for data_set in SETS)
    out.print(
        f"{len(SETS) - len(lacking)} of {counted(len(SETS), 'set')} here, in {folder}."
        + (" Get the rest with: askwell data pull" if lacking else "")
        + f"\nFrom GitHub: {', '.join(publishers)}.",
        soft_wrap=True,
        markup=False,
    )


def pull_data(
    sets: Sets = None,
    /,
    *,
    copy: Annotated[
        Path | None,
        Parameter(
            name="--from",
            help="Take the sets from a folder on this machine: a data folder, or a checkout of a repository that "
            "publishes them. They are checked likewise.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Fetch published sets into the cache. Names such as trex_original/P19 then work without --data."""
    import os

    from askwell.cli.terminal import counted, note, print_json
    from askwell.data.catalogue import chosen_sets
    from askwell.data.download import take_from
    from askwell.data.sources import VARIABLE

    chosen = chosen_sets(sets or [])
    pulled = take_from(copy, chosen) if copy is not None else _pull_with_a_bar(chosen)
    replaced = f" ({pulled.replaced} in place of altered ones)" if pulled.replaced else ""
    note(f"{counted(pulled.fetched, 'file')} pulled{replaced}, {pulled.already_here} were here, in {pulled.folder}")
    if other := os.environ.get(VARIABLE):
        note(f"{VARIABLE} is set to {other}: names are looked up there, not in the pulled data, until it is unset")
    if json:
        print_json(
            {
                "folder": str(pulled.folder),
                "sets": [data_set.name for data_set in chosen],
                "fetched": pulled.fetched,
                "replaced": pulled.replaced,
                "already_here": pulled.already_here,
            }
        )


def verify_data(sets: Sets = None, /, *, data: Data = None, json: Json = False) -> None:
    """Check every file of the sets that are here against its SHA-256; a set that is named must be here."""
    from askwell.cli.terminal import counted, out, print_json
    from askwell.data.catalogue import chosen_sets
    from askwell.data.sources import data_folder, pulled_data_folder
    from askwell.data.verify import condition
    from askwell.errors import BadOption, DamagedFile

    chosen, folder = chosen_sets(sets or []), data_folder(data)
    if folder is None:
        raise BadOption(
            f"there is no data in {pulled_data_folder()}; get it with `askwell data pull`, or name a folder with --data"
        )
    conditions = [condition(data_set, folder) for data_set in chosen]
    if json:
        print_json({"folder": str(folder), "sets": [_description(found) for found in conditions]})
    else:
        for found in conditions:
            out.print(f"{found.data_set.name}: {found.summary}", soft_wrap=True, markup=False)
    wrong = [found for found in conditions if not found.is_whole and (sets or not found.is_absent)]
    if wrong:
        files = [file.path for found in wrong for file in (*found.altered, *found.missing)]
        named = ", ".join(files[:5]) + (", …" if len(files) > 5 else "")
        raise DamagedFile(
            f"{counted(len(files), 'file')} in {folder} missing or not as published: {named}. Pull them again with:"
            f" askwell data pull {' '.join(found.data_set.name for found in wrong)}"
        )


def import_data(
    format: Annotated[  # noqa: A002
        Format,
        Parameter(help="Whose format: lama, lpaqa, autoprompt, optiprompt, or bear (all sets of lm-pub-quiz)."),
    ],
    source: Annotated[
        Path,
        Parameter(
            help="Their folder, unpacked. lama: TREx, Google_RE, ConceptNet and relations.jsonl. lpaqa: folders of "
            "<relation>.jsonl or .txt. autoprompt: folders of <relation>/{train,dev,test}.jsonl, files of prompts. "
            "optiprompt: data, relation_metainfo and common_vocabs. bear: metadata_relations.json with "
            "<relation>.jsonl beside it; its answer spaces become files for --candidates."
        ),
    ],
    /,
    *,
    out: Annotated[Path, Parameter(help="The data folder to write to: facts/, prompts/ and vocab/ in it.")],
    name: Annotated[
        str | None, Parameter(help="What the sets' names begin with; that of the format, if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Bring facts and templates of another project into our layout, and say what was left out and why."""
    from askwell.cli.terminal import note, print_json
    from askwell.data.imported import write_imported
    from askwell.data.importers import READERS
    from askwell.errors import BadOption

    if name is not None and (not name or name.startswith(".") or "/" in name or "\\" in name):
        raise BadOption(f"--name {name!r}: it must do as the name of a folder")
    imported = READERS[format](source, name or format)
    write_imported(imported, out)
    counts = imported.counts()
    for line in _told(counts, out):
        note(line)
    if json:
        print_json({"out": str(out), **counts})


def find_templates(
    sentences: Annotated[
        Path,
        Parameter(
            help='A file of JSON lines such as {"sentence": "You are likely to find a book in a library.", "x": "book",'
            ' "y": "library", "relation": "AtLocation"}. x and y are words as they stand in the sentence, or places'
            " [start, end] in it, counted in characters from 0."
        ),
    ],
    /,
    *,
    out: Annotated[
        Path,
        Parameter(help="The prompt file to write; without --relation a folder, which gets one file a relation."),
    ],
    relation: Annotated[
        str | None, Parameter(help="Take only sentences of this relation, and those that name none.")
    ] = None,
    min_count: Annotated[
        int, Parameter(help="In how many sentences a template must stand; 11 is ConceptNet's more than 10.")
    ] = 11,
    json: Json = False,
) -> None:
    """Find templates that are frequent among sentences with marked x and y, as ConceptNet's prompts were found.

    A sentence in which x or y is not found, or is found more than once, is left out and counted.
    """
    from askwell.cli.terminal import counted, note, print_json
    from askwell.data.sentence_templates import frequent_templates, templates_jsonl
    from askwell.errors import BadOption
    from askwell.files import write_whole

    if min_count < 1:
        raise BadOption(f"--min-count {min_count}: at least 1 is needed")
    found = frequent_templates(sentences, min_count, relation)
    for name, templates in found.templates.items():
        write_whole(out if relation is not None else out / f"{name}.jsonl", templates_jsonl(templates))
    kept = sum(map(len, found.templates.values()))
    note(f"{counted(found.read, 'sentence')} read; {kept} of {counted(found.distinct, 'template')} kept, in {out}")
    for reason, count in sorted(found.left_out.items()):
        note(f"left out: {counted(count, 'sentence')}, since {reason}")
    if json:
        print_json(
            {
                "out": str(out),
                "read": found.read,
                "distinct": found.distinct,
                "left_out": dict(found.left_out),
                "templates": {
                    name: [{"template": one.template, "count": one.count} for one in templates]
                    for name, templates in found.templates.items()
                },
            }
        )


def _pull_with_a_bar(chosen: "Sequence[DataSet]") -> "Pulled":
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from askwell.cli.terminal import log, note
    from askwell.data.download import PullProgress, mirror, pull

    note(f"pulling from {mirror()}")
    with Progress(
        TextColumn("{task.fields[files]} files"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=log,
        transient=True,
        disable=not log.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None, files=0)

        def show(progress: PullProgress) -> None:
            if progress.waiting:
                note("another pull is under way; waiting for it")
            bar.update(task, completed=progress.done, total=progress.total, files=progress.files)

        return pull(chosen, show)


def _description(found: "Condition") -> dict[str, Any]:
    data_set = found.data_set
    return {
        "name": data_set.name,
        "about": data_set.about,
        "from": f"{data_set.origin.repository}@{data_set.origin.commit}",
        "licence": data_set.licence,
        "relations": data_set.relations,
        data_set.unit if data_set.unit != "relations" else "lines": data_set.lines,
        "bytes": data_set.bytes,
        "files": len(data_set.files),
        "right": len(found.right),
        "missing": [file.path for file in found.missing],
        "altered": [file.path for file in found.altered],
        "state": found.summary,
    }


def _told(counts: dict[str, Any], out: Path) -> list[str]:
    """What an import did, one sentence each."""
    told = [f"{counts['lines']} lines of {counts['files']} files read"]
    for kind, folder, held, groups in (
        ("facts", "facts", "facts", "relations"),
        ("prompts", "prompts", "prompts", "relations"),
        ("words", "vocab", "words", "lists"),
    ):
        for name, about in counts[kind].items():
            told.append(f"{out / folder / name}: {about[held]} {held} of {about[groups]} {groups}")
    told += [f"left out: {count} × {reason}" for reason, count in sorted(counts["left_out"].items())]
    by_reason: dict[str, list[str]] = {}
    for path, reason in counts["skipped"].items():
        by_reason.setdefault(reason, []).append(path)
    for reason, paths in by_reason.items():
        named = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
        told.append(f"skipped: {len(paths)} × {reason} ({named})")
    return told


_HEADINGS = {
    "avg_unique_x": "distinct x",
    "avg_unique_y": "distinct y",
    "min_pairs": "least pairs",
    "max_pairs": "most",
    "mean_pairs": "mean",
    "avg_prompts": "prompts",
    "min_prompts": "least",
    "max_prompts": "most",
    "avg_tokens": "tokens",
}


def stats(*, data: Data = None, json: Json = False) -> None:
    """Print the paper's statistics of relations and prompts, counted on the data folder or the pulled data.

    Pairs are lines of all splits, repeated ones each time; distinct x and y are means over relations. Tokens are
    pieces between white space, both blanks included, as a mean over prompts.
    """
    from askwell.data.sources import data_folder, pulled_data_folder
    from askwell.data.statistics import prompt_statistics, relation_statistics, statistics_json
    from askwell.errors import BadOption

    folder = data_folder(data)
    if folder is None:
        raise BadOption(
            f"there is no data in {pulled_data_folder()}; get it with `askwell data pull`, or name a folder with --data"
        )
    from askwell.cli.terminal import note, print_json

    if json:
        print_json(statistics_json(folder))
        return
    _print_statistics("Relations", relation_statistics(folder))
    _print_statistics("Prompts", prompt_statistics(folder))
    note(
        "The paper prints 1580 for the distinct x of T-REx original and 507 for the distinct y of ConceptNet; counted"
        " on the published files, they are 1581 and 552."
    )


def _print_statistics(
    title: str, rows: "Mapping[str, RelationStatistics | None] | Mapping[str, PromptStatistics | None]"
) -> None:
    from rich.table import Table

    from askwell.cli.terminal import out

    keys = list(dict.fromkeys(key for row in rows.values() if row is not None for key in asdict(row)))
    table = Table(title=title, title_justify="left", box=None, header_style="dim", pad_edge=False)
    table.add_column("", no_wrap=True, style="bold")
    for key in keys:
        table.add_column(_HEADINGS.get(key, key), justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(["missing"] if row is None else map(str, asdict(row).values())))
    out.print(table)


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
    from askwell.cli.terminal import counted, note, print_json
    from askwell.cli.terminal import out as terminal
    from askwell.data.audit import audit_splits, sentences
    from askwell.data.clean import clean_splits, need_new_folder, write_clean

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
        _print_audit(found)
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
    from askwell.data.names import read_relation
    from askwell.data.read_facts import Splits, read_splits
    from askwell.data.sources import data_folder, find
    from askwell.data.testbed import PREFIX, relation_names

    if facts == PREFIX:
        read = {name: Splits.of(read_relation(PREFIX + name, split=split_by)) for name in relation_names()}
        return [replace(splits, name=name) for name, splits in read.items()], True
    if facts.startswith(PREFIX):
        return [Splits.of(read_relation(facts, split=split_by))], False
    splits = read_splits(facts, data=data, split=split_by, seed=seed)
    path = find(facts, "facts", data_folder(data))
    return splits, path.is_dir() and not (path / "test.jsonl").exists()


def _print_audit(audit: "SetAudit") -> None:
    from rich.markup import escape
    from rich.table import Table

    from askwell.cli.terminal import out
    from askwell.data.audit import SetAudit

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
