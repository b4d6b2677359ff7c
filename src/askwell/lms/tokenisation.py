"""Texts and templates in the tokens of an LM, given what comes before them in the sentence, and its special tokens.

Prompts, x's and y's are tokenised separately, so that a filler never merges with the words around its blank. The form
of a piece still depends on its place: " Paris" and "Paris" are different tokens of a byte-level BPE, and WordPiece
writes "vik" as "##vik" inside a word.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from askwell.data.templates import Template
from askwell.errors import LMUnavailable

# Threads of the tokenizers library would ignore --threads, and make it warn whenever the process is forked later.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Place(StrEnum):
    """What comes before a piece of text."""

    SPACED = "spaced"
    """A space, or nothing: the piece begins a word."""
    GLUED = "glued"
    """A letter, a bracket or a filled blank: the piece continues without a space."""


class Wording:
    """The tokens of texts in their places, for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise LMUnavailable(
                f"the tokenizer of this LM ({type(tokenizer).__name__}) has no tokenizers backend; convert it to a "
                "tokenizer.json first"
            )
        try:
            description = _without_special_tokens(json.loads(backend.to_str()))
            self._words = Tokenizer.from_str(json.dumps(description))
            as_written = _without_added_prefix(description)
            is_same = as_written == description  # a large vocabulary takes a tenth of a second to read
            self._as_written = self._words if is_same else Tokenizer.from_str(json.dumps(as_written))
            inside_word = _inside_word(self._words, description)
        except Exception as error:  # tokenizers raises nothing more precise
            raise LMUnavailable(f"the tokenizer of this LM is broken: {str(error)[:200]}") from error
        self.keeps_spaces = self._as_written.encode(" a").ids != self._as_written.encode("a").ids
        """Whether the tokens spell the spaces between words (byte-level BPE, Llama's), or the tokenizer cuts the
        text at spaces before it looks for tokens (WordPiece, ALBERT's)."""
        self.first_place = Place.SPACED
        """The place of a word at the start of a text, as the tokenizer itself writes it: Llama 2's puts a space there,
        GPT-2's does not."""
        if self.keeps_spaces and self._words.encode("a").ids == self._as_written.encode("a").ids:
            self.first_place = Place.GLUED
        self._inside_word = inside_word or self._as_written
        self._alone: dict[str, bool] = {}
        self.marker, self.marks = _marker(description)
        """The mark in a token's name that shows its form, and the place whose tokens have it."""
        self.unknown_id: int | None = tokenizer.unk_token_id
        self.prefix, self.suffix = _special_tokens_around(tokenizer)
        """The special tokens that the tokenizer puts before and after a sentence."""

    @property
    def line_break(self) -> int | None:
        """Return the token of a line break, if it is one token; some tokenizers treat it as a space."""
        token = self.single_token("\n", Place.GLUED)
        return None if token == self.single_token(" ", Place.GLUED) else token

    @property
    def convention(self) -> str:
        """Return the way spaces are written, in words."""
        if self.marks is Place.GLUED:
            return f"pieces inside a word begin with {self.marker}"
        return f"pieces that begin a word begin with {self.marker}"

    def encode(self, text: str, place: Place) -> list[int]:
        """Return the tokens of `text` at a place; a space at its start counts as written."""
        return self.encode_all([text], place)[0]

    def encode_all(self, texts: Sequence[str], place: Place) -> list[list[int]]:
        """Return the tokens of each text at a place: together they are several times as fast as one by one."""
        if self.keeps_spaces:
            written = [f" {text}" for text in texts] if place is Place.SPACED else texts
            return _ids(self._as_written, written)
        if place is Place.SPACED:
            return _ids(self._words, texts)
        return self._encode_all_inside_words(texts)

    def words_of(self, text: str, tokens: Sequence[int]) -> Sequence[int | None]:
        """Return the number of the text's word that each of its tokens is a piece of; `tokens` spell it in one of its
        places, without a space that is the follower's."""
        written = self.place_after(text)[0] or ""
        for place in Place:
            if self.encode(written, place) == list(tokens):
                return self._word_numbers(written, place)
        return list(range(len(tokens)))  # they also spell a part of what comes before: each counts as a word

    def _word_numbers(self, text: str, place: Place) -> Sequence[int | None]:
        if self.keeps_spaces:
            return self._as_written.encode(f" {text}" if place is Place.SPACED else text).word_ids
        first, rest = ("", text) if place is Place.SPACED else self._cut_first_word(text)
        continued = len(self._inside_word.encode(first).ids) if first else 0
        return [-1] * continued + self._words.encode(rest).word_ids

    def single_token(self, text: str, place: Place) -> int | None:
        """Return the one token that spells `text` at a place, if there is one."""
        ids = self.encode(text, place)
        return ids[0] if len(ids) == 1 and ids[0] != self.unknown_id else None

    def place_after(self, left: str | None) -> tuple[str | None, Place]:
        """Return the place of what follows the text `left`, and `left` without a space that is now the follower's.

        `left` is None at the start of the sentence and "" right after a filled blank.
        """
        if left is None:
            return left, Place.SPACED
        if self.keeps_spaces:
            return (left[:-1], Place.SPACED) if left.endswith(" ") else (left, Place.GLUED)
        if left and (left[-1].isspace() or not self._is_inside_word(left[-1], "a")):
            return left, Place.SPACED
        return left, Place.GLUED

    def place_of_text(self, text: str) -> Place:
        """Return the place of a prompt's words that directly follow a filled blank."""
        return Place.SPACED if self.stands_alone(text) else Place.GLUED

    def stands_alone(self, text: str) -> bool:
        """Return whether the tokenizer cuts before a text even where it is glued to a letter, as WordPiece's does
        before a bracket: the text then has the same form everywhere."""
        first = text[:1]
        if first not in self._alone:
            self._alone[first] = not self.keeps_spaces and not self._is_inside_word("a", first)
        return self._alone[first]

    def _is_inside_word(self, left: str, right: str) -> bool:
        pre_tokenizer = self._words.pre_tokenizer
        return pre_tokenizer is None or len(pre_tokenizer.pre_tokenize_str(left + right)) == 1

    def _encode_all_inside_words(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts whose first words continue what comes before them."""
        cut = [("", text) if text[:1].isspace() else self._cut_first_word(text) for text in texts]
        first_words = list(dict.fromkeys(first for first, _ in cut if first))
        inside = dict(zip(first_words, _ids(self._inside_word, first_words), strict=True))
        rests = _ids(self._words, [rest for _, rest in cut])
        return [
            inside[first] + (ids if rest.strip() else []) if first else ids
            for (first, rest), ids in zip(cut, rests, strict=True)
        ]

    def _cut_first_word(self, text: str) -> tuple[str, str]:
        """Return the normalised text's first word, if it continues what comes before it, and the rest of the text."""
        if self._words.normalizer is not None:
            text = self._words.normalizer.normalize_str(text)
        if not text or text[0].isspace() or self.stands_alone(text):
            return "", text
        first_word = text.split(maxsplit=1)[0]
        if self._inside_word is not self._as_written and self._words.pre_tokenizer is not None:
            first_word = self._words.pre_tokenizer.pre_tokenize_str(text)[0][0]  # up to the first punctuation
        return first_word, text[len(first_word) :]


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]


