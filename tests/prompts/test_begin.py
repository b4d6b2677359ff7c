"""What a causal LM's sentence begins with: each beginning agrees with the reference, and the best one is chosen."""

import json
from pathlib import Path

import agreement
import pytest
import reference
import torch
from agreement import BEGINS, CAUSAL, Twin, exact, moved, pieces, plain, usable, words, x_ids
from builders import tiny

from askwell.data.facts import Fact, Relation
from askwell.data.templates import parse_template
from askwell.errors import BadOption
from askwell.lms.frozen import FrozenLM
from askwell.mixture import distributions
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import load_mixture, save_mixture
from askwell.prompts.begin import choose_begin, known_choice, resolve_begin
from askwell.specs.mixture_spec import MixtureSpec

XS = ["Reykjavik", "Paris", "Mary Cassatt"]
TEMPLATES = ["The capital of [X] is [Y] .", "[X], its capital is [Y]."]
RELATION = Relation.of("r", [Fact("Paris", "Rome"), Fact("Reykjavik", "Iceland")], [], [Fact("Paris", "Rome")])
EXAMPLES = [(RELATION, [parse_template(template) for template in TEMPLATES])]
Y_TOKENS = {"Rome": "ĠRome", "Iceland": "ĠIce land"}


def spec(begin: str, **others: object) -> MixtureSpec:
    return MixtureSpec.model_validate({"begin": begin, **others})


@pytest.mark.parametrize("begin", ["nothing", "space", "bos", "eos", "line-break"])
@pytest.mark.parametrize("name", CAUSAL)
def test_each_beginning_agrees_with_the_reference(name: str, begin: str) -> None:
    templates = usable(name)
    mixture = moved(exact(name), templates, spec(begin, deep=True, weighting="data-dependent"))
    twin = Twin.of(name, templates, mixture)
    xs, facts = words(exact(name), XS)
    with torch.no_grad():
        of_x, log_probs = distributions.log_p_x(mixture, xs, facts), distributions.log_probs(mixture, xs, facts)
    for number, x in enumerate(XS):
        expected = torch.stack([twin.log_p_x(t, x) for t in range(len(templates))])
        torch.testing.assert_close(of_x[number], expected.detach(), rtol=0, atol=1e-9)
        whole = twin.log_mixture(x, data_dependent=True).detach()
        torch.testing.assert_close(log_probs[number], whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CAUSAL)
def test_what_a_sentence_begins_with_is_not_tuned(name: str) -> None:
    for begin in BEGINS[name]:
        prompt = Mixture(plain(name), ["[X] is [Y]"], spec(begin)).prompts[0]
        assert prompt.token_ids == tuple(agreement.ids(name, "Ġis"))
        assert all(token.prompt_token < 0 for token in prompt.question.streams["layers"].left)


def expected_scores(name: str) -> dict[str, float]:
    """The mean log-probability of the facts' ys under each beginning, pair by pair, without what ends the answer."""
    lm = exact(name)
    scores = {}
    for begin in ("space", *BEGINS[name]):
        total = 0.0
        for template in TEMPLATES:
            written = pieces(name, template, begin)
            vectors = reference.hard_vectors(lm.model, reference.before(written, "y"))
            for fact in RELATION.train:
                x, (*first, last) = x_ids(name, template, fact.x, begin), agreement.ids(name, Y_TOKENS[fact.y])
                if first:  # the last token takes the place of the end
                    asked = (lm.model, lm.tokenizer, "causal", written, x, first, last, vectors)
                    total += float(reference.log_p_answer(*asked))
                else:
                    total += float(reference.log_p_y(lm.model, lm.tokenizer, "causal", written, x, vectors)[last])
        scores[begin] = total / (len(TEMPLATES) * len(RELATION.train))
    return scores


@pytest.mark.parametrize("name", CAUSAL)
def test_the_beginning_that_fits_train_facts_best_is_chosen(name: str) -> None:
    choice, expected = choose_begin(exact(name), EXAMPLES), expected_scores(name)
    assert choice is not None
    assert expected[choice.begin] == max(expected.values())
    # Those that come to the same tokens are tried once: BOS and EOS of GPT-2, BOS and nothing where BOS is always put,
    # and a space where it is, too.
    tried = {"eos", "line-break", "space"} if name == "llama-metaspace" else {"eos", "line-break", "space", "nothing"}
    assert set(choice.log_probabilities) == tried
    for begin, score in choice.log_probabilities.items():
        assert score == pytest.approx(expected[begin], abs=1e-9)
    assert (choice.relations, choice.pairs) == (("r",), 4)


