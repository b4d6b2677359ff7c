"""The colours of a page and its charts, by role, for light and for dark paper.

A chart is drawn in the light colours; in a page each of them is the CSS variable of its role, so that the page's
own rules turn the charts dark with everything else.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Colour:
    """A role's colour, as #rrggbb."""

    light: str
    dark: str


PALETTE = {
    "paper": Colour("#ffffff", "#0b0d10"),
    "panel": Colour("#f6f7f9", "#15181d"),
    "ink": Colour("#1f2328", "#e6edf3"),
    "pale": Colour("#5d656e", "#9aa4af"),
    "rule": Colour("#e3e6ea", "#2b3037"),
    "first": Colour("#1d5fd6", "#6ba2ff"),
    "second": Colour("#b25400", "#f2a04a"),
    "good": Colour("#12703b", "#56c98a"),
    "bad": Colour("#b3261e", "#ff8a80"),
    "series-1": Colour("#0b7a6b", "#45c4b1"),
    "series-2": Colour("#4b3fd1", "#a59cff"),
    "series-3": Colour("#b0206b", "#f77fbe"),
    "series-4": Colour("#7f6300", "#d9b84a"),
}


def light(role: str) -> str:
    """The colour in which a chart draws a role."""
    return PALETTE[role].light


def variable(role: str) -> str:
    """The role as a CSS value that falls back to the light colour where there is no page around."""
    return f"var(--{role}, {PALETTE[role].light})"


def css_variables(*, dark: bool) -> str:
    """The roles as CSS declarations."""
    return " ".join(f"--{role}: {colour.dark if dark else colour.light};" for role, colour in PALETTE.items())
