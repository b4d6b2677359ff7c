"""AutoPrompt: estimates, swaps and filters against brute force over the public model."""

import json
import shutil
from pathlib import Path
from typing import Any

import by_hand
import pytest
import torch
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, REPEATED, frozen
from by_hand import ids_of

from askwell.answers.one_token import OneTokenAnswers
from askwell.baselines.autoprompt import TriggerSearch, best_swaps, search_triggers
from askwell.baselines.result import BaselineRun
from askwell.data.templates import parse_template
from askwell.errors import BadOption, DamagedFile
from askwell.files import read_tensors
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.prompts.context import settle
from askwell.specs.training_spec import AutoPromptSpec
from askwell.training.checkpoint import CHECKPOINT

EVERYTHING: dict[str, Any] = {"allow_ys": True, "allow_proper_nouns": True, "sampled_facts": 1000}
EVERY_FACT = torch.arange(len(FACTS))


def found_tokens(result) -> tuple[int, ...]:
    return tuple(result.learned_from.prompt_token_ids)


def new_search(lm, **settings) -> TriggerSearch:
    return TriggerSearch(lm, REPEATED, AutoPromptSpec(**(EVERYTHING | settings)), None, settle(paper_spec(), lm))


def allowed_by_hand(lm) -> list[int]:
    return [token for token in range(lm.word_count) if token not in lm.tokenizer.all_special_ids]


def with_faint_words(name: str, factor: float) -> FrozenLM:
    """A tiny LM whose words are faint beside its positions, so that the loss is nearly linear in a word's vector."""
    model, tokenizer = tiny.TINY[name]()
    model.double()
    with torch.no_grad():
        embedding: Any = model.get_input_embeddings()
        embedding.weight.mul_(factor)
    return FrozenLM(model, tokenizer, name=name)


@pytest.mark.parametrize("row", [0, 2])
def test_estimates_are_the_public_models_gradient_times_the_change_of_the_vector(row):
    lm = frozen("bert", "float64")
    triggers = ids_of(lm, "lies", "the", "##vik")
    search = new_search(lm, triggers=3)
    found = search.estimates([*triggers, *ids_of(lm, ".")], row, EVERY_FACT)
    gradient = by_hand.gradient_at(lm, FACTS, triggers, row)
    words = lm.model.get_input_embeddings().weight.detach()
    expected = [float(gradient @ (word - words[triggers[row]])) for word in words]
    assert found.tolist() == pytest.approx(expected, abs=1e-9)
    assert found[triggers[row]].item() == pytest.approx(0, abs=1e-12)


def test_estimates_are_the_slope_of_the_loss_on_the_way_to_the_other_word():
    lm = with_faint_words("bert", 1e-3)
    triggers = ids_of(lm, "lies", "the")
    found = new_search(lm, triggers=2).estimates([*triggers, *ids_of(lm, ".")], 1, EVERY_FACT)
    before = by_hand.loss(lm, FACTS, triggers)
    for other in ids_of(lm, "capital", "Rome", "a"):
        change = by_hand.loss(lm, FACTS, [triggers[0], other]) - before
        assert found[other].item() == pytest.approx(change, rel=0.03, abs=0)


def test_the_truly_best_swap_is_among_the_first_candidates():
    lm = with_faint_words("bert", 0.02)
    triggers = ids_of(lm, "lies", "the")
    search = new_search(lm, triggers=2)
    allowed = allowed_by_hand(lm)
    for row in range(2):
        others = [token for token in allowed if token != triggers[row]]
        losses = by_hand.losses_of_swaps(lm, FACTS, triggers, row, others)
        estimates = search.estimates([*triggers, *ids_of(lm, ".")], row, EVERY_FACT)
        mask = torch.zeros(lm.word_count, dtype=torch.bool)
        mask[allowed] = True
        assert min(losses, key=losses.__getitem__) in best_swaps(estimates, mask, triggers[row], 3)


def test_best_swaps_leave_out_the_current_token_and_what_is_not_allowed():
    estimates = torch.tensor([0.5, -3.0, -2.0, 0.0, -1.0])
    allowed = torch.tensor([True, False, True, True, True])
    assert best_swaps(estimates, allowed, 2, 2) == [4, 3]
    assert best_swaps(estimates, allowed, 2, 100) == [4, 3, 0]


