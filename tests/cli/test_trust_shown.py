"""Abstention, and how far scores can be trusted, on the command line."""

import json
import shutil

import pytest
from builders.commands import refused
from builders.worlds import PAIRS, TEMPLATES
from scipy.stats import binomtest

from askwell import load_lm
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.selective import dev_answers, threshold_of
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.runs.folder import read_run

PROMPTS = ("--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1])
QUICK = ("--recipe", "paper", "--epochs", "2", "--threads", "1", "--learning-rate", "0.01")


@pytest.fixture
def trained(askwell, lms, facts, tmp_path):
    done = askwell("train", "--lm", lms["bert"], "--facts", facts, *PROMPTS, "--out", tmp_path / "mixture", *QUICK)
    assert done.code == 0, done.err
    return tmp_path / "mixture"


@pytest.fixture
def half_sure(trained, lms):
    """A mixture whose record of dev says that Paris is answered and Rome is not, or the other way round."""
    mixture = Mixture.from_pretrained(trained, lm=load_lm(lms["bert"]))
    p = {x: mixture.ask(x, top=1)[0].probability for x in ("Paris", "Rome")}
    threshold = sum(p.values()) / 2
    about = read_description(trained)
    assert about.dev_answers is not None
    kept = about.dev_answers.model_copy(update={"probabilities": (threshold, threshold / 2), "right": (1, 0)})
    mixture.save_pretrained(trained, about=about.model_copy(update={"dev_answers": kept}))
    return trained, max(p, key=p.__getitem__), min(p, key=p.__getitem__), threshold


def test_what_train_keeps_of_dev(trained, lms):
    mixture = Mixture.from_pretrained(trained, lm=load_lm(lms["bert"]))
    kept = read_description(trained).dev_answers
    assert kept is not None
    assert kept.facts == len(kept.right) == 2
    best = {x: mixture.ask(x, top=1)[0] for x, _ in PAIRS[6:8]}
    assert kept.probabilities == pytest.approx(sorted((r.probability for r in best.values()), reverse=True), rel=1e-4)
    assert sum(kept.right) == sum(best[x].y == y for x, y in PAIRS[6:8])


def test_an_unsure_answer_is_not_given(askwell, half_sure, tmp_path):
    folder, known, unknown, threshold = half_sure
    done = askwell("ask", folder, known, unknown, "--risk", "0.1", "--json")
    assert done.code == 0, done.err
    assert {question["x"]: question["answered"] for question in done.json} == {known: True, unknown: False}
    assert all(question["threshold"] == threshold and question["answers"] for question in done.json)
    one = askwell("ask", folder, "--risk", "0.1", unknown, "--json").json[0]  # options may stand between the words
    assert (one["x"], one["answered"], one["risk"]) == (unknown, False, 0.1)
    shown = askwell("ask", folder, unknown, "--risk", "0.1")
    best = one["answers"][0]
    assert f"{unknown}: not known. The best answer, {best['y']}," in shown.out
    assert f"{100 * best['probability']:.1f} %, below the threshold of {100 * threshold:.1f} %" in shown.out
    assert "1 of 2 dev questions" in shown.err
    assert "not known" not in askwell("ask", folder, known, "--risk", "0.1").out
    assert "not known" not in askwell("ask", folder, unknown).out
    (tmp_path / "xs.txt").write_text(f"{known}\n{unknown}\n")
    lines = askwell("ask", folder, "--file", tmp_path / "xs.txt", "--risk", "0.1", "--top", "1").out.splitlines()
    assert [bool(line.split("\t")[1]) for line in lines] == [True, False]


def test_a_risk_that_cannot_be_kept(askwell, half_sure):
    folder, known, *_ = half_sure
    done = askwell("ask", folder, known, "--risk", "0.1", "--confidence", "0.95")
    assert done.code == 2
    assert "no threshold keeps a risk of 10 %" in done.err
    assert "lower confidence" in done.err


def test_a_folder_without_a_record_of_dev(askwell, trained, facts, lms):
    mixture = Mixture.from_pretrained(trained, lm=load_lm(lms["bert"]))
    mixture.save_pretrained(trained, about=read_description(trained).model_copy(update={"dev_answers": None}))
    assert askwell("ask", trained, "Paris", "--json").code == 0
    done = askwell("ask", trained, "Paris", "--risk", "0.9")
    assert done.code == 2
    assert "--facts" in done.err
    on_the_spot = askwell("ask", trained, "Paris", "--risk", "0.999", "--facts", facts, "--json")
    kept = dev_answers(evaluate_split(mixture, _relation(facts), split="dev", top=1))
    if any(kept.right):
        assert on_the_spot.json[0]["threshold"] == pytest.approx(threshold_of(kept, 0.999), rel=1e-4)
    else:
        assert "no threshold keeps" in on_the_spot.err


def _relation(facts):
    from askwell.data.names import load_relation

    return load_relation(facts)


def test_hard_prompts_learn_from_dev_facts_on_the_spot(askwell):
    arguments = ("ask", "--lm", "testbed:bert", "--prompts", "testbed:paraphrased", "France", "Atlantis", "--json")
    done = askwell(*arguments, "--facts", "testbed:capital", "--risk", "0.1")
    assert done.code == 0, done.err
    assert [(question["x"], question["answered"]) for question in done.json] == [("France", True), ("Atlantis", False)]
    assert "dev questions of testbed:capital" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--risk", "1.5"), "for --risk. Must be < 1"),
        (("--risk", "0.1", "--confidence", "95"), "for --confidence. Must be < 1"),
        (("--confidence", "0.9"), "--confidence goes with --risk"),
        (("--risk", "0.1"), "name the relation with --facts"),
    ],
)
def test_risks_and_confidences_outside_0_and_1_are_refused(askwell, lms, options, message):
    done = askwell("ask", "--lm", lms["bert"], *PROMPTS, "Paris", *options)
    assert done.code == 2
    assert message in done.err


