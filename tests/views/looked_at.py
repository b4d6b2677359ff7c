"""Mixtures to look at, and prompts with words of any kind for tests of drawings."""

import torch
from builders import tiny
from hypothesis import strategies as st

from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.views.words import BlankPlace, PromptToken, PromptWords, Word

TEMPLATES = [
    "[X] was born in the city of [Y] .",
    "The capital of [X] , Reykjavik, is [Y], and lies in Iceland .",
    "[X] [Y]",
]
NASTY = [
    "<b>",
    "&amp;",
    '"',
    "]]>",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "\uffff",
    "\u202e",
    "[bold]",
    ":smile:",
    "",
    " ",
    "\n",
]
ANY_TEXT = st.one_of(st.sampled_from(NASTY), st.text(alphabet=st.characters(), max_size=12))


def trained_looking(name: str, spec: MixtureSpec | None = None, templates: list[str] = TEMPLATES) -> Mixture:
    """A mixture on a tiny LM whose vectors, weights and deltas were moved at random, as training would move them."""
    mixture = Mixture(FrozenLM(*tiny.TINY[name](), name=f"tiny-{name}"), templates, spec)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return mixture


def lightness(colour: str) -> float:
    """The relative luminance of #rrggbb, as WCAG defines it."""

    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def word(token: int, text: str, p: float = 0.5, glued: bool = False) -> Word:
    return Word(token, text, glued, p, p)


def prompt(*words: tuple[str, str], **changes: object) -> PromptWords:
    """A prompt between whose blanks the given pairs of tuned and original words stand."""
    tokens = [
        PromptToken(word(0, original, 0.25), word(1, tuned, 0.75), 1.0, (word(2, "third", 0.1),))
        for tuned, original in words
    ]
    fields = {
        "weight": 0.5,
        "template": "[X] " + " ".join(original for _, original in words) + " [Y]",
        "copy": None,
        "copies": 1,
        "items": (BlankPlace("[X]", False), *tokens, BlankPlace("[Y]", False)),
        "original_is_initial": True,
        "cut_text": "",
        "end": "",
    }
    return PromptWords(**(fields | changes))  # ty: ignore[invalid-argument-type]
