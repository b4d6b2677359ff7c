"""A mixture's soft prompts, vector by vector: how far each has moved, what is lost without it, and the word it is near.

Only the vectors that the LM reads as words (layer 0) can be near a word. Of the Δ that a deep mixture adds to later
layers, only the sizes are shown.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from askwell.data.facts import Fact
from askwell.errors import BadOption, NotFinite, checked
from askwell.views.printable import counted, visible

if TYPE_CHECKING:  # a page about runs whose prompts are not drawn needs no torch
    from askwell.lms.frozen import FrozenLM
    from askwell.mixture.mixture import Mixture

TIE = "‿"
"""Precedes a piece that continues its left neighbour without a space."""


@dataclass(frozen=True)
class Word:
    """A token of the LM, and its p(w | v)."""

    token: int
    text: str
    """As a person reads it, without the tokenizer's marks."""
    glued: bool
    """Whether it continues its left neighbour without a space."""
    p: float
    brightness: float
    """Where log p lies between chance among all words of the LM (0) and certainty (1)."""

    @property
    def shown(self) -> str:
        """The word as it is drawn: without invisible characters, and with a tie before it if it is glued."""
        return (TIE if self.glued else "") + visible(self.text)


@dataclass(frozen=True)
class PromptToken:
    """One vector of a prompt: the word at its place in the hard prompt, and the words nearest to what it is now."""

    original: Word
    """w0, with p(w0 | v)."""
    tuned: Word
    """argmax p(w | v)."""
    size_ratio: float | None
    """|v| / |v0|, None if v0 is 0."""
    next_nearest: tuple[Word, ...]
    """The words that follow the tuned one, nearest first."""
    is_near: bool = True
    """Whether the tuned word says anything of the vector: see `NEAR`."""
    moved: float = 0.0
    """|v − v0|, where 1 is the spread of the LM's word vectors."""
    layers: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """For each stack of a deep mixture, from layer 1: |Δ|, where 1 is the spread of what leaves the layer."""
    change: float | None = None
    """What the mean of log p(y | x, r) changes by when this vector is put back to its start; None if nobody asked."""
    kind: str = "token"

    @property
    def is_same_word(self) -> bool:
        """Whether the tuned word is still the original word."""
        return self.tuned.token == self.original.token

    @property
    def words(self) -> list[Word]:
        """What is drawn: the word that the vector is near, over the original word unless that is the same."""
        near = [self.tuned] if self.is_near else []
        return near if near and self.is_same_word else [*near, self.original]


@dataclass(frozen=True)
class BlankPlace:
    """Where x or y is in the sentence."""

    name: str
    glued: bool
    kind: str = "blank"

    @property
    def shown(self) -> str:
        """The blank as it is drawn."""
        return (TIE if self.glued else "") + self.name


@dataclass(frozen=True)
class PromptWords:
    """One soft prompt in words."""

    weight: float
    template: str
    copy: int | None
    """Which copy of its template this is, counted from 1; None if there is only one."""
    copies: int
    items: tuple[PromptToken | BlankPlace, ...]
    """Prompt tokens and the two blanks, in the order of the sentence."""
    original_is_initial: bool
    """Whether the vectors started from the original words; False if they were drawn at random."""
    cut_text: str
    """What follows y in the template, if the LM does not read that; it has no vectors."""
    end: str
    """Its first token, where answers of any length end with it: the LM has to predict it."""
    sentences: tuple[int, ...] = ()
    """At which items a further sentence begins, where examples come before the question."""
    facts: int = 0
    """How many facts were asked again with vectors put back; 0 if none."""
    log_probability: float | None = None
    """The mean of log p(y | x, r) over these facts."""
    change: float | None = None
    """What it changes by when all vectors of this prompt are put back."""

    @property
    def lines(self) -> list[tuple[PromptToken | BlankPlace, ...]]:
        """The items, each sentence by itself."""
        ends = (*self.sentences, len(self.items))
        return [self.items[start:end] for start, end in zip((0, *self.sentences), ends, strict=True)]

    @property
    def tokens(self) -> list[PromptToken]:
        """The prompt tokens alone."""
        return [item for item in self.items if isinstance(item, PromptToken)]

    @property
    def moved_layers(self) -> dict[str, list[float]]:
        """For each stack of a deep mixture, from layer 1: the mean over tokens of what `PromptToken.layers` holds."""
        each = [token.layers for token in self.tokens]
        stacks = each[0] if each else ()
        return {
            stack: [sum(of_layer) / len(each) for of_layer in zip(*(one[stack] for one in each), strict=True)]
            for stack in stacks
        }

    def as_json(self) -> dict[str, Any]:
        """Return the prompt as plain data."""
        return asdict(self)


