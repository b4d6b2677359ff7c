"""What is served: names, their mixtures, what is known about an x, and training jobs."""

import shutil
import time

import pytest
from builders.testbed import load_testbed_lm

from askwell.data import testbed
from askwell.data.facts import Fact
from askwell.errors import DamagedFile, UsageError
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import load_runs, read_run, write_remarks
from askwell.server.catalogue import Catalogue
from askwell.server.refusals import NoSuchName, Overloaded, Refused
from askwell.server.schemas import TrainRequest
from askwell.server.service import Job, Service
from askwell.server.settings import Settings
from askwell.server.train_pages import check_order

SYMBOL = "the symbol of [X] is [Y] ."


@pytest.fixture(scope="module")
def service(made_runs):
    made = Service(Settings(runs=made_runs))
    yield made
    made.close()


def over(job: Job) -> Job:
    until = time.monotonic() + 600
    while not job.is_over:
        assert time.monotonic() < until
        time.sleep(0.01)
    return job


def test_a_run_is_two_mixtures_the_tuned_one_and_its_hard_prompts(service):
    entries = service.catalogue.entries()
    assert {name: entry.kind for name, entry in entries.items()} == {
        "soft": "tuned", "soft:hard": "hard", "deep": "tuned", "deep:hard": "hard", "hard": "hard",
    }  # fmt: skip
    assert entries["soft"].label == "chemical element → its symbol"
    assert entries["soft"].lm == "testbed:bert"


def test_answers_are_those_of_the_saved_mixture_and_of_its_templates(service, made_runs):
    lm = load_testbed_lm("bert")
    templates = testbed.testbed_prompts("mined", "symbol")[:3]
    saved = {
        "soft": Mixture.from_pretrained(made_runs / "soft", lm),
        "deep": Mixture.from_pretrained(made_runs / "deep", lm),
    }
    for name in ("soft:hard", "hard"):
        saved[name] = Mixture(lm, templates)
        saved[name].answer_kind = saved["soft"].answer_kind
    xs = ["iron", "gold", "tin"]
    for name, mixture in saved.items():
        for x, found in zip(xs, service.ask(name, xs, 4).result(600), strict=True):
            alone = mixture.ask(x, top=4)
            assert [reply.y for reply in found] == [reply.y for reply in alone], (name, x)
            assert [reply.probability for reply in found] == pytest.approx([one.probability for one in alone], rel=1e-3)


def test_what_is_known_of_an_x_is_what_the_world_says(service):
    known = service.catalogue.find("soft").facts
    relation = testbed.testbed_relation("symbol")
    assert {x: one.golds for x, one in known.items()} == dict(relation.golds)
    for fact in relation.test:
        assert known[fact.x].told[fact.y] == (fact in testbed.told_facts("symbol"))
        assert known[fact.x].split == "test"


def test_the_prompts_behind_an_answer(service, made_runs):
    mixture = Mixture.from_pretrained(made_runs / "soft", load_testbed_lm("bert"))
    behind = service.behind(service.catalogue.find("soft"), "iron").result(600)
    assert [one.weight for one in behind] == sorted((one.weight for one in behind), reverse=True)
    assert sum(one.weight for one in behind) == pytest.approx(1)
    by_template = {one.template: one for one in behind}
    everything = mixture.ask("iron", top=mixture.token_words.count)
    for number, prompt in enumerate(mixture.prompts):
        best = max(everything, key=lambda reply, at=number: reply.by_prompt[at])
        one = by_template[prompt.template.text]
        assert (one.y, one.weight) == (best.y, pytest.approx(mixture.weights[number].detach().item()))
        assert one.probability == pytest.approx(best.by_prompt[number], rel=1e-3)


def test_the_weight_of_a_prompt_is_that_for_this_x():
    from builders.worlds import TEMPLATES, frozen

    from askwell.specs.mixture_spec import MixtureSpec

    mixture = Mixture(frozen("bert"), TEMPLATES, MixtureSpec(weighting="data-dependent"))
    by_x = {x: {one.template: one.weight for one in mixture.answering().prompts_behind(x)} for x in ("Paris", "Oslo")}
    assert all(sum(weights.values()) == pytest.approx(1) for weights in by_x.values())
    assert by_x["Paris"] != pytest.approx(by_x["Oslo"])
    with pytest.raises(UsageError, match="cannot be asked"):
        mixture.answering().prompts_behind("")


