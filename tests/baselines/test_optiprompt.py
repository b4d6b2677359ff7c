"""OptiPrompt: dense vectors at layer 0."""

import torch
from builders.specs import paper_spec
from builders.worlds import REPEATED, frozen
from by_hand import ids_of

from askwell.baselines.run_baseline import random_dense_prompt, run_baseline
from askwell.data.templates import parse_template
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import BaselineName, TrainingSpec

SHORT = TrainingSpec(epochs=3, batch_facts=5, learning_rate=0.05, threads=1)


def test_five_random_vectors_between_the_blanks_and_a_full_stop():
    lm = frozen("bert")
    mixture = random_dense_prompt(lm, seed=3)
    template = mixture.prompts[0].template
    assert (template.before, template.after) == ("", " .")
    words = lm.model.get_input_embeddings().weight.detach()
    assert mixture.vectors.shape == (6, words.shape[1])
    assert torch.equal(mixture.vectors[5], words[ids_of(lm, ".")[0]])
    nearest = torch.cdist(mixture.vectors[:5].detach(), words).min(1).values
    assert (nearest > 0.1).all()  # no words
    assert len({tuple(vector.tolist()) for vector in mixture.vectors}) == 6
    assert not torch.equal(random_dense_prompt(lm, seed=4).vectors, mixture.vectors)


def test_a_causal_lm_reads_no_full_stop():
    assert len(random_dense_prompt(frozen("llama")).vectors) == 5


def test_both_starts_are_tuned_and_keep_the_lm():
    lm = frozen("bert")
    before = {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}
    manual = parse_template("[X] lies in [Y] .")
    starts: dict[BaselineName, Mixture] = {
        "optiprompt-manual": Mixture(lm, [manual], paper_spec()),
        "optiprompt-random": random_dense_prompt(lm, seed=1),
    }
    for name, start in starts.items():
        templates = [manual] if name == "optiprompt-manual" else []
        tuned = run_baseline(name, lm, templates, REPEATED, training=SHORT, seed=1).mixture
        assert torch.equal(tuned.initial_vectors, start.vectors)
        assert evaluate_split(tuned, REPEATED).log_loss < evaluate_split(start, REPEATED).log_loss - 0.1
        assert not tuned.deltas
    assert all(torch.equal(before[name], tensor) for name, tensor in lm.model.state_dict().items())
