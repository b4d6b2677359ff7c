"""Tiny public models with real tokenizers, built in memory, so that no test downloads anything.

Every model is random but seeded, and far from uniform: weights are drawn wide, and biases, norms and BART's
`final_logits_bias` are not left at 0 or 1, so that code which forgets one of them gives other numbers.

The same words are in every vocabulary, in these forms ("glued": with nothing before it, as after a bracket or at
the start of a text; "spaced": with the space before it, as in the middle of a sentence):

- BOTH is one token in both forms; SPACED only in the spaced form; GLUED only in the glued form.
- SPLIT is several tokens in either form.

WordPiece (bert, distilbert, electra) does not tell the two forms apart, so there BOTH, SPACED and GLUED are all one
token. ALBERT's tokenizer lower-cases, as the public one does.
"""

from collections.abc import Callable
from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import Any, Literal, TypeVar

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
)

BOTH = ["Paris", "France", "Rome", "Lima", "Quito"]
SPACED_NAMES = ["Italy", "Berlin", "Germany", "Oslo", "Norway", "Peru", "Spain", "Vienna", "Austria", "Egypt", "Mary"]
SPACED_WORDS = ["is", "the", "The", "capital", "of", "in", "was", "born", "lies", "city", "a", "and", "from", "its"]
SPACED = SPACED_NAMES + SPACED_WORDS
GLUED = ["Cuba", "Havana"]
PUNCTUATION = [",", ".", "(", ")", ";", ":", "!", "?", "-"]
"""One token glued and spaced."""
SPLIT = {
    "Reykjavik": ["Rey", "kja", "vik"],
    "Massachusetts": ["Mass", "achus", "etts"],
    "Iceland": ["Ice", "land"],
    "Cassatt": ["Cass", "att"],
    "Boston": ["Bost", "on"],
}
"""Words of several tokens, and their pieces."""

POSITIONS = 64
Family = Literal["masked", "seq2seq", "causal"]
TinyLM = tuple[PreTrainedModel, PreTrainedTokenizerFast]
Model = TypeVar("Model", bound=PreTrainedModel)


def _seeded(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """The model with all its weights drawn anew, in eval mode."""
    generator = torch.Generator().manual_seed(seed)

    def normal(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator)

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.35 * normal(parameter))
            elif name.endswith("weight"):  # of a normalisation
                parameter.copy_(1 + 0.1 * normal(parameter))
            else:
                parameter.copy_(0.1 * normal(parameter))
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(0.5 * normal(buffer))
    return model.eval()


# Tokenizers


def _wordpiece() -> BertTokenizer:
    characters = ascii_letters + digits + punctuation
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    tokens += [f"##{character}" for character in ascii_letters + digits]
    tokens += BOTH + SPACED + GLUED
    for first, *rest in SPLIT.values():
        tokens += [first, *(f"##{piece}" for piece in rest)]
    return BertTokenizer(vocab=_numbered(tokens), do_lower_case=False)


def _unigram() -> AlbertTokenizer:
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"▁{word}" for word in BOTH + SPACED + PUNCTUATION] + BOTH + GLUED
    pieces = [piece for first, *rest in SPLIT.values() for piece in (f"▁{first}", *rest)]
    characters = ["▁", *ascii_letters, *digits, *punctuation]
    scores: dict[str, float] = dict.fromkeys(specials, 0.0)
    for score, group in ((-3.0, words), (-5.0, pieces), (-9.0, characters)):
        for token in group:
            scores.setdefault(token.lower(), score)
    return AlbertTokenizer(vocab=list(scores.items()))


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _merges(space: str) -> list[tuple[str, str]]:
    """BPE merges that build the words above, letter by letter from the left, where `space` is the sign of a space.

    Earlier merges win. So the glued words come first, then the merge of a space with a whole glued word, then the words
    that are only ever built from their space on.
    """
    merges: dict[tuple[str, str], None] = {}

    def build(start: str, letters: str) -> None:
        for letter in letters:
            merges[start, letter] = None
            start += letter

    for word in BOTH + GLUED:
        build(word[0], word[1:])
    for word in BOTH:
        merges[space, word] = None
    for word in SPACED + PUNCTUATION:
        build(space, word)
    for first, *rest in SPLIT.values():
        build(space, first)
        for piece in rest:
            build(piece[0], piece[1:])
    return list(merges)


def _byte_level_bpe(first: list[str], last: list[str]) -> tuple[dict[str, int], Any]:
    """Vocabulary and merges (pairs, which transformers takes but does not declare), with the special tokens around."""
    merges = _merges("Ġ")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _numbered([*first, *alphabet, *("".join(pair) for pair in merges), *last]), merges


def _between_ends(tokenizer_class: type) -> Any:
    """The tokenizer of RoBERTa or BART, which puts a sentence between <s> and </s>."""
    vocab, merges = _byte_level_bpe(["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"])
    return tokenizer_class(vocab=vocab, merges=merges, mask_token=AddedToken("<mask>", lstrip=True, special=True))


def gpt2_tokenizer() -> GPT2Tokenizer:
    vocab, merges = _byte_level_bpe([], ["<|endoftext|>"])
    return GPT2Tokenizer(vocab=vocab, merges=merges)


def modernbert_tokenizer() -> PreTrainedTokenizerFast:
    vocab, merges = _byte_level_bpe([], ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token=AddedToken("[MASK]", lstrip=True, special=True),
        model_input_names=["input_ids", "attention_mask"],
    )


def _llama3_tokenizer() -> PreTrainedTokenizerFast:
    vocab, merges = _byte_level_bpe([], ["<|begin_of_text|>", "<|end_of_text|>"])
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", vocab["<|begin_of_text|>"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
        model_input_names=["input_ids", "attention_mask"],
    )


