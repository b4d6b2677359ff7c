"""Tables of answers, and of the scores of an evaluation, of a run, or of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from askwell.answers.reply import PromptReply, Reply
from askwell.data.testbed import PREFIXES, is_told
from askwell.evaluation.comparison import Difference
from askwell.evaluation.knowledge import MAJORITY, PRIOR, PRIOR_CORRECTED, PRIOR_MASKED_X, Knowledge
from askwell.evaluation.labels import LabelFigures, RankedPairs
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, scores_of
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, EvaluationFigures
from askwell.evaluation.significance import interval_text, p_text
from askwell.views.document import Block, Cell, Column, ColumnGroup, Paragraph, Row, Table, table
from askwell.views.printable import NONE, counted, per_cent, signed, visible
from askwell.views.to_files import csv_table

if TYPE_CHECKING:  # asking needs no record of runs
    from askwell.evaluation.statements import PublishedAccuracy
    from askwell.runs.several_runs import SeveralRuns


def score_table(evaluations: Mapping[str, EvaluationFigures | None]) -> Table:
    """Return a row of scores for each evaluation."""
    shown = {name: evaluation for name, evaluation in evaluations.items() if evaluation is not None}
    last = list(shown.values())[-1]
    rows = [
        (name, *(metric.text(evaluation.score(key)) for key, metric in METRICS.items()))
        for name, evaluation in shown.items()
    ]
    title = f"{counted(last.facts, f'{last.split} fact')}, ranked among {last.vocabulary}"
    return table(("", *METRICS), rows, numbers=METRICS, title=title)


def evaluation_blocks(evaluation: Evaluation) -> list[Block]:
    """Return the scores of each relation and their averages, and those of labels."""
    figures = evaluation.figures()
    rows = {name: (int(scores["facts"]), scores) for name, scores in figures.relations.items()}
    if len(figures.relations) > 1:
        rows |= {"micro average": (figures.facts, figures.micro), "macro average": (figures.facts, figures.macro)}
    if figures.raw["micro"] != {name: figures.micro.get(name) for name in figures.raw["micro"]}:
        rows["other golds kept (raw)"] = (figures.facts, figures.raw["micro"])
    title = f"{counted(figures.facts, f'{evaluation.split} fact')}, ranked among {evaluation.vocabulary}"
    scored = table(
        ("", "facts", *TABLE_METRICS),
        [
            (name, str(facts), *(METRICS[metric].text(scores.get(metric)) for metric in TABLE_METRICS))
            for name, (facts, scores) in rows.items()
        ],
        numbers=("facts", *TABLE_METRICS),
        title=title,
    )
    return [scored, *candidate_blocks(figures)]


def candidate_blocks(figures: EvaluationFigures) -> list[Block]:
    """Return how well right candidates are told from wrong ones, and each label from the others, if answers were chosen
    among candidates."""
    return [*_label_blocks(figures.labels), *_pair_blocks(figures.ranked_pairs)]


def _label_blocks(found: LabelFigures | None) -> list[Block]:
    return [] if found is None else [found.table(), Paragraph(f"Macro F1: {found.macro_f1:.1f}.")]


def _pair_blocks(found: RankedPairs | None) -> list[Block]:
    if found is None:
        return []
    text = (
        f"Of the pairs of a right and a wrong candidate, {found.share:.1f} % are ranked correctly (K, the mean over "
        f"facts); for {found.all_of_fact:.1f} % of the facts, all of them are (K*)."
    )
    return [Paragraph(text)]


def spread_blocks(several: "SeveralRuns") -> list[Block]:
    """Return the mean and spread of several runs' scores, and how often their answers agree."""
    facts, left_out = ("–".join(map(str, counts)) for counts in (several.facts, several.left_out))
    asked = f"{facts} facts ({left_out} left out), ranked among {several.vocabulary}"
    columns = ("mean", "std. dev.", "min", "max")
    spread = table(
        ("", *columns),
        [
            (name, *map(METRICS[name].text, (of.mean, of.deviation, of.low, of.high)))
            for name, of in several.scores.items()
        ],
        numbers=columns,
        title=f"{several.relation}: {several.runs} runs, {asked}",
    )
    right = several.consistency.same_of_right
    among = "" if right is None else f", {100 * right:.1f} % where one of the two is right"
    same = f"Two runs give the same answer to {100 * several.consistency.same:.1f} % of the x's{among}."
    return [spread, Paragraph(same)]