def test_other_candidates_need_another_threshold(askwell, half_sure, tmp_path):
    folder, known, *_ = half_sure
    (tmp_path / "words.txt").write_text("Rome\nLima\n")
    done = askwell("ask", folder, known, "--risk", "0.1", "--candidates", tmp_path / "words.txt")
    assert done.code == 2
    assert "the candidates differ" in done.err


def test_evaluate_tells_how_far_to_believe(askwell, trained, facts):
    done = askwell("evaluate", trained, "--facts", facts, "--trust", "--json")
    assert done.code == 0, done.err
    (found,) = done.json["trust"]
    assert found["facts"] == done.json["facts"] == 4
    assert found["scores"] == done.json["micro"]
    assert found["consistency"]["prompts"] == 2
    assert found["projection"]["tuned"] == done.json["micro"]
    assert found["at_risk"]["dev_questions"] == 2
    shown = askwell("evaluate", trained, "--facts", facts, "--trust")
    for words in (
        "Calibration",
        "Abstention",
        "Answer sets",
        "its 2 prompts",
        "The words nearest to its vectors score",
        "left out",
    ):
        assert words in shown.out, words
    assert f"expected calibration error {100 * found['calibration']['ece']:.1f} %" in shown.out
    assert "trust" not in askwell("evaluate", trained, "--facts", facts, "--json").json
    refused = askwell("evaluate", trained, "--facts", facts, "--trust", "--split", "dev")
    assert refused.code == 2
    assert "measures on test" in refused.err


def test_show_scores_the_nearest_words(askwell, trained, facts, tmp_path):
    document = askwell("show", trained, "--facts", facts, "--json").json
    assert len(document["prompts"]) == 2
    projection = document["projection"]
    saved = json.loads((trained / "run.json").read_text())["test"]["micro"]
    assert projection["tuned"] == {name: saved[name] for name in ("P@1", "P@10", "MRR")}
    shown = askwell("show", trained, "--facts", facts, "--html", tmp_path / "words.html").out
    told = f"nearest to its vectors score {projection['projected']['P@1']:.1f}"
    assert told in shown
    assert told in (tmp_path / "words.html").read_text()
    assert "nearest to its vectors" not in askwell("show", trained).out