def test_names_are_looked_up_and_never_become_paths(service, made_runs):
    for name in (
        "../soft",
        "soft/mixture",
        str(made_runs / "soft"),
        "soft\0",
        "",
        ".",
        "SOFT",
        "soft:hard:hard",
        "x" * 10**5,
    ):
        with pytest.raises(NoSuchName) as unknown:
            service.catalogue.find(name)
        assert len(str(unknown.value)) < 400


def test_runs_that_come_change_or_go_are_noticed(runs):
    catalogue = Catalogue(runs)
    before = catalogue.find("soft").askable
    shutil.copytree(runs / "soft", runs / "new")
    assert catalogue.find("new").kind == "tuned"
    shutil.rmtree(runs / "new")
    with pytest.raises(NoSuchName):
        catalogue.find("new")
    shutil.copytree(runs / "deep", runs / "soft", dirs_exist_ok=True)
    after = catalogue.find("soft").askable
    assert before.key != after.key
    write_remarks(runs / "soft", name="another name")
    assert catalogue.find("soft").askable.key == after.key  # so answers in the cache are still given
    assert catalogue.run("soft").remarks.name == "another name"


def test_a_damaged_run_is_named_and_the_others_are_served(runs):
    (runs / "deep" / "run.json").write_text("{")
    catalogue = Catalogue(runs)
    assert set(catalogue.entries()) == {"soft", "soft:hard", "hard"}
    assert list(catalogue.problems) == ["deep"]
    assert "damaged" in catalogue.problems["deep"]
    assert str(runs) not in catalogue.problems["deep"]
    (runs / "soft" / "mixture" / "config.json").write_text("{}")
    with pytest.raises(DamagedFile) as damaged:
        _ = catalogue.find("soft").askable
    assert str(runs) not in catalogue.without_path(str(damaged.value))


def test_long_hashes_are_cut_where_that_is_enough(made_runs, tmp_path):
    folder = tmp_path / "store" / "runs"
    one, other = "a" * 20 + "0" * 44, "a" * 20 + "1" * 44
    shutil.copytree(made_runs / "soft", folder / one)
    assert set(Catalogue(tmp_path / "store").runs()) == {"a" * 12}
    shutil.copytree(made_runs / "deep", folder / other)
    assert set(Catalogue(tmp_path / "store").runs()) == {one[:24], other[:24]}


def test_without_a_folder_the_testbed_answers(monkeypatch, tmp_path):
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path))
    service = Service(Settings())
    entry = service.catalogue.find("testbed:capital/bert")
    lm = load_testbed_lm("bert")
    alone = Mixture(lm, testbed.testbed_prompts("single", "capital")).ask("France", top=3)
    found = service.ask(entry.name, ["France"], 3).result(600)[0]
    assert [reply.y for reply in found] == [reply.y for reply in alone]
    assert len(service.catalogue.entries()) == 4 * 13
    service.close()


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────


def order(pairs: int | None = 200, facts: dict[str, str] | None = None) -> TrainRequest:
    told = [(fact.x, fact.y) for facts in testbed.testbed_relation("symbol").splits.values() for fact in facts]
    given = [{"x": x, "y": y} for x, y in (told if facts is None else facts.items())]
    return TrainRequest.model_validate(
        {"lm": "testbed:bert", "relation": "My symbols / ..", "facts": given, "templates": [SYMBOL], "pairs": pairs}
    )


@pytest.fixture
def training(tmp_path):
    (tmp_path / "mine").mkdir()
    made = Service(Settings(runs=tmp_path / "mine", waiting_jobs=2))
    yield made
    made.close()


