"""Whether a mixture would spell a right answer if it wrote down the most probable token again and again.

One reading of y tells it, the same that tells log p(y | x, r). So it costs nothing more to know how many facts a
mixture answers this way each time that dev is scored, while a search costs several times as much. An answer whose first
tokens are rarer than those of others can still be the most probable one as a whole; that is known once a run is over,
by the exact search.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.answers.encode import EncodedFacts
from askwell.errors import NotFinite
from askwell.prompts.long_answers import Steps
from askwell.prompts.prompt_set import PromptSet


def writes_answers_out(prompts: PromptSet) -> bool:
    """Tell whether answers are written token by token and have the same tokens after all prompts, up to an end."""
    has_one_form = len(prompts.pairs.y_places[prompts.tuned.kept].unique()) == 1
    return has_one_form and not prompts.long_answers.fills_masks and not prompts.is_product


@torch.no_grad()
def greedy(
    prompts: PromptSet,
    encoded: EncodedFacts,
    rows: Int[Tensor, " facts"],
    others: Sequence[Sequence[Sequence[int]]],
    ends: Sequence[int],
) -> tuple[Float[Tensor, " facts"], Bool[Tensor, " facts"]]:
    """Return log p(y | x, r) of the facts in these rows, and whether each y is the answer that is spelled token by
    token if the other right answers, in tokens, are left out. The tokens of `ends` continue no answer."""
    tuned, answers, xs, ys = prompts.tuned, prompts.long_answers, encoded.xs, encoded.ys
    log_weights = prompts.log_weights_for(xs, rows)
    place = int(prompts.pairs.y_places[tuned.kept[0]])
    lengths = ys.lengths[place, rows]
    last = (lengths + 1).cumsum(0) - 1
    first = last - lengths
    nowhere = torch.tensor([*answers.never, *ends], dtype=torch.long, device=rows.device)
    tokens = of_end = of_target = total = torch.tensor(-torch.inf, device=rows.device)
    for prompt in tuned.kept.tolist():
        steps = answers.steps(tuned, xs, ys, rows, prompt)
        before = log_weights[:, prompt][steps.pairs] + _log_before(steps, first)
        target, end = (steps.log_probs.gather(1, some[:, None])[:, 0] + before for some in (steps.targets, steps.ends))
        tokens = torch.logaddexp(tokens, steps.log_probs.add_(before[:, None]))
        of_target, of_end = torch.logaddexp(of_target, target), torch.logaddexp(of_end, end)
        total = torch.logaddexp(total, target[last])
    tokens.index_fill_(1, nowhere, -torch.inf)
    of_end[first] = -torch.inf  # an answer has at least one token
    inner = torch.ones_like(of_end, dtype=torch.bool).index_fill(0, last, value=False)
    tokens[inner, steps.targets[inner]] = -torch.inf
    of_end[last] = -torch.inf  # which is the target there
    for row, start, of_fact in zip(rows.tolist(), first.tolist(), others, strict=True):
        own = ys.ids[place, row, : ys.lengths[place, row]].tolist()
        for other in of_fact:
            shared = next((n for n, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None)
            shared = min(len(own), len(other)) if shared is None else shared
            if shared < len(other):
                tokens[start + shared, other[shared]] = -torch.inf
            else:
                of_end[start + shared] = -torch.inf
    if total.isnan().any():
        raise NotFinite("a probability is not finite, so answers cannot be ranked")
    is_best = of_target >= torch.maximum(tokens.amax(1), of_end)
    wrong = torch.zeros_like(total, dtype=torch.long).index_add(0, steps.pairs, (~is_best).long())
    return total, wrong == 0


def _log_before(steps: Steps, first: Int[Tensor, " answers"]) -> Float[Tensor, " steps"]:
    """Return the log-probability of the target tokens before each step of an answer."""
    each = steps.log_probs.gather(1, steps.targets[:, None])[:, 0].double()
    summed = each.cumsum(0) - each
    return (summed - summed[first][steps.pairs]).to(steps.log_probs)
