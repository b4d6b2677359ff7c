"""The plan of a probe, its runs in short, and its card, against counts by hand; probes that are interrupted, that go on
elsewhere, and that are run by a sweep."""

import shutil
import tomllib
from pathlib import Path

import pytest

from askwell.data.templates import parse_template
from askwell.errors import BadFile, BadOption, Failure
from askwell.runs.engines import Ended, InProcess, run_plan
from askwell.runs.plan import plan_sweep, sample_prompts
from askwell.runs.probe_card import card_of
from askwell.runs.probe_lms import open_probe
from askwell.runs.probe_plan import (
    EXAMPLES,
    HARD,
    MIXTURE,
    PROBE,
    SETTINGS,
    SOFT,
    SWEEP,
    ProbeSpec,
    SettingName,
    prompts_of,
    read_probe,
    relations_in_order,
    steps_within,
    sweep_of,
    sweep_toml,
    write_probe,
)
from askwell.runs.probe_results import RESULTS, ProbedFact, ProbedRun, read_results, write_results
from askwell.runs.record import Environment
from askwell.runs.store import new_or_open_store
from askwell.specs.run_spec import SweepSpec, read_sweep
from askwell.views.knowledge_card import relation_table

QUICK: tuple[SettingName, ...] = (HARD, EXAMPLES, SOFT)
SPEC = ProbeSpec(lms=("testbed2:bert",), facts_of="testbed2", prompts=("testbed2:single",))


def test_more_minutes_only_extend_a_plan():
    costs = [100.0, 20.0, 30.0, 500.0]
    assert [steps_within(costs, minutes, 1) for minutes in (0.1, 2.0, 2.5, 10.0, 11.0)] == [1, 2, 3, 3, 4]
    assert steps_within(costs, 1.0, 2) == 2


