"""Two runs compared: a table, sentences, and the facts that changed."""

import math
from typing import Any

from askwell.evaluation.comparison import Comparison
from askwell.evaluation.metrics import METRICS, units_of
from askwell.evaluation.significance import SIGNIFICANT, interval_text
from askwell.runs.query import RunComparison
from askwell.views.document import Block, Cell, Paragraph, Table, table
from askwell.views.printable import NONE, counted


def comparison_blocks(compared: RunComparison, changed: int) -> list[Block]:
    """Return the scores of both sides, how sure their difference is, and up to `changed` facts that changed."""
    comparison = compared.found
    several = len(comparison.relations) > 1
    averages = {"micro average": comparison.micro, "macro average": comparison.macro}
    rows = [_score_row(name, of, of, comparison) for name, of in comparison.relations.items()]
    rows += [_score_row(name, of, comparison, comparison) for name, of in averages.items()] if several else []
    columns = ("facts", "A", "B", "A − B", "A better", "B better")
    title = f"{comparison.metric} {units_of([comparison.metric])}, A: {compared.a.name}, B: {compared.b.name}"
    sentences = [_who_is_better(comparison), *_ranked_among(compared)]
    seeds = f", each with seeds {', '.join(map(str, comparison.seeds))}" if comparison.seeds else ""
    sentences.append(
        f"{counted(comparison.facts, 'fact')} answered by both{seeds}; {comparison.only_a} only by A, "
        f"{comparison.only_b} only by B."
    )
    if comparison.unsettled:
        facts = counted(comparison.unsettled, "fact")
        sentences.append(f"Left out: {facts} for which a search was cut before it was known whether y is found.")
    differences = averages if several else {"difference": comparison.micro}
    sentences += [_how_sure(name, of, comparison) for name, of in differences.items()]
    sentences.append(
        f"A is better on {counted(comparison.wins, comparison.unit)}, B on {comparison.losses}: sign test "
        f"p = {_p(comparison.sign_p)}."
    )
    shown = [changed_table(comparison, changed)] if comparison.changed[:changed] else []
    return [table(("", *columns), rows, numbers=columns, title=title), *map(Paragraph, sentences), *shown]


def changed_table(comparison: Comparison, most: int) -> Table:
    """Return the facts that one side answers better than the other; right answers are marked."""
    several = len(comparison.relations) > 1
    rows = []
    for fact in comparison.changed[:most]:
        ranks = (f"{rank:.5g}" if math.isfinite(rank) else "not found" for rank in (fact.a_rank, fact.b_rank))
        answers = (
            Cell(answer or NONE, mark="right" if rank <= 1 else "")
            for answer, rank in ((fact.a_answer, fact.a_rank), (fact.b_answer, fact.b_rank))
        )
        rows.append((*([fact.relation] if several else []), fact.x, fact.y, *ranks, *answers))
    names = (*(["relation"] if several else []), "x", "y", "rank A", "rank B", "answer A", "answer B")
    title = f"{len(rows)} of {counted(len(comparison.changed), 'fact')} that changed"
    return table(names, rows, numbers=("rank A", "rank B"), title=title)


def _who_is_better(comparison: Comparison) -> str:
    """What was found, for readers who are not statisticians."""
    found, metric = comparison.micro, METRICS[comparison.metric]
    better = found.difference if metric.higher_is_better else -found.difference
    scores = f"{metric.name} {found.a:.{metric.decimals}f} against {found.b:.{metric.decimals}f}"
    if not better:
        return f"A and B are equal: {scores}."
    chance = "is unlikely to be chance" if found.p < SIGNIFICANT else "may be chance"
    return f"{'A' if better > 0 else 'B'} is better, which {chance}: {scores}."


def _score_row(name: str, of: Any, counts: Any, comparison: Comparison) -> tuple[str, ...]:
    digits = METRICS[comparison.metric].decimals
    scores = (f"{of.a:.{digits}f}", f"{of.b:.{digits}f}", f"{of.difference:+.{digits}f}")
    return (name, str(counts.facts), *scores, str(counts.wins), str(counts.losses))


def _ranked_among(compared: RunComparison) -> list[str]:
    among = (compared.a.vocabulary, compared.b.vocabulary)
    if any(among) and among[0] == among[1]:
        return [f"Ranked among {among[0]}."]
    return [f"{side} ranks among {of_side}." for side, of_side in zip("AB", among, strict=True) if of_side]


def _how_sure(name: str, of: Any, comparison: Comparison) -> str:
    unit, digits = comparison.unit, METRICS[comparison.metric].decimals
    how = f"a relation with a single {unit}, or all alike" if of.low is None else f"bootstrap over {unit}s"
    return (
        f"{name}: {of.difference:+.{digits}f}, {100 * comparison.confidence:.0f} % interval "
        f"{interval_text(of.low, of.high, f'{{:+.{digits}f}}'.format)} ({how}); permutation test p = {_p(of.p)} "
        f"({'exact' if of.exact else 'sampled'}), {'' if of.p < SIGNIFICANT else 'not '}significant at the paper's "
        f"threshold of {SIGNIFICANT}."
    )


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
