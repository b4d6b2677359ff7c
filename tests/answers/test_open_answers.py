"""Evaluation of answers of any length agrees with the enumeration of all strings, on a tiny LM of each family."""

import math
from pathlib import Path

import pytest
import torch
from agreement import exact
from enumeration import (
    ONE_OF_EACH,
    TEMPLATES,
    by_prompt,
    end_of,
    enumerated,
    every_answer,
    few_tokens,
    product_steps,
    rank_among,
    spellings,
)
from reference import brute_metrics

from askwell.data.facts import Fact, Relation
from askwell.evaluation.comparison import compare
from askwell.evaluation.examine import evaluate_split, examine
from askwell.evaluation.metrics import METRICS
from askwell.evaluation.outcomes import read_controls, read_outcomes, write_controls, write_outcomes
from askwell.evaluation.scoring import score_facts
from askwell.files import to_json

TRAIN = [Fact("Cuba", "Rome"), Fact("Paris", "Rome"), Fact("Cuba", "Cassatt"), Fact("Cuba", "Rome Cassatt")]
COUNTS = (2, 1, 1)
"""How many of these ys have one, two and three tokens."""


def answers_to(name: str, x: str, *, data_dependent: bool = False) -> dict[str, float]:
    return enumerated(name, x, COUNTS, data_dependent=data_dependent)


def relation_of(*test: tuple[str, str]) -> Relation:
    return Relation.of("r", TRAIN, [Fact("Cuba", "Rome")], [Fact(x, y) for x, y in test])


def golds_of(relation: Relation, x: str) -> set[str]:
    """All right answers for x, gathered here."""
    return {fact.y for split in (relation.train, relation.dev, relation.test) for fact in split if fact.x == x}


@pytest.mark.parametrize(("name", "weighting"), [*((n, "static") for n in ONE_OF_EACH), ("gpt2", "data-dependent")])
def test_ranks_probabilities_and_best_answers_are_those_of_enumeration(name, weighting):
    depends = weighting == "data-dependent"
    of_paris, of_mary = (answers_to(name, x, data_dependent=depends) for x in ("Paris", "Mary Cassatt"))
    best = [y for y in of_paris if y != "Rome"]
    chosen = [("Paris", best[at]) for at in (0, 2, 9, 10, 12, 30)] + [
        ("Mary Cassatt", list(of_mary)[at]) for at in (3,)
    ]
    relation = relation_of(*chosen)
    mixture, _ = few_tokens(name, weighting=weighting)
    found = evaluate_split(mixture, relation)
    assert (found.answers, found.unsettled, found.left_out) == ("any-length", 0, ())
    assert found.vocabulary == f"all answers of up to 3 tokens of {name}"
    assert {(outcome.x, outcome.y) for outcome in found.outcomes} == {*chosen}
    ranks = []
    for outcome in found.outcomes:
        expected = of_paris if outcome.x == "Paris" else of_mary
        golds = golds_of(relation, outcome.x)
        ranks.append(rank_among(expected, outcome.y, sorted(golds - {outcome.y})))
        assert outcome.rank == ranks[-1]
        assert outcome.raw_rank == rank_among(expected, outcome.y)
        assert set(outcome.golds) == golds
        assert outcome.log_probability == pytest.approx(expected[outcome.y], abs=1e-9)
        assert outcome.answers == tuple(expected)[:10]
        assert outcome.probabilities == pytest.approx([math.exp(p) for p in expected.values()][:10], rel=1e-9)
    assert math.inf in ranks
    assert found.micro == pytest.approx(brute_metrics(ranks))
    without = evaluate_split(mixture, relation, top=0)  # looks only for what is better than y
    assert (without.unsettled, {outcome.answers for outcome in without.outcomes}) == (0, {()})
    for outcome, same in zip(without.outcomes, found.outcomes, strict=True):
        assert (outcome.rank, outcome.raw_rank) == (same.rank, same.raw_rank)
        assert outcome.log_probability == pytest.approx(same.log_probability, abs=1e-9)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_where_only_the_best_answer_matters_later_ranks_are_bounds(name):
    of_paris = answers_to(name, "Paris")
    chosen = [y for y in of_paris if y != "Rome"]
    for of_x in (chosen[:1], [chosen[1]], [chosen[2], chosen[0]], [chosen[12]]):
        relation = relation_of(*(("Paris", y) for y in of_x))
        mixture, _ = few_tokens(name)
        examined = examine(mixture, relation, ["test"], top=1, best_only=True, controls=False, prompts=False)
        found = examined.evaluations["test"]
        for outcome in found.outcomes:
            rank = rank_among(of_paris, outcome.y, sorted(golds_of(relation, "Paris") - {outcome.y}))
            assert METRICS["P@1"].is_known(outcome)
            assert (outcome.rank == 1) == (rank == 1)
            assert outcome.rank <= rank <= outcome.rank_at_most
            assert outcome.answers == (next(iter(of_paris)),)
            assert outcome.log_probability == pytest.approx(of_paris[outcome.y], abs=1e-9)


