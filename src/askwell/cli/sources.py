"""From options to a mixture: a saved one, or untuned prompts on an LM."""

from pathlib import Path

import torch

from askwell.cli.terminal import note_left_out_prompts
from askwell.errors import BadOption
from askwell.facts import Relation
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import Precision, load_lm
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import lm_source, load_mixture, read_description
from askwell.names import read_prompts
from askwell.specs import MixtureSpec
from askwell.training.loop import available_threads


def set_threads(threads: int | None) -> None:
    """Lets torch use so many CPU threads, or all that there are."""
    if threads is not None and threads < 1:
        raise BadOption(f"--threads {threads}: at least one is needed")
    torch.set_num_threads(threads or available_threads())


def saved_mixture(
    folder: str, lm: str | FrozenLM | None, *, revision: str | None, device: str | None, dtype: Precision
) -> Mixture:
    """A saved mixture on its LM; `lm` says where the LM is to be had, if not where it was."""
    if isinstance(lm, FrozenLM):
        return load_mixture(folder, lm)
    description = read_description(folder)
    source, stored_revision = lm or lm_source(folder, description), description["base_lm"]["revision"]
    if source is None:
        raise BadOption(f"{folder} was learned on {description['base_lm']['name']}; say where that LM is with --lm")
    loaded = load_lm(source, revision=revision or (stored_revision if lm is None else None), device=device, dtype=dtype)
    return load_mixture(folder, loaded)


def untuned_mixture(
    lm: FrozenLM, prompts: list[str], spec: MixtureSpec, relation: Relation | str | None, data: Path | None
) -> Mixture:
    """Prompts as they stand, with a note of those that the LM cannot use."""
    mixture = Mixture(lm, read_prompts(prompts, relation=relation, data=data), spec)
    note_left_out_prompts(mixture)
    return mixture
