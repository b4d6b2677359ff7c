"""The testbed's tokenizers, learned from its text: byte-level BPE, and WordPiece made from the same pieces."""

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertTokenizer, PreTrainedTokenizerFast

SIZE = 4096
_SPACE = "Ġ"
# So often is every one-word y read when merges are counted: often enough to become a token of its own.
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
    """WordPiece with the pieces of a BPE: the library's own WordPiece trainer does not give the same twice."""
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