@pytest.mark.parametrize("place", [10, 11])
def test_ranks_behind_the_tenth_are_infinite(place):
    y = list(answers_to("gpt2", "Mary Cassatt"))[place - 1]
    (outcome,) = evaluate_split(few_tokens("gpt2")[0], relation_of(("Mary Cassatt", y)), top=2).outcomes
    assert outcome.answers == tuple(answers_to("gpt2", "Mary Cassatt"))[:2]
    assert outcome.rank == outcome.raw_rank == (10 if place == 10 else math.inf)
    assert outcome.log_probability == pytest.approx(answers_to("gpt2", "Mary Cassatt")[y], abs=1e-9)


def test_what_is_infinite_counts_nothing_and_comes_back_from_its_file(tmp_path: Path):
    order = list(answers_to("gpt2", "Mary Cassatt"))
    relation = relation_of(("Mary Cassatt", order[1]), ("Paris", list(answers_to("gpt2", "Paris"))[25]))
    found = evaluate_split(few_tokens("gpt2")[0], relation)
    assert sorted(outcome.rank for outcome in found.outcomes) == [2, math.inf]
    assert found.micro == {"P@1": 0, "P@10": 50, "MRR": 25}
    assert found.figures().raw["micro"]["MRR"] == 25
    write_outcomes(found.outcomes, tmp_path / "facts.parquet")
    assert read_outcomes(tmp_path / "facts.parquet") == list(found.outcomes)
    write_controls({"prior": {"test": found.outcomes}}, tmp_path / "controls.parquet")
    kept = read_controls(tmp_path / "controls.parquet")["prior"]["test"]
    assert [outcome.rank for outcome in kept] == [outcome.rank for outcome in found.outcomes]


def limited(monkeypatch: pytest.MonkeyPatch, opened: int, most: int | None = None) -> None:
    """Lets searches open only so many prefixes of a fact, and only so many where its rank is not known by then."""
    monkeypatch.setattr("askwell.answers.open._OPENED", opened)
    monkeypatch.setattr("askwell.answers.open._MOST_OPENED", opened if most is None else most)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_search_that_is_cut_leaves_bounds_that_hold_the_rank(name, monkeypatch):
    of_paris = answers_to(name, "Paris")
    relation = relation_of(*(("Paris", y) for y in list(of_paris)[:8]), ("Paris", list(of_paris)[14]))
    others = golds_of(relation, "Paris")
    exact = {y: (rank_among(of_paris, y, sorted(others - {y})), rank_among(of_paris, y)) for y in others}
    unsettled = []
    for opened in (1, 3, 6, 200):
        limited(monkeypatch, opened)
        for top in (10, 0):
            found = evaluate_split(few_tokens(name)[0], relation, top=top)
            for outcome in found.outcomes:
                rank, raw_rank = exact[outcome.y]
                raw = outcome.with_raw_rank()
                assert outcome.rank <= rank <= outcome.rank_at_most
                assert raw.rank <= raw_rank <= raw.rank_at_most
            worst = [outcome.rank_at_most for outcome in found.outcomes]
            best = [outcome.rank for outcome in found.outcomes]
            count = sum(low != high for low, high in zip(best, worst, strict=True))
            assert found.figures().unsettled == found.unsettled == count
            assert found.micro == pytest.approx(brute_metrics(best))
            assert found.at_worst == (pytest.approx(brute_metrics(worst)) if count else None)
            unsettled.append(count)
    assert unsettled[-1] == unsettled[-2] == 0
    if name != "bert":  # whose answers of one token are all found when their one mask is filled in
        assert unsettled[0]


