"""How far the scores of one mixture on one relation can be trusted, as `askwell evaluate --trust` shows it."""

from askwell.evaluation.calibration import Bin
from askwell.evaluation.projection import Projection
from askwell.evaluation.trust import Trust
from askwell.views.document import Cell, Document, Paragraph, Section, Table, table
from askwell.views.printable import NONE, per_cent
from askwell.views.trust_section import calibration_sentence

_BAR = 20
_SIGNALS = {
    "probability": "the answer's probability",
    "agreement": "the weight of the prompts that agree",
    "divergence": "the divergence of the prompts",
}


def trust_of_mixture(trust: Trust) -> Document:
    """Return all measures of trust: calibration, abstention, answer sets, consistency, nearest words."""
    asked = (
        f"{trust.facts} test facts about {trust.questions} x's, {sum(trust.left_out.values())} left out; ranked among "
        f"{trust.vocabulary}; thresholds from {trust.dev_facts} dev facts, {sum(trust.dev_left_out.values())} left "
        "out. Means over x's."
    )
    bins = table(
        ("probability", "", "right"),
        [_bin_row(one) for one in trust.calibration.bins],
        caption="█ fraction that is right, │ mean probability",
    )
    if trust.projection is None:
        words = f"Not scored; {trust.missing['projection']}."
    else:
        words = projection_sentence(trust.projection)
    return Document(
        "",
        sections=(
            Section(f"How far {trust.relation} on {trust.lm} can be trusted", (Paragraph(asked),)),
            Section("Calibration", (Paragraph(calibration_sentence(trust.calibration)), bins)),
            Section("Abstention", (_areas(trust), Paragraph(_at_risk(trust)))),
            Section("Answer sets", (Paragraph(_answer_sets(trust)),)),
            Section("Consistency", tuple(map(Paragraph, _consistency(trust)))),
            Section("Nearest words", (Paragraph(words),)),
        ),
    )


def _bin_row(one: Bin) -> tuple[str | Cell, ...]:
    """A bar as long as the fraction that is right, with a mark at the mean probability."""
    bar = list("█" * round(_BAR * one.accuracy) + "·" * (_BAR - round(_BAR * one.accuracy)))
    bar.insert(round(_BAR * min(one.confidence, 1.0)), "│")
    share = f"{100 * one.accuracy:5.1f} % of {one.count} right"
    return f"{100 * one.low:3.0f}–{100 * one.high:3.0f} %", Cell("".join(bar), mark="bar"), share


def _areas(trust: Trust) -> Table:
    signals = trust.signals
    return table(
        ("area", "by"),
        [(f"{100 * area:.1f}", _SIGNALS[name]) for name, area in signals.areas.items()],
        numbers=("area",),
        title="The area under the risk–coverage curve, in per cent (lower is better; "
        f"{100 * signals.best_possible:.1f} at best, {100 * signals.no_signal:.1f} without a signal)",
    )


def _at_risk(trust: Trust) -> str:
    at_risk = trust.at_risk
    if at_risk is None:
        return f"No threshold: {trust.missing['at_risk']}."
    sure = "" if at_risk.confidence is None else f" (with a confidence of {100 * at_risk.confidence:g} %)"
    if at_risk.threshold is None:
        return f"No threshold keeps a risk of {100 * at_risk.risk:g} %{sure} on dev: nothing is answered."
    found = "none" if at_risk.found_risk is None else per_cent(at_risk.found_risk)
    return (
        f"At a risk of {100 * at_risk.risk:g} %{sure}, answers of {per_cent(at_risk.threshold)} or more are given: "
        f"{at_risk.answered} of {at_risk.questions} x's are answered ({per_cent(at_risk.coverage)}), {found} of them "
        f"wrong; on dev, {per_cent(at_risk.dev_coverage)}, {per_cent(at_risk.dev_risk)} of them wrong."
    )


def _answer_sets(trust: Trust) -> str:
    sets = trust.answer_sets
    if sets is None:
        return f"None; {trust.missing['answer_sets']}."
    cut = f" {sets.cut} x's may have more answers than were kept." if sets.cut else ""
    return (
        f"All answers of {per_cent(sets.threshold)} or more (the best F1 on dev) have precision "
        f"{100 * sets.precision:.1f}, recall {100 * sets.recall:.1f} and F1 {per_cent(sets.f1)} over all answers, "
        f"F1 {per_cent(sets.mean_f1)} as a mean over x's, of which {trust.several_ys} have several ys.{cut}"
    )


def _consistency(trust: Trust) -> list[str]:
    found = trust.consistency
    if found is None:
        return [f"None; {trust.missing['consistency']}."]
    said = [f"How often its {found.prompts} prompts give the same answer:"]
    for name, agreement in (("", found.all), (" that it answers correctly", found.right)):
        if agreement is not None:
            weighted = NONE if agreement.weighted is None else f"{100 * agreement.weighted:.1f}"
            said.append(
                f"  {agreement.questions} x's{name}: {per_cent(agreement.pairs)} of the pairs of prompts agree "
                f"({weighted} % by weight), all prompts agree on {per_cent(agreement.all_agree)} of the x's, and "
                f"{per_cent(agreement.with_mixture)} of the weight agrees with the mixture."
            )
    return said


def projection_sentence(found: Projection) -> str:
    """Return how well the nearest words alone score."""
    return (
        f"Asked with the word nearest to each tuned vector ({100 * found.changed:.0f} % of them differ "
        f"from the hard prompt), the LM scores P@1 {found.projected['P@1']:.1f}; the tuned vectors score "
        f"{found.tuned['P@1']:.1f} ({found.facts} {found.split} facts, {found.left_out} left out; among "
        f"{found.vocabulary})."
    )
