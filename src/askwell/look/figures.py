"""How weights and probabilities are written for people."""


def weight_figure(weight: float) -> str:
    """A prompt's weight in three decimals; one that would look like nothing is told apart from nothing."""
    return "<0.001" if 0 < weight < 0.0005 else f"{weight:.3f}"


def probability_figure(p: float) -> str:
    """A probability in a few digits, which tell small ones apart, too."""
    return f"{p:.2f}" if p >= 0.095 else f"{p:.1g}".replace("e-0", "e-")
