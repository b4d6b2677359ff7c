"""Saves and loads mixtures: a folder of safetensors, JSON and a model card. Nothing in it can run code.

`config.json` names the format's version, the LM, the prompts and the hash of `mixture.safetensors`. A new version of
the tensors is written as `mixture.safetensors.new` and moved into place last, so that a crash in between leaves either
the old mixture or the new one.
"""

import hashlib
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.errors import BadFile, DamagedFile, LMUnavailable, WrongLM
from askwell.files import read_bytes, read_saved, read_text, run_like, write_whole
from askwell.lms.checkpoints import hub_options as reach_of_hub
from askwell.lms.checkpoints import public_name
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.description import About, Description, SavedPrompt, model_card
from askwell.mixture.learned_from import (
    CARD,
    CONFIG,
    FACTS_PATH,
    LM_PATH,
    MIXTURE,
    NEW_TENSORS,
    TENSORS,
    TOKENIZER_PATH,
)
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import AnswerKind


def write_mixture(
    mixture: PromptSet, folder: Path, about: About, *, answers: AnswerKind | None, candidates: Candidates | None
) -> None:
    """Write the mixture's files, with how it answers and what is known about it, into a folder."""
    tensors = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in mixture.state_dict().items()})
    lm = mixture.lm
    described = Description(
        **{name: getattr(about, name) for name in About.model_fields},
        base_lm=lm.identity,
        base_lm_has_public_name=lm.source == lm.identity.name,
        tokenizer=None if lm.tokenizer_source is None else public_name(lm.tokenizer_source),
        mixture_spec=mixture.spec,
        prompts=tuple(SavedPrompt.of(prompt.template) for prompt in mixture.prompts[:: mixture.spec.copies]),
        left_out_prompts=tuple(SavedPrompt.of(prompt.template, prompt.reason) for prompt in mixture.left_out_prompts),
        examples=mixture.examples,
        mixture_weights=tuple(mixture.weights.tolist()),
        answers=answers,
        candidates=candidates,
        effective_prompts=mixture.effective_prompts,
        temperature=mixture.temperature,
        tensors_sha256=hashlib.sha256(tensors).hexdigest(),
    )
    write_whole(folder / NEW_TENSORS, tensors)
    write_whole(folder / CONFIG, described.model_dump_json(indent=2) + "\n")
    (folder / NEW_TENSORS).replace(folder / TENSORS)
    write_whole(folder / CARD, str(model_card(mixture, about)))
    places = {LM_PATH: (lm.source, lm.identity.name), TOKENIZER_PATH: (lm.tokenizer_source, described.tokenizer)}
    places[FACTS_PATH] = (None, None) if about.relation is None else (about.relation.source, about.relation.name)
    for name, (source, public) in places.items():
        if source is not None and source != public:
            write_whole(folder / name, source + "\n")
        else:
            (folder / name).unlink(missing_ok=True)


def read_state(mixture: PromptSet, source: str | Path, description: Description, **hub_options: Any) -> None:
    """Set everything that was tuned to what was saved."""
    path = Path(str(source)) / TENSORS
    new = path.with_name(NEW_TENSORS)  # there if a save was cut off just before its last step
    content = new.read_bytes() if new.is_file() else b""
    if hashlib.sha256(content).hexdigest() != description.tensors_sha256:
        content = _fetch(source, TENSORS, hub_options).read_bytes()
    if hashlib.sha256(content).hexdigest() != description.tensors_sha256:
        raise DamagedFile(f"{path} is truncated or altered: its hash is not the one in {CONFIG}")
    try:
        tensors = load_tensors(content)
        mixture.load_state_dict(tensors)
    except (SafetensorError, RuntimeError) as error:
        raise DamagedFile(f"{path} does not fit its prompts: {str(error).splitlines()[0]}") from None
    if broken := sorted(name for name, tensor in tensors.items() if not _are_numbers(name, tensor)):
        raise DamagedFile(f"{path} holds infinite or NaN values in {broken[0]}")


