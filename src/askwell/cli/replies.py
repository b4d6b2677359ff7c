"""What `askwell ask` reads and prints: x's from words, files, pipes and people, answers of a mixture here or on a
server."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from askwell.cli.terminal import bar, note, print_json_list, say, show
from askwell.data.readers import read_xs
from askwell.errors import AskwellError, BadFile, BadOption
from askwell.files import run_like
from askwell.views.printable import printable

if TYPE_CHECKING:
    from askwell.evaluation.selective import AnsweredX, RiskLimits
    from askwell.mixture.learned_from import DevAnswers

Answer = Callable[[Sequence[str]], "Iterator[AnsweredX]"]
"""Answers each of some x's."""


def xs_to_ask(given: Sequence[str], file: Path | None, column: str | None) -> tuple[list[str], bool]:
    """Return the x's to ask about, and whether they come from a file or a pipe; none if a person will type them."""
    if column and not file:
        raise BadOption("--column goes with --file")
    xs = [*given, *(read_xs(file, column) if file else [])]
    if xs or file or sys.stdin.isatty():
        return xs, file is not None
    xs = [line.strip() for line in sys.stdin if line.strip()]
    if not xs:
        raise BadOption("nothing to ask: give an x, --file, or x's on stdin, one on each line")
    return xs, True


def need_mixtures(*paths: str | None) -> None:
    """Refuse what is no folder if a folder of runs is called almost the same, before torch is loaded; other names are
    looked up on the hub."""
    for path in paths:
        if path is not None and not Path(path).exists() and (meant := run_like(path)):
            raise BadFile(path, f"there is no such folder{meant}")


@contextmanager
def served_mixture(address: str, words: Sequence[str]) -> Generator[tuple[Callable[..., Any], Sequence[str]]]:
    """Yield a function that asks a mixture on a server, named by the first word unless it is the only one, and the
    other words."""
    from askwell.evaluation.selective import AnsweredX
    from askwell.server.client import Client

    with Client(address, token=os.environ.get("ASKWELL_TOKEN") or None) as client:
        names = client.mixtures
        first = words[0].rstrip("/") if words else ""
        name = next((one for one in names if one in (first, Path(first).name)), None) if first else None
        if name is None and len(names) != 1:
            raise BadOption(f"name one of the mixtures at {address} first: {', '.join(names[:20]) or 'there is none'}")

        def answer(xs: Sequence[str], top: int) -> Iterator[AnsweredX]:
            return map(AnsweredX, client.ask_many(xs, top=top, mixture=name or names[0]))

        yield answer, words if name is None else words[1:]


def print_answers(
    answer: Answer, xs: Sequence[str], *, json: bool, in_lines: bool, templates: Sequence[str] = ()
) -> None:
    """Print the answers to each x: as JSON, as lines, or as tables; without x's, to whatever the user types."""
    if not xs:
        _converse(answer, lambda reply: print_json_list([reply.as_json()]) if json else _print_tables(reply, templates))
    elif json:
        print_json_list(reply.as_json() for reply in answer(xs))
    elif in_lines:
        _print_all_lines(answer(xs), len(xs))
    else:
        for reply in answer(xs):
            _print_tables(reply, templates)


def _converse(answer: Answer, show_reply: "Callable[[AnsweredX], None]") -> None:
    """Ask about what the user types, until an empty line or the end of the input."""
    with suppress(ImportError):
        import readline  # noqa: F401 - typed lines can be edited, and earlier ones called back
    note("type an x; an empty line or Ctrl-D ends")
    while True:
        try:
            x = input("x: ").strip()
        except EOFError:
            say("")
            return
        if not x:
            return
        try:
            for reply in answer([x]):
                show_reply(reply)
        except AskwellError as error:  # one x that cannot be asked does not end the conversation
            note(error.for_command_line())


def note_threshold(dev: "DevAnswers | None", limits: "RiskLimits | None") -> None:
    """Note below which probability answers count as not known, if there is such a threshold."""
    if dev is None or limits is None:
        return
    from askwell.evaluation.selective import learned_threshold, threshold_of

    learned = learned_threshold(dev, limits.risk, limits.confidence)
    threshold = threshold_of(dev, limits.risk, limits.confidence)
    questions = len(dev.right)
    note(
        f"answers below {100 * threshold:.1f} % count as not known: {round(learned.coverage * questions)} "
        f"of {questions} dev questions of {dev.relation} are answered, {100 * learned.risk:.1f} % of them wrong "
        f"(among {dev.vocabulary}; {sum(dev.left_out.values())} dev facts left out)"
    )


def _print_tables(reply: "AnsweredX", templates: Sequence[str]) -> None:
    from askwell.views.scores import prompt_replies_table, reply_table

    if reply.answered:
        show(reply_table(reply.x, reply.answers, templates))
        _note_missing(reply)
    elif reply.limits is not None:
        best = reply.answers[0]
        say(
            f"{reply.x}: not known. The best answer, {best.y}, has a probability of {100 * best.probability:.1f} %, "
            f"below the threshold of {100 * reply.threshold:.1f} % for a risk of {100 * reply.limits.risk:g} %."
        )
    if reply.prompts is not None:
        show(prompt_replies_table(reply.prompts))


def _note_missing(reply: "AnsweredX") -> None:
    """Note which answers may be missing."""
    if reply.answers.unseen:
        from askwell.answers.reply import missing_text

        note(f"{reply.x}: {missing_text(reply.answers.unseen)}")


def _print_all_lines(replies: "Iterable[AnsweredX]", count: int) -> None:
    """Print answers as they are found, with a progress bar unless they go to the terminal themselves."""
    out = sys.stdout  # while a bar is shown, rich replaces sys.stdout
    with nullcontext(None) if out.isatty() else bar("x's asked") as shown:
        for done, reply in enumerate(replies, start=1):
            for answer in reply.answers if reply.answered else reply.answers[:1]:
                y = answer.y if reply.answered else ""
                print(printable(reply.x), printable(y), f"{answer.probability:.6f}", sep="\t", file=out, flush=True)
            _note_missing(reply)
            if shown is not None:
                shown(done, count)
