"""What can be asked: the mixtures of a folder of runs, or the testbed's prompts, each under a name.

A name in a request is looked up among the known ones; it never becomes a path.
"""

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from askwell.data.facts import SPLITS, Fact
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
from askwell.errors import AskwellError, BadOption, DamagedFile, UsageError, did_you_mean
from askwell.evaluation.selective import learned_threshold
from askwell.lms.frozen import FrozenLM
from askwell.mixture.description import Description
from askwell.mixture.learned_from import CONFIG, MIXTURE
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import lm_source, read_description, tokenizer_source
from askwell.runs.diff_lms import Diff, diff_folders, read_diff
from askwell.runs.folder import Run, read_run, row_of, run_folders, short_folder
from askwell.runs.query import query_runs
from askwell.runs.record import RECORD, REMARKS
from askwell.runs.run import templates_of
from askwell.server.queue import Askable, LMSource
from askwell.server.refusals import NoSuchName
from askwell.server.schemas import MixtureInfo
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
class KnownX:
    """What is known about an x of a relation."""

    golds: tuple[str, ...]
    told: Mapping[str, bool]
    """On the testbed: whether the LM's text tells each gold y."""
    split: str
    """The first split that has it: train, dev or test."""


@dataclass(frozen=True, kw_only=True)
class Entry(MixtureInfo):
    """A mixture that can be asked; `source` is the run it comes from, and `stamp` changes with that run's files."""

    source: Run | None = None
    stamp: str = ""

    @property
    def templates(self) -> list[Template]:
        """The hard prompts it starts from."""
        if self.source is not None:
            return templates_of(self.source.record.spec)
        return testbed_prompts(TESTBED_PROMPTS, self.relation)

    @cached_property
    def description(self) -> Description | None:
        """What is saved about its run's mixture; None if there is none."""
        folder = None if self.source is None else self.source.mixture
        try:
            return None if folder is None else read_description(folder)
        except UsageError as error:  # which is not the client's
            raise DamagedFile(str(error)) from error

    @cached_property
    def askable(self) -> Askable:
        """What is needed to ask it. Its key changes with its files, so that no answers of an older one are given."""
        key = (self.name, self.stamp)
        if self.source is None:
            return Askable(key, LMSource(self.lm), partial(_build_testbed, self.relation))
        folder, description = self.source.mixture, self.description
        hard = partial(_build_hard, self.source, description)
        if folder is None or description is None:
            return Askable(key, LMSource(self.lm), hard)
        name = lm_source(folder, description)
        if name is None:
            raise BadOption(f"{self.name} was learned on a model in memory, which is not available")
        lm = LMSource(name, description.base_lm.revision, tokenizer_source(folder, description))
        return Askable(key, lm, partial(Mixture.from_pretrained, folder) if self.kind == "tuned" else hard)

    @property
    def is_tuned(self) -> bool:
        """Whether tuning made it what it is: a mixture is also kept of a run whose first state was the best, and of a
        baseline that tunes nothing."""
        if self.kind == "hard" or self.source is None:
            return False
        return self.source.record.spec.training is not None and not self.as_written

    @property
    def learned(self) -> bool:
        """Whether it has learned from its train facts, which baselines that tune nothing have not."""
        return self.kind == "tuned" and (self.source is None or self.source.record.spec.learns)

    @property
    def is_lama(self) -> bool:
        """Whether it is the mixture of LAMA's baseline, which is the hard prompt itself."""
        return self.kind == "tuned" and self.source is not None and self.source.record.spec.baseline == "lama"

    @property
    def as_written(self) -> str:
        """In which state before tuning it was kept, if no step of tuning was better on dev; empty otherwise."""
        return self.source.record.as_written if self.source is not None and self.kind == "tuned" else ""

    @property
    def threshold(self) -> float | None:
        """The lowest probability of an answer that counts as known; None if none is known to keep the risk."""
        saved = None if self.kind != "tuned" or self.description is None else self.description.dev_answers
        return None if saved is None else learned_threshold(saved, RISK).value

    @property
    def facts(self) -> Mapping[str, KnownX]:
        """What is known about the relation's x's: all of the testbed's, and those of a run."""
        if self.relation.startswith(PREFIXES) and self.relation in _testbed_labels():
            return _testbed_facts(self.relation)
        if self.source is None:
            return {}
        found: dict[str, KnownX] = {}
        for split, outcomes in (("dev", self.source.dev), ("test", self.source.test)):
            found |= {one.x: KnownX(one.golds, {}, split) for one in outcomes if one.relation == self.relation}
        return found | {x: KnownX(golds, {}, "train") for x, golds in self.source.train_golds.items()}


