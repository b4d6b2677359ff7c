"""Write the tables of docs/findings/openings.md from the results of openings.py and nearest_examples.py.

python studies/openings_page.py
"""

import json
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from lines import read_lines
from nearest_examples import NEAREST
from openings import CELLS, COSTS, FAMILIES, TUNED, TWENTY, cells
from pages import FINDINGS, draw_gaps, fill, table

from askwell.evaluation.significance import sign_test
from askwell.views.charts import Gap

Line = dict[str, Any]
Fact = tuple[str, str]
"""Relation, and the digest of x and y."""
TUNED_OPENINGS = ("nothing", "8 examples")
"""What was run on all of the relations that the chart shows."""


class Scored(NamedTuple):
    """The outcome of one fact."""

    is_right: bool
    log_p: float | None


Scores = dict[Fact, Scored]


def scores_of(line: Line, key: str) -> Scores:
    """Return one line's outcomes under a key ("by hand", "tuned", a control), by fact."""
    found = line[key]
    rows = zip(line["fact_digests"], found["rank"], found["log_p"], strict=True)
    return {(line["relation"], fact): Scored(rank is not None and rank <= 1, log_p) for fact, rank, log_p in rows}


def joined(lines: Sequence[Line], key: str) -> Scores:
    """Return the outcomes of several relations."""
    return {fact: scored for line in lines for fact, scored in scores_of(line, key).items()}


def by_relation(scores: Scores, value: Callable[[Scored], float]) -> dict[str, float]:
    """Return the mean over facts of each relation."""
    values: dict[str, list[float]] = {}
    for fact, scored in scores.items():
        values.setdefault(fact[0], []).append(value(scored))
    return {relation: fmean(own) for relation, own in values.items()}


def right(scored: Scored) -> float:
    """Return 100 for a right answer."""
    return 100.0 * scored.is_right


def micro(scores: Scores) -> float:
    """Return P@1 over all facts, in per cent."""
    return fmean(map(right, scores.values()))


def macro(scores: Scores) -> float:
    """Return P@1 as the mean over relations, in per cent."""
    return fmean(by_relation(scores, right).values())


def log_loss(scores: Scores) -> str:
    """Return the log-loss as the mean over relations; a dash if some y has no probability."""
    if any(scored.log_p is None for scored in scores.values()):
        return "–"
    return f"{fmean(by_relation(scores, lambda scored: -(scored.log_p or 0.0)).values()):.2f}"


class Comparison(NamedTuple):
    """Two ways to ask the same facts."""

    facts: int
    micro: float
    """Difference in P@1, in points."""
    mcnemar: float
    """The exact two-sided p-value of the facts that only one of both gets right."""
    relations: int
    macro: float
    wilcoxon: float
    """The p-value of Wilcoxon's signed ranks over relations."""


def compare(first: Scores, second: Scores) -> Comparison:
    """Compare two ways over the facts that both were asked."""
    from scipy import stats

    facts = [fact for fact in first if fact in second]
    first, second = {fact: first[fact] for fact in facts}, {fact: second[fact] for fact in facts}
    won = sum(first[fact].is_right and not second[fact].is_right for fact in facts)
    lost = sum(second[fact].is_right and not first[fact].is_right for fact in facts)
    ours, theirs = by_relation(first, right), by_relation(second, right)
    differences = [ours[name] - theirs[name] for name in ours]
    p = float(stats.wilcoxon(differences).pvalue) if any(differences) else 1.0
    return Comparison(
        len(facts), micro(first) - micro(second), sign_test(won, lost), len(ours), macro(first) - macro(second), p
    )


def probability(p: float) -> str:
    """Write a p-value."""
    return f"{p:.2g}" if p >= 0.0001 else "< 0.0001"


def with_sign(p: float) -> str:
    """Write a p-value as it follows a p."""
    return probability(p) if p < 0.0001 else f"= {probability(p)}"


