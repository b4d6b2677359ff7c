"""Which LMs can be used without a download from the hub, and a description of each."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from askwell.data.templates import parse_template
from askwell.data.testbed import PREFIXES, lm_names, lms_folder
from askwell.lms.checkpoints import PULLABLE, pulled_folder
from askwell.lms.frozen import FrozenLM
from askwell.lms.question import Unusable
from askwell.lms.tokenisation import tokenise
from askwell.lms.walks.known_models import WALKS, walk_of
from askwell.lms.walks.walk import FeedForward

_FORMS = {"x before y": "[X] lies in [Y] .", "y before x": "[Y] holds [X] .", "no words at all": "[X] [Y]"}


@dataclass(frozen=True)
class ListedLM:
    """An LM that is on this machine, or that a command can get."""

    name: str
    """Its name for --lm."""
    about: str
    megabytes: float | None
    """None for an LM that is not on this machine."""
    ready: bool
    get: str
    """The command that gets it; empty for the testbed's LMs and those in the hub's cache."""


def list_lms() -> list[ListedLM]:
    """Return the testbeds' LMs, those that can be pulled, and those in the hub's cache."""
    testbed = [
        _in_folder(prefix + name, f"{name}-like LM of the {which} testbed", lms_folder(prefix) / name, get="")
        for prefix, which in zip(PREFIXES, ("first", "second"), strict=True)
        for name in lm_names(prefix)
    ]
    pullable = [
        _in_folder(name, packaged.about, pulled_folder(name), f"askwell lm pull {name}")
        for name, packaged in PULLABLE.items()
    ]
    return [*testbed, *pullable, *_in_hub_cache()]


def _in_folder(name: str, about: str, folder: Path, get: str) -> ListedLM:
    weights = folder / "model.safetensors"
    ready = weights.exists()
    return ListedLM(name, about, weights.stat().st_size / 1e6 if ready else None, ready, get)


def _in_hub_cache() -> list[ListedLM]:
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return [
        ListedLM(repo.repo_id, "in the hub's cache", repo.size_on_disk / 1e6, ready=True, get="")
        for repo in sorted(repositories, key=lambda repo: repo.repo_id)
        if repo.repo_type == "model"
    ]


@dataclass(frozen=True)
class LMDescription:
    """The description of an LM."""

    name: str
    revision: str | None
    architecture: str
    family: str
    stacks: dict[str, str]
    """Layers and width of each stack."""
    embedding_size: int
    vocabulary: int
    parameters: int
    megabytes_of_weights: float
    megabytes_of_weights_in_half_precision: float
    longest_input: int | None
    spaces: str
    """How its tokenizer writes spaces."""
    prompts_it_can_use: list[str]
    prompts_it_cannot_use: list[str]
    runs_on: str
    path: str
    """Whether its layers are walked or the public model runs as a whole, and why."""
    tensors_sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return all of it by name; each stack has its own entry."""
        return {
            name: part
            for field, value in asdict(self).items()
            for name, part in (value.items() if field == "stacks" else [(field, value)])
        }


def describe(lm: FrozenLM) -> LMDescription:
    """Return the description of an LM."""
    parameters = sum(parameter.numel() for parameter in lm.model.parameters())
    memory = sum(parameter.numel() * parameter.element_size() for parameter in lm.model.parameters())
    usable = {form: _can_use(lm, text) for form, text in _FORMS.items()}
    return LMDescription(
        **lm.identity.model_dump(include={"name", "revision", "architecture", "family", "tensors_sha256"}),
        stacks={name: f"{stack.layers} layers × {stack.width}" for name, stack in lm.stacks.items()},
        embedding_size=lm.embedding_size,
        vocabulary=lm.vocabulary_size,
        parameters=parameters,
        megabytes_of_weights=round(memory / 1e6, 1),
        megabytes_of_weights_in_half_precision=round(2 * parameters / 1e6, 1),
        longest_input=lm.context,
        spaces=lm.wording.convention,
        prompts_it_can_use=[form for form, can in usable.items() if can],
        prompts_it_cannot_use=[form for form, can in usable.items() if not can],
        runs_on=f"{lm.device} in {str(lm.dtype).removeprefix('torch.')}",
        path=_path(lm),
    )


def _path(lm: FrozenLM) -> str:
    """Return how sentences are run through the LM, in words."""
    if lm.walk is not None and lm.window is None:
        return "walk: layer by layer, without padding"
    if lm.walk is not None:
        return (
            f"walk: layer by layer, without padding; sentences of more than {lm.window} tokens, the window of some of "
            "its layers, go through the public model as a whole"
        )
    if type(lm.model).__name__ not in WALKS:
        why = f"there is no walk for {type(lm.model).__name__}"
    elif walk_of(lm.model, FeedForward()) is None:
        why = f"there is no walk for a {type(lm.model).__name__} with this config"
    else:
        why = "its walk and the public model give different results"
    return f"the public model as a whole, with padding: {why}"


def _can_use(lm: FrozenLM, text: str) -> bool:
    try:
        lm.family.ask_y(tokenise(parse_template(text), lm.wording), lm.wording, lm.special)
    except Unusable:
        return False
    return True
