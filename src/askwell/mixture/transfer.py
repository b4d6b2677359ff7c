"""Carries a mixture over to another LM: the same templates, with vectors as far from the other LM's words as they were
from the first one's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.errors import BadOption
from askwell.lms.frozen import FrozenLM
from askwell.lms.vocabulary import begins_word, token_text
from askwell.prompts.prompt import Prompt
from askwell.prompts.prompt_set import PromptSet

_RIDGE = 0.01
"""The penalty on the map between word vectors, relative to their mean variance."""


@dataclass(frozen=True)
class Transferred:
    """How a mixture was carried over from another LM."""

    lm: str
    """The LM that it was learned on."""
    is_copy: bool
    """Whether the LMs share tokenizer and shapes, so that vectors go over as they are, those of deep layers too."""
    shared_words: int
    """How many words the map between the LMs' vectors was fitted on; 0 between copies, which need none."""
    matched_tokens: int
    """How many prompt tokens have a counterpart; the others start from the other LM's own word vectors."""


@torch.no_grad()
def carry_over(source: PromptSet, target: PromptSet, prompts: Sequence[int]) -> Transferred:
    """Set the vectors and weights of one set of prompts from another, over another LM; `prompts` are the numbers that
    the target's prompts have in the source.

    Each vector becomes the target LM's vector of the same word, plus what tuning added to the word in the source,
    mapped linearly from the one space of word vectors to the other. Additions to deeper layers go over between copies
    of an LM alone; elsewhere they stay 0.
    """
    is_copy = are_copies(source.lm, target.lm)
    word_map, shared_words = (None, 0) if is_copy else _word_map(source.lm, target.lm)
    matched: set[int] = set()
    for number, its_number in enumerate(prompts):
        at, its_rows = _rows(target, number), _rows(source, its_number)
        words, tuned = target.initial_vectors[at].clone(), source.vectors[its_rows]
        its_words = _word_vectors(source.lm, source.prompts[its_number])
        counterparts = _counterparts(target, number, source, its_number)
        matched |= {row for row, own in zip(at, counterparts, strict=True) if own}
        if word_map is None:  # in this order, so that equal word vectors leave the tuned one as it is, to the bit
            target.vectors[at] = tuned + (_word_vectors(target.lm, target.prompts[number]) - its_words)
            for stack, layers in target.layer_deltas.items():
                for own, its_own in zip(layers, source.layer_deltas[stack], strict=True):
                    own[at] = its_own[its_rows]
            continue
        moved = [(tuned[own] - its_words[own]).double().mean(0) if own else None for own in counterparts]
        for row, change in enumerate(moved):
            if change is not None:
                words[row] += (change @ word_map).to(words)
        target.vectors[at] = words
    carried = source.weighting.state_dict() | {"logits": source.weight_logits[list(prompts)].log_softmax(0)}
    if source.representation is not None and target.representation is not None:  # another LM's f(x) is another
        carried["gate"] = carried["gate"][list(prompts)] if is_copy else target.weighting.state_dict()["gate"]
        if is_copy:
            target.representation.load_state_dict(source.representation.state_dict())
    target.weighting.load_state_dict(carried)
    return Transferred(source.lm.identity.name, is_copy, shared_words, len(matched))


def are_copies(before: FrozenLM, after: FrozenLM) -> bool:
    """Tell whether one LM is a changed copy of the other: same family, tokenizer and shapes."""
    if before.identity.family != after.identity.family or _shapes(before) != _shapes(after):
        return False
    return before.identity.tokenizer_sha256 == after.identity.tokenizer_sha256


def _shapes(lm: FrozenLM) -> tuple[Any, ...]:
    return lm.embedding_size, {name: (stack.layers, stack.width) for name, stack in lm.stacks.items()}


def _rows(prompts: PromptSet, prompt: int) -> list[int]:
    return list(prompts.pairs.rows[prompt])


