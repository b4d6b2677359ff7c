"""The test facts of a run: what was answered to each, before and after tuning, and which of them are worth a look."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from askwell.evaluation.metrics import METRICS
from askwell.evaluation.outcomes import Outcome, by_fact
from askwell.runs.folder import Run
from askwell.views.document import MISSING, Cell, Drawing, Figure, Row, Section, Table, table
from askwell.views.printable import counted, per_cent, shortened, visible
from askwell.views.verdict_charts import flow_chart

CONFIDENT = 0.5
"""From this probability on, an answer counts as confident."""
_FEW = 12


@dataclass(frozen=True)
class AnsweredFact:
    """A test fact of a run."""

    after: Outcome
    before: Outcome | None
    """As answered before tuning, if that is known."""
    in_train: bool | None
    """Whether it was learned from a fact with the same x; None if nothing was learned, or the run does not say."""

    @property
    def is_right(self) -> bool:
        """Whether y is the best answer, the other right answers left aside."""
        return self.after.rank <= 1

    @property
    def is_confident(self) -> bool:
        """Whether the best answer has at least half of the probability."""
        return bool(self.after.probabilities) and self.after.probabilities[0] >= CONFIDENT

    @property
    def changed(self) -> bool:
        """Whether tuning made a wrong answer right, or a right one wrong."""
        return self.before is not None and (self.before.rank <= 1) != self.is_right


PARTS: Mapping[str, tuple[str, Callable[[AnsweredFact], bool]]] = {
    "all": ("all", lambda _: True),
    "wrong": ("wrong", lambda fact: not fact.is_right),
    "confident": ("confident and wrong", lambda fact: not fact.is_right and fact.is_confident),
    "changed": ("changed by tuning", lambda fact: fact.changed),
    "seen": ("x seen in training", lambda fact: bool(fact.in_train)),
}
"""The parts of a run's test facts, by their names in addresses: what they are called, and what is in them."""


def answered_facts(run: Run, part: str = "all", words: str = "") -> list[AnsweredFact]:
    """Return the test facts of a run, or those of a part; with `words`, only those that have them in x, y or answer.

    Where answers were wrong, the most confident come first.
    """
    before, train, belongs = by_fact(run.untuned), _learned_from(run), PARTS[part][1]
    facts = [AnsweredFact(one, before.get(one.key), one.x in train if train else None) for one in run.test]
    found = [fact for fact in facts if belongs(fact) and _has(fact.after, words.lower().split())]
    if part in ("wrong", "confident"):
        found.sort(key=lambda fact: -max(fact.after.probabilities, default=0.0))
    return found


def _learned_from(run: Run) -> Collection[str]:
    """Return the x's that a run has learned from, as far as it says."""
    return run.train_golds if run.record.spec.learns else ()


def _has(fact: Outcome, words: Sequence[str]) -> bool:
    text = f"{fact.x} {fact.y} {fact.answers[0] if fact.answers else ''}".lower()
    return all(word in text for word in words)


def parts_of(run: Run) -> dict[str, int]:
    """Return how many test facts are in each part; those that the run says nothing about are left out."""
    facts = answered_facts(run)
    unknown = {"changed"} if not run.untuned else set()
    unknown |= {"seen"} if not _learned_from(run) else set()
    return {name: sum(map(belongs, facts)) for name, (_, belongs) in PARTS.items() if name not in unknown}


def facts_table(answered: Sequence[AnsweredFact], caption: str = "") -> Table:
    """Return a row for each fact: what was answered, the right answer and its rank, and what was answered before
    tuning."""
    tuned = any(fact.before is not None for fact in answered)
    headings = ("x", "answer", "right answer", "its rank", *(["before tuning"] if tuned else []))
    rows = []
    for fact in answered:
        before = [MISSING if fact.before is None else answer_cell(fact.before)] if tuned else []
        golds = ", ".join((fact.after.y, *(gold for gold in fact.after.golds if gold != fact.after.y)))
        note = "seen in training" if fact.in_train else ""
        rows.append(Row(fact.after.x, (answer_cell(fact.after), Cell(golds), _rank(fact.after), *before), note=note))
    return replace(table(headings, (), numbers=("its rank",), caption=caption), rows=tuple(rows))


def facts_section(run: Run, link: str = "") -> Section:
    """Return how many facts are in each part, linked to a page of them if there is one, and some facts."""
    counts = parts_of(run)
    rows = [
        Row(PARTS[part][0], (Cell(f"{count:,}"),), link=f"{link}?part={part}" if link and count else "")
        for part, count in counts.items()
    ]
    parts = replace(table(("test facts", "count"), (), numbers=("count",)), rows=tuple(rows))
    facts = answered_facts(run)
    shown = facts[:: max(1, len(facts) // _FEW)][:_FEW]
    few = counted(len(shown), "test fact")
    caption = f"{few}, evenly spread over the list." if len(shown) < len(facts) else "All test facts."
    caption += f" An answer is confident if its probability is at least {100 * CONFIDENT:.0f} %."
    may_change = run.untuned and not run.record.as_written
    drawn = [changes_figure(run.untuned, run.test, ("before tuning", "after tuning"))] if may_change else []
    table_of_some = replace(facts_table(shown, caption), more=len(facts) - len(shown))
    # Where no page has them all, they are here.
    of_all = replace(facts_table(facts, ""), folded=f"All {len(facts):,} test facts")
    return Section("Answers", (*drawn, parts, table_of_some, *([of_all] if table_of_some.more and not link else [])))


def answer_cell(outcome: Outcome) -> Cell:
    """Return the most probable answer with its probability, and whether it is right."""
    if not outcome.answers:
        return MISSING
    mark = "right" if outcome.answers[0] in outcome.golds else "wrong"
    return Cell(visible(outcome.answers[0]), mark=mark, note=per_cent(outcome.probabilities[0]))


_ROLES = {"right in both": "first", "right → wrong": "bad", "wrong → right": "good", "wrong in both": "pale"}


def changes_figure(first: Sequence[Outcome], second: Sequence[Outcome], names: tuple[str, str]) -> Figure:
    """Return how many facts go from right or wrong in the first to right or wrong in the second, of those in both."""
    known = METRICS["P@1"].is_known
    before, after = (
        {one.key: "right" if one.rank <= 1 else "wrong" for one in side if known(one)} for side in (first, second)
    )
    flows = {one: dict.fromkeys(("right", "wrong"), 0) for one in ("right", "wrong")}
    for fact in before.keys() & after.keys():
        flows[before[fact]][after[fact]] += 1
    kinds = iter(_ROLES)
    became = {(one, other): next(kinds) for one in flows for other in flows}
    chart = flow_chart(
        flows,
        lambda one, other: became[one, other],
        _ROLES,
        left=shortened(names[0], 30),
        right=shortened(names[1], 30),
    )
    lost, gained = flows["right"]["wrong"], flows["wrong"]["right"]
    caption = (
        f"Test facts by their best answers, {names[0]} on the left and {names[1]} on the right: {gained} go from wrong "
        f"to right, {lost} from right to wrong."
    )
    return Figure((Drawing("changes", chart),), caption)


def _rank(outcome: Outcome) -> Cell:
    shown = rank_text(outcome.rank)
    return Cell(shown if outcome.is_settled else f"{shown} or later")


def rank_text(rank: float) -> str:
    """Return a rank; infinite is one that was not found among the first ten."""
    return f"{rank:.5g}" if math.isfinite(rank) else "not found"