def test_the_order_of_relations_depends_on_the_seed_alone():
    orders = [relations_in_order(SPEC.model_copy(update={"seed": seed}), None) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_the_plan_can_be_run_by_sweep(tmp_path):
    sweep = sweep_of(SPEC, ["testbed2:trade"], 2, tmp_path)
    assert SweepSpec.model_validate(tomllib.loads(sweep_toml(sweep, "A plan."))) == sweep
    assert sweep.settings[SOFT].seeds == (0, 1)


def test_larger_samples_of_prompts_contain_smaller_ones_and_begin_with_the_first():
    templates = [parse_template(f"[X] is {number} [Y] .") for number in range(9)]
    small, large = (sample_prompts(templates, most, "0") for most in (3, 6))
    assert large[:3] == small
    assert small[0] == templates[0]
    assert len({*large}) == 6


def test_a_set_of_your_own_needs_prompts_for_its_relations(tmp_path):
    for relation in ("capital", "trade"):
        (tmp_path / "own" / relation).mkdir(parents=True)
        (tmp_path / "own" / relation / "test.jsonl").write_text('{"x": "Italy", "y": "Rome"}\n')
    own, prompts = str(tmp_path / "own"), tmp_path / "prompts"
    prompts.mkdir()
    with pytest.raises(BadOption, match=r"own: it has no prompts \(.*; name some with --prompts"):
        prompts_of(own, None, tmp_path)
    with pytest.raises(BadOption, match=r"`prompts` .*prompts: there is no trade\.jsonl in "):
        prompts_of(own, [str(prompts)], tmp_path)
    with pytest.raises(BadOption, match=r"`prompts` nowhere: .*there is no such file or folder"):
        prompts_of(own, ["[X] has [Y] .", "nowhere"], tmp_path)
    (prompts / "trade.jsonl").write_text('{"template": "[X] sells [Y] ."}\n')
    assert prompts_of(own, [str(prompts)], tmp_path) == (str(prompts),)
    files = tmp_path / "files"
    files.mkdir()
    (files / "trade.csv").write_text("x,y\nItaly,wine\n")
    assert prompts_of(str(files), [str(prompts)], tmp_path) == (str(prompts),)
    assert prompts_of("testbed2", None, tmp_path) == ("testbed2:single", "testbed2:paraphrased")


def run_of(setting, ranks, *, seed=0, dev=50.0, relation="r", probability=0.6, lm="lm", cut=()):
    facts = [
        ProbedFact(f"x{n}", f"y{n}", rank == 1, n not in cut, -1.0, "a", probability, rank == 1, n == 0, n)
        for n, rank in enumerate(ranks)
    ]
    return ProbedRun(
        id=f"{lm} {relation} {setting} {seed}", lm=lm, lm_sha256="0", relation=relation, label=relation, kind="N-1",
        setting=setting, seed=seed, prompts=1, shots=0, answers="one-token", dev=dev, control="majority",
        control_dev=10.0, bits=1.0, facts=tuple(facts), left_out=0, environment=Environment(seconds=2.0),
    )  # fmt: skip


def test_a_card_counts_what_can_be_counted_by_hand():
    ranks = {name: [1.0, 2.0, 2.0, None] for name in SETTINGS}
    ranks |= {SOFT: [1.0, 1.0, 2.0, None], MIXTURE: [1.0, 1.0, 1.0, 2.0]}
    runs = [run_of(name, of, dev=90.0 if name == SOFT else 50.0) for name, of in ranks.items()]
    (card,) = card_of([*runs, run_of(SOFT, [1.0], relation="half")], ["r", "half"], ["lm"]).lms
    assert card.tuned == 50.0  # soft is better on dev, though the mixture is better on test
    assert (card.control, card.scores["hard prompt"], card.scores[MIXTURE]) == (25.0, 25.0, 75.0)
    assert card.brought_out == 1
    assert (card.confident, card.confident_wrong) == (4, 2)
    assert card.missing == ("half",)
    assert card.seconds == 10.0
    assert [(part.name, part.facts) for part in card.parts["frequency of the answer"]] == [
        ("never in train", 1),
        ("1–4 times", 3),
    ]


def test_without_mixtures_a_card_is_of_the_other_settings():
    ranks = {HARD: [2.0, 2.0], EXAMPLES: [1.0, 2.0], SOFT: [1.0, 1.0]}
    runs = [run_of(name, of) for name, of in ranks.items()]
    with pytest.raises(Failure, match="no relation has all its runs"):
        card_of(runs, ["r"], ["lm"])
    (card,) = card_of([*runs, run_of(MIXTURE, [2.0, 2.0], dev=90.0)], ["r"], ["lm"], QUICK).lms
    assert card.scores == {HARD: 0.0, EXAMPLES: 50.0, SOFT: 100.0}
    assert card.tuned == 100.0


def test_where_a_search_was_cut_scores_have_two_bounds_and_tests_leave_the_fact_out():
    runs = [run_of(HARD, [1.0, 1.0, 2.0, 2.0], cut=(1,))]
    runs += [run_of(name, [1.0, 1.0, 1.0, 2.0]) for name in (EXAMPLES, SOFT)]
    (card,) = card_of(runs, ["r"], ["lm"], QUICK).lms
    assert (card.at_least[HARD], card.scores[HARD]) == (25.0, 50.0)
    assert card.at_least[SOFT] == card.scores[SOFT] == 75.0
    assert card.unsettled == {HARD: 1, EXAMPLES: 0, SOFT: 0}
    assert card.over_hard.difference == pytest.approx(100 / 3)  # of the three facts that are known, one is gained
    (row, mean) = relation_table(card).rows
    assert [[cell.text for cell in one.cells[2:5]] for one in (row, mean)] == [["25.0–50.0", "75.0", "75.0"]] * 2


def test_two_lms_are_compared_on_their_facts():
    ranks = {"a": [1.0] * 8, "b": [1.0] * 2 + [2.0] * 6}
    runs = [run_of(setting, of, lm=lm) for lm, of in ranks.items() for setting in SETTINGS]
    runs += [run_of(setting, of, lm=lm, seed=1) for lm, of in ranks.items() for setting in (SOFT, MIXTURE)]
    card = card_of(runs, ["r"], ["a", "b"])
    (pair,) = card.pairs
    assert (pair.a, pair.b, pair.facts, pair.relations) == ("a", "b", 8, 1)
    assert pair.difference.difference == 75.0
    # Six facts, each with a y of its own, are answered by one of them alone: 2 of the 64 flips of signs are as far.
    assert pair.difference.p == pytest.approx(2 / 64, abs=0.01)
    # The control has the first fact right: seven more are knowledge, one more can be chance.
    assert [one.is_knowledge for one in card.lms] == [True, False]
    # Six more: p = 0.031 is not below the paper's threshold, though the interval is above 0.
    (six,) = card_of([run_of(setting, [1.0] * 7 + [2.0], lm="a") for setting in SETTINGS], ["r"], ["a"]).lms
    assert six.over_control.low is not None
    assert (six.over_control.low > 0, six.is_knowledge) == (True, False)


def test_tests_are_over_all_seeds_as_scores_are():
    ranks = {(HARD, 0): [2.0] * 4, (EXAMPLES, 0): [2.0] * 4, (SOFT, 0): [1.0] * 4, (SOFT, 1): [1.0, 1.0, 2.0, 2.0]}
    runs = [run_of(name, of, seed=seed) for (name, seed), of in ranks.items()]
    one_seed = [run_of(name, [1.0] * 4, relation="s") for name in QUICK]
    (card,) = card_of([*runs, *one_seed], ["r", "s"], ["lm"], QUICK).lms
    assert card.tuned == (75.0 + 100.0) / 2
    assert card.over_hard.difference == (75.0 + 0.0) / 2
    assert card.over_control.difference == card.tuned - card.control


def test_facts_to_read_have_the_right_answer_first():
    """The other facts that tuning brings out count, but show another right answer of the same x."""
    runs = {name: run_of(name, [2.0, 2.0, 2.0]) for name in QUICK}
    found = [fact._replace(is_first=True, is_right=True) for fact in runs[SOFT].facts]
    found[1] = found[1]._replace(answer="y1")
    runs[SOFT] = runs[SOFT].model_copy(update={"facts": tuple(found)})
    (card,) = card_of(runs.values(), ["r"], ["lm"], QUICK).lms
    assert card.brought_out == 2  # the control has the first one
    assert [(fact.y, fact.tuned) for fact in card.brought_out_facts] == [("y1", "y1")]


def test_without_a_whole_relation_there_is_no_card():
    with pytest.raises(Failure, match="no relation has all its runs"):
        card_of([run_of(SOFT, [1.0])], ["r"], ["lm"])


def test_runs_in_short_are_read_as_they_were_written(tmp_path):
    path, run = tmp_path / "results.jsonl", run_of(SOFT, [1.0, None])
    odd = run.facts[0]._replace(x="a\u2028b\x85c")  # which end a line elsewhere, and not in JSON
    run = run.model_copy(update={"facts": (odd, *run.facts[1:])})
    write_results({run.id: run}, path)
    assert read_results(path) == {run.id: run}
    path.write_text(path.read_text() + "{\n")
    with pytest.raises(BadFile, match="line 2"):
        read_results(path)


@pytest.mark.parametrize(
    ("saved", "changed"),
    [
        ('"dev":50.0', '"dev":NaN'),
        ('"seconds":2.0', '"seconds":1e999'),
        ('"seconds":2.0', '"seconds":-5'),
        ('"a",0.6', '"a",NaN'),
        ('"a",0.6', '"a",7e9'),
        ("-1.0", "-1e999"),
    ],
)
def test_results_that_nothing_can_be_counted_from_are_refused(saved, changed, tmp_path):
    path, run = tmp_path / "results.jsonl", run_of(SOFT, [1.0])
    write_results({run.id: run}, path)
    assert saved in path.read_text()
    path.write_text(path.read_text().replace(saved, changed))
    with pytest.raises(BadFile, match="line 1"):
        read_results(path)


@pytest.mark.parametrize("cost", ["1e308", "-1.0", "inf", "nan"])
def test_a_cost_that_no_plan_can_be_made_with_is_refused(cost, tmp_path):
    write_probe(SPEC, sweep_of(SPEC, ["testbed2:trade"], 1, tmp_path), tmp_path)
    with (tmp_path / PROBE).open("a") as file:
        file.write(f'"testbed2:bert" = {cost}\n')
    with pytest.raises(BadFile, match="seconds_per_unit"):
        read_probe(tmp_path)


class Stopping:
    """Follows a plan, and interrupts it when so many runs have ended."""

    def __init__(self, most=100):
        self.most, self.ended = most, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, event):
        if isinstance(event, Ended):
            self.ended.append(event.task.spec.id)
            if len(self.ended) == self.most:
                raise KeyboardInterrupt


