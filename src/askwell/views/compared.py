"""Runs beside each other: listed in a table, with their gains and learning curves; and two of them compared, with the
facts that changed."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from askwell.data.testbed import PREFIX
from askwell.evaluation.comparison import Comparison
from askwell.evaluation.metrics import METRICS, units_of
from askwell.evaluation.scoring import FEW
from askwell.evaluation.significance import SIGNIFICANT, interval_text, p_text, wilson_interval
from askwell.runs.folder import RUN_COLUMNS, Run, column_text
from askwell.runs.query import RunComparison
from askwell.views.charts import Gap, gaps_chart, panels_chart
from askwell.views.document import Block, Cell, Column, ColumnGroup, Drawing, Figure, Paragraph, Row, Table, table
from askwell.views.printable import NONE, counted, shortened, signed
from askwell.views.run_facts import rank_text

_NUMBERS = {name for name, (kind, _) in RUN_COLUMNS.items() if kind != "VARCHAR"}
_HEADINGS = {"untuned_P@1": "untuned", "lm": "LM"}
_CURVES, _GAINS = 6, 40


def run_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    title: str = "",
    *,
    links: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Return a row for each run, as a query found them; the first column is their heading, which may be a link and have
    a note."""
    first, *others = columns
    shown = tuple(
        Row(
            column_text(first, row[first]),
            tuple(Cell(column_text(name, row[name]), note=_interval(row) if name == "P@1" else "") for name in others),
            link=link,
            note=note,
        )
        for row, link, note in zip(rows, links or [""] * len(rows), notes or [""] * len(rows), strict=True)
    )
    groups = (ColumnGroup("", tuple(Column(_HEADINGS.get(name, name), number=name in _NUMBERS) for name in others)),)
    return Table("", first, groups, shown, title, stacked=True)


def _interval(row: Mapping[str, Any]) -> str:
    """Return the 95 % interval of a run's P@1 if its facts are few."""
    score, facts = row["P@1"], row.get("facts") or FEW
    if facts >= FEW or score is None:
        return ""
    low, high = wilson_interval(round(score / 100 * facts), facts)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def gains_figure(runs: Sequence[Run]) -> Figure | None:
    """Return P@1 before and after tuning, by relation and LM; None if no run was scored before it."""
    by_label: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        before = None if run.record.untuned is None else run.record.untuned.score("P@1")
        after = run.score("P@1")
        if before is not None and after is not None:
            relation, lm = (name.removeprefix(PREFIX) for name in (run.record.spec.relation, run.record.spec.lm))
            by_label.setdefault(f"{relation[:16]} · {lm[:8]}", []).append((after, before))
    if not by_label:
        return None
    best = {label: max(pairs) for label, pairs in by_label.items()}
    gaps = [Gap(label, after, before) for label, (after, before) in sorted(best.items())][:_GAINS]
    better = sum(after > before for after, before in best.values())
    few = sum(run.record.untuned is not None and run.record.test.facts < FEW for run in runs)
    caption = (
        f"Full dots: right answers in % after tuning; hollow diamonds: with the same prompts before it. Tuning helps "
        f"in {better} of {len(best)} cases (of several runs, the best is shown)."
    )
    if few:
        caption += f" {counted(few, 'run')} on fewer than {FEW} facts, where a difference means little."
    chart = gaps_chart(gaps, first="tuned", second="hard prompts", measure="P@1 on test facts")
    return Figure((Drawing("gains", chart),), caption)


def curves_figure(runs: Mapping[str, Run]) -> Figure | None:
    """Return dev P@1 while tuning, of the first few runs; None if there is no curve."""
    curves = {name: points for name, run in runs.items() if len(points := run.record.learning_curve) > 1}
    if not curves:
        return None
    more = f" The first {_CURVES} of {len(curves)} runs." if len(curves) > _CURVES else ""
    caption = f"Right answers to dev facts in % during tuning.{more}"
    drawings = []
    for number, (name, points) in enumerate([*curves.items()][:_CURVES]):
        panel = {shortened(name, 30): {"dev P@1": points}}
        chart = panels_chart(panel, measure="dev P@1, %", trained="pairs trained on")
        drawings.append(Drawing(f"curve-{number}", chart))
    return Figure(tuple(drawings), caption)


