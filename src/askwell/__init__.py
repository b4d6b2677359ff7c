"""askwell: find out what a frozen language model knows, by learning how to ask it.

>>> lm = askwell.load_lm("bert-base-cased")
>>> relation = askwell.read_relation("capitals.csv")
>>> mixture = askwell.Mixture(lm, ["The capital of [X] is [Y] ."])
>>> askwell.train(mixture, relation)
>>> mixture.ask("France")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from askwell.version import VERSION as __version__  # noqa: N811 - the usual name of it

if TYPE_CHECKING:
    from askwell.answers.candidates import Candidates, read_candidates
    from askwell.answers.reply import AllReplies, Replies, Reply
    from askwell.data.facts import Fact, Relation
    from askwell.data.names import read_prompts, read_relation
    from askwell.data.templates import Template, parse_template
    from askwell.errors import AskwellError, Failure, UserMistake
    from askwell.evaluation.comparison import compare_outcomes
    from askwell.evaluation.examine import examine
    from askwell.evaluation.outcomes import Outcome
    from askwell.evaluation.scoring import Evaluation, evaluate
    from askwell.evaluation.trust import trust_of
    from askwell.lms.frozen import FrozenLM
    from askwell.lms.identity import LMIdentity
    from askwell.lms.load import load_lm
    from askwell.mixture.mixture import Mixture, ask
    from askwell.runs.build_spec import build_run_spec
    from askwell.runs.folder import Run, read_runs
    from askwell.runs.record import RunRecord
    from askwell.runs.run import run
    from askwell.server.client import Client
    from askwell.specs.mixture_spec import MixtureSpec
    from askwell.specs.run_spec import RunSpec
    from askwell.specs.training_spec import TrainingSpec
    from askwell.training.history import TrainingProgress, TrainingResult
    from askwell.training.loop import train
    from askwell.views.words import look_at

# Names are imported when they are first used: torch and transformers take seconds, and `askwell --help` needs neither.
_HOMES = {
    "askwell.errors": ["AskwellError", "Failure", "UserMistake"],
    "askwell.evaluation.comparison": ["compare_outcomes"],
    "askwell.evaluation.scoring": ["Evaluation", "evaluate"],
    "askwell.evaluation.examine": ["examine"],
    "askwell.evaluation.outcomes": ["Outcome"],
    "askwell.evaluation.trust": ["trust_of"],
    "askwell.data.facts": ["Fact", "Relation"],
    "askwell.lms.frozen": ["FrozenLM"],
    "askwell.lms.identity": ["LMIdentity"],
    "askwell.lms.load": ["load_lm"],
    "askwell.views.words": ["look_at"],
    "askwell.answers.candidates": ["Candidates", "read_candidates"],
    "askwell.mixture.mixture": ["Mixture", "ask"],
    "askwell.answers.reply": ["AllReplies", "Replies", "Reply"],
    "askwell.runs.folder": ["Run", "read_runs"],
    "askwell.runs.record": ["RunRecord"],
    "askwell.runs.run": ["run"],
    "askwell.runs.build_spec": ["build_run_spec"],
    "askwell.server.client": ["Client"],
    "askwell.specs.mixture_spec": ["MixtureSpec"],
    "askwell.specs.run_spec": ["RunSpec"],
    "askwell.specs.training_spec": ["TrainingSpec"],
    "askwell.data.names": ["read_prompts", "read_relation"],
    "askwell.data.templates": ["Template", "parse_template"],
    "askwell.training.loop": ["train"],
    "askwell.training.history": ["TrainingProgress", "TrainingResult"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AllReplies",
    "AskwellError",
    "Candidates",
    "Client",
    "Evaluation",
    "Fact",
    "Failure",
    "FrozenLM",
    "LMIdentity",
    "Mixture",
    "MixtureSpec",
    "Outcome",
    "Relation",
    "Replies",
    "Reply",
    "Run",
    "RunRecord",
    "RunSpec",
    "Template",
    "TrainingProgress",
    "TrainingResult",
    "TrainingSpec",
    "UserMistake",
    "__version__",
    "ask",
    "build_run_spec",
    "compare_outcomes",
    "evaluate",
    "examine",
    "load_lm",
    "look_at",
    "parse_template",
    "read_candidates",
    "read_prompts",
    "read_relation",
    "read_runs",
    "run",
    "train",
    "trust_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'askwell' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
