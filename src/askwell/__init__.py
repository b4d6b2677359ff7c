"""askwell: find out what a frozen language model knows, by learning how to ask it.

>>> lm = askwell.load_lm("bert-base-cased")
>>> relation = askwell.load_relation("capitals.csv")
>>> mixture = askwell.Mixture(lm, ["The capital of [X] is [Y] ."])
>>> askwell.train(mixture, relation)
>>> mixture.ask("France")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from askwell.version import VERSION as __version__  # noqa: N811 - the usual name of it

if TYPE_CHECKING:
    from askwell.answers.candidates import Candidates as Candidates
    from askwell.answers.candidates import load_candidates as load_candidates
    from askwell.answers.reply import Replies as Replies
    from askwell.data.facts import Fact as Fact
    from askwell.data.facts import Relation as Relation
    from askwell.data.names import load_folds as load_folds
    from askwell.data.names import load_prompts as load_prompts
    from askwell.data.names import load_relation as load_relation
    from askwell.data.templates import Template as Template
    from askwell.errors import AskwellError as AskwellError
    from askwell.errors import Failure as Failure
    from askwell.errors import UsageError as UsageError
    from askwell.evaluation.comparison import compare as compare
    from askwell.evaluation.scoring import Evaluation as Evaluation
    from askwell.evaluation.trust import evaluate as evaluate
    from askwell.lms.frozen import FrozenLM as FrozenLM
    from askwell.lms.load import load_lm as load_lm
    from askwell.mixture.mixture import Mixture as Mixture
    from askwell.runs.build_spec import build_run_spec as build_run_spec
    from askwell.runs.diff_lms import diff as diff
    from askwell.runs.folder import Run as Run
    from askwell.runs.folder import load_runs as load_runs
    from askwell.runs.run import run as run
    from askwell.runs.while_training import KnowledgeCallback as KnowledgeCallback
    from askwell.server.client import Client as Client
    from askwell.specs.mixture_spec import MixtureSpec as MixtureSpec
    from askwell.specs.run_spec import RunSpec as RunSpec
    from askwell.specs.training_spec import TrainingSpec as TrainingSpec
    from askwell.training.loop import train as train
    from askwell.views.words import nearest_words as nearest_words

# Names are imported when they are first used: torch and transformers take seconds, and `askwell --help` needs neither.
_HOMES = {
    "askwell.errors": ["AskwellError", "Failure", "UsageError"],
    "askwell.evaluation.comparison": ["compare"],
    "askwell.evaluation.trust": ["evaluate"],
    "askwell.evaluation.scoring": ["Evaluation"],
    "askwell.data.facts": ["Fact", "Relation"],
    "askwell.lms.frozen": ["FrozenLM"],
    "askwell.lms.load": ["load_lm"],
    "askwell.views.words": ["nearest_words"],
    "askwell.answers.candidates": ["Candidates", "load_candidates"],
    "askwell.mixture.mixture": ["Mixture"],
    "askwell.answers.reply": ["Replies"],
    "askwell.runs.diff_lms": ["diff"],
    "askwell.runs.folder": ["Run", "load_runs"],
    "askwell.runs.run": ["run"],
    "askwell.runs.while_training": ["KnowledgeCallback"],
    "askwell.runs.build_spec": ["build_run_spec"],
    "askwell.server.client": ["Client"],
    "askwell.specs.mixture_spec": ["MixtureSpec"],
    "askwell.specs.run_spec": ["RunSpec"],
    "askwell.specs.training_spec": ["TrainingSpec"],
    "askwell.data.names": ["load_folds", "load_prompts", "load_relation"],
    "askwell.data.templates": ["Template"],
    "askwell.training.loop": ["train"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'askwell' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
