"""A knowledge card as a document: what an LM knows, in one sentence and one chart, then in detail."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from askwell.evaluation.metrics import mean_of_known
from askwell.files import write_all
from askwell.runs.probe_card import AskedRelation, Card, FactToRead, LMCard, LMPair, Part
from askwell.runs.probe_lms import Probe
from askwell.runs.probe_plan import ENSEMBLE, EXAMPLES, HARD, MIXTURE, SOFT, TUNED
from askwell.version import VERSION
from askwell.views.charts import IntervalRow, intervals_chart
from askwell.views.document import (
    Cell,
    Code,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Figure,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
    one_decimal,
    table,
)
from askwell.views.printable import NONE, counted, listed, per_cent, shortened, signed
from askwell.views.scores import gain_text, how_sure
from askwell.views.to_html import page_files

_WAYS = {
    HARD: "Hard prompt: the first prompt of the relation, untuned, with nothing before it.",
    ENSEMBLE: "Hard ensemble: up to 8 prompts, the first and others that were drawn, with fitted weights.",
    EXAMPLES: "Examples: up to 16 train facts before the hard prompt.",
    SOFT: "Soft prompt: the same prompt, tuned with the defaults.",
    MIXTURE: "Mixture: up to 8 prompts, tuned with the defaults.",
}
_KINDS = ("best control", "hard prompt", "examples", "tuned")
"""Of the chart; the first is hollow."""
_LONGEST_LABEL = 34


@dataclass(frozen=True)
class CardPage:
    """The whole card, and what of it is shown in a terminal."""

    document: Document
    in_short: Document


def card_page(card: Card, probe: Probe, command: str) -> CardPage:
    """Return the card as a page."""
    spec, lms = probe.spec, card.lms
    names = listed([one.lm for one in lms])
    first = Section("", tuple(block for one in lms for block in (Paragraph(headline(one)), relations_chart(one, lms))))
    sections = [first]
    if card.pairs:
        sections.append(Section("Side by side", (_side_by_side(lms), *map(_pair_sentence, card.pairs))))
    for one in lms:
        of = f": {one.lm}" if len(lms) > 1 else ""
        sections += [Section(f"{heading}{of}", blocks) for heading, blocks in _of_lm(one)]
    sections.append(Section("How it was asked", _how(card, probe, command)))
    whole = Document(
        title=f"What {names} {'knows' if len(lms) == 1 else 'know'}",
        lead=f"Facts of {spec.facts_of}: {counted(lms[0].facts, 'test fact')} of "
        f"{counted(len(lms[0].relations), 'relation')}, each asked in {len(lms[0].scores)} ways.",
        sections=tuple(sections),
        foot=f"Made by askwell {VERSION} with: {command}",
    )
    brief = [Section("", (Paragraph(headline(one)), relation_table(one))) for one in lms]
    brief += [Section("", (_pair_sentence(pair),)) for pair in card.pairs]
    return CardPage(whole, Document("", sections=tuple(brief)))


def headline(card: LMCard) -> str:
    """Return what an LM knows, in one sentence."""
    found, gap = card.over_control, how_sure(card.over_control)
    over = (
        f"{signed(found.difference)} points over the best answers that need no knowledge ({gap})"
        if card.is_knowledge
        else f"which is no evidence of knowledge: answers that need none get {card.control:.1f} % ({gap})"
    )
    by_examples = card.scores[EXAMPLES]
    better = ", which is more than tuning gains here" if by_examples > card.tuned else ""
    together = f"several, weighted, {card.scores[ENSEMBLE]:.1f} %, " if ENSEMBLE in card.scores else ""
    return (
        f"With tuned prompts, {card.lm} answers {card.tuned:.1f} % of the facts of "
        f"{counted(len(card.relations), 'relation')}, {over}; one hard prompt gets {card.scores[HARD]:.1f} %, "
        f"{together}and up to 16 examples, which need no tuning, {by_examples:.1f} %{better}."
    )


def relations_chart(card: LMCard, lms: Sequence[LMCard]) -> Figure:
    """Draw the relations of an LM with their scores, the best known first."""
    rows = []
    for one in card.relations:
        points = {
            "best control": one.control,
            "hard prompt": one.scores[HARD],
            "examples": one.scores[EXAMPLES],
        }
        marks = {name: (score, score, score) for name, score in points.items()}
        rows.append(IntervalRow(_label(one), {**marks, "tuned": (one.tuned_score, one.low, one.high)}))
    chart = intervals_chart(rows, _KINDS, measure="right answers in % (P@1)")
    tuned = [name for name in TUNED if name in card.scores]
    chosen = "the better of one soft prompt and a mixture on dev" if len(tuned) > 1 else f"one {tuned[0]}"
    caption = (
        f"Relations, the best known first. Tuned: {chosen}, with the 95 % interval of its score. Best control: the "
        "best answers on dev that need no knowledge of x, such as the most frequent one. A relation is known as far as "
        "tuned stands to the right of the control."
    )
    name = f"card-{lms.index(card) + 1}"
    return Figure((Drawing(name, chart, heading=card.lm if len(lms) > 1 else ""),), caption if card is lms[-1] else "")


def _label(one: AskedRelation) -> str:
    return shortened(one.label, _LONGEST_LABEL)


def _of_lm(card: LMCard) -> list[tuple[str, tuple[Paragraph | Points | Table, ...]]]:
    only = (
        f"{counted(card.brought_out, 'fact')} of {card.facts:,} are answered by the tuned prompts, and neither by the "
        f"hard prompt nor by the best control; {card.brought_out_by_examples:,} of them by the examples, too. Tuning "
        f"brings {gain_text(card.over_hard)} over the hard prompt, {gain_text(card.over_examples)} over the examples."
    )
    share = card.confident_wrong / card.confident if card.confident else 0.0
    wrong = (
        f"{counted(card.confident, 'answer')} of the tuned prompts have a probability of at least 50 %; "
        f"{card.confident_wrong:,} of them ({per_cent(share)}) are wrong, as far as right answers are on record."
        if card.confident
        else "No answer of the tuned prompts has a probability of at least 50 %."
    )
    sections: list[tuple[str, tuple[Paragraph | Points | Table, ...]]] = [
        ("By relation", (relation_table(card),)),
        ("What only a good prompt brings out", (Paragraph(only), *_to_read(card.brought_out_facts))),
        ("Where it is confident and wrong", (Paragraph(wrong), *_to_read(card.confident_wrong_facts))),
        ("By kind of relation, frequency and length of the answer", (part_table(card.parts),)),
        ("How far to trust it", (Points(tuple(trust_lines(card))),)),
    ]
    return sections


def relation_table(card: LMCard) -> Table:
    """Return the scores of an LM by relation."""
    scores = tuple(map(Column, card.scores))
    groups = (
        ColumnGroup("", (Column("facts"), Column("kind", number=False))),
        ColumnGroup("P@1 in %", (*scores, Column("best control"))),
        ColumnGroup("tuned", (Column("95 % interval", number=False), Column("bits"))),
    )
    rows = [
        Row(
            one.label,
            (
                Cell(str(one.facts)),
                Cell(one.kind or NONE),
                *(_score(one, name, strong=name == one.tuned) for name in one.scores),
                one_decimal(one.control),
                Cell(f"{one.low:.0f}–{one.high:.0f}"),
                _bits(one.bits[one.tuned]),
            ),
        )
        for one in card.relations
    ]
    rows.append(
        Row(
            "mean",
            (
                Cell(str(card.facts)),
                Cell(""),
                *(_score(card, name) for name in card.scores),
                one_decimal(card.control),
                Cell(""),
                _bits(mean_of_known([one.bits[one.tuned] for one in card.relations])),
            ),
            begins="All relations",
        )
    )
    bold = "In bold: the tuned setting that is better on dev. " if {*TUNED} <= card.scores.keys() else ""
    caption = (
        f"{bold}Bits: how much more of the right answer the tuned prompts know than the control with the lowest "
        "log-loss on dev, as a mean over facts; a dash where one of them gives some right answer no probability, which "
        "would make the mean infinite."
    )
    return Table(caption, "relation", groups, tuple(rows))


def _score(of: AskedRelation | LMCard, setting: str, *, strong: bool = False) -> Cell:
    """Return the score of a setting; its two bounds, if searches were cut and they differ."""
    low, high = f"{of.at_least[setting]:.1f}", f"{of.scores[setting]:.1f}"
    return Cell(high if low == high else f"{low}–{high}", strong=strong)


def _bits(bits: float | None) -> Cell:
    return Cell(NONE if bits is None else f"{bits:.2f}")


def _to_read(unread: Sequence[FactToRead]) -> list[Table]:
    rows = [
        (fact.x, fact.relation, fact.y, fact.hard or NONE, fact.tuned or NONE, per_cent(fact.probability))
        for fact in unread
    ]
    headings = ("x", "relation", "right answer", "hard prompt", "tuned", "its probability")
    return [table(headings, rows, numbers=("its probability",))] if rows else []


def part_table(parts: dict[str, tuple[Part, ...]]) -> Table:
    """Return the scores on some facts of all relations."""
    columns = tuple(Column(name) for name in ("facts", "hard prompt", "examples", "tuned", "best control"))
    rows = [
        Row(
            part.name,
            (Cell(str(part.facts)), *map(one_decimal, (part.hard, part.examples, part.tuned, part.control))),
            begins=f"By {what}" if number == 0 else "",
        )
        for what, of in parts.items()
        for number, part in enumerate(of)
    ]
    caption = "P@1 in per cent, as means over facts."
    return Table(caption, "", (ColumnGroup("", columns),), tuple(rows))


def trust_lines(card: LMCard) -> list[str]:
    """Say how far the scores can be trusted."""
    found = card.over_control
    said = [
        f"The gain over the best control is {signed(found.difference)} points ({how_sure(found)}; all facts with the "
        "same answer are one unit of the test). "
        + (
            "Such a gain is not to be had without knowledge."
            if card.is_knowledge
            else "It may be chance, so the score is no evidence of knowledge."
        )
    ]
    not_above = [one.label for one in card.relations if one.low <= one.control]
    if not_above:
        said.append(f"Not clearly above the control: {listed(not_above)}.")
    if card.left_out:
        said.append(f"{counted(card.left_out, 'test fact')} could not be asked, and are in no score.")
    if cut := [f"{count:,} with {name}" for name, count in card.unsettled.items() if count]:
        said.append(
            f"The search for a better answer than the right one was cut for {listed(cut)}: scores have two bounds "
            "where that matters, and tests leave these facts out."
        )
    for name, scores in card.by_seed.items():
        each = ", ".join(f"{score:.1f}" for score in scores)
        said.append(f"From seed to seed, {name} scores {each}.")
    if not card.by_seed:
        said.append("One seed: how far scores move from seed to seed was not measured.")
    if card.missing:
        said.append(f"Not done yet, and in no mean: {listed(list(card.missing))}.")
    return said


def _side_by_side(lms: Sequence[LMCard]) -> Table:
    columns = (
        *map(Column, lms[0].scores),
        Column("tuned"),
        Column("best control"),
        Column("facts"),
    )
    rows = [
        Row(
            one.lm,
            (
                *(_score(one, name) for name in one.scores),
                one_decimal(one.tuned, strong=True),
                one_decimal(one.control),
                Cell(str(one.facts)),
            ),
        )
        for one in lms
    ]
    return Table("P@1 in per cent, as means over relations.", "LM", (ColumnGroup("", columns),), tuple(rows))


def _pair_sentence(pair: LMPair) -> Paragraph:
    return Paragraph(
        f"{pair.a} minus {pair.b}: {gain_text(pair.difference)} on {counted(pair.facts, 'fact')} of "
        f"{counted(pair.relations, 'relation')} that both answered, with tuned prompts."
    )


def _how(card: Card, probe: Probe, command: str) -> tuple[Points | Code, ...]:
    spec = probe.spec
    used = [run.environment for run in probe.results.values()]
    versions = sorted({f"askwell {one.askwell}, torch {one.torch}, transformers {one.transformers}" for one in used})
    lms = "; ".join(f"{one.lm} ({one.lm_sha256[:12]})" for one in card.lms)
    seconds = sum(one.seconds for one in card.lms)
    return (
        Points(
            (
                f"{probe.reach} of the tuned settings; the relations of {spec.facts_of} were drawn with seed "
                f"{spec.seed}, and with it up to {spec.test_facts} test facts of each, and train and dev facts.",
                " ".join(_WAYS[name] for name in card.lms[0].scores),
                f"Cost: {seconds:,.0f} seconds of runs in all ({seconds / 3600:.2f} hours), each with one thread.",
                f"LMs, with the beginning of the hash of their tensors and tokenizer: {lms}.",
                f"Made with {'; '.join(versions)}.",
            )
        ),
        Code(((command, "makes this card; with more --minutes, it goes on."),)),
    )


def relations_csv(card: Card) -> str:
    """Return what each LM answers of each relation as CSV; P@1 in per cent."""
    ways = tuple(card.lms[0].scores)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    at_least = (f"{name} at least" for name in ways)
    writer.writerow(
        ["lm", "relation", "label", "kind", "facts", *ways, *at_least, "tuned", "low", "high", "control", "bits"]
    )
    for lm in card.lms:
        for one in lm.relations:
            scores = (of[name] for of in (one.scores, one.at_least) for name in ways)
            figures = [*scores, one.tuned_score, one.low, one.high, one.control]
            bits = one.bits[one.tuned]
            numbers = [*(f"{figure:.2f}" for figure in figures), "" if bits is None else f"{bits:.3f}"]
            writer.writerow([lm.lm, one.relation, one.label, one.kind or "", one.facts, *numbers])
    return text.getvalue()


def write_card(card: Card, page: CardPage, folder: Path) -> list[Path]:
    """Write the card as HTML, Markdown with its figures, JSON, and CSV by relation; return the paths."""
    contents = page_files(page.document, "card") | {
        "card.json": json.dumps(card.as_json(), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
        "relations.csv": relations_csv(card),
    }
    write_all({folder / name: content for name, content in contents.items()})
    return [folder / name for name in contents]
