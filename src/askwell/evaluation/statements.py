"""BEAR's score: the right statement is ranked among those with other candidates in place of y, by the log-likelihood of
the whole sentence and not of y alone, as lm-pub-quiz computes it for hard prompts.

A causal LM's is the sum over all tokens after a first token (BOS). A masked LM has a pseudo-log-likelihood: each token
is masked in turn, together with the rest of its word (Kauf and Ivanova 2023).

With a mixture, tuned vectors take the places of the prompt's words, after whatever it was tuned with before its
sentences. What is added up is the same: the log-probability of each word of the sentence, where a vector stands for the
word that it began as. Untuned vectors are the words, so an untuned mixture has the score of its hard prompts, wherever
the LM's tokens are the same if the blanks are filled before the sentence is cut into tokens.
"""

import tomllib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, islice, repeat

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.listed import NOT_A_CANDIDATE, best_first, combine, rank_golds
from askwell.answers.reply import LeftOutFact, no_facts_left
from askwell.answers.strategy import Ranking
from askwell.data.facts import Fact, Relation, SplitName
from askwell.data.templates import Template
from askwell.errors import BadOption
from askwell.evaluation.scoring import Evaluation, outcomes_of
from askwell.lms.batches import Batch, StreamBatch
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.prompts.pairs import Tuned
from askwell.prompts.prompt_set import TOO_LONG

_LOGITS_AT_ONCE = 2**25
_TOKENS_AT_ONCE = 2**12

_Asked = tuple[Float[Tensor, "1 ys"], Float[Tensor, "prompts ys"]]
"""The log-probability of each y's statement among those of all ys, by all prompts and by each of them."""


@dataclass(frozen=True, repr=False)
class StatementEvaluation(Evaluation):
    """The outcomes of some facts by whole statements."""

    right_of_prompts: tuple[int, ...] = ()
    """How often the right statement is the first of all with each prompt alone."""


@dataclass(frozen=True)
class _Sentence:
    """A sentence in the LM's tokens."""

    ids: tuple[int, ...]
    rows: tuple[int, ...]
    """The tuned vector that is read in each token's place; -1 for the LM's own."""
    scored: tuple[int, ...]
    """The places of the statement's own tokens, which are added up."""
    words: tuple[Hashable, ...] = ()
    """The word that each token is a piece of; None for a special token, and none for a causal LM."""


@dataclass(frozen=True)
class _Read:
    """A sentence as the LM reads it, and the tokens that it predicts in it."""

    sentence: int
    ids: tuple[int, ...]
    rows: tuple[int, ...]
    at: tuple[int, ...]
    """Where the LM predicts them."""
    tokens: tuple[int, ...]


def statement(template: Template, x: str, y: str) -> str:
    """Return the sentence that a template makes of a fact, with a capital letter first."""
    first, second = (x, y) if template.x_first else (y, x)
    text = f"{template.before}{first}{template.between}{second}{template.after}"
    return text[:1].upper() + text[1:]


def log_likelihoods(lm: FrozenLM, statements: Sequence[str]) -> Float[Tensor, " statements"]:
    """Return the log-likelihood of each sentence; for a masked LM, the pseudo-log-likelihood."""
    return _log_likelihoods(lm, _written(lm, statements))


def _written(lm: FrozenLM, statements: Sequence[str]) -> list[_Sentence]:
    """Return sentences in tokens, as the LM's own tokenizer writes them; a causal LM's begin with BOS."""
    encoded = lm.tokenizer(list(statements), return_special_tokens_mask=True)
    is_causal, bos = lm.family.name == "causal", lm.tokenizer.bos_token_id
    sentences = []
    for number in range(len(statements)):
        ids, special = list(encoded["input_ids"][number]), list(encoded["special_tokens_mask"][number])
        if is_causal and bos is not None and ids[:1] != [bos]:
            ids, special = [bos, *ids], [1, *special]
        scored = tuple(at for at, is_special in enumerate(special) if not is_special)
        words = () if is_causal else tuple(encoded.word_ids(number))
        sentences.append(_Sentence(tuple(ids), (-1,) * len(ids), scored, words))
    return sentences