def probe_places(world, folder, settings=QUICK, minutes=60.0):
    """A probe of a tiny LM on a folder of one's own relations."""
    places = world.data / "facts" / "places"
    spec = ProbeSpec(
        lms=(str(world.folder / "bert"),), facts_of=str(places), prompts=("many",), settings=settings, minutes=minutes
    )
    return open_probe(spec, folder, data=world.data, workers=1, note=None)


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory):
    probe = probe_places(world, tmp_path_factory.mktemp("probed"))
    assert probe.run(lambda *_: Stopping(), lambda _text: None) == 0
    return probe


def same_results(folder: Path, as_in: Path) -> bool:
    """Whether two probes have the same runs, apart from when and where they were made."""
    each = (read_results(one / RESULTS) for one in (folder, as_in))
    a, b = ({run.id: run.model_copy(update={"environment": Environment()}) for run in of.values()} for of in each)
    return a == b


def test_an_interrupted_probe_goes_on_elsewhere_and_repeats_no_run(world, undisturbed, tmp_path):
    first, elsewhere = Stopping(2), Stopping()
    with pytest.raises(KeyboardInterrupt):
        probe_places(world, tmp_path / "a").run(lambda *_: first, lambda _text: None)
    assert read_results(tmp_path / "a" / RESULTS).keys() == {*first.ended}
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a" / RESULTS, tmp_path / "b")  # without the store
    probe, notes = probe_places(world, tmp_path / "b"), []
    before = probe.in_short()
    assert probe.run(lambda *_: elsewhere, notes.append) == 0
    # The plan is told in the same words before and after it is measured.
    (measured,) = notes
    same = "2 of 2 relations with 3 of 3 seeds, at most"
    assert (before.startswith(same), measured.startswith(f"measured: {same}")) == (True, True)
    assert len({*first.ended, *elsewhere.ended}) == len(first.ended) + len(elsewhere.ended) == 10  # with all seeds
    assert same_results(tmp_path / "b", undisturbed.folder)
    assert probe_places(world, tmp_path / "b").to_do == ()


