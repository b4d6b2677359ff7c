"""`askwell audit`."""

from pathlib import Path

from askwell.cli.options import Data, Flag, Json, NotNegative, Reading
from askwell.cli.terminal import note, print_json, say, show
from askwell.data.names import read_fact_set
from askwell.data.split_audit import SetAudit, audit_sentences, audit_set, need_new_folder, write_clean
from askwell.errors import BadOption
from askwell.views.document import table
from askwell.views.printable import counted


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
    part of x regardless of case; an x has several golds if test has several ys for it; trivial answers are derived from
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
        "unseen y": "unseen_y",
        "y in x": "y_in_x",
        "golds>1": "several_golds",
        "majority": "majority",
        "copy train": "copy_train_y",
        "copy x": "copy_x",
    }
    headings = ("test", "leaked", *columns)
    parts = {relation.name: SetAudit(audit.name, (relation,)) for relation in audit.relations}
    parts |= {"all": audit} if len(parts) > 1 else {}
    rows = [
        (name, str(of.test), str(of.total("leaked_pairs")), *(f"{of.micro(share):.1f}" for share in columns.values()))
        for name, of in parts.items()
    ]
    show(table(("", *headings), rows, numbers=headings))
