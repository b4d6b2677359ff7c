"""`askwell ask`, `askwell evaluate` and `askwell show`: what a saved mixture, or untuned prompts, answer to any x and
score on held-out facts, and tuned prompts in words."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from askwell.cli import options
from askwell.cli.replies import Answer, need_mixtures, note_threshold, print_answers, served_mixture, xs_to_ask
from askwell.cli.terminal import bar, note, note_loading, print_json, say, stdout
from askwell.data.names import load_prompts, load_relation
from askwell.errors import BadOption, NothingLeft
from askwell.files import need_writable_file, to_json, write_whole
from askwell.specs.mixture_spec import MixtureSpec

if TYPE_CHECKING:
    from askwell.answers.candidates import Candidates
    from askwell.evaluation.selective import AnsweredX
    from askwell.mixture.mixture import Mixture
    from askwell.runs.sources import RunXs

Untuned = Annotated[MixtureSpec, Parameter(name="*", group="Untuned prompts")]


def ask(
    *words: str,
    lm: options.LM = None,
    prompts: options.RepeatedPrompts = None,
    facts: str | None = None,
    mixture: Untuned = MixtureSpec(),  # noqa: B008 - frozen
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
    server: str | None = None,
    json: options.Json = False,
) -> None:
    """Ask a saved mixture, or untuned prompts, about one x or many.

    `askwell ask my-mixture "Mary Cassatt"` asks a saved mixture; `askwell ask --lm bert-base-cased --prompts "[X] was
    born in [Y] ." "Mary Cassatt"` asks with untuned prompts. Without an x, one asks again and again; from a pipe, each
    line is an x. --json prints a list of {x, answers}: answers are best first, each with its probability and that of
    every prompt. With --risk, it also gives the threshold and whether the x is answered; with --each-prompt, what each
    prompt answers by itself.

    Args:
        words: A run, a folder of runs, a store or a saved mixture, then x's; with --prompts, only x's; with --server,
            the name of a mixture there (which may be left out if there is only one), then x's.
        facts: For untuned prompts: the relation, whose facts show how long answers are and whose prompts a name such as
            testbed:single refers to. With --among: the relation whose train y's are the candidates. With --risk: the
            relation whose dev facts set the threshold; a saved mixture has its own.
        file: A file of x's: lines of text, or a column of a .csv, .tsv or .jsonl file.
        column: The column of the file that holds the x's; default: x, sub_label or sub.
        top: How many answers to give.
        risk: Report an answer as not known if its probability is below a threshold, which is learned on dev so that at
            most this fraction of the given answers is wrong: 0.1 for one in ten.
        each_prompt: Also give what each prompt answers by itself.
        confidence: Keep the risk with this confidence, e.g. 0.95; with few dev facts, fewer x's are answered.
        server: Ask a running `askwell serve` at this address, where LMs stay loaded. [env: ASKWELL_SERVER; a token:
            ASKWELL_TOKEN]
    """
    where_served = server or (None if prompts or lm else os.environ.get("ASKWELL_SERVER"))
    if where_served:
        here = any(given is not None for given in (prompts, lm, facts, candidates, among, risk, where))
        if here or each_prompt or mixture != MixtureSpec():
            raise BadOption("--server (or ASKWELL_SERVER) asks a mixture as it is served: give its name, x's and --top")
        with served_mixture(where_served, words) as (answer, given):
            xs, from_file = xs_to_ask(given, file, column)
            print_answers(partial(answer, top=top), xs, json=json, in_lines=from_file)
        return
    if not prompts and not words:
        raise BadOption("name the folder of a saved mixture, or give --lm and --prompts")
    if prompts and lm is None:
        raise BadOption("untuned prompts need --lm")
    folder, given = (None, words) if prompts else (words[0], words[1:])
    if folder is not None and (mixture != MixtureSpec() or (facts and risk is None and among is None)):
        raise BadOption("a saved mixture cannot be changed: leave out --facts and the options for untuned prompts")
    if among is not None and not facts:
        raise BadOption("--among train chooses among the y's of train facts: name the relation with --facts")
    if among is not None and candidates is not None:
        raise BadOption("--candidates and --among both name the candidates: give only one of them")
    if confidence is not None and risk is None:
        raise BadOption("--confidence goes with --risk")
    if risk is not None and folder is None and not facts:
        raise BadOption("--risk learns from dev facts how probable an answer must be: name the relation with --facts")
    need_mixtures(folder)
    xs, from_file = xs_to_ask(given, file, column)
    note_loading(lm, folder)
    from askwell.answers.candidates import load_candidates, train_candidates
    from askwell.evaluation.selective import RiskLimits, ask_all
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
        xs_of_run,
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
        _note_left_out_candidates(asked, allowed)
    if from_file or len(xs) > 1:
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
    limits = None if risk is None else RiskLimits(risk, confidence)
    note_threshold(dev, limits)
    answer = partial(ask_all, asked, dev=dev, limits=limits, top=top, candidates=allowed, each_prompt=each_prompt)
    if folder is not None and (known := xs_of_run(folder)) is not None:
        answer = _noting_facts(answer, known, each=not from_file)
    templates = [prompt.template.text for prompt in asked.prompts]
    print_answers(answer, xs, json=json, in_lines=from_file, templates=templates)


def _noting_facts(answer: Answer, known: "RunXs", *, each: bool) -> Answer:
    """Return the same, with a note after each x that the mixture was tuned on, or (with `each`) that is not in its
    facts: another spelling is another x."""
    spelled = {x.casefold(): x for x in sorted(known.all)}

    def noting(xs: Sequence[str]) -> "Iterator[AnsweredX]":
        for reply in answer(xs):
            yield reply
            if reply.x in known.train:
                note(f"{reply.x}: seen in training, so this says nothing about other x's")
            elif each and reply.x not in known.all:
                other = spelled.get(reply.x.casefold())
                note(f"{reply.x}: not an x of the run's facts{f', which have {other}' if other else ''}")

    return noting


def _note_left_out_candidates(mixture: "Mixture", candidates: "Candidates") -> None:
    """Note which candidates the LM cannot answer with."""
    answers = mixture.answering(candidates)
    left_out = answers.candidates_left_out
    if left_out:
        named = ", ".join(repr(word[:40]) for word in left_out[:5]) + (", …" if len(left_out) > 5 else "")
        note(f"{len(left_out)} of {len(candidates.words)} candidates left out, which {answers.kind.why_not}: {named}")


def evaluate(
    *mixtures: str,
    facts: options.Several = None,
    lm: options.LM = None,
    prompts: options.Prompts = None,
    mixture: Untuned = MixtureSpec(),  # noqa: B008 - frozen
    split: Literal["train", "dev", "test"] = "test",
    score: Literal["answer", "statement"] = "answer",
    candidates: options.CandidatesFile = None,
    among: options.Among = None,
    per_fact: Path | None = None,
    trust: options.Flag = False,
    risk: options.Risk = 0.1,
    confidence: options.Confidence = None,
    where: options.Where = None,
    controls: options.WithControls = True,
    reading: options.Reading = options.Reading(),  # noqa: B008 - frozen
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Score a saved mixture, or untuned prompts, on held-out facts.

    Either name the folders of saved mixtures, or give --lm and --prompts, which make a uniform mixture. Scores
    are in per cent, the log-loss in nats; micro is the mean over facts, macro the mean of the relations' means.
    Ranks leave out the other right answers of the same x.

    Args:
        mixtures: Runs, folders of runs, stores, or saved mixtures.
        facts: The relation to ask about: one for all saved mixtures, or one for each. With --prompts it can also be a
            folder or name of many relations, such as trex_original; --prompts is then the folder or name of their
            prompts.
        split: The facts to ask about.
        score: Rank y by its own probability, or (statement) by the log-likelihood of the whole sentence that a prompt
            makes of x and y, among those of --candidates or of all y's of the relation, as BEAR does. Tuned prompts are
            scored beside their words; of `askwell train --folds`, each fact by a mixture that did not learn from it.
        per_fact: A Parquet file to write, with one row per fact.
        trust: Also report how far the scores can be trusted: calibration, abstention, answer sets, whether the prompts
            agree, and what their nearest words score.
        risk: With --trust: the fraction of the given answers that may be wrong.
        confidence: With --trust: keep the risk with this confidence, e.g. 0.95.
    """
    if bool(mixtures) == bool(prompts):
        raise BadOption("evaluate takes either runs or saved mixtures, or --lm with --prompts")
    if mixtures and mixture != MixtureSpec():
        raise BadOption("a saved mixture cannot be changed: leave out the options for untuned prompts")
    if trust and split != "test":
        raise BadOption(f"--trust learns thresholds on dev and measures on test: leave out --split {split}")
    if score == "statement" and (mixture != MixtureSpec() or trust):
        raise BadOption(
            "--score statement is for runs, or for hard prompts with --lm and --prompts: leave out --trust and the "
            "options for untuned prompts"
        )
    if per_fact is not None:
        need_writable_file(per_fact, "--per-fact")
    need_mixtures(*mixtures)
    note_loading(lm, *mixtures[:3])
    from askwell.answers.candidates import find_candidates
    from askwell.cli.running import print_scored
    from askwell.evaluation.outcomes import write_outcomes
    from askwell.lms.machine import set_threads
    from askwell.runs.score_source import EvaluationSources, saved_jobs, score_jobs, score_statements, untuned_jobs
    from askwell.runs.sources import find_mixtures

    set_threads(threads)
    named = EvaluationSources(facts or (), lm, asdict(loading), data, reading.rule, reading.columns)
    candidates_of = partial(find_candidates, candidates, among)
    with bar("preparing") as shown:
        watch: Any = {"progress": lambda what, done, total: shown(done, total, what=what), "note": note}
        if score == "statement":
            folders = find_mixtures(mixtures, where) if mixtures else ()
            scored = score_statements(prompts or [], named, split, candidates_of, folders=folders, **watch)
        else:
            if mixtures:
                jobs = saved_jobs(find_mixtures(mixtures, where), named, note)
            else:
                jobs = untuned_jobs(prompts or [], mixture, named, note)
            scored = score_jobs(
                jobs, split, candidates_of,
                controls=controls and split == "test", trust=trust, risk=risk, confidence=confidence, **watch,
            )  # fmt: skip
    if per_fact is not None:
        write_outcomes(scored.evaluation.outcomes, per_fact)
        note(f"one row per fact is in {per_fact}")
    if json:
        print_json(scored.as_json())
    else:
        print_scored(scored)


