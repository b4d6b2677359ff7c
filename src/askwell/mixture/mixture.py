"""The mixture: prompts with weights, whose answers are combined into one distribution over y."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.calls import checked, checked_or
from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template, parsed_templates
from askwell.errors import BadOption, UserMistake
from askwell.lms.frozen import FrozenLM
from askwell.mixture import distributions
from askwell.mixture.answers import AnswerKind, AnswerSpace
from askwell.mixture.ask import ask, list_of_xs
from askwell.mixture.candidates import Candidates, CandidateScorer, GivenCandidates, as_candidates
from askwell.mixture.elsewhere import EmbeddedPrompts, embed, save_peft
from askwell.mixture.encode import encode_facts, encode_relation
from askwell.mixture.hub import OnTheHub
from askwell.mixture.reply import AllReplies, Replies
from askwell.prompts.begin import settle
from askwell.prompts.examples import Shown
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.views.document import Document, overview
from askwell.views.progress_bar import Bar
from askwell.views.shown import ShowsItself


class Mixture(ShowsItself, PromptSet, OnTheHub, library_name="askwell", license="apache-2.0"):
    """A mixture (or product) of prompts over a frozen LM. Only the prompts and their weights can be tuned.

    It is a torch module. Its parameters are `vectors` [prompt tokens, embedding size], one for each prompt token;
    `deltas`, for each stack and layer what is added at the prompt tokens as they leave it (none unless the mixture is
    deep); and those of `weighting`: `logits`, of which `weights` is the softmax, and the temperature of data-dependent
    weights. `forward(xs, ys)` is log p(y | x, r), with gradients. The LM is not a submodule and has no gradients.
    """

    @checked
    def __init__(
        self,
        lm: FrozenLM,
        templates: str | Template | Iterable[Template | str],
        spec: MixtureSpec | None = None,
        *,
        relation: Relation | None = None,
        examples: Sequence[Shown] | None = None,
        **choices: Any,
    ) -> None:
        """Pass a `spec`, or fields of MixtureSpec by name: `Mixture(lm, templates, deep=True)`.

        The train facts of `relation` decide what stands before a causal LM's sentences where the spec leaves it open,
        and in-context examples are drawn from them; without a relation, sentences begin with a line break (where the
        LM has one as a token) and nothing stands before them. To rebuild a saved mixture, its settled spec and the
        `examples` of each prompt are given instead."""
        given = MixtureSpec.given(spec, choices, to=Mixture.__init__, elsewhere={"train": TrainingSpec})
        parsed = parsed_templates(templates)
        settled = settle(given, lm, relation, parsed)
        super().__init__(lm, parsed, settled, relation=relation, examples=examples)
        self.answer_space = AnswerSpace(lm, (prompt.tokens.y_place for prompt in self.prompts))
        self.answer_kind: AnswerKind | None = None
        """What counts as an answer: decided when the mixture is tuned, and saved with it; None until then."""
        self.candidates: Candidates | None = None
        """What it was tuned to choose from; None if it can answer anything."""

    def summary(self) -> Document:
        """The prompts with their weights, heaviest first, and which vectors can be tuned."""
        weights = self.weights.tolist()
        heaviest = sorted(range(len(weights)), key=lambda t: (-weights[t], t))
        rows = [(f"{weights[t]:.3f}", self.prompts[t].template.text) for t in heaviest]
        kind = "Product" if self.spec.combine == "product" else "Mixture"
        state = "untuned" if self.answer_kind is None else "tuned"
        heading = f"{kind} of {len(rows)} prompt{'s' if len(rows) != 1 else ''} over {self.lm.identity.name}, {state}"
        depth = "at every layer" if self.spec.deep else "at layer 0"
        notes = [f"{self.vectors.shape[0]} prompt tokens with vectors {depth}; {self.spec.weighting} weights"]
        if self.candidates is not None:
            names = self.candidates.names
            notes.append(f"chooses among {len(names)}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}")
        if self.left_out_prompts:
            notes.append(f"{len(self.left_out_prompts)} prompts left out: see .left_out_prompts")
        return overview(heading, ("weight", "prompt"), rows, ("weight",), tuple(notes))

    def plot(self, ax: Any = None) -> Any:
        """A bar for the weight of each prompt, the heaviest on top. Returns the matplotlib axes."""
        from askwell.views.charts import plot_weights

        texts = [prompt.template.text for prompt in self.prompts]
        return plot_weights(texts, self.weights.tolist(), title=self.summary().title, axes=ax)

    @property
    def _words_of_labels(self) -> tuple[str, ...]:
        return () if self.candidates is None else tuple(self.candidates.words_of)

    @overload
    def ask(self, x: str, top: int = ..., *, candidates: GivenCandidates = ...) -> Replies: ...

    @overload
    def ask(
        self,
        x: Sequence[str],
        top: int = ...,
        *,
        candidates: GivenCandidates = ...,
        progress: bool | None = ...,
    ) -> AllReplies: ...

    @checked
    def ask(
        self,
        x: str | Sequence[str],
        top: int = 10,
        *,
        candidates: GivenCandidates = None,
        progress: bool | None = None,
    ) -> Replies | AllReplies:
        """The most probable answers for x, best first; for several x's, a list with the answers to each.

        `top` is how many answers to return. `candidates` are the answers to choose among: a list of words, a dictionary
        from labels to words, or a file. If it takes long, a terminal or notebook shows a progress bar, unless
        `progress` is False."""
        xs, found = list_of_xs(x), AllReplies()
        with Bar("questions", progress) as shown:
            for replies in ask(self, xs, top=top, candidates=candidates):
                found.append(replies)
                shown(len(found), len(xs))
        return found[0] if isinstance(x, str) else found

    @checked
    def forward(self, xs: Sequence[str], ys: Sequence[str]) -> Float[Tensor, " facts"]:
        """log p(y | x, r) of each pair, with gradients into `vectors`, `deltas` and `weighting`; its negative mean is a
        loss for your own training loop.

        What counts as an answer is what the mixture was tuned for or what `settle_answers` decided; until then, what
        the given ys need. A y that cannot be an answer, or an x that cannot be asked, is an error.
        """
        if (
            isinstance(xs, str)
            or isinstance(ys, str)
            or len(xs) != len(ys)
            or not all(isinstance(text, str) for text in (*xs, *ys))
        ):
            raise BadOption("forward takes a list of xs and a list of as many ys, all of them strings")
        facts, left_out = encode_facts(self, map(Fact, xs, ys), labels=self._words_of_labels)
        if left_out:
            first = left_out[0]
            raise UserMistake(
                f"{len(left_out)} of {len(xs)} pairs cannot be asked, the first being {first.fact.x!r} → "
                f"{first.fact.y!r}: {first.reason}"
            )
        every = torch.arange(len(facts), device=self.lm.device)
        if self.candidates is None:
            return distributions.log_likelihood(self, facts, every)
        scorer = CandidateScorer(self, self.candidates, facts.kind)
        numbers = [scorer.number_of(y) for y in ys]
        if None in numbers:
            raise UserMistake(f"{ys[numbers.index(None)]!r} is not among the candidates")
        log_probs = scorer.log_probs(facts.xs, every, self.log_weights_for(facts.xs, every)).log_softmax(1)
        return log_probs.gather(1, torch.tensor(numbers, device=self.lm.device)[:, None])[:, 0]

    @checked
    def settle_answers(self, relation: Relation, candidates: GivenCandidates = None) -> None:
        """Decides from a relation's facts what counts as an answer, as training does: one token or any length and, for
        a masked LM, how long answers are. With candidates, answers are chosen among them from now on."""
        self.candidates = as_candidates(candidates)
        encoded = encode_relation(self, relation, candidates=self.candidates, whole_answers=self.candidates is not None)
        self.answer_kind = encoded.kind

    @checked
    def embed(self, x: str) -> EmbeddedPrompts:
        """The prompts with x filled in, as `inputs_embeds` for the LM or for use elsewhere, with gradients."""
        return embed(self, x)

    def save_peft(self, folder: str | Path) -> None:
        """Writes a single prompt whose tokens all come before x as a prompt-tuning adapter of PEFT (causal LMs)."""
        save_peft(self, folder)

    @checked_or("Mixture.train is torch's switch to training mode; askwell.train(mixture, relation) tunes a mixture")
    def train(self, mode: bool = True) -> "Mixture":
        """Sets torch's training mode, as for every module. `askwell.train(mixture, relation)` tunes a mixture."""
        return super().train(mode)
