"""What sharing prefixes of sentences gains on causal LMs: training, evaluation, and prompts with examples.

The same LM reads the same facts with and without sharing, in turns. x's and prompts are as long as those of T-REx.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from contenders import our_epoch, our_evaluation
from measure import in_turns
from report import merge_summary, write_part
from shapes import PROMPT_WORDS, X_LENGTHS, evenly

from askwell import Mixture, MixtureSpec, load_lm, load_relation
from askwell.answers.encode import EncodedFacts
from askwell.lms.batches import Words
from askwell.lms.checkpoints import pulled_folder
from askwell.lms.frozen import FrozenLM

if TYPE_CHECKING:
    from parts import Setting

EXAMPLE_WORDS = 100


def shared(setting: "Setting") -> None:
    """Measure the ratios of the time without sharing to the time with it."""
    rows: list[dict[str, Any]] = []
    is_here = (pulled_folder("smollm2") / "config.json").exists()
    names = ["testbed:causal", *(["smollm2"] if is_here and not setting.quick else [])]
    for name in names:
        lm = load_lm(name, device="cpu")
        rows += [_train(setting, lm, name), _evaluate(setting, lm, name), _few_shot(setting, lm, name)]
    write_part(setting.folder, "shared", rows)
    figures = {row["what"].replace("-", "_"): round(row["ratio"], 2) for row in rows if row["lm"] == names[-1]}
    merge_summary(setting.folder, {"shared": {**figures, "lm": names[-1]}})


def one_token_mixture(lm: FrozenLM, templates: list[str]) -> Mixture:
    # Nothing before the sentence: an opening chosen for the LM would lengthen the prompts.
    return Mixture(lm, templates, MixtureSpec(answers="one-token", begin="line-break", lead_in="none"))


def facts_like_trex(mixture: Mixture, count: int) -> EncodedFacts:
    """Return facts whose x's are random tokens, as long as T-REx's."""
    encoded, _ = mixture.encode(load_relation("testbed:country_of_city").split("train"))
    chosen = encoded.subset(torch.arange(len(encoded)) < count)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(evenly(X_LENGTHS, count))[torch.randperm(count, generator=generator)]
    places, vocabulary = chosen.xs.ids.shape[0], mixture.lm.vocabulary_size
    ids = torch.randint(100, vocabulary, (places, count, int(lengths.max())), generator=generator)
    return EncodedFacts(**{**vars(chosen), "xs": Words(ids, lengths.expand(places, -1))})


def _train(setting: "Setting", lm: FrozenLM, name: str) -> dict[str, Any]:
    mixture = one_token_mixture(lm, [f"[X] {' '.join(PROMPT_WORDS.split()[:4])} [Y] ."])
    facts = facts_like_trex(mixture, 4 if setting.quick else 64)
    epoch = our_epoch(mixture, facts, 32)

    def with_xs() -> None:
        with mixture.pairs.keeping(facts.xs):
            epoch()

    with mixture.pairs.keeping(facts.xs):
        return _row(setting, lm, name, "train", epoch, {"with x's": with_xs})


def _evaluate(setting: "Setting", lm: FrozenLM, name: str) -> dict[str, Any]:
    words = PROMPT_WORDS.split()
    mixture = one_token_mixture(lm, [f"[X] {' '.join(words[n : n + 3 + n % 3])} [Y] ." for n in range(10)])
    return _row(
        setting, lm, name, "evaluate", our_evaluation(mixture, facts_like_trex(mixture, 4 if setting.quick else 32))
    )


def _few_shot(setting: "Setting", lm: FrozenLM, name: str) -> dict[str, Any]:
    words = PROMPT_WORDS.split()
    room = (lm.context or EXAMPLE_WORDS + 30) - 30
    examples = " ".join(words[n % len(words)] for n in range(10 if setting.quick else min(EXAMPLE_WORDS, room)))
    mixture = one_token_mixture(lm, [f"{examples} [X] {' '.join(words[:4])} [Y] ."])
    facts = facts_like_trex(mixture, 4 if setting.quick else 32)
    return _row(setting, lm, name, "few-shot", our_epoch(mixture, facts, len(facts)))


def _row(
    setting: "Setting",
    lm: FrozenLM,
    name: str,
    what: str,
    run: Callable[[], object],
    more: dict[str, Callable[[], object]] | None = None,
) -> dict[str, Any]:
    def unshared() -> None:
        lm.may_share_prefixes = False
        try:
            run()
        finally:
            lm.may_share_prefixes = True

    times = in_turns({"unshared": unshared, "shared": run, **(more or {})}, setting.rounds)
    measured = {key: value.as_json() for key, value in times.items()}
    return {"lm": name, "what": what, **measured, "ratio": times["unshared"].median / times["shared"].median}