def test_a_job_is_a_run_like_any_other(training):
    job = over(training.train(order()))
    assert job.state == "done"
    assert job.folder is not None
    assert job.folder.parent == training.catalogue.path
    assert job.folder.name.startswith("my-symbols-")
    run = read_run(job.folder)
    assert run.record.relation.name == "My symbols / .."
    assert run.record.relation.split_by == "random"
    assert run.record.untuned is not None
    right, before = (100 * sum(one.rank == 1 for one in of) / len(of) for of in (run.test, run.untuned))
    assert job.message.startswith(f"Of {len(run.test)} test fact")
    assert f"{right:.1f} % answered correctly, {before:.1f} % before tuning." in job.message
    assert len(run.test) < 30
    assert "P@1 on more of them may lie anywhere between" in job.message
    assert job.history[-1].pairs == run.record.history[-1].pairs
    assert [line.dev_p_at_1 for line in job.history] == [line.dev["P@1"] for line in run.record.history]
    assert job.mixture == job.folder.name
    entry = training.catalogue.find(job.mixture)
    assert training.ask(entry.name, ["iron"]).result(600)[0]
    again = over(training.train(order()))
    assert (again.state, again.message) == ("done", "This run already existed.")


def test_a_cancelled_job_keeps_its_best_state_and_can_be_continued(training):
    job = training.train(order(2000))
    while not job.history:
        time.sleep(0.01)
    training.jobs.cancel(job.id)
    assert over(job).state == "cancelled"
    assert job.folder is not None
    assert (job.folder / "mixture" / "config.json").is_file()
    assert not (job.folder / "run.json").exists()
    assert training.catalogue.runs() == {}
    again = over(training.train(order(2000)))
    assert (again.state, again.folder) == ("done", job.folder)
    assert len(load_runs(training.catalogue.path)) == 1


def test_too_many_jobs_are_refused_and_waiting_ones_can_be_cancelled(training):
    first = training.train(order(10**6))
    while first.state == "waiting":
        time.sleep(0.01)
    second, third = training.train(order(300)), training.train(order(400))
    with pytest.raises(Overloaded):
        training.train(order(500))
    training.jobs.cancel(third.id)
    assert third.state == "cancelled"
    training.jobs.cancel(first.id)
    assert over(first).state == "cancelled"
    assert over(second).state == "done"
    with pytest.raises(NoSuchName):
        training.jobs.cancel("../../etc")


def test_what_cannot_be_trained_is_told(training):
    with pytest.raises(UsageError):
        training.train(order(facts={"iron": "Fe"}))
    with pytest.raises(UsageError, match="there are no facts"):
        training.train(order(facts={}))
    job = over(training.train(order(facts={f"iron {number}": "☃" * number for number in range(1, 20)})))
    assert job.state == "failed"
    assert "left" in job.message
    with pytest.raises(NoSuchName, match="there is no LM '/etc'"):
        training.lm_source("/etc")


def test_training_can_be_switched_off(made_runs):
    service = Service(Settings(runs=made_runs, training=False))
    with pytest.raises(Refused, match="switched off"):
        service.train(order())
    service.close()


def test_templates_are_checked_as_the_lm_reads_them():
    facts = [Fact("iron", "Fe"), Fact("gold", "☃☃☃")]
    lm = load_testbed_lm("bert")
    found = check_order(lm, [SYMBOL, "[X] only", "[X]'s is [Y]."], facts)
    first, second, third = found.templates
    expected = lm.tokenizer.tokenize("the symbol of A is B .")
    assert [token if token not in ("[X]", "[Y]") else "?" for token in first.tokens] == [
        "?" if token in lm.tokenizer.tokenize("A") + lm.tokenizer.tokenize("B") else token for token in expected
    ]
    assert first.problem is None
    assert second.problem is not None
    assert "[Y]" in second.problem
    assert third.problem is None
    assert [fact.y for fact, _ in found.left_out] == ["☃☃☃"]
    assert found.is_of_few


def test_a_causal_lms_tokens_are_shown_as_words():
    (found,) = check_order(load_testbed_lm("causal"), ["the symbol of [X] is [Y]"], []).templates
    assert " ".join(found.tokens).replace(" ‿", "") == "the symbol of [X] is [Y]"
