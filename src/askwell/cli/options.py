"""Options that several commands share, with their help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from askwell.data.readers import Columns
from askwell.data.split import rule_with

Flag = Annotated[bool, Parameter(negative="")]
Several = Annotated[list[str] | None, Parameter(negative="")]
Risk = Annotated[float, Parameter(validator=validators.Number(gte=0, lt=1))]
Confidence = Annotated[float | None, Parameter(validator=validators.Number(gt=0, lt=1))]
NotNegative = Annotated[int, Parameter(validator=validators.Number(gte=0))]

_LM = Parameter(
    help="The frozen LM: testbed:bert, smollm2, a hub name such as bert-base-cased, a checkpoint folder, "
    "a folder with a LoRA adapter (PEFT), or a .gguf file. `askwell lm list` lists those on this machine."
)
LM = Annotated[str | None, _LM]
NeededLM = Annotated[str, _LM]
Revision = Annotated[str | None, Parameter(help="Branch, tag or commit of an LM on the hub.")]
Tokenizer = Annotated[
    str | None,
    Parameter(help="A tokenizer that is not stored with the LM's weights: a folder, a vocab.txt, or a hub name."),
]
Device = Annotated[str | None, Parameter(help="cpu, cuda, cuda:1, mps …; default: the best available.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Loading:
    """How the LM is loaded."""

    revision: Revision = None
    tokenizer: Tokenizer = None
    device: Device = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "float64"],
        Parameter(help="Precision in which the LM runs; auto is half precision on GPUs, where it is faster."),
    ] = "auto"


Facts = Annotated[
    str,
    Parameter(
        help="The relation: a folder with train/dev/test.jsonl, one .jsonl/.csv/.tsv file to be split, a "
        "name such as trex_original/P19 in the data folder, or hub:NAME:SPLIT for a data set on the hub."
    ),
]
_PROMPTS = (
    'a template ("[X] was born in [Y] ."), a file of templates, or a name such as trex_mine/P19 in the data folder'
)
_ONE_OR_MORE = Parameter(help=f"One or more prompts: {_PROMPTS}.", negative="", consume_multiple=True)
Prompts = Annotated[list[str] | None, _ONE_OR_MORE]
NeededPrompts = Annotated[list[str], _ONE_OR_MORE]
RepeatedPrompts = Annotated[Several, Parameter(help=f"Prompts: {_PROMPTS}. Can be repeated.")]
"""Prompts of a command that takes other words, too."""
Data = Annotated[
    Path | None, Parameter(help="The data folder, which contains facts/ and prompts/. [env: ASKWELL_DATA]")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How facts are read and split."""

    x: Annotated[str | None, Parameter(help="The column of a file that holds x; default: x, sub_label or sub.")] = None
    y: Annotated[str | None, Parameter(help="The column of a file that holds y; default: y, obj_label or obj.")] = None
    split_by: Annotated[
        Literal["random", "distinct-y", "stratified"] | None,
        Parameter(
            help="How to split a single file: at random, so that no y appears in two splits, or so that each y has "
            "the same share of every split."
        ),
    ] = None
    split_ratio: Annotated[
        str | None, Parameter(help="Sizes of train, dev and test when a single file is split; default: 80-10-10.")
    ] = None

    @property
    def named(self) -> dict[str, Any]:
        """All of these as arguments of `load_relation`."""
        return {"split": self.split_by, "ratio": self.split_ratio, "x": self.x, "y": self.y}

    @property
    def rule(self) -> str | None:
        """The rule of the split, as recorded with a run; None if none was given."""
        return rule_with(self.split_by, self.split_ratio)

    @property
    def columns(self) -> Columns:
        """The columns of x and y."""
        return Columns(self.x, self.y)


CandidatesFile = Annotated[
    Path | None,
    Parameter(
        help="A file of candidates, one per line, or of labels with their words (good: good, great), or a folder with "
        "a file RELATION.txt for each relation: choose answers only among these."
    ),
]
Among = Annotated[Literal["train"] | None, Parameter(help="Choose answers only among the y's of the train facts.")]
Seed = Annotated[int, Parameter(help="Seed of all random draws.", validator=validators.Number(gte=0, lt=2**63))]
Threads = Annotated[
    int | None, Parameter(help="CPU threads; default: all.", validator=validators.Number(gte=1, lte=1024))
]

RunFolder = Annotated[Path, Parameter(help="The folder of the run.")]
Resume = Annotated[Flag, Parameter(help="Continue the interrupted run in the folder.")]
Overwrite = Annotated[Flag, Parameter(help="Replace the run in the folder.")]
WithControls = Annotated[
    bool,
    Parameter(
        name="--controls",
        negative="--no-controls",
        help="Also score answers that ignore x (the most frequent y's of train, and what the prompts answer "
        "regardless of x), and report the gain over the best of them.",
    ),
]

RunsPath = Annotated[Path, Parameter(help="A sweep's store, a folder of runs, or one run.")]
Where = Annotated[
    str | None, Parameter(help="Use only the runs that meet this SQL condition, as in `askwell runs --where`.")
]
Json = Annotated[Flag, Parameter(help="Print one JSON document on stdout.")]
