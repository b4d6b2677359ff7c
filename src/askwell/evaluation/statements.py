"""BEAR's score of hard prompts: the right statement is ranked among those with other candidates in place of y, by the
log-likelihood of the whole sentence and not of y alone, as lm-pub-quiz computes it.

A causal LM's is the sum over all tokens after a first token (BOS). A masked LM has a pseudo-log-likelihood: each token
is masked in turn, together with the rest of its word (Kauf and Ivanova 2023).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.encode import LeftOutFact
from askwell.answers.listed import NOT_A_CANDIDATE, best_first, rank_golds
from askwell.answers.strategy import Ranking
from askwell.data.facts import Fact, Relation, SplitName
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.scoring import Evaluation, outcomes_of
from askwell.lms.frozen import FrozenLM

_LOGITS_AT_ONCE = 2**25


@dataclass(frozen=True)
class _Read:
    """A sentence that the LM reads, and the tokens that are scored in it."""

    sentence: int
    ids: tuple[int, ...]
    at: tuple[int, ...]
    """Where the LM predicts them."""
    tokens: tuple[int, ...]


def statement(template: Template, x: str, y: str) -> str:
    """Return the sentence that a template makes of a fact, with a capital letter first."""
    first, second = (x, y) if template.x_first else (y, x)
    text = f"{template.before}{first}{template.between}{second}{template.after}"
    return text[:1].upper() + text[1:]


@torch.no_grad()
def log_likelihoods(lm: FrozenLM, statements: Sequence[str]) -> Float[Tensor, " statements"]:
    """Return the log-likelihood of each sentence; for a masked LM, the pseudo-log-likelihood."""
    reads = sorted(_reads(lm, statements), key=lambda read: len(read.ids))
    found = torch.zeros(len(statements), dtype=torch.float64)
    start = 0
    while start < len(reads):
        longest = len(reads[start].ids)
        rows = max(1, _LOGITS_AT_ONCE // (longest * lm.vocabulary_size))
        # Sentences of one length need no padding, which would change the last digits.
        batch = [read for read in reads[start : start + rows] if len(read.ids) == longest]
        logits = lm.model(input_ids=torch.tensor([read.ids for read in batch], device=lm.device)).logits
        for of_read, read in zip(logits, batch, strict=True):
            log_probs = of_read[list(read.at)].float().log_softmax(-1)
            tokens = torch.tensor(read.tokens, device=lm.device)[:, None]
            found[read.sentence] += log_probs.gather(1, tokens).sum().double().cpu()
        start += len(batch)
    return found


def _reads(lm: FrozenLM, statements: Sequence[str]) -> Iterator[_Read]:
    encoded = lm.tokenizer(list(statements), return_special_tokens_mask=True)
    is_causal, bos, mask = lm.family.name == "causal", lm.tokenizer.bos_token_id, lm.tokenizer.mask_token_id
    for number in range(len(statements)):
        ids, special = list(encoded["input_ids"][number]), list(encoded["special_tokens_mask"][number])
        if is_causal:
            if bos is not None and ids[:1] != [bos]:
                ids, special = [bos, *ids], [1, *special]
            scored = [at for at in range(1, len(ids)) if not special[at]]
            yield _Read(number, tuple(ids), tuple(at - 1 for at in scored), tuple(ids[at] for at in scored))
            continue
        words = encoded.word_ids(number)
        for at in (at for at, is_special in enumerate(special) if not is_special):
            masked = list(ids)
            masked[at] = mask
            rest = at + 1
            while rest < len(ids) and words[rest] is not None and words[rest] == words[at]:
                masked[rest] = mask
                rest += 1
            yield _Read(number, tuple(masked), (at,), (ids[at],))


def every_y(relation: Relation) -> Candidates:
    """Return all ys of a relation, of all splits."""
    ys = sorted({fact.y for facts in relation.splits.values() for fact in facts})
    return Candidates(f"all ys of {relation.name}", tuple(ys))


def evaluate_statements(
    lm: FrozenLM,
    templates: Sequence[Template],
    relation: Relation,
    split: SplitName = "test",
    *,
    candidates: Candidates | None = None,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Rank the right statement of each fact of a split among those with other candidates, by default all ys.

    A prompt's log-likelihoods are normalised over the candidates; those of several prompts are then averaged as
    probabilities.
    """
    if lm.family.name == "seq2seq":
        raise BadOption(f"{lm.identity.name} is a seq2seq LM, which gives whole sentences no probability")
    candidates = candidates or every_y(relation)
    if candidates.labels is not None:
        raise BadOption(f"{candidates.name} has labels with their words, but a statement needs one word for each")
    ys = candidates.words
    numbers = {y: number for number, y in enumerate(ys)}
    asked = [fact for fact in relation.split(split) if fact.y in numbers]
    left_out = [LeftOutFact(fact, NOT_A_CANDIDATE) for fact in relation.split(split) if fact.y not in numbers]
    if not asked:
        raise NothingLeft(f"{split} facts of {relation.name}", {NOT_A_CANDIDATE: len(left_out)})
    by_x: dict[str, list[Fact]] = {}
    for fact in asked:
        by_x.setdefault(fact.x, []).append(fact)
    rankings: dict[Fact, Ranking] = {}
    for done, (x, facts) in enumerate(by_x.items(), start=1):
        every = [statement(template, x, y) for template in templates for y in ys]
        by_prompt = log_likelihoods(lm, every).view(len(templates), len(ys)).log_softmax(1)
        log_probs = by_prompt.logsumexp(0, keepdim=True) - torch.tensor(len(templates)).double().log()
        best = best_first(log_probs, min(top, len(ys)))[0]
        answers = tuple(ys[number] for number in best.tolist())
        for fact in facts:
            others = sorted({numbers[gold] for gold in relation.golds[x] if gold in numbers} - {numbers[fact.y]})
            gold, of_others = torch.tensor([numbers[fact.y]]), torch.tensor([others], dtype=torch.long)
            rank, raw, log_probability = (float(column[0]) for column in rank_golds(log_probs, gold, of_others))
            probabilities = tuple(log_probs[0, best].exp().tolist())
            rankings[fact] = Ranking(rank, raw, log_probability, answers, probabilities)
        if progress is not None:
            progress(done, len(by_x))
    outcomes = outcomes_of(relation, asked, [rankings[fact] for fact in asked])
    vocabulary = f"the statements of {len(ys)} candidates of {candidates.name}"
    return Evaluation(split, vocabulary, tuple(outcomes), tuple(left_out), answers="any-length")
