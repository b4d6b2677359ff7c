"""The mixture: prompts with weights, whose answers are put together to one distribution over y."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelHubMixin
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from askwell.data.templates import Template, parse_template
from askwell.errors import BadOption, NotFinite
from askwell.lms.batches import PLACES, Batch, QuestionTable, Words
from askwell.lms.frozen import FrozenLM
from askwell.mixture.answers import AnswerSpace, Candidates
from askwell.mixture.ask import Reply, ask
from askwell.mixture.description import About
from askwell.mixture.prompts import LeftOutPrompt, initial_vectors, usable_prompts
from askwell.mixture.weights import WEIGHTINGS
from askwell.specs.mixture import MixtureSpec

# A forward pass reads about so many tokens at once: enough to fill the machine, little enough for caches.
_TOKENS_AT_ONCE = 2048
# And it gives so many numbers at most, one for each token of the vocabulary at each place that is read.
_LOGITS_AT_ONCE = 2**22
# Training keeps the activations of so many bytes for one backward pass.
_TRAINING_BYTES = 2 * 2**30


Observer = Callable[
    [Int[Tensor, " pairs"], Int[Tensor, " pairs"], Float[Tensor, " pairs"], Float[Tensor, "pairs answers"]], None
]
"""Is shown what each prompt alone says while the prompts are put together: the rows of facts and the prompts of some
pairs, the weight of each pair, and p(y | t, x) of every answer y."""


class Mixture(nn.Module, ModelHubMixin, library_name="askwell", license="apache-2.0"):
    """A mixture (or product) of prompts over a frozen LM. Only the prompts and their weights can be tuned."""

    def __init__(self, lm: FrozenLM, templates: Iterable[Template | str], spec: MixtureSpec | None = None) -> None:
        super().__init__()
        self.spec = spec = spec or MixtureSpec()
        self._lm = (lm,)  # in a tuple, so that the LM is no submodule: it is not saved, moved or tuned with the mixture
        parsed = [parse_template(template) if isinstance(template, str) else template for template in templates]
        weightless = [template for template in parsed if spec.weights == "file" and template.weight == 0]
        prompts, self.left_out_prompts = usable_prompts(lm, [t for t in parsed if t not in weightless] or parsed)
        self.left_out_prompts += [LeftOutPrompt(template, "its weight in the file is 0") for template in weightless]
        self.prompts = [prompt for prompt in prompts for _ in range(spec.copies)]
        self.answer_space = AnswerSpace(lm, (prompt.tokens.y_place for prompt in self.prompts))
        initial = initial_vectors(lm, self.prompts, initial=spec.initial, noise=spec.noise, seed=spec.seed)
        self.vectors = nn.Parameter(initial.clone())
        self.register_buffer("initial_vectors", initial)
        like: Any = {"device": lm.device, "dtype": lm.parameter_dtype}
        self.deltas = nn.ModuleDict(
            {
                name: nn.ParameterList(
                    nn.Parameter(torch.zeros(len(initial), stack.width, **like)) for _ in range(stack.layers)
                )
                for name, stack in lm.stacks.items()
                if spec.deep
            }
        )
        """For each stack and layer what is added at the prompt tokens as they leave it; empty unless deep."""
        self.weighting = WEIGHTINGS[spec.weighting](_initial_weights(prompts, spec).log().to(**like))

    left_out_prompts: list[LeftOutPrompt]
    initial_vectors: Tensor

    @property
    def lm(self) -> FrozenLM:
        """The frozen LM that is asked."""
        return self._lm[0]

    @property
    def weight_logits(self) -> nn.Parameter:
        """log p(t | r) of each prompt up to a constant; -inf for a prompt that was dropped."""
        return self.weighting.logits

    @property
    def weights(self) -> Float[Tensor, " prompts"]:
        """p(t | r) of each prompt, or its exponent in a product."""
        return self.weight_logits.softmax(0)

    @property
    def layer_deltas(self) -> dict[str, list[Tensor]]:
        """`deltas` as plain lists, one for each stack; empty unless deep."""
        return {stack: list(layers.parameters()) for stack, layers in self.deltas.items()}

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None where there is no temperature."""
        return self.weighting.temperature

    @property
    def effective_prompts(self) -> float:
        """2 to the entropy of the weights: how many prompts the mixture really uses."""
        entropy_bits = torch.special.entr(self.weights.detach().cpu().double()).sum() / torch.log(torch.tensor(2.0))
        return float(2**entropy_bits)

    @cached_property
    def finds_every_x_alike(self) -> bool:
        """Whether p(x | t) is the same for all prompts, whatever is tuned, since none has a word before x.

        Only a causal LM can be so blind; data-dependent weights are then the static ones.
        """
        questions = [self.lm.family.ask_x(prompt.tokens, self.lm.wording, self.lm.special) for prompt in self.prompts]
        read = [token for stream in questions[0].streams.values() for token in (*stream.left, *stream.right)]
        places = {prompt.tokens.x_place for prompt in self.prompts}
        alike = all(question == questions[0] for question in questions) and len(places) == 1
        return alike and all(token.prompt_token < 0 for token in read)

    @cached_property
    def first_rows(self) -> list[int]:
        """The row of `vectors` at which each prompt's tokens begin."""
        rows, next_row = [], 0
        for prompt in self.prompts:
            rows.append(next_row)
            next_row += len(prompt.token_ids)
        return rows

    def drop_prompts(self, below: float) -> int:
        """Drops prompts that weigh less: they weigh 0 from now on and are not asked again. Gives their number.

        The heaviest prompt stays, whatever it weighs.
        """
        light = (self.weights < below) & (self.weights < self.weights.max()) & (self.weight_logits > -torch.inf)
        self.weight_logits.data.masked_fill_(light, -torch.inf)
        return int(light.sum())

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def gold_log_probs(
        self, xs: Words, gold_tokens: Int[Tensor, "places texts"], facts: Int[Tensor, " facts"]
    ) -> Float[Tensor, "facts prompts"]:
        """log p(y | t, x) of the gold y for each of the given facts and every prompt.

        It is -inf where y has no token, and for prompts that were dropped.
        """
        rows, columns = self._all_pairs(facts)
        ask = self._asking(xs, len(facts))
        parts, order = [], []
        for chosen in self._short_to_long(self._y_table, xs, rows, columns):
            texts, prompts = rows[chosen], columns[chosen]
            tokens = gold_tokens[self._y_places[prompts], texts]
            batch = self._y_table.batch(xs, texts, prompts)
            gold = ask(batch, prompts, tokens.clamp(min=0))
            parts.append(gold.masked_fill(tokens < 0, -torch.inf))
            order.append(chosen)
        return self._of_all_prompts(_unsort(parts, order), len(facts), without=-torch.inf)

    def log_p_x(self, xs: Words, facts: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts"]:
        """log p(x | t): how probable each prompt finds x itself."""
        rows, columns = self._all_pairs(facts)
        ask = self._asking(xs, len(facts))
        parts, order = [], []
        for chosen in self._short_to_long(self._x_table, xs, rows, columns):
            texts, prompts = rows[chosen], columns[chosen]
            batch = self._x_table.batch(xs, texts, prompts)
            of_token = ask(batch, prompts, self._x_table.x_targets(xs, texts, prompts))
            parts.append(of_token.new_zeros(len(chosen)).index_add(0, batch.read_pairs, of_token))
            order.append(chosen)
        return self._of_all_prompts(_unsort(parts, order), len(facts), without=0.0)

    def log_weights(
        self, facts: int, log_p_x: Float[Tensor, "facts prompts"] | None = None
    ) -> Float[Tensor, "facts prompts"]:
        """The log-weight of each prompt for each fact, which needs log p(x | t) where the weighting reads x."""
        return self.weighting(log_p_x, facts)

    @torch.no_grad()
    def prompt_log_probs(self, xs: Words, facts: Int[Tensor, " facts"], prompt: int) -> Float[Tensor, "facts answers"]:
        """log p(y | t, x) of every answer y under one prompt; -inf where the prompt has no token for it."""
        parts, order = [], []
        prompts = torch.full_like(facts, prompt)
        for chosen in self._short_to_long(self._y_table, xs, facts, prompts):
            logits, log_total = self._logits(self._y_table.batch(xs, facts[chosen], prompts[chosen]), prompts[chosen])
            parts.append(logits.sub_(log_total[:, None]))
            order.append(chosen)
        log_probs = _unsort(parts, order)
        if len(self.answer_space.places) == 1:
            return log_probs
        tokens = self.answer_space.tokens[self._y_places[prompt]]
        return log_probs[:, tokens.clamp(min=0)].masked_fill(tokens < 0, -torch.inf)

    @torch.no_grad()
    def log_probs(
        self,
        xs: Words,
        facts: Int[Tensor, " facts"],
        answers: Int[Tensor, " answers"] | None = None,
        observer: Observer | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """log p(y | x, r) of every answer y, or of the given ones. No more than facts × answers is ever held."""
        if self.spec.combine == "product":
            whole = self.combine(xs, facts, self._one_by_one(xs, facts, observer))
            return whole if answers is None else whole[:, answers]
        log_weights = self.log_weights(len(facts), self.log_p_x(xs, facts) if self.weighting.reads_x else None)
        total = self._summed(xs, facts, log_weights.exp(), answers, observer)
        # What is tiny beside the largest share has lost digits; it is summed again, as logarithms.
        lossy = (total < torch.finfo(total.dtype).tiny ** 0.75).any(1)
        log_probs = total.log_()
        if lossy.any():
            exact = self.combine(xs, facts[lossy], self._one_by_one(xs, facts[lossy]))
            log_probs[lossy] = exact if answers is None else exact[:, answers]
        return log_probs

    @torch.no_grad()
    def combine(
        self, xs: Words, facts: Int[Tensor, " facts"], by_prompt: Iterable[Float[Tensor, "facts answers"]]
    ) -> Float[Tensor, "facts answers"]:
        """log p(y | x, r) from the prompts' own log-probabilities, which are taken one after the other."""
        shape = (len(facts), self.answer_space.count)
        like: Any = {"dtype": self.weight_logits.dtype, "device": self.lm.device}
        if self.spec.combine == "product":
            scores = torch.zeros(shape, **like)
            for weight, log_probs in zip(self.weights, by_prompt, strict=True):
                # An answer for which one prompt has no token is none of the product's, even if that prompt weighs 0.
                scores += torch.where(log_probs == -torch.inf, -torch.inf, weight * log_probs.nan_to_num(neginf=0.0))
            return scores.log_softmax(1)
        log_weights = self.log_weights(len(facts), self.log_p_x(xs, facts) if self.weighting.reads_x else None)
        total = torch.full(shape, -torch.inf, **like)
        for log_weight, log_probs in zip(log_weights.T, by_prompt, strict=True):
            total = torch.logaddexp(total, log_probs + log_weight[:, None])
        return total

    def _one_by_one(
        self, xs: Words, facts: Int[Tensor, " facts"], observer: Observer | None = None
    ) -> Iterator[Float[Tensor, "facts answers"]]:
        rows = torch.arange(len(facts), device=self.lm.device)
        for prompt in range(len(self.prompts)):
            log_probs = self.prompt_log_probs(xs, facts, prompt)
            if observer is not None:
                observer(rows, torch.full_like(rows, prompt), self.weights[prompt].expand(len(rows)), log_probs.exp())
            yield log_probs

    def _summed(
        self,
        xs: Words,
        facts: Int[Tensor, " facts"],
        weights: Float[Tensor, "facts prompts"],
        answers: Int[Tensor, " answers"] | None,
        observer: Observer | None,
    ) -> Float[Tensor, "facts answers"]:
        """p(y | x, r): the prompts' distributions, weighted and summed as probabilities, as the batches come."""
        space = self.answer_space
        count = space.count if answers is None else len(answers)
        total = torch.zeros(len(facts), count, dtype=self.weight_logits.dtype, device=self.lm.device)
        tokens = space.tokens if answers is None else space.tokens[:, answers]
        takes_all = len(space.places) == 1 and answers is None
        answered_at = [(of_place >= 0).nonzero()[:, 0] for of_place in tokens]
        columns_of = [(answered, of_place[answered]) for answered, of_place in zip(answered_at, tokens, strict=True)]
        rows, columns = self._all_pairs(torch.arange(len(facts), device=self.lm.device))
        for chosen in self._short_to_long(self._y_table, xs, facts[rows], columns):
            places, prompts = rows[chosen], columns[chosen]
            batch = self._y_table.batch(xs, facts[places], prompts)
            for some, shares, log_total in self.lm.distributions(batch, self.vectors, self.layer_deltas or None):
                self._refuse_not_finite(batch.read_pairs[some], prompts, log_total)
                of_pairs = weights[places[some], prompts[some]]
                if observer is not None:
                    observer(places[some], prompts[some], of_pairs, self._over_answers(shares, prompts[some]))
                shares.mul_(of_pairs[:, None])
                own = self._y_places[prompts[some]].tolist()
                # Row by row: index_add_ would write out an index as large as the probabilities.
                for row, (fact, place) in enumerate(zip(places[some].tolist(), own, strict=True)):
                    if takes_all:
                        total[fact].add_(shares[row])
                    else:
                        answered, spelt = columns_of[place]
                        total[fact, answered] += shares[row, spelt]
        return total

    def _over_answers(
        self, probs: Float[Tensor, "pairs vocabulary"], prompts: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "pairs answers"]:
        """Probabilities of tokens as those of the answers that the tokens spell at the prompts' places."""
        if len(self.answer_space.places) == 1:
            return probs
        tokens = self.answer_space.tokens[self._y_places[prompts]]
        return probs.gather(1, tokens.clamp(min=0)).masked_fill(tokens < 0, 0)

    def product_log_likelihood(
        self, xs: Words, answers: Int[Tensor, " facts"], facts: Int[Tensor, " facts"]
    ) -> Float[Tensor, " facts"]:
        """log p(y | x, r) of the gold y in a product, with gradients into the weights alone."""
        by_prompt = torch.stack([self.prompt_log_probs(xs, facts, t) for t in range(len(self.prompts))], dim=1)
        everywhere = by_prompt.isfinite().all(1)
        scores = torch.einsum("t,fta->fa", self.weights, by_prompt.nan_to_num(neginf=0.0))
        scores = scores.masked_fill(~everywhere, -torch.inf)
        return scores.gather(1, answers[:, None])[:, 0] - scores.logsumexp(1)

    def ask(self, x: str, *, top: int = 10, candidates: Candidates | None = None) -> list[Reply]:
        """The most probable answers for x, best first."""
        return next(ask(self, [x], top=top, candidates=candidates))

    def sample(self, xs: Words, pairs: int) -> Batch:
        """Some of the pairs of these x's and all prompts, as the LM reads them, spread evenly."""
        every = torch.arange(xs.lengths.shape[1], device=self.lm.device)
        rows, columns = self._all_pairs(every)
        chosen = torch.linspace(0, len(rows) - 1, min(pairs, len(rows)), device=rows.device).round().long()
        return self._y_table.batch(xs, rows[chosen], columns[chosen])

    # ── sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def longest_question(self, xs: Words) -> Int[Tensor, " texts"]:
        """For each x the number of tokens of its longest question."""
        texts = torch.arange(xs.lengths.shape[1], device=self.lm.device)
        longest = torch.zeros_like(texts)
        for table in [self._y_table] + ([self._x_table] if self.weighting.reads_x else []):
            for prompt in range(len(self.prompts)):
                longest = torch.maximum(longest, table.lengths(xs, texts, torch.full_like(texts, prompt)))
        return longest

    def facts_at_once(self, xs: Words) -> int:
        """How many facts can be trained on in one forward and backward pass within bounded memory."""
        return max(1, _TRAINING_BYTES // self._bytes_of_fact(xs))

    def _bytes_of_fact(self, xs: Words) -> int:
        """About what is kept of a fact and all its prompts until gradients are taken."""
        tokens = int(self.longest_question(xs).max()) * (2 if self.weighting.reads_x else 1)
        reads = 1 + (int(xs.lengths.max()) if self.weighting.reads_x else 0)
        number = torch.finfo(self.lm.dtype).bits // 8
        # Of a token and layer: what norms, projections and activations were given; in Llama twice as much as in BERT.
        of_layers = sum(20 * number * stack.layers * stack.width for stack in self.lm.stacks.values())
        return len(self.prompts) * (tokens * of_layers + reads * number * self.lm.vocabulary_size)

    def _asking(self, xs: Words, facts: int) -> Callable[..., Float[Tensor, " reads"]]:
        """How a batch is asked: where all of these facts are too many to keep, each batch is asked once more when its
        gradients are taken, so that a fact with any number of prompts fits."""
        if not torch.is_grad_enabled() or facts * self._bytes_of_fact(xs) <= 2 * _TRAINING_BYTES:
            return self._log_probs_of
        return partial(checkpoint, self._log_probs_of, use_reentrant=False, preserve_rng_state=False)

    # ── saving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        about: About | None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **hub_options: Any,
    ) -> str | None:
        """Saves the mixture in a folder with what is known about it; with `push_to_hub` also on the hub, and gives its
        address there.

        The mixin's own method would remove the old config.json before the new one is written.
        """
        from askwell.mixture.save import save_mixture

        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        hub_options.pop("config", None)  # config.json is made from the mixture itself
        of_card = hub_options.pop("model_card_kwargs", None) or {}
        about = about or of_card.get("about")
        save_mixture(self, folder, about=about)
        return self.push_to_hub(repo_id or folder.name, about=about, **hub_options) if push_to_hub else None

    def push_to_hub(self, repo_id: str, *, about: About | None = None, **hub_options: Any) -> str:
        """Uploads the mixture and gives its address; where the LM lies on this machine stays here."""
        from askwell.mixture.save import LM_PATH

        # The mixin hands the card's options on to `save_pretrained`.
        hub_options |= {"ignore_patterns": LM_PATH, "model_card_kwargs": {"about": about}}
        return super().push_to_hub(repo_id, **hub_options)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, lm: FrozenLM | None = None, **hub_options: Any
    ) -> "Mixture":
        """The mixture in a folder or of a hub name, on its LM, which is loaded if it is not given.

        `hub_options` are huggingface_hub's: revision, token, cache_dir, force_download, local_files_only.
        """
        from askwell.mixture.save import load_mixture

        return load_mixture(pretrained_model_name_or_path, lm, **hub_options)

    def generate_model_card(self, *_args: Any, about: About | None = None, **_options: Any) -> ModelCard:
        """The model card: what the mixture asks, how well, and of which LM."""
        from askwell.mixture.card import model_card

        return model_card(self, about or About())

    # ── inner parts ───────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _y_table(self) -> QuestionTable:
        return self._table([prompt.question for prompt in self.prompts])

    @cached_property
    def _x_table(self) -> QuestionTable:
        lm = self.lm
        return self._table([lm.family.ask_x(prompt.tokens, lm.wording, lm.special) for prompt in self.prompts])

    @cached_property
    def _y_places(self) -> Int[Tensor, " prompts"]:
        return torch.tensor([PLACES.index(p.tokens.y_place) for p in self.prompts], device=self.lm.device)

    def _table(self, questions: list[Any]) -> QuestionTable:
        places = [prompt.tokens.x_place for prompt in self.prompts]
        mask = self.lm.tokenizer.mask_token_id
        return QuestionTable(questions, places, self.first_rows, mask, self.lm.device)

    def _log_probs_of(
        self, batch: Batch, prompts: Int[Tensor, " pairs"], tokens: Int[Tensor, " reads"]
    ) -> Float[Tensor, " reads"]:
        """The log-probability of one token at each place that is read, with its gradient."""
        log_probs, log_total = self.lm.log_probs_of(batch, self.vectors, self.layer_deltas or None, tokens)
        self._refuse_not_finite(batch.read_pairs, prompts, log_total)
        return log_probs

    def _logits(
        self, batch: Batch, prompts: Int[Tensor, " pairs"]
    ) -> tuple[Float[Tensor, "reads vocabulary"], Float[Tensor, " reads"]]:
        """Logits at the places that are read, and the log of their total, without gradients."""
        logits = self.lm.logits(batch, self.vectors, self.layer_deltas or None)
        log_total = logits.logsumexp(1)
        self._refuse_not_finite(batch.read_pairs, prompts, log_total)
        return logits, log_total

    def _refuse_not_finite(
        self, pairs: Int[Tensor, " reads"], prompts: Int[Tensor, " pairs"], log_total: Float[Tensor, " reads"]
    ) -> None:
        is_finite = torch.isfinite(log_total)
        if not is_finite.all():
            worst = int(prompts[pairs[~is_finite][0]])
            raise NotFinite(
                f"the LM {self.lm.identity.name} gives probabilities that are not finite, first with the prompt "
                f"{self.prompts[worst].template.text!r}; a lower learning rate, or --dtype float32, may help"
            )

    def _all_pairs(self, facts: Int[Tensor, " facts"]) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """Each fact with each prompt that was not dropped."""
        prompts = (self.weight_logits > -torch.inf).nonzero()[:, 0]
        return facts.repeat_interleave(len(prompts)), prompts.repeat(len(facts))

    def _of_all_prompts(self, values: Float[Tensor, " pairs"], facts: int, without: float) -> Tensor:
        """Values of `_all_pairs` as a table over all prompts, with another value for those that were dropped."""
        kept = (self.weight_logits > -torch.inf).nonzero()[:, 0]
        table = values.view(facts, len(kept))
        if len(kept) == len(self.prompts):
            return table
        return table.new_full((facts, len(self.prompts)), without).index_copy(1, kept, table)

    def _short_to_long(
        self, table: QuestionTable, xs: Words, texts: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]
    ) -> Iterator[Int[Tensor, " chosen"]]:
        """Batches of pairs of about the same length, so that little is padding."""
        lengths = table.lengths(xs, texts, prompts)
        order = lengths.argsort(stable=True)
        start, sorted_lengths = 0, lengths[order].tolist()
        reads = int(xs.lengths.max()) if table.reads_x else 1
        most_pairs = max(1, _LOGITS_AT_ONCE // (reads * self.lm.vocabulary_size))
        for end in range(1, len(sorted_lengths) + 1):
            is_last = end == len(sorted_lengths)
            is_full = not is_last and (
                sorted_lengths[end] * (end + 1 - start) > _TOKENS_AT_ONCE or end - start >= most_pairs
            )
            if is_last or is_full:
                yield order[start:end]
                start = end


def _unsort(parts: list[Tensor], order: list[Tensor]) -> Tensor:
    """The parts in the order of the pairs that they belong to."""
    return torch.cat(parts)[torch.cat(order).argsort()]


def _initial_weights(prompts: list[Any], spec: MixtureSpec) -> Float[Tensor, " prompts"]:
    if spec.weights == "uniform":
        each = [1.0] * len(prompts)
    else:
        each = [prompt.template.weight for prompt in prompts]
        without = [prompt.template.text for prompt in prompts if prompt.template.weight is None]
        if without:
            raise BadOption(f"the weights of the prompt file are asked for, but {without[0]!r} has no weight in it")
        if sum(each) == 0:
            raise BadOption("the weights of the prompt file are asked for, but all of them are 0")
    weights = torch.tensor([weight for weight in each for _ in range(spec.copies)], dtype=torch.float64)
    return weights / weights.sum()
