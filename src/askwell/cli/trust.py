"""What `askwell evaluate --trust` prints: how far each relation's scores can be trusted."""

from typing import TYPE_CHECKING

from askwell.errors import BadOption

if TYPE_CHECKING:
    from askwell.evaluation.calibration import Bin
    from askwell.evaluation.nearest_words import Projection
    from askwell.evaluation.trust import Trust

_BAR = 20
_SIGNALS = {
    "probability": "the answer's probability",
    "agreement": "the weight of the prompts that agree",
    "divergence": "the divergence of the prompts",
}


def check_risk(risk: float, confidence: float | None) -> None:
    """Refuses a risk or a confidence that is not between 0 and 1."""
    if not 0 <= risk < 1:
        raise BadOption(f"--risk {risk}: it is a fraction of answers, such as 0.1 for one in ten")
    if confidence is not None and not 0 < confidence < 1:
        raise BadOption(f"--confidence {confidence}: it is between 0 and 1, such as 0.95")


def trust_lines(trust: "Trust") -> list[str]:
    """All measures as text, one paragraph after the other."""
    return [
        "",
        f"How far {trust.relation} on {trust.lm} can be trusted",
        f"  {trust.facts} test facts about {trust.questions} x's, {sum(trust.left_out.values())} left out; "
        f"ranked among {trust.vocabulary}; thresholds from {trust.dev_facts} dev facts, "
        f"{sum(trust.dev_left_out.values())} left out. Means over x's.",
        "",
        *_calibration_lines(trust),
        "",
        *_abstention_lines(trust),
        "",
        *_set_lines(trust),
        "",
        *_consistency_lines(trust),
        "",
        projection_line(trust.projection)
        if trust.projection
        else f"Nearest words: not scored; {trust.missing['projection']}.",
    ]


def _calibration_lines(trust: "Trust") -> list[str]:
    found = trust.calibration
    gap = found.confidence - found.accuracy
    verdict = "well calibrated on average" if abs(gap) < 0.05 else "overconfident" if gap > 0 else "underconfident"
    return [
        f"Calibration: ECE {100 * found.ece:.1f} %. Best answers have a probability of "
        f"{100 * found.confidence:.1f} % on average, and {100 * found.accuracy:.1f} % are right: {verdict}.",
        *(_bin_line(one) for one in found.bins),
        "  █ fraction that is right, │ mean probability",
    ]


def _bin_line(one: "Bin") -> str:
    """A bar as long as the fraction that is right, with a mark at the mean probability."""
    bar = list("█" * round(_BAR * one.accuracy) + "·" * (_BAR - round(_BAR * one.accuracy)))
    bar.insert(round(_BAR * min(one.confidence, 1.0)), "│")
    share = f"{100 * one.accuracy:5.1f} % of {one.count} right"
    return f"  {100 * one.low:3.0f}–{100 * one.high:3.0f} %  {''.join(bar)}  {share}"


def _abstention_lines(trust: "Trust") -> list[str]:
    signals, at_risk = trust.signals, trust.at_risk
    lines = [
        "Abstention: the area under the risk–coverage curve, in per cent (lower is better; "
        f"{100 * signals.best_possible:.1f} at best, {100 * signals.no_signal:.1f} without a signal)",
        *(f"  {100 * area:5.1f}  by {_SIGNALS[name]}" for name, area in signals.areas.items()),
    ]
    if at_risk is None:
        return [*lines, f"  No threshold: {trust.missing['at_risk']}."]
    sure = "" if at_risk.confidence is None else f" (with a confidence of {100 * at_risk.confidence:g} %)"
    if at_risk.threshold is None:
        return [*lines, f"  No threshold keeps a risk of {100 * at_risk.risk:g} %{sure} on dev: nothing is answered."]
    found = "none" if at_risk.found_risk is None else f"{100 * at_risk.found_risk:.1f} %"
    return [
        *lines,
        f"  At a risk of {100 * at_risk.risk:g} %{sure}, answers of {100 * at_risk.threshold:.1f} % or more are given: "
        f"{at_risk.answered} of {at_risk.questions} x's are answered ({100 * at_risk.coverage:.1f} %), {found} of "
        f"them wrong; on dev, {100 * at_risk.dev_coverage:.1f} %, {100 * at_risk.dev_risk:.1f} % of them wrong.",
    ]


def _set_lines(trust: "Trust") -> list[str]:
    sets = trust.answer_sets
    if sets is None:
        return [f"Answer sets: none; {trust.missing['answer_sets']}."]
    cut = f" {sets.cut} x's may have more answers than were kept." if sets.cut else ""
    return [
        f"Answer sets: all answers of {100 * sets.threshold:.1f} % or more (the best F1 on dev) have precision "
        f"{100 * sets.precision:.1f}, recall {100 * sets.recall:.1f} and F1 {100 * sets.f1:.1f} % over all answers, "
        f"F1 {100 * sets.mean_f1:.1f} % as a mean over x's, of which {trust.several_ys} have several ys.{cut}"
    ]


def _consistency_lines(trust: "Trust") -> list[str]:
    found = trust.consistency
    if found is None:
        return [f"Consistency: none; {trust.missing['consistency']}."]
    lines = [f"Consistency: how often its {found.prompts} prompts give the same answer"]
    for name, agreement in (("", found.all), (" that it answers correctly", found.right)):
        if agreement is not None:
            weighted = "–" if agreement.weighted is None else f"{100 * agreement.weighted:.1f}"
            lines.append(
                f"  {agreement.questions} x's{name}: {100 * agreement.pairs:.1f} % of the pairs of prompts agree "
                f"({weighted} % by weight), all prompts agree on {100 * agreement.all_agree:.1f} % of the x's, and "
                f"{100 * agreement.with_mixture:.1f} % of the weight agrees with the mixture."
            )
    return lines


def projection_line(found: "Projection") -> str:
    """How well the nearest words alone score, as a sentence."""
    return (
        f"Nearest words: asked with the word nearest to each tuned vector ({100 * found.changed:.0f} % of them differ "
        f"from the hard prompt), the LM scores P@1 {found.projected['P@1']:.1f}; the tuned vectors score "
        f"{found.tuned['P@1']:.1f} ({found.facts} {found.split} facts, {found.left_out} left out; among "
        f"{found.vocabulary})."
    )
