"""Trains the testbeds' LMs from scratch on their own texts, with words hidden the way each family of LMs learns.

    python scripts/testbed/train_lm.py testbed2:bert [--out FOLDER] [--threads N]

The same command resumes a training that was interrupted.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from recipe import RECIPES, Recipe, byte_level_tokenizer, learn_merges, new_model, word_piece_tokenizer
from registers_text import generate_registers_text, load_registers
from text import generate_text, load_world, text_hash
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from askwell.data.testbed import PREFIX, PREFIXES, LMName, lm_names, lms_folder, prefix_and_name
from askwell.errors import DamagedFile
from askwell.files import problem_in, read_tensors, write_tensors, write_whole
from askwell.training.schedule import warm_up_and_decay

# Sentences are shuffled, then sorted by length within pools of this many batches, so that there is little padding.
_BATCHES_IN_POOL = 32


@dataclass(frozen=True)
class Sentences:
    """A text in tokens, padded at the right."""

    ids: Int[Tensor, "sentences longest"]
    words: Int[Tensor, "sentences longest"]
    """The number of the word that a token belongs to, -1 for special tokens and padding."""
    names: Int[Tensor, "sentences longest"]
    """The number of the name that a token belongs to (words in capitals or digits, side by side), -1 outside."""
    lengths: Int[Tensor, " sentences"]


def encode(text: list[str], tokenizer: PreTrainedTokenizerBase) -> Sentences:
    """The sentences of a text."""
    encoded = tokenizer(text, return_offsets_mapping=True)
    lengths = torch.tensor([len(ids) for ids in encoded["input_ids"]])
    ids = torch.full((len(text), int(lengths.max())), tokenizer.pad_token_id)
    words, names = torch.full_like(ids, -1), torch.full_like(ids, -1)
    for number, sentence in enumerate(text):
        length, name_of_word = int(lengths[number]), _names(sentence)
        ids[number, :length] = torch.tensor(encoded["input_ids"][number])
        for position, (start, end) in enumerate(encoded["offset_mapping"][number]):
            if end > start:  # special tokens stand for no letters
                word = sentence.count(" ", 0, end - 1)
                words[number, position], names[number, position] = word, name_of_word[word]
    return Sentences(ids, words, names, lengths)


def _names(sentence: str) -> list[int]:
    """For each word the number of the name that it is part of, -1 for none."""
    numbers, name, inside = [], -1, False
    for word in sentence.split(" "):
        is_name = not word[0].islower() and word[0].isalnum()
        name += is_name and not inside
        inside = is_name
        numbers.append(name if is_name else -1)
    return numbers


def batches(sentences: Sentences, size: int, random: np.random.Generator) -> Iterator[Int[Tensor, " chosen"]]:
    """The numbers of all sentences in random batches of about equal length."""
    order = random.permutation(len(sentences.ids))
    lengths = sentences.lengths.numpy()
    pool_size = size * _BATCHES_IN_POOL
    pools = [order[start : start + pool_size] for start in range(0, len(order), pool_size)]
    by_length = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
    cut = [pool[start : start + size] for pool in by_length for start in range(0, len(pool), size)]
    for number in random.permutation(len(cut)):
        yield torch.from_numpy(cut[number])


def choose_hidden(
    sentences: Sentences,
    chosen: Int[Tensor, " chosen"],
    share_of_names: float,
    share_of_words: float,
    random: np.random.Generator,
    *,
    likely_whole_words: bool = False,
    in_part: float = 0.0,
) -> Bool[Tensor, "chosen longest"]:
    """The tokens that are hidden: in a fraction of the sentences one name, everywhere a fraction of other words.

    In a sentence with only one name, nothing could reveal it: half of the time other words are hidden instead, three
    times as many. A sentence that would show everything has one of its words hidden.
    """
    words, names = sentences.words[chosen], sentences.names[chosen]
    last_name, last_word = names.amax(1, keepdim=True), words.amax(1, keepdim=True)
    picked = _pick_name(names, words, likely_whole_words, random)
    has_one_name = last_name == 0
    hides_name = torch.from_numpy(random.random((len(words), 1))) < share_of_names * torch.where(has_one_name, 0.5, 1.0)
    hidden = (names == picked) & (names >= 0) & hides_name
    if in_part:
        hidden &= ~_shown_first(hidden, in_part, random)
    draws = torch.from_numpy(random.random((len(words), int(last_word.max()) + 1)))
    share_here = share_of_words * torch.where(has_one_name & ~hides_name, 3.0, 1.0)
    hidden |= (draws < share_here).gather(1, words.clamp(min=0)) & (names < 0) & (words >= 0)
    fallback = (torch.from_numpy(random.random((len(words), 1))) * (last_word + 1)).floor().long()
    return hidden | ((words == fallback) & ~hidden.any(1, keepdim=True))


def _pick_name(
    names: Int[Tensor, "chosen longest"],
    words: Int[Tensor, "chosen longest"],
    likely_whole_words: bool,
    random: np.random.Generator,
) -> Int[Tensor, "chosen 1"]:
    """One name of each sentence; a name of one token (or of whole words), as ys are, is three times as likely."""
    of_name = names[:, :, None] == torch.arange(max(1, int(names.max()) + 1))
    tokens = of_name.sum(1)
    starts = torch.ones_like(words, dtype=torch.bool)
    starts[:, 1:] = words[:, 1:] != words[:, :-1]
    likely = tokens == (of_name & starts[:, :, None]).sum(1) if likely_whole_words else tokens == 1
    weights = torch.where(likely, 3.0, 1.0) * (tokens > 0)
    draws = torch.from_numpy(random.random((len(names), 1))) * weights.sum(1, keepdim=True)
    return (weights.cumsum(1) <= draws).sum(1, keepdim=True)


def _shown_first(
    hidden: Bool[Tensor, "chosen longest"], share: float, random: np.random.Generator
) -> Bool[Tensor, "chosen longest"]:
    """The first tokens of names to be hidden that are shown after all, so that an LM learns to go on with a name."""
    count = hidden.sum(1, keepdim=True)
    draws = torch.from_numpy(random.random((2, len(hidden), 1)))
    shown = torch.where(draws[0] < share, (draws[1] * count).floor(), 0.0)  # at least one stays hidden
    return hidden & (hidden.cumsum(1) <= shown)


def with_one_mask_a_word(
    ids: Int[Tensor, "sentences positions"],
    words: Int[Tensor, "sentences positions"],
    hidden: Bool[Tensor, "sentences positions"],
    mask: int,
    pad: int,
) -> Int[Tensor, "sentences shorter"]:
    """The sentences with each hidden word as one mask, however many tokens it has."""
    goes_on = torch.zeros_like(hidden)
    goes_on[:, 1:] = hidden[:, 1:] & hidden[:, :-1] & (words[:, 1:] == words[:, :-1])
    masked = ids.masked_fill(hidden, mask)
    order = goes_on.long().argsort(dim=1, stable=True)  # what is kept moves to the left, in its order
    kept = (~goes_on).sum(1)
    moved = masked.gather(1, order).masked_fill(torch.arange(ids.shape[1]) >= kept[:, None], pad)
    return moved[:, : int(((moved != pad).sum(1)).max())]


MADE_FROM = "made_from.json"
_CHECKPOINT = "training.safetensors"


def text_of(prefix: str) -> list[str]:
    """The text of a testbed."""
    return generate_text() if prefix == PREFIX else generate_registers_text()


def train_lm(
    name: LMName,
    folder: Path,
    *,
    prefix: str = PREFIX,
    recipe: Recipe | None = None,
    threads: int = 2,
) -> None:
    """Train an LM of a testbed and leave it in the folder as a transformers checkpoint in half precision.

    After each epoch the state is saved in the folder; called again, it continues from there.
    """
    recipe = recipe or RECIPES[prefix + name]
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    text = text_of(prefix)
    tokenizer = new_tokenizer(name, text, ys_of(prefix))
    sentences = encode(text, tokenizer)
    torch.manual_seed(recipe.seed)
    model = new_model(name, recipe, tokenizer)
    steps_of_epoch = sum(1 for _ in batches(sentences, recipe.batch, np.random.default_rng(0)))
    optimizer, schedule = _optimizer(model, recipe, steps_of_epoch)
    made_from = what_it_is_made_from(name, recipe, text)
    epoch = _restore(folder, made_from, model, optimizer, schedule, steps_of_epoch)
    while epoch < recipe.epochs:
        random = np.random.default_rng([recipe.seed, epoch])
        total = 0.0
        for chosen in batches(sentences, recipe.batch, random):
            loss = loss_of(name, model, tokenizer, sentences, chosen, recipe, random)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        epoch += 1
        print(f"{prefix}{name} epoch {epoch}/{recipe.epochs} loss {total / steps_of_epoch:.3f}", flush=True)
        _keep(folder, made_from, model, optimizer, epoch)
    model.eval().half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_whole(folder / MADE_FROM, json.dumps(made_from, indent=2) + "\n")
    (folder / _CHECKPOINT).unlink()


def ys_of(prefix: str) -> set[str]:
    """What is one token of a testbed's LMs: the ys of one word, and in the second testbed all words of longer ones."""
    if prefix == PREFIX:
        world = load_world()
        return {fact.y for kind in (world.told, world.withheld) for facts in kind.values() for fact in facts}
    return {word for those in load_registers().truths.values() for fact in those for word in fact.y.split()}


