"""`askwell compare` on runs made by hand and on runs that `train` has left."""

import pytest
from builders.outcomes import outcome
from builders.stores import keep, new_store
from builders.worlds import TEMPLATES

from askwell.evaluation.outcomes import write_outcomes


def save(folder, ranks, relation="r"):
    outcomes = [outcome(x, rank=rank, relation=relation, answers={"[z]": 0.5}) for x, rank in ranks.items()]
    write_outcomes(outcomes, folder / "facts.parquet")
    return folder


@pytest.fixture
def runs(tmp_path):
    a = save(tmp_path / "a", {"p": 1, "q": 1, "r": 1, "s": 1, "t": 1, "u": 1, "v": 1, "only": 1})
    b = save(tmp_path / "b", {"p": 2, "q": 2, "r": 3, "s": 4, "t": 5, "u": 6, "v": 7})
    return a, b


def test_the_json_document_has_all_figures(askwell, runs):
    document = askwell("compare", *runs, "--json", "--changed", "2").json
    assert (document["facts"], document["only_a"], document["only_b"]) == (7, 1, 0)
    assert document["micro"]["difference"] == 100
    assert document["micro"]["p"] == pytest.approx(2 / 2**7)
    assert document["sign_p"] == pytest.approx(2 / 2**7)
    assert document["relations"]["r"]["wins"] == 7
    assert (len(document["changed"]), document["changed_facts"]) == (2, 7)
    assert document["changed"][0]["x"] == "p"


def test_the_comparison_is_printed_as_tables_and_sentences(askwell, runs):
    done = askwell("compare", *runs)
    assert done.code == 0
    told = " ".join(done.out.split())
    assert "7 facts asked of both; 1 only of A, 0 only of B." in told
    assert "p = 0.016 (exact), significant at the paper's threshold of 0.02" in told
    assert "7 of 7 facts that changed" in told
    assert "[z]" in told
    assert "that changed" not in askwell("compare", *runs, "--changed", "0").out


def test_an_interval_of_facts_that_all_differ_alike_is_not_called_a_bootstrap(askwell, runs):
    """Wilson's interval of none of n ends at z² / (n + z²), with z² = 3.8415: 35.43 % of 7 and 32.44 % of 8."""
    told = " ".join(askwell("compare", *runs).out.split())  # if 35.4 % differed the other way: 100 − 2 · 35.43
    assert (
        "+100.0, 95 % interval +29.1 to +100.0 (as all facts differ alike, from Wilson's interval of how many" in told
    )
    told = " ".join(askwell("compare", runs[0], runs[0]).out.split())
    assert "+0.0, 95 % interval −32.4 to +32.4 (as no fact differs, from Wilson's interval of how many could)" in told
    mixed = {"p": 1, "q": 1, "r": 9}
    some = save(runs[0].parent / "some", mixed)
    assert "(bootstrap over facts)" in askwell("compare", some, runs[1]).out


def test_a_single_fact_has_a_dash_for_its_interval(askwell, tmp_path):
    a, b = save(tmp_path / "a", {"p": 1}), save(tmp_path / "b", {"p": 2})
    told = " ".join(askwell("compare", a, b).out.split())
    assert "difference: +100.0, 95 % interval – (a relation with a single fact, or all alike); permutation" in told
    document = askwell("compare", a, b, "--json").json
    assert (document["micro"]["low"], document["micro"]["high"]) == (None, None)


def test_metric_and_unit(askwell, runs):
    assert askwell("compare", *runs, "--metric", "P@10", "--json").json["micro"]["difference"] == 0
    assert askwell("compare", *runs, "--unit", "y", "--json").json["wins"] == 1


def test_runs_and_options_that_cannot_be_compared_are_refused(askwell, runs, tmp_path):
    other = save(tmp_path / "c", {"p": 1}, "another")
    for arguments, told in {
        (runs[0], other): "no fact in common",
        (runs[0], tmp_path / "nowhere"): "nowhere",
        (*runs, "--metric", "P@2"): "--metric",
        (*runs, "--changed", "-1"): "--changed",
        (*runs, "--seed", "-1"): "--seed",
    }.items():
        done = askwell("compare", *arguments)
        assert done.code == 2
        assert told in done.err
        assert "Traceback" not in done.err


def test_runs_of_train(askwell, lms, facts, tmp_path):
    for seed in (1, 2):
        for kind, epochs in (("tuned", 1), ("untuned", 0)):
            arguments = ("--prompts", TEMPLATES[0], "--epochs", epochs, "--seed", seed, "--initial", "random")
            out = tmp_path / kind / str(seed)
            assert askwell("train", "--lm", lms["bert"], "--facts", facts, *arguments, "--out", out).code == 0
    document = askwell("compare", tmp_path / "tuned", tmp_path / "untuned", "--metric", "log-loss", "--json").json
    assert document["seeds"] == [1, 2]
    assert document["facts"] == 2 * 4
    same = askwell("compare", tmp_path / "tuned" / "1", tmp_path / "tuned" / "1", "--json").json
    assert (same["micro"]["p"], same["micro"]["difference"]) == (1, 0)
    assert same["a_vocabulary"] == same["b_vocabulary"]
    assert "one-token answers" in same["a_vocabulary"]
    told = askwell("compare", tmp_path / "tuned" / "1", tmp_path / "untuned" / "1").out
    assert f"Ranked among {same['a_vocabulary']}." in " ".join(told.split())


def test_runs_of_a_store_are_chosen(askwell, tmp_path):
    """init gets 1 of 4 right; soft 3 with the seed 0 and 2 with the seed 1: 37.5 points more on average."""
    folder = tmp_path / "store"
    store = new_store(folder)
    keep(store, (1, 20, 20, 20), setting="init", tuned=False)
    keep(store, (1, 1, 1, 20), setting="soft", seed=0)
    keep(store, (1, 1, 20, 20), setting="soft", seed=1)
    soft, init = "setting = 'soft'", "setting = 'init'"
    document = askwell("compare", folder, folder, "--where-a", soft, "--where-b", init, "--json").json
    assert document["seeds"] == [0, 1]
    assert document["micro"]["difference"] == pytest.approx(37.5)
    for arguments, told in {
        (folder, folder): "also appears in",
        (folder, folder, "--where-a", "setting = 'none'", "--where-b", init): "--where-a",
        (tmp_path, folder, "--where-a", soft): "there is no run here",
    }.items():
        done = askwell("compare", *arguments)
        assert done.code == 2
        assert told in " ".join(done.err.split())


def test_control_runs_of_a_store_are_left_out_unless_they_are_named(askwell, tmp_path):
    store = new_store(tmp_path / "store")
    keep(store, (1, 1, 1, 20), setting="soft")
    keep(store, (20, 20, 20, 20), setting="soft", control="random-weights")
    keep(store, (1, 20, 20, 20), setting="init", tuned=False)
    sides = ("--where-b", "setting = 'init'", "--json")
    own = askwell("compare", store.folder, store.folder, "--where-a", "setting = 'soft'", *sides)
    assert own.code == 0, own.err
    assert own.json["micro"]["a"] == 75
    named = "setting = 'soft' and control = 'random-weights'"
    assert askwell("compare", store.folder, store.folder, "--where-a", named, *sides).json["micro"]["a"] == 0