def hand_tables(lines: Sequence[Line]) -> list[str]:
    """Return the tables of openings by hand: the study of six relations, and twenty relations."""
    parts = []
    for title, which in (("Six relations that no other page reports", "hard"), ("Twenty relations", "twenty")):
        changes = list(dict.fromkeys(json.dumps(change) for _, change, _ in cells(which)))
        names = list(dict.fromkeys(name for name, _, _ in cells(which)))
        by_cell = {(line["relation"], json.dumps(line["mixture"])): line for line in lines if not line["pairs"]}
        names = [name for name in names if all((name, change) in by_cell for change in changes)]
        rows = []
        for change in changes:
            own = [by_cell[name, change] for name in names]
            means = [fmean(line[key] for line in own) for key in ("P@1", "log_loss")]
            rows.append([described(json.loads(change)), f"{means[0]:.1f}", f"{means[1]:.2f}"])
        facts = sum(by_cell[name, changes[0]]["facts"] for name in names)
        parts.append(
            f"{title} ({', '.join(names)}; {facts} test facts, one draw of examples), means over relations:\n\n"
            + table(["before the sentence", "P@1", "log-loss"], rows)
        )
        if which == "twenty":
            ways = {
                described(json.loads(change)): [by_cell[name, change]["P@1"] for name in names] for change in changes
            }
            pairs = [("8 examples", "nothing"), ("4 examples", "nothing"), ("8 examples", "4 examples")]
            found = [f"{one} against {other}: p {signed_ranks(ways[one], ways[other])}" for one, other in pairs]
            parts.append(f"Wilcoxon's signed ranks over relations, {'; '.join(found)}.")
    return parts


def signed_ranks(first: Sequence[float], second: Sequence[float]) -> str:
    """The p-value of Wilcoxon's signed ranks of two scores of the same relations."""
    from scipy import stats

    p = float(stats.wilcoxon([one - other for one, other in zip(first, second, strict=True)]).pvalue)
    return with_sign(p)


def study_table(lines: Sequence[Line]) -> list[str]:
    """Return the table of openings after tuning, on relations that no other page reports."""
    own = {(line["relation"], json.dumps(line["mixture"])): line for line in lines if line["pairs"]}
    asked = [(name, json.dumps(change)) for name, change, _ in cells("tuned")]
    changes = list(dict.fromkeys(change for _, change in asked))
    names = [name for name in dict.fromkeys(name for name, _ in asked) if all((name, c) in own for c in changes)]
    if not names:
        return []
    shown = lambda of: f"{of['P@1']:.0f} / {of['log_loss']:.2f} ({of['training_cpu_seconds']:.0f} s)"  # noqa: E731
    rows = [[described(json.loads(change)), *(shown(own[name, change]) for name in names)] for change in changes]
    facts = own[names[0], changes[0]]["facts"]
    head = f"The study behind the default, {facts} test facts, 400 pairs; P@1 / log-loss (CPU seconds of tuning):"
    return [f"{head}\n\n" + table(["before the sentence", *names], rows)]


def described(change: Line) -> str:
    """Say what comes before the sentence."""
    if shots := change.get("shots"):
        return f"{shots} example{'s' * (shots > 1)}"
    lead_in = change.get("lead_in", "none")
    return "nothing" if lead_in == "none" else lead_in


def tuned_parts(lines: Sequence[Line], answers: str) -> list[str]:
    """Return tables of by hand and tuned on the same facts: means, paired tests, and each relation."""
    own = [line for line in lines if line["answers"] == answers]
    parts = []
    for openings in (("nothing", "8 examples"), ("nothing", "4 examples", "8 examples")):
        by_cell = {(line["relation"], line["opening"]): line for line in own}
        names = [name for name in TWENTY if all((name, opening) in by_cell for opening in openings)]
        if names:
            parts += _tuned_part(by_cell, names, openings)
    return parts


