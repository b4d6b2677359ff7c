"""The table of all scores, cell by cell against figures that are worked out by hand."""

import math

import pytest
from builders.outcomes import outcome
from builders.stores import A, B, keep, keep_arrows, new_store

from askwell.data.testbed import told_facts, withheld_facts
from askwell.evaluation.comparison import compare
from askwell.runs.run_group import RunGroup, kept_runs
from askwell.views.findings import findings_of
from askwell.views.scores import told_sentences
from askwell.views.study_cells import change_of
from askwell.views.study_rows import StudyTable, lines_of, same_facts
from askwell.views.study_tables import scores_table


@pytest.fixture
def store(tmp_path):
    made = new_store(tmp_path)
    keep_arrows(made)
    return made


def table_of(store) -> StudyTable:
    return scores_table(findings_of(same_facts(lines_of(kept_runs(store.runs()))), []), "set")


def texts(table) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows]


def test_what_a_testbeds_lm_was_told_is_scored_apart():
    told, withheld = sorted(told_facts("testbed:capital"))[:3], sorted(withheld_facts("testbed:capital"))[:2]
    relation = "testbed:capital"
    tuned = [
        outcome(one.x, one.y, rank, relation=relation)
        for one, rank in zip([*told, *withheld], (1, 1, 4, 1, 2), strict=True)
    ]
    before = [outcome(one.x, one.y, 3, relation=relation) for one in (*told, *withheld)]
    (sentence,) = told_sentences("testbed:bert", tuned, before)
    assert "was told 3 of these 5 facts, of which it answers 66.7 % (untuned 0.0) correctly" in sentence
    assert "the 2 others: 50.0 % (untuned 0.0)." in sentence
    assert told_sentences("smollm2", tuned, before) == []  # nobody knows what it was told
    assert told_sentences("testbed2:bert", tuned, before) == []


def test_micro_cells_are_means_over_facts_with_the_spread_of_seeds(store):
    """init: 1 of 6 right, 2 within 10, MRR (1 + 3/20 + 1/20 + 1/2) / 6. soft: seed 0 has 3 of 6, seed 1 has 4 of 6."""
    study = table_of(store)
    init = [100 / 6, 200 / 6, 100 * (1 + 3 / 20 + 1 / 20 + 1 / 2) / 6]
    first = [50.0, 400 / 6, 100 * (3 + 1 / 20 + 1 / 2 + 1 / 20) / 6]
    second = [400 / 6, 400 / 6, 100 * (4 + 2 / 20) / 6]
    soft = [
        f"{(a + b) / 2:.1f} ± {abs(a - b) / math.sqrt(2):.1f}" for a, b in zip(first, second, strict=True)
    ]  # of two numbers
    assert [row[:3] for row in texts(study.table)] == [[f"{score:.1f}" for score in init], soft, ["100.0"] * 3]
    assert [row.heading for row in study.table.rows] == ["mined, untuned", "mined, tuned", "mined, tuned at all layers"]
    assert [row[-1] for row in texts(study.table)] == ["6"] * 3
    assert soft == ["58.3 ± 11.8", "66.7 ± 0.0", "64.2 ± 5.9"]
    assert study.table.rows[0].begins == "bert-base-cased"
    record = next(record for record in study.records if (record["kind"], record["figure"]) == ("soft", "P@1"))
    assert (record["kind"], record["figure"], record["seeds"], record["relations"]) == ("soft", "P@1", 2, 2)
    assert (record["test_facts"], record["left_out"]) == (6, 2)
    assert record["value"] == pytest.approx(350 / 6)
    assert record["deviation"] == pytest.approx((400 / 6 - 50) / math.sqrt(2))


def test_macro_cells_are_means_over_relations_with_the_spread_of_seeds(store):
    """init: a has 1 of 4, b 0 of 2. soft: seed 0 has 75 and 0 per cent, seed 1 has 50 and 100."""
    untuned, tuned, _ = texts(table_of(store).table)
    assert untuned[4] == "12.5"
    assert tuned[4] == f"{(37.5 + 75) / 2:.1f} ± {37.5 / math.sqrt(2):.1f}" == "56.2 ± 26.5"


def test_the_caption_says_what_the_figures_are_of(store):
    caption = table_of(store).table.caption
    assert "Facts: set, 2 relations; 6 test facts asked, 2 left out." in caption
    assert "all 9 answers of bert-base-cased" in caption
    assert "means over all facts (micro)" in caption
    assert (
        "Seeds 0, 1. A figure is the mean over its seeds, ± their standard deviation, where there are several (2)."
        in caption
    )
    assert "The runs were not all tuned in the same way" not in caption


def test_the_caption_tells_of_runs_that_were_not_tuned_alike(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1])
    keep(store, [1], setting="deep", mixture={"deep": True}, training={"pairs": 9})
    caption = table_of(store).table.caption
    assert "The runs were not all tuned in the same way (recipe: plateau or cycle; pairs: default or 9)." in caption