def test_a_sweep_runs_the_plan_and_the_probe_takes_its_runs_over(world, undisturbed, tmp_path):
    folder = tmp_path / "probe"
    folder.mkdir()
    planned = probe_places(world, folder).toml()
    relations, runs = len(undisturbed.planned[0]), len(undisturbed.store.done())
    first, *_ = planned.splitlines()
    assert first.startswith(f"# The plan of `askwell probe`: {relations} of {relations} relations with 3 of 3 seeds, ")
    assert f": {runs} runs to do, about " in first
    (tmp_path / "plan.toml").write_text(planned)
    sweep, store = read_sweep(tmp_path / "plan.toml"), new_or_open_store(folder)
    plan = plan_sweep(sweep, tmp_path / "plan.toml", store, data=world.data)
    assert run_plan(plan, InProcess(), store, lambda _event: None) == []
    taken_over = probe_places(world, folder)
    assert taken_over.to_do == ()
    assert same_results(folder, undisturbed.folder)
    assert taken_over.card().as_json()["lms"][0]["scores"] == undisturbed.card().as_json()["lms"][0]["scores"]
    assert (undisturbed.folder / SWEEP).is_file()


def test_a_folder_goes_on_with_other_settings_but_not_with_other_facts(world, undisturbed, tmp_path):
    shutil.copytree(undisturbed.folder, tmp_path / "probe")
    left = probe_places(world, tmp_path / "probe", SETTINGS).to_do
    assert {task.spec.setting for task in left} == {"hard ensemble", MIXTURE}
    toml = tmp_path / "probe" / PROBE
    toml.write_text(toml.read_text().replace("test_facts = 150", "test_facts = 3"))
    with pytest.raises(BadOption, match="differs in test_facts"):
        probe_places(world, tmp_path / "probe")


def test_dev_is_asked_only_where_it_chooses_between_tuned_settings(undisturbed):
    of = {run.setting: run for run in read_results(undisturbed.folder / RESULTS).values()}
    assert {name for name, run in of.items() if run.dev is not None} == {SOFT}
    assert all(run.control_dev is not None for run in of.values() if run.control is not None)