def comparison_blocks(compared: RunComparison, changed: int) -> list[Block]:
    """Return the scores of both sides, how sure their difference is, and up to `changed` facts that changed."""
    comparison = compared.found
    several = len(comparison.relations) > 1
    averages = {"micro average": comparison.micro, "macro average": comparison.macro}
    rows = [_score_row(name, of, of, comparison) for name, of in comparison.relations.items()]
    rows += [_score_row(name, of, comparison, comparison) for name, of in averages.items()] if several else []
    columns = ("facts", "A", "B", "A − B", "A better", "B better")
    title = f"{comparison.metric} {units_of([comparison.metric])}, A: {compared.a.name}, B: {compared.b.name}"
    sentences = _ranked_among(compared)
    seeds = f", each with seeds {', '.join(map(str, comparison.seeds))}" if comparison.seeds else ""
    sentences.append(
        f"{counted(comparison.facts, 'fact')} asked of both{seeds}; {comparison.only_a} only of A, "
        f"{comparison.only_b} only of B."
    )
    if comparison.unsettled:
        facts = counted(comparison.unsettled, "fact")
        sentences.append(f"Left out: {facts} for which a search was cut before it was known whether y is found.")
    differences = averages if several else {"difference": comparison.micro}
    sentences += [_how_sure(name, of, comparison) for name, of in differences.items()]
    sentences.append(
        f"A is better on {counted(comparison.wins, comparison.unit)}, B on {comparison.losses}: sign test "
        f"p = {p_text(comparison.sign_p)}."
    )
    shown = [changed_table(comparison, changed)] if comparison.changed[:changed] else []
    scores = table(("", *columns), rows, numbers=columns, title=title)
    return [scores, *map(Paragraph, sentences), *shown]


def changed_table(comparison: Comparison, most: int) -> Table:
    """Return the facts that one side answers better than the other; right answers are marked."""
    several = len(comparison.relations) > 1
    rows = []
    for fact in comparison.changed[:most]:
        ranks = map(rank_text, (fact.a_rank, fact.b_rank))
        answers = (
            Cell(answer or NONE, mark="right" if rank <= 1 else "")
            for answer, rank in ((fact.a_answer, fact.a_rank), (fact.b_answer, fact.b_rank))
        )
        rows.append((*([fact.relation] if several else []), fact.x, fact.y, *ranks, *answers))
    names = (*(["relation"] if several else []), "x", "y", "rank A", "rank B", "answer A", "answer B")
    title = f"{len(rows)} of {counted(len(comparison.changed), 'fact')} that changed"
    return table(names, rows, numbers=("rank A", "rank B"), title=title)


def who_is_better(comparison: Comparison) -> str:
    """Say what was found, for readers who are not statisticians."""
    found, metric = comparison.micro, METRICS[comparison.metric]
    better = found.difference if metric.higher_is_better else -found.difference
    scores = f"{metric.name} {found.a:.{metric.decimals}f} against {found.b:.{metric.decimals}f}"
    if not better:
        return f"A and B are equal: {scores}."
    chance = "is unlikely to be chance" if found.is_clear else "may be chance"
    return f"{'A' if better > 0 else 'B'} is better, which {chance}: {scores}."


def _score_row(name: str, of: Any, counts: Any, comparison: Comparison) -> tuple[str, ...]:
    digits = METRICS[comparison.metric].decimals
    scores = (f"{of.a:.{digits}f}", f"{of.b:.{digits}f}", signed(of.difference, digits))
    return (name, str(counts.facts), *scores, str(counts.wins), str(counts.losses))


def _ranked_among(compared: RunComparison) -> list[str]:
    among = (compared.a.vocabulary, compared.b.vocabulary)
    if any(among) and among[0] == among[1]:
        return [f"Ranked among {among[0]}."]
    return [f"{side} ranks among {of_side}." for side, of_side in zip("AB", among, strict=True) if of_side]


def _how_sure(name: str, of: Any, comparison: Comparison) -> str:
    unit, digits = comparison.unit, METRICS[comparison.metric].decimals
    if of.low is None:
        how = f"a relation with a single {unit}, or all alike"
    elif of.alike:
        seen, others = (f"all {unit}s differ alike", "could not") if of.difference else (f"no {unit} differs", "could")
        how = f"as {seen}, from Wilson's interval of how many {others}"
    else:
        how = f"bootstrap over {unit}s"
    interval = interval_text(of.low, of.high, partial(signed, decimals=digits))
    return (
        f"{name}: {signed(of.difference, digits)}, {100 * comparison.confidence:.0f} % interval "
        f"{interval} ({how}); permutation test p = {p_text(of.p)} "
        f"({'exact' if of.exact else 'sampled'}), {'' if of.is_clear else 'not '}significant at the paper's "
        f"threshold of {SIGNIFICANT}."
    )
