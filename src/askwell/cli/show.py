"""`askwell show`."""

from pathlib import Path

from askwell.cli.options import LM, Data, Device, Json, Revision, Threads, Where
from askwell.cli.terminal import bar, note, print_json, say, stdout
from askwell.errors import BadOption
from askwell.files import need_writable_file, to_json, write_whole


def show(
    mixture: str,
    /,
    *,
    svg: Path | None = None,
    figure: Path | None = None,
    html: Path | None = None,
    nearest: int = 3,
    facts: str | None = None,
    where: Where = None,
    data: Data = None,
    threads: Threads = None,
    lm: LM = None,
    revision: Revision = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Show the tuned prompts beside the words they started from.

    Prompts are ordered by weight; the word nearest to each tuned vector is shown in blue above the original word in
    red, the brighter, the more probable; its size shows whether the vector grew or shrank. With --facts, the
    nearest words are scored in place of the vectors, and --json prints {prompts, projection} instead of the prompts.

    Args:
        mixture: A run, a folder of runs, a store, or a saved mixture.
        svg: Draw the prompts as an SVG file.
        figure: Draw the prompts as a file of this name, which ends in .svg, .png or .pdf.
        html: Write an HTML page about the prompts.
        nearest: How many nearest words to list for each token.
        facts: The mixture's relation: also score the nearest words alone, as hard prompts, on its test facts.
    """
    if figure is not None and figure.suffix not in (".svg", ".png", ".pdf"):
        raise BadOption(f"--figure {figure}: name a file that ends in .svg, .png or .pdf")
    for option, path in (("--svg", svg), ("--figure", figure), ("--html", html)):
        if path is not None:
            need_writable_file(path, option)
    from askwell.evaluation.projection import projection_scores
    from askwell.lms.machine import set_threads
    from askwell.mixture.save import read_description
    from askwell.runs.sources import find_mixture, own_relation, saved_mixture
    from askwell.views.to_html import page_html
    from askwell.views.trust_section import projection_sentence
    from askwell.views.words import nearest_words
    from askwell.views.words_figure import print_words, words_chart, words_document

    folder = find_mixture(mixture, where, note)
    description = read_description(folder)
    asked = None if facts is None else own_relation(description, facts, data)
    shown = saved_mixture(folder, lm, revision=revision, device=device, dtype="auto")
    prompts = nearest_words(shown, nearest=nearest)
    relation = Path(mixture).name if description.relation is None else description.relation.name
    title = f"{relation} on {shown.lm.identity.name}"
    for path in (svg, figure):
        if path is not None:
            chart = words_chart(prompts, title)
            is_svg = path == svg or path.suffix == ".svg"
            write_whole(path, chart.svg() if is_svg else chart.pdf() if path.suffix == ".pdf" else chart.png())
            note(f"written to {path}")
    projection = None
    if asked is not None:
        set_threads(threads)
        with bar(f"test facts of {asked.name}") as progress:
            projection = projection_scores(shown, asked, progress=progress)
    score = None if projection is None else projection_sentence(projection)
    if html is not None:
        page = words_document(prompts, title, lm=shown.lm.identity.name, relation=relation, score=score)
        write_whole(html, page_html(page))
        note(f"written to {html}")
    if json:
        listed = [prompt.as_json() for prompt in prompts]
        print_json(listed if projection is None else {"prompts": listed, "projection": to_json(projection)})
        return
    print_words(prompts, stdout)
    if score is not None:
        say(score)
