"""What `askwell ask` prints: the answers to each x, or, with --risk, that the answer is not known."""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

from askwell.answers.candidates import Candidates
from askwell.answers.reply import missing_text
from askwell.cli.terminal import bar, note, print_json, print_json_list, say, show
from askwell.evaluation.selective import AnsweredX, DevAnswers, RiskLimits, ask_all
from askwell.mixture.mixture import Mixture
from askwell.views.printable import printable
from askwell.views.scores import prompt_replies_table, reply_table


def note_left_out_candidates(mixture: Mixture, candidates: Candidates) -> None:
    """Note which candidates the LM cannot answer with."""
    answers = mixture.answering(candidates)
    left_out = answers.candidates_left_out
    if left_out:
        named = ", ".join(repr(word[:40]) for word in left_out[:5]) + (", …" if len(left_out) > 5 else "")
        long = "which the LM cannot spell within the longest allowed answer"
        why = long if answers.name == "any-length" else "which are not one token of the LM"
        note(f"{len(left_out)} of {len(candidates.words)} candidates left out, {why}: {named}")


def print_answers(
    mixture: Mixture,
    xs: Sequence[str],
    *,
    form: Literal["json", "lines", "tables"],
    several: bool,
    dev: DevAnswers | None,
    limits: RiskLimits | None,
    **asking: Any,
) -> None:
    """Ask about each x and print the answers; `asking` is passed on to `ask_all`."""
    asked = ask_all(mixture, xs, dev=dev, limits=limits, **asking)
    if dev is not None and limits is not None:
        _note_threshold(dev, limits)
    if form == "lines":
        _print_all_lines(asked, len(xs))
    elif form == "json" and several:
        print_json_list(one.as_json() for one in asked)
    elif form == "json":
        one = next(asked)
        _note_missing(one)
        print_json(one.as_json(alone=True))
    else:
        for one in asked:
            _print_tables(mixture, one)


def _note_threshold(dev: DevAnswers, limits: RiskLimits) -> None:
    learned = dev.learned(limits.risk, limits.confidence)
    threshold = dev.threshold(limits.risk, limits.confidence)
    questions = len(dev.right)
    note(
        f"answers below {100 * threshold:.1f} % count as not known: {round(learned.coverage * questions)} "
        f"of {questions} dev questions of {dev.relation} are answered, {100 * learned.risk:.1f} % of them wrong "
        f"(among {dev.vocabulary}; {sum(dev.left_out.values())} dev facts left out)"
    )


def _print_tables(mixture: Mixture, reply: AnsweredX) -> None:
    if reply.answered:
        templates = [prompt.template.text for prompt in mixture.prompts]
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


def _note_missing(reply: AnsweredX) -> None:
    """Note which answers may be missing."""
    if reply.answers.unseen:
        note(f"{reply.x}: {missing_text(reply.answers.unseen)}")


def _print_all_lines(asked: Iterable[AnsweredX], count: int) -> None:
    """Print answers as they are found, with a progress bar unless they go to the terminal themselves."""
    out = sys.stdout  # while a bar is shown, rich replaces sys.stdout
    emit = partial(print, sep="\t", file=out, flush=True)
    with nullcontext(None) if out.isatty() else bar("x's asked") as shown:
        for done, one in enumerate(asked, start=1):
            _print_lines(one, emit)
            _note_missing(one)
            if shown is not None:
                shown(done, count)


def _print_lines(reply: AnsweredX, emit: Callable[..., None]) -> None:
    for answer in reply.answers if reply.answered else reply.answers[:1]:
        y = answer.y if reply.answered else ""
        emit(printable(reply.x), printable(y), f"{answer.probability:.6f}")