def base_lm(source: str | Path, description: Description, lm: FrozenLM | None) -> FrozenLM:
    """Return the LM that a saved mixture was learned on: the given one, if it is that, or it is loaded."""
    identity = description.base_lm
    if lm is None:
        place = lm_source(source, description)
        if place is None:
            raise LMUnavailable(f"{source} was learned on {identity.name}, a model in memory: load it with that LM")
        try:
            lm = load_lm(place, revision=identity.revision, tokenizer=tokenizer_source(source, description))
        except LMUnavailable as error:
            raise LMUnavailable(f"the mixture needs the LM it was learned on. {error}") from error
    if differences := identity.differences(lm.identity):
        raise WrongLM(
            f"{source} was learned on the LM {identity.name} ({identity.architecture}), but {lm.identity.name} is "
            f"another one: its {', '.join(differences)} differ. Load it onto {identity.name}."
        )
    return lm


def read_description(source: str | Path, **hub_options: Any) -> Description:
    """Read what a saved mixture says about itself, without its LM."""
    path = _fetch(mixture_folder(source), CONFIG, hub_options)
    if b'"askwell-mixture"' not in read_bytes(path):
        raise BadFile(path, "is not the description of a saved askwell mixture")
    return read_saved(path, Description.model_validate_json)


def mixture_folder(source: str | Path) -> str | Path:
    """Return the folder of the saved mixture itself, which is `mixture` inside the folder of a run."""
    inner = Path(source) / MIXTURE
    return inner if (inner / CONFIG).is_file() and not (Path(source) / CONFIG).is_file() else source


def lm_source(source: str | Path, description: Description) -> str | None:
    """Return where the LM of a saved mixture can be loaded from; None for a model that was only in memory."""
    return _noted(source, LM_PATH) or (description.base_lm.name if description.base_lm_has_public_name else None)


def tokenizer_source(source: str | Path, description: Description) -> str | None:
    """Return where its tokenizer can be loaded from; None if it is beside the LM's weights."""
    return _noted(source, TOKENIZER_PATH) or description.tokenizer


def facts_source(source: str | Path, description: Description) -> str | None:
    """Return where the facts that a saved mixture was learned from can be read, or their name; None if that is not
    known."""
    return _noted(source, FACTS_PATH) or (None if description.relation is None else description.relation.name)


def _noted(source: str | Path, name: str) -> str | None:
    path = Path(mixture_folder(source)) / name
    return read_text(path).strip() if path.is_file() else None


def _are_numbers(name: str, tensor: Tensor) -> bool:
    """Tell whether a mixture can have these numbers: finite ones, and a logit of -inf for a prompt without weight."""
    if "logits" not in name:
        return bool(tensor.isfinite().all())
    return not (tensor.isnan().any() or tensor.isposinf().any() or tensor.isneginf().all())


def _fetch(source: str | Path, name: str, hub_options: dict[str, Any]) -> Path:
    folder = Path(source)
    if folder.is_dir():
        if not (folder / name).is_file():
            checkpoint = any(folder.glob("checkpoint*"))
            advice = (
                "; it is a checkpoint of train: mixture.save_pretrained(FOLDER) saves a mixture" if checkpoint else ""
            )
            raise BadFile(folder, f"holds no {name}, so it is not a saved mixture{advice}")
        return folder / name
    if folder.exists():
        raise BadFile(folder, "is a file; name the folder of a saved mixture")
    try:
        return Path(hf_hub_download(str(source), name, **{**reach_of_hub(), **hub_options}))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        problem = f"no such mixture on the hub ({str(error).strip().splitlines()[0]})"
        if reach_of_hub():
            problem = "the hub cannot be reached, and its cache has no such mixture"
        raise BadFile(source, f"no such folder here, and {problem}{run_like(source)}") from None
