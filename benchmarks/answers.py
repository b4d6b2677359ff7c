"""The cost of answers of any length: candidates through their prefix tree, ten answers to a question, training."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from measure import Times, in_turns
from report import merge_summary, write_part
from torch import Tensor

from askwell import Mixture, load_lm, load_relation
from askwell.answers.tree import candidate_log_probs
from askwell.data.testbed import relation_names
from askwell.lms.batches import Words, words_of
from askwell.lms.checkpoints import pulled_folder
from askwell.lms.frozen import FrozenLM
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind

if TYPE_CHECKING:
    from parts import Setting

SMOLLM2 = "smollm2"
TEMPLATE = "the capital of [X] is [Y] ."
GLUED = "The capital of [X] is [Y]."
CANDIDATES = 1000
XS_ALONE = 6
"""How many x's are asked one at a time."""


def answers(setting: "Setting") -> None:
    """Measure all of these on the testbed's LMs and, if it has been pulled, on SmolLM2."""
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {"tree": {}, "train": {}, "train_as_many_reads": {}}
    frequent = ys_of_trex(40 if setting.quick else CANDIDATES)
    for name, kind in (("testbed:bert", "masked"), ("testbed:causal", "causal"), ("testbed:bart", "seq2seq")):
        lm = load_lm(name, device="cpu")
        row = _tree(setting, lm, name, kind)
        figures["tree"][kind] = round(row["ratio"], 1)
        rows.append(row)
        if frequent:
            row_of_trex = _tree(setting, lm, name, f"{kind}, T-REx", texts=frequent)
            figures["tree"][f"{kind}_trex"] = round(row_of_trex["ratio"], 1)
            rows.append(row_of_trex)
        row_of_training = _training(setting, lm, name)
        figures["train"][kind] = round(row_of_training["ratio"], 3)
        figures["train_as_many_reads"][kind] = round(row_of_training["of as many reads"], 3)
        rows.append(row_of_training)
    if (pulled_folder(SMOLLM2) / "config.json").exists() and not setting.quick:
        lm = load_lm(SMOLLM2, device="cpu")
        row = _tree(setting, lm, SMOLLM2, "causal", looped=20)
        figures["tree"]["smollm2"] = round(row["ratio"], 1)
        if frequent:
            row_of_trex = _tree(setting, lm, SMOLLM2, "causal, T-REx", looped=20, texts=frequent)
            figures["tree"]["smollm2_trex"] = round(row_of_trex["ratio"], 1)
            rows.append(row_of_trex)
        row_of_training = _training(setting, lm, SMOLLM2)
        figures["train"]["smollm2"] = round(row_of_training["ratio"], 3)
        figures["train_as_many_reads"]["smollm2"] = round(row_of_training["of as many reads"], 3)
        asking = [_asking(setting, lm, at_once) for at_once in (1, 16)]
        figures["ask_ten"], figures["ask_ten_of_16"] = (round(row["ratio"], 2) for row in asking)
        rows += [row, row_of_training, *asking]
    write_part(setting.folder, "answers", rows, load=round(os.getloadavg()[0], 1))
    kept = _summary(setting.folder).get("answers", {})
    merge_summary(setting.folder, {"answers": {**kept, **figures}})


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _row(what: str, name: str, slow: str, fast: str, times: dict[str, Times], **more: Any) -> dict[str, Any]:
    """Return a row with the median of the rounds' ratios."""
    each = [a / b for a, b in zip(times[slow].seconds, times[fast].seconds, strict=True)]
    scale = more.pop("scale", 1.0)
    measured = {key: value.as_json() for key, value in times.items()}
    return {"what": what, "lm": name, **more, **measured, "ratio of": f"{slow} / {fast}", "ratio": scale * median(each)}


# ── candidates ────────────────────────────────────────────────────────────────────────────────────────────────────


