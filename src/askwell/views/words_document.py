"""Soft prompts as a document: the chart of their words, and all figures as tables."""

from collections.abc import Sequence

from askwell.views.document import (
    Block,
    Cell,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Figure,
    Paragraph,
    Row,
    Section,
    Table,
)
from askwell.views.printable import NONE, counted, visible
from askwell.views.words import NOT_AN_EXPLANATION, PromptToken, PromptWords, Word, copy_of, notes_on_prompt
from askwell.views.words_figure import probability_figure, weight_figure, words_chart


def words_document(
    prompts: Sequence[PromptWords],
    title: str,
    *,
    lm: str | None = None,
    relation: str | None = None,
    score: str | None = None,
) -> Document:
    """Return the prompts of a mixture in words; `score` says what the nearest words score as hard prompts."""
    about = {"LM": lm, "Relation": relation, "Prompts": str(len(prompts))}
    return Document(
        visible(title),
        about=tuple((name, visible(value)) for name, value in about.items() if value),
        sections=(
            Section("", (words_figure(prompts, title, score),)),
            Section("All figures", tuple(words_tables(prompts))),
        ),
    )


def words_figure(prompts: Sequence[PromptWords], title: str, score: str | None = None) -> Figure:
    """Return the chart of the prompts, with what can be read into it."""
    caption = NOT_AN_EXPLANATION if score is None else f"{NOT_AN_EXPLANATION} {visible(score)}"
    return Figure((Drawing("words", words_chart(prompts, title, heading=False)),), caption, wide=True)


def words_tables(prompts: Sequence[PromptWords]) -> list[Block]:
    """Return the prompts with their weights, and for each of them a folded table of its vectors."""
    notes = [
        "; ".join(visible(note) for note in (copy_of(prompt), *notes_on_prompt(prompt)) if note) for prompt in prompts
    ]
    listed = prompt_table([(prompt.weight, prompt.template) for prompt in prompts], notes)
    explained = Paragraph(
        "Each word w is shown with its probability p(w | v), the softmax over the vocabulary of the LM’s word "
        "embeddings times the tuned vector v; w0 is the word in its place in the template, v0 the vector it began with."
    )
    return [listed, explained, *(_vectors(prompt) for prompt in prompts if prompt.tokens)]


def prompt_table(prompts: Sequence[tuple[float, str]], notes: Sequence[str] = ()) -> Table:
    """Return weights and templates, with notes on them."""
    rows = [
        Row(weight_figure(weight), (Cell(visible(template), note=note),))
        for (weight, template), note in zip(prompts, notes or [""] * len(prompts), strict=True)
    ]
    return Table("", "weight", (ColumnGroup("", (Column("template", number=False),)),), tuple(rows), numbered=True)


def _vectors(prompt: PromptWords) -> Table:
    folded = f"{visible(prompt.template)}: {counted(len(prompt.tokens), 'vector')}"
    headings = ("tuned, p(w | v)", "original, p(w0 | v)", "|v| / |v0|", "next nearest, p(w | v)")
    columns = tuple(Column(heading, number=heading.startswith("|")) for heading in headings)
    rows = tuple(Row(str(number), _cells(token)) for number, token in enumerate(prompt.tokens, 1))
    return Table("", "#", (ColumnGroup("", columns),), rows, numbered=True, folded=folded)


def _cells(token: PromptToken) -> tuple[Cell, ...]:
    ratio = NONE if token.size_ratio is None else f"{token.size_ratio:.2f}"
    nearest = ", ".join(f"{word.shown} {probability_figure(word.p)}" for word in token.next_nearest)
    return _cell(token.tuned), _cell(token.original), Cell(ratio), Cell(nearest or NONE)


def _cell(word: Word) -> Cell:
    return Cell(word.shown, strong=True, note=probability_figure(word.p))