def test_with_one_trigger_and_all_tokens_as_candidates_it_finds_the_best_of_all():
    lm = frozen("bert")
    result = search_triggers(lm, REPEATED, AutoPromptSpec(**EVERYTHING, triggers=1, candidates=10_000, iterations=1))
    losses = by_hand.losses_of_swaps(lm, FACTS, [0], 0, allowed_by_hand(lm))
    best = min(losses, key=losses.__getitem__)
    assert found_tokens(result)[0] == best
    assert result.history[-1].loss == pytest.approx(losses[best], abs=1e-5)


def test_each_swap_lowers_the_loss_of_all_facts():
    lm = frozen("bert")
    spec = AutoPromptSpec(**EVERYTHING, triggers=3, candidates=8, iterations=12, start="random")
    history = search_triggers(lm, REPEATED, spec).history
    assert len(history) > 3
    for record in history:
        assert record.loss == pytest.approx(by_hand.loss(lm, FACTS, record.tokens[:3]), abs=1e-5)
    losses = [record.loss or 0.0 for record in history]
    assert losses == sorted(losses, reverse=True)


def test_masks_are_all_swapped_first_and_never_the_result():
    lm = frozen("bert")
    history = search_triggers(
        lm, REPEATED, AutoPromptSpec(triggers=4, candidates=2, iterations=4, sampled_facts=4)
    ).history
    assert [record.unwanted for record in history] == [4, 3, 2, 1, 0]
    result = search_triggers(lm, REPEATED, AutoPromptSpec(triggers=4, candidates=2, iterations=12, sampled_facts=4))
    assert lm.tokenizer.mask_token_id not in found_tokens(result)


def test_the_result_is_the_best_on_dev_by_p_at_1_then_log_loss():
    result = search_triggers(frozen("bert"), CAPITALS, AutoPromptSpec(triggers=3, iterations=10, sampled_facts=6))
    whole = [record for record in result.history if not record.unwanted]
    best = max(whole, key=lambda record: (record.dev["P@1"], -record.dev["log_loss"]))
    assert list(found_tokens(result)) == best.tokens
    assert result.about.scores["dev"]["log_loss"] == best.dev["log_loss"]


@pytest.mark.parametrize("whole_words", [False, True])
def test_it_is_asked_with_exactly_the_tokens_that_were_found(tmp_path, whole_words):
    lm = frozen("bert")
    spec = AutoPromptSpec(triggers=4, iterations=15, candidates=4, sampled_facts=5, whole_words=whole_words)
    result = search_triggers(lm, REPEATED, spec, folder=tmp_path)
    for mixture in (result.mixture, Mixture.from_pretrained(tmp_path, lm=lm)):
        facts, _ = mixture.encode(FACTS)
        found = OneTokenAnswers(mixture).log_probs(facts.xs, EVERY_FACT).gather(1, facts.answers[:, None])[:, 0]
        expected = [float(by_hand.log_prob(lm, fact, found_tokens(result)[:4])) for fact in facts.facts]
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
    if whole_words:
        assert result.learned_from.reads_back_from_text
        assert result.mixture.prompts[0].token_ids == found_tokens(result)


def test_a_given_prompt_is_where_it_starts_and_words_that_may_not_stay_are_swapped():
    lm = frozen("bert")
    start = parse_template("The city of [X] is Rome in [Y]")
    spec = AutoPromptSpec(iterations=8, candidates=3, sampled_facts=5)
    result = search_triggers(lm, REPEATED, spec, start_from=start)
    assert result.history[0].tokens == ids_of(lm, "The", "city", "of", "is", "Rome", "in")
    assert [record.unwanted for record in result.history[:3]] == [2, 1, 0]  # The and Rome
    names = lm.tokenizer.convert_ids_to_tokens(list(found_tokens(result)))
    assert not any(name[0].isupper() for name in names)


