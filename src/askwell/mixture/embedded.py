"""A mixture's prompts for use elsewhere: as input embeddings, and as an adapter of PEFT."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor

from askwell.errors import BadOption, UsageError
from askwell.lms.batches import words_of
from askwell.lms.checkpoints import local_place
from askwell.lms.families import X
from askwell.prompts.prompt_set import PromptSet
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_text import ShowsItself


@dataclass(frozen=True, repr=False)
class EmbeddedPrompts(ShowsItself):
    """The prompts of a mixture with an x filled in, as the LM's word vectors; a row for each prompt, padded right.

    `lm.model(**embedded.inputs).logits[embedded.rows, embedded.positions]` are the logits for y's first token.
    """

    inputs: dict[str, Any]
    """Arguments of the public model: inputs_embeds and attention_mask; for a seq2seq LM also those of its decoder."""
    positions: Int[Tensor, " prompts"]
    """Where y is read off in each row."""
    ends_at_y: bool = False
    """Whether y comes next after that position, as in a causal LM."""

    def summary(self) -> Document:
        """Summarise the shape of each input, and where y is read."""
        rows = [(name, str(list(value.shape))) for name, value in self.inputs.items() if isinstance(value, Tensor)]
        places = ", ".join(map(str, self.positions.tolist()))
        return overview(
            f"Embeddings of {counted(len(self.positions), 'prompt')}",
            ("input", "shape"),
            rows,
            notes=(f"y is read at position {places}",),
        )

    @property
    def rows(self) -> Int[Tensor, " prompts"]:
        """The number of each row."""
        return torch.arange(len(self.positions), device=self.positions.device)

    def of_prompt(self, number: int) -> Float[Tensor, "tokens embedding"]:
        """Return the embeddings of one prompt of a causal LM up to y, without padding: what `generate` and a vLLM
        server go on from."""
        if not self.ends_at_y:
            raise BadOption("only a causal LM goes on from a prompt: masked and seq2seq LMs fill in y where it stands")
        return self.inputs["inputs_embeds"][number, : int(self.positions[number]) + 1]


def embed(mixture: PromptSet, x: str) -> EmbeddedPrompts:
    """Embed the prompts with x filled in, with gradients into the mixture's vectors; not for deep mixtures."""
    _refuse_deep(mixture, "embeddings")
    (problem,) = mixture.why_unaskable([x])
    if problem is not None:
        raise UsageError(f"{x[:60]!r} cannot be asked: {problem}")
    lm = mixture.lm
    prompts = torch.arange(len(mixture.prompts), device=lm.device)
    batch = mixture.pairs.y_table.batch(words_of([x], lm.wording, lm.device), torch.zeros_like(prompts), prompts)
    embedded = {}
    for stack, stream in batch.streams.items():
        words = lm.word_vectors(stream.ids)
        at = (stream.prompt_tokens >= 0).nonzero(as_tuple=True)
        vectors = mixture.vectors[stream.prompt_tokens[at]].to(words.dtype)
        embedded[stack] = words.index_put(at, vectors), stream.attention_mask
    return EmbeddedPrompts(lm.family.inputs(embedded), batch.read_positions, lm.family.name == "causal")


def save_peft(mixture: PromptSet, folder: str | Path) -> None:
    """Write the one prompt of a mixture as a prompt-tuning adapter, which PEFT loads for the same LM.

    PEFT puts soft tokens in front of the text and nowhere else, so this is for causal LMs and for a prompt with all its
    tokens before x, such as `--prefix` makes for "[X] [Y]". Asked with x alone, with the space before it that the
    tokenizer writes, the model's next token is y. The adapter names its LM by its folder if it is on this machine, so
    that AutoPeftModelForCausalLM finds it.
    """
    try:
        from peft import PromptTuningConfig, TaskType
    except ImportError:
        raise BadOption("save_peft needs peft, which is not installed: pip install 'askwell[peft]'") from None
    vectors = _prefix(mixture).detach().to(mixture.lm.dtype).cpu().contiguous()
    config = PromptTuningConfig(
        task_type=TaskType.CAUSAL_LM,
        num_virtual_tokens=len(vectors),
        token_dim=vectors.shape[1],
        base_model_name_or_path=str(local_place(mixture.lm.source) or mixture.lm.source or mixture.lm.identity.name),
        inference_mode=True,
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(str(folder))
    save_file({"prompt_embeddings": vectors}, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _prefix(mixture: PromptSet) -> Float[Tensor, "tokens embedding"]:
    """Return all vectors before x, including fixed ones; an error says why a mixture cannot be written this way."""
    _refuse_deep(mixture, "PEFT's prompt tuning")
    if mixture.lm.family.name != "causal":
        raise BadOption(f"PEFT's prompt tuning is for causal LMs here, but {mixture.lm.identity.name} is not one")
    if len(mixture.prompts) != 1:
        raise BadOption(f"PEFT's prompt tuning knows one prompt, but this mixture has {len(mixture.prompts)}")
    (prompt,) = mixture.prompts
    (stream,) = prompt.question.streams.values()
    if stream.right or stream.x is not X.SHOWN:
        raise BadOption(
            f"PEFT puts soft tokens in front of the text, but {prompt.template.text!r} has words between x and y; use "
            "a prompt such as '[X] [Y]' with a prefix"
        )
    if not stream.left:
        raise BadOption(f"{prompt.template.text!r} has no token before x, so there is nothing to write")
    fixed = mixture.lm.word_vectors(torch.tensor([token.id for token in stream.left], device=mixture.lm.device))
    rows = [token.prompt_token for token in stream.left]
    return torch.stack([mixture.vectors[row] if row >= 0 else word for row, word in zip(rows, fixed, strict=True)])


def _refuse_deep(mixture: PromptSet, what: str) -> None:
    if any(bool(delta.any()) for layers in mixture.layer_deltas.values() for delta in layers):
        raise BadOption(f"{what} hold only the vectors of layer 0, but this mixture is tuned at every layer")
