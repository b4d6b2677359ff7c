"""LPAQA's ensembles of hard prompts: the one that is best on train, and products of all of them.

LPAQA averages the prompts' log-probabilities, so its ensembles are products of experts: with equal exponents, with the
exponents that were published with the prompts, or with exponents that are learned on train (by `askwell.training`).
"""

from collections.abc import Sequence
from typing import Any

from askwell.baselines.dev_score import encode_splits, score_facts
from askwell.errors import NothingLeft
from askwell.facts import Relation
from askwell.lms import FrozenLM
from askwell.mixture import Mixture, MixtureSpec
from askwell.mixture.prompt_set import LeftOutPrompt
from askwell.prompts import Template


def best_on_train(
    lm: FrozenLM, templates: Sequence[Template], relation: Relation, spec: MixtureSpec
) -> tuple[Mixture, list[dict[str, Any]]]:
    """A mixture of the one prompt that answers most train facts, ties broken by log-loss, then by order; and what each
    prompt scores on train. A fact that cannot be asked with a prompt counts as not answered by it."""
    everything = Mixture(lm, templates, spec)
    scored: list[dict[str, Any]] = []
    left_out = list(everything.left_out_prompts)
    for prompt in everything.prompts:
        alone = Mixture(lm, [prompt.template], spec)
        try:
            (facts,), _ = encode_splits(alone, relation, ("train",))
        except NothingLeft as nothing:
            left_out.append(LeftOutPrompt(prompt.template, str(nothing)))
            continue
        scores = score_facts(alone, facts, relation)
        scores["P@1"] *= len(facts) / len(relation.train)
        scored.append({"template": prompt.template, **scores})
    if not scored:
        encode_splits(everything, relation, ("train",))  # says why nothing can be asked
        raise NothingLeft("prompts", {"no train fact can be asked with it": len(left_out)})
    best = min(scored, key=lambda of: (-of["P@1"], float("inf") if of["log_loss"] is None else of["log_loss"]))
    mixture = Mixture(lm, [best["template"]], spec)
    mixture.left_out_prompts += left_out
    return mixture, [{**of, "template": of["template"].text} for of in scored]
