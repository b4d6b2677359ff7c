"""Count the floating-point operations that a BERT's work needs: without padding, and only what answers depend on."""

import torch

from askwell import Mixture
from askwell.answers.encode import EncodedFacts


def needed_flops(mixture: Mixture, facts: EncodedFacts, *, training: bool) -> float:
    """Count the matrix products, forward and, for training, back to the tuned vectors; no gradient of a frozen weight.

    In the last layer, only y's blank forms a query, so the other rows need only the key and value projections. In the
    backward pass, the first layer's projections are needed only at the prompt tokens.
    """
    config = mixture.lm.model.config
    layers, width, inner = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    rows = pairs = squares = tuned = 0.0
    everyone = torch.arange(len(facts))
    for number, prompt in enumerate(mixture.prompts):
        lengths = mixture.pairs.y_table.lengths(facts.xs, everyone, torch.full_like(everyone, number)).double()
        rows, squares = rows + float(lengths.sum()), squares + float(lengths.square().sum())
        pairs, tuned = pairs + len(facts), tuned + len(prompt.token_ids) * len(facts)
    projection, feed = width * width, 2 * width * inner
    whole_layer = rows * (4 * projection + feed)
    last_layer = rows * 2 * projection + pairs * (2 * projection + feed)
    head = pairs * (projection + width * mixture.lm.vocabulary_size)
    meeting = 2 * width * ((layers - 1) * squares + rows)
    forward = (layers - 1) * whole_layer + last_layer + head + meeting
    if not training:
        return 2 * forward
    not_needed = (rows - tuned) * 3 * projection if layers > 1 else 0.0
    return 2 * (2 * forward + meeting - not_needed)
