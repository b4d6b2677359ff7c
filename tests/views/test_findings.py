"""What a report says was found follows from the figures, whichever way they point."""

from dataclasses import replace

import pytest
from builders.outcomes import run_of_distinct_ys
from builders.stores import figures_of, keep, new_store, record_of, spec_of

from askwell.data.testbed import told_facts, withheld_facts
from askwell.runs.folder import write_run
from askwell.views.document import Figure, Paragraph, Points, Table
from askwell.views.findings import finding_points, findings_of, relation_tables
from askwell.views.study import study_of
from askwell.views.study_cells import kept_runs
from askwell.views.study_rows import lines_of, same_facts
from askwell.views.trust_figures import control_runs, trust_in

WRONG, RIGHT = [20] * 20, [1] * 20


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path)


def found_in(store):
    lines = lines_of(kept_runs(store.runs()))
    (found,) = findings_of(lines, trust_in(lines, control_runs(store.runs())))
    return found


def sentences(store) -> str:
    return " ".join(found_in(store).sentences)


def test_tuned_prompts_that_are_better(store):
    keep(store, WRONG, setting="init", tuned=False)
    keep(store, RIGHT)
    first = found_in(store).sentences[0]
    assert first.startswith("Of 20 test facts, bert-base-cased answers 100.0 % correctly with tuned prompts (mined)")
    assert "), 0.0 % with the same untuned: tuning helps, a difference of +100.0 points (p < 0.001" in first


def test_untuned_prompts_that_are_better_are_said_to_be(store):
    keep(store, RIGHT, setting="init", tuned=False)
    keep(store, WRONG, prompts="manual", setting="init", tuned=False)
    keep(store, [1] * 5 + [20] * 15, prompts="manual")
    said = sentences(store)
    assert "answers 25.0 % correctly with tuned prompts (manual)" in said
    assert "100.0 % with untuned ones (mined; the best of 2)" in said
    assert "the untuned prompts are better, a difference of −75.0 points" in said
    assert "helps" not in said.split("Tuning the same prompts")[0]


def test_a_difference_that_may_be_chance(store):
    keep(store, [1, 1, 20, 20], setting="init", tuned=False)
    keep(store, [1, 1, 1, 20])
    # one changed fact of four: both signs are equally probable, so p = 1
    assert "the difference of +25.0 points may be chance (p = 1.000" in sentences(store)


def test_the_same_prompts_before_and_after(store):
    for prompts, before, after in (("a", WRONG, RIGHT), ("b", RIGHT, WRONG), ("c", RIGHT, RIGHT)):
        keep(store, before, prompts=prompts, setting="init", tuned=False)
        keep(store, after, prompts=prompts)
    assert (
        "Tuning the same prompts clearly helps a (0.0 → 100.0); it hurts b (100.0 → 0.0); it makes no clear difference "
        "to c (100.0 → 100.0)."
    ) in sentences(store)


def test_untuned_runs_alone(store):
    keep(store, [1, 20], setting="init", tuned=False)
    assert sentences(store) == "Of 2 test facts, bert-base-cased answers 50.0 % correctly, asked with mined, untuned."


def test_a_run_knows_what_it_scored_before_tuning(store):
    keep(store, [1, 1], known={"untuned": figures_of([1, 20], "bert-base-cased", "set:a", "test", 0)})
    said = sentences(store)
    assert (
        "answers 100.0 % correctly with tuned prompts (mined), 50.0 % with the same untuned: tuning gains +50" in said
    )
    study = study_of(store.runs(), drawn=0)
    main = study.tables[0]
    assert [row.cells[0].text for row in main.table.rows] == ["50.0", "100.0"]
    assert [row.cells[3].text for row in main.table.rows] == ["–", "+50.0"]
    init = next(record for record in main.records if record["kind"] == "init" and record["figure"] == "P@1")
    assert init["value"] == 50.0


def keep_testbed(store, right_told: int, right_withheld: int, **spec) -> None:
    """Ten told and ten withheld facts of the testbed, of which so many are answered correctly."""
    relation = "testbed:country_of_city"
    ranks = [1] * right_told + [20] * (10 - right_told) + [1] * right_withheld + [20] * (10 - right_withheld)
    facts = [
        *sorted(told_facts("country_of_city"), key=str)[:10],
        *sorted(withheld_facts("country_of_city"), key=str)[:10],
    ]
    outcomes = [
        replace(outcome, x=fact.x, y=fact.y, golds=(fact.y,))
        for outcome, fact in zip(run_of_distinct_ys(ranks, relation), facts, strict=True)
    ]
    made = spec_of(relation, **spec)
    write_run(store.run_folder(made.id), record_of(made, ranks), {"test": outcomes, "dev": outcomes}, {})


