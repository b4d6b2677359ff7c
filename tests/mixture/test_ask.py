"""Asking mixtures: answers, effective prompts, facts that are left out, candidate files."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import ALL, X_FIRST, exact, ids, moved, plain, words
from builders import tiny
from builders.specs import paper_spec

from askwell.answers import one_token
from askwell.answers import open as open_answers
from askwell.answers.candidates import Candidates, load_candidates
from askwell.answers.one_token import OneTokenAnswers
from askwell.answers.reply import NOT_ONE_TOKEN, count_reasons
from askwell.data.facts import Fact
from askwell.errors import BadFile, NotFinite, NothingLeft, UsageError
from askwell.lms.batches import Words
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt_set import NO_TOKENS, TOO_LONG, PromptSet
from askwell.specs.mixture_spec import MixtureSpec

BRACKETED = ["[X] is in [Y] .", "[X] ([Y])"]


def with_weights(weights: list[float]) -> Mixture:
    mixture = Mixture(plain("bert"), [f"[X] {'is ' * (n + 1)}[Y]" for n in range(len(weights))], paper_spec())
    with torch.no_grad():
        mixture.weight_logits.copy_(torch.tensor(weights).log())
    return mixture


@pytest.mark.parametrize(
    ("weights", "effective"),
    [
        ([1.0], 1.0),
        ([0.25] * 4, 4.0),
        ([0.5, 0.5, 0.0], 2.0),
        ([1.0, 0.0], 1.0),
        ([0.5, 0.25, 0.25], 2**1.5),
        ([0.9, 0.1], 2 ** (-0.9 * math.log2(0.9) - 0.1 * math.log2(0.1))),
    ],
)
def test_effective_prompts_are_two_to_the_entropy_of_the_weights(weights: list[float], effective: float) -> None:
    assert with_weights(weights).effective_prompts == pytest.approx(effective, rel=1e-6)


# ask


@pytest.mark.parametrize("spec", [paper_spec(), paper_spec(weighting="data-dependent"), paper_spec(combine="product")])
@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "llama"])
def test_answers_are_those_of_the_distribution(name: str, spec: MixtureSpec) -> None:
    mixture = moved(exact(name), X_FIRST, spec)
    xs, facts = words(exact(name), ["Reykjavik"])
    probabilities = OneTokenAnswers(mixture).log_probs(xs, facts)[0].exp()
    replies = mixture.ask("Reykjavik", top=7)
    assert len(replies) == 7
    best = probabilities.sort(descending=True)
    assert [reply.probability for reply in replies] == pytest.approx(best.values[:7].tolist(), abs=1e-12)
    tokenizer: Any = exact(name).tokenizer
    for reply, token in zip(replies, best.indices.tolist(), strict=False):
        name_of_token = tokenizer.convert_ids_to_tokens(token)
        is_blank = not tokenizer.decode([token]).strip() and set(reply.y) <= set("␣↵")
        assert reply.y == tokenizer.decode([token]).strip() or reply.y in name_of_token or is_blank
        each = [float(mixture.word_log_probs(xs, facts, t)[0, token].exp()) for t in range(len(X_FIRST))]
        assert list(reply.by_prompt) == pytest.approx(each, abs=1e-12)
        if spec == paper_spec():
            together = sum(w * p for w, p in zip(mixture.weights.tolist(), reply.by_prompt, strict=True))
            assert reply.probability == pytest.approx(together, abs=1e-12)


def test_all_answers_sum_to_one_in_two_forms() -> None:
    mixture = moved(exact("roberta"), BRACKETED)
    replies = mixture.ask("Paris", top=10_000)
    special = torch.tensor(sorted(set(mixture.lm.tokenizer.all_special_ids)))
    # All but the special tokens, which are no answers at either place.
    numbers = (mixture.token_words.tokens[:, :, None] == special).any(0).any(1)
    assert len(replies) == mixture.token_words.count - 2 * len(special)
    xs, only = words(mixture.lm, ["Paris"])
    rest = []
    for prompt in range(2):
        of_tokens = mixture.word_log_probs(xs, only, prompt)[0].exp()
        rest.append(1 - float(of_tokens[numbers].sum()))
        assert sum(reply.by_prompt[prompt] for reply in replies) == pytest.approx(rest[-1], abs=1e-9)
    expected = float(mixture.weights.detach() @ torch.tensor(rest, dtype=torch.float64))
    assert sum(reply.probability for reply in replies) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["roberta", "llama-metaspace", "albert"])
def test_one_answer_stands_for_both_forms(name: str) -> None:
    mixture = moved(exact(name), BRACKETED)
    rome = "rome" if name == "albert" else "Rome"
    replies = [reply for reply in mixture.ask("Paris", top=10_000) if reply.y == rome]
    given = [reply for reply in replies if all(reply.by_prompt)]
    assert len(given) == 1, "each prompt gives Rome in its own form"
    mark = "▁" if name == "albert" else "Ġ"
    spaced, glued = ids(name, f"{mark}{rome} {rome}")
    alone = [Mixture(exact(name), [template], paper_spec()) for template in BRACKETED]
    counts = [len(prompt.token_ids) for prompt in mixture.prompts]
    for single, vectors in zip(alone, mixture.vectors.split(counts), strict=True):
        single.vectors.data.copy_(vectors)
    xs, facts = words(exact(name), ["Paris"])
    read = [
        float(single.word_log_probs(xs, facts, 0)[0, token].exp())
        for single, token in zip(alone, (spaced, glued), strict=True)
    ]
    assert list(given[0].by_prompt) == pytest.approx(read, abs=1e-12)


@pytest.mark.parametrize("name", ["roberta", "llama", "albert"])
def test_prompts_that_all_need_the_glued_form(name: str) -> None:
    mixture = Mixture(exact(name), ["[X] ([Y])", "[X], a city ([Y])."], paper_spec())
    encoded, left_out = mixture.encode([Fact("Paris", y) for y in ("Rome", "Italy", "Cuba")])
    assert [fact.y for fact in encoded.facts] == ["Rome", "Cuba"]
    assert [fact.fact.y for fact in left_out] == ["Italy"]
    glued = ids(name, "rome cuba" if name == "albert" else "Rome Cuba")
    gold = mixture.pairs.gold_log_probs(mixture.tuned, encoded.xs, encoded.gold_tokens, torch.arange(2))
    for prompt in range(2):
        everything = mixture.word_log_probs(encoded.xs, torch.arange(2), prompt)
        assert everything.shape == (2, len(exact(name).tokenizer))
        expected = everything[torch.arange(2), torch.tensor(glued)]
        torch.testing.assert_close(gold[:, prompt].detach(), expected)


def test_equally_probable_answers_keep_their_order() -> None:
    tiny_lm: Any = tiny.TINY["bert"]()
    model, tokenizer = tiny_lm
    with torch.no_grad():
        for parameter in model.cls.parameters():
            parameter.zero_()
    mixture = Mixture(FrozenLM(model, tokenizer), ["[X] is [Y]"], paper_spec())
    first = mixture.ask("Paris", top=5)
    assert len({reply.probability for reply in first}) == 1
    ids = [token for token in range(100) if token not in tokenizer.all_special_ids][:5]
    assert [reply.y for reply in first] == [name.removeprefix("##") for name in tokenizer.convert_ids_to_tokens(ids)]


def test_an_x_that_is_too_long_is_refused() -> None:
    mixture = Mixture(plain("bert"), ["[X] is [Y]"], paper_spec())
    # [CLS] x is [MASK] [SEP] are 4 tokens beside x.
    assert mixture.ask(" ".join(["Rome"] * 60))
    with pytest.raises(UsageError, match="cannot be asked: x is longer"):
        mixture.ask(" ".join(["Rome"] * 61))


def test_an_empty_x_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be asked: x has no token"):
        Mixture(plain("bert"), ["[X] is [Y]"], paper_spec()).ask(" ")


def test_a_prompt_that_gives_nan_is_named() -> None:
    mixture = Mixture(FrozenLM(*tiny.TINY["bert"](), name="tiny-bert"), ["[X] is [Y]", "[X] was [Y]"], paper_spec())
    with torch.no_grad():
        mixture.vectors[1] = torch.nan
    with pytest.raises(NotFinite, match=r"tiny-bert.*'\[X\] was \[Y\]'"):
        mixture.ask("Paris")


# Facts that are left out


@pytest.mark.parametrize("name", ALL)
def test_facts_that_are_left_out_and_why(name: str) -> None:
    mixture = Mixture(plain(name), ["[X] is in [Y] ."], paper_spec())
    facts = [
        Fact("Paris", "Rome"),
        Fact("Paris", "Massachusetts"),
        Fact(" ".join(["Paris"] * 200), "Rome"),
        Fact("Reykjavik", "Italy"),
        Fact(" ".join(["Paris"] * 200), "Boston"),
    ]
    encoded, left_out = mixture.encode(facts)
    assert encoded.facts == (facts[0], facts[3])
    assert [(fact.fact, fact.reason) for fact in left_out] == [
        (facts[1], NOT_ONE_TOKEN),
        (facts[2], TOO_LONG),
        (facts[4], NOT_ONE_TOKEN),
    ]
    assert count_reasons(left_out) == {NOT_ONE_TOKEN: 2, TOO_LONG: 1}


@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "gpt2"])
def test_the_longest_x_that_fits(name: str) -> None:
    """What stands beside x: special tokens or a line break, and the prompt up to where the LM reads."""
    beside = {"bert": 2 + 2 + 1 + 1, "roberta": 2 + 2 + 1 + 1, "bart": 2 + 2 + 1 + 1, "gpt2": 1 + 2}[name]
    mixture = Mixture(plain(name), ["[X] is in [Y] ."], paper_spec())
    most = tiny.POSITIONS - beside
    facts = [Fact(" ".join(["Paris"] * length), "Rome") for length in (most, most + 1)]
    encoded, left_out = mixture.encode(facts)
    assert encoded.facts == (facts[0],)
    assert [fact.reason for fact in left_out] == [TOO_LONG]
    assert OneTokenAnswers(mixture).log_probs(encoded.xs, torch.arange(1)).isfinite().all()


def test_a_data_dependent_causal_mixture_counts_its_start_token() -> None:
    """GPT-2 puts no token before a text, but p(x | t) needs one."""
    spec = paper_spec(weighting="data-dependent", begin="nothing")
    mixture = Mixture(plain("gpt2"), ["[X] [Y]"], spec)
    facts = [Fact(" ".join(["Paris"] * length), "Rome") for length in (63, 64)]
    encoded, left_out = mixture.encode(facts)
    assert encoded.facts == (facts[0],)
    assert [fact.reason for fact in left_out] == [TOO_LONG]
    assert OneTokenAnswers(mixture).log_probs(encoded.xs, torch.arange(1)).isfinite().all()


def test_an_x_without_tokens_is_left_out() -> None:
    mixture = Mixture(plain("bert"), ["[X] is [Y]"], paper_spec())
    encoded, left_out = mixture.encode([Fact("\u200b", "Rome"), Fact("Paris", "Rome")])
    assert [fact.x for fact in encoded.facts] == ["Paris"]
    assert [fact.reason for fact in left_out] == [NO_TOKENS]


def test_no_facts_at_all() -> None:
    encoded, left_out = Mixture(plain("bert"), ["[X] is [Y]"], paper_spec()).encode([])
    assert len(encoded) == 0
    assert left_out == []


def test_a_subset_keeps_what_belongs_together() -> None:
    mixture = Mixture(plain("roberta"), ["[X] is [Y]"], paper_spec())
    facts = [Fact("Paris", "Rome"), Fact("Reykjavik", "Italy"), Fact("Oslo", "Peru")]
    encoded, _ = mixture.encode(facts)
    kept = encoded.subset(torch.tensor([False, True, True]))
    again, _ = mixture.encode(facts[1:])
    assert kept.facts == again.facts
    assert torch.equal(kept.answers, again.answers)
    assert torch.equal(kept.gold_tokens, again.gold_tokens)
    assert torch.equal(kept.xs.lengths, again.xs.lengths)


# Candidates


def test_candidates_are_read_once_each(tmp_path: Path) -> None:
    path = tmp_path / "cities.txt"
    path.write_bytes("\ufeffRome\r\n\r\n  Lima \nRome\nReykjavik\n".encode())
    candidates = load_candidates(path)
    assert (candidates.name, candidates.words) == ("cities", ("Rome", "Lima", "Reykjavik"))
    assert candidates.digest == Candidates("other", ("Lima", "Reykjavik", "Rome")).digest
    assert candidates.digest != Candidates("cities", ("Rome", "Lima")).digest
    mixture = Mixture(plain("bert"), ["[X] is [Y]"], paper_spec())
    answers = OneTokenAnswers(mixture, candidates)
    assert [answers.word(number) for number in range(answers.count)] == ["Rome", "Lima"]
    assert answers._allowed is not None
    assert answers._allowed.tolist() == sorted(ids("bert", "Rome Lima"))
    assert answers.candidates_left_out == ("Reykjavik",)


def test_candidate_files_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"missing\.txt: there is no such file"):
        load_candidates(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(BadFile, match=r"empty\.txt: holds no words"):
        load_candidates(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes("Malm\xf6".encode("latin-1"))
    with pytest.raises(BadFile, match=r"latin\.txt.*not UTF-8"):
        load_candidates(tmp_path / "latin.txt")
    with pytest.raises(BadFile, match="is a folder; name a file"):
        load_candidates(tmp_path)
    with pytest.raises(NothingLeft, match="no candidates left: 2 × word is not one token"):
        OneTokenAnswers(
            Mixture(plain("bert"), ["[X] is [Y]"], paper_spec()), Candidates("none", ("Reykjavik", "Boston"))
        )


def test_asking_among_candidates() -> None:
    mixture = moved(exact("roberta"), BRACKETED)
    everything = {reply.y: reply for reply in mixture.ask("Paris", top=10_000) if all(reply.by_prompt)}
    candidates = Candidates("cities", ("Rome", "Lima", "Reykjavik", "Quito"))
    replies = mixture.ask("Paris", candidates=candidates)
    cities = sorted(("Rome", "Lima", "Quito"), key=lambda y: -everything[y].probability)
    assert [reply.y for reply in replies] == cities
    # Nothing else can be answered, so what all candidates have together is one.
    total = sum(everything[y].probability for y in cities)
    of_prompts = [sum(everything[y].by_prompt[t] for y in cities) for t in range(2)]
    for reply in replies:
        assert reply.probability == pytest.approx(everything[reply.y].probability / total, abs=1e-12)
        expected = [p / of_prompt for p, of_prompt in zip(everything[reply.y].by_prompt, of_prompts, strict=True)]
        assert reply.by_prompt == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_first_answers_come_before_the_last_x_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more x's are put into tensors than are asked at once, however many there are."""
    mixture = Mixture(FrozenLM(*tiny.TINY[name]()), ["[X] is in [Y] ."])
    padded: list[int] = []
    words_of = PromptSet.words_of

    def counted(prompts: PromptSet, xs: Sequence[str]) -> Words:
        padded.append(len(xs))
        return words_of(prompts, xs)

    monkeypatch.setattr(PromptSet, "words_of", counted)
    monkeypatch.setattr(one_token, "_NUMBERS_OF_ANSWERS", 4 * mixture.token_words.count)
    monkeypatch.setattr(open_answers, "_FACTS_AT_ONCE", 4)
    found = mixture.replies(["Paris"] * 13)
    assert next(found)
    assert padded == [4]
    assert len(list(found)) == 12
    assert padded == [4, 4, 4, 1]
