"""What `askwell ask` prints: the answers to each x, or, with --risk, that the answer is not known."""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import repeat
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from askwell.cli.tables import print_table
from askwell.cli.terminal import Bar, note, print_json, print_json_list, say
from askwell.display.printable import printable
from askwell.evaluation.cautious import CautiousReply, DevAnswers, ask_cautiously
from askwell.mixture.ask import ask
from askwell.mixture.ask_prompts import ask_each_prompt
from askwell.mixture.candidates import Candidates, unaskable_candidates
from askwell.mixture.encode import default_kind
from askwell.mixture.mixture import Mixture
from askwell.mixture.reply import PromptReply, Reply


def note_left_out_candidates(mixture: Mixture, candidates: Candidates) -> None:
    """Names the candidates that the LM cannot be asked for."""
    left_out = unaskable_candidates(mixture, candidates)
    if left_out:
        named = ", ".join(repr(word[:40]) for word in left_out[:5]) + (", …" if len(left_out) > 5 else "")
        long = "the LM cannot spell them, or only in more tokens than its answers have"
        why = long if default_kind(mixture).any_length else "they are not one token of the LM"
        note(f"{len(left_out)} of {len(candidates.words)} candidates cannot be asked for, since {why}: {named}")


def print_answers(
    mixture: Mixture,
    xs: Sequence[str],
    *,
    top: int,
    candidates: Candidates | None,
    beams: int,
    dev: DevAnswers | None,
    risk: float,
    confidence: float | None,
    form: Literal["json", "lines", "tables"],
    several: bool,
    each_prompt: bool = False,
) -> None:
    """Asks about each x and prints the answers; with `dev`, only those that are probable enough for the risk; with
    `each_prompt`, also what each prompt answers by itself."""
    replies: Iterable[CautiousReply]
    if dev is None:
        answers = zip(xs, ask(mixture, xs, top=top, candidates=candidates, beams=beams), strict=True)
        replies = (CautiousReply(x, tuple(found), threshold=0.0) for x, found in answers)
    else:
        replies = ask_cautiously(mixture, xs, risk=risk, confidence=confidence, top=top, candidates=candidates, dev=dev)
        _note_threshold(dev, risk, confidence)
    alone: Iterable[Sequence[PromptReply] | None] = repeat(None, len(xs))
    if each_prompt:
        alone = ask_each_prompt(mixture, xs, candidates=candidates, beams=beams)
    if form == "json":
        limits = None if dev is None else {"risk": risk, "sureness": confidence}
        documents = (
            _document(mixture, reply, limits, several, of_prompts)
            for reply, of_prompts in zip(replies, alone, strict=True)
        )
        if several:
            print_json_list(documents)
        else:
            print_json(next(documents))
        return
    if form == "lines":
        _print_all_lines(replies, len(xs))
        return
    for reply, of_prompts in zip(replies, alone, strict=True):
        if reply.answered:
            _print_table(mixture, reply.x, reply.answers)
        else:
            best = reply.answers[0]
            say(
                f"{reply.x}: not known. The best answer, {best.y}, has a probability of "
                f"{100 * best.probability:.1f} %, below the threshold of {100 * reply.threshold:.1f} % for a risk of "
                f"{100 * risk:g} %."
            )
        if of_prompts is not None:
            _print_prompts(mixture, of_prompts)


def _note_threshold(dev: DevAnswers, risk: float, confidence: float | None) -> None:
    learned, threshold = dev.learned(risk, confidence), dev.threshold(risk, confidence)
    questions = len(dev.right)
    note(
        f"answers below {100 * threshold:.1f} % count as not known: {round(learned.coverage * questions)} "
        f"of {questions} dev questions of {dev.relation} are answered, {100 * learned.risk:.1f} % of them wrong "
        f"({dev.vocabulary}; {sum(dev.left_out.values())} dev facts left out)"
    )


def _document(
    mixture: Mixture,
    reply: CautiousReply,
    limits: dict[str, Any] | None,
    several: bool,
    alone: Sequence[PromptReply] | None,
) -> Any:
    answers = [asdict(answer) for answer in reply.answers]
    prompts = {} if alone is None else {"prompts": [_prompt_document(mixture, one) for one in alone]}
    if limits is not None:
        given = {"answered": reply.answered, "threshold": reply.threshold, **limits}
        return {"x": reply.x, **given, "answers": answers, **prompts}
    return {"x": reply.x, "answers": answers, **prompts} if several or prompts else answers


def _prompt_document(mixture: Mixture, reply: PromptReply) -> dict[str, Any]:
    template, weight = mixture.prompts[reply.prompt].template.text, float(mixture.weights.detach()[reply.prompt])
    return {"prompt": template, "weight": weight, "y": reply.y, "probability": reply.probability}


def _print_all_lines(replies: Iterable[CautiousReply], count: int) -> None:
    """Prints answers as they are found. On a terminal they show by themselves how far it is; otherwise a bar does."""
    out = sys.stdout  # while a bar is shown, sys.stdout stands for the terminal that it is drawn on
    emit = partial(print, sep="\t", file=out, flush=True)
    with nullcontext(None) if out.isatty() else Bar("x's asked") as shown:
        for done, reply in enumerate(replies, start=1):
            _print_lines(reply, emit)
            if shown is not None:
                shown(done, count)


def _print_lines(reply: CautiousReply, emit: Callable[..., None]) -> None:
    for answer in reply.answers if reply.answered else reply.answers[:1]:
        y = answer.y if reply.answered else ""
        emit(printable(reply.x), printable(y), f"{answer.probability:.6f}")


def _print_table(mixture: Mixture, x: str, answers: Sequence[Reply]) -> None:
    """Prints the answers with bars, and the prompt that is most confident of each."""
    table = Table(title=Text(x), title_justify="left", box=None, header_style="dim")
    table.add_column("answer", style="bold")
    table.add_column("probability", justify="right")
    table.add_column("")
    table.add_column("most confident prompt", style="dim", overflow="fold")
    for reply in answers:
        most_confident = max(range(len(reply.by_prompt)), key=reply.by_prompt.__getitem__)
        bar = "█" * round(20 * reply.probability)
        template = mixture.prompts[most_confident].template.text
        table.add_row(Text(reply.y), f"{100 * reply.probability:.1f} %", Text(bar, style="blue"), Text(template))
    print_table(table)


def _print_prompts(mixture: Mixture, replies: Sequence[PromptReply]) -> None:
    """Prints what each prompt answers by itself, the one with the largest weight first."""
    table = Table("weight", "prompt", "its own answer", "probability", box=None, header_style="dim")
    for one in sorted((_prompt_document(mixture, reply) for reply in replies), key=lambda one: -one["weight"]):
        cells = Text(one["prompt"]), Text(one["y"], style="bold"), f"{100 * one['probability']:.1f} %"
        table.add_row(f"{100 * one['weight']:.1f} %", *cells)
    print_table(table)
