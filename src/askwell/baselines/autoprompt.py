"""AutoPrompt: a gradient-guided search for the trigger tokens of one hard prompt of a relation.

Each iteration considers one trigger. The gradient of the loss at its vector predicts, to first order, how every word of
the LM would change the loss in its place; the most promising words are tried on other facts, and the best of them
replaces the trigger if it lowers the loss. The prompt that was best on dev is the result.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.baselines.hard_prompt import (
    as_text,
    blank_template,
    hard_mixture,
    prompt_of,
    set_tokens,
    spelt,
    word_of,
)
from askwell.baselines.result import BaselineProgress, BaselineRun, BaselineStep, about_learning
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.scoring import score_facts
from askwell.files import hash_json
from askwell.lms.batches import PLACES
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.lms.vocabulary import all_special_tokens, begins_word, token_text
from askwell.mixture.learned_from import MIXTURE
from askwell.mixture.mixture import Mixture
from askwell.prompts.context import settle
from askwell.specs.mixture_spec import NO_LEAD_IN, MixtureSpec, SettledMixtureSpec
from askwell.specs.training_spec import AutoPromptSpec
from askwell.training.checkpoint import read_checkpoint, run_id, write_checkpoint
from askwell.training.history import badness
from askwell.training.loop import Objective


def allowed_tokens(lm: FrozenLM, relation: Relation, spec: AutoPromptSpec) -> Bool[Tensor, " words"]:
    """Tell, for each word vector of the LM, whether its token may be a trigger; special tokens never are."""
    reasons: Counter[str] = Counter()
    allowed = torch.zeros(lm.word_count, dtype=torch.bool)
    special, of_ys = all_special_tokens(lm), set() if spec.allow_ys else _tokens_of_ys(lm, relation)
    for token, name in enumerate(lm.tokenizer.convert_ids_to_tokens(list(range(lm.word_count)))):
        reason = None
        if not isinstance(name, str):
            reason = "no token of the tokenizer"
        elif token in special:
            reason = "a special token"
        elif token in of_ys:
            reason = "a right answer (`allow_ys`)"
        elif not spec.allow_proper_nouns and begins_word(lm, token) and word_of(lm, token)[:1].isupper():
            reason = "begins with a capital letter (`allow_proper_nouns`)"
        elif spec.whole_words and lm.wording.encode(token_text(lm, token), Place.SPACED) != [token]:
            reason = "not a whole word (`whole_words`)"
        allowed[token] = reason is None
        if reason is not None:
            reasons[reason] += 1
    if not allowed.any():
        options = {name: f"--{name.replace('_', '-')}" for name in ("allow_ys", "allow_proper_nouns", "whole_words")}
        raise NothingLeft("trigger tokens", reasons, **options)
    return allowed.to(lm.device)


def _tokens_of_ys(lm: FrozenLM, relation: Relation) -> set[int]:
    """Return the tokens that spell a right answer of the relation in any form, regardless of case."""
    ys = {y for golds in relation.golds.values() for y in golds}
    words = {y.casefold() for y in ys}
    in_their_places = {lm.wording.single_token(y, place) for y in ys for place in PLACES}
    alike = {token for token in range(lm.word_count) if token_text(lm, token).casefold() in words}
    return alike | {token for token in in_their_places if token is not None}


_START, _ITERATION = 0, 1  # what random numbers are drawn for


def search_triggers(
    lm: FrozenLM,
    relation: Relation,
    spec: AutoPromptSpec | None = None,
    *,
    start_from: Template | None = None,
    seed: int = 0,
    asked: MixtureSpec | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[BaselineProgress], None] | None = None,
) -> BaselineRun:
    """Search for a prompt "[X] trigger … trigger [Y] .", or one that starts from the words of a given template.

    With a `folder`, the best prompt so far is always saved there as a mixture, and a checkpoint after each iteration,
    from which `resume` continues: a resumed search gives the same result as one that was never interrupted.
    """
    settled = settle(asked or MixtureSpec(seed=seed), lm, relation, [] if start_from is None else [start_from])
    plain = {"answers": "one-token", "lead_in": NO_LEAD_IN, "shots": 0, "seed": seed}
    search = TriggerSearch(lm, relation, spec or AutoPromptSpec(), start_from, settled.model_copy(update=plain))
    if folder is None or not resume or not search.load(folder):
        search.start()
        search.keep(folder, is_better=True)
    record: BaselineStep | None = search.history[-1]
    loss, iterations = search.history[-1].loss, search.spec.iterations
    while True:
        if progress is not None:
            history = tuple(search.history)
            progress(BaselineProgress(search.iteration, iterations, "iterations", loss, record, history))
        if search.iteration >= iterations:
            return search.result()
        loss, record = search.iterate()
        search.keep(folder, is_better=record is not None and record is best_step(search.history))


def best_step(history: Sequence[BaselineStep]) -> BaselineStep:
    """Return the step with the fewest disallowed tokens, such as masks, and among those the best dev score."""
    return min(history, key=lambda step: (step.unwanted, *badness(step.dev)))


def best_swaps(
    estimates: Float[Tensor, " words"], allowed: Bool[Tensor, " words"], current: int, count: int
) -> list[int]:
    """Return the allowed tokens, without the current one, that are estimated to lower the loss most, best first."""
    possible = allowed.clone()
    possible[current] = False
    count = min(count, int(possible.sum()))
    return estimates.masked_fill(~possible, torch.inf).topk(count, largest=False).indices.tolist()


class TriggerSearch:
    """A search: what stays the same throughout, how far it is, and its steps."""

    def __init__(
        self,
        lm: FrozenLM,
        relation: Relation,
        spec: AutoPromptSpec,
        start_from: Template | None,
        mixture: SettledMixtureSpec,
    ) -> None:
        self.lm, self.relation, self.spec, self.seed = lm, relation, spec, mixture.seed
        self._mask = lm.tokenizer.mask_token_id
        if start_from is None and spec.start == "mask" and self._mask is None:
            raise BadOption(
                f"the LM {lm.identity.name} has no mask token to start from; let the search start from random words "
                "(`start` random), or from a prompt (`prompts`)",
                start="--start",
                prompts="--prompts",
            )
        self._starts_from_words = start_from is not None
        first = start_from or blank_template(lm, spec.triggers)
        self._mixture = Mixture(lm, [first], mixture)
        self.shape = prompt_of(lm, first, self._mixture.beginning)
        self._rows = list(range(len(self.shape.token_ids) if start_from is not None else spec.triggers))
        if not self._rows:
            raise BadOption(f"the prompt {self.shape.template.text!r} has no word that could be swapped")
        self._allowed = allowed_tokens(lm, relation, spec)
        self._words = lm.word_vectors(torch.arange(lm.word_count, device=lm.device))
        self._mixture.requires_grad_(False)
        self._mixture.vectors.requires_grad_(True)
        self._facts = self._mixture.encode_relation(relation)
        self._train, self._dev = self._facts.need("train"), self._facts.need("dev")
        self._answers = self._mixture.answering(kind=self._facts.kind)
        self._objective = Objective(self._answers, self._train, "gradient")
        first = [start_from is not None, torch.get_num_threads()]
        self._run = hash_json([run_id(self._mixture, relation, spec), *first])
        self.tokens: list[int] = []
        self.history: list[BaselineStep] = []
        self.iteration = 0

    def start(self) -> None:
        """Score the prompt before the first swap on dev."""
        tokens = list(self.shape.token_ids)
        if not self._starts_from_words:
            if self.spec.start == "mask" and self._mask is not None:
                first = [self._mask] * len(self._rows)
            else:
                choices = self._allowed.nonzero()[:, 0].cpu().numpy()
                first = np.random.default_rng([self.seed, _START]).choice(choices, len(self._rows)).tolist()
            tokens[: len(self._rows)] = first
        if (unwanted := len(self._unwanted(tokens))) > self.spec.iterations:
            raise BadOption(
                f"`iterations` {self.spec.iterations}: {unwanted} are needed to swap disallowed tokens",
                iterations="--iterations",
            )
        set_tokens(self._mixture, tokens)
        loss = self._loss(torch.arange(len(self._train), device=self.lm.device))
        self.tokens, self.history = tokens, [self._record(0, tokens, loss)]

    def iterate(self) -> tuple[float, BaselineStep | None]:
        """Run an iteration; return the loss of the facts that it was tried on, and a record if a trigger was
        swapped."""
        self.iteration += 1
        draws = np.random.default_rng([self.seed, _ITERATION, self.iteration])
        for_gradient, for_trying = self._draw(draws), self._draw(draws)
        unwanted = self._unwanted(self.tokens)
        row = int(draws.choice(unwanted or self._rows))
        estimates = self.estimates(self.tokens, row, for_gradient)
        # Tokens that are not allowed, such as masks, are swapped even if that does not lower the loss.
        best_loss, best_token = (np.inf if unwanted else self._loss(for_trying)), None
        for token in best_swaps(estimates, self._allowed, self.tokens[row], self.spec.candidates):
            with torch.no_grad():
                self._mixture.vectors[row] = self._words[token].to(self._mixture.vectors.dtype)
            loss = self._loss(for_trying)
            if loss < best_loss:
                best_loss, best_token = loss, token
        if best_token is None:
            return float(best_loss), None
        self.tokens = [*self.tokens[:row], best_token, *self.tokens[row + 1 :]]
        set_tokens(self._mixture, self.tokens)
        record = self._record(self.iteration, self.tokens, float(best_loss))
        self.history.append(record)
        return float(best_loss), record

    def estimates(self, tokens: Sequence[int], row: int, rows: Int[Tensor, " facts"]) -> Float[Tensor, " words"]:
        """Estimate to first order what each word in place of the token at a row would add to these facts' mean loss:
        gradient · (word − current)."""
        set_tokens(self._mixture, tokens)
        vectors = self._mixture.vectors
        vectors.grad = None
        for chunk in rows.split(self._objective.facts_at_once):
            (self._objective.loss(chunk).to_minimise / len(rows)).backward()
        assert vectors.grad is not None
        gradient = vectors.grad[row]
        return self._words.to(gradient.dtype) @ gradient - vectors.detach()[row] @ gradient

    @torch.no_grad()
    def _loss(self, rows: Int[Tensor, " facts"]) -> float:
        """Compute the mean -log p(y | x) of these facts with the current prompt."""
        chunks = rows.split(self._objective.facts_at_once)
        return sum(self._objective.loss(chunk).negative_log_likelihood for chunk in chunks) / len(rows)

    def _unwanted(self, tokens: Sequence[int]) -> list[int]:
        """Return the rows of disallowed triggers: masks, and words of a given prompt that the filters exclude."""
        return [row for row in self._rows if not self._allowed[tokens[row]]]

    def _draw(self, draws: np.random.Generator) -> Int[Tensor, " facts"]:
        count = min(self.spec.sampled_facts, len(self._train))
        drawn = draws.choice(len(self._train), count, replace=False)
        return torch.from_numpy(np.sort(drawn)).to(self.lm.device)

    def _record(self, iteration: int, tokens: Sequence[int], loss: float) -> BaselineStep:
        return BaselineStep(
            iteration,
            template=spelt(self.lm, self.shape, tokens),
            tokens=list(tokens),
            unwanted=len(self._unwanted(tokens)),
            loss=loss,
            dev=score_facts(self._answers, self._dev, self.relation),
        )

    def result(self) -> BaselineRun:
        """Return the best prompt so far on dev, with exactly the tokens that were found."""
        best = best_step(self.history)
        mixture = hard_mixture(self.lm, self.shape, best.tokens, self._mixture.spec)
        about = about_learning(
            mixture,
            self._facts,
            best.dev,
            search=self.spec,
            prompt=best.template,
            prompt_tokens=self.lm.tokenizer.convert_ids_to_tokens(best.tokens),
            prompt_token_ids=best.tokens,
            reads_back_from_text=as_text(self.lm, self.shape, best.tokens) is not None,
            iterations=self.iteration,
            best_iteration=best.number,
            finished=self.iteration >= self.spec.iterations,
        )
        return BaselineRun(mixture, about, tuple(self.history))

    def keep(self, folder: Path | None, *, is_better: bool) -> None:
        """Save the best prompt, if it is new, and then what the search needs to be resumed."""
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if is_better:
            best = self.result()
            best.mixture.save_pretrained(folder / MIXTURE, about=best.about)
        notes = {"iteration": self.iteration, "history": [asdict(step) for step in self.history]}
        write_checkpoint(folder, self._run, {"tokens": torch.tensor(self.tokens)}, notes)

    def load(self, folder: Path) -> bool:
        """Continue from the checkpoint in a folder, if there is one; refuse that of another search."""
        found = read_checkpoint(folder, self._run)
        if found is None:
            return False
        tensors, notes = found
        self.tokens, self.iteration = tensors["tokens"].tolist(), notes["iteration"]
        self.history = [BaselineStep(**step) for step in notes["history"]]
        return True
