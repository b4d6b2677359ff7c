"""What can be asked: the mixtures of a folder of runs, or the testbed's prompts, each under a name.

A name in a request is looked up among the known ones; it never becomes a path.
"""

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

from askwell.data.facts import Fact
from askwell.data.templates import Template
from askwell.data.testbed import (
    PREFIX,
    PREFIXES,
    lm_names,
    lms_folder,
    relations,
    testbed_prompts,
    testbed_relation,
    told_facts,
)
from askwell.errors import AskwellError, BadOption, DamagedFile, did_you_mean
from askwell.evaluation.selective import dev_answers_from
from askwell.lms.frozen import FrozenLM
from askwell.mixture.description import Description
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import CONFIG, lm_source, read_description, tokenizer_source
from askwell.runs.folder import Run, read_run, run_folders
from askwell.runs.record import RECORD
from askwell.runs.run import templates_of
from askwell.server.loaded import Askable, LMSource
from askwell.server.refusals import NoSuchName
from askwell.server.settings import served_folder

HARD = ":hard"
"""The suffix after the name of a run that stands for the hard prompts it started from."""
TESTBED_PROMPTS = "single"
RISK = 0.1
"""The fraction of wrong answers accepted among those that a mixture gives as known."""
_HASH = re.compile(r"[0-9a-f]{64}")
_SHORT = 12
_FEW_NAMES = 8
"""Up to this many names are listed in a message."""


@dataclass(frozen=True)
class Entry:
    """A mixture that can be asked."""

    name: str
    kind: Literal["tuned", "hard"]
    lm: str
    """The LM's public name."""
    relation: str
    label: str
    """The relation in words, for people."""
    prompts: int
    setting: str
    run: Run | None = None
    """The run that it comes from, if it comes from one."""

    @property
    def templates(self) -> list[Template]:
        """The hard prompts it starts from."""
        if self.run is not None:
            return templates_of(self.run.record.spec)
        return testbed_prompts(TESTBED_PROMPTS, self.relation)


@dataclass(frozen=True)
class KnownX:
    """What is known about an x of a relation."""

    golds: tuple[str, ...]
    told: Mapping[str, bool]
    """On the testbed: whether the LM's text tells each gold y."""
    split: str
    """The split of its fact: train, dev or test."""