def _without_special_tokens(description: dict[str, Any]) -> dict[str, Any]:
    """Return the tokenizer that reads special tokens in the text as text: facts are data, not instructions to the
    LM."""
    special = {token["content"] for token in description["added_tokens"] if token["special"]}
    model = description["model"]
    if model["type"] == "Unigram":  # it finds its special pieces in the text by itself: no text spells these names
        model = model | {
            "vocab": [
                [f"\0{number}" if piece in special else piece, score]
                for number, (piece, score) in enumerate(model["vocab"])
            ]
        }
    return description | {
        "model": model,
        "added_tokens": [token for token in description["added_tokens"] if not token["special"]],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }


def _without_added_prefix(description: dict[str, Any]) -> dict[str, Any]:
    """Return the tokenizer without the space that it adds before a text."""

    def strip(part: Any) -> Any:
        if isinstance(part, list):
            return [strip(item) for item in part if not (isinstance(item, dict) and item.get("type") == "Prepend")]
        if isinstance(part, dict):
            if part.get("type") == "Prepend":
                return None
            part = {key: strip(value) for key, value in part.items()}
            if part.get("type") == "ByteLevel":
                part["add_prefix_space"] = False
            if part.get("type") == "Metaspace":
                part["prepend_scheme"] = "never"
        return part

    return description | {key: strip(description[key]) for key in ("normalizer", "pre_tokenizer")}