class Catalogue:
    """The mixtures and runs at a path, read again when they change."""

    def __init__(self, path: Path | None) -> None:
        self.shows_testbed = path is None
        self.path = served_folder(path)
        if path is None:
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._runs: dict[Path, tuple[_Stamp, Run]] = {}
        self._entries: dict[str, Entry] = {}
        self.problems: dict[str, str] = {}
        """What is wrong with folders that cannot be read, by name."""
        self.runs()

    def runs(self) -> dict[str, Run]:
        """Return all runs by name."""
        return {name: run for name, (_, run) in self._stamped_runs().items()}

    def _stamped_runs(self) -> dict[str, tuple["_Stamp", Run]]:
        with self._lock:
            problems: dict[str, str] = {}
            found: dict[Path, tuple[_Stamp, Run]] = {}
            for folder in run_folders(self.path) if self.path.is_dir() else []:
                stamp, kept = _stamp(folder), self._runs.get(folder)
                try:
                    found[folder] = kept if kept is not None and kept[0] == stamp else (stamp, read_run(folder))
                except (AskwellError, OSError) as error:  # a damaged or vanishing run does not hide the others
                    problems[folder.name] = self.without_path(str(error))
            self._runs, self.problems = found, problems
            names = _names(list(found))
            return {names[folder]: of_folder for folder, of_folder in found.items()}

    def entries(self) -> dict[str, Entry]:
        """Return all mixtures by name: tuned ones, the hard prompts each started from, and those of the testbed."""
        runs = self._stamped_runs().items()
        found = [entry for name, (stamp, run) in runs for entry in _entries_of(name, stamp.answers, run)]
        testbed = _testbed_entries() if self.shows_testbed else {}
        self._entries = {entry.name: entry for entry in found} | testbed
        return self._entries

    def find(self, name: str) -> Entry:
        """Return the mixture of that name."""
        known = self._entries.get(name)
        if known is not None and (known.source is None or known.stamp == _stamp(known.source.folder).answers):
            return known  # without looking at all the other folders
        entries = self.entries()
        if name not in entries:
            raise NoSuchName(f"there is no mixture {name[:80]!r}{_advice(name, entries)}")
        return entries[name]

    def run(self, name: str) -> Run:
        """Return the run of that name."""
        runs = self.runs()
        if name not in runs:
            raise NoSuchName(f"there is no run {name[:80]!r}{_advice(name, runs)}")
        return runs[name]

    def diffs(self) -> tuple[dict[str, Diff], dict[str, str]]:
        """Return all comparisons of two LMs by name, and what is wrong with those that cannot be read."""
        names = _names(diff_folders(self.path))
        found, problems = {}, {}
        for folder, name in names.items():
            try:
                found[name] = read_diff(folder)
            except (AskwellError, OSError) as error:
                problems[name] = self.without_path(str(error))
        return found, problems

    def diff(self, name: str) -> Diff:
        """Return the comparison of that name."""
        folders = {known: folder for folder, known in _names(diff_folders(self.path)).items()}
        if name not in folders:
            raise NoSuchName(f"there is no diff {name[:80]!r}{_advice(name, folders)}")
        return read_diff(folders[name])

    @property
    def folder(self) -> str:
        """What the folder of the runs is called; its whole path is told to whoever started the service."""
        return self.path.resolve().name

    def without_path(self, message: str) -> str:
        """Phrase a message to a client so that it names a run, not its path on this machine."""
        return message.replace(f"{self.path}/", "").replace(str(self.path), self.path.name)


def run_rows(named: Mapping[str, Run], sort: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each run, with its name and the columns of `askwell runs`."""
    names = {run.folder: name for name, run in named.items()}
    return [{**row_of(run), "name": names[run.folder]} for run in query_runs(list(named.values()), sort=sort)]


def _entries_of(name: str, stamp: str, run: Run) -> list[Entry]:
    spec = run.record.spec
    if spec.control is not None:
        return []
    label, prompts = _testbed_labels().get(spec.relation, spec.relation), len(run.record.prompts)
    where = {"run": name, "source": run, "stamp": stamp}
    made = partial(Entry, lm=spec.lm, relation=spec.relation, label=label, prompts=prompts, **where)
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
    split_of = {fact.x: split for split in reversed(SPLITS) for fact in relation.splits[split]}  # train comes last
    return {x: KnownX(ys, {y: Fact(x, y) in is_told for y in ys}, split_of[x]) for x, ys in relation.golds.items()}


def _build_testbed(relation: str, lm: FrozenLM) -> Mixture:
    facts = testbed_relation(relation)
    mixture = Mixture(lm, testbed_prompts(TESTBED_PROMPTS, relation), relation=facts)
    mixture.answer_kind = mixture.encode_relation(facts).kind
    return mixture


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


class _Stamp(NamedTuple):
    """Strings that change with the files of a run: those that its answers come from, and its name and note."""

    answers: str
    remarks: str


def _stamp(folder: Path) -> _Stamp:
    stamps = []
    for file in (RECORD, f"{MIXTURE}/{CONFIG}", CONFIG, REMARKS):
        try:
            found = os.stat(f"{folder}/{file}")  # noqa: PTH116 - a Path for every request takes longer than the rest of it
            stamps.append(f"{found.st_mtime_ns} {found.st_size} {found.st_ino}")
        except OSError:
            stamps.append("missing")
    return _Stamp(", ".join(stamps[:-1]), stamps[-1])


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """Name each folder: by its own name, shortened if it is a long hash, but never so far that two names coincide."""
    for length in (_SHORT, 24, 64):
        names = {one: one.name[:length] if _HASH.fullmatch(one.name) else _name(one) for one in folders}
        if len(set(names.values())) == len(folders):
            return names
    return {folder: str(number) for number, folder in enumerate(folders)}


def _name(folder: Path) -> str:
    return short_folder(folder).replace("/", "-")  # an address is cut at each slash


def _advice(name: str, known: Mapping[str, object]) -> str:
    if not known:
        return "; there are none yet"
    advice = did_you_mean(name, known)
    return advice if len(known) <= _FEW_NAMES or advice.endswith("?") else f"; there are {len(known)} others"
