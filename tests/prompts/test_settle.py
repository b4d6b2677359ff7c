"""What a causal LM's sentence begins with: each beginning agrees with the reference, and the best one is chosen."""

from pathlib import Path

import agreement
import pytest
import reference
import torch
from agreement import BEGINS, CAUSAL, Twin, exact, moved, pieces, plain, usable, words, x_ids
from builders import tiny

from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.data.names import load_prompts, load_relation
from askwell.data.templates import parse_template
from askwell.errors import BadOption
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.prompts.context import begin_scores, settle
from askwell.specs.mixture_spec import ContextScores, MixtureSpec, SettledMixtureSpec

XS = ["Reykjavik", "Paris", "Mary Cassatt"]
TEMPLATES = ["The capital of [X] is [Y] .", "[X], its capital is [Y]."]
RELATION = Relation.of("r", [Fact("Paris", "Rome"), Fact("Reykjavik", "Iceland")], [], [Fact("Paris", "Rome")])
PARSED = [parse_template(template) for template in TEMPLATES]
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
        of_x, log_probs = mixture.log_p_x(xs, facts), OneTokenAnswers(mixture).log_probs(xs, facts)
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
    settled, expected = settle(MixtureSpec(), exact(name), RELATION, PARSED), expected_scores(name)
    assert expected[settled.begin] == max(expected.values())
    # Those that come to the same tokens are tried once: BOS and EOS of GPT-2, BOS and nothing where BOS is always put,
    # and a space where it is, too.
    tried = {"eos", "line-break", "space"} if name == "llama-metaspace" else {"eos", "line-break", "space", "nothing"}
    scores = settled.context_scores.begins
    assert set(scores) == tried
    for begin, score in scores.items():
        assert score == pytest.approx(expected[begin], abs=1e-9)


def test_without_facts_to_choose_by_the_default_is_fixed() -> None:
    lm = exact("gpt2")
    fixed = SettledMixtureSpec(begin="line-break")
    assert settle(MixtureSpec(), lm) == settle(MixtureSpec(), lm, RELATION, []) == fixed
    assert Mixture(lm, TEMPLATES).spec == fixed
    chosen = settle(MixtureSpec(), lm, RELATION, PARSED)
    assert chosen.begin != "line-break"
    assert Mixture(lm, TEMPLATES, relation=RELATION).spec == chosen
    assert Mixture(lm, TEMPLATES).spec == fixed, "nothing is kept for later mixtures"
    assert settle(MixtureSpec(seed=3), lm, RELATION, PARSED) == chosen.model_copy(update={"seed": 3})
    named = settle(spec("eos", lead_in="none"), lm, RELATION, PARSED)
    assert (named.begin, named.context_scores) == ("eos", ContextScores())


@pytest.mark.parametrize("lm", ["gpt2", "testbed:causal"])
def test_the_choice_does_not_depend_on_what_was_done_before(
    lm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a fresh cache folder, and in one in which other relations have been asked."""
    loaded = exact(lm) if lm in CAUSAL else load_lm(lm, device="cpu")
    capital, other = (load_relation(f"testbed:{name}") for name in ("capital", "language"))
    templates = load_prompts(["testbed:paraphrased"], relation=capital)
    chosen = []
    for folder, before in (("fresh", []), ("used", [other, RELATION])):
        monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path / folder))
        for relation in before:
            Mixture(loaded, TEMPLATES, relation=relation)
        chosen.append(Mixture(loaded, templates, relation=capital).spec)
    assert chosen[0] == chosen[1]
    assert chosen[0].context_scores.begins
    assert not (tmp_path / "fresh").exists()


def test_a_settled_spec_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = exact("gpt2")
    monkeypatch.setattr("askwell.prompts.context.begin_scores", lambda *_: pytest.fail("chosen again"))
    settled = SettledMixtureSpec(begin="eos", lead_in="Fact :")
    assert Mixture(lm, TEMPLATES, settled, relation=RELATION).spec == settled
    with pytest.raises(ValueError, match="not settled"):
        SettledMixtureSpec(begin="eos", lead_in="auto")


def test_facts_and_prompts_that_cannot_be_asked_do_not_choose() -> None:
    lm = exact("gpt2")
    long = Relation.of("long", [Fact("Paris " * tiny.POSITIONS, "Rome"), Fact("Paris", "z" * 11)], [], [])
    for relation, templates in ((long, PARSED), (RELATION, [parse_template("[Y] is [X]")]), (RELATION, [])):
        assert begin_scores(lm, relation, templates) == {}
    mixed = Relation.of("mixed", [*long.train, *RELATION.train], [], [])
    with_one_more = [*PARSED, parse_template("[Y] is [X]")]
    assert begin_scores(lm, mixed, with_one_more) == begin_scores(lm, RELATION, PARSED)


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
    assert settle(MixtureSpec(), lm, RELATION, PARSED) == SettledMixtureSpec(begin="space")
    with pytest.raises(BadOption, match=f"`begin` bos is for causal LMs, but {name} is a"):
        Mixture(lm, TEMPLATES, spec("bos"))


def test_a_saved_mixture_keeps_its_beginning(tmp_path: Path) -> None:
    lm = exact("gpt2")
    mixture = moved(lm, TEMPLATES, spec("eos"))
    mixture.save_pretrained(tmp_path)
    loaded = Mixture.from_pretrained(tmp_path, lm)
    assert loaded.spec.begin == "eos"
    assert torch.equal(
        OneTokenAnswers(loaded).log_probs(*words(lm, XS)), OneTokenAnswers(mixture).log_probs(*words(lm, XS))
    )