def test_bounds_are_said_kept_in_files_and_left_out_of_comparisons(tmp_path: Path, monkeypatch):
    of_paris = answers_to("gpt2", "Paris")
    chosen = [("Paris", list(of_paris)[at]) for at in (0, 2, 30, 32)]
    relation = relation_of(*chosen, *((x, y) for x in ("Cuba", "Oslo", "Mary Cassatt") for _, y in chosen[:1]))
    mixture = few_tokens("gpt2")[0]
    whole = evaluate_split(mixture, relation)
    assert "at_worst" not in to_json(whole.figures())
    assert whole.figures().bounds_text == ""
    limited(monkeypatch, 4)
    cut = evaluate_split(mixture, relation)
    figures = cut.figures()
    assert 0 < figures.unsettled < len(relation.test)
    low, high = (METRICS["P@10"].text(scores["P@10"]) for scores in (figures.at_worst or {}, figures.micro))
    assert f"P@10 between {low} and {high}" in figures.bounds_text
    assert figures.bounds_text.endswith(f"the search for answers was cut for {figures.unsettled} facts")
    assert figures.bounds_text in repr(cut)
    assert to_json(figures)["at_worst"] == cut.at_worst
    write_outcomes(cut.outcomes, tmp_path / "facts.parquet")
    assert read_outcomes(tmp_path / "facts.parquet") == list(cut.outcomes)
    write_controls({"prior": {"test": cut.outcomes}}, tmp_path / "controls.parquet")
    kept = read_controls(tmp_path / "controls.parquet")["prior"]["test"]
    assert [o.rank_at_most for o in kept] == [o.rank_at_most for o in cut.outcomes]
    found = compare(whole, cut, metric="MRR")
    assert (found.facts, found.unsettled) == (len(relation.test) - figures.unsettled, figures.unsettled)
    assert found.wins == found.losses == 0
    assert compare(whole, cut, metric="log-loss").facts == len(relation.test)
    assert "unsettled" not in to_json(compare(whole, whole))


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_the_best_of_many_answers_that_are_almost_as_probable_is_the_first(name):
    """More than a hundred tokens are more probable than the best answer, which is one of them and its end."""
    vocabulary = tuple(range(exact(name).vocabulary_size))
    mixture, twin = few_tokens(name, TEMPLATES[:1], vocabulary, longest_answer=1)
    special = frozenset({*exact(name).tokenizer.all_special_ids, end_of(name, TEMPLATES[0], "Paris") or -1})
    spelt = spellings(name, 1, vocabulary, special)
    expected = every_answer(twin, "Paris", spelt=spelt)
    first = product_steps(twin, "Paris", [])[0][0][0]
    assert int((first > expected[next(iter(expected))]).sum()) > 100
    test = [Fact("Paris", list(expected)[at]) for at in (0, 1, 9, 10)]
    relation = Relation.of("r", [Fact("Cuba", "Rome")], [], test)
    for top in (10, 0):
        for outcome in evaluate_split(mixture, relation, top=top).outcomes:
            assert outcome.is_settled
            assert outcome.rank == rank_among(expected, outcome.y, sorted({f.y for f in test} - {outcome.y}))
            known = min(top, list(expected).index(outcome.y) + 1)
            assert outcome.answers[:known] == tuple(expected)[:known]
    mixture.answer_kind = mixture.encode_relation(relation).kind
    assert [reply.y for reply in mixture.ask("Paris", top=10)] == list(expected)[:10]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_search_goes_on_until_the_rank_is_known(name, monkeypatch):
    of_paris = answers_to(name, "Paris")
    relation = relation_of(*(("Paris", y) for y in list(of_paris)[:8]), ("Paris", list(of_paris)[14]))
    mixture, _ = few_tokens(name)
    facts = mixture.encode_relation(relation).split("test")
    expected, score = (
        evaluate_split(mixture, relation),
        score_facts(mixture.answering(kind=facts.kind), facts, relation),
    )
    limited(monkeypatch, 1, 200)
    for top in (10, 0):
        found = evaluate_split(mixture, relation, top=top)
        assert [(o.rank, o.rank_at_most) for o in found.outcomes] == [(o.rank, o.rank) for o in expected.outcomes]
    assert score_facts(mixture.answering(kind=facts.kind), facts, relation) == score
    limited(monkeypatch, 0)
    unknown = score_facts(
        mixture.answering(kind=facts.kind), facts, relation
    )  # no fact counts as wrong because its search was cut
    assert unknown["log_loss"] == score["log_loss"]


