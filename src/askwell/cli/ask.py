"""`askwell ask`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import LM, Candidates, Data, Device, Dtype, Json, Prompts, Revision, Threads, Where
from askwell.cli.trust import check_risk
from askwell.errors import BadOption, NothingLeft
from askwell.specs.mixture import MixtureSpec

if TYPE_CHECKING:
    from askwell.evaluation.cautious import CautiousReply, DevAnswers
    from askwell.mixture.ask import Reply
    from askwell.mixture.candidates import Candidates as CandidateWords
    from askwell.mixture.mixture import Mixture


def ask(
    *words: Annotated[
        str, Parameter(help="A run, a folder of runs, a store or a saved mixture, then x's; with --prompts, only x's.")
    ],
    lm: LM = None,
    prompts: Prompts = None,
    facts: Annotated[
        str | None,
        Parameter(
            help="The relation, if the name of the prompts needs it: testbed:capital for testbed:single. With --risk, "
            "the relation whose dev facts the threshold is learned from; a saved mixture has its own."
        ),
    ] = None,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Untuned prompts")] = MixtureSpec(),  # noqa: B008
    file: Annotated[
        Path | None, Parameter(help="A file of x's: lines of text, or a column of a .csv, .tsv or .jsonl file.")
    ] = None,
    column: Annotated[
        str | None, Parameter(help="The column of the file that holds the x's; default: x, sub_label or sub.")
    ] = None,
    top: Annotated[int, Parameter(help="How many answers to give.")] = 5,
    risk: Annotated[
        float | None,
        Parameter(
            help="Report an answer as not known if its probability is below a threshold, which is learned on dev so "
            "that at most this fraction of the answers given is wrong: 0.1 for one in ten."
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        Parameter(
            name=["--confidence", "--sureness"],
            help="The confidence with which to keep the risk, e.g. 0.95; with few dev facts, less is answered.",
        ),
    ] = None,
    where: Where = None,
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
    in [Y] ." "Mary Cassatt" asks with untuned prompts. For one x, --json prints a list of answers, best first, each
    with its probability and that of every prompt; for several x's, a list of {x, answers}. With --risk, each x is an
    object that also gives the threshold and whether the x is answered.
    """
    if top < 1:
        raise BadOption(f"--top {top}: ask for at least one answer")
    if not prompts and not words:
        raise BadOption("name the folder of a saved mixture, or give --lm and --prompts")
    if prompts and lm is None:
        raise BadOption("untuned prompts need --lm")
    folder, asked = (None, words) if prompts else (words[0], words[1:])
    if folder is not None and (mixture != MixtureSpec() or (facts and risk is None)):
        raise BadOption("a saved mixture stays as it is: leave out --facts and the options for untuned prompts")
    if confidence is not None and risk is None:
        raise BadOption("--confidence goes with --risk")
    if risk is not None:
        check_risk(risk, confidence)
    if risk is not None and folder is None and not facts:
        raise BadOption("--risk learns from dev facts how probable an answer must be: name the relation with --facts")
    from askwell.cli.running import set_threads
    from askwell.cli.terminal import note, print_json
    from askwell.data.names import read_prompts
    from askwell.data.read_facts import read_xs
    from askwell.lms.load import load_lm
    from askwell.mixture.ask import ask as ask_mixture
    from askwell.mixture.candidates import read_candidates
    from askwell.mixture.encode import why_unaskable
    from askwell.runs.sources import find_mixture, saved_mixture, untuned_mixture

    xs = [*asked, *(read_xs(file, column) if file else [])]
    if not xs:
        raise BadOption("nothing to ask: give an x, or --file")
    if column and not file:
        raise BadOption("--column goes with --file")
    allowed = read_candidates(candidates) if candidates else None
    set_threads(threads)
    loading: dict[str, Any] = {"revision": revision, "device": device, "dtype": dtype}
    if folder is not None:
        folder = find_mixture(folder, where, note)
        asked = saved_mixture(folder, lm, **loading)
    else:
        loaded = load_lm(lm or "", **loading)
        asked = untuned_mixture(loaded, read_prompts(prompts or [], relation=facts, data=data), mixture, note)
    several = file is not None or len(xs) > 1
    if several:
        reasons = dict(zip(xs, why_unaskable(asked, xs), strict=True))
        for x in (x for x, reason in reasons.items() if reason is not None):
            note(f"left out: {x[:60]!r}, since {reasons[x]}")
        xs = [x for x in xs if reasons[x] is None]
        if not xs:
            raise NothingLeft("x to ask about", Counter(str(reason) for reason in reasons.values()))
    if risk is not None:
        dev = _dev_answers(asked, folder, facts, data, allowed)
        _ask_cautiously(asked, xs, dev, risk, confidence, top, allowed, json=json, several=several, lines=bool(file))
        return
    replies = ask_mixture(asked, xs, top=top, candidates=allowed)
    if json:
        documents = [[_reply_json(reply) for reply in answers] for answers in replies]
        pairs = zip(xs, documents, strict=True)
        print_json([{"x": x, "answers": answers} for x, answers in pairs] if several else documents[0])
    elif file is not None:
        for x, answers in zip(xs, replies, strict=True):
            _print_lines(x, answers)
    else:
        for x, answers in zip(xs, replies, strict=True):
            _print_answers(asked, x, answers)