def _word_vectors(lm: FrozenLM, prompt: Prompt) -> Float[Tensor, "prompt_tokens embedding"]:
    return lm.word_vectors(torch.tensor(prompt.token_ids, dtype=torch.long, device=lm.device))


# ── which tokens belong together ──────────────────────────────────────────────────────────────────────────────────────


def _counterparts(target: PromptSet, number: int, source: PromptSet, its_number: int) -> list[list[int]]:
    """Return, for each token of a prompt, the tokens of the same prompt in another LM that spell the same letters.

    Both spellings are cut where both tokenizers cut; a piece that they cut differently inside belongs together as a
    whole. Where they do not spell the same letters (an unknown character, say), no tokens belong together.
    """
    prompt, its_prompt = target.prompts[number], source.prompts[its_number]
    found: list[list[int]] = []
    first = 0
    for stretch, its_stretch in zip(_stretches(prompt), _stretches(its_prompt), strict=True):
        of_stretch: list[list[int]] = [[] for _ in stretch]
        for own, its_own in _aligned(_spelt(target.lm, stretch), _spelt(source.lm, its_stretch)):
            for token in own:
                of_stretch[token] = [first + one for one in its_own if first + one < len(its_prompt.token_ids)]
        found += of_stretch
        first += len(its_stretch)
    return found[: len(prompt.token_ids)]  # a cut removes tokens from the end


def _stretches(prompt: Prompt) -> tuple[tuple[int, ...], ...]:
    return prompt.tokens.before, prompt.tokens.between, prompt.tokens.after


def _spelt(lm: FrozenLM, tokens: Sequence[int]) -> list[str]:
    return ["".join(token_text(lm, token).split()).casefold() for token in tokens]


def _aligned(new: Sequence[str], old: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """Return which tokens of one spelling belong to which of the other, cut wherever both spellings have a cut."""
    if "".join(new) != "".join(old):
        return []
    ends_new, ends_old = _ends(new), _ends(old)
    cuts = sorted({*ends_new} & {*ends_old})
    return [
        (
            [number for number, end in enumerate(ends_new) if first < end <= last],
            [number for number, end in enumerate(ends_old) if first < end <= last],
        )
        for first, last in zip([0, *cuts], cuts, strict=False)
    ]


def _ends(pieces: Sequence[str]) -> list[int]:
    ends, length = [], 0
    for piece in pieces:
        length += len(piece)
        ends.append(length)
    return ends


# ── from one space of word vectors to the other ───────────────────────────────────────────────────────────────────────


def _word_map(before: FrozenLM, after: FrozenLM) -> tuple[Float[Tensor, "old new"], int]:
    """Fit the linear map from one LM's word vectors to another's, by ridge regression over the words that both have;
    return it with their number."""
    old, new = _tokens_by_word(before), _tokens_by_word(after)
    shared = sorted(old.keys() & new.keys())
    if len(shared) < 2:
        raise BadOption(f"{before.identity.name} and {after.identity.name} have no words in common to map vectors by")
    given = _centred(before, [old[word] for word in shared])
    wanted = _centred(after, [new[word] for word in shared])
    products = given.T @ given
    penalty = _RIDGE * products.diagonal().mean()
    ridge = products + penalty * torch.eye(len(products), dtype=products.dtype)
    return torch.linalg.solve(ridge, given.T @ wanted).to(after.device), len(shared)


def _tokens_by_word(lm: FrozenLM) -> dict[tuple[str, bool], int]:
    """Return the token of each word, by its letters and whether it begins a word."""
    special, found = {*lm.tokenizer.all_special_ids}, {}
    for token, name in enumerate(lm.tokenizer.convert_ids_to_tokens(list(range(lm.word_count)))):
        if isinstance(name, str) and token not in special:
            found.setdefault((token_text(lm, token), begins_word(lm, token)), token)
    return found


def _centred(lm: FrozenLM, tokens: Sequence[int]) -> Float[Tensor, "words embedding"]:
    vectors = lm.word_vectors(torch.tensor(tokens, device=lm.device)).cpu().double()
    return vectors - vectors.mean(0)