class Catalogue:
    """The mixtures and runs at a path, read again when they change."""

    def __init__(self, path: Path | None) -> None:
        self.shows_testbed = path is None
        self.path = served_folder(path)
        if path is None:
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._runs: dict[Path, tuple[str, Run]] = {}
        self._entries: dict[str, Entry] = {}
        self._askable: dict[str, Askable] = {}
        self.problems: dict[str, str] = {}
        """What is wrong with folders that cannot be read, by name."""
        self.runs()

    def runs(self) -> dict[str, Run]:
        """Return all runs by name."""
        with self._lock:
            folders = run_folders(self.path) if self.path.is_dir() else []
            problems: dict[str, str] = {}
            found: dict[Path, tuple[str, Run]] = {}
            for folder in folders:
                try:
                    stamp = _stamp(f"{folder}/{RECORD}")
                    kept = self._runs.get(folder)
                    found[folder] = kept if kept is not None and kept[0] == stamp else (stamp, read_run(folder))
                except (AskwellError, OSError) as error:  # a damaged or vanishing run does not hide the others
                    problems[folder.name] = _without_path(str(error), folder)
            self._runs, self.problems = found, problems
            names = _names(list(found))
            return {names[folder]: run for folder, (_, run) in found.items()}

    def entries(self) -> dict[str, Entry]:
        """Return all mixtures by name: tuned ones, the hard prompts each started from, and those of the testbed."""
        found: dict[str, Entry] = {}
        for name, run in self.runs().items():
            for entry in _entries_of(name, run):
                found[entry.name] = entry
        self._entries = found | (_testbed_entries() if self.shows_testbed else {})
        return self._entries

    def find(self, name: str) -> Entry:
        """Return the mixture of that name."""
        known = self._entries.get(name)
        if known is not None and (known.run is None or self._is_as_it_was(known.run)):
            return known  # without reading all the other folders
        entries = self.entries()
        if name not in entries:
            raise NoSuchName(f"there is no mixture {name[:80]!r}{_advice(name, entries)}")
        return entries[name]

    def _is_as_it_was(self, run: Run) -> bool:
        kept = self._runs.get(run.folder)
        return kept is not None and kept[1] is run and kept[0] == _stamp(f"{run.folder}/{RECORD}")

    def run(self, name: str) -> Run:
        """Return the run of that name."""
        runs = self.runs()
        if name not in runs:
            raise NoSuchName(f"there is no run {name[:80]!r}{_advice(name, runs)}")
        return runs[name]

    def askable(self, entry: Entry) -> Askable:
        """Return what is needed to ask a mixture; its files are read again only when they change.

        The key of what is returned changes with them, so that no answers of an older version are given.
        """
        if entry.run is None:
            return Askable(("testbed", entry.name), LMSource(entry.lm), partial(_build_testbed, entry.relation))
        mixture = entry.run.mixture
        files = [f"{entry.run.folder}/{RECORD}", *([] if mixture is None else [f"{mixture}/{CONFIG}"])]
        key, kept = (entry.name, str(mixture), *map(_stamp, files)), self._askable.get(entry.name)
        if "" in key:
            raise DamagedFile(f"the files of {entry.name} are gone")
        if kept is None or kept.key != key:
            kept = self._askable[entry.name] = _askable(entry, entry.run, key)
        return kept

    def threshold(self, entry: Entry) -> float | None:
        """Return the lowest probability of an answer that counts as known; None if none is known to keep the risk."""
        if entry.kind != "tuned" or entry.run is None or entry.run.mixture is None:
            return None
        document = _read(entry.run.mixture).dev_answers
        return dev_answers_from(document).learned(RISK).value if document else None

    def facts(self, entry: Entry) -> Mapping[str, KnownX]:
        """Return what is known about the relation's x's: all of the testbed's, and those that a run was scored on."""
        if entry.relation.startswith(PREFIXES) and entry.relation in _testbed_labels():
            return _testbed_facts(entry.relation)
        if entry.run is None:
            return {}
        found: dict[str, KnownX] = {}
        for split, outcomes in (("dev", entry.run.dev), ("test", entry.run.test)):
            found |= {one.x: KnownX(one.golds, {}, split) for one in outcomes if one.relation == entry.relation}
        return found


def _askable(entry: Entry, run: Run, key: tuple[str, ...]) -> Askable:
    """Read what is needed to ask the mixture of a run; raise an error if its files are damaged."""
    folder = run.mixture
    if folder is None:
        return Askable(key, LMSource(entry.lm), partial(_build_hard, run, None))
    description = _read(folder)
    source = lm_source(folder, description)
    if source is None:
        raise BadOption(f"{entry.name} was learned on a model in memory, which is not available")
    lm = LMSource(source, description.base_lm.revision, tokenizer_source(folder, description))
    tuned = entry.kind == "tuned"
    return Askable(key, lm, partial(_build_saved, folder) if tuned else partial(_build_hard, run, description))


def _entries_of(name: str, run: Run) -> list[Entry]:
    record = run.record
    spec = record.spec
    if spec.control is not None:
        return []
    label = _testbed_labels().get(spec.relation, spec.relation)
    made = partial(Entry, lm=spec.lm, relation=spec.relation, label=label, prompts=len(record.prompts), run=run)
    tuned = [made(name=name, kind="tuned", setting=spec.setting)] if run.mixture is not None else []
    if not spec.templates:
        return tuned
    return [*tuned, made(name=f"{name}{HARD}" if tuned else name, kind="hard", setting="hard prompts")]


