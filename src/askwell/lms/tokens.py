"""A template in the tokens of one LM."""

from dataclasses import dataclass

from askwell.lms.wording import Place, Wording
from askwell.prompts import Template


@dataclass(frozen=True)
class PromptTokens:
    """The prompt tokens around the two blanks, and the form in which each blank is to be filled."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    x_first: bool
    x_place: Place
    y_place: Place


def tokenise(template: Template, wording: Wording) -> PromptTokens:
    """The tokens of a template, as it stands in the sentence."""
    before, first_place = wording.place_after(template.before or None)
    between, second_place = wording.place_after(template.between)
    x_place, y_place = (first_place, second_place) if template.x_first else (second_place, first_place)
    return PromptTokens(
        before=tuple(_encode(wording, before or "", Place.SPACED)),
        between=tuple(_encode(wording, between or "", wording.place_of_text(template.between))),
        after=tuple(_encode(wording, template.after, wording.place_of_text(template.after))),
        x_first=template.x_first,
        x_place=x_place,
        y_place=y_place,
    )


def _encode(wording: Wording, text: str, place: Place) -> list[int]:
    return wording.encode(text, place) if text else []