def new_tokenizer(name: LMName, text: list[str], ys: set[str]) -> PreTrainedTokenizerBase:
    """The tokenizer of that LM, learned from the text."""
    merges = learn_merges(text, ys)
    if name == "bert":
        return word_piece_tokenizer(merges, {character for sentence in text for character in sentence})
    return byte_level_tokenizer(merges, frame=name != "causal")


def what_it_is_made_from(name: LMName, recipe: Recipe, text: list[str]) -> dict[str, Any]:
    """What an LM of a testbed was made from: the hash of the text, and the recipe."""
    recipe_json = asdict(recipe)
    digest = hashlib.sha256(json.dumps([name, recipe_json], sort_keys=True).encode()).hexdigest()
    return {"lm": name, "text_sha256": text_hash(text), "recipe": recipe_json, "recipe_sha256": digest}


def loss_of(
    name: LMName,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sentences,
    chosen: Tensor,
    recipe: Recipe,
    random: np.random.Generator,
) -> Tensor:
    """The loss of some sentences, with words hidden as the family of the LM learns them."""
    longest = int(sentences.lengths[chosen].max())
    ids, words = sentences.ids[chosen, :longest], sentences.words[chosen, :longest]
    real = torch.arange(longest) < sentences.lengths[chosen, None]
    if name == "causal":
        hidden_states = model.model(input_ids=ids, attention_mask=real, use_cache=False).last_hidden_state[:, :-1]
        return functional.cross_entropy(model.lm_head(hidden_states[real[:, 1:]]), ids[:, 1:][real[:, 1:]])
    hidden = choose_hidden(
        sentences,
        chosen,
        recipe.hidden_names,
        recipe.hidden_words,
        random,
        likely_whole_words=recipe.likely_whole_words,
        in_part=recipe.hidden_in_part,
    )[:, :longest]
    if name == "bart":
        read = with_one_mask_a_word(ids, words, hidden, tokenizer.mask_token_id, tokenizer.pad_token_id)
        start = torch.full((len(ids), 1), model.config.decoder_start_token_id)
        states = model.model(
            input_ids=read,
            attention_mask=read != tokenizer.pad_token_id,
            decoder_input_ids=torch.cat([start, ids[:, :-1]], dim=1),
            use_cache=False,
        ).last_hidden_state
        # Hidden tokens have to be known; a part of the shown ones is enough to learn to copy.
        shown = real & ~hidden & torch.from_numpy(random.random(tuple(ids.shape)) < recipe.copied_share)

        def loss_at(places: Tensor) -> Tensor:
            return functional.cross_entropy(model.lm_head(states[places]) + model.final_logits_bias[0], ids[places])

        return loss_at(hidden) + recipe.copied_share * loss_at(shown)
    masked = ids.masked_fill(hidden, tokenizer.mask_token_id)
    states = model.base_model(input_ids=masked, attention_mask=real).last_hidden_state[hidden]
    logits = model.cls(states) if name == "bert" else model.lm_head(states)
    return functional.cross_entropy(logits, ids[hidden])