def test_the_dev_score_of_a_masked_lm_is_that_of_enumeration():
    name = "bert"
    of_paris, of_mary = answers_to(name, "Paris"), answers_to(name, "Mary Cassatt")
    chosen = [("Paris", list(of_paris)[at]) for at in (0, 1, 5)] + [("Mary Cassatt", next(iter(of_mary)))]
    relation = relation_of(*chosen)
    mixture, _ = few_tokens(name)
    encoded = mixture.encode_relation(relation).split("test")
    scores = score_facts(mixture.answering(kind=encoded.kind), encoded, relation)
    right, losses = 0, []
    for x, y in chosen:
        expected = of_paris if x == "Paris" else of_mary
        right += rank_among(expected, y, sorted(golds_of(relation, x) - {y})) == 1
        losses.append(-expected[y])
    assert scores == {
        "P@1": 100 * right / 4, "log_loss": pytest.approx(sum(losses) / 4, abs=1e-9), "facts": 4,
    }  # fmt: skip


def test_answers_of_an_uncased_lm_are_shown_as_the_relation_writes_them():
    expected = answers_to("albert", "Paris")
    relation = relation_of(("Paris", "Rome Cassatt"))
    (outcome,) = evaluate_split(few_tokens("albert")[0], relation).outcomes
    assert outcome.rank == rank_among(expected, "rome cassatt", ["rome"])
    assert outcome.log_probability == pytest.approx(expected["rome cassatt"], abs=1e-9)
    written = {"rome": "Rome", "cassatt": "Cassatt", "rome cassatt": "Rome Cassatt"}
    assert outcome.answers == tuple(written.get(text, text) for text in list(expected)[:10])
    assert "Rome" in outcome.answers


def test_a_search_that_finds_nothing_is_examined_all_the_same(monkeypatch):
    # Nothing but the question itself is opened, for want of the best answer neither.
    limited(monkeypatch, -3)
    examined = examine(few_tokens("gpt2")[0], relation_of(("Paris", "Cassatt"), ("Mary Cassatt", "Rome")))
    found = examined.evaluations["test"]
    assert found.unsettled == 2
    assert [(o.rank, o.rank_at_most, o.answers, o.probabilities) for o in found.outcomes] == [
        (1, math.inf, ("",), (0.0,))
    ] * 2
    assert examined.controls.outcomes["majority"]["test"][0].rank < math.inf


def test_a_y_that_is_longer_than_all_of_train_is_impossible_to_a_masked_lm():
    relation = Relation.of(
        "r", TRAIN[:3], [Fact("Cuba", "Rome")], [Fact("Paris", "Rome Cassatt"), Fact("Cuba", "Rome")]
    )
    mixture, _ = few_tokens("bert")
    found = {outcome.x: outcome for outcome in evaluate_split(mixture, relation).outcomes}
    assert (found["Paris"].rank, found["Paris"].log_probability) == (math.inf, -math.inf)
    assert found["Cuba"].rank < math.inf
    encoded = mixture.encode_relation(relation).split("test")
    scores = score_facts(mixture.answering(kind=encoded.kind), encoded, relation)
    assert scores["log_loss"] == pytest.approx(-found["Cuba"].log_probability)


def test_an_examination_asks_for_the_same_and_notes_what_each_prompt_thinks():
    relation = relation_of(("Reykjavik", "Cassatt"), ("Mary Cassatt", "Rome"))
    mixture, twin = few_tokens("gpt2")
    examined = examine(mixture, relation)
    assert examined.evaluations["test"].outcomes == evaluate_split(mixture, relation).outcomes
    assert {*examined.controls.outcomes} == {"majority", "prior"}
    noted = examined.prompt_answers
    assert noted is not None
    weights = twin.log_weights(None).exp().detach().tolist()
    for row, outcome in enumerate(examined.evaluations["test"].outcomes):
        with torch.no_grad():
            each = torch.stack([by_prompt(twin, outcome.x, spellings("gpt2")[y]) for y in outcome.answers]).exp()
        assert noted.best[row].tolist() == each.argmax(0).tolist()
        assert noted.of_mixture[row] == 0
        assert noted.weights[row].tolist() == pytest.approx(weights)
        # The best answers, and all others together.
        columns = [[*of_prompt, 1 - sum(of_prompt)] for of_prompt in each.T.tolist()]
        mean = [sum(w * column[n] for w, column in zip(weights, columns, strict=True)) for n in range(11)]
        divergence = entropy(mean) - sum(w * entropy(column) for w, column in zip(weights, columns, strict=True))
        assert noted.divergences[row] == pytest.approx(divergence, abs=1e-12)


def entropy(probabilities: list[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities)