def test_the_choice_is_made_once_for_an_lm(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = exact("gpt2")
    assert resolve_begin(MixtureSpec(), lm).begin == "line-break"  # there is nothing to choose by
    assert known_choice(lm) is None
    chosen = resolve_begin(MixtureSpec(), lm, EXAMPLES)
    choice = known_choice(lm)
    assert choice is not None
    assert choice.begin == chosen.begin
    monkeypatch.setattr("askwell.prompts.begin.choose_begin", lambda *_: pytest.fail("chosen twice"))
    assert resolve_begin(MixtureSpec(seed=3), lm, EXAMPLES) == chosen.model_copy(update={"seed": 3})
    assert Mixture(lm, TEMPLATES).spec.begin == chosen.begin
    assert known_choice(exact("llama")) is None
    assert resolve_begin(spec("eos"), lm, EXAMPLES).begin == "eos"


def test_a_choice_that_cannot_be_read_or_kept_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path))
    lm = exact("gpt2")
    chosen = resolve_begin(MixtureSpec(), lm, EXAMPLES)
    (kept,) = (tmp_path / "begin").iterdir()
    assert json.loads(kept.read_text())["begin"] == chosen.begin
    kept.write_text("half a fil")
    assert resolve_begin(MixtureSpec(), lm, EXAMPLES) == chosen
    assert json.loads(kept.read_text())["begin"] == chosen.begin
    monkeypatch.setenv("ASKWELL_CACHE", "/proc/askwell")
    assert resolve_begin(MixtureSpec(), lm, EXAMPLES) == chosen


def test_facts_and_prompts_that_cannot_be_asked_do_not_choose() -> None:
    lm = exact("gpt2")
    long = Relation.of("long", [Fact("Paris " * tiny.POSITIONS, "Rome"), Fact("Paris", "z" * 11)], [], [])
    unusable = [(long, EXAMPLES[0][1]), (RELATION, [parse_template("[Y] is [X]")]), (RELATION, [])]
    assert choose_begin(lm, unusable) is None
    with_one_more = choose_begin(lm, [*unusable, *EXAMPLES])
    assert with_one_more == choose_begin(lm, EXAMPLES)


def test_a_beginning_that_the_lm_lacks_is_skipped_or_refused() -> None:
    model, tokenizer = tiny.TINY["gpt2"]()
    tokenizer.bos_token = None
    lm = FrozenLM(model, tokenizer, name="without bos")
    assert list(lm.beginnings) == ["line-break", "eos", "nothing", "space"]
    with pytest.raises(BadOption, match="`begin` bos: without bos has no BOS token; choose from line-break, eos"):
        Mixture(lm, TEMPLATES, spec("bos"))


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "bart"])
def test_only_causal_lms_have_a_choice(name: str) -> None:
    lm = plain(name)
    assert Mixture(lm, TEMPLATES).spec.begin == "space"
    assert Mixture(lm, TEMPLATES, spec("space")).spec.begin == "space"
    assert resolve_begin(MixtureSpec(), lm, EXAMPLES).begin == "space"
    assert known_choice(lm) is None
    with pytest.raises(BadOption, match=f"`begin` bos is for causal LMs, but {name} is a"):
        Mixture(lm, TEMPLATES, spec("bos"))


def test_a_saved_mixture_keeps_its_beginning(tmp_path: Path) -> None:
    lm = exact("gpt2")
    mixture = moved(lm, TEMPLATES, spec("eos"))
    save_mixture(mixture, tmp_path)
    resolve_begin(MixtureSpec(), lm, EXAMPLES)  # what is chosen later is not for it
    loaded = load_mixture(tmp_path, lm)
    assert loaded.spec.begin == "eos"
    assert torch.equal(
        distributions.log_probs(loaded, *words(lm, XS)), distributions.log_probs(mixture, *words(lm, XS))
    )
