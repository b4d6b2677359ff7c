"""What is known about a mixture besides its tensors: the config.json of a saved one, and its model card."""

import json
import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from pydantic import BaseModel, ConfigDict, Field

from askwell.answers.candidates import Candidates
from askwell.data.facts import Fact
from askwell.data.templates import Template, parse_template
from askwell.files import hash_json
from askwell.lms.identity import LMIdentity
from askwell.mixture.learned_from import DevAnswers, LearnedFrom, RelationRecord
from askwell.mixture.transfer import Transferred
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import NO_LEAD_IN, AnswerKind, SettledMixtureSpec
from askwell.views.document import Block, Paragraph, Points, Section, table
from askwell.views.printable import NONE, counted, visible
from askwell.views.to_files import markdown_escaped, markdown_section


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class About(_Part):
    """What is known about a mixture: what it was learned from, and what it scores. It is shown on the model card."""

    relation: RelationRecord | None = None
    """None if nothing was learned."""
    learned_from: LearnedFrom | None = None
    """None if it is untuned."""
    scores: dict[str, dict[str, Any]] = {}
    """What it scores, by the split."""
    transferred: Annotated[Transferred | None, Field(exclude_if=lambda transferred: transferred is None)] = None
    """How it was carried over from another LM, before any further tuning; None if it was not."""
    dev_answers: Annotated[DevAnswers | None, Field(exclude_if=lambda answers: answers is None)] = None
    """How probable its answers to dev questions were, and which were right: thresholds are learned from it."""


class SavedPrompt(_Part):
    """A saved template."""

    template: str
    weight: float | None = None
    """Its weight in the prompt file, if there was one."""
    reason: str | None = None
    """Why it was left out; None for a prompt of the mixture."""

    @classmethod
    def of(cls, template: Template, reason: str | None = None) -> "SavedPrompt":
        """Return a template as it is saved."""
        return cls(template=template.text, weight=template.weight, reason=reason)

    def as_template(self) -> Template:
        """Return the template that was saved."""
        return parse_template(self.template, self.weight)


class Description(About):
    """config.json of a saved mixture."""

    format: Literal["askwell-mixture"] = "askwell-mixture"
    version: Literal[1] = 1
    base_lm: LMIdentity
    base_lm_has_public_name: bool
    """Whether the LM can be loaded by its name."""
    tokenizer: str | None = None
    """The name of the tokenizer, if it is not the one stored with the LM's weights."""
    mixture_spec: SettledMixtureSpec
    prompts: tuple[SavedPrompt, ...]
    left_out_prompts: tuple[SavedPrompt, ...]
    examples: tuple[tuple[Fact, ...], ...] = ()
    """The facts that each prompt shows, in order; empty if none shows any."""
    mixture_weights: tuple[float, ...]
    answers: AnswerKind | None = None
    """What counts as an answer; None for an untuned mixture."""
    candidates: Candidates | None = None
    """What it was tuned to choose from; None if it can answer anything."""
    effective_prompts: float
    temperature: float | None
    """T; None if the weights have none."""
    tensors_sha256: str
    """The hash of mixture.safetensors."""

    @property
    def digest(self) -> str:
        """Return the hash of the whole mixture."""
        return hash_json(self.model_dump(mode="json"))


_BESIDE_SCORES = {"facts", "vocabulary", "log_loss", "units"}
"""What comes with the scores of a split; whatever else was measured is shown."""


# ── the model card ────────────────────────────────────────────────────────────────────────────────────────────────────


def model_card(mixture: PromptSet, about: About) -> ModelCard:
    """Return the card as huggingface_hub keeps it: a header for machines, a text for people."""
    identity = mixture.lm.identity
    results = _eval_results(about)
    header = ModelCardData(
        library_name="askwell",
        model_name=results[0].dataset_name if results else None,
        eval_results=results or None,
        base_model=None if identity.revision is None else identity.name,
        tags=["askwell", "soft-prompts", "mixture-of-prompts"],
        license="apache-2.0",
    )
    relation = "a relation" if about.relation is None else about.relation.name
    kind = "product of experts" if mixture.spec.combine == "product" else "mixture"
    title = f"A {kind} of {counted(len(mixture.prompts), 'prompt')} for {visible(relation)}"
    lead = (
        f"It asks the frozen LM {visible(identity.name)} ({visible(identity.architecture)}) and was made by askwell. "
        "The LM's weights are not part of it and were not changed."
    )
    of_lm = [f"{name.replace('_', ' ')}: {value}" for name, value in identity.model_dump().items()]
    sections = (
        Section("Prompts", tuple(_prompts(mixture))),
        Section("Learned from", (_learned_from(mixture, about),)),
        Section("Scores", tuple(_scores(about.scores))),
        Section("The LM", (Points(tuple(map(visible, of_lm))),)),
    )
    source = json.dumps(visible(identity.name), ensure_ascii=False)
    parts = [
        f"---\n{header.to_yaml()}\n---\n",
        f"# {markdown_escaped(title)}\n",
        f"{markdown_escaped(lead)}\n",
        "```python\nimport askwell\n\n"
        f'mixture = askwell.Mixture.from_pretrained("<this folder or repository>", lm=askwell.load_lm({source}))\n'
        'mixture.ask("<x>")\n```\n',
        *map(markdown_section, sections),
    ]
    return ModelCard("\n".join(parts), ignore_metadata_errors=False)


