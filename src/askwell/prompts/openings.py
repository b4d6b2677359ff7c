"""What comes before a prompt's sentence and is tuned with it: free vectors, a lead-in, examples.

They are prompt tokens like all others. What comes before x matters most to a causal LM: a few words there can be worth
more than anything between x and y.
"""

from collections.abc import Sequence
from itertools import cycle, islice

from askwell.data.facts import Fact
from askwell.data.templates import Template
from askwell.errors import BadOption
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import NO_OPENING, Beginning, Opening, Place
from askwell.specs.mixture_spec import A_FACT, NO_LEAD_IN, MixtureSpec

RANDOM, LABEL = "random", "label"
"""What free vectors can start from besides words."""


def opening_of(
    lm: FrozenLM, spec: MixtureSpec, template: Template, beginning: Beginning, examples: Sequence[Fact] = ()
) -> Opening:
    """What comes before the sentence of a template: free vectors, the lead-in, and examples in the template's words,
    each followed by its separator."""
    lead_in = "" if spec.lead_in == NO_LEAD_IN else up_to_sentence(lm, spec.lead_in)
    prefix = prefix_tokens(lm, spec, beginning)
    if not examples:
        return Opening(prefix, (), lead_in) if prefix or lead_in else NO_OPENING
    after = up_to_sentence(lm, template.after + spec.shot_separator, is_whole=True)
    filled: list[tuple[str, str]] = []
    for fact in examples:
        fillers = {"[X]": fact.x, "[Y]": fact.y}
        text = after if filled else lead_in
        filled += [(text + template.before, fillers[template.first]), (template.between, fillers[template.second])]
    return Opening(prefix, tuple(filled), after, closing=after.rstrip(" "))


def prefix_tokens(lm: FrozenLM, spec: MixtureSpec, beginning: Beginning) -> tuple[int, ...]:
    """The tokens in whose places free vectors go; those that start at random are only marked by them."""
    if not spec.prefix:
        return ()
    if spec.prefix_words == LABEL:
        raise BadOption(
            f"`prefix_words` {LABEL}: the relation is not known here; write its label out",
            prefix_words="--prefix-words",
        )
    words = A_FACT if spec.prefix_words == RANDOM else spec.prefix_words
    tokens = lm.wording.encode(words, beginning.place)
    if not tokens or lm.wording.unknown_id in tokens:
        raise BadOption(
            f"`prefix_words` {words!r}: {lm.identity.name} has no tokens for it; choose other words",
            prefix_words="--prefix-words",
        )
    return tuple(islice(cycle(tokens), spec.prefix))


def up_to_sentence(lm: FrozenLM, text: str, *, is_whole: bool = False) -> str:
    """A text with the space or line break that separates it from the following sentence, unless it is whole and has
    its own."""
    if lm.wording.line_break is None:
        text = text.replace("\n", " ")
    if not text[-1:].isspace():
        return text if is_whole else f"{text} "
    if text.endswith("\n") and place_after_line_break(lm) is Place.SPACED:
        return f"{text} "
    return text


def place_after_line_break(lm: FrozenLM) -> Place:
    """The place of what begins a line: as at the start of a text, if the LM has a choice of beginnings."""
    beginnings = lm.beginnings
    return beginnings.get("line-break", next(iter(beginnings.values()))).place


def with_label(spec: MixtureSpec, label: str) -> MixtureSpec:
    """The spec with the relation's label written out, if its free vectors start from that."""
    if not spec.prefix or spec.prefix_words != LABEL:
        return spec
    return spec.model_copy(update={"prefix_words": label})
