"""The loss of a BERT with given prompt tokens, read off the public model one sentence at a time."""

from collections.abc import Sequence

import torch

from askwell.data.facts import Fact


def ids_of(lm, *names: str) -> list[int]:
    """The ids of tokens by their names in the vocabulary."""
    return [lm.tokenizer.get_vocab()[name] for name in names]


def sentence(lm, fact: Fact, triggers: Sequence[int]) -> tuple[list[int], int, int]:
    """Token ids of "[CLS] x triggers [MASK] . [SEP]", the place of the first trigger, and that of the mask."""
    special = lm.tokenizer
    x = special(fact.x, add_special_tokens=False)["input_ids"]
    full_stop = special.convert_tokens_to_ids(".")
    ids = [special.cls_token_id, *x, *triggers, special.mask_token_id, full_stop, special.sep_token_id]
    return ids, 1 + len(x), 1 + len(x) + len(triggers)


def loss(lm, facts: Sequence[Fact], triggers: Sequence[int]) -> float:
    """The mean -log p(y | x)."""
    return float(torch.stack([-log_prob(lm, fact, triggers) for fact in facts]).mean())


def losses_of_swaps(
    lm, facts: Sequence[Fact], triggers: Sequence[int], row: int, tokens: Sequence[int]
) -> dict[int, float]:
    """The mean loss with each of the tokens in place of one trigger."""
    total = torch.zeros(len(tokens), dtype=lm.dtype)
    for fact in facts:
        swapped = [[*triggers[:row], token, *triggers[row + 1 :]] for token in tokens]
        sentences = [sentence(lm, fact, each) for each in swapped]
        with torch.no_grad():
            logits = lm.model(input_ids=torch.tensor([ids for ids, _, _ in sentences])).logits[:, sentences[0][2]]
        total -= logits.log_softmax(1)[:, lm.tokenizer.convert_tokens_to_ids(fact.y)]
    return dict(zip(tokens, (total / len(facts)).tolist(), strict=True))


def log_prob(lm, fact: Fact, triggers: Sequence[int]) -> torch.Tensor:
    ids, _, mask_at = sentence(lm, fact, triggers)
    with torch.no_grad():
        logits = lm.model(input_ids=torch.tensor([ids])).logits[0, mask_at]
    return logits.log_softmax(0)[lm.tokenizer.convert_tokens_to_ids(fact.y)]


def gradient_at(lm, facts: Sequence[Fact], triggers: Sequence[int], trigger: int) -> torch.Tensor:
    """The gradient of the mean loss at the word vector of one trigger, through the public model's own embeddings."""
    total = torch.zeros(lm.model.get_input_embeddings().weight.shape[1], dtype=lm.dtype)
    for fact in facts:
        ids, first, mask_at = sentence(lm, fact, triggers)
        embedded = lm.model.get_input_embeddings()(torch.tensor([ids])).clone().requires_grad_()
        logits = lm.model(inputs_embeds=embedded).logits[0, mask_at]
        gold = lm.tokenizer.convert_tokens_to_ids(fact.y)
        (-logits.log_softmax(0)[gold] / len(facts)).backward()
        assert embedded.grad is not None
        total += embedded.grad[0, first + trigger]
    return total