def names_of_the_world(count: int) -> list[str]:
    """Return this many names, of any number of tokens."""
    found: dict[str, None] = {}
    for name in relation_names():
        relation = load_relation(f"testbed:{name}")
        for fact in (*relation.train, *relation.dev, *relation.test):
            found |= {fact.y: None, fact.x: None}
    names = sorted(found)
    count = min(count, len(names))
    return [names[number * len(names) // count] for number in range(count)]


def ys_of_trex(count: int) -> list[str]:
    """Return the most frequent ys of T-REx's train facts; none if the data is missing."""
    relations = shared_data() / "facts" / "trex_original"
    counts: Counter[str] = Counter()
    for path in sorted(relations.glob("*/train.jsonl")):
        with path.open(encoding="utf-8") as lines:
            counts.update(json.loads(line)["obj"] for line in lines)
    return [word for word, _ in counts.most_common(count)]


def shared_data() -> Path:
    """Return the folder of the data that is not part of the repository."""
    return Path(os.environ.get("ASKWELL_SHARED", Path(__file__).parents[2] / "shared")) / "data"


def _tree(
    setting: "Setting",
    lm: FrozenLM,
    name: str,
    kind: str,
    looped: int | None = None,
    texts: Sequence[str] | None = None,
) -> dict[str, Any]:
    mixture = Mixture(lm, [TEMPLATE])
    texts = texts or names_of_the_world(40 if setting.quick else CANDIDATES)
    xs, candidates = words_of(["Belgium"], lm.wording, lm.device), words_of(texts, lm.wording, lm.device)
    fact = torch.zeros(1, dtype=torch.long)
    each = looped or len(texts)
    sample = torch.arange(each) * len(texts) // each
    loop = plain_loop(mixture, xs, candidates, sample.tolist())

    @torch.no_grad()
    def tree() -> Tensor:
        return candidate_log_probs(mixture.long_answers, mixture.tuned, xs, fact, candidates)[0, 0]

    torch.testing.assert_close(tree()[sample], loop(), atol=1e-3, rtol=1e-3)
    times = in_turns({"loop": loop, "tree": tree}, 1 if setting.quick else min(3, setting.rounds), warm_up=0)
    place = mixture.pairs.y_places[0]
    lengths, ids = candidates.lengths[place], candidates.ids[place]
    case = {"candidates": len(texts), "tokens of each": float(lengths.float().mean()), "looped": each}
    case["nodes"] = _nodes(
        [row[:length] for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)],
        by_length=mixture.long_answers.fills_masks,
    )
    return _row(f"tree, {kind}", name, "loop", "tree", times, **case, scale=len(texts) / each)


def _nodes(spelt: Sequence[Sequence[int]], *, by_length: bool) -> int:
    """Count the distinct prefixes of candidates that have to be read: all of them, or in a masked LM the proper ones,
    once for each length of candidate."""
    if not by_length:
        return len({tuple(tokens[:end]) for tokens in spelt for end in range(len(tokens) + 1)})
    return len({(len(tokens), *tokens[:end]) for tokens in spelt for end in range(len(tokens))})


def plain_loop(mixture: Mixture, xs: Words, candidates: Words, numbers: Sequence[int]) -> Callable[[], Tensor]:
    """Return a loop that scores the candidates with these numbers by the public model alone, from token ids."""
    lm, (prompt,) = mixture.lm, mixture.prompts
    place, question = int(mixture.pairs.y_places[0]), lm.family.ask_answer(prompt.tokens, lm.wording, lm.special)
    x = xs.ids[int(mixture.pairs.x_places[0]), 0, : int(xs.lengths[int(mixture.pairs.x_places[0]), 0])].tolist()
    spelt = [
        ids[:length]
        for ids, length in zip(candidates.ids[place].tolist(), candidates.lengths[place].tolist(), strict=True)
    ]
    streams = {
        stack: ([token.id for token in stream.left], [token.id for token in stream.right])
        for stack, stream in question.streams.items()
    }

    def sentence(stack: str, y: Sequence[int]) -> Tensor:
        (left, right), y_at = streams[stack], question.streams[stack].y_at
        if y_at is None:
            return torch.tensor([[*left, *x, *right]])
        at = y_at - len(left)
        return torch.tensor([[*left, *x, *right[:at], *y, *right[at:]]])

    first = question.read_at + len(x)

    def one(y: Sequence[int]) -> Tensor:
        if lm.family.fills_masks:
            total = torch.zeros(())
            for step, token in enumerate(y):
                filled = [*y[:step], *[lm.special.mask] * (len(y) - step)]
                total = total + lm.model(sentence("layers", filled)).logits[0].log_softmax(-1)[first + step, token]
            return total
        if "encoder" in streams:
            logits = lm.model(
                input_ids=sentence("encoder", ()), decoder_input_ids=sentence("decoder", y), use_cache=False
            ).logits
        else:
            logits = lm.model(sentence("layers", y), use_cache=False).logits
        written = torch.tensor([*y, question.end])
        return logits[0].log_softmax(-1)[first : first + len(written)].gather(1, written[:, None]).sum()

    @torch.no_grad()
    def loop() -> Tensor:
        return torch.stack([one(spelt[number]) for number in numbers])

    return loop


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _asking(setting: "Setting", lm: FrozenLM, at_once: int) -> dict[str, Any]:
    mixture = Mixture(lm, [GLUED])
    facts, count = load_relation("testbed:capital").train, max(at_once, XS_ALONE)
    xs = [fact.x for fact in facts[:: len(facts) // count]][:count]
    calls = [xs[start : start + at_once] for start in range(0, count, at_once)]

    def asked(kind: AnswerKind) -> Callable[[], object]:
        def run() -> None:
            mixture.answer_kind = kind
            assert all(len(replies) == 10 for together in calls for replies in mixture.replies(together))

        return run

    contenders = {"any length": asked(AnswerKind(any_length=True, longest=10)), "one token": asked(ONE_TOKEN)}
    times = in_turns(contenders, setting.rounds)
    return _row("ask, ten answers", SMOLLM2, "any length", "one token", times, calls=len(calls), xs=at_once)


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _training(setting: "Setting", lm: FrozenLM, name: str, tokens: int = 3) -> dict[str, Any]:
    """Measure answers of several tokens, and answers of one token in sentences that are longer by as much."""
    mixture = Mixture(lm, [TEMPLATE])
    count = 4 if setting.quick else 16 if name == SMOLLM2 else 64
    generator = torch.Generator().manual_seed(0)

    def draw(longest: int, texts: int = count) -> Words:
        ids = torch.randint(200, 1000, (2, texts, longest), generator=generator)
        return Words(ids, torch.full((2, texts), longest))

    every = torch.arange(count)
    xs, ys = draw(3), draw(tokens)
    fills_masks = mixture.long_answers.fills_masks
    # A masked LM reads a sentence for each token, with as many masks; the others read y itself after the prompt.
    pairs = count * tokens if fills_masks else count
    longer = draw(3 + tokens - 1 if fills_masks else 3 + tokens, pairs)
    gold = torch.randint(200, 1000, (2, pairs), generator=generator)

    def any_length() -> None:
        mixture.zero_grad()
        mixture.long_answers.log_probs(mixture.tuned, xs, ys, every).sum().backward()

    def one_token() -> None:
        mixture.zero_grad()
        mixture.pairs.gold_log_probs(mixture.tuned, longer, gold, torch.arange(pairs)).sum().backward()

    def as_many_reads() -> None:
        """Read the one-token path at as many positions as there are tokens and ends."""
        mixture.zero_grad()
        prompts = torch.zeros(pairs, dtype=torch.long)
        batch = mixture.pairs.y_table.batch(longer, torch.arange(pairs), prompts)
        if not fills_masks:
            places = (batch.read_positions[:, None] - torch.arange(tokens + 1)).flatten()
            batch = replace(batch, read_pairs=batch.read_pairs.repeat_interleave(tokens + 1), read_positions=places)
        targets = torch.full_like(batch.read_pairs, 300)
        mixture.pairs.log_probs_of(mixture.tuned, batch, prompts, targets).sum().backward()

    contenders = {"any length": any_length, "one token": one_token, "as many reads": as_many_reads}
    times = in_turns(contenders, setting.rounds)
    lengths = mixture.pairs.y_table.lengths(longer, torch.arange(pairs), torch.zeros(pairs, dtype=torch.long))
    case = {"tokens of each": tokens, "read": int(lengths.sum())}
    row = _row("train", name, "any length", "one token", times, **case)
    return {**row, "of as many reads": _row("", "", "any length", "as many reads", times)["ratio"]}
