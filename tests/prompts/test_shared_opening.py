"""A shared opening: the public model on the written-out text, and the same with and without sharing."""

import pytest
import torch
from agreement import CAUSAL
from builders.worlds import frozen
from test_examples import RELATION, TEMPLATES, shot_spec, usable

from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt import token_rows


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("answers", ["one-token", "any-length"])
@pytest.mark.parametrize("name", CAUSAL)
def test_sharing_changes_neither_values_nor_gradients(name: str, answers: str, deep: bool) -> None:
    lm = frozen(name)
    mixture = Mixture(
        lm, usable(name), shot_spec(name, opening="shared", deep=deep, answers=answers), relation=RELATION
    )
    shown = {fact.x for fact in mixture.examples[0]}
    facts = [fact for fact in RELATION.train if fact.x not in shown]
    found = []
    for shares in (True, False):
        lm.may_share_prefixes = shares
        mixture.zero_grad()
        try:
            total = mixture([fact.x for fact in facts], [fact.y for fact in facts])
            total.sum().backward()
        finally:
            lm.may_share_prefixes = True
        found.append([total.detach(), *(p.grad.clone() for p in mixture.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 2
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_every_prompt_shows_the_same_examples_with_the_same_vectors(name: str) -> None:
    mixture = Mixture(frozen(name), usable(name), shot_spec(name, opening="shared"), relation=RELATION)
    assert mixture.examples[0] == mixture.examples[1]
    assert mixture.spec.opening_template == TEMPLATES[0]
    opening = mixture.prompts[0].tokens.opening
    first, second = token_rows(mixture.prompts)
    assert first[:opening] == second[:opening] == tuple(range(opening))
    assert len(mixture.vectors) == sum(len(prompt.token_ids) for prompt in mixture.prompts) - opening