def statement_sentences(accuracy_of_prompts: Sequence[float], published: "PublishedAccuracy | None") -> list[str]:
    """Return how often the right statement comes first with each hard prompt alone, as BEAR counts it, and what its
    leaderboard has for the LM."""
    lines = []
    if len(accuracy_of_prompts) > 1:
        each = ", ".join(f"{accuracy:.1f}" for accuracy in accuracy_of_prompts)
        error = stdev(accuracy_of_prompts) / len(accuracy_of_prompts) ** 0.5
        lines.append(
            f"Each hard prompt alone, other right answers kept: {each}; their mean, as BEAR's leaderboard has it, "
            f"{fmean(accuracy_of_prompts):.1f} (standard error {error:.1f})."
        )
    if published is not None:
        lines.append(
            f"BEAR's leaderboard, on all {published.facts:,} facts: {published.accuracy:.1f} (standard error "
            f"{published.standard_error:.1f}); guessing gets {published.guessing:.1f}."
        )
    return lines


def how_sure(found: Difference) -> str:
    """Say how sure a difference is: its interval, where it has one, and its p."""
    interval = [] if found.low is None else [f"95 % interval {interval_text(found.low, found.high, signed)}"]
    return ", ".join([*interval, f"p = {p_text(found.p)}"])


def gain_text(found: Difference) -> str:
    """Say how large a difference is, and how sure."""
    return f"{signed(found.difference)} points ({how_sure(found)})"


CONTROLS: dict[str, str] = {
    MAJORITY: "the most frequent y's of train",
    PRIOR: "the prompts' prior",
    PRIOR_MASKED_X: "the prompts with x masked",
    PRIOR_CORRECTED: "its answers divided by the prior",
    "random-weights": "the same tuning on an LM with random weights",
    "random-embeddings": "the same tuning on the LM with random word vectors",
}
"""What each control, and the answers corrected by one, are in a few words."""


def control_sentences(found: Knowledge | None) -> list[str]:
    """Return what answers that need no knowledge score, the gain over the best of them, and what it means."""
    if found is None:
        return []
    each = ", ".join(f"{CONTROLS.get(name, name)} {scores['test']:.1f}" for name, scores in found.controls.items())
    interval = interval_text(found.low, found.high, "{:.1f}".format)
    verdict = "so the LM knows something" if found.is_there else "which may be chance"
    return [
        f"P@1 without knowledge of x: {each}.",
        f"Gain over the best of them (chosen on dev: {CONTROLS.get(found.control, found.control)}): {found.gain:.1f} "
        f"({100 * found.confidence:.0f} % interval {interval}), {verdict}.",
    ]


def detail_sentences(found: Knowledge | None, corrected: float | None) -> list[str]:
    """Return what the section on trust adds to the gain: bits a fact, and the score with the prior divided out."""
    if found is None:
        return []
    lines = []
    if found.bits is not None:
        best = CONTROLS.get(found.bits.control, found.bits.control)
        lines.append(f"Beyond the control with the best log-loss on dev ({best}): {found.bits.bits:.2f} bits a fact.")
    if corrected is not None:
        lines.append(
            f"P@1 with each answer's probability divided by its prior: {corrected:.1f}. (The prior is the "
            "prompts' average answer, regardless of x; an answer that they prefer anyway must gain more from x to rank "
            "first.)"
        )
    return lines


def told_sentences(lm: str, tuned: Sequence[Outcome], untuned: Sequence[Outcome] = ()) -> list[str]:
    """Return what an LM of a testbed answers of the facts in its training text and of those withheld from it; nothing
    where that is not known."""
    relation = tuned[0].relation
    if not any(lm.startswith(prefix) and relation.startswith(prefix) for prefix in PREFIXES):
        return []
    shares = []
    for told in (True, False):
        scored = [
            scores_of(part, ["P@1"])["P@1"]
            for outcomes in (tuned, untuned)
            if (part := [one for one in outcomes if is_told(*one.key) == told])
        ]
        if not scored:
            return []
        before = f" (untuned {scored[1]:.1f})" if len(scored) > 1 else ""
        shares.append(f"{scored[0]:.1f} %{before}")
    count = sum(is_told(*one.key) for one in tuned)
    return [
        f"{lm} was told {count} of these {counted(len(tuned), 'fact')}, of which it answers {shares[0]} correctly, and "
        f"could only guess the {len(tuned) - count} others: {shares[1]}."
    ]


_BAR = 20
_LEAST = 0.0005
"""Answers that are less probable are shown as 0.0 %."""


