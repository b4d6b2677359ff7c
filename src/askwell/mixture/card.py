"""The model card of a mixture: what it asks, which LM, and how well."""

import json
import re
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from askwell.mixture.description import About
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import NO_LEAD_IN


def model_card(mixture: PromptSet, about: About) -> ModelCard:
    """The card as huggingface_hub keeps it: a header for machines, a text for people."""
    identity = mixture.lm.identity
    header = ModelCardData(
        library_name="askwell",
        base_model=identity.name if mixture.lm.is_from_hub else None,
        tags=["askwell", "soft-prompts", "mixture-of-prompts"],
        license="apache-2.0",
    )
    relation = _plain("a relation" if about.relation is None else about.relation.name)
    kind = "product of experts" if mixture.spec.combine == "product" else "mixture"
    parts = [
        f"---\n{header.to_yaml()}\n---",
        f"# A {kind} of {len(mixture.prompts)} prompts for {relation}",
        f"It asks the frozen LM **{_plain(identity.name)}** ({_plain(identity.architecture)}) and was made by askwell. "
        "The LM's weights are not part of it and were not changed.",
        _usage(mixture),
        "## Prompts\n\n" + _prompt_table(mixture),
        _facts_and_settings(mixture, about),
        "## Scores\n\n" + _score_table(about.scores),
        _lm_table(mixture),
    ]
    return ModelCard("\n\n".join(part for part in parts if part) + "\n", ignore_metadata_errors=False)


def _usage(mixture: PromptSet) -> str:
    source = json.dumps(_visible(mixture.lm.identity.name), ensure_ascii=False)
    return (
        "```python\nimport askwell\n\n"
        f'mixture = askwell.Mixture.from_pretrained("<this folder or repository>", lm=askwell.load_lm({source}))\n'
        'mixture.ask("<x>")\n```'
    )


def _prompt_table(mixture: PromptSet) -> str:
    weights = mixture.weights.tolist()
    order = sorted(range(len(weights)), key=lambda number: (-weights[number], number))
    templates = [_code(prompt.template.text).replace("|", "\\|") for prompt in mixture.prompts]
    rows = [f"| {weights[n]:.4f} | {templates[n]} |" for n in order]
    dependent = "" if mixture.temperature is None else f", with temperature {mixture.temperature:.3g}"
    note = (
        f"Effective number of prompts: {mixture.effective_prompts:.2f} of {len(weights)}. The weights are "
        f"{'exponents' if mixture.spec.combine == 'product' else 'p(t | r)'}"
        f"{f'; they also depend on x{dependent}' if mixture.weighting.reads_x else ''}."
    )
    if mixture.spec.lead_in != NO_LEAD_IN:
        note += f" Every sentence is preceded by {_code(mixture.spec.lead_in)}."
    if mixture.examples:
        note += (
            f" Every prompt shows up to {mixture.spec.shots} train facts before the question; they are "
            "listed in config.json."
        )
    return "\n".join(["| weight | template |", "|---:|---|", *rows]) + f"\n\n{note}"


def _facts_and_settings(mixture: PromptSet, about: About) -> str:
    if about.relation is None and about.learned_from is None:
        return "It is untuned: its prompts are the templates above."
    known = {} if about.learned_from is None else about.learned_from.model_dump()
    known = {"relation": None if about.relation is None else about.relation.model_dump(), **known}
    known["mixture"] = mixture.spec.model_dump()
    lines = [f"- {_plain(name)}: {_plain(_flat(value))}" for name, value in known.items() if value not in (None, ())]
    return "## Learned from\n\n" + "\n".join(lines)


def _score_table(scores: dict[str, Any]) -> str:
    if not scores:
        return "No scores have been measured yet."
    # Whatever was measured is shown, except what comes with the scores.
    beside = {"facts", "vocabulary", "log_loss", "units"}
    metrics = list(dict.fromkeys(name for figures in scores.values() for name in figures if name not in beside))
    rows = [
        f"| {_plain(split)} | {figures['facts']} | {''.join(f'{_or_dash(figures.get(name))} | ' for name in metrics)}"
        f"{_plain(str(figures['vocabulary']))} |"
        for split, figures in scores.items()
    ]
    columns = ["split", "facts", *metrics, "ranked among"]
    header = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(metrics) + 1)}---|"]
    (units, *_) = [figures.get("units", "in per cent") for figures in scores.values()]
    note = f"Means over facts ({units}); other right answers for the same x are left out of the ranking."
    return (
        "\n".join([*header, *rows])
        + f"\n\n{note} The prompts have also learned from the training pairs, so a score is not the same as knowledge."
    )


def _lm_table(mixture: PromptSet) -> str:
    identity = mixture.lm.identity.model_dump()
    lines = (f"- {name.replace('_', ' ')}: {_code(str(value))}" for name, value in identity.items())
    return "## The LM\n\n" + "\n".join(lines)


def _visible(text: str) -> str:
    """A text from outside on one line, with invisible characters as escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _plain(text: str) -> str:
    """A text from outside that stays text: neither HTML nor links, images, code or cells of a table."""
    return "".join(f"&#{ord(one)};" if one in "<>&[]`|" else one for one in _visible(text))


def _code(text: str) -> str:
    """A text from outside as a piece of code, between more backticks than it has in a row."""
    text = _visible(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(inner)}" for name, inner in value.items()) or "none"
    return "default" if value is None else str(value)


def _or_dash(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.1f}"
