"""The testbed's text as batches of tokens, with words hidden the way each family of LMs learns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

# Sentences are drawn at random, then sorted by length within pools of so many batches, so that little is padding.
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
) -> Bool[Tensor, "chosen longest"]:
    """The tokens that are hidden: in a share of the sentences one whole name, and everywhere a share of other words.

    Where there is only one name, to hide it asks for nothing that could be known: there its words are hidden instead
    half of the time, three times as many. A sentence that would show everything has one of its words hidden.
    """
    words, names = sentences.words[chosen], sentences.names[chosen]
    last_name, last_word = names.amax(1, keepdim=True), words.amax(1, keepdim=True)
    picked = _pick_name(names, random)
    has_one_name = last_name == 0
    hides_name = torch.from_numpy(random.random((len(words), 1))) < share_of_names * torch.where(has_one_name, 0.5, 1.0)
    hidden = (names == picked) & (names >= 0) & hides_name
    draws = torch.from_numpy(random.random((len(words), int(last_word.max()) + 1)))
    share_here = share_of_words * torch.where(has_one_name & ~hides_name, 3.0, 1.0)
    hidden |= (draws < share_here).gather(1, words.clamp(min=0)) & (names < 0) & (words >= 0)
    fallback = (torch.from_numpy(random.random((len(words), 1))) * (last_word + 1)).floor().long()
    return hidden | ((words == fallback) & ~hidden.any(1, keepdim=True))


def _pick_name(names: Int[Tensor, "chosen longest"], random: np.random.Generator) -> Int[Tensor, "chosen 1"]:
    """One name of each sentence; a name of one token, as ys are, is three times as likely as a longer one."""
    tokens = (names[:, :, None] == torch.arange(max(1, int(names.max()) + 1))).sum(1)
    weights = torch.where(tokens == 1, 3.0, 1.0) * (tokens > 0)
    draws = torch.from_numpy(random.random((len(names), 1))) * weights.sum(1, keepdim=True)
    return (weights.cumsum(1) <= draws).sum(1, keepdim=True)


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
