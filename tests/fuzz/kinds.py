"""Every kind of file, name and option that is read, each with a way to spoil it and a command that reads it."""

import hashlib
import json
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from builders import tiny
from builders.commands import exit_code
from builders.sweeps import as_toml
from builders.tiny_gguf import write_gguf
from builders.worlds import PAIRS, write_prompts, write_relation
from fuzz import hostile
from fuzz.draws import Draws

from askwell.cli.main import app
from askwell.data.importers import ImportFormat
from askwell.runs.folder import write_remarks

TEMPLATE = "[X] lies in [Y] ."


@dataclass(frozen=True)
class World:
    """Whole files of every kind, which cases begin with."""

    folder: Path

    @property
    def bert(self) -> Path:
        return self.folder / "lms" / "bert"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def facts(self) -> Path:
        return self.folder / "data" / "facts" / "places" / "capital"


def make_world(folder: Path) -> None:
    """Makes the files with askwell itself, on tiny LMs."""
    for name in ("bert", "llama", "bart"):
        tiny.save(*tiny.TINY[name](), folder / "lms" / name)
    vocabulary = tiny.TINY["bert"]()[1].get_vocab()
    words = folder / "lms" / "words"
    shutil.copytree(folder / "lms" / "bert", words)
    (words / "tokenizer.json").unlink()
    (words / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.__getitem__)))
    write_gguf(folder / "lms" / "tiny.gguf")
    write_relation(folder / "data" / "facts" / "places" / "capital", train=PAIRS[:6], dev=PAIRS[6:8], test=PAIRS[6:])
    write_prompts(folder / "data" / "prompts" / "hand" / "capital.jsonl", [TEMPLATE, "the city of [X] is in [Y]"])
    (folder / "files").mkdir()
    write_tables(folder / "files")
    on_bert = ("--lm", folder / "lms" / "bert", "--facts", folder / "data" / "facts" / "places" / "capital")
    budget = ("--pairs", 12, "--prompts", TEMPLATE, "--prompts", "[X] is [Y]")
    assert exit_code("train", *on_bert, *budget, "--out", folder / "run") == 0
    write_remarks(folder / "run", name="capitals", note="the first try")
    assert exit_code("sweep", write_sweep(folder, folder / "sweep.toml"), "--store", folder / "store") == 0
    (run,) = (folder / "store" / "runs").iterdir()
    (folder / "store" / "failed").mkdir()
    spec = json.loads((run / "run.json").read_text())["spec"]
    failure = {"id": run.name, "message": "it failed", "traceback": None, "spec": spec}
    (folder / "store" / "failed" / f"{'0' * 64}.json").write_text(json.dumps(failure))
    assert exit_code(*probe(World(folder), folder / "probe")) == 0
    assert exit_code(*diff(World(folder), folder / "diff", folder / "files" / "forget.csv")) == 0
    shutil.copytree(folder / "run", folder / "begun")  # as a killed run leaves it: with a checkpoint and no record
    make_checkpoint(folder)


def make_checkpoint(folder: Path) -> None:
    """A run that was cut off after its first stretch, with the checkpoint that it wrote."""
    from askwell.training import loop as training_loop

    loop: Any = training_loop
    kept = loop.save_checkpoint
    begun = folder / "begun"
    shutil.rmtree(begun)

    def save_and_stop(*arguments: Any, **options: Any) -> None:
        kept(*arguments, **options)
        raise KeyboardInterrupt

    loop.save_checkpoint = save_and_stop
    try:
        assert exit_code("train", *resumed(folder, begun)) == 130
    finally:
        loop.save_checkpoint = kept
    assert (begun / "checkpoint.safetensors").is_file()


def resumed(folder: Path, out: Path) -> list[object]:
    """The options of the run that was cut off."""
    return [
        "--lm", folder / "lms" / "bert", "--facts", folder / "data" / "facts" / "places" / "capital",
        "--prompts", TEMPLATE, "--pairs", "24", "--out", out,
    ]  # fmt: skip