@torch.no_grad()
def _log_likelihoods(
    lm: FrozenLM, sentences: Sequence[_Sentence], tuned: Tuned | None = None
) -> Float[Tensor, " sentences"]:
    """Return the log-likelihood of each sentence, read with tuned vectors where it has their rows."""
    vectors = torch.empty(0, lm.embedding_size, dtype=lm.parameter_dtype) if tuned is None else tuned.vectors
    deltas = None if tuned is None else tuned.deltas
    found = torch.zeros(len(sentences), dtype=torch.float64)

    def tensor(numbers: Sequence[int] | Sequence[tuple[int, ...]]) -> Tensor:
        return torch.tensor(numbers, device=lm.device)

    for reads in _batches(sorted(_reads(lm, sentences), key=lambda read: len(read.ids)), lm.vocabulary_size):
        ids = tensor([read.ids for read in reads])
        stream = StreamBatch(ids, tensor([read.rows for read in reads]), torch.full_like(ids[:, 0], ids.shape[1]))
        pairs = [number for number, read in enumerate(reads) for _ in read.at]
        at = tensor([place for read in reads for place in read.at])
        batch = Batch(dict.fromkeys(lm.stacks, stream), tensor(pairs), at)
        tokens = tensor([token for read in reads for token in read.tokens])
        log_probs, _ = lm.log_probs_of(batch, vectors, deltas, tokens)
        found.index_add_(0, torch.tensor([reads[pair].sentence for pair in pairs]), log_probs.double().cpu())
    return found


