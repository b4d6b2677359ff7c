"""How far the scores of one mixture on one relation can be trusted, as `askwell evaluate --trust` shows it."""

from askwell.evaluation.calibration import Bin
from askwell.evaluation.nearest_words import Projection
from askwell.evaluation.trust import Trust
from askwell.views.document import Block, Cell, Paragraph, Section, table
from askwell.views.printable import NONE, per_cent
from askwell.views.trust_section import calibration_sentence

_BAR = 20
_SIGNALS = {
    "probability": "the answer's probability",
    "agreement": "the weight of the prompts that agree",
    "divergence": "the divergence of the prompts",
}


def trust_of_mixture(trust: Trust) -> Section:
    """Return all measures of trust: calibration, abstention, answer sets, consistency, nearest words."""
    asked = (
        f"{trust.facts} test facts about {trust.questions} x's, {sum(trust.left_out.values())} left out; ranked among "
        f"{trust.vocabulary}; thresholds from {trust.dev_facts} dev facts, {sum(trust.dev_left_out.values())} left "
        "out. Means over x's."
    )
    nearest = trust.projection
    words = (
        f"Nearest words: not scored; {trust.missing['projection']}."
        if nearest is None
        else projection_sentence(nearest)
    )
    blocks = (
        Paragraph(asked),
        Paragraph(f"Calibration: {calibration_sentence(trust.calibration)}"),
        table(
            ("probability", "", "right"),
            [_bin_row(one) for one in trust.calibration.bins],
            caption="█ fraction that is right, │ mean probability",
        ),
        *_abstention(trust),
        Paragraph(_answer_sets(trust)),
        *_consistency(trust),
        Paragraph(words),
    )
    return Section(f"How far {trust.relation} on {trust.lm} can be trusted", blocks)


def _bin_row(one: Bin) -> tuple[str | Cell, ...]:
    """A bar as long as the fraction that is right, with a mark at the mean probability."""
    bar = list("█" * round(_BAR * one.accuracy) + "·" * (_BAR - round(_BAR * one.accuracy)))
    bar.insert(round(_BAR * min(one.confidence, 1.0)), "│")
    share = f"{100 * one.accuracy:5.1f} % of {one.count} right"
    return f"{100 * one.low:3.0f}–{100 * one.high:3.0f} %", Cell("".join(bar), mark="bar"), share


def _abstention(trust: Trust) -> list[Block]:
    signals = trust.signals
    areas = table(
        ("by", "area"),
        [(_SIGNALS[name], f"{100 * area:.1f}") for name, area in signals.areas.items()],
        numbers=("area",),
        title="Abstention: the area under the risk–coverage curve, in per cent (lower is better; "
        f"{100 * signals.best_possible:.1f} at best, {100 * signals.no_signal:.1f} without a signal)",
    )
    return [areas, Paragraph(_at_risk(trust))]


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
        return f"Answer sets: none; {trust.missing['answer_sets']}."
    cut = f" {sets.cut} x's may have more answers than were kept." if sets.cut else ""
    return (
        f"Answer sets: all answers of {per_cent(sets.threshold)} or more (the best F1 on dev) have precision "
        f"{100 * sets.precision:.1f}, recall {100 * sets.recall:.1f} and F1 {per_cent(sets.f1)} over all answers, "
        f"F1 {per_cent(sets.mean_f1)} as a mean over x's, of which {trust.several_ys} have several ys.{cut}"
    )


def _consistency(trust: Trust) -> list[Block]:
    found = trust.consistency
    if found is None:
        return [Paragraph(f"Consistency: none; {trust.missing['consistency']}.")]
    said = [f"Consistency: how often its {found.prompts} prompts give the same answer"]
    for name, agreement in (("", found.all), (" that it answers correctly", found.right)):
        if agreement is not None:
            weighted = NONE if agreement.weighted is None else f"{100 * agreement.weighted:.1f}"
            said.append(
                f"  {agreement.questions} x's{name}: {per_cent(agreement.pairs)} of the pairs of prompts agree "
                f"({weighted} % by weight), all prompts agree on {per_cent(agreement.all_agree)} of the x's, and "
                f"{per_cent(agreement.with_mixture)} of the weight agrees with the mixture."
            )
    return list(map(Paragraph, said))


def projection_sentence(found: Projection) -> str:
    """Return how well the nearest words alone score."""
    return (
        f"Nearest words: asked with the word nearest to each tuned vector ({100 * found.changed:.0f} % of them differ "
        f"from the hard prompt), the LM scores P@1 {found.projected['P@1']:.1f}; the tuned vectors score "
        f"{found.tuned['P@1']:.1f} ({found.facts} {found.split} facts, {found.left_out} left out; among "
        f"{found.vocabulary})."
    )
