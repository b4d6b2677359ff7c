"""The mixture: prompts with weights, whose answers are combined into one distribution over y."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from huggingface_hub import ModelCard, ModelHubMixin
from jaxtyping import Float
from torch import Tensor

from askwell.answers.candidates import Candidates, GivenCandidates, as_candidates, candidates_of
from askwell.answers.encode import EncodedFacts, encode_facts
from askwell.answers.kinds import EncodedRelation, answers_among, answers_for, kind_of_facts, kind_without_facts
from askwell.answers.reply import AllReplies, LeftOutFact, Replies
from askwell.answers.strategy import Answers
from askwell.data.facts import Fact, Relation
from askwell.data.names import as_relation
from askwell.data.templates import Template, parsed_templates
from askwell.errors import BadOption, NothingLeft, UsageError, checked, checked_or
from askwell.lms.batches import TokenisedTexts
from askwell.lms.frozen import FrozenLM
from askwell.mixture.description import About, model_card
from askwell.mixture.embedded import EmbeddedPrompts, embed, save_peft
from askwell.mixture.learned_from import FACTS_PATH, LM_PATH, TOKENIZER_PATH
from askwell.mixture.save import (
    base_lm,
    mixture_folder,
    read_description,
    read_state,
    write_mixture,
)
from askwell.mixture.transfer import Transferred, are_copies, carry_over
from askwell.prompts.context import Shown, settle
from askwell.prompts.prompt import LeftOutPrompt
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import NO_LEAD_IN, AnswerKind, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.views.document import Document, overview
from askwell.views.to_text import Bar, ShowsItself


class Mixture(ShowsItself, PromptSet, ModelHubMixin, library_name="askwell", license="apache-2.0"):
    """A mixture (or product) of prompts over a frozen LM. Only the prompts and their weights can be tuned.

    It is a torch module. Its parameters are `vectors` [prompt tokens, embedding size], one for each prompt token;
    `deltas`, for each stack and layer what is added at the prompt tokens as they leave it (none unless the mixture is
    deep); those of `weighting`: `logits`, of which `weights` is the softmax, and the temperature of data-dependent
    weights; and those of `lengths`, for a masked LM's answers of several tokens. `forward(xs, ys)` is log p(y | x, r),
    with gradients. The LM is not a submodule and has no gradients.
    """

    @checked
    def __init__(
        self,
        lm: FrozenLM,
        templates: str | Template | Iterable[Template | str],
        spec: MixtureSpec | None = None,
        *,
        relation: Relation | Any = None,
        examples: Sequence[Shown] | None = None,
        **choices: Any,
    ) -> None:
        """Pass a `spec`, or fields of MixtureSpec by name: `Mixture(lm, templates, deep=True)`.

        The train facts of `relation` decide what stands before a causal LM's sentences where the spec leaves it open,
        and in-context examples are drawn from them; without a relation, sentences begin with a line break (where the
        LM has one as a token) and nothing stands before them. A name, a path or facts in memory count as one, too. To
        rebuild a saved mixture, its settled spec and the
        `examples` of each prompt are given instead."""
        given = MixtureSpec.given(spec, choices, to=Mixture.__init__, elsewhere={"train": TrainingSpec})
        parsed = parsed_templates(templates)
        relation = None if relation is None else as_relation(relation)
        settled = settle(given, lm, relation, parsed)
        super().__init__(lm, parsed, settled, relation=relation, examples=examples)
        self._answer_kind: AnswerKind | None = None
        self.candidates: Candidates | None = None
        """What it was tuned to choose from; None if it can answer anything."""
        self.transferred: Transferred | None = None
        """How it was carried over from another LM; None if it was not."""
        self._answering: Answers | None = None

    @property
    def answer_kind(self) -> AnswerKind | None:
        """What counts as an answer: decided when the mixture is tuned, and saved with it; None until then.

        With it, a masked LM's mixture begins to learn how long answers are (`lengths`)."""
        return self._answer_kind

    @answer_kind.setter
    def answer_kind(self, kind: AnswerKind | None) -> None:
        self._answer_kind = kind
        self.learn_lengths(() if kind is None else kind.log_lengths)

    def answering(self, candidates: Candidates | None = None, kind: AnswerKind | None = None) -> Answers:
        """Return how the mixture answers: among the given candidates, or as it was tuned to; until it is tuned, as its
        spec says."""
        kind, candidates = kind or self.answer_kind or kind_without_facts(self), candidates or self.candidates
        known = self._answering
        if known is None or known.kind != kind or known.candidates != candidates:
            self._answering = known = answers_for(self, kind, candidates)
        return known

    def encode(self, facts: Iterable[Fact]) -> tuple[EncodedFacts, list[LeftOutFact]]:
        """Return facts in the LM's tokens, and those that are left out. What counts as an answer is what the mixture
        was tuned for or, until then, what the facts need."""
        facts = list(facts)
        ys = TokenisedTexts([fact.y for fact in facts], self.lm.wording)
        kind = self.answer_kind or kind_of_facts(self, ys)
        labels = () if self.candidates is None else self.candidates.words_of
        return encode_facts(self, facts, kind, labels, ys)

    def encode_relation(
        self, relation: Relation, *, candidates: Candidates | None = None, whole_answers: bool = False
    ) -> EncodedRelation:
        """Return the relation's facts in the LM's tokens; with `whole_answers`, answers may always have any length.

        `candidates` are those that it will choose among; a y that is a label stands for the label's words.
        """
        return EncodedRelation(
            self, relation, kind=self.answer_kind, candidates=candidates, whole_answers=whole_answers
        )

    def summary(self) -> Document:
        """Summarise the prompts with their weights, heaviest first, and which vectors can be tuned."""
        weights = self.weights.tolist()
        heaviest = sorted(range(len(weights)), key=lambda t: (-weights[t], t))
        rows = [(f"{weights[t]:.3f}", self.prompts[t].template.text) for t in heaviest]
        kind = "Product" if self.spec.combine == "product" else "Mixture"
        state = "untuned" if self.answer_kind is None else "tuned"
        heading = f"{kind} of {len(rows)} prompt{'s' if len(rows) != 1 else ''} over {self.lm.identity.name}, {state}"
        weighting = "static" if self.spec.weighting == "auto" else self.spec.weighting
        depth = "at every layer" if self.spec.deep else "at layer 0"
        notes = [f"{self.vectors.shape[0]} prompt tokens with vectors {depth}; {weighting} weights"]
        if self.lengths is not None:
            longest, slope = len(self.lengths.initial), float(self.lengths.slope.detach())
            notes.append(f"answers of 1 to {longest} tokens; β = {slope:.2f}: how much certainty decides how many")
        if self.candidates is not None:
            names = self.candidates.names
            notes.append(f"chooses among {len(names)}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}")
        if self.left_out_prompts:
            notes.append(f"{len(self.left_out_prompts)} prompts left out: see .left_out_prompts")
        return overview(heading, ("weight", "prompt"), rows, ("weight",), tuple(notes))

    def plot(self, ax: Any = None) -> Any:
        """Plot the weight of each prompt as a bar, the heaviest on top, and return the matplotlib axes."""
        from askwell.views.charts import plot_weights

        texts = [prompt.template.text for prompt in self.prompts]
        return plot_weights(texts, self.weights.tolist(), title=self.summary().title, axes=ax)

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
        """Return the most probable answers for x, best first; for several x's, a list with the answers to each.

        `top` is how many answers to return. `candidates` are the answers to choose among: a list of words, a dictionary
        from labels to words, or a file. If it takes long, a terminal or notebook shows a progress bar, unless
        `progress` is False."""
        xs = [x] if isinstance(x, str) or not isinstance(x, Iterable) else list(x)
        for one in xs:
            if not isinstance(one, str):
                raise BadOption(f"ask: x must be a string, or a list of strings, not {type(one).__name__}")
        found = AllReplies()
        with Bar("questions", progress) as shown:
            for replies in self.replies(xs, top, candidates):
                found.append(replies)
                shown(len(found), len(xs))
        return found[0] if isinstance(x, str) else found

    def replies(self, xs: Sequence[str], top: int = 10, candidates: GivenCandidates = None) -> Iterator[Replies]:
        """Yield the most probable answers for each x, as they are found."""
        if top < 1:
            raise BadOption(f"top={top}: it must be at least 1")
        for x, found in zip(xs, self.answering(as_candidates(candidates)).ask(xs, top), strict=True):
            found.x = x
            yield found

    @checked
    def forward(self, xs: Sequence[str], ys: Sequence[str]) -> Float[Tensor, " facts"]:
        """Return log p(y | x, r) of each pair, with gradients into `vectors`, `deltas` and `weighting`; its negative
        mean is a loss for your own training loop.

        What counts as an answer is what the mixture was tuned for or what `configure_answers` decided; until then, what
        the given ys need. A y that cannot be an answer, or an x that cannot be asked, is an error.
        """
        if (
            isinstance(xs, str)
            or isinstance(ys, str)
            or len(xs) != len(ys)
            or not all(isinstance(text, str) for text in (*xs, *ys))
        ):
            raise BadOption("forward takes a list of xs and a list of as many ys, all of them strings")
        facts, left_out = self.encode(map(Fact, xs, ys))
        if left_out:
            first = left_out[0]
            raise UsageError(
                f"{len(left_out)} of {len(xs)} pairs cannot be asked, the first being {first.fact.x!r} → "
                f"{first.fact.y!r}: {first.reason}"
            )
        answers = self.answering(kind=facts.kind)
        facts, others = answers.choose(facts)
        if others:
            raise UsageError(f"{others[0].fact.y!r} is not among the candidates")
        return answers.likelihood(facts, facts.rows).total

    @checked
    @torch.no_grad()
    def log_probs(self, x: str, ys: Sequence[str]) -> Float[Tensor, " ys"]:
        """Return log p(y | x, r) of many ys for one x, not normalised over them; -inf for a y that cannot be an answer,
        and for all of them if x cannot be asked."""
        if isinstance(ys, str) or not all(isinstance(y, str) for y in ys):
            raise BadOption("log_probs takes an x and a list of ys, all of them strings")
        found = torch.full((len(ys),), -torch.inf, dtype=self.lm.parameter_dtype, device=self.lm.device)
        encoded, _ = self.encode(Fact(x, y) for y in dict.fromkeys(ys))
        if not len(encoded):
            return found
        answers = answers_for(self, encoded.kind)
        batches = encoded.rows.split(answers.facts_at_once(encoded))
        known = torch.cat([answers.likelihood(encoded, rows).total for rows in batches])
        row_of = {fact.y: row for row, fact in enumerate(encoded.facts)}
        places = [place for place, y in enumerate(ys) if y in row_of]
        found[places] = known[[row_of[ys[place]] for place in places]].to(found.dtype)
        return found

    @checked
    def candidate_log_probs(self, xs: Sequence[str], ys: Sequence[str]) -> Float[Tensor, "xs ys"]:
        """Return log p(y | x, r) of every y for every x, the ys read as candidates: through a tree of what they share,
        without gradients, and not normalised; -inf for a y that cannot be an answer. An x that cannot be asked is an
        error."""
        try:
            answers = answers_among(self, self.answer_kind or kind_without_facts(self), candidates_of(ys))
        except NothingLeft:
            return self.vectors.new_full((len(xs), len(ys)), -torch.inf)
        return answers.of_each(xs, ys)

    @checked
    def configure_answers(self, relation: Relation, candidates: GivenCandidates = None) -> None:
        """Decide from a relation's facts what counts as an answer, as training does: one token or any length and, for a
        masked LM, how long answers are. With candidates, answers are chosen among them from now on."""
        self.candidates = as_candidates(candidates)
        whole = self.candidates is not None
        self.answer_kind = self.encode_relation(relation, candidates=self.candidates, whole_answers=whole).kind

    @checked
    def embed(self, x: str) -> EmbeddedPrompts:
        """Return the prompts with x filled in, as `inputs_embeds` for the LM or for use elsewhere, with gradients."""
        return embed(self, x)

    def save_peft(self, folder: str | Path) -> None:
        """Write a single prompt whose tokens all come before x as a prompt-tuning adapter of PEFT (causal LMs)."""
        save_peft(self, folder)

    @checked
    def transfer(self, lm: FrozenLM, relation: Relation | None = None) -> "Mixture":
        """Return this mixture over another LM: the same prompts and weights, with each vector as far from its word as
        here. Between changed copies of one LM the vectors go over as they are.

        What counts as an answer goes over between copies, and where answers are one token; otherwise the train facts
        of `relation` decide it, as they decide what another LM's sentences begin with. Prompts that the other LM cannot
        be asked with are in `left_out_prompts`.
        """
        spec, copies = self.spec, self.spec.copies
        templates = [prompt.template for prompt in self.prompts[::copies]]
        if not are_copies(self.lm, lm):  # which beginning suits an LM says nothing about another one
            named = MixtureSpec(lead_in=NO_LEAD_IN)
            spec = spec.model_copy(update={"begin": settle(named, lm, relation, templates).begin})
        plain = Mixture(lm, templates, spec.model_copy(update={"shots": 0}))  # which prompts can be used at all
        usable = [prompt.template for prompt in plain.prompts[::copies]]
        first_of = {template.text: number * copies for number, template in enumerate(templates)}
        numbers = [first_of[template.text] + copy for template in usable for copy in range(copies)]
        examples = [self.examples[number] for number in numbers] if self.examples else None
        other = Mixture(lm, usable, spec, examples=examples)
        other.left_out_prompts += plain.left_out_prompts
        other.transferred = carry_over(self, other, numbers)
        other.candidates = self.candidates
        if are_copies(self.lm, lm) or (self.answer_kind is not None and self.answer_kind.fits_any_lm):
            other.answer_kind = self.answer_kind
            if other.lengths is not None and self.lengths is not None:
                other.lengths.load_state_dict(self.lengths.state_dict())
        elif relation is not None:
            other.configure_answers(relation, self.candidates)
        return other

    @checked_or("Mixture.train is torch's switch to training mode; askwell.train(mixture, relation) tunes a mixture")
    def train(self, mode: bool = True) -> "Mixture":
        """Set torch's training mode, as for every module. `askwell.train(mixture, relation)` tunes a mixture."""
        return super().train(mode)

    # ── files, as other models on the Hugging Face hub have them ──────────────────────────────────────────────────

    @classmethod
    def _is_jsonable(cls, value: Any) -> bool:  # noqa: ARG003 - the mixin's signature
        """Tell the mixin to keep no argument of the constructor for its own config.json, which is never written: it
        would copy every fact of a relation one by one."""
        return False

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        about: About | None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **hub_options: Any,
    ) -> str | None:
        """Save the mixture in a folder, with what is known about it. With `push_to_hub`, also upload it to the hub and
        return its address there.

        The mixin's own method would remove the old config.json before the new one is written.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        hub_options.pop("config", None)  # config.json is made from the mixture itself
        of_card = hub_options.pop("model_card_kwargs", None) or {}
        about = about or of_card.get("about") or About()
        about = about.model_copy(update={"transferred": self.transferred})
        write_mixture(self, folder, about, answers=self.answer_kind, candidates=self.candidates)
        return self.push_to_hub(repo_id or folder.name, about=about, **hub_options) if push_to_hub else None

    def push_to_hub(self, repo_id: str, *, about: About | None = None, **hub_options: Any) -> str:
        """Upload the mixture and return its address; paths on this machine are not uploaded."""
        # The mixin passes the card's options on to `save_pretrained`.
        ignored = [LM_PATH, TOKENIZER_PATH, FACTS_PATH]
        hub_options |= {"ignore_patterns": ignored, "model_card_kwargs": {"about": about}}
        return super().push_to_hub(repo_id, **hub_options)

    @classmethod
    @checked
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, lm: FrozenLM | None = None, **hub_options: Any
    ) -> "Mixture":
        """Load a mixture from a folder, a run's folder or the hub, with its LM, which is loaded if it is not given.

        `hub_options` are huggingface_hub's: revision, token, cache_dir, force_download, local_files_only.
        """
        source = mixture_folder(pretrained_model_name_or_path)
        known = read_description(source, **hub_options)
        templates = [prompt.as_template() for prompt in known.prompts]
        mixture = Mixture(base_lm(source, known, lm), templates, known.mixture_spec, examples=known.examples)
        mixture.left_out_prompts += [
            LeftOutPrompt(prompt.as_template(), prompt.reason or "") for prompt in known.left_out_prompts
        ]
        mixture.answer_kind, mixture.candidates = known.answers, known.candidates
        mixture.transferred = known.transferred
        read_state(mixture, source, known, **hub_options)
        return mixture

    def generate_model_card(self, *_args: Any, about: About | None = None, **_options: Any) -> ModelCard:
        """Return the model card: what the mixture asks, how well, and of which LM."""
        return model_card(self, about or About())