@cache
def _testbed_entries() -> dict[str, Entry]:
    lms = [name for name in lm_names() if (lms_folder() / name / "config.json").is_file()]
    entries = [
        Entry(
            name=f"{PREFIX}{relation.name}/{lm}",
            kind="hard",
            lm=PREFIX + lm,
            relation=PREFIX + relation.name,
            label=relation.label,
            prompts=len(testbed_prompts(TESTBED_PROMPTS, relation.name)),
            setting="hard prompts",
        )
        for lm in lms
        for relation in relations()
    ]
    return {entry.name: entry for entry in entries}


@cache
def _testbed_labels() -> dict[str, str]:
    return {prefix + relation.name: relation.label for prefix in PREFIXES for relation in relations(prefix)}


@cache
def _testbed_facts(name: str) -> dict[str, KnownX]:
    relation, is_told = testbed_relation(name), told_facts(name)
    split_of = {fact.x: split for split, facts in relation.splits.items() for fact in facts}
    return {x: KnownX(ys, {y: Fact(x, y) in is_told for y in ys}, split_of[x]) for x, ys in relation.golds.items()}


def _build_testbed(relation: str, lm: FrozenLM) -> Mixture:
    facts = testbed_relation(relation)
    mixture = Mixture(lm, testbed_prompts(TESTBED_PROMPTS, relation), relation=facts)
    mixture.answer_kind = mixture.encode_relation(facts).kind
    return mixture


def _build_saved(folder: Path, lm: FrozenLM) -> Mixture:
    try:
        return Mixture.from_pretrained(folder, lm)
    except DamagedFile as error:
        raise DamagedFile(_without_path(str(error), folder)) from error


def _build_hard(run: Run, description: Description | None, lm: FrozenLM) -> Mixture:
    """Build the hard prompts that a run started from, with the same kind of answers, one token or several."""
    as_words = {"deep": False, "initial": "words", "noise": 0.0, "copies": 1, "prefix": 0}
    spec = run.record.mixture
    shown = [tuple(Fact(x, y) for x, y in prompt.examples) for prompt in run.record.prompts[:: spec.copies]]
    mixture = Mixture(
        lm, templates_of(run.record.spec), spec.model_copy(update=as_words), examples=shown if spec.shots else None
    )
    if description is not None:
        mixture.answer_kind, mixture.candidates = description.answers, description.candidates
    return mixture


def _read(folder: Path) -> Description:
    try:
        return read_description(folder)
    except AskwellError as error:
        raise DamagedFile(_without_path(str(error), folder)) from error


def _stamp(file: str) -> str:
    """Return a string that changes with a file; empty if the file is missing."""
    try:
        found = os.stat(file)  # noqa: PTH116 - a Path for every request takes longer than the rest of it
    except OSError:
        return ""
    return f"{found.st_mtime_ns} {found.st_size} {found.st_ino}"


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """Name each folder: by its own name, shortened if it is a long hash, but never so far that two names coincide."""
    for length in (_SHORT, 24, 64):
        names = {
            one: one.resolve().name[:length] if _HASH.fullmatch(one.name) else one.resolve().name for one in folders
        }
        if len(set(names.values())) == len(folders):
            return names
    return {folder: str(number) for number, folder in enumerate(folders)}


def _advice(name: str, known: Mapping[str, object]) -> str:
    if not known:
        return "; there are none yet"
    advice = did_you_mean(name, known)
    return advice if len(known) <= _FEW_NAMES or advice.endswith("?") else f"; there are {len(known)} others"


def _without_path(message: str, folder: Path) -> str:
    """Phrase a message to a client so that it names the run, not its path on this machine."""
    for path in (folder, folder.parent, folder.parent.parent):
        message = message.replace(f"{path}/", "" if path != folder else f"{folder.name}/").replace(str(path), path.name)
    return message