def _dev_answers(
    mixture: "Mixture", folder: str | None, facts: str | None, data: Path | None, allowed: Any
) -> "DevAnswers":
    """The dev answers saved with the mixture, or the answers to the dev facts of a named relation."""
    from askwell.cli.progress import EvaluationBar
    from askwell.cli.terminal import note
    from askwell.data.names import read_relation
    from askwell.evaluation.cautious import dev_answers, dev_answers_from
    from askwell.evaluation.evaluate import evaluate
    from askwell.mixture.save import read_description, read_dev_answers
    from askwell.runs.sources import own_relation, warn_of_other_facts

    if facts is None:
        return dev_answers_from(read_dev_answers(folder or ""))
    if folder is None:
        relation = read_relation(facts, data=data, seed=mixture.spec.seed)
    else:
        description = read_description(folder)
        relation = own_relation(description, facts, data)
        danger = "if it was trained on these very dev facts, the threshold is too low"
        warn_of_other_facts(folder, description, relation, danger, note)
    with EvaluationBar(f"dev facts of {relation.name}") as shown:
        return dev_answers(evaluate(mixture, relation, split="dev", candidates=allowed, progress=shown), allowed)


def _ask_cautiously(
    mixture: "Mixture",
    xs: list[str],
    dev: "DevAnswers",
    risk: float,
    confidence: float | None,
    top: int,
    allowed: "CandidateWords | None",
    *,
    json: bool,
    several: bool,
    lines: bool,
) -> None:
    """Prints the answers that are probable enough, and reports the others as not known."""
    from askwell.cli.terminal import note, out, print_json
    from askwell.evaluation.cautious import ask_cautiously

    replies = ask_cautiously(mixture, xs, risk=risk, confidence=confidence, top=top, candidates=allowed, dev=dev)
    learned, threshold = dev.learned(risk, confidence), dev.threshold(risk, confidence)
    questions = len(dev.right)
    note(
        f"answers below {100 * threshold:.1f} % count as not known: {round(learned.coverage * questions)} "
        f"of {questions} dev questions of {dev.relation} are answered, {100 * learned.risk:.1f} % of them wrong "
        f"({dev.vocabulary}; {sum(dev.left_out.values())} dev facts left out)"
    )
    if json:
        documents = [_cautious_json(reply, risk, confidence) for reply in replies]
        print_json(documents if several else documents[0])
        return
    for reply in replies:
        best = reply.answers[0]
        if lines and reply.answered:
            _print_lines(reply.x, reply.answers)
        elif lines:
            print(reply.x, "", f"{best.probability:.6f}", sep="\t", flush=True)
        elif reply.answered:
            _print_answers(mixture, reply.x, reply.answers)
        else:
            out.print(
                f"{reply.x}: not known. The best answer, {best.y}, has a probability of "
                f"{100 * best.probability:.1f} %, below the threshold of {100 * reply.threshold:.1f} % for a risk of "
                f"{100 * risk:g} %.",
                markup=False,
                soft_wrap=True,
            )


def _cautious_json(reply: "CautiousReply", risk: float, confidence: float | None) -> dict[str, Any]:
    return {
        "x": reply.x,
        "answered": reply.answered,
        "threshold": reply.threshold,
        "risk": risk,
        "sureness": confidence,
        "answers": [_reply_json(answer) for answer in reply.answers],
    }


def _print_lines(x: str, answers: "Sequence[Reply]") -> None:
    for reply in answers:
        print(x, reply.y, f"{reply.probability:.6f}", sep="\t", flush=True)


def _reply_json(reply: "Reply") -> dict[str, Any]:
    return {"y": reply.y, "probability": reply.probability, "by_prompt": list(reply.by_prompt)}


def _print_answers(mixture: "Mixture", x: str, answers: "Sequence[Reply]") -> None:
    """Prints the answers with bars, and the prompt that is most confident of each."""
    from rich.table import Table
    from rich.text import Text

    from askwell.cli.terminal import out

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
    out.print(table)