def test_several_runs_of_a_relation(askwell, lms, facts, tmp_path):
    for seed in (0, 1):
        arguments = ("--facts", facts, *PROMPTS, "--initial", "random", "--seed", seed, "--out", tmp_path / str(seed))
        assert askwell("train", "--lm", lms["bert"], *arguments, *QUICK).code == 0
    each = [askwell("evaluate", tmp_path / n, "--facts", facts, "--json").json["micro"]["MRR"] for n in "01"]
    both = ("evaluate", tmp_path / "0", tmp_path / "1", "--facts", facts, "--facts", facts)
    (found,) = askwell(*both, "--json").json["several_runs"]
    mrr = found["scores"]["MRR"]
    assert (mrr["runs"], mrr["low"], mrr["high"]) == (2, min(each), max(each))
    assert mrr["mean"] == pytest.approx(sum(each) / 2)
    assert mrr["deviation"] == pytest.approx(abs(each[0] - each[1]) / 2**0.5)
    assert found["consistency"]["pairs"][0]["questions"] == 4
    shown = askwell(*both).out
    assert f"{mrr['mean']:.1f}" in shown
    assert "Two runs give the same answer" in shown


def seeded(lms, facts, out, *options):
    return (
        "train",
        "--lm",
        lms["bert"],
        "--facts",
        facts,
        *PROMPTS,
        "--initial",
        "random",
        "--out",
        out,
        *QUICK,
        *options,
    )


def test_train_over_seeds_and_go_on(askwell, lms, facts, tmp_path):
    done = askwell(*seeded(lms, facts, tmp_path / "runs", "--seeds", "3,5", "--json"))
    assert done.code == 0, done.err
    folders = [tmp_path / "runs" / f"seed-{seed}" for seed in (3, 5)]
    scores = [json.loads((folder / "run.json").read_text())["test"]["micro"]["MRR"] for folder in folders]
    assert scores[0] != scores[1]
    mrr = done.json["scores"]["MRR"]
    assert (mrr["mean"], mrr["low"], mrr["high"]) == (pytest.approx(sum(scores) / 2), min(scores), max(scores))
    assert done.json["by_seed"]["5"]["MRR"] == scores[1]
    assert done.json["facts"] == [4]
    alone = askwell(*seeded(lms, facts, tmp_path / "alone", "--seed", "5"))
    assert alone.code == 0
    name = "mixture/mixture.safetensors"
    assert (folders[1] / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), "as that seed gives alone"

    both = askwell("evaluate", tmp_path / "runs", "--facts", facts, "--json")
    assert both.code == 0, both.err
    assert both.json["several_runs"][0]["scores"]["MRR"]["mean"] == pytest.approx(sum(scores) / 2)
    too_many = askwell("evaluate", folders[0], "--facts", facts, "--facts", facts)
    assert too_many.code == 2
    assert "--facts names 2 relations for 1 mixtures; give one for all, or one for each" in too_many.err

    refused = askwell(*seeded(lms, facts, tmp_path / "runs", "--seeds", "3,5"))
    assert refused.code == 2
    assert "already holds a run" in refused.err
    shutil.rmtree(folders[1])
    before = (folders[0] / "run.json").stat().st_mtime_ns
    again = askwell(*seeded(lms, facts, tmp_path / "runs", "--seeds", "3,5", "--resume"))
    assert again.code == 0, again.err
    assert f"{folders[0]} is already done" in again.err
    assert (folders[0] / "run.json").stat().st_mtime_ns == before
    assert f"{mrr['mean']:.1f}" in again.out
    other = askwell(*seeded(lms, facts, tmp_path / "runs", "--seeds", "3,5", "--resume", "--deep"))
    assert other.code == 2
    assert "other facts or options" in other.err


