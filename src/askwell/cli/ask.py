"""`askwell ask`."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from askwell.cli import options
from askwell.cli.terminal import bar, note
from askwell.data.names import load_prompts, load_relation
from askwell.data.readers import read_xs
from askwell.errors import BadOption, NothingLeft
from askwell.specs.mixture_spec import MixtureSpec


def ask(
    *words: str,
    lm: options.LM = None,
    prompts: options.Prompts = None,
    facts: str | None = None,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Untuned prompts")] = MixtureSpec(),  # noqa: B008 - frozen
    file: Path | None = None,
    column: str | None = None,
    top: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 5,
    risk: options.Risk | None = None,
    confidence: options.Confidence = None,
    where: options.Where = None,
    candidates: options.CandidatesFile = None,
    among: options.Among = None,
    each_prompt: options.Flag = False,
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Ask a saved mixture, or untuned prompts, about one x or many.

    `askwell ask my-mixture "Mary Cassatt"` asks a saved mixture; `askwell ask --lm bert-base-cased --prompts "[X] was
    born in [Y] ." "Mary Cassatt"` asks with untuned prompts. For one x, --json prints a list of answers, best first,
    each with its probability and that of every prompt; for several x's, a list of {x, answers}. With --risk, each x is
    an object that also gives the threshold and whether the x is answered; with --each-prompt, one that also gives what
    each prompt answers by itself.

    Args:
        words: A run, a folder of runs, a store or a saved mixture, then x's; with --prompts, only x's.
        facts: For untuned prompts: the relation, whose facts show how long answers are and whose prompts a name such as
            testbed:single refers to. With --among: the relation whose train ys are the candidates. With --risk: the
            relation whose dev facts set the threshold; a saved mixture has its own.
        file: A file of x's: lines of text, or a column of a .csv, .tsv or .jsonl file.
        column: The column of the file that holds the x's; default: x, sub_label or sub.
        top: How many answers to give.
        risk: Report an answer as not known if its probability is below a threshold, which is learned on dev so that at
            most this fraction of the given answers is wrong: 0.1 for one in ten.
        each_prompt: Also give what each prompt answers by itself.
        confidence: Keep the risk with this confidence, e.g. 0.95; with few dev facts, fewer x's are answered.
    """
    if not prompts and not words:
        raise BadOption("name the folder of a saved mixture, or give --lm and --prompts")
    if prompts and lm is None:
        raise BadOption("untuned prompts need --lm")
    folder, given = (None, words) if prompts else (words[0], words[1:])
    if folder is not None and (mixture != MixtureSpec() or (facts and risk is None and among is None)):
        raise BadOption("a saved mixture cannot be changed: leave out --facts and the options for untuned prompts")
    if among is not None and not facts:
        raise BadOption("--among train chooses among the ys of train facts: name the relation with --facts")
    if among is not None and candidates is not None:
        raise BadOption("--candidates and --among both name the candidates: give only one of them")
    if confidence is not None and risk is None:
        raise BadOption("--confidence goes with --risk")
    if risk is not None and folder is None and not facts:
        raise BadOption("--risk learns from dev facts how probable an answer must be: name the relation with --facts")
    xs = [*given, *(read_xs(file, column) if file else [])]
    if not xs:
        raise BadOption("nothing to ask: give an x, or --file")
    if column and not file:
        raise BadOption("--column goes with --file")
    from askwell.answers.candidates import load_candidates, train_candidates
    from askwell.cli.answers import note_left_out_candidates, print_answers
    from askwell.evaluation.selective import RiskLimits
    from askwell.lms.load import load_lm
    from askwell.lms.machine import set_threads
    from askwell.mixture.mixture import Mixture
    from askwell.runs.sources import (
        configure_answers,
        dev_answers_of,
        find_mixture,
        note_left_out_prompts,
        relation_to_ask,
        saved_mixture,
    )

    allowed = load_candidates(candidates) if candidates else None
    set_threads(threads)
    if folder is not None:
        folder = find_mixture(folder, where, note)
        asked = saved_mixture(folder, lm, **asdict(loading))
    else:
        templates = load_prompts(prompts or [], relation=facts, data=data)
        relation = load_relation(facts, data=data, seed=mixture.seed) if facts else None
        asked = Mixture(load_lm(lm or "", **asdict(loading)), templates, mixture, relation=relation)
        note_left_out_prompts(asked, note)
        configure_answers(asked, relation, train_candidates(relation) if among and relation else allowed)
    if among is not None:
        allowed = train_candidates(relation_to_ask(asked, folder, facts or "", data))
    if allowed is not None:
        note_left_out_candidates(asked, allowed)
    several = file is not None or len(xs) > 1
    if several:
        found = zip(xs, asked.answering(allowed).why_unaskable(xs), strict=True)
        reasons = {x: reason for x, reason in found if reason is not None}
        for x, reason in reasons.items():
            note(f"left out: {x[:60]!r}, since {reason}")
        xs = [x for x in xs if x not in reasons]
        if not xs:
            raise NothingLeft("x to ask about", Counter(reasons.values()))
    dev = None
    if risk is not None:
        learned_from = relation_to_ask(asked, folder, facts, data) if facts else None
        with bar(f"dev facts of {learned_from.name}") if learned_from else nullcontext() as shown_bar:
            dev = dev_answers_of(asked, folder, learned_from, allowed, progress=shown_bar, note=note)
    form = "json" if json else "lines" if file is not None else "tables"
    print_answers(
        asked, xs, form=form, several=several, dev=dev, limits=None if risk is None else RiskLimits(risk, confidence),
        top=top, candidates=allowed, each_prompt=each_prompt,
    )  # fmt: skip
