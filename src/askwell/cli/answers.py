"""What `askwell ask` prints: the answers to each x, or, with --risk, that the answer is not known."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from askwell.cli.terminal import Bar, note, print_json, say, stdout
from askwell.data.names import read_relation
from askwell.evaluation.cautious import CautiousReply, DevAnswers, ask_cautiously, dev_answers, dev_answers_from
from askwell.evaluation.evaluate import evaluate
from askwell.mixture.ask import ask
from askwell.mixture.candidates import Candidates, unaskable_candidates
from askwell.mixture.encode import default_kind
from askwell.mixture.mixture import Mixture
from askwell.mixture.reply import Reply
from askwell.mixture.save import read_description, read_dev_answers
from askwell.runs.sources import own_relation, warn_of_other_facts


def dev_answers_of(
    mixture: Mixture, folder: str | None, facts: str | None, data: Path | None, candidates: Candidates | None
) -> DevAnswers:
    """The dev answers saved with the mixture, or the answers to the dev facts of a named relation."""
    if facts is None:
        return dev_answers_from(read_dev_answers(folder or ""))
    if folder is None:
        relation = read_relation(facts, data=data, seed=mixture.spec.seed)
    else:
        description = read_description(folder)
        relation = own_relation(description, facts, data)
        danger = "if it was trained on these very dev facts, the threshold is too low"
        warn_of_other_facts(folder, description, relation, danger, note)
    with Bar(f"dev facts of {relation.name}") as shown:
        evaluation = evaluate(mixture, relation, split="dev", candidates=candidates, progress=shown)
    return dev_answers(evaluation, candidates or mixture.candidates)


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
) -> None:
    """Asks about each x and prints the answers; with `dev`, only those that are probable enough for the risk."""
    replies: Iterable[CautiousReply]
    if dev is None:
        answers = zip(xs, ask(mixture, xs, top=top, candidates=candidates, beams=beams), strict=True)
        replies = (CautiousReply(x, tuple(found), threshold=0.0) for x, found in answers)
    else:
        replies = ask_cautiously(mixture, xs, risk=risk, confidence=confidence, top=top, candidates=candidates, dev=dev)
        _note_threshold(dev, risk, confidence)
    if form == "json":
        limits = None if dev is None else {"risk": risk, "sureness": confidence}
        documents = [_document(reply, limits, several) for reply in replies]
        print_json(documents if several else documents[0])
        return
    for reply in replies:
        if form == "lines":
            _print_lines(reply)
        elif reply.answered:
            _print_table(mixture, reply.x, reply.answers)
        else:
            best = reply.answers[0]
            say(
                f"{reply.x}: not known. The best answer, {best.y}, has a probability of "
                f"{100 * best.probability:.1f} %, below the threshold of {100 * reply.threshold:.1f} % for a risk of "
                f"{100 * risk:g} %."
            )


def _note_threshold(dev: DevAnswers, risk: float, confidence: float | None) -> None:
    learned, threshold = dev.learned(risk, confidence), dev.threshold(risk, confidence)
    questions = len(dev.right)
    note(
        f"answers below {100 * threshold:.1f} % count as not known: {round(learned.coverage * questions)} "
        f"of {questions} dev questions of {dev.relation} are answered, {100 * learned.risk:.1f} % of them wrong "
        f"({dev.vocabulary}; {sum(dev.left_out.values())} dev facts left out)"
    )


def _document(reply: CautiousReply, limits: dict[str, Any] | None, several: bool) -> Any:
    answers = [asdict(answer) for answer in reply.answers]
    if limits is not None:
        given = {"answered": reply.answered, "threshold": reply.threshold, **limits}
        return {"x": reply.x, **given, "answers": answers}
    return {"x": reply.x, "answers": answers} if several else answers


def _print_lines(reply: CautiousReply) -> None:
    for answer in reply.answers if reply.answered else reply.answers[:1]:
        y = answer.y if reply.answered else ""
        print(reply.x, y, f"{answer.probability:.6f}", sep="\t", flush=True)


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
    stdout.print(table)
