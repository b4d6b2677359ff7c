"""`askwell data list`, `pull`, `verify`, `import` and `templates`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import Data, Json
from askwell.datasets.importers import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from askwell.datasets.catalogue import DataSet
    from askwell.datasets.fetch import Pulled
    from askwell.datasets.verify import Condition

Sets = Annotated[
    list[str] | None,
    Parameter(
        help="Sets as `askwell data list` names them, all if none is given: facts/conceptnet, or facts, or conceptnet."
    ),
]


def list_data(*, data: Data = None, json: Json = False) -> None:
    """List the published sets: what they hold, where they come from, and which are here."""
    from askwell.cli.terminal import counted, out, print_json
    from askwell.data_folder import data_folder, pulled_data_folder
    from askwell.datasets.catalogue import SETS
    from askwell.datasets.verify import condition

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
    from askwell.data_folder import VARIABLE
    from askwell.datasets.catalogue import chosen_sets
    from askwell.datasets.local_copy import take_from

    chosen = chosen_sets(sets or [])
    pulled = take_from(copy, chosen) if copy is not None else _pull_with_a_bar(chosen)
    replaced = f" ({pulled.replaced} in place of altered ones)" if pulled.replaced else ""
    note(f"{counted(pulled.fetched, 'file')} pulled{replaced}, {pulled.already} were here, in {pulled.folder}")
    if other := os.environ.get(VARIABLE):
        note(f"{VARIABLE} is set to {other}: names are looked up there, not in the pulled data, until it is unset")
    if json:
        print_json(
            {
                "folder": str(pulled.folder),
                "sets": [data_set.name for data_set in chosen],
                "fetched": pulled.fetched,
                "replaced": pulled.replaced,
                "already_here": pulled.already,
            }
        )


def verify_data(sets: Sets = None, /, *, data: Data = None, json: Json = False) -> None:
    """Check every file of the sets that are here against its SHA-256; a set that is named must be here."""
    from askwell.cli.terminal import counted, out, print_json
    from askwell.data_folder import data_folder, pulled_data_folder
    from askwell.datasets.catalogue import chosen_sets
    from askwell.datasets.verify import condition
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
    from askwell.datasets.importers import READERS, write_imported
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
    from askwell.datasets.sentence_templates import frequent_templates, templates_jsonl
    from askwell.errors import BadOption
    from askwell.write import write_whole

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
    from askwell.datasets.fetch import Progress as PullProgress
    from askwell.datasets.fetch import mirror, pull

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