def _batches(reads: Sequence[_Read], vocabulary_size: int) -> Iterator[Sequence[_Read]]:
    """Yield reads of one length, as many as are read at once: padding would change the last digits."""
    start = 0
    while start < len(reads):
        longest, places = len(reads[start].ids), max(1, len(reads[start].at))
        most = max(1, min(_LOGITS_AT_ONCE // (places * vocabulary_size), _TOKENS_AT_ONCE // longest))
        batch = [read for read in reads[start : start + most] if len(read.ids) == longest]
        yield batch
        start += len(batch)


def _reads(lm: FrozenLM, sentences: Sequence[_Sentence]) -> Iterator[_Read]:
    """Yield what the LM reads: a causal LM each sentence once, a masked LM once with each of its tokens masked."""
    for number, sentence in enumerate(sentences):
        ids, rows, words = sentence.ids, sentence.rows, sentence.words
        if lm.family.name == "causal":
            scored = [at for at in sentence.scored if at]  # nothing predicts the first token
            yield _Read(number, ids, rows, tuple(at - 1 for at in scored), tuple(ids[at] for at in scored))
            continue
        for at in sentence.scored:
            end = at + 1
            while end < len(ids) and words[end] is not None and words[end] == words[at]:
                end += 1
            masked = (*ids[:at], *[lm.special.mask] * (end - at), *ids[end:])
            yield _Read(number, masked, (*rows[:at], *[-1] * (end - at), *rows[end:]), (at,), (ids[at],))


# ── statements of hard prompts, and of a mixture ──────────────────────────────────────────────────────────────────


def evaluate_statements(
    lm: FrozenLM,
    templates: Sequence[Template],
    relation: Relation,
    split: SplitName = "test",
    *,
    candidates: Candidates | None = None,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> StatementEvaluation:
    """Rank the right statement of each fact of a split among those with other candidates, by default all ys.

    A prompt's log-likelihoods are normalised over the candidates; those of several prompts are then averaged as
    probabilities.
    """

    def ask(x: str, ys: Sequence[str]) -> _Asked | str:
        sentences = _written(lm, [statement(template, x, y) for template in templates for y in ys])
        if _are_too_long(lm, sentences):
            return TOO_LONG
        by_prompt = _log_likelihoods(lm, sentences).view(len(templates), len(ys)).log_softmax(1)
        return by_prompt.logsumexp(0, keepdim=True) - torch.tensor(len(templates)).double().log(), by_prompt

    return _evaluate(lm, ask, relation, split, candidates, top, progress)


def evaluate_mixture_statements(
    mixture: Mixture,
    relation: Relation,
    split: SplitName = "test",
    *,
    candidates: Candidates | None = None,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> StatementEvaluation:
    """Rank the same statements by the log-likelihoods that a mixture's prompts give them, with its weights."""
    lm, tuned = mixture.lm, mixture.tuned
    kept = tuned.kept.tolist()

    def ask(x: str, ys: Sequence[str]) -> _Asked | str:
        (reason,) = mixture.why_unaskable([x])
        if reason is not None:
            return reason
        sentences = [_with_vectors(mixture, prompt, x, y) for prompt in kept for y in ys]
        if _are_too_long(lm, sentences):
            return TOO_LONG
        of_kept = _log_likelihoods(lm, sentences, tuned).view(1, len(kept), len(ys)).log_softmax(2)
        log_weights = mixture.log_weights_for(mixture.words_of([x]), torch.zeros(1, dtype=torch.long, device=lm.device))
        by_prompt = mixture.pairs.of_all_prompts(tuned, of_kept.to(lm.device), dropped=0.0)
        return combine(mixture, by_prompt, log_weights.detach().double()).log_softmax(1).cpu(), of_kept[0]

    return _evaluate(lm, ask, relation, split, candidates, top, progress)


def _with_vectors(mixture: Mixture, number: int, x: str, y: str) -> _Sentence:
    """Return the sentence that a mixture's prompt makes of a fact, after what it was tuned with before its sentences.

    A causal LM has no vectors after y, and reads the words themselves there.
    """
    wording, prompt, is_causal = mixture.lm.wording, mixture.prompts[number], mixture.lm.family.name == "causal"
    template, tokens = prompt.template, prompt.tokens
    stretches = [(template.before, tokens.before), (template.between, tokens.between), (template.after, tokens.after)]
    blanks = [(text, wording.encode(text, place)) for text, place in ((x, tokens.x_place), (y, tokens.y_place))]
    if not tokens.x_first:
        blanks.reverse()
    start = (*wording.prefix, *(tokens.beginning.tokens if is_causal else ()))
    end = () if is_causal else tuple(wording.suffix)
    ids, rows, words = [*start], [-1] * len(start), [None] * len(start)
    own_rows = chain(mixture.pairs.rows[number], repeat(-1))
    pieces = [stretches[0], blanks[0], stretches[1], blanks[1], stretches[2]]
    for place, (text, piece) in enumerate(pieces):
        ids += piece
        rows += islice(own_rows, len(piece)) if place % 2 == 0 else [-1] * len(piece)
        opening = 0 if place else tokens.opening
        words += [None] * opening
        words += [(place, word) for word in wording.words_of(text, piece[opening:])]
    scored = tuple(range(len(start) + tokens.opening, len(ids)))
    rows += [-1] * len(end)
    return _Sentence((*ids, *end), tuple(rows), scored, () if is_causal else (*words, *[None] * len(end)))


def _are_too_long(lm: FrozenLM, sentences: Sequence[_Sentence]) -> bool:
    return lm.context is not None and max(len(sentence.ids) for sentence in sentences) > lm.context


def every_y(relation: Relation) -> Candidates:
    """Return all ys of a relation, of all splits."""
    ys = sorted({fact.y for facts in relation.splits.values() for fact in facts})
    return Candidates(f"all ys of {relation.name}", tuple(ys))


def _evaluate(
    lm: FrozenLM,
    ask: Callable[[str, Sequence[str]], _Asked | str],
    relation: Relation,
    split: SplitName,
    candidates: Candidates | None,
    top: int,
    progress: Callable[[int, int], None] | None,
) -> StatementEvaluation:
    """Rank the facts of a split among candidates, by what asking about each x gives."""
    if lm.family.name == "seq2seq":
        raise BadOption(f"{lm.identity.name} is a seq2seq LM, which gives whole sentences no probability")
    candidates = candidates or every_y(relation)
    if candidates.labels is not None:
        raise BadOption(f"{candidates.name} has labels with their words, but a statement needs one word for each")
    ys = candidates.words
    numbers = {y: number for number, y in enumerate(ys)}
    left_out = [LeftOutFact(fact, NOT_A_CANDIDATE) for fact in relation.split(split) if fact.y not in numbers]
    by_x: dict[str, list[Fact]] = {}
    for fact in relation.split(split):
        if fact.y in numbers:
            by_x.setdefault(fact.x, []).append(fact)
    rankings: dict[Fact, Ranking] = {}
    first: list[Tensor] = []
    for done, (x, facts) in enumerate(by_x.items(), start=1):
        found = ask(x, ys)
        if isinstance(found, str):
            left_out += [LeftOutFact(fact, found) for fact in facts]
            continue
        log_probs, by_prompt = found
        best = best_first(log_probs, min(top, len(ys)))[0]
        answers = tuple(ys[number] for number in best.tolist())
        probabilities = tuple(log_probs[0, best].exp().tolist())
        for fact in facts:
            others = sorted({numbers[gold] for gold in relation.golds[x] if gold in numbers} - {numbers[fact.y]})
            gold, of_others = torch.tensor([numbers[fact.y]]), torch.tensor([others], dtype=torch.long)
            rank, raw, log_probability = (float(column[0]) for column in rank_golds(log_probs, gold, of_others))
            rankings[fact] = Ranking(rank, raw, log_probability, answers, probabilities)
            first.append(by_prompt.argmax(1) == numbers[fact.y])
        if progress is not None:
            progress(done, len(by_x))
    asked = [fact for fact in relation.split(split) if fact in rankings]
    if not asked:
        raise no_facts_left(f"{split} facts of {relation.name}", left_out)
    outcomes = outcomes_of(relation, asked, [rankings[fact] for fact in asked])
    vocabulary = f"the statements of {len(ys)} candidates of {candidates.name}"
    return StatementEvaluation(
        split, vocabulary, tuple(outcomes), tuple(left_out), answers="any-length",
        right_of_prompts=tuple(torch.stack(first).sum(0).tolist()),
    )  # fmt: skip


def accuracy_of_prompts(evaluations: Sequence[StatementEvaluation]) -> tuple[float, ...]:
    """Return the accuracy, in per cent, of the first prompts of all relations, of the second, and so on: BEAR's
    leaderboard gives the mean over them."""
    most = max(len(one.right_of_prompts) for one in evaluations)
    asked = [[one for one in evaluations if len(one.right_of_prompts) > number] for number in range(most)]
    return tuple(
        100 * sum(one.right_of_prompts[number] for one in of) / sum(len(one.outcomes) for one in of)
        for number, of in enumerate(asked)
    )


@dataclass(frozen=True)
class PublishedAccuracy:
    """What BEAR's leaderboard gives for an LM on all of its facts, in per cent."""

    accuracy: float
    standard_error: float
    facts: int
    guessing: float
    source: str


def published_accuracy(lm: str) -> PublishedAccuracy | None:
    """Return the leaderboard's figure for an LM, by its name on the hub; None if it has none."""
    text = files("askwell.evaluation").joinpath("bear_leaderboard.toml").read_text(encoding="utf-8")
    published = tomllib.loads(text)
    found = published["accuracy"].get(lm.rpartition("/")[2])
    return found and PublishedAccuracy(*found, *(published[name] for name in ("facts", "guessing", "source")))