def _optimizer(
    model: PreTrainedModel, recipe: Recipe, steps_of_epoch: int
) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    """AdamW with one cycle: a linear warm-up, then a linear decay."""
    steps = recipe.epochs * steps_of_epoch
    peak = recipe.warm_up * steps
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.peak_rate, betas=(0.9, 0.98), weight_decay=recipe.weight_decay
    )
    return optimizer, torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: warm_up_and_decay(step, steps, peak=peak)
    )


class _Notes(BaseModel):
    """What a checkpoint contains besides its tensors."""

    model_config = ConfigDict(extra="forbid")

    made_from: dict[str, Any]
    epoch: NonNegativeInt


def _keep(
    folder: Path, made_from: dict[str, Any], model: PreTrainedModel, optimizer: torch.optim.AdamW, epoch: int
) -> None:
    tensors = {f"model/{name}": parameter for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        tensors |= {f"{key}/{name}": value for key, value in optimizer.state[parameter].items()}
    write_tensors(folder / _CHECKPOINT, tensors, {"made_from": made_from, "epoch": epoch})


def _restore(
    folder: Path,
    made_from: dict[str, Any],
    model: PreTrainedModel,
    optimizer: torch.optim.AdamW,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    steps_of_epoch: int,
) -> int:
    """Restores the state in the folder, if it is of this text and recipe; returns how many epochs are done."""
    if not (folder / _CHECKPOINT).exists():
        return 0
    path = folder / _CHECKPOINT
    tensors, found = read_tensors(path)
    try:
        notes = _Notes.model_validate(found)
    except ValidationError as error:
        raise DamagedFile(f"{path} is damaged: {problem_in(error)}; remove it to start over") from None
    if notes.made_from != made_from:
        return 0
    for name, parameter in model.named_parameters():
        shapes = {"model": parameter.shape, "step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
        for key, shape in shapes.items():
            tensor = tensors.get(f"{key}/{name}")
            if tensor is None or tensor.shape != shape or not tensor.isfinite().all():
                raise DamagedFile(f"{path} is damaged: {key}/{name} is not that of this LM; remove it to start over")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model/{name}"])
            optimizer.state[parameter] = {key: tensors[f"{key}/{name}"] for key in ("step", "exp_avg", "exp_avg_sq")}
    schedule.last_epoch = notes.epoch * steps_of_epoch
    rates = zip(optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
    for group, rate, factor in rates:
        group["lr"] = rate * factor(schedule.last_epoch)
    return notes.epoch


def main() -> None:
    """Train the LM that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lm", choices=[prefix + name for prefix in PREFIXES for name in lm_names(prefix)])
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: the LM's folder in the package")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    prefix, name = prefix_and_name(options.lm)
    train_lm(name, options.out or lms_folder(prefix) / name, prefix=prefix, threads=options.threads)


if __name__ == "__main__":
    main()