def _eval_results(about: About) -> list[EvalResult]:
    """Return the test scores as the hub shows them on a model's page; none for what was not scored."""
    found = about.scores.get("test", {})
    if about.relation is None:
        return []
    name_of_facts = re.sub(r"[^\w\s:./-]+", "_", visible(about.relation.name))  # YAML's header has no escapes for HTML
    return [
        EvalResult(
            task_type="question-answering",
            dataset_type=name_of_facts,
            dataset_name=name_of_facts,
            dataset_split="test",
            metric_type=name.lower(),
            metric_name=f"{name} ({found.get('units', 'in per cent')})",
            metric_value=figure,
        )
        for name, figure in found.items()
        if name not in _BESIDE_SCORES and figure is not None
    ]


def _prompts(mixture: PromptSet) -> list[Block]:
    weights = mixture.weights.tolist()
    order = sorted(range(len(weights)), key=lambda number: (-weights[number], number))
    rows = [(f"{weights[number]:.4f}", visible(mixture.prompts[number].template.text)) for number in order]
    dependent = "" if mixture.temperature is None else f", with temperature {mixture.temperature:.3g}"
    note = (
        f"Effective number of prompts: {mixture.effective_prompts:.2f} of {len(weights)}. The weights are "
        f"{'exponents' if mixture.spec.combine == 'product' else 'p(t | r)'}"
        f"{f'; they also depend on x{dependent}' if mixture.weighting.depends_on_x else ''}."
    )
    if mixture.spec.lead_in != NO_LEAD_IN:
        note += f" Every sentence is preceded by “{visible(mixture.spec.lead_in)}”."
    if mixture.examples:
        note += (
            f" Every prompt shows up to {mixture.spec.shots} train facts before the question"
            f"{', the same ones' if mixture.spec.opening == 'shared' else ''}; they are listed in config.json."
        )
    return [table(("weight", "template"), rows, numbers=("weight",), caption=note)]


def _learned_from(mixture: PromptSet, about: About) -> Block:
    if about.relation is None and about.learned_from is None:
        return Paragraph("It is untuned: its prompts are the templates above.")
    known = {} if about.learned_from is None else about.learned_from.model_dump(exclude_defaults=True)
    known = {"relation": None if about.relation is None else about.relation.model_dump(exclude_defaults=True), **known}
    known["mixture"] = mixture.spec.model_dump(exclude_defaults=True)
    known["carried over"] = None if about.transferred is None else asdict(about.transferred)
    return Points(tuple(visible(f"{name}: {_flat(value)}") for name, value in known.items() if value not in (None, ())))


def _scores(scores: dict[str, Any]) -> list[Block]:
    if not scores:
        return [Paragraph("No scores have been measured yet.")]
    metrics = [name for figures in scores.values() for name in figures if name not in _BESIDE_SCORES]
    metrics = list(dict.fromkeys(metrics))
    rows = [
        (
            split,
            str(of["facts"]),
            *(NONE if of.get(name) is None else f"{of[name]:.1f}" for name in metrics),
            visible(str(of["vocabulary"])),
        )
        for split, of in scores.items()
    ]
    (units, *_) = [figures.get("units", "in per cent") for figures in scores.values()]
    note = (
        f"Means over facts ({units}); other right answers for the same x are left out of the ranking. The prompts have "
        "also learned from the training pairs, so a score is not the same as knowledge."
    )
    headings = ("split", "facts", *metrics, "ranked among")
    return [table(headings, rows, numbers=("facts", *metrics), caption=note)]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(inner)}" for name, inner in value.items()) or "the defaults"
    return "default" if value is None else str(value)