@pytest.mark.parametrize("seeds", ["1", "0,0", "a,b", "-1,2"])
def test_seeds_that_make_no_spread_are_refused(askwell, lms, facts, tmp_path, seeds):
    done = askwell(*seeded(lms, facts, tmp_path / "runs", f"--seeds={seeds}"))
    assert done.code == 2
    assert "--seeds" in done.err
    assert not (tmp_path / "runs").exists()


def test_seeds_and_folds_of_a_single_file(askwell, lms, tmp_path):
    file, out = tmp_path / "f.csv", tmp_path / "runs"
    file.write_text("city,land\n" + "".join(f"{x},{y}\n" for x, y in PAIRS))
    named = ("--x", "city", "--y", "land")

    several = askwell(*seeded(lms, file, tmp_path / "seeds", "--seeds", "3,5", *named, "--json"))
    assert several.code == 0, several.err
    first, second = (read_run(tmp_path / "seeds" / f"seed-{seed}") for seed in (3, 5))
    assert first.record.spec.facts_sha256 == second.record.spec.facts_sha256, "the file is split once"
    assert several.json["by_seed"]["5"] == second.record.test.micro

    done = askwell(*seeded(lms, file, out, "--folds", "3", *named, "--json"))
    assert done.code == 0, done.err
    runs = [read_run(out / f"fold-{fold}") for fold in (1, 2, 3)]
    asked = sorted((outcome.x, outcome.y) for run in runs for outcome in run.test)
    assert asked == sorted(PAIRS), "each fact once"
    for name, outcomes in (("tuned", [run.test for run in runs]), ("untuned", [run.untuned for run in runs])):
        right = sum(outcome.rank == 1 for of_run in outcomes for outcome in of_run)
        assert done.json[name]["micro"]["P@1"] == pytest.approx(100 * right / len(PAIRS))
        assert done.json[name]["facts"] == len(PAIRS)
    tuned = done.json["tuned"]["micro"]["P@1"]
    wilson = binomtest(round(tuned * len(PAIRS) / 100), len(PAIRS)).proportion_ci(method="wilson")
    assert (done.json["low"], done.json["high"]) == pytest.approx((100 * wilson.low, 100 * wilson.high))
    gain = done.json["gain"]["micro"]
    assert gain["difference"] == pytest.approx(tuned - done.json["untuned"]["micro"]["P@1"])
    assert done.json["knowledge"]["score"] == pytest.approx(tuned)

    shutil.rmtree(out / "fold-3")
    again = askwell(*seeded(lms, file, out, "--folds", "3", *named, "--resume"))
    assert again.code == 0, again.err
    assert f"{out / 'fold-2'} is already done" in again.err
    assert f"Each of the {len(PAIRS)} facts was answered once" in again.out
    assert f"in {out / 'fold-'}" in askwell("ask", out, PAIRS[0][0]).err, "it says which of the folds it asks"

    # The record says where the facts were, in which columns, and how they were split.
    known = askwell("evaluate", out / "fold-2", "--json")
    assert known.json["micro"] == runs[1].record.test.micro
    together = askwell("evaluate", out, "--json")
    assert together.json["micro"]["P@1"] == pytest.approx(tuned)
    file.write_text(file.read_text().replace(PAIRS[0][1], "Atlantis"))
    refused(askwell("evaluate", out / "fold-2"), "have changed since")
    file.unlink()
    refused(askwell("evaluate", out / "fold-2"), "cannot be read again", "--facts")


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        ("testbed:capital", ["3"], "--folds is for facts that are not split yet"),
        ("f.csv", ["11"], "takes at least 11 distinct x"),
        ("f.csv", ["3", "--seeds", "2"], "--seeds and --folds cannot be combined"),
        ("f.csv", ["1"], "--folds"),
    ],
)
def test_folds_that_make_no_sense(askwell, lms, tmp_path, monkeypatch, facts, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in PAIRS))
    refused(askwell(*seeded(lms, facts, "runs", "--folds", *options)), message)
    assert not (tmp_path / "runs").exists()