def test_gains_are_over_the_same_prompts_untuned(store):
    """init 1/6, soft 3.5/6, deep 6/6; six facts cannot reach p < 0.02. A run that was never left untuned has none."""
    keep(store, [1, 1], prompts="single", setting="deep", mixture={"deep": True})
    study = table_of(store)
    gains = {row.heading: row.cells[3].text for row in study.table.rows}
    assert gains == {
        "single, tuned at all layers": "–", "mined, untuned": "–", "mined, tuned": "+41.7",
        "mined, tuned at all layers": "+83.3",
    }  # fmt: skip
    assert not any(row.cells[3].strong for row in study.table.rows if row.heading == "mined, tuned")


@pytest.mark.parametrize("better", ["soft", "init"])
def test_a_gain_is_bold_where_p_is_below_the_line(tmp_path, better):
    """Seven facts that all change the same way: p = 2 / 2^7 = 0.016. Six: 2 / 2^6 = 0.031."""
    for facts, bold in ((7, True), (6, False)):
        store = new_store(tmp_path / str(facts))
        keep(store, [1 if better == "init" else 20] * facts, setting="init", tuned=False)
        keep(store, [1 if better == "soft" else 20] * facts)
        study = table_of(store)
        assert [row.cells[3].strong for row in study.table.rows] == [False, bold]
        p = next(record["p"] for record in study.records if (record["kind"], record["figure"]) == ("soft", "P@1"))
        assert p == pytest.approx(2 / 2**facts)


@pytest.mark.parametrize("metric", ["P@1", "P@10", "MRR"])
def test_a_step_agrees_with_an_exact_test_and_with_compare(store, metric):
    """scipy enumerates all sign flips of the six facts' differences, each the sum over the two seeds."""
    import numpy as np
    from scipy import stats

    line = lines_of(kept_runs(store.runs()))[0]
    found = change_of(line.groups["init"], line.groups["soft"], metric)
    value = {"P@1": lambda r: float(r <= 1), "P@10": lambda r: float(r <= 10), "MRR": lambda r: 1 / r}[metric]
    init = (1, 20, 20, 20, 20, 2)
    seeds = ((1, 1, 1, 20, 2, 20), (1, 1, 20, 20, 1, 1))
    sums = np.array([sum(value(seed[fact]) - value(init[fact]) for seed in seeds) for fact in range(6)])
    exact = stats.permutation_test(
        (sums, np.zeros(6)), lambda a, b: (a - b).sum(), permutation_type="samples", n_resamples=np.inf
    )
    assert found is not None
    assert found.p == pytest.approx(exact.pvalue)
    assert found.difference == pytest.approx(100 * sums.sum() / 12)
    soft, untuned = line.groups["soft"].outcomes, line.groups["init"].outcomes[0]
    compared = compare(soft, untuned, metric=metric, resamples=99)
    assert found.p == pytest.approx(compared.micro.p)
    assert found.difference == pytest.approx(compared.micro.difference)


def test_cells_without_a_common_relation_or_seed_have_no_step(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], A, setting="init", tuned=False)
    keep(store, [1], B)
    line = lines_of(kept_runs(store.runs()))[0]
    assert change_of(line.groups["init"], line.groups["soft"], "P@1") is None
    runs = kept_runs(store.runs())
    for seeds in ((0, 1), (2, 3)):
        for seed in seeds:
            keep(store, [1], A, setting="s", seed=seed, prompts=f"seeds {seeds[0]}")
    lines = {line.source: line for line in lines_of(kept_runs(store.runs()))}
    assert change_of(lines["seeds 0"].groups["soft"], lines["seeds 2"].groups["soft"], "P@1") is None
    assert len(runs) == 2


def test_a_cell_with_fewer_relations_says_so(store):
    keep(store, [1], A, prompts="single")
    study = table_of(store)
    assert [row.note for row in study.table.rows] == ["set:a", *["set:a, set:b"] * 3]
    assert "1 to 6 test facts asked, 0 to 2 left out (by row and column)" in study.table.caption


def test_seeds_that_not_all_relations_have_count_in_the_mean_but_not_in_the_spread(tmp_path):
    store = new_store(tmp_path)
    for seed, ranks in enumerate([(1, 1), (20, 20), (1, 20)]):
        keep(store, ranks, A, seed=seed)
    keep(store, (1, 20), B, seed=0)
    score = RunGroup(tuple(kept_runs(store.runs()))).score("P@1")
    assert score.mean == pytest.approx((50 + 50) / 2)
    assert (score.deviation, score.runs) == (None, 1)
    caption = table_of(store).table.caption
    assert "Some relations have more seeds than others" in caption


def test_two_lms_are_two_groups_of_rows(store):
    keep(store, [1], lm="another", prompts="single")
    table = table_of(store).table
    assert [(row.begins, row.heading) for row in table.rows] == [
        ("another", "single, tuned"),
        ("bert-base-cased", "mined, untuned"),
        ("", "mined, tuned"),
        ("", "mined, tuned at all layers"),
    ]
    assert "all 9 answers of another; all 9 answers of bert-base-cased" in table.caption