NEAR = 10.0
"""A word w is near a vector v if p(w | v) is at least this many times chance (1/V), and more than w gets from the
vector of any other word: of the prompts' words, and of words spread over the vocabulary.

Chance alone is no measure. On SmolLM2, p(w | v) is highest for the same few words ("strugg") whatever v is: 1,500 times
chance for words' own vectors, which are nearest to their own word in 11 of 100 cases. On the testbed's LMs hardly any
vector gives a word more than 5 times chance, a word's own vector included. With both conditions, of the untuned
vectors of common words moved in random directions as far as tuned ones move, up to 0.6 % are called near a word on the
testbed's LMs (63 % of them would be with the second condition alone), and 2 % of the vectors of SmolLM2's words are
called near another word."""
_OTHERS = 200
_ASKED_PROMPTS = 3
"""So many prompts, the heaviest, have their vectors put back; each costs as much as asking all prompts."""


@checked
def nearest_words(
    mixture: "Mixture",
    nearest: int = 3,
    *,
    facts: Sequence[Fact] = (),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[PromptWords]:
    """Return the prompts of a mixture, heaviest first, with the `nearest` words next to each vector's tuned word.

    With facts, such as a relation's dev facts, the heaviest prompts also say what the mixture answers when one of their
    vectors, or all of them, are put back to their start."""
    if nearest < 0:
        raise BadOption(f"nearest is {nearest}: it counts words, so it cannot be negative")
    import torch

    from askwell.evaluation.projection import closest_words, most_from_others
    from askwell.prompts.prompt import original_tokens
    from askwell.training.optimiser import word_scale

    with torch.no_grad():
        lm, ids = mixture.lm, original_tokens(mixture.prompts)
        for prompt, rows in zip(mixture.prompts, mixture.pairs.rows, strict=True):
            if not mixture.vectors[list(rows)].isfinite().all():
                raise NotFinite(
                    f"the prompt {prompt.template.text!r} has vectors that are not finite, so they have no nearest word"
                )
        original = torch.tensor(ids, dtype=torch.long, device=lm.device)
        found = [part.tolist() for part in closest_words(lm, mixture.vectors, original, nearest + 1)]
        others = [*ids, *torch.linspace(0, lm.word_count - 1, _OTHERS).long().tolist()]
        from_others = most_from_others(lm, [words[0] for words in found[0]], others)
        unmoved = (mixture.vectors == lm.word_vectors(original).to(mixture.vectors.dtype)).all(1).tolist()
        ratios = (mixture.vectors.norm(dim=1) / mixture.initial_vectors.norm(dim=1)).tolist()
        spread = word_scale(lm) * mixture.vectors.shape[1] ** 0.5
        moved = ((mixture.vectors - mixture.initial_vectors).norm(dim=1) / spread).tolist()
        layers = _moved_layers(mixture)
        tokens = []
        for row, (token, words, ps, p) in enumerate(zip(ids, *found, strict=True)):
            tuned, *following = (word_of(lm, *one) for one in zip(words, ps, strict=True))
            own = word_of(lm, token, p)
            if unmoved[row]:  # it is this word, whatever its neighbours
                following = [one for one in (tuned, *following) if one.token != token][:nearest]
                tuned = own
            is_near = unmoved[row] or (tuned.p * lm.word_count >= NEAR and tuned.p > from_others[tuned.token])
            ratio = ratios[row] if ratios[row] < float("inf") else None  # neither infinite nor NaN
            of_layers = {stack: tuple(of_stack[row]) for stack, of_stack in layers.items()}
            tokens.append(PromptToken(own, tuned, ratio, tuple(following), is_near, moved[row], of_layers))
        weights = mixture.weights.tolist()
        order = sorted(range(len(weights)), key=lambda number: -weights[number])  # stable: ties stay in their order
        heaviest = [number for number in order[:_ASKED_PROMPTS] if weights[number]]
        asked = _put_back(mixture, facts, heaviest, tokens, progress) if facts else {}
        prompts = [replace(_prompt_words(mixture, number, tokens), **asked.get(number, {})) for number in order]
    first, *further = prompts
    shared = mixture.prompts[0].shared_tokens
    return [first, *(replace(one, items=one.items[shared:], sentences=()) if shared else one for one in further)]


def _put_back(
    mixture: "Mixture",
    facts: Sequence[Fact],
    chosen: Sequence[int],
    tokens: list[PromptToken],
    progress: Callable[[int, int], None],
) -> dict[int, dict[str, Any]]:
    """Note in the chosen prompts' tokens what changes when their vectors are put back one by one, and return for each
    prompt what changes when all of them are."""
    from askwell.evaluation.projection import put_back

    single = sorted({row for number in chosen for row in mixture.pairs.rows[number] if _differs(tokens[row])})
    groups = [*([row] for row in single), *(list(mixture.pairs.rows[number]) for number in chosen)]
    known = put_back(mixture, facts, groups, progress)
    for row, change in zip(single, known.changes, strict=False):
        tokens[row] = replace(tokens[row], change=change)
    both = {"facts": known.facts, "log_probability": known.log_probability}
    return {n: {**both, "change": one} for n, one in zip(chosen, known.changes[len(single) :], strict=True)}


def _differs(token: PromptToken) -> bool:
    return token.moved > 0 or any(map(any, token.layers.values()))


def _moved_layers(mixture: "Mixture") -> dict[str, list[list[float]]]:
    """Return for each stack of a deep mixture, and each of its vectors, |Δ| at each layer in units of its spread."""
    import torch

    from askwell.lms.batches import words_of
    from askwell.lms.vocabulary import token_text
    from askwell.prompts.prompt import original_tokens
    from askwell.training.optimiser import hidden_scales

    if not mixture.layer_deltas or not len(mixture.vectors):
        return {}
    lm = mixture.lm
    xs = words_of([token_text(lm, token) for token in original_tokens(mixture.prompts)[:16]], lm.wording, lm.device)
    scales = hidden_scales(lm, mixture.pairs.sample(mixture.tuned, xs, 16), mixture.initial_vectors)
    return {
        stack: torch.stack(
            [
                delta.norm(dim=1) / (scale * delta.shape[1] ** 0.5)
                for delta, scale in zip(deltas, scales[stack], strict=True)
            ],
            dim=1,
        ).tolist()
        for stack, deltas in mixture.layer_deltas.items()
    }


def _prompt_words(mixture: "Mixture", number: int, tokens: Sequence[PromptToken]) -> PromptWords:
    """Return one prompt in words, given the tokens of all prompts."""
    from askwell.lms.tokenisation import Place

    prompt, copies, rows = mixture.prompts[number], mixture.spec.copies, mixture.pairs.rows[number]
    before, between, after = (len(part) for part in (prompt.tokens.before, prompt.tokens.between, prompt.tokens.after))
    is_cut = len(prompt.token_ids) < before + between + after
    places = {"[X]": prompt.tokens.x_place, "[Y]": prompt.tokens.y_place}
    blanks = [BlankPlace(name, places[name] is Place.GLUED) for name in (prompt.template.first, prompt.template.second)]
    items: list[PromptToken | BlankPlace] = [tokens[row] for row in rows]
    items.insert(before, blanks[0])
    items.insert(before + between + 1, blanks[1])
    return PromptWords(
        weight=float(mixture.weights[number]),
        template=prompt.template.text,
        copy=number % copies + 1 if copies > 1 else None,
        copies=copies,
        items=tuple(items),
        original_is_initial=mixture.spec.initial == "words",
        cut_text=prompt.template.after if is_cut else "",
        end=_end(mixture, number) if is_cut else "",
        sentences=prompt.tokens.sentences,
    )


def _end(mixture: "Mixture", number: int) -> str:
    """Return the text of the token that ends answers to a prompt; none if answers have one token."""
    end = mixture.long_answers.end_of(number)
    if end is None or mixture.answer_kind is None or not mixture.answer_kind.is_long:
        return ""
    return str(mixture.lm.tokenizer.decode([end])).strip()


def word_of(lm: "FrozenLM", token: int, p: float = 0.0) -> Word:
    """Return a token as a word of probability p."""
    from askwell.lms.vocabulary import begins_word, token_text

    marker, name = lm.wording.marker, lm.tokenizer.convert_ids_to_tokens(token)
    text, glued = token_text(lm, token), False
    if isinstance(name, str) and token not in lm.tokenizer.all_special_ids:
        glued = not begins_word(lm, token)
        of_bytes = _bytes_of_characters() if marker == "Ġ" else {}
        if all(char in of_bytes for char in name):  # byte-level: a token may hold parts of characters
            text = bytes(of_bytes[char] for char in name).decode(errors="backslashreplace").removeprefix(" ")
        elif name == marker:
            text = ""
    return Word(token, text, glued, p, brightness(p, lm.word_count))


@cache
def _bytes_of_characters() -> dict[str, int]:
    """Return the bytes that byte-level tokenizers write as characters."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {char: byte for byte, char in bytes_to_unicode().items()}


def brightness(p: float, words: int) -> float:
    """Compute 0 for a word no more probable than chance among this many, 1 for a certain one; linear in log p.

    Linear in p, all would be dark: in BERT even a word's own vector makes it hardly more probable than chance.
    """
    return 1.0 if p * words > words - 1 else max(0.0, 1 + math.log(max(p, sys.float_info.min)) / math.log(words))


NOT_AN_EXPLANATION = "Nearest words are not an explanation of a soft prompt."


def notes_on_prompt(prompt: PromptWords) -> list[str]:
    """Return notes on one prompt: which part of its template is not read, and how far later layers are moved."""
    notes = []
    if prompt.sentences:
        notes.append(f"{counted(len(prompt.sentences), 'example')} before the question, each on a new line")
    if cut := prompt.cut_text.strip():
        notes.append(_note_on_cut(cut, prompt.end))
    if prompt.tokens and not any(token.is_near for token in prompt.tokens):
        notes.append("no word is near any of its vectors")
    if prompt.log_probability is not None and prompt.change is not None:
        notes.append(
            f"mean log-loss of the {counted(prompt.facts, 'dev fact')} asked for this: {-prompt.log_probability:.2f}; "
            f"with all vectors of this prompt where they started: {-prompt.log_probability - prompt.change:.2f}"
        )
    for stack, norms in prompt.moved_layers.items():
        name = "" if stack == "layers" else f" {stack}"
        layers = "layer 1" if len(norms) == 1 else f"layers 1 to {len(norms)}"
        notes.append(f"mean |Δ| of{name} {layers}, in spreads: {' '.join(f'{norm:#.2g}' for norm in norms)}")
    return notes


def _note_on_cut(cut: str, end: str) -> str:
    """Say what becomes of the text after y."""
    if not end:
        return f"cut off after [Y], not read by the LM: “{visible(cut)}”"
    if end == cut:
        return f"after [Y], where an answer ends: “{visible(cut)}”"
    return f"cut off after [Y]: “{visible(cut)}”; an answer ends where “{visible(end)}” follows"


def copy_of(prompt: PromptWords) -> str:
    """Say which copy of its template the prompt is, if there are several."""
    return "" if prompt.copy is None else f"copy {prompt.copy} of {prompt.copies}"


def notes_on_all(prompts: Sequence[PromptWords]) -> list[str]:
    """Return notes on the whole drawing."""
    notes = []
    if any(not prompt.original_is_initial for prompt in prompts):
        notes.append(
            "The vectors started at random, not from words: an original word only marks a place in the template here, "
            "and |v0| is the length of the random vector."
        )
    items = [item for prompt in prompts for item in prompt.items]
    words = [word for item in items if isinstance(item, PromptToken) for word in item.words]
    if any(one.glued for one in (*words, *(item for item in items if isinstance(item, BlankPlace)))):
        notes.append(f"{TIE} marks a piece that continues what precedes it, without a space.")
    tokens = [item for item in items if isinstance(item, PromptToken)]
    if not all(token.is_near for token in tokens):
        notes.append(
            f"No word is near a vector if even the most probable w has less than {NEAR:.0f} times chance (1/V, with "
            "V the words of the LM), or as much under the vectors of other words."
        )
    return [*notes, NOT_AN_EXPLANATION] if any(token.is_near for token in tokens) else notes