def _inside_word(words: Tokenizer, description: dict[str, Any]) -> Tokenizer | None:
    """Return a tokenizer of WordPiece's continuation forms: its vocabulary is that of the ## pieces."""
    model = description["model"]
    if model["type"] != "WordPiece":
        return None
    mark = model["continuing_subword_prefix"]
    pieces = {token.removeprefix(mark): id_ for token, id_ in model["vocab"].items() if token.startswith(mark)}
    pieces.setdefault(model["unk_token"], model["vocab"][model["unk_token"]])
    inside = Tokenizer(WordPiece(pieces, unk_token=model["unk_token"], continuing_subword_prefix=""))
    inside.pre_tokenizer = words.pre_tokenizer
    return inside


def _marker(description: dict[str, Any]) -> tuple[str, Place]:
    if description["model"]["type"] == "WordPiece":
        return description["model"]["continuing_subword_prefix"], Place.GLUED
    parts = json.dumps([description["pre_tokenizer"], description["decoder"]])
    return ("Ġ" if '"ByteLevel"' in parts else "▁"), Place.SPACED


def _special_tokens_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a", add_special_tokens=True)["input_ids"]
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return framed[:start], framed[start + len(plain) :]
    raise LMUnavailable(f"the tokenizer {type(tokenizer).__name__} changes a text when it adds special tokens")


class SpecialTokens:
    """Special tokens by their purpose; one that the LM lacks is an error when it is needed."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> None:
        self._mask, self._kind = tokenizer.mask_token_id, config.model_type
        self._decoder_start = getattr(config, "decoder_start_token_id", None)
        self.bos: int | None = tokenizer.bos_token_id
        """The token that begins a text, if there is one."""
        self.eos: int | None = tokenizer.eos_token_id
        """The token that ends a text, if there is one."""

    @property
    def mask(self) -> int:
        """Return the mask token."""
        return self._need(self._mask, "mask token")

    @property
    def text_start(self) -> int:
        """Return BOS, or EOS where there is no BOS."""
        return self._need(self.eos if self.bos is None else self.bos, "BOS or EOS token")

    @property
    def text_end(self) -> int:
        """Return the token that ends a text."""
        return self._need(self.eos, "EOS token")

    def text_end_or(self, line_break: int | None) -> int:
        """Return the token that ends a text, or a line break where the LM has none."""
        return self._need(line_break if self.eos is None else self.eos, "EOS token or line break")

    @property
    def decoder_start(self) -> int:
        """Return the token with which a seq2seq decoder starts."""
        return self._need(self._decoder_start, "decoder_start_token_id")

    def _need(self, token: int | None, what: str) -> int:
        if token is None:
            raise LMUnavailable(f"this LM ({self._kind}) has no {what}, which is needed to ask it")
        return token


@dataclass(frozen=True)
class Beginning:
    """What a sentence begins with: tokens that are never tuned, and the place of what follows them."""

    tokens: tuple[int, ...] = ()
    """After the special tokens that the tokenizer itself puts first."""
    place: Place = Place.SPACED


WITH_A_SPACE = Beginning()


@dataclass(frozen=True)
class Opening:
    """What comes before a prompt's sentence and is part of the prompt: free tokens, a lead-in, written-out examples.

    Texts are split at filled blanks, since what fills a blank never merges with the words around it.
    """

    tokens: tuple[int, ...] = ()
    """Tokens that come first, whatever they spell."""
    filled: tuple[tuple[str, str], ...] = ()
    """Texts, each with what fills the blank after it."""
    text: str = ""
    """The text after the last of them, up to the sentence."""
    closing: str = ""
    """What follows y if the sentence is one of several, with the separator before the next; otherwise ""."""
    is_shared: bool = False
    """Whether other sentences follow the same opening, so that none of its tokens may reach into the sentence."""


NO_OPENING = Opening()


@dataclass(frozen=True)
class PromptTokens:
    """The prompt tokens around the two blanks, and the form in which each blank is to be filled."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    x_first: bool
    x_place: Place
    y_place: Place
    beginning: Beginning = WITH_A_SPACE
    opening: int = 0
    """How many of the tokens come before the sentence itself."""
    sentences: tuple[int, ...] = ()
    """At which tokens a further sentence begins: each example except the first, and the question after them."""
    closing: tuple[int, ...] = ()
    """How a sentence continues after its second blank if others follow it; empty if none does."""
    is_opening_shared: bool = False
    """Whether other prompts have the same opening, with the same vectors."""


