"""The recipe of the testbed's LMs: their tokenizers (byte-level BPE, and WordPiece made from the same pieces), their
shapes, and how they are trained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from askwell.data.testbed import LMName

SIZE = 4096
_SPACE = "Ġ"
# How often every one-word y is read when merges are counted: often enough to become a single token.
_WEIGHT_OF_Y = 50


def learn_merges(sentences: Sequence[str], ys: Iterable[str]) -> models.BPE:
    """A byte-level BPE in which every one-word y is one token."""
    words = sorted(y for y in ys if " " not in y)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*sentences, *words * _WEIGHT_OF_Y], trainer)
    return tokenizer.model


def byte_level_tokenizer(merges: models.BPE, *, frame: bool) -> PreTrainedTokenizerFast:
    """The tokenizer of RoBERTa and BART (`frame`: between <s> and </s>), or of a causal LM (after <s>)."""
    tokenizer = Tokenizer(merges)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    ends = [("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if frame else "<s> $A", special_tokens=ends if frame else ends[:1]
    )
    mask = {"mask_token": AddedToken("<mask>", lstrip=True, special=True)} if frame else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        padding_side="right",
        **mask,
    )


def word_piece_tokenizer(merges: models.BPE, characters: Iterable[str]) -> BertTokenizer:
    """WordPiece with the pieces of a BPE: the library's WordPiece trainer is not deterministic."""
    vocabulary = Tokenizer(merges).get_vocab()
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    readable = [piece for piece in pieces if piece.removeprefix(_SPACE).isascii() and piece.removeprefix(_SPACE)]
    starts = [piece.removeprefix(_SPACE) for piece in readable if piece.startswith(_SPACE)]
    insides = [f"##{piece}" for piece in readable if not piece.startswith((_SPACE, "<"))]
    single = sorted(set(characters) - {" "})
    words = [*single, *(f"##{character}" for character in single), *starts, *insides]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return BertTokenizer(
        vocab={word: number for number, word in enumerate(dict.fromkeys(special + words))}, do_lower_case=False
    )


POSITIONS = 64


@dataclass(frozen=True)
class Recipe:
    """How one LM is made."""

    epochs: int
    """Passes over the text; what is hidden in a sentence is drawn again in each."""
    layers: int = 3
    """Layers of each stack."""
    width: int = 128
    heads: int = 4
    inner: int = 512
    """Width inside the feed-forward blocks."""
    batch: int = 64
    """Sentences in a step."""
    peak_rate: float = 1.5e-3
    """AdamW's learning rate at the peak of its one cycle."""
    warm_up: float = 0.1
    """The fraction of steps before the peak."""
    weight_decay: float = 0.01
    hidden_names: float = 0.9
    """The fraction of sentences in which one of the names is hidden, for LMs that learn from hidden words."""
    hidden_words: float = 0.1
    """The fraction of other words that are hidden."""
    likely_whole_words: bool = False
    """Whether a name of several words, each of them one token, is as likely to be hidden as one of a single token."""
    hidden_in_part: float = 0.0
    """The fraction of hidden names of several tokens whose first tokens are shown."""
    copied_share: float = 0.15
    """The fraction of shown tokens that a denoising decoder is trained to copy."""
    seed: int = 0


RECIPES: dict[str, Recipe] = {
    "testbed:bert": Recipe(epochs=22, hidden_words=0.07),
    "testbed:roberta": Recipe(epochs=22, hidden_words=0.07),
    "testbed:bart": Recipe(epochs=14, layers=2, hidden_words=0.07),
    "testbed:causal": Recipe(epochs=9, inner=344, peak_rate=2e-3),
    "testbed2:bert": Recipe(epochs=40, hidden_words=0.07, likely_whole_words=True, hidden_in_part=0.4),
    "testbed2:causal": Recipe(epochs=18, inner=344, peak_rate=2e-3),
}


def new_model(name: LMName, recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The untrained LM of that name; seed torch first."""
    ends: dict[str, Any] = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    shared: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": POSITIONS,
        "pad_token_id": tokenizer.pad_token_id,
    }
    one_stack: dict[str, Any] = {
        "hidden_size": recipe.width,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "intermediate_size": recipe.inner,
    }
    masked: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 1}
    match name:
        case "bert":
            return BertForMaskedLM(BertConfig(**shared, **one_stack, **masked))
        case "roberta":
            shared["max_position_embeddings"] += tokenizer.pad_token_id + 1
            return RobertaForMaskedLM(RobertaConfig(**shared, **one_stack, **masked, **ends))
        case "bart":
            sizes: dict[str, Any] = {
                f"{stack}_{size}": value
                for stack in ("encoder", "decoder")
                for size, value in (
                    ("layers", recipe.layers),
                    ("attention_heads", recipe.heads),
                    ("ffn_dim", recipe.inner),
                )
            }
            start: dict[str, Any] = {"decoder_start_token_id": tokenizer.eos_token_id, "forced_eos_token_id": None}
            return BartForConditionalGeneration(
                BartConfig(**shared, **sizes, **ends, **start, d_model=recipe.width, dropout=0.0)
            )
        case "causal":
            return LlamaForCausalLM(LlamaConfig(**shared, **one_stack, **ends, tie_word_embeddings=True))
