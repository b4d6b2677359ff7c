"""The LM's tokens as a person reads them, and which of them are never part of an answer."""

from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place


def special_tokens(lm: FrozenLM) -> list[int]:
    """Return the tokens that are never part of an answer, such as [UNK], as far as the LM's distribution has them."""
    special = {token for token, added in lm.tokenizer.added_tokens_decoder.items() if added.special}
    return sorted(token for token in special | {*lm.tokenizer.all_special_ids} if token < lm.vocabulary_size)


def token_text(lm: FrozenLM, token: int) -> str:
    """Return a token as a person would read it."""
    name = lm.tokenizer.convert_ids_to_tokens(token)
    if not isinstance(name, str):
        return f"<{token}>"
    if lm.wording.marks is Place.GLUED:
        return name.removeprefix(lm.wording.marker)
    text = lm.tokenizer.convert_tokens_to_string([name])
    return text.strip() or name