def show(
    mixture: str,
    /,
    *,
    svg: Path | None = None,
    figure: Path | None = None,
    html: Path | None = None,
    nearest: int = 3,
    put_back: int = 16,
    facts: str | None = None,
    where: options.Where = None,
    data: options.Data = None,
    threads: options.Threads = None,
    lm: options.LM = None,
    revision: options.Revision = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Show the tuned prompts: their weights, how far each vector has moved, and what is lost without it.

    What is lost is found by asking some dev facts again with the vector put back to its start. In figures and pages,
    the word that a vector is near is drawn in blue above the original word in red, the brighter, the more probable; its
    size shows whether the vector grew or shrank. With --facts, the nearest words are scored in place of the vectors,
    and --json prints {prompts, projection} instead of the prompts.

    Args:
        mixture: A run, a folder of runs, a store, or a saved mixture.
        svg: Draw the prompts as an SVG file.
        figure: Draw the prompts as a file of this name, which ends in .svg, .png or .pdf.
        html: Write an HTML page about the prompts.
        nearest: How many nearest words to list for each token.
        put_back: How many dev facts to ask with each vector of the heaviest prompts put back in turn; 0 for none. They
            are those of the run, or of --facts.
        facts: The mixture's relation: also score the nearest words alone, as hard prompts, on its test facts.
    """
    if put_back < 0:
        raise BadOption(f"--put-back {put_back}: it counts facts, so it cannot be negative")
    if figure is not None and figure.suffix not in (".svg", ".png", ".pdf"):
        raise BadOption(f"--figure {figure}: name a file that ends in .svg, .png or .pdf")
    for option, path in (("--svg", svg), ("--figure", figure), ("--html", html)):
        if path is not None:
            need_writable_file(path, option)
    need_mixtures(mixture)
    note_loading(lm, mixture)
    from askwell.evaluation.projection import projection_scores
    from askwell.lms.machine import set_threads
    from askwell.mixture.learned_from import NOTHING_FOUND
    from askwell.mixture.save import read_description
    from askwell.runs.sources import dev_facts_of, find_mixture, own_relation, saved_mixture, spread
    from askwell.views.to_html import page_html
    from askwell.views.to_text import print_blocks
    from askwell.views.trust_section import projection_sentence
    from askwell.views.words import nearest_words
    from askwell.views.words_figure import words_chart, words_document, words_listed

    folder = find_mixture(mixture, where, note)
    description = read_description(folder)
    asked = None if facts is None else own_relation(folder, facts, data)
    shown = saved_mixture(folder, lm, revision=revision, device=device, dtype="auto")
    set_threads(threads)
    known = dev_facts_of(folder, put_back) if asked is None else spread(asked.dev, put_back)
    with bar("vectors put back") as progress:
        prompts = nearest_words(shown, nearest=nearest, facts=known, progress=progress)
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
    print_blocks(words_listed(prompts), stdout)
    if description.learned_from is not None and description.learned_from.found_nothing:
        say(NOTHING_FOUND)
    if score is not None:
        say(score)