def _metaspace_tokenizer() -> LlamaTokenizer:
    merges = _merges("▁")
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    characters = ["▁", *ascii_letters, *digits, *punctuation]
    tokens = ["<unk>", "<s>", "</s>", *every_byte, *("".join(pair) for pair in merges), *characters]
    return LlamaTokenizer(vocab=_numbered(tokens), merges=merges, add_bos_token=True)


# Models

_SHAPE = {"hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": POSITIONS}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def build(
    model: type, config: type, tokenizer: PreTrainedTokenizerFast, seed: int, ids: str = "pad", /, **options: Any
) -> TinyLM:
    """A seeded model of a class; `ids` names the tokenizer's special tokens that its config has."""
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ids.split()}
    return _seeded(model(config(vocab_size=len(tokenizer), **special, **options)), seed), tokenizer


def make_bert() -> TinyLM:
    return build(BertForMaskedLM, BertConfig, _wordpiece(), 1, num_hidden_layers=3, **_SHAPE, **_NO_DROPOUT)


def make_roberta() -> TinyLM:
    options = {"num_hidden_layers": 2, "type_vocab_size": 1, **_SHAPE, **_NO_DROPOUT}
    options["max_position_embeddings"] = POSITIONS + 2  # positions begin after the pad token's number
    return build(RobertaForMaskedLM, RobertaConfig, _between_ends(RobertaTokenizer), 2, "pad bos eos", **options)


def make_distilbert() -> TinyLM:
    shape = {"dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 40, "max_position_embeddings": POSITIONS}
    return build(DistilBertForMaskedLM, DistilBertConfig, _wordpiece(), 3, **shape, dropout=0.0, attention_dropout=0.0)


def make_albert() -> TinyLM:
    """One shared block, called three times; embeddings smaller than hidden states."""
    options = {"embedding_size": 16, "num_hidden_layers": 3, "num_hidden_groups": 1, "inner_group_num": 1, **_SHAPE}
    return build(AlbertForMaskedLM, AlbertConfig, _unigram(), 4, "pad bos eos", **options, **_NO_DROPOUT)


def make_electra() -> TinyLM:
    """A generator whose embeddings are larger than its hidden states."""
    options = {**_SHAPE, "embedding_size": 28, "hidden_size": 20, "num_hidden_layers": 2}
    return build(ElectraForMaskedLM, ElectraConfig, _wordpiece(), 5, **options, **_NO_DROPOUT)


def make_modernbert(seed: int = 6, window: int = 3, **options: Any) -> TinyLM:
    """Two of the three layers see only this many tokens to each side."""
    tokenizer = modernbert_tokenizer()
    ends = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    shape = {**_SHAPE, "num_hidden_layers": 3, "local_attention": 2 * window}
    return build(ModernBertForMaskedLM, ModernBertConfig, tokenizer, seed, "pad cls sep", **ends, **shape, **options)


def make_bart(scale_embedding: bool = False) -> TinyLM:
    """Encoder and decoder differ in depth."""
    tokenizer = _between_ends(BartTokenizer)
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"d_model": 24, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": POSITIONS}
    dropout = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    ends = {"decoder_start_token_id": tokenizer.eos_token_id, "forced_eos_token_id": None}
    options = {"encoder_layers": 2, "decoder_layers": 3, "scale_embedding": scale_embedding, **heads, **widths, **ends}
    return build(BartForConditionalGeneration, BartConfig, tokenizer, 7, "pad bos eos", **options, **dropout)


def make_bart_scaled() -> TinyLM:
    """The weights of `make_bart`, but word embeddings are multiplied by the square root of their size."""
    return make_bart(scale_embedding=True)


def make_gpt2() -> TinyLM:
    """No pad token, and no special token is added to a text."""
    shape = {"n_embd": 24, "n_layer": 3, "n_head": 2, "n_inner": 40, "n_positions": POSITIONS}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return build(GPT2LMHeadModel, GPT2Config, gpt2_tokenizer(), 8, "bos eos", **shape, **dropout)


def _make_llama(tokenizer: PreTrainedTokenizerFast, seed: int, *, tied: bool) -> TinyLM:
    shape = {**_SHAPE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    options = {"attention_dropout": 0.0, "tie_word_embeddings": tied}
    return build(LlamaForCausalLM, LlamaConfig, tokenizer, seed, "bos eos", **shape, **options)


def make_llama() -> TinyLM:
    """As Llama 3.2: byte-level BPE, a begin-of-text token at the start, embeddings shared with the head, no pad."""
    return _make_llama(_llama3_tokenizer(), 9, tied=True)


def make_llama_metaspace() -> TinyLM:
    """As Llama 2: "▁" for the space, bytes for unknown characters, a separate head, no pad."""
    return _make_llama(_metaspace_tokenizer(), 10, tied=False)


TINY: dict[str, Callable[[], TinyLM]] = {
    "bert": make_bert,
    "roberta": make_roberta,
    "distilbert": make_distilbert,
    "albert": make_albert,
    "electra": make_electra,
    "modernbert": make_modernbert,
    "bart": make_bart,
    "bart-scaled": make_bart_scaled,
    "gpt2": make_gpt2,
    "llama": make_llama,
    "llama-metaspace": make_llama_metaspace,
}

FAMILY: dict[str, Family] = dict.fromkeys(TINY, "masked")
FAMILY |= dict.fromkeys(("bart", "bart-scaled"), "seq2seq")
FAMILY |= dict.fromkeys(("gpt2", "llama", "llama-metaspace"), "causal")


def as_class(kind: type[Model], model: PreTrainedModel, **options: Any) -> Model:
    """A new model of another class with the model's config."""
    build: Any = kind
    return build(model.config, **options)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path | str) -> None:
    """Write an LM as `from_pretrained` reads it."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
