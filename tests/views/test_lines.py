"""Rows: nothing that differs in more than relation and seed shares a cell."""

from dataclasses import replace

from builders.stores import A, B, figures_of, keep, new_store

from askwell.runs.query import select_runs
from askwell.runs.run_group import kept_runs
from askwell.views.study_rows import caption_of, groups_of, lines_of


def rows(store) -> dict[str, dict[str, int]]:
    """How many runs each cell has, by row."""
    return {
        f"{line.lm}: {line.label}": {kind: len(group.runs) for kind, group in line.groups.items()}
        for line in lines_of(kept_runs(store.runs()))
    }


def test_relations_and_seeds_share_a_cell_and_lms_and_sources_do_not(tmp_path):
    store = new_store(tmp_path)
    for relation in (A, B):
        for seed in (0, 1):
            keep(store, [1], relation, seed=seed)
    keep(store, [1], setting="init", tuned=False)
    keep(store, [1], prompts="single")
    keep(store, [1], lm="other")
    keep(store, [1], mixture={"initial": "random"})
    assert rows(store) == {
        "bert-base-cased: single": {"soft": 1},
        "bert-base-cased: mined": {"init": 1, "soft": 4},
        "bert-base-cased: random (mined)": {"soft": 1},
        "other: mined": {"soft": 1},
    }


def test_settings_that_differ_otherwise_are_rows_by_their_names_and_share_what_they_started_from(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], setting="init", tuned=False)
    keep(store, [1], setting="soft")
    keep(store, [1], setting="deep", mixture={"deep": True})
    keep(store, [1], setting="soft-long", training={"pairs": 9})
    keep(store, [1], setting="deep-long", training={"pairs": 9}, mixture={"deep": True})
    assert rows(store) == {
        "bert-base-cased: mined [deep / soft]": {"init": 1, "soft": 1, "deep": 1},
        "bert-base-cased: mined [deep-long / soft-long]": {"init": 1, "soft": 1, "deep": 1},
    }


def test_other_budgets_of_other_relations_do_not_share_a_cell_either(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], A, setting="short")
    keep(store, [1], B, setting="long", training={"pairs": 9})
    assert rows(store) == {"bert-base-cased: mined [long]": {"soft": 1}, "bert-base-cased: mined [short]": {"soft": 1}}


def test_one_name_with_two_budgets_is_told_by_the_budget(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], training={"pairs": 5})
    keep(store, [1], training={"pairs": 9})
    assert set(rows(store)) == {"bert-base-cased: mined [soft: pairs 5]", "bert-base-cased: mined [soft: pairs 9]"}


def test_two_names_for_the_same_runs_are_two_rows(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], setting="one")
    keep(store, [1], setting="two")
    assert set(rows(store)) == {"bert-base-cased: mined [one]", "bert-base-cased: mined [two]"}


def test_untuned_runs_that_differ_are_rows_of_their_own(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], setting="init", tuned=False)
    keep(store, [1], setting="noisy", tuned=False, mixture={"noise": 1.0})
    keep(store, [1], setting="soft")
    assert rows(store) == {
        "bert-base-cased: mined": {"soft": 1},
        "bert-base-cased: mined [init]": {"init": 1},
        "bert-base-cased: mined [noisy]": {"init": 1},
    }


def test_em_starts_from_the_same_untuned_prompts_and_other_extras_do_not(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], setting="init", tuned=False)
    keep(store, [1], setting="em", training={"method": "em"})
    keep(store, [1], setting="dd", mixture={"weighting": "data-dependent"})
    assert rows(store) == {
        "bert-base-cased: mined": {"init": 1},
        "bert-base-cased: mined, EM": {"init": 1, "soft": 1},
        "bert-base-cased: mined, weighted by x (data-dependent)": {"soft": 1},
    }


def test_other_data_under_the_same_name_is_told_apart(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1, 1, 1])
    keep(store, [1], facts_sha256="a sample")
    keep(store, [1, 1, 1], templates=["[X] is [Y] ."])
    keep(store, [1, 1, 1], candidates="words", candidates_sha256="3")
    assert set(rows(store)) == {
        "bert-base-cased: mined [among all answers]",
        "bert-base-cased: mined [other facts, 2; among all answers]",
        "bert-base-cased: mined [other templates, 2; among all answers]",
        "bert-base-cased: mined [among words]",
    }
    keep(store, [1], lm="same name", lm_sha256="2" * 64)
    keep(store, [1, 1], lm="same name", lm_sha256="3" * 64)
    lms = {line.lm for line in lines_of(kept_runs(select_runs(store.folder, "lm = 'same name'")))}
    assert lms == {"same name", "same name (another LM of that name, 222222)"}


def test_one_token_answers_and_answers_of_any_length_have_rows_that_say_so(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1, 1], mixture={"answers": "one-token"})
    assert [line.label for line in lines_of(kept_runs(store.runs()))] == ["mined"]
    keep(store, [1, 20], mixture={"answers": "any-length"})
    lines = lines_of(kept_runs(store.runs()))
    found = {line.label: [run.facts for run in line.groups["soft"].runs] for line in lines}
    assert found == {"mined [answers of any length]": [2], "mined [one-token answers]": [2]}
    assert "search" not in caption_of("paper", groups_of(lines, ["soft"]))


def test_a_caption_says_how_many_facts_came_to_the_limit_of_the_search(tmp_path):
    store = new_store(tmp_path)
    ended = replace(figures_of([1, 20, 20], "bert-base-cased", A, "test", 0), unsettled=2)
    ended = replace(ended, at_worst={**ended.micro, "P@1": 20.0})
    keep(store, [1, 20, 20], known={"test": ended})
    caption = caption_of("paper", groups_of(lines_of(kept_runs(store.runs())), ["soft"]))
    assert "The search for answers was cut for 2 facts, which count with their ranks among what was found" in caption
    assert "the P@1 of a run may be lower by at most 13.3." in caption


def test_runs_on_other_numbers_of_ones_own_facts_are_parts_of_their_own(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1, 1, 20], "capitals")
    keep(store, [1, 20], "capitals", left_out=1, lm="other")  # of the same three facts
    assert {line.fact_set for line in lines_of(kept_runs(store.runs()))} == {"capitals"}
    keep(store, [1, 1], "capitals", facts_sha256="9" * 64)
    lines = lines_of(kept_runs(store.runs()))
    assert {(line.fact_set, line.lm, line.label) for line in lines} == {
        ("capitals, 2 test facts", "bert-base-cased", "mined"),
        ("capitals, 3 test facts", "bert-base-cased", "mined"),
        ("capitals, 3 test facts", "other", "mined"),
    }


def test_a_prompt_that_was_typed_is_named_by_its_words(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], prompts="given", templates=["[X] in [Y] ."])
    assert [line.label for line in lines_of(kept_runs(store.runs()))] == ["“[X] in [Y] .”"]
    keep(store, [1, 1], prompts="given", templates=["[X] in [Y] .", "[X] of [Y] ."])
    labels = [line.label for line in lines_of(kept_runs(store.runs()))]
    assert sorted(labels) == ["2 prompts", "“[X] in [Y] .”"]