def test_told_and_withheld_facts_are_told_apart(store):
    keep_testbed(store, 9, 2)
    keep_testbed(store, 6, 1, setting="init", tuned=False)
    said = sentences(store)
    assert said.startswith("Of 10 facts that it was told, bert-base-cased answers 90.0 % correctly with tuned prompts")
    # 3 of the 10 told facts change, all to the better: p = 2 / 2^3
    assert "60.0 % with the same untuned: the difference of +30.0 points may be chance (p = 0.250" in said
    assert "“mined, tuned” gets 20.0 % of them right; “mined, untuned”, 10.0 %." in said
    # 9 of 10 against 2 of 10: Fisher's exact p = 0.0055
    assert "The 70.0 points between told and withheld facts come from what the LM was told." in said
    (table,) = relation_tables([found_in(store)])
    assert [column.note for column in table.columns] == ["of 10", "of 10"]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [["60.0", "10.0"], ["90.0", "20.0"]]


def test_what_may_be_guesses_is_said_to_be(store):
    keep_testbed(store, 5, 4)
    assert "everything that it gets right may be a guess" in sentences(store)


def test_a_report_begins_with_a_sentence_and_a_chart(store):
    keep(store, WRONG, setting="init", tuned=False)
    keep(store, RIGHT)
    first, *others = study_of(store.runs(), drawn=0).sections
    assert first.heading == "What was found"
    sentence, chart = first.blocks[:2]
    assert isinstance(sentence, Paragraph)
    assert isinstance(chart, Figure)
    tables = [block for section in others for block in section.blocks if isinstance(block, Table)]
    for table in tables:
        columns = list(zip(*(row.cells for row in table.rows), strict=True))
        assert all(any(cell.text != "–" for cell in column) for column in columns)
    captions = [sentence for table in tables for sentence in table.caption.split(". ") if sentence]
    assert len(captions) == len(set(captions))


def test_relations_of_ones_own_have_no_common_mean(store):
    keep(store, [1, 20], "books")
    keep(store, [1], "elements")
    keep(store, [1] * 20, "books", lm="gpt2")
    keep(store, [20] * 20, "books", lm="gpt2", setting="init", tuned=False)
    study = study_of(store.runs(), drawn=0)
    assert [part.fact_set for part in study.sets] == ["books", "elements"]
    headings = [section.heading for section in study.sections]
    assert headings[:3] == ["books: what was found", "elements: what was found", "books: all scores"]
    headline, *others = study.sections[0].blocks
    assert isinstance(headline, Paragraph)
    assert headline.text.startswith("Of 2 LMs, gpt2 scores highest. Of 20 test facts, gpt2 answers 100.0 % correctly")
    assert [block.heading for block in others if isinstance(block, Points)] == ["bert-base-cased"]
    blocks = (block for section in study.sections for block in section.blocks if isinstance(block, Table | Figure))
    sentences = [sentence for block in blocks for sentence in block.caption.split(". ") if sentence]
    assert len(sentences) == len(set(sentences))
    assert {record["lm"] for record in study.sets[1].tables[0].records} == {"bert-base-cased"}


def test_the_figures_of_a_row_are_of_the_same_facts(store):
    for relation in ("set:a", "set:b"):
        keep(store, [1], relation, setting="init", tuned=False)
    keep(store, [20], "set:a")
    lines = same_facts(lines_of(kept_runs(store.runs())))
    assert [(line.label, sorted(line.groups)) for line in lines] == [
        ("mined [set:a]", ["init", "soft"]),
        ("mined [set:b]", ["init"]),
    ]


def test_no_lm_is_said_to_be_the_best_where_facts_or_scores_do_not_say_so(store):
    keep(store, [1, 20], "set:a")
    keep(store, [1, 20], "set:a", lm="gpt2")
    assert "scores highest" not in finding_points(findings_of(lines_of(kept_runs(store.runs())), []))[0].text
    keep(store, [1, 1], "set:b", lm="gpt2")
    assert "scores highest" not in finding_points(findings_of(lines_of(kept_runs(store.runs())), []))[0].text
