"""What a report says was found follows from the figures, whichever way they point."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from builders.outcomes import run_of_distinct_ys
from builders.stores import figures_of, keep, record_of, spec_of

from askwell.data.testbed import told_facts, withheld_facts
from askwell.runs.folder import write_run
from askwell.runs.run_group import control_runs, kept_runs
from askwell.views.document import Figure, Paragraph, Points, Table
from askwell.views.findings import finding_points, findings_of, relation_tables
from askwell.views.study import report_markdown, study_of
from askwell.views.study_rows import lines_of, same_facts
from askwell.views.trust_figures import trust_in

WRONG, RIGHT = [20] * 20, [1] * 20


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
    assert (
        "), 0.0 % with the same untuned: tuning helps, a difference of +100.0 points (p = 2e-06, paired" in first
    )  # 2 / 2^20


def test_untuned_prompts_that_are_better_are_said_to_be(store):
    keep(store, RIGHT, setting="init", tuned=False)
    keep(store, WRONG, prompts="manual", setting="init", tuned=False)
    keep(store, [1] * 5 + [20] * 15, prompts="manual")
    said = sentences(store)
    assert said.startswith(
        "Of 20 test facts, bert-base-cased answers from 0.0 % to 100.0 % correctly, depending on how it is asked: "
        "least with “manual, untuned”, most with “mined, untuned”. "
    )
    assert "It answers 25.0 % correctly with tuned prompts (manual)" in said
    assert "100.0 % with untuned ones (mined; the best of 2)" in said
    assert "the untuned prompts are better, a difference of −75.0 points" in said
    assert "helps" not in said.split("Tuning the same prompts")[0]


def test_a_difference_that_may_be_chance(store):
    keep(store, [1, 1, 20, 20], setting="init", tuned=False)
    keep(store, [1, 1, 1, 20])
    # one changed fact of four: both signs are equally probable, so p = 1
    assert "the difference of +25.0 points may be chance (1 fact changes; p = 1.000" in sentences(store)


def test_sentences_and_tables_have_the_same_threshold(store):
    keep(store, [20] * 6 + [1] * 4, setting="init", tuned=False)
    keep(store, [1] * 10)
    keep(store, [20] * 6 + [1] * 4, prompts="other", setting="init", tuned=False)
    keep(store, [1] * 10, prompts="other")
    # six changed facts, all to the better: p = 2 / 2^6
    said = sentences(store)
    assert "the difference of +60.0 points may be chance (6 facts change; p = 0.031" in said
    assert "Tuning the same prompts makes no clear difference to mined (40.0 → 100.0) and other (40.0 → 100.0)." in said


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
    assert sentences(store) == (
        "Of 2 test facts, bert-base-cased answers 50.0 % correctly, asked with mined, untuned. "
        # Wilson's interval of 1 in 2
        "2 test facts: P@1 on more of them may lie anywhere between 9.5 and 90.5 (95 % interval)."
    )


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


def test_single_answers_before_tuning_count_where_they_were_kept(store):
    """Three of eight facts become right, none wrong: p = 2 / 2^3, and the untuned row of the table has its figures."""
    after, before = [1] * 4 + [20] * 4, [1] + [20] * 7
    made = spec_of("set:a")
    figures = figures_of(before, made.lm, "set:a", "test", 0)
    record = record_of(made, after, untuned=figures)
    both = (run_of_distinct_ys(ranks, "set:a") for ranks in (after, before))
    write_run(store.run_folder(made.id), record, {"test": next(both)}, {}, untuned=next(both))
    assert "12.5 % with the same untuned: the difference of +37.5 points may be chance (3 facts change; p = 0.250" in (
        sentences(store)
    )


def keep_unmoved(store, first: float, last: float, before: Sequence[int], after: Sequence[int]) -> None:
    """A run in which no step was best; its number of effective prompts went from `first` to `last` before the first."""
    known: dict[str, Any] = {
        "training": {"best_pairs": 0, "pairs": 400},
        "untuned": figures_of(before, "bert-base-cased", "set:a", "test", 0),
        "history": [{"pairs": 0, "dev": {"P@1": 50.0}, "effective_prompts": first}],
        "effective_prompts": last,
    }
    made = spec_of("set:a")
    write_run(
        store.run_folder(made.id),
        record_of(made, after, **known),
        {"test": run_of_distinct_ys(after, "set:a")},
        {},
        untuned=run_of_distinct_ys(before, "set:a"),
    )


def row_headings(store) -> list[str]:
    return [row.heading for row in study_of(store.runs(), drawn=0).tables[0].table.rows]


def test_prompts_of_which_nothing_was_tuned_are_said_to_be_as_written(store):
    keep_unmoved(store, 2.0, 2.0, [1, 20], [1, 20])
    said = "answers 50.0 % correctly with prompts that were kept as written: no step of tuning was better on dev"
    assert said in sentences(store)
    assert row_headings(store) == ["mined, untuned", "mined, kept as written"]


def test_what_fitted_weights_gain_is_not_said_of_tuning(store):
    keep_unmoved(store, 2.0, 1.5, WRONG, [*RIGHT[1:], 20])
    (said, *_) = found_in(store).sentences
    assert "answers 95.0 % correctly with prompts kept as written, with fitted weights (mined), 0.0 % with" in said
    assert "with the same untuned: fitting weights helps, a difference of +95.0 points" in said
    assert said.endswith("No step of tuning their vectors was better on dev facts.")
    assert row_headings(store) == ["mined, untuned", "mined, kept as written, with fitted weights"]
    keep(store, WRONG, "set:a", prompts="a", setting="init", tuned=False)
    keep(store, RIGHT, "set:a", prompts="a")
    keep(store, WRONG, "set:a", prompts="b", setting="init", tuned=False)
    keep(store, [*RIGHT[1:], 20], "set:a", prompts="b")
    said = sentences(store)
    assert "Tuning the same prompts clearly helps a (0.0 → 100.0) and b (0.0 → 95.0)." in said
    assert "Fitting the weights of the same prompts clearly helps mined (0.0 → 95.0)." in said


def test_weights_that_alone_were_tuned_are_said_to_help(store):
    keep(store, WRONG, setting="init", tuned=False)
    keep(store, RIGHT, setting="weights", training={"tune_vectors": False})
    assert "0.0 % with untuned ones (mined): fitting weights helps" in sentences(store)
    assert {run.record.state for run in store.runs()} == {"untuned", "only weights tuned"}


def keep_folds(store, ranks: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> None:
    for number, (of_fold, of_untuned) in enumerate(zip(ranks, before, strict=True), start=1):
        made = spec_of("books", facts_sha256=f"fold {number}")
        record = record_of(made, of_fold, untuned=figures_of(of_untuned, made.lm, "books", "test", 0))
        split = record.relation.model_copy(update={"split_by": f"random fold {number}/2", "split_seed": 0})
        after, untuned = (
            [
                replace(one, x=f"{one.x} {number}", y=f"{one.y} {number}", golds=())
                for one in run_of_distinct_ys(of, "books")
            ]
            for of in (of_fold, of_untuned)
        )
        write_run(
            store.run_folder(made.id),
            record.model_copy(update={"relation": split}),
            {"test": after},
            {},
            untuned=untuned,
        )


def test_folds_of_a_relation_are_one_row(store):
    keep_folds(store, [[1, 1, 20], [1, 20]], [[1, 20, 20], [20, 20]])
    (table, *_) = study_of(store.runs(), drawn=0).tables
    assert [row.heading for row in table.table.rows] == [
        "mined, untuned",
        "mined, tuned",
    ]
    assert table.table.caption.count("5 test facts of 2 folds together asked") == 1
    # 1 and 3 of all five facts, each of which is in one fold
    assert [row.cells[0].text for row in table.table.rows] == ["20.0", "60.0"]
    assert [row.cells[-1].text for row in table.table.rows] == ["5", "5"]
    assert "Of 5 test facts, bert-base-cased answers 60.0 % correctly" in sentences(store)
    keep(store, [1, 1, 1, 1, 20], "books", prompts="other")  # without folds
    assert ["2 folds together" in heading for heading in row_headings(store)] == [True, True, False]


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
    assert (
        "60.0 % with the same untuned: the difference of +30.0 points may be chance (3 facts change; p = 0.250" in said
    )
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
    in_short, first, *_ = study.sections
    assert (in_short.within, first.within, first.heading) == ("", "books", "What was found")
    chapters = [section.within for section in study.sections]
    assert chapters == sorted(chapters)  # one after the other, none in pieces
    assert {*chapters} == {"", "books", "elements"}
    (summary,) = in_short.blocks
    assert isinstance(summary, Table)
    assert [(row.begins, row.heading, row.cells[1].text) for row in summary.rows] == [
        ("books", "bert-base-cased", "50.0"), ("", "gpt2", "100.0"), ("elements", "bert-base-cased", "100.0"),
    ]  # fmt: skip
    markdown = report_markdown(study)
    assert [markdown.count(heading) for heading in ("\n## books\n", "\n## elements\n", "\n### All scores\n")] == [
        1,
        1,
        2,
    ]
    headline, *others = first.blocks
    assert isinstance(headline, Paragraph)
    assert headline.text.startswith("Of 2 LMs, gpt2 scores highest. Of 20 test facts, gpt2 answers 100.0 % correctly")
    assert [block.heading for block in others if isinstance(block, Points)] == ["gpt2", "bert-base-cased"]
    blocks = (block for section in study.sections for block in section.blocks if isinstance(block, Table | Figure))
    sentences = [sentence for block in blocks for sentence in block.caption.split(". ") if sentence]
    assert len(sentences) == len(set(sentences))
    assert {record["lm"] for record in study.sets[1].tables[0].records} == {"bert-base-cased"}


def test_scores_are_drawn_beside_the_most_frequent_answer_of_train(store):
    keep(store, [1, 1, 20, 20], controls={"majority": [1, 20, 20, 20]})
    (part,) = study_of(store.runs(), drawn=0).sets
    assert part.scores is not None
    assert part.scores.chart.description.endswith("most frequent answer of train: 25.0.")


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
