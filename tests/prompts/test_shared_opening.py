"""A shared opening: the public model on the written-out text, and the same with and without sharing."""

import pytest
import torch
from agreement import ALL, CAUSAL, exact, plain, script, words
from builders.worlds import frozen
from test_examples import RELATION, TEMPLATES, few_shot_text, shot_spec, usable, written
from written_out import next_log_probs

from askwell.data.facts import Fact
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt import token_rows


def shared_text(name: str, template: str, examples: tuple[Fact, ...], x: str) -> tuple[str, str]:
    """The examples in the words of the first prompt and the question in those of another, up to y and from y on."""
    question = template.replace("[X]", x)
    before, after = few_shot_text(name, TEMPLATES[0], examples, x)
    of_first = TEMPLATES[0].replace("[X]", x).split("[Y]")
    assert (before + after).count(written(TEMPLATES[0], examples[0])) == 1
    opening = before[: before.rindex(of_first[0].rstrip(" "))]
    until, after = question.split("[Y]")
    return opening + (until.rstrip(" ") if name in CAUSAL else until), after


@pytest.mark.parametrize("name", ALL)
def test_a_shared_opening_is_the_public_model_on_the_written_out_text(name: str) -> None:
    lm = plain(name)
    mixture = Mixture(lm, usable(name), shot_spec(name, opening="shared"), relation=RELATION)
    xs = ["Reykjavik", "Mary Cassatt", "Egypt"]
    encoded, facts = words(lm, xs)
    for number, template in enumerate(usable(name)):
        if template.startswith("[Y]") and script(name) == "byte-level":  # the public mask swallows the line break
            continue
        ours = mixture.word_log_probs(encoded, facts, number)
        for fact, x in enumerate(xs):
            before, after = shared_text(name, template, mixture.examples[0], x)
            expected = next_log_probs(name, lm.model, lm.tokenizer, before, after)
            if len(mixture.token_words.places) > 1:
                expected = expected[mixture.token_words.tokens[mixture.pairs.y_places[number]]]
            torch.testing.assert_close(ours[fact], expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_mixture_with_a_shared_opening_is_saved_and_loaded(name: str, tmp_path) -> None:
    lm = frozen(name)
    mixture = Mixture(lm, usable(name), shot_spec(name, opening="shared"), relation=RELATION)
    with torch.no_grad():
        mixture.vectors.add_(0.1 * torch.randn(mixture.vectors.shape, generator=torch.Generator().manual_seed(1)))
    mixture.save_pretrained(tmp_path / "saved")
    loaded = Mixture.from_pretrained(tmp_path / "saved", lm=lm)
    assert loaded.examples == mixture.examples
    encoded, facts = words(lm, ["Egypt", "Cuba"])
    for number in range(len(mixture.prompts)):
        torch.testing.assert_close(
            loaded.word_log_probs(encoded, facts, number), mixture.word_log_probs(encoded, facts, number)
        )


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("answers", ["one-token", "any-length"])
@pytest.mark.parametrize("name", CAUSAL)
def test_sharing_changes_neither_values_nor_gradients(name: str, answers: str, deep: bool) -> None:
    lm = exact(name)
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


@pytest.mark.parametrize("opening", ["own", "shared"])
@pytest.mark.parametrize("name", CAUSAL)
def test_what_is_read_once_while_nothing_changes_gives_the_same(name: str, opening: str) -> None:
    lm = exact(name)
    mixture = Mixture(lm, usable(name), shot_spec(name, opening=opening), relation=RELATION)
    encoded, facts = words(lm, ["Egypt", "Cuba", "Mary Cassatt"])
    asked = [facts, facts[:2], facts]
    lm.may_share_prefixes = False
    try:
        apart = [mixture.word_log_probs(encoded, some, number) for some in asked for number in (0, 1)]
    finally:
        lm.may_share_prefixes = True
    with mixture.pairs.keeping(encoded, unchanged=True):
        once = [mixture.word_log_probs(encoded, some, number) for some in asked for number in (0, 1)]
    for one, other in zip(once, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CAUSAL)
def test_every_prompt_shows_the_same_examples_with_the_same_vectors(name: str) -> None:
    mixture = Mixture(frozen(name), usable(name), shot_spec(name, opening="shared"), relation=RELATION)
    assert mixture.examples[0] == mixture.examples[1]
    assert mixture.spec.opening_template == TEMPLATES[0]
    opening = mixture.prompts[0].tokens.opening
    first, second = token_rows(mixture.prompts)
    assert first[:opening] == second[:opening] == tuple(range(opening))
    assert len(mixture.vectors) == sum(len(prompt.token_ids) for prompt in mixture.prompts) - opening