def reply_table(x: str, replies: Sequence[Reply], templates: Sequence[str]) -> Table:
    """Return the answers to x with bars and, of several prompts, the most confident one for each, or below if it is the
    same for all.

    After the first, answers that would be shown as 0.0 % are left out.
    """
    shown = [*replies[:1], *(reply for reply in replies[1:] if reply.probability >= _LEAST)]
    confident = [_most_confident(reply, templates) for reply in shown] if len(templates) > 1 else []
    differ = len({*confident}) > 1
    rows = []
    for reply, prompt in zip(shown, confident or [""] * len(shown), strict=True):
        cells = [Cell(per_cent(reply.probability)), Cell("█" * round(_BAR * reply.probability), mark="bar")]
        rows.append(Row(reply.y, (*cells, *([Cell(prompt)] if differ else []))))
    prompts = [Column("most confident prompt", pale=True, number=False)] if differ else []
    columns = (Column("probability"), Column("", number=False), *prompts)
    caption = f"Most confident prompt: {confident[0]}" if confident and not differ else ""
    return Table(caption, "answer", (ColumnGroup("", columns),), tuple(rows), title=x)


def _most_confident(reply: Reply, templates: Sequence[str]) -> str:
    return templates[max(range(len(reply.by_prompt)), key=reply.by_prompt.__getitem__)]


def prompt_replies_table(replies: Sequence[PromptReply], reply: Reply | None = None, most: int | None = None) -> Table:
    """Return what each prompt answers by itself, the one with the largest weight first; with a reply of the mixture,
    also the probability that each prompt gives to that."""
    by_weight = sorted(replies, key=lambda one: -one.weight)
    rows = [
        (
            per_cent(one.weight),
            one.template,
            *([] if reply is None else [per_cent(reply.by_prompt[one.number])]),
            Cell(one.y, strong=True),
            per_cent(one.probability),
        )
        for one in by_weight[:most]
    ]
    given = [] if reply is None else [f"gives {visible(reply.y)}"]
    headings = ("weight", "prompt", *given, "answer by itself", "probability")
    return table(headings, rows, numbers=("weight", *given, "probability"), more=len(by_weight) - len(rows))


@dataclass(frozen=True)
class BestAnswers:
    """An x, and the best answer of each of several mixtures to it."""

    x: str
    replies: tuple[Reply | None, ...]
    """None if x cannot be asked, for the reason in `problem`."""
    knows: bool
    """Whether the first mixture's answer is probable enough to be given."""
    golds: tuple[str, ...]
    problem: str
    trained: bool = False
    """Whether it was seen in training."""

    def is_right(self, mixture: int) -> bool:
        """Tell whether the answer of a mixture, by its place, is right."""
        reply = self.replies[mixture]
        return reply is not None and reply.y in self.golds


def best_answers_table(rows: Sequence[BestAnswers], mixtures: Sequence[str], risk: float) -> Table:
    """Return the best answer to each x by each of the mixtures, beside the right ones."""
    caption = (
        "The best answer to each x with its probability. “Not sure” is said of one so improbable that more than one "
        f"in {1 / risk:.0f} such answers may be wrong."
    )
    if scored := [row for row in rows if row.golds]:
        counts = [sum(row.is_right(at) for row in scored) for at in range(len(mixtures))]
        of_each = " and ".join(f"{count} of the {name}" for count, name in zip(counts, mixtures, strict=True))
        caption += f" Of the {len(scored)} whose right answer is on record, the best answers are right for {of_each}."
    if trained := sum(row.trained for row in rows):
        caption += f" {trained} of the x's {'was' if trained == 1 else 'were'} seen in training."
    shown = []
    for row in rows:
        golds = Cell(", ".join(row.golds) or NONE, note="seen in training" if row.trained else "")
        shown.append((row.x, *(_best(row, at) for at in range(len(mixtures))), golds))
    return table(("x", *mixtures, "right answer"), shown, caption=caption)


def _best(row: BestAnswers, at: int) -> Cell:
    reply = row.replies[at]
    if reply is None:
        return Cell(NONE, note=row.problem)
    unsure = ", not sure" if at == 0 and not row.knows else ""
    note = f"{per_cent(reply.probability)}{unsure}"
    return Cell(visible(reply.y), mark="right" if row.is_right(at) else "", note=note)


def best_answers_csv(rows: Sequence[BestAnswers], kinds: Sequence[str]) -> str:
    """Return the same as CSV; `kinds` name the columns of the mixtures."""
    fields = ["x", *(column for kind in kinds for column in (kind, f"{kind}_probability")), "known", "gold", "problem"]
    records = []
    for row in rows:
        record: dict[str, object] = {"x": row.x, "known": "yes" if row.knows else "no", "problem": row.problem}
        record["gold"] = "; ".join(row.golds)
        for kind, reply in zip(kinds, row.replies, strict=True):
            record[kind] = "" if reply is None else reply.y
            record[f"{kind}_probability"] = "" if reply is None else f"{reply.probability:.6f}"
        records.append(record)
    return csv_table(fields, records)