def probe(world: World, out: Path, *more: object, facts_of: str | Path = "places") -> list[object]:
    """A probe of the tiny BERT without mixtures, in one process."""
    settings = ("--settings", "hard-prompt", "examples", "soft-prompt", "--minutes", 0.001, "--workers", 1)
    asked = ("--set", facts_of, "--prompts", TEMPLATE, "--data", world.folder / "data")
    return ["probe", world.bert, *asked, *settings, "--out", out, *more]


def diff(world: World, out: Path, forget: Path, *more: object) -> list[object]:
    """An audit of the tiny BERT in two bits."""
    asked = ("--after-bits", 2, "--forget", forget, "--retain", world.facts, "--prompts", TEMPLATE, "--pairs", 12)
    return ["diff", world.bert, *asked, "--answers", "one-token", "--out", out, *more]


def write_tables(folder: Path) -> None:
    """Files of facts, x's, prompts, candidates, and labels, in every format."""
    pairs = [*PAIRS, ("Quito", "Peru"), ("Cuba", "Havana")]
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        lines = [delimiter.join(pair) for pair in (("x", "y"), *pairs)]
        (folder / f"facts{suffix}").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"sub_label": x, "obj_label": y}) for x, y in pairs]
    (folder / "facts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "forget.csv").write_text("x,y\nQuito,Peru\nCuba,Spain\n")
    (folder / "xs.txt").write_text("".join(f"{x}\n" for x, _ in pairs[:3]))
    (folder / "xs.csv").write_text("x,other\n" + "".join(f"{x},1\n" for x, _ in pairs[:3]))
    (folder / "xs.jsonl").write_text("".join(json.dumps({"x": x}) + "\n" for x, _ in pairs[:3]))
    prompts = [{"template": TEMPLATE, "weight": 0.5}, {"template": "the capital of [X] is [Y]", "weight": 0.25}]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in prompts))
    (folder / "prompts.txt").write_text(f"# by hand\n{TEMPLATE}\n[X] is the city of [Y] .\n")
    (folder / "candidates.txt").write_text("France\nItaly\nPeru\nNorway\nReykjavik\n")
    (folder / "labels.txt").write_text("good: France, Italy\nbad: Peru\n")
    of_others = folder / "lama" / "TREx"
    of_others.mkdir(parents=True)
    (of_others / "P17.jsonl").write_text("\n".join(lines) + "\n")
    relations = {"relation": "P17", "template": "[X] is located in [Y] .", "label": "country", "type": "N-1"}
    (folder / "lama" / "relations.jsonl").write_text(json.dumps(relations) + "\n")
    bear = folder / "bear"
    bear.mkdir()
    about = {
        "P17": {"templates": ["[X] is located in [Y]."], "answer_space_labels": ["France"], "answer_space_ids": [1]}
    }
    (bear / "metadata_relations.json").write_text(json.dumps(about))
    (bear / "P17.jsonl").write_text(json.dumps({"sub_label": "Paris", "obj_label": "France", "obj_id": 1}) + "\n")
    for name, line in (("lpaqa/mine", {"template": TEMPLATE, "weight": 1}), ("autoprompt/P17", {"sub_label": "Paris"})):
        (folder / name).mkdir(parents=True)
        (folder / name / ("P17.jsonl" if "lpaqa" in name else "train.jsonl")).write_text(json.dumps(line) + "\n")
    write_question_sets(folder, pairs)


