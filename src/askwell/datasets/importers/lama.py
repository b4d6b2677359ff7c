"""LAMA's data folder: TREx, Google_RE and ConceptNet, and the manual templates of relations.jsonl."""

from pathlib import Path

from askwell.datasets.importers.folders import add_fact_file, add_template_file, need_folder
from askwell.datasets.importers.imported import Imported
from askwell.datasets.importers.records import read_records


def read_lama(source: Path, name: str) -> Imported:
    """The facts of each relation, in one file since LAMA has no splits, and one template a T-REx relation."""
    need_folder(source, "TREx, Google_RE, ConceptNet or relations.jsonl")
    root = source / "data" if (source / "data").is_dir() else source
    imported = Imported()
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        data_set, kind = f"{name}_{folder.name.lower()}", folder.name.lower()
        if kind.startswith(("trex", "google_re")):
            for path in sorted(folder.glob("*.jsonl")):
                add_fact_file(imported, (data_set, path.stem.removesuffix("_test"), None), path)
        elif kind.startswith("conceptnet"):
            for path in sorted(folder.glob("*.jsonl")):
                _add_conceptnet(imported, data_set, path)
        elif kind.startswith("squad"):
            imported.skip(folder, "its sentences have no x")
        else:
            imported.skip(folder, "is no folder of LAMA")
    if (templates := root / "relations.jsonl").is_file():
        add_template_file(imported, f"{name}_trex", templates)
    return imported


def _add_conceptnet(imported: Imported, data_set: str, path: Path) -> None:
    """All relations lie in one file, x under 'sub' and the relation under 'pred'."""
    imported.files += 1
    for number, record in read_records(path):
        if not record.get("sub") or not record.get("pred"):
            imported.lines += 1
            imported.left_out["has no x ('sub') or no relation ('pred')"] += 1
        else:
            imported.add_fact((data_set, str(record["pred"]), None), path, number, record, ("sub", "obj_label"))
