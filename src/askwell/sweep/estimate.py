"""How long runs will take: pairs of a fact and a prompt, times what one costs on the LM."""

import time

import torch

from askwell.mixture import Mixture
from askwell.mixture.encode import encode_facts
from askwell.specs import RunSpec
from askwell.store.folder import Store
from askwell.sweep.task import RunTask
from askwell.training.objective import Objective
from askwell.training.plan import plan_of
from askwell.trust.prior import MOST_XS

BACKWARD = 3.0
"""A pair that is trained on costs about as much as so many that are only asked."""
_PAIRS = 32


def work_of(task: RunTask, prompts: int) -> float:
    """The work of a run with so many usable prompts, in pairs that are asked."""
    spec, relation = task.spec, task.relation
    prompts *= spec.mixture.copies
    asked = len(relation.dev) + len(relation.test)
    prior = min(MOST_XS, len({fact.x for fact in relation.train}))
    # What is asked once more is for the score that is corrected by the prior.
    work = float(prompts * (asked + prior + (asked if prior else 0)))
    if spec.training is not None and relation.train:
        sizes = {"facts": len(relation.train), "dev_facts": len(relation.dev), "prompts": prompts}
        plan = plan_of(spec.training, **sizes, seed=spec.seed)
        scores = 1 + sum(plan.scores_dev(stretch) for stretch in range(1, len(plan.ends) + 1))
        asked_once = not spec.training.tune_vectors and not (spec.mixture.deep and spec.training.tune_layers)
        trained = prompts * len(relation.train) if asked_once else BACKWARD * plan.pairs
        work += trained + scores * prompts * len(relation.dev)
    return 2 * work if spec.mixture.data_dependent else work  # p(x | t) is asked, too


def measured_pair(mixture: Mixture, task: RunTask) -> float | None:
    """Seconds for one pair that is asked, from a few that are trained on; None if no fact can be."""
    facts, _ = encode_facts(mixture, task.relation.train[:_PAIRS])
    if not len(facts):
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(task.spec.threads)
    try:
        objective = Objective(mixture, facts, "gradient")
        few = torch.arange(min(len(facts), max(1, _PAIRS // len(mixture.prompts))), device=mixture.lm.device)
        seconds = []
        for _ in range(3):  # the first is slower: memory is still to be had
            began = time.perf_counter()
            for chunk in few.split(objective.facts_at_once):
                objective.loss(chunk).to_minimise.backward()
            seconds.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return min(seconds) / (len(few) * len(mixture.prompts)) / BACKWARD


def stored_pairs(store: Store, done: list[tuple[RunSpec, float]]) -> float | None:
    """Seconds for one pair that is asked, from runs that are done and their work; None if there are none."""
    seconds = sum(float(store.environment(spec.id)["seconds"]) for spec, _ in done)
    work = sum(work for _, work in done)
    return seconds / work if work else None