def tokenise(
    template: Template, wording: Wording, beginning: Beginning = WITH_A_SPACE, opening: Opening = NO_OPENING
) -> PromptTokens:
    """Return the tokens of a template in a sentence with this beginning, after its opening."""
    before = list(opening.tokens)
    start: Place | None = Place.SPACED if opening.tokens else beginning.place
    sentences = []
    for number, (text, filler) in enumerate(opening.filled):
        tokens, place = _stretch(wording, text, start)
        if number and number % 2 == 0:  # an example has two blanks
            sentences.append(len(before) + len(_stretch(wording, opening.text, None)[0]))
        before += [*tokens, *wording.encode(filler, place)]
        start = None
    if opening.is_shared:
        tokens, start = _stretch(wording, opening.text, start)
        before += tokens
    text = template.before if opening.is_shared else opening.text + template.before
    tokens, first_place = _stretch(wording, text, start)
    before += tokens
    between, second_place = _stretch(wording, template.between, None)
    x_place, y_place = (first_place, second_place) if template.x_first else (second_place, first_place)
    alone = before
    if opening.is_shared:
        alone = tokens
    elif opening != NO_OPENING:
        alone = _stretch(wording, template.before, _stretch(wording, opening.text, start)[1])[0]
    own = max(0, len(before) - len(alone))
    return PromptTokens(
        before=tuple(before),
        between=tuple(between),
        after=tuple(_encode(wording, template.after, wording.place_of_text(template.after))),
        x_first=template.x_first,
        x_place=x_place,
        y_place=y_place,
        beginning=beginning,
        opening=own,
        sentences=(*sentences, own) if opening.filled else (),
        closing=tuple(_encode(wording, opening.closing, wording.place_of_text(opening.closing))),
        is_opening_shared=opening.is_shared,
    )


def _stretch(wording: Wording, text: str, start: Place | None) -> tuple[list[int], Place]:
    """Return the tokens of a text, and the place of what follows it; it begins a sentence at the place `start`, or
    directly follows a filled blank if that is None."""
    if start is not None and not text:
        return [], start
    written, place = wording.place_after(text)
    return _encode(wording, written or "", wording.place_of_text(text) if start is None else start), place


def _encode(wording: Wording, text: str, place: Place) -> list[int]:
    return wording.encode(text, place) if text else []
