"""`askwell diff`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from askwell.cli import options
from askwell.cli.terminal import bar, note, print_json, show_document
from askwell.errors import BadOption, Failure
from askwell.files import need_writable_folder, to_json
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec


def diff(
    before: str,
    after: str | None = None,
    /,
    *,
    facts: options.Several = None,
    prompts: options.Prompts = None,
    out: Annotated[Path, Parameter(help="The folder of the runs and of the page.")],
    forget: str | None = None,
    retain: str | None = None,
    after_bits: int | None = None,
    after_pruned: float | None = None,
    fail_if: options.Several = None,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Mixture")] = MixtureSpec(),  # noqa: B008 - frozen
    training: Annotated[TrainingSpec, Parameter(name="*", group="Training")] = TrainingSpec(),  # noqa: B008 - frozen
    reading: options.Reading = options.Reading(),  # noqa: B008 - frozen
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    json: options.Json = False,
) -> None:
    """Compare two LMs fact by fact: what AFTER kept, what is only hidden from hard prompts, and what is gone.

    Each LM is asked with hard prompts, and with prompts tuned on it with the relation's train facts. These are ordinary
    runs in --out: the same command continues after an interruption, and uses runs that are there. --out also gets the
    page (diff.html, diff.md) and diff.json.

    Args:
        before: An LM, as for --lm.
        after: The LM to compare it with; leave it out with --after-bits or --after-pruned.
        facts: The relation to ask about. Can be repeated.
        forget: An audit: the facts that AFTER should not know. Nothing of them is shown to prompts or their weights.
            A single file is not split.
        retain: With --forget: the facts that prompts are tuned on.
        after_bits: Round AFTER's weights to 8, 4, 3 or 2 bits, in groups of 32 of a row.
        after_pruned: Set this fraction of each of AFTER's matrices to 0, the smallest weights first.
        fail_if: Exit with code 1 if this is certain: "gone > 2%", "hidden > 0". The whole interval has to be above the
            number; hidden facts are counted beyond guessing. Can be repeated.
    """
    if (forget is None) != (retain is None) or (forget is not None and facts):
        raise BadOption("an audit has --forget and --retain, and no --facts")
    if forget is None and not facts:
        raise BadOption("diff needs --facts, or --forget and --retain")
    from askwell.data.names import load_prompts, load_relation, load_test_facts
    from askwell.evaluation.verdicts import exceeded, parse_condition
    from askwell.lms.machine import set_threads
    from askwell.runs.diff_lms import diff as compare_lms
    from askwell.runs.diff_lms import save_diff
    from askwell.runs.run import Asking, RunProgress
    from askwell.training.history import TrainingProgress
    from askwell.views.diffed import diff_document, write_diff

    for condition in fail_if or ():
        parse_condition(condition)
    need_writable_folder(out, "--out")
    set_threads(training.threads)
    read: dict[str, Any] = reading.named | {"data": data, "seed": mixture.seed}
    relations = [load_relation(name, **read) for name in facts or [str(retain)]]
    if prompts:
        load_prompts(prompts, relation=relations[0], data=data)
    last: list[str] = []
    with bar("preparing") as shown:

        def follow(label: str, event: RunProgress) -> None:
            if last != [label]:
                last[:] = [label]
                note(label)
            if isinstance(event, Asking):
                shown(event.done, event.total, what=event.what)
            elif isinstance(event, TrainingProgress):
                shown(event.pairs_done, event.pairs, what="pairs, at most" if event.ends_by_itself else "pairs")

        found = compare_lms(
            before,
            after,
            relations,
            prompts,
            folder=out,
            forget=None if forget is None else load_test_facts(forget, reading.x, reading.y, data=data),
            after_bits=after_bits,
            after_pruned=after_pruned,
            mixture=mixture,
            training=training,
            data=data,
            loading=asdict(loading),
            progress=follow,
        )
    save_diff(found, out)
    write_diff(found, out)
    if json:
        print_json(to_json(found))
    else:
        show_document(diff_document(found))
    note(f"the page is {out / 'diff.html'}")
    problems = [problem for condition in fail_if or () if (problem := exceeded(found.verdicts, condition)) is not None]
    if problems:
        raise Failure("; ".join(problems))
