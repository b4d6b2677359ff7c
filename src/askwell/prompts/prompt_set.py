"""Prompts over a frozen LM, with what is tuned of them and how much each weighs. It knows nothing of answers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, checked
from askwell.files import is_utf8
from askwell.lms.batches import PLACES, TokenisedTexts, Words, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Beginning
from askwell.lms.vocabulary import TokenWords
from askwell.prompts.context import ExampleTable, Shown, choose_examples, renormalised
from askwell.prompts.long_answers import Lengths, LogLengths, LongAnswers
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import RANDOM, LeftOutPrompt, initial_vectors, usable_prompts, with_context
from askwell.prompts.weights import WEIGHTINGS, Evidence, Representation, initial_weights
from askwell.specs.mixture_spec import SettledMixtureSpec, WeightingName

TOO_LONG = "x is longer than the LM's context allows"
NO_TOKENS = "x has no token of the LM"
NOT_TEXT = "x holds bytes that are not UTF-8"
OWN_EXAMPLE = "every prompt shows x as an example"


class PromptSet(nn.Module):
    """Prompts for a frozen LM: `vectors`, `deltas`, `weighting` and `lengths` are tuned; the LM is not a submodule."""

    initial_vectors: Tensor

    def __init__(
        self,
        lm: FrozenLM,
        templates: Sequence[Template],
        spec: SettledMixtureSpec,
        *,
        relation: Relation | None = None,
        examples: Sequence[Shown] | None = None,
    ) -> None:
        """Draw in-context examples from the relation's train facts, unless those of each prompt are given."""
        super().__init__()
        self._lm = (lm,)  # in a tuple, so that the LM is not a submodule: it is not saved, moved or tuned with them
        self.spec = spec
        weightless = [template for template in templates if spec.weights == "file" and template.weight == 0]
        asked = [template for template in templates if template not in weightless] or list(templates)
        prompts, self.left_out_prompts = usable_prompts(lm, asked, self.beginning)
        self.left_out_prompts += [LeftOutPrompt(template, "its weight in the file is 0") for template in weightless]
        self.prompts = [prompt for prompt in prompts for _ in range(spec.copies)]
        self.examples: tuple[Shown, ...] = ()
        """The facts that each prompt shows; empty if none shows any."""
        self.example_log_losses: tuple[tuple[float, ...], ...] = ()
        """For each prompt the log-loss of dev facts with each draw of examples, if several were compared."""
        self.dropped_examples = 0
        """How many examples, over all prompts, did not fit into the LM's longest input."""
        if spec.shots and examples is None:
            chosen = choose_examples(lm, self.prompts, spec, relation)
            examples, self.dropped_examples, self.example_log_losses = chosen
        if examples:
            if len(examples) != len(self.prompts):
                raise BadOption(f"there are examples for {len(examples)} prompts, but {len(self.prompts)} prompts")
            self.examples = tuple(map(tuple, examples))
        each = self.examples or [()] * len(self.prompts)
        self.prompts = [with_context(lm, prompt, spec, own) for prompt, own in zip(self.prompts, each, strict=True)]
        self.example_table = ExampleTable(lm, self.examples) if self.examples else None
        random_prefix = spec.prefix if spec.prefix_words == RANDOM else 0
        initial = initial_vectors(
            lm, self.prompts, initial=spec.initial, noise=spec.noise, seed=spec.seed, random_prefix=random_prefix
        )
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
        is_settled = len(self.prompts) == 1 or self.is_product  # there is nothing to choose
        self.weigh_by("static" if spec.weighting == "auto" and is_settled else spec.weighting)
        self.lengths: Lengths | None = None
        """How long a masked LM's answers are, for each x; None unless they can have several tokens."""

    def weigh_by(self, weighting: WeightingName) -> None:
        """Weigh the prompts in this way, beginning anew: whatever was tuned of their weights is lost."""
        self.spec = self.spec.model_copy(update={"weighting": weighting})
        kind, templates = WEIGHTINGS[weighting], [prompt.template for prompt in self.prompts[:: self.spec.copies]]
        # What depends only on the prompts: their questions, put to the LM in batches.
        until_y = "question" in kind.reads
        self.pairs = PairReader(self.lm, self.prompts, reads_x=until_y or "x" in kind.reads, until_y=until_y)
        self.__dict__.pop("long_answers", None)  # which read with the former ones
        self.weighting = kind(initial_weights(templates, self.spec).log().to(self.vectors))
        self.representation = Representation(self.lm) if "kind" in kind.reads else None
        """f(x), if the weights depend on it; training fits it to its x's."""

    @property
    def lm(self) -> FrozenLM:
        """The frozen LM that is asked."""
        return self._lm[0]

    @property
    def beginning(self) -> Beginning:
        """What each sentence begins with."""
        return self.lm.beginning(self.spec.begin)

    @cached_property
    def long_answers(self) -> LongAnswers:
        """The prompts' questions for answers of any length."""
        return LongAnswers(self.lm, self.prompts, self.pairs)

    @cached_property
    def token_words(self) -> TokenWords:
        """The words that are one token of the LM in some form in which the prompts have y."""
        return TokenWords(self.lm, (prompt.tokens.y_place for prompt in self.prompts))

    @property
    def is_product(self) -> bool:
        """Whether the prompts' distributions are multiplied, each to the power of its weight, and not mixed."""
        return self.spec.combine == "product"

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
    def tuned(self) -> Tuned:
        """What the LM reads the prompts with, for `pairs`."""
        kept = (self.weight_logits > -torch.inf).nonzero()[:, 0]
        return Tuned(self.vectors, self.layer_deltas or None, kept)

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None if there is no temperature."""
        return self.weighting.temperature

    @property
    def effective_prompts(self) -> float:
        """2 to the entropy of the weights: how many prompts the mixture really uses."""
        entropy_bits = torch.special.entr(self.weights.detach().cpu().double()).sum() / torch.log(torch.tensor(2.0))
        return float(2**entropy_bits)

    @checked
    def drop_prompts(self, below: float) -> int:
        """Drop prompts with a smaller weight, which becomes 0; they are not asked again. Return their number.

        The heaviest prompt is always kept.
        """
        light = (self.weights < below) & (self.weights < self.weights.max()) & (self.weight_logits > -torch.inf)
        self.weight_logits.data.masked_fill_(light, -torch.inf)
        return int(light.sum())

    def log_p_x(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts"]:
        """Return log p(x | t): how probable each prompt finds x itself, or x and its own words up to y, if that is what
        the weights depend on."""
        return self.pairs.log_p_x(self.tuned, xs, rows)

    def evidence(
        self, xs: Words, rows: Int[Tensor, " facts"], certainty: Float[Tensor, "facts prompts"] | None = None
    ) -> Evidence | None:
        """Return what the weights depend on: f(x), or log p(x | t), and how certain each prompt is of its answer, which
        is that of y's first token unless it is given; None if they do not depend on x."""
        if self.representation is not None:
            return self.representation(xs, rows)
        reads = self.weighting.reads
        signals = [self.log_p_x(xs, rows)] if "x" in reads or "question" in reads else []
        if "answers" in reads:
            signals.append(self.pairs.certainty(self.tuned, xs, rows) if certainty is None else certainty)
        return torch.stack(signals, dim=2) if len(signals) > 1 else signals[0] if signals else None

    def log_weights_for(
        self, xs: Words, rows: Int[Tensor, " facts"], evidence: Evidence | None = None
    ) -> Float[Tensor, "facts prompts"]:
        """Return the log-weight of each prompt for each fact, among those that do not show its x as an example; those
        that follow from how certain prompts are of their answers depend on learned lengths, unless what speaks for the
        prompts is given."""
        if evidence is None:
            if self.lengths is not None and self._weighs_by_answers:
                return self.weights_and_lengths(xs, rows, self.lengths.initial)[0]
            evidence = self.evidence(xs, rows)
        log_weights = self.weighting(evidence if self.weighting.depends_on_x else None, len(rows))
        if self.example_table is None:
            return log_weights
        return renormalised(log_weights, self.example_table.shown(xs, rows))

    def learn_lengths(self, log_lengths: Sequence[float]) -> None:
        """Let the lengths of a masked LM's answers depend on x, beginning at log p(m | r). A product of experts keeps
        p(m | r): all its prompts write the same number of blanks."""
        if len(log_lengths) < 2 or self.is_product:
            self.lengths = None
        elif self.lengths is None or self.lengths.initial != tuple(log_lengths):
            self.lengths = Lengths(log_lengths, device=self.lm.device, dtype=self.lm.parameter_dtype)

    def log_lengths_for(
        self, xs: Words, rows: Int[Tensor, " facts"], log_lengths: Sequence[float], tuned: Tuned | None = None
    ) -> LogLengths | None:
        """Return log p(m | r, x, t) of a masked LM's answers, or log p(m | r) where that is what it is; None without
        lengths."""
        if not self.has_learned(log_lengths):
            return self._fixed_lengths(log_lengths)
        certainty = self.long_answers.certainty_of_blanks(tuned or self.tuned, xs, rows, len(log_lengths))
        assert self.lengths is not None
        return self.lengths(certainty).log_softmax(-1)

    def weights_and_lengths(
        self, xs: Words, rows: Int[Tensor, " facts"], log_lengths: Sequence[float]
    ) -> tuple[Float[Tensor, "facts prompts"], LogLengths | None]:
        """Return log p(t | r, x), and what `log_lengths_for` gives, for which the LM reads everything once."""
        log_weights = self.log_weights_for(xs, rows, self.evidence(xs, rows))
        if not self.has_learned(log_lengths):
            return log_weights, self._fixed_lengths(log_lengths)
        certainty = self.long_answers.certainty_of_blanks(self.tuned, xs, rows, len(log_lengths))
        return self.weigh_lengths(log_weights, certainty)

    def weigh_lengths(
        self, log_weights: Float[Tensor, "facts prompts"], certainty: Float[Tensor, "facts prompts lengths"]
    ) -> tuple[Float[Tensor, "facts prompts"], Float[Tensor, "facts prompts lengths"]]:
        """Return log p(t | r, x) and log p(m | r, x, t), given how certain prompts are of what stands at m blanks.

        A prompt that fits x is certain with the right number of blanks alone. So where certainty speaks for prompts,
        prompts and lengths are weighed together: p(t, m | r, x) ∝ p(t | r, x) exp(c_m + β s_m(t, x)).
        """
        assert self.lengths is not None
        scores = self.lengths(certainty)
        if self._weighs_by_answers:
            log_weights = (log_weights + scores.logsumexp(-1)).log_softmax(1)
        return log_weights, scores.log_softmax(-1)

    @property
    def _weighs_by_answers(self) -> bool:
        return "answers" in self.weighting.reads

    def has_learned(self, log_lengths: Sequence[float]) -> bool:
        """Tell whether lengths were learned, or are being learned, for answers that begin at this p(m | r)."""
        learned = self.lengths
        return learned is not None and learned.initial == tuple(log_lengths) and not learned.are_fixed

    def _fixed_lengths(self, log_lengths: Sequence[float]) -> Float[Tensor, " lengths"] | None:
        if not log_lengths:
            return None
        return torch.tensor(log_lengths, dtype=self.lm.parameter_dtype, device=self.lm.device)

    def is_own_example(self, xs: Words, rows: Int[Tensor, " facts"]) -> Bool[Tensor, " facts"]:
        """Tell, for each fact, whether all prompts still in use show its x, so that it cannot be asked fairly."""
        if self.example_table is None:
            return torch.zeros(len(rows), dtype=torch.bool, device=self.lm.device)
        return (self.example_table.shown(xs, rows) | (self.weight_logits == -torch.inf)).all(1)

    # ── which x's can be asked ────────────────────────────────────────────────────────────────────────────────────

    def tokenised_xs(self, xs: Sequence[str]) -> TokenisedTexts:
        """Tokenise the x's at each place where a prompt has them, and at the first, by which examples know them."""
        needed = {PLACES[0], *(PLACES[place] for place in self.pairs.x_places.tolist())}
        return TokenisedTexts(xs, self.lm.wording, needed)

    def words_of(self, xs: Sequence[str]) -> Words:
        """Return the tokens of x's."""
        return words_of(xs, self.lm.wording, self.lm.device)

    def why_unaskable(self, xs: Sequence[str], answer_tokens: int | None = None) -> list[str | None]:
        """Return the reason why the LM cannot be asked about each x, None if it can.

        Answers that are read as a whole need room for this many tokens.
        """
        reasons = self.why_too_long(self.tokenised_xs([x if is_utf8(x) else "" for x in xs]), answer_tokens)
        return [reason if is_utf8(x) else NOT_TEXT for x, reason in zip(xs, reasons, strict=True)]

    def why_too_long(self, xs: TokenisedTexts, answer_tokens: int | None = None) -> list[str | None]:
        """Return the reason why each tokenised x does not fit into the LM's context, None if it does."""
        if not len(xs):
            return []
        words = xs.lengths_alone(self.lm.device)
        empty = (words.lengths == 0).any(0).tolist()
        longest = self.pairs.longest_question(words)
        if answer_tokens is not None:
            longest = torch.maximum(longest, self.pairs.longest_in(self.long_answers.table, words, answer_tokens))
        limit = self.lm.context
        return [
            NO_TOKENS if is_empty else TOO_LONG if limit is not None and length > limit else None
            for is_empty, length in zip(empty, longest.tolist(), strict=True)
        ]

    # ── distributions over words of one token ─────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def word_log_probs(self, xs: Words, rows: Int[Tensor, " facts"], prompt: int) -> Float[Tensor, "facts words"]:
        """Return log p(y | t, x) of every word y under one prompt; -inf if the prompt has no token for it."""
        prompts = torch.full_like(rows, prompt)
        return self.of_words(self.pairs.pair_log_probs(self.tuned, xs, rows, prompts), prompts, -torch.inf)

    def of_words(
        self, values: Float[Tensor, "pairs vocabulary"], prompts: Int[Tensor, " pairs"], missing: float
    ) -> Float[Tensor, "pairs words"]:
        """Return values of tokens as those of the words that the tokens spell in the places of these prompts; a word
        without a token there has the value `missing`."""
        if len(self.token_words.places) == 1:
            return values
        tokens = self.token_words.tokens[self.pairs.y_places[prompts]]
        return values.gather(1, tokens.clamp(min=0)).masked_fill(tokens < 0, missing)

    @property
    def finds_every_x_alike(self) -> bool:
        """Whether p(x | t) is the same for all prompts, whatever is tuned, because none has a word before x.

        This happens only with causal LMs; data-dependent weights are then static.
        """
        questions = [self.lm.family.ask_x(one.tokens, self.lm.wording, self.lm.special) for one in self.prompts]
        read = [token for stream in questions[0].streams.values() for token in (*stream.left, *stream.right)]
        places = {prompt.tokens.x_place for prompt in self.prompts}
        alike = all(question == questions[0] for question in questions) and len(places) == 1
        return alike and all(token.prompt_token < 0 for token in read)