def _tuned_part(by_cell: dict[tuple[str, str], Line], names: Sequence[str], openings: Sequence[str]) -> list[str]:
    ways: dict[tuple[str, str], Scores] = {}
    rows = []
    for opening in openings:
        of = [by_cell[name, opening] for name in names]
        for key in ("by hand", "tuned"):
            ways[opening, key] = joined(of, key)
    asked = set.intersection(*(set(scores) for scores in ways.values()))
    ways = {way: {fact: scored for fact, scored in of.items() if fact in asked} for way, of in ways.items()}
    for (opening, key), scores in ways.items():
        seconds = fmean(
            by_cell[name, opening][f"{'tuning' if key == 'tuned' else 'asking'}_cpu_seconds"] for name in names
        )
        done = f"{seconds:.0f}" if key == "tuned" else "–"
        rows.append([f"{opening}, {key}", f"{micro(scores):.1f}", f"{macro(scores):.1f}", log_loss(scores), done])
    for control in ("majority", "prior"):
        of = [by_cell[name, openings[-1]] for name in names]
        if all(control in line for line in of):
            scores = {fact: scored for fact, scored in joined(of, control).items() if fact in asked}
            shown = control if control == "majority" else f"prior of {openings[-1]}, tuned"
            rows.append([f"control: {shown}", f"{micro(scores):.1f}", f"{macro(scores):.1f}", log_loss(scores), "–"])
    head = f"{len(names)} relations ({', '.join(names)}), {len(asked)} test facts, 400 pairs in steps of 16 facts:"
    means = table(["before the sentence", "micro P@1", "macro P@1", "log-loss", "CPU s of tuning"], rows)
    last = openings[-1]
    pairs = [((last, "tuned"), (last, "by hand")), ((last, "tuned"), ("nothing", "tuned"))]
    pairs += [((last, "by hand"), ("nothing", "tuned"))]
    if len(openings) > 2:
        pairs = [((last, "tuned"), (openings[1], "tuned")), ((openings[1], "tuned"), (openings[1], "by hand"))]
    tests = []
    for one, other in pairs:
        found = compare(ways[one], ways[other])
        shown = f"{', '.join(one)} against {', '.join(other)}"
        tests.append(
            [
                shown,
                f"{found.micro:+.1f}",
                probability(found.mcnemar),
                f"{found.macro:+.1f}",
                probability(found.wilcoxon),
            ]
        )
    paired = table(["", "micro", "McNemar's p", "macro", "Wilcoxon's p"], tests)
    each = [
        [f"{opening}, {key}", *(f"{by_relation(of, right)[name]:.0f}" for name in names)]
        for (opening, key), of in ways.items()
    ]
    return [f"{head}\n\n{means}", paired, table(["P@1", *names], each)]


def variants(lines: Sequence[Line]) -> list[str]:
    """Return the table of other ways to use examples: several draws, examples that are held, smaller steps."""
    base = {
        line["relation"]: line for line in lines if (line["opening"], line["answers"]) == ("4 examples", "one-token")
    }
    rows = []
    for opening in dict.fromkeys(line["opening"] for line in lines):
        of = [line for line in lines if (line["opening"], line["answers"]) == (opening, "one-token")]
        of = [line for line in of if line["relation"] in base]
        if opening in ("nothing", "4 examples", "8 examples") or not of:
            continue
        found = compare(joined(of, "tuned"), joined([base[line["relation"]] for line in of], "tuned"))
        ours = joined(of, "tuned")
        names = ", ".join(line["relation"] for line in of)
        p = probability(found.mcnemar)
        seconds = fmean(line["tuning_cpu_seconds"] for line in of)
        rows.append([opening, names, found.facts, f"{macro(ours):.1f}", f"{found.macro:+.1f}", p, f"{seconds:.0f}"])
    if not rows:
        return []
    header = ["tuned", "relations", "facts", "macro P@1", "against 4 examples", "McNemar's p", "CPU s of tuning"]
    return ["Compared with four tuned examples, tuned for the same 400 pairs:\n\n" + table(header, rows)]


def steps_part(lines: Sequence[Line]) -> list[str]:
    """Return the table of step sizes of four tuned examples."""
    own = [line for line in lines if "steps" in line["mixture"]]
    names = list(dict.fromkeys(line["relation"] for line in own))
    sizes = list(dict.fromkeys(line["mixture"]["steps"] for line in own))
    by_cell = {(line["relation"], line["mixture"]["steps"]): line for line in own}
    shown = lambda line: "–" if line is None else f"{line['P@1']:.0f} / {line['log_loss']:.2f}"  # noqa: E731
    rows = [
        [size if isinstance(size, str) else f"{size} of the default", *(shown(by_cell.get((n, size))) for n in names)]
        for size in sizes
    ]
    return [
        "Step sizes of four tuned examples, 400 pairs, 100 test facts, P@1 / log-loss:\n\n" + table(["", *names], rows)
    ]


def cost_part(lines: Sequence[Line]) -> list[str]:
    """Return the table of what asking costs with eight examples."""
    if not lines:
        return []
    rows = [
        [line["turn"] + 1, line["nothing"], line["8 examples"], f"{line['8 examples'] / line['nothing']:.2f}"]
        for line in lines
    ]
    ratio = median(line["8 examples"] / line["nothing"] for line in lines)
    head = (
        f"Asking {lines[0]['facts']} test facts of {lines[0]['relation']}, CPU seconds in one thread, in turns; eight "
        f"examples are {lines[0]['opening_tokens']} tokens, which are read once. The median ratio is {ratio:.2f}:"
    )
    return [f"{head}\n\n" + table(["turn", "nothing", "8 examples", "ratio"], rows)]