def write_question_sets(folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """EntityQuestions, LM-KBC and PopQA as they are published."""
    questions = json.dumps([{"question": f"Where is {x}?", "answers": [y, "there"]} for x, y in pairs])
    objects = [{"SubjectEntity": x, "Relation": "lies in", "ObjectEntities": [y, [y, "there"]]} for x, y in pairs]
    rows = [(x, "country", y, json.dumps([y, "there"]), f"Where is {x}?") for x, y in pairs]
    table = [("subj", "prop", "obj", "possible_answers", "question"), *rows]
    contents = {f"entity-questions/P17.{split}.json": questions for split in ("train", "dev", "test")}
    contents["lm-kbc/dev.jsonl"] = "".join(json.dumps(line) + "\n" for line in objects)
    contents["popqa/test.tsv"] = "".join("\t".join(row) + "\n" for row in table)
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def sweep_table(folder: Path) -> dict[str, Any]:
    return {
        "data": str(folder / "data"),
        "lms": [str(folder / "lms" / "bert")],
        "facts": ["places"],
        "seeds": [0],
        "prompts": {"hand": ["hand"]},
        "settings": {"init": {"tuned": False}},
        "engine": "in-process",
    }


def write_sweep(folder: Path, path: Path) -> Path:
    path.write_text(as_toml(sweep_table(folder)))
    return path


Arguments = Sequence[object]
Case = Callable[[Draws, World, Path], Arguments]


@dataclass(frozen=True)
class Kind:
    """A kind of thing that is read."""

    cases: int
    """How many of 2,000 cases are of this kind: more of what is quick to read, and of what has many forms."""
    make: Case
    """Writes the files of a case into a folder, and gives the command line that reads them."""


def _file(data: Draws, world: World, case: Path, name: str) -> Path:
    """A spoilt copy of one of the small files."""
    path = Path(shutil.copy(world.folder / "files" / name, case))
    _spoil_in_place(data, path, case)
    return path


def _facts(data: Draws, world: World, case: Path) -> Arguments:
    name = hostile.chosen(data, ("facts.jsonl", "facts.csv", "facts.tsv"))
    path = _file(data, world, case, name)
    more = hostile.chosen(data, ((), ("--split-by", "distinct-y"), ("--split-by", "stratified"), ("--json",)))
    clean = hostile.chosen(data, ((), ("--clean", "--out", "clean")))
    return hostile.chosen(data, (["audit", path, *more, *clean], ["export", path, "--to", "lm-eval"]))


def _facts_folder(data: Draws, world: World, case: Path) -> Arguments:
    """A data folder in which a file, or the name of a relation, is not what it should be."""
    shutil.copytree(world.folder / "data", case / "data")
    places = case / "data" / "facts" / "places"
    split = places / "capital" / hostile.chosen(data, ("train.jsonl", "dev.jsonl", "test.jsonl"))
    match hostile.chosen(data, range(4)):
        case 0:
            split.unlink()
        case 1:
            name = hostile.chosen(data, ("a\x1b[2J", "=cmd", "<b>", "\u202e", "a" * 200, " ", "[red]", "a:b", "*?"))
            (places / "capital").rename(places / name)
        case 2:
            split.unlink()
            split.mkdir()
        case _:
            split.write_bytes(hostile.spoil_json_lines(data, split.read_bytes()))
    source = hostile.chosen(data, ("places", "places/capital"))
    command = hostile.chosen(data, (["audit", source], ["data", "verify"], ["data", "list"]))
    return [*command, "--data", case / "data", *hostile.chosen(data, ((), ("--json",)))]


def _prompts(data: Draws, world: World, case: Path) -> Arguments:
    path = _file(data, world, case, hostile.chosen(data, ("prompts.jsonl", "prompts.txt")))
    weights = hostile.chosen(data, ((), ("--weights", "file")))
    return ["ask", "--lm", world.bert, "--prompts", path, *weights, "Paris"]


def _xs(data: Draws, world: World, case: Path) -> Arguments:
    path = _file(data, world, case, hostile.chosen(data, ("xs.txt", "xs.csv", "xs.jsonl")))
    return ["ask", "--lm", world.bert, "--prompts", TEMPLATE, "--file", path, "--top", 2, *_maybe_json(data)]


def _candidates(data: Draws, world: World, case: Path) -> Arguments:
    path = _file(data, world, case, hostile.chosen(data, ("candidates.txt", "labels.txt")))
    return ["ask", "--lm", world.bert, "--prompts", TEMPLATE, "--candidates", path, "Paris"]


def _words(data: Draws, world: World, _case: Path) -> Arguments:
    """Templates, x's and names as they are typed."""
    template = hostile.chosen(data, (hostile.text(data), f"[X] {hostile.text(data)} [Y] .", TEMPLATE))
    x = hostile.text(data)
    return ["ask", "--lm", world.bert, f"--prompts={template}", "--top", 2, *_maybe_json(data), "--", x]


def _maybe_json(data: Draws) -> Sequence[str]:
    return hostile.chosen(data, ((), ("--json",)))


def _of_others(data: Draws, world: World, case: Path) -> Arguments:
    """Folders of other projects, for `data import`."""
    whose = hostile.chosen(data, get_args(ImportFormat))
    files = world.folder / "files"
    source = files / whose if (files / whose).is_dir() else files / "lama"
    shutil.copytree(source, case / "others")
    path = hostile.chosen(data, sorted(path for path in (case / "others").rglob("*") if path.is_file()))
    _spoil_in_place(data, path, case)
    return ["data", "import", whose, case / "others", "--out", "imported", *_maybe_json(data)]


def _sweep(data: Draws, world: World, case: Path) -> Arguments:
    path = case / "sweep.toml"
    if hostile.chosen(data, (True, False)):
        path.write_bytes(hostile.spoil_bytes(data, as_toml(sweep_table(world.folder)).encode()))
    else:
        table = sweep_table(world.folder)
        if hostile.chosen(data, (True, False)):
            table["settings"]["tuned"] = {"tuned": True, "pairs": 10, "deep": False, "learning_rate": 0.1}
        path.write_bytes(toml(hostile.spoil_json(data, table)).encode("utf-8", "surrogatepass"))
    return ["sweep", path, "--store", "store", *hostile.chosen(data, (("--dry-run",), (), ("--dry-run", "--json")))]


def toml(document: Any) -> str:
    """TOML of a document as far as TOML can say it; null, which it cannot, is left out."""
    try:
        if not isinstance(document, dict):
            return f"document = {_toml_value(document)}\n"
        return "".join(f"{json.dumps(key)} = {_toml_value(inner)}\n" for key, inner in document.items())
    except RecursionError:  # several deep values in each other
        return "document = " + "{x = " * 1200 + "1" + "}" * 1200


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def _run_folder(data: Draws, world: World, case: Path) -> Arguments:
    """The files of a run: its record, environment, history and tables."""
    run = case / "run"
    shutil.copytree(world.run, run)
    names = ("run.json", "environment.json", "about.json", "history.jsonl", "facts.parquet", "dev.parquet")
    names += ("controls.parquet",)
    _spoil_in_place(data, run / hostile.chosen(data, names), case)
    return hostile.chosen(
        data,
        (
            ["runs", run], ["runs", run, "--csv"], ["runs", run, "--json"], ["compare", run, world.run], ["runs", run],
            ["show", run], ["export", run, "--out", "run.html"], ["export", run, "--to", "inspect"],
            ["compare", run, world.run, "--metric", "log-loss", "--unit", "y", "--json"],
        ),
    )  # fmt: skip


def _report(data: Draws, world: World, case: Path) -> Arguments:
    """The same files for `report`, which reads all of them and takes longest."""
    run = case / "run"
    shutil.copytree(world.run, run)
    names = ("run.json", "environment.json", "history.jsonl", "facts.parquet", "dev.parquet", "controls.parquet")
    _spoil_in_place(data, run / hostile.chosen(data, names), case)
    return ["report", run, "--out", "report", "--format", hostile.chosen(data, ("csv", "markdown")), "--drawn", 0]


def _spoil_one_of(data: Draws, folder: Path, case: Path) -> None:
    """Spoils one of the files that askwell reads back."""
    saved = (".json", ".jsonl", ".parquet", ".safetensors", ".txt")
    files = sorted(path for path in folder.rglob("*") if path.suffix in saved)
    _spoil_in_place(data, hostile.chosen(data, files), case)


def _spoil_in_place(data: Draws, path: Path, case: Path) -> None:
    match path.suffix:
        case ".json":
            content = hostile.spoil_json_file(data, path.read_bytes())
        case ".jsonl":
            content = hostile.spoil_json_lines(data, path.read_bytes())
        case ".csv" | ".tsv":
            content = hostile.spoil_table(data, path.read_bytes(), "," if path.suffix == ".csv" else "\t")
        case ".parquet":
            content = hostile.spoil_parquet(data, path, case / "aside.parquet")
        case ".safetensors":
            content = hostile.spoil_tensors(data, path.read_bytes())
        case _:
            content = hostile.spoil_bytes(data, path.read_bytes())
    path.write_bytes(content)


def _mixture(data: Draws, world: World, case: Path) -> Arguments:
    """A saved mixture, mostly with hashes that fit."""
    folder = case / "mixture"
    shutil.copytree(world.run / "mixture", folder)
    (folder / "tokenizer_path.txt").write_text(f"{world.bert}\n")
    names = (
        "config.json",
        "config.json",
        "mixture.safetensors",
        "lm_path.txt",
        "tokenizer_path.txt",
    )
    name = hostile.chosen(data, names)
    if name != "tokenizer_path.txt":
        (folder / "tokenizer_path.txt").unlink()
    _spoil_in_place(data, folder / name, case)
    if data.integer(0, 4):
        fit_hashes(folder)
    ask = ["ask", folder, "Paris", "--top", 2]
    return hostile.chosen(data, (ask, [*ask, "--risk", "0.5"], [*ask, "--lm", world.bert], ["show", folder]))


def fit_hashes(folder: Path) -> None:
    """Lets the hash in config.json fit what is there, as somebody would who wants it to be read."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        config["tensors_sha256"] = hashlib.sha256((folder / "mixture.safetensors").read_bytes()).hexdigest()
        (folder / "config.json").write_text(json.dumps(config))
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
        return  # what is there cannot have a hash


def _transfer(data: Draws, world: World, case: Path) -> Arguments:
    """A saved mixture, or a run, that goes over to the same or another LM."""
    source: Path = case / "mixture"
    if data.integer(0, 1):
        _mixture(data, world, case)
    else:
        source = Path(shutil.copytree(world.run, case / "run"))
        _spoil_one_of(data, source, case)
    facts = hostile.chosen(data, ((), ("--facts", world.facts), ("--facts", world.folder / "files" / "facts.csv")))
    tune = hostile.chosen(data, ((), ("--tune", "--pairs", 12)))
    lm = world.folder / "lms" / hostile.chosen(data, ("bert", "llama", "bart"))
    return ["transfer", source, "--lm", lm, *facts, *tune, "--out", "run", *_maybe_json(data)]


def _probe(data: Draws, world: World, case: Path) -> Arguments:
    """The files of a probe that is to go on, or whose card is to be written; or a set of one's own, of files."""
    out = case / "out" / "probe"
    do = hostile.chosen(data, (["--card"], ["--card", "--json"], ["--plan"], []))
    if data.integer(0, 3) == 0:
        own = case / "own"
        own.mkdir()
        path = _file(data, world, own, hostile.chosen(data, ("facts.csv", "facts.jsonl", "facts.tsv")))
        path.rename(
            path.with_name(hostile.chosen(data, ("a b.csv", "[red].jsonl", "=cmd.tsv", "\u202e.csv", path.name)))
        )
        return probe(world, out, *do, facts_of=own)
    shutil.copytree(world.folder / "probe", out)
    name = hostile.chosen(data, ("probe.toml", "results.jsonl", "results.jsonl", "store.json", "sweep.toml"))
    if name == "probe.toml" and data.integer(0, 1):
        table = tomllib.loads((out / name).read_text())
        (out / name).write_bytes(toml(hostile.spoil_json(data, table)).encode("utf-8", "surrogatepass"))
    else:
        _spoil_in_place(data, out / name, case)
    if data.integer(0, 1):  # what is kept in short is enough
        shutil.rmtree(out / "runs")
    return probe(world, out, *do)


def _diff(data: Draws, world: World, case: Path) -> Arguments:
    """The runs of two LMs that were compared, or facts to forget, or conditions."""
    out, forget = case / "out" / "diff", world.folder / "files" / "forget.csv"
    shutil.copytree(world.folder / "diff", out)
    match data.integer(0, 2):
        case 0:
            return diff(world, out, forget, f"--fail-if={hostile.text(data)}")
        case 1:
            return diff(world, out, _file(data, world, case, "forget.csv"), *_maybe_json(data))
        case _:
            _spoil_one_of(data, out, case)
            return diff(world, out, forget, *_maybe_json(data))


def _store(data: Draws, world: World, case: Path) -> Arguments:
    store = case / "out" / "store"
    shutil.copytree(world.folder / "store", store)
    files = sorted(path for path in store.rglob("*") if path.suffix in (".json", ".jsonl", ".parquet"))
    path = hostile.chosen(data, [*files, store / "store.json", *(store / "failed").iterdir()])
    if data.integer(0, 4):
        _spoil_in_place(data, path, case)
    else:
        path.write_bytes(hostile.chosen(data, (b"{}", b"[]", b"null", b"", b'""', b"0")))
    sweep = write_sweep(world.folder, case / "sweep.toml")
    choices = (["runs", store], ["runs", store, "--failed"], ["runs", store, "--failed", "--json"])
    return hostile.chosen(data, (*choices, ["sweep", sweep, "--store", store, "--dry-run"]))


def _checkpoint(data: Draws, world: World, case: Path) -> Arguments:
    """The checkpoint of a run that is to be continued."""
    out = case / "out" / "run"
    shutil.copytree(world.folder / "begun", out)
    path = out / "checkpoint.safetensors"
    path.write_bytes(hostile.spoil_bytes(data, path.read_bytes()))
    return ["train", *resumed(world.folder, out), "--resume"]


def _lm(data: Draws, world: World, case: Path) -> Arguments:
    """The folder of an LM: config, tokenizer, vocabulary, weights."""
    name = hostile.chosen(data, ("bert", "bert", "llama", "bart", "words"))
    folder = case / name
    shutil.copytree(world.folder / "lms" / name, folder)
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt"))
    path = hostile.chosen(data, [*files, folder / "config.json"])
    if path.name == "config.json" and data.integer(0, 1):
        config = json.loads(path.read_bytes())
        key = hostile.chosen(data, sorted(config))
        path.write_text(json.dumps(config | {key: hostile.value(data)}))
    else:
        _spoil_in_place(data, path, case)
    return ["lm", "info", folder, *_maybe_json(data)]


def _gguf(data: Draws, world: World, case: Path) -> Arguments:
    content = (world.folder / "lms" / "tiny.gguf").read_bytes()
    if data.integer(0, 1):  # its header, which says how much there is of everything
        content = hostile.spoil_bytes(data, content[:4096]) + content[4096:]
    else:
        content = hostile.spoil_bytes(data, content)
    (case / "tiny.gguf").write_bytes(content)
    return ["lm", "info", case / "tiny.gguf"]


def _names(data: Draws, world: World, _case: Path) -> Arguments:
    """Names of LMs, relations, prompts, mixtures and files."""
    name = hostile.text(data)
    out = "." if name == "/" else name  # what is asked to write there does
    return hostile.chosen(
        data,
        (
            ["lm", "info", "--", name], ["audit", "--", name], ["runs", "--", name], ["show", "--", name],
            ["ask", "--", name, "Paris"], ["compare", "--", name, world.run], ["report", "--out", "report", "--", name],
            ["ask", "--lm", world.bert, f"--facts={name}", "--prompts", TEMPLATE, "Paris"],
            ["ask", f"--lm={name}", "--prompts", TEMPLATE, "Paris"], ["data", "pull", "--", name],
            ["ask", "--lm", world.bert, f"--tokenizer={name}", "--prompts", TEMPLATE, "Paris"],
            ["lm", "pull", "--", name], ["sweep", "--dry-run", "--", name], ["export", "--", name],
            ["data", "import", "lama", f"--out={out}", world.folder / "files" / "lama"],
            ["data", "import", "lama", "--out", "imported", f"--name={name}", world.folder / "files" / "lama"],
            ["transfer", f"--lm={world.bert}", "--out", "run", "--", name], ["probe", "--plan", "--", name],
            ["transfer", world.run, f"--lm={name}", "--out", "run"], diff(world, Path("diff"), name),
            probe(world, Path("probe"), "--plan", facts_of=name),
            probe(world, Path("probe"), "--plan", f"--prompts={name}"),
            ["diff", "--facts", world.facts, "--prompts", TEMPLATE, "--out", "diff", "--", world.bert, name],
            ["export", "--to", "inspect", "--", name], ["export", "--to", "lm-eval", "--", name],
            ["data", "verify", f"--data={name}"], ["data", "pull", f"--from={name}"], [name], ["data", name],
        ),
    )  # fmt: skip


def base_commands(world: World) -> dict[tuple[str, ...], Arguments]:
    """Each command with what it needs; options are added to it."""
    on_bert = ("--lm", world.bert, "--prompts", TEMPLATE)
    facts = ("--facts", world.facts)
    return {
        ("train",): (*on_bert, *facts, "--out", "run"),
        ("evaluate",): (*on_bert, *facts),
        ("transfer",): (world.run, "--lm", world.bert, "--out", "run"),
        ("probe",): (*probe(world, Path("probe"))[1:], "--plan"),
        ("diff",): (*diff(world, Path("diff"), world.folder / "files" / "forget.csv")[1:],),
        ("ask",): (*on_bert, "Paris"),
        ("show",): (world.run,),
        ("demo",): ("--quick", "--out", "demo"),
        ("baseline",): ("lama", *on_bert, *facts, "--out", "run"),
        ("compare",): (world.run, world.run),
        ("audit",): (world.facts,),
        ("sweep",): (world.folder / "sweep.toml", "--store", "store", "--dry-run"),
        ("runs",): (world.run,),
        ("report",): (world.run, "--out", "report", "--drawn", "0", "--format", "csv"),
        ("serve",): (world.run, "--port", "0"),
        ("export",): (world.run, "--out", "run.html"),
        ("lm", "list"): (),
        ("lm", "pull"): ("smollm2",),
        ("lm", "info"): (world.bert,),
        ("data", "list"): (),
        ("data", "pull"): (),
        ("data", "verify"): ("--data", world.folder / "data"),
        ("data", "import"): ("lama", world.folder / "files" / "lama", "--out", "imported"),
        ("testbed",): (),
        ("testbed", "list"): (),
    }


@cache
def options_of(command: tuple[str, ...]) -> list[str]:
    """Every option that the command line has for a command, found by asking it."""
    found: Any = app
    for word in command:
        found = found[word]
    if found.default_command is None:
        return []
    names = [name for argument in found.assemble_argument_collection() if argument.parse for name in argument.names]
    return [name for name in names if name.startswith("--")]


def _options(data: Draws, world: World, _case: Path) -> Arguments:
    """Any option of any command, with a value that nobody would type."""
    bases = base_commands(world)
    command = hostile.chosen(data, [name for name in bases for _ in range(_weight(name))])
    known = options_of(command)
    words: list[object] = [*command, *bases[command]]
    for _ in range(data.integer(1, 3)):
        option = hostile.chosen(data, known) if known else "--json"
        if option in words[len(command) :]:  # instead of what the command has for it
            place = words.index(option)
            del words[place : place + 2]
        given = hostile.chosen(data, (hostile.text(data), str(hostile.chosen(data, hostile.NUMBERS))))
        given = "." if given == "/" else given  # what is asked to write there does
        words += hostile.chosen(data, ([f"{option}={given}"], [f"{option}={given}"], [option, given], [option]))
    return words


def _weight(command: tuple[str, ...]) -> int:
    """How often a command is drawn: those with many options more often, the slow ones less."""
    return {"train": 8, "baseline": 8, "ask": 4, "audit": 4, "sweep": 3, "serve": 4, "evaluate": 2}.get(command[0], 1)


KINDS: dict[str, Kind] = {
    "facts": Kind(318, _facts),
    "data folders": Kind(180, _facts_folder),
    "prompts": Kind(130, _prompts),
    "xs": Kind(80, _xs),
    "candidates": Kind(40, _candidates),
    "typed words": Kind(80, _words),
    "data of others": Kind(150, _of_others),
    "sweeps": Kind(190, _sweep),
    "run folders": Kind(100, _run_folder),
    "reports": Kind(4, _report),
    "mixtures": Kind(120, _mixture),
    "transfers": Kind(40, _transfer),
    "probes": Kind(40, _probe),
    "diffs": Kind(12, _diff),
    "stores": Kind(80, _store),
    "checkpoints": Kind(24, _checkpoint),
    "LMs": Kind(70, _lm),
    "GGUF files": Kind(40, _gguf),
    "names": Kind(182, _names),
    "options": Kind(120, _options),
}
