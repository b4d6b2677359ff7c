"""The published sets that askwell can pull: what they are, where they come from, and the hash of every file."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

from askwell.errors import BadOption

Unit = Literal["facts", "prompts", "relations", "words"]


@dataclass(frozen=True)
class Origin:
    """A file or folder in a public repository, at one commit."""

    repository: str
    """owner/name on GitHub."""
    commit: str
    path: str

    def inside(self, name: str) -> "Origin":
        """A file of this folder."""
        return Origin(self.repository, self.commit, f"{self.path}/{name}")


@dataclass(frozen=True)
class DataFile:
    """A file as it must lie in the data folder."""

    path: str
    """From the data folder, with slashes."""
    origin: Origin
    """Where the very same bytes are published."""
    bytes: int
    lines: int
    """Lines that are not blank: facts, prompts, relations or words."""
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A folder of the data folder that is pulled and verified as one."""

    name: str
    """Its folder, e.g. facts/trex_original."""
    about: str
    licence: str
    """That of the repository which publishes it."""
    unit: Unit
    """What a line of its files is."""
    origin: Origin
    """The folder it comes from."""
    elsewhere: Mapping[str, Origin] = field(default_factory=dict)
    """Files that have another name or commit there, by their name here."""

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """Every file of the set, with size and hash."""
        prefix = f"{self.name}/"
        return tuple(
            DataFile(path, self._origin_of(path.removeprefix(prefix)), **about)
            for path, about in _manifest().items()
            if path.startswith(prefix)
        )

    @property
    def relations(self) -> int | None:
        """How many relations have a file or folder of their own in the set; None where that is not how it is laid."""
        if self.unit not in ("facts", "prompts") or self.elsewhere:
            return None
        inner = (file.path.removeprefix(f"{self.name}/") for file in self.files)
        return len({name.split("/")[0] for name in inner})

    @property
    def lines(self) -> int:
        """How many facts, prompts, relations or words it holds."""
        return sum(file.lines for file in self.files)

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        return sum(file.bytes for file in self.files)

    def _origin_of(self, name: str) -> Origin:
        return self.elsewhere.get(name) or self.origin.inside(name)


@cache
def _manifest() -> Mapping[str, Mapping[str, Any]]:
    return json.loads(files("askwell.data").joinpath("manifest.json").read_text(encoding="utf-8"))


_PAPER = Origin("hiaoxui/soft-prompts", "eb9047e134de25dd9442dc2a809652814a005b4d", "")
_OPTIPROMPT = Origin("princeton-nlp/OptiPrompt", "4e15a9df613022052021f78e661ade5e3d42aba0", "")


def _of(repository: Origin, path: str) -> Origin:
    return Origin(repository.repository, repository.commit, path)


def _facts(name: str, about: str) -> DataSet:
    return DataSet(f"facts/{name}", about, "Apache-2.0", "facts", _of(_PAPER, f"db/{name}"))


def _prompts(name: str, about: str) -> DataSet:
    return DataSet(f"prompts/{name}", about, "Apache-2.0", "prompts", _of(_PAPER, f"prompts/{name}"))


SETS: tuple[DataSet, ...] = (
    _facts("trex_original", "T-REx, LAMA's test facts, AutoPrompt's train and dev facts"),
    _facts("trex_extend", "T-REx, AutoPrompt's own facts, split"),
    _facts("trex_distinct", "T-REx, LAMA's test facts, split so that no y stands in two splits"),
    _facts("google_re", "Google-RE, LAMA's facts, split 80-10-10"),
    _facts("conceptnet", "ConceptNet, LAMA's facts, split 80-10-10"),
    _prompts("trex", "T-REx, LAMA's manual prompts"),
    _prompts("trex_mine", "T-REx, LPAQA's mined prompts"),
    _prompts("trex_paraphrase", "T-REx, LPAQA's paraphrased prompts"),
    _prompts("google_re", "Google-RE, LAMA's manual prompts"),
    _prompts("google_re_mine", "Google-RE, LPAQA's mined prompts"),
    _prompts("google_re_paraphrase", "Google-RE, LPAQA's paraphrased prompts"),
    _prompts("conceptnet", "ConceptNet, frequent templates of OMCS"),
    DataSet(
        "prompts/autoprompt",
        "T-REx, AutoPrompt's prompts for BERT and RoBERTa, one a relation",
        "Apache-2.0",
        "prompts",
        Origin("ucinlp/autoprompt", "00b81068a099a56d453c7349e1a6508b38a0de75", "prompts"),
        {
            "bert.jsonl": Origin(
                "ucinlp/autoprompt",
                "00b81068a099a56d453c7349e1a6508b38a0de75",
                "prompts/fact_retrieval_bert_prompts.jsonl",
            ),
            "roberta.jsonl": Origin(
                "ucinlp/autoprompt",
                "ec3edf3cfc6392ad51a9ca6de4fafd1f270ef773",
                "prompts/fact_retrieval_roberta_prompts.jsonl",
            ),
        },
    ),
    DataSet(
        "meta",
        "LAMA's T-REx relations: name, description, cardinality",
        "MIT",
        "relations",
        _of(_OPTIPROMPT, "relation_metainfo"),
        {"lama_relations.jsonl": _of(_OPTIPROMPT, "relation_metainfo/LAMA_relations.jsonl")},
    ),
    DataSet(
        "vocab",
        "words that several LMs share: LAMA's, and that of BERT, RoBERTa and ALBERT",
        "MIT",
        "words",
        _of(_OPTIPROMPT, "common_vocabs"),
    ),
)


def chosen_sets(names: Iterable[str]) -> tuple[DataSet, ...]:
    """The sets of these names, all if none is given; conceptnet means both facts/conceptnet and prompts/conceptnet."""
    wanted = [name.strip("/") for name in names]
    if not wanted:
        return SETS
    known = {part for data_set in SETS for part in (data_set.name, data_set.name.rpartition("/")[2])}
    known |= {data_set.name.partition("/")[0] for data_set in SETS}
    for name in wanted:
        if name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=3)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise BadOption(f"there is no data set {name!r}; `askwell data list` shows them.{meant}")
    return tuple(data_set for data_set in SETS if _names(data_set) & set(wanted))


def _names(data_set: DataSet) -> set[str]:
    kind, _, last = data_set.name.partition("/")
    return {data_set.name, kind, last}
