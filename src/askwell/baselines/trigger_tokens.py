"""The tokens of an LM that may stand in a searched prompt."""

from collections import Counter

import torch
from jaxtyping import Bool
from torch import Tensor

from askwell.baselines.hard_prompt import begins_word, word_of
from askwell.errors import NothingLeft
from askwell.facts import Relation
from askwell.lms import FrozenLM
from askwell.lms.assemble import PLACES
from askwell.lms.wording import Place
from askwell.mixture.answers import token_text
from askwell.specs import AutoPromptSpec


def allowed_tokens(lm: FrozenLM, relation: Relation, spec: AutoPromptSpec) -> Bool[Tensor, " words"]:
    """For each word vector of the LM whether its token may be a trigger; special tokens never are."""
    reasons: Counter[str] = Counter()
    allowed = torch.zeros(lm.word_count, dtype=torch.bool)
    special, of_ys = _special(lm), set() if spec.allow_ys else _tokens_of_ys(lm, relation)
    for token, name in enumerate(lm.tokenizer.convert_ids_to_tokens(list(range(lm.word_count)))):
        reason = None
        if not isinstance(name, str):
            reason = "no token of the tokenizer"
        elif token in special:
            reason = "a special token"
        elif token in of_ys:
            reason = "a right answer (--allow-ys)"
        elif not spec.allow_proper_nouns and begins_word(lm, token) and word_of(lm, token)[:1].isupper():
            reason = "begins with a capital letter (--allow-proper-nouns)"
        elif spec.whole_words and lm.wording.encode(token_text(lm, token), Place.SPACED) != [token]:
            reason = "not a whole word (--whole-words)"
        allowed[token] = reason is None
        if reason is not None:
            reasons[reason] += 1
    if not allowed.any():
        raise NothingLeft("trigger tokens", reasons)
    return allowed.to(lm.device)


def _special(lm: FrozenLM) -> set[int]:
    added = {token for token, content in lm.tokenizer.added_tokens_decoder.items() if content.special}
    return added | set(lm.tokenizer.all_special_ids)


def _tokens_of_ys(lm: FrozenLM, relation: Relation) -> set[int]:
    """The tokens that spell a right answer of the relation in any form, whether in small or capital letters."""
    ys = {y for golds in relation.golds.values() for y in golds}
    words = {y.casefold() for y in ys}
    in_their_places = {lm.wording.single_token(y, place) for y in ys for place in PLACES}
    alike = {token for token in range(lm.word_count) if token_text(lm, token).casefold() in words}
    return alike | {token for token in in_their_places if token is not None}
