"""`askwell ask`."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import LM, Candidates, Data, Device, Dtype, Json, Prompts, Revision, Threads
from askwell.errors import BadOption, NothingLeft
from askwell.specs import MixtureSpec

if TYPE_CHECKING:
    from askwell.mixture.ask import Reply
    from askwell.mixture.mixture import Mixture


def ask(
    words: Annotated[
        list[str] | None,
        Parameter(help="The folder of a saved mixture, then the x's; with --prompts the x's alone.", negative=""),
    ] = None,
    /,
    *,
    lm: LM = None,
    prompts: Prompts = None,
    facts: Annotated[
        str | None,
        Parameter(help="The relation, where the prompts' name needs it: testbed:capital for testbed:single."),
    ] = None,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Untuned prompts")] = MixtureSpec(),  # noqa: B008
    file: Annotated[
        Path | None, Parameter(help="A file of x's: lines of text, or a column of a .csv, .tsv or .jsonl file.")
    ] = None,
    column: Annotated[
        str | None, Parameter(help="The column of the file that holds the x's; x, sub_label or sub, if not given.")
    ] = None,
    top: Annotated[int, Parameter(help="How many answers to give.")] = 5,
    candidates: Candidates = None,
    data: Data = None,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Ask a saved mixture, or untuned prompts, about one x or a file of them.

    askwell ask my-mixture "Mary Cassatt" asks a saved mixture; askwell ask --lm bert-base-cased --prompts "[X] was born
    in [Y] ." "Mary Cassatt" asks with untuned prompts. --json prints for one x a list of answers, best first, each with
    its probability and that of every prompt; for several x's a list of {x, answers}.
    """
    if top < 1:
        raise BadOption(f"--top {top}: ask for at least one answer")
    words = list(words or [])
    if not prompts and not words:
        raise BadOption("name the folder of a saved mixture, or give --lm and --prompts")
    if prompts and lm is None:
        raise BadOption("untuned prompts need --lm")
    folder = None if prompts else words.pop(0)
    if folder is not None and (mixture != MixtureSpec() or facts):
        raise BadOption("a saved mixture is as it was learned: leave out --facts and the options for untuned prompts")
    from askwell.cli.questions import read_xs
    from askwell.cli.sources import saved_mixture, set_threads, untuned_mixture
    from askwell.cli.terminal import note, print_json
    from askwell.lms.load import load_lm
    from askwell.mixture.ask import ask as ask_mixture
    from askwell.mixture.candidates import read_candidates
    from askwell.mixture.encode import why_unaskable

    xs = words + (read_xs(file, column) if file else [])
    if not xs:
        raise BadOption("nothing to ask: give an x, or --file")
    if column and not file:
        raise BadOption("--column goes with --file")
    allowed = read_candidates(candidates) if candidates else None
    set_threads(threads)
    loading: dict[str, Any] = {"revision": revision, "device": device, "dtype": dtype}
    if folder is not None:
        asked = saved_mixture(folder, lm, **loading)
    else:
        asked = untuned_mixture(load_lm(lm or "", **loading), prompts or [], mixture, facts, data)
    several = file is not None or len(xs) > 1
    if several:
        reasons = dict(zip(xs, why_unaskable(asked, xs), strict=True))
        for x in (x for x, reason in reasons.items() if reason is not None):
            note(f"left out: {x[:60]!r}, since {reasons[x]}")
        xs = [x for x in xs if reasons[x] is None]
        if not xs:
            raise NothingLeft("x to ask about", Counter(str(reason) for reason in reasons.values()))
    replies = ask_mixture(asked, xs, top=top, candidates=allowed)
    if json:
        documents = [[_reply_json(reply) for reply in answers] for answers in replies]
        pairs = zip(xs, documents, strict=True)
        print_json([{"x": x, "answers": answers} for x, answers in pairs] if several else documents[0])
    elif file is not None:
        for x, answers in zip(xs, replies, strict=True):
            for reply in answers:
                print(x, reply.y, f"{reply.probability:.6f}", sep="\t", flush=True)
    else:
        for x, answers in zip(xs, replies, strict=True):
            _print_answers(asked, x, answers)


def _reply_json(reply: "Reply") -> dict[str, Any]:
    return {"y": reply.y, "probability": reply.probability, "by_prompt": list(reply.by_prompt)}


def _print_answers(mixture: "Mixture", x: str, answers: "list[Reply]") -> None:
    """The answers with bars, and the prompt that is surest of each."""
    from rich.table import Table
    from rich.text import Text

    from askwell.cli.terminal import out

    table = Table(title=Text(x), title_justify="left", box=None, header_style="dim")
    table.add_column("answer", style="bold")
    table.add_column("probability", justify="right")
    table.add_column("")
    table.add_column("surest prompt", style="dim", overflow="fold")
    for reply in answers:
        surest = max(range(len(reply.by_prompt)), key=reply.by_prompt.__getitem__)
        bar = "█" * round(20 * reply.probability)
        template = mixture.prompts[surest].template.text
        table.add_row(Text(reply.y), f"{100 * reply.probability:.1f} %", Text(bar, style="blue"), Text(template))
    out.print(table)