def nearest_part(lines: Sequence[Line]) -> list[str]:
    """Return the table of examples chosen for each x."""
    if not lines:
        return []
    by_way = {way: [line for line in lines if line["examples"] == way] for way in ("fixed", "nearest")}
    both = set.intersection(*({line["relation"] for line in of} for of in by_way.values()))
    names = [name for name in dict.fromkeys(line["relation"] for line in lines) if name in both]
    if not names:
        return []
    ways = {
        (way, key): joined([line for line in of if line["relation"] in both], key)
        for key in ("by hand", "words tuned")
        for way, of in by_way.items()
    }
    rows = [
        [
            f"{way} examples, {key}",
            *(f"{by_relation(of, right)[name]:.0f}" for name in names),
            f"{macro(of):.1f}",
            log_loss(of),
        ]
        for (way, key), of in ways.items()
    ]
    tests = [
        f"{key}: {found.micro:+.1f} points (McNemar's p {with_sign(found.mcnemar)})"
        for key in ("by hand", "words tuned")
        for found in [compare(ways["nearest", key], ways["fixed", key])]
    ]
    facts = len(ways["fixed", "by hand"])
    return [
        f"Four examples, the same for all x's or the nearest to each, {facts} test facts; P@1:\n\n"
        + table(["", *names, "macro", "log-loss"], rows),
        f"Nearest against fixed, {'; '.join(tests)}.",
    ]


def families_part(lines: Sequence[Line]) -> list[str]:
    """Return the table of the testbed's LMs."""
    if not lines:
        return []
    changes = list(dict.fromkeys(json.dumps(line["mixture"]) for line in lines))
    relations = list(dict.fromkeys(line["relation"] for line in lines))
    rows = []
    for lm in dict.fromkeys(line["lm"] for line in lines):
        by_cell = {(line["relation"], json.dumps(line["mixture"])): line for line in lines if line["lm"] == lm}
        names = [name for name in relations if all((name, change) in by_cell for change in changes)]
        if names:
            each = [[by_cell[name, change] for name in names] for change in changes]
            shown = [f"{fmean(o['by hand'] for o in of):.1f} → {fmean(o['tuned'] for o in of):.1f}" for of in each]
            rows.append([f"{lm} ({len(names)} relations)", *shown])
    names = ", ".join(name.removeprefix("testbed:") for name in relations)
    head = (
        f"The testbed's LMs on {names} (which only the studies of defaults use), one prompt, {lines[0]['pairs']} "
        "pairs, at most 200 test facts of each, macro P@1 by hand → tuned:"
    )
    return [f"{head}\n\n" + table(["", *(described(json.loads(change)) for change in changes)], rows)]


def main() -> None:
    """Write the tables of the page."""
    lines, tuned = read_lines(CELLS), read_lines(TUNED)
    parts = {
        "by hand": hand_tables(lines),
        "one token": [*tuned_parts(tuned, "one-token"), *study_table(lines)],
        "whole answers": tuned_parts(tuned, "any-length"),
        "other ways": [*variants(tuned), *steps_part(lines)],
        "nearest": nearest_part(read_lines(NEAREST)),
        "cost": cost_part(read_lines(COSTS)),
        "families": families_part(read_lines(FAMILIES)),
    }
    fill(FINDINGS / "openings.md", {name: "\n\n".join(of) for name, of in parts.items()})
    gaps = [
        Gap(f"{opening}, {answers} answers", macro(joined(of, "tuned")), macro(joined(of, "by hand")))
        for answers in ("one-token", "any-length")
        for opening, of in openings_of_all(tuned, answers).items()
    ]
    draw_gaps(FINDINGS / "openings.md", gaps, first="tuned", second="by hand", measure="macro P@1")


def openings_of_all(lines: Sequence[Line], answers: str) -> dict[str, list[Line]]:
    """Return the runs of each opening, on the relations that all openings have."""
    own = [line for line in lines if line["answers"] == answers and line["opening"] in TUNED_OPENINGS]
    ran = {opening: {line["relation"] for line in own if line["opening"] == opening} for opening in TUNED_OPENINGS}
    names = set.intersection(*ran.values())
    return {
        opening: [line for line in own if line["opening"] == opening and line["relation"] in names]
        for opening in TUNED_OPENINGS
    }


if __name__ == "__main__":
    main()
