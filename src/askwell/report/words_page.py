"""Soft prompts as one HTML page that needs nothing else: the drawing, and all its figures in a table."""

from collections.abc import Sequence
from html import escape
from string import Template

from askwell.report.words import (
    NOT_AN_EXPLANATION,
    BlankPlace,
    PromptToken,
    PromptWords,
    Word,
    copy_of,
    notes_on_prompt,
    visible,
)
from askwell.report.words_drawing import BLUE, RED, faded, probability_figure, weight_figure, words_svg


def words_html(
    prompts: Sequence[PromptWords],
    title: str,
    *,
    lm: str | None = None,
    relation: str | None = None,
    score: str | None = None,
) -> str:
    """The page, as text; `lm` and `relation` are the names that it tells, `score` what the nearest words score."""
    about = {"LM": lm, "Relation": relation, "Prompts": str(len(prompts))}
    return _PAGE.substitute(
        title=_safe(title),
        about="".join(f"<div><dt>{name}</dt><dd>{_safe(value)}</dd></div>" for name, value in about.items() if value),
        drawing=words_svg(prompts, title, heading=False),
        warning=NOT_AN_EXPLANATION if score is None else f"{NOT_AN_EXPLANATION} {_safe(score)}",
        rows="\n".join(_row(number, prompt) for number, prompt in enumerate(prompts, 1)),
    )


def _row(number: int, prompt: PromptWords) -> str:
    notes = "".join(
        f'<div class="note">{_safe(note)}</div>' for note in (copy_of(prompt), *notes_on_prompt(prompt)) if note
    )
    words = " ".join(_item(item) for item in prompt.items)
    return (
        f'<tr><td class="number">{number}</td><td class="number">{escape(weight_figure(prompt.weight))}</td>'
        f"<td><bdi>{_safe(prompt.template)}</bdi>{notes}</td>"
        f'<td><div class="words">{words}</div>{_details(prompt)}</td></tr>'
    )


def _item(item: PromptToken | BlankPlace) -> str:
    if isinstance(item, BlankPlace):
        return f'<span class="item"><b>{_safe(item.shown)}</b></span>'
    below = "" if item.is_same_word else _word(item.original, RED)
    return f'<span class="item">{_word(item.tuned, BLUE)}{below}</span>'


def _word(word: Word, colour: tuple[int, int, int]) -> str:
    return (
        f'<span class="word"><bdi style="color:{faded(colour, word.brightness)}">{_safe(word.shown)}</bdi> '
        f"<small>{probability_figure(word.p)}</small></span>"
    )


def _details(prompt: PromptWords) -> str:
    if not prompt.tokens:
        return ""
    rows = "".join(
        f"<tr><td>{_word(token.tuned, BLUE)}</td><td>{_word(token.original, RED)}</td>"
        f'<td class="number">{"–" if token.size_ratio is None else f"{token.size_ratio:.2f}"}</td>'
        f'<td><div class="words">{" ".join(map(_next, token.next_nearest))}</div></td></tr>'
        for token in prompt.tokens
    )
    return (
        "<details><summary>next nearest words</summary><table><thead><tr><th>tuned, p(w | v)</th>"
        '<th>original, p(w0 | v)</th><th class="number">|v| / |v0|</th><th>next nearest, p(w | v)</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></details>"
    )


def _next(word: Word) -> str:
    return f'<span class="word"><bdi>{_safe(word.shown)}</bdi> <small>{probability_figure(word.p)}</small></span>'


def _safe(text: str) -> str:
    return escape(visible(text))


_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --pale: #656d76; --rule: #e6e8eb; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #08090b; --ink: #e6edf3; --pale: #8d96a0; --rule: #2b3036; }
}
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 66rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 2rem; margin: 0 0 1.5rem; }
dl div { display: flex; gap: .5rem; }
dt, .note, small, summary, th { color: var(--pale); }
dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 0; overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px; }
figure svg { display: block; width: 100%; min-width: 44rem; height: auto; }
svg .paper { fill: var(--paper); }
svg .ink { fill: var(--ink); }
svg .pale, svg .bar { fill: var(--pale); }
svg .track { fill: var(--rule); }
svg .rule { stroke: var(--rule); }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 500; font-size: .875rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.note, small, summary { font-size: .8rem; }
.words { display: flex; flex-wrap: wrap; gap: .35rem 1rem; }
.item, .word { display: inline-flex; }
.item { flex-direction: column; }
.word { gap: .3rem; align-items: baseline; white-space: nowrap; }
summary { cursor: pointer; margin-top: .35rem; }
details table { font-size: .9rem; }
details th, details td { padding: .25rem .75rem .25rem 0; }
</style>
</head>
<body>
<h1>$title</h1>
<dl>$about</dl>
<figure>
$drawing</figure>
<h2>All figures</h2>
<p><strong>$warning</strong> Each word stands with its probability p(w | v), the softmax of the LM’s word embeddings
times the tuned vector v; below it stands the original word w0 with p(w0 | v), where that is another.</p>
<div class="table">
<table>
<thead><tr><th class="number">#</th><th class="number">Weight</th><th>Template</th><th>Words</th></tr></thead>
<tbody>
$rows
</tbody>
</table>
</div>
</body>
</html>
""")
