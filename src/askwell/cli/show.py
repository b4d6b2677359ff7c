"""`askwell show`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from askwell.cli.options import LM, Device, Json, Revision
from askwell.write import need_writable_folder, write_whole


def show(
    mixture: Annotated[str, Parameter(help="The folder of a saved mixture.")],
    /,
    *,
    svg: Annotated[Path | None, Parameter(help="Draw the prompts into this SVG file.")] = None,
    html: Annotated[Path | None, Parameter(help="Write a page about the prompts into this HTML file.")] = None,
    nearest: Annotated[int, Parameter(help="How many nearest words to list for each token.")] = 3,
    lm: LM = None,
    revision: Revision = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Show what the tuned prompts look like, beside the words they began as.

    Prompts stand in order of their weight; the word nearest to each tuned vector stands in blue above the original
    word in red, the brighter the more probable, and its size tells whether the vector grew or shrank.
    """
    for option, path in (("--svg", svg), ("--html", html)):
        if path is not None:
            need_writable_folder(path.parent, option)
    from askwell.cli.sources import saved_mixture
    from askwell.cli.terminal import note, out, print_json
    from askwell.look import look_at, print_words, words_html, words_svg

    shown = saved_mixture(mixture, lm, revision=revision, device=device, dtype="auto")
    prompts = look_at(shown, nearest=nearest)
    relation = shown.learned_from.get("relation", {}).get("name", Path(mixture).name)
    title = f"{relation} on {shown.lm.identity.name}"
    if svg is not None:
        write_whole(svg, words_svg(prompts, title))
        note(f"drawn into {svg}")
    if html is not None:
        write_whole(html, words_html(prompts, title, lm=shown.lm.identity.name, relation=relation))
        note(f"written into {html}")
    if json:
        print_json([prompt.as_json() for prompt in prompts])
    else:
        print_words(prompts, out)