@pytest.mark.parametrize("name", ["roberta", "albert", "modernbert", "llama", "gpt2", "bart"])
def test_other_lms_are_searched_too(name):
    lm = frozen(name)
    spec = AutoPromptSpec(triggers=2, iterations=3, candidates=30, sampled_facts=1000, start="random")
    result = search_triggers(lm, REPEATED, spec)
    losses = [record.loss or 0.0 for record in result.history]
    assert len(losses) > 1
    assert losses == sorted(losses, reverse=True)
    assert len(result.mixture.vectors) == len(found_tokens(result))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_an_lm_without_a_mask_cannot_start_from_masks(name):
    with pytest.raises(BadOption, match=r"no mask token to start from.*`start` random"):
        search_triggers(frozen(name), REPEATED, AutoPromptSpec(iterations=5))


def test_too_few_iterations_for_the_masks():
    with pytest.raises(ValueError, match="cannot replace all 5 masks"):
        AutoPromptSpec(iterations=4)
    start = parse_template("The city of [X] is Rome in [Y]")
    with pytest.raises(BadOption, match="2 are needed"):
        search_triggers(frozen("bert"), REPEATED, AutoPromptSpec(triggers=1, iterations=1), start_from=start)


SPEC = AutoPromptSpec(triggers=3, iterations=9, candidates=3, sampled_facts=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[BaselineRun, Path]:
    """A search that nothing interrupts, and its folder. No test may change them."""
    folder = tmp_path_factory.mktemp("search") / "whole"
    return search_triggers(frozen("bert"), REPEATED, SPEC, folder=folder), folder


@pytest.fixture
def searched(whole, tmp_path) -> Path:
    """The folder of a search that has ended, to be changed at will."""
    return Path(shutil.copytree(whole[1], tmp_path / "searched"))


def test_the_same_seed_gives_the_same_search_and_another_one_another():
    searches = [search_triggers(frozen("bert"), REPEATED, SPEC, seed=seed).history for seed in (3, 3, 4)]
    assert searches[0] == searches[1]
    assert searches[0] != searches[2]


@pytest.mark.parametrize("stop_at", [0, 1, 4, 8])
def test_an_interrupted_search_that_is_resumed_equals_one_that_was_not(whole, tmp_path, stop_at):
    lm, (expected, of_whole) = frozen("bert"), whole

    def interrupt(progress):
        if progress.done == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_triggers(lm, REPEATED, SPEC, folder=tmp_path / "cut", progress=interrupt)
    so_far = read_description(tmp_path / "cut")
    best = min(
        (record for record in expected.history if record.number <= stop_at),
        key=lambda record: (record.unwanted, -record.dev["P@1"], record.dev["log_loss"]),
    )
    assert so_far.learned_from is not None
    assert list(so_far.learned_from.prompt_token_ids) == best.tokens
    result = search_triggers(lm, REPEATED, SPEC, folder=tmp_path / "cut", resume=True)
    assert result.history == expected.history
    assert result.learned_from == expected.learned_from
    assert torch.equal(result.mixture.vectors, expected.mixture.vectors)
    runs = (tmp_path / "cut", of_whole)
    (tensors, notes), (whole_tensors, whole_notes) = (read_tensors(run / CHECKPOINT) for run in runs)
    assert (tensors["tokens"].tolist(), notes) == (whole_tensors["tokens"].tolist(), whole_notes)
    saved = [(run / "mixture" / "mixture.safetensors").read_bytes() for run in runs]
    assert saved[0] == saved[1]
    configs = [json.loads((run / "mixture" / "config.json").read_text()) for run in runs]
    assert configs[0] == configs[1]


def test_the_state_of_another_search_is_refused_and_a_damaged_one_too(searched):
    lm = frozen("bert")
    with pytest.raises(BadOption, match="a different LM, facts"):
        search_triggers(lm, REPEATED, SPEC, seed=1, folder=searched, resume=True)
    with pytest.raises(BadOption, match="a different LM, facts"):
        search_triggers(lm, CAPITALS, SPEC, folder=searched, resume=True)
    checkpoint = searched / CHECKPOINT
    checkpoint.write_bytes(checkpoint.read_bytes()[:-2])
    with pytest.raises(DamagedFile):
        search_triggers(lm, REPEATED, SPEC, folder=searched, resume=True)
