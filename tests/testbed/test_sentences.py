"""What is hidden in a sentence is hidden word by word, and batches hold every sentence once."""

import numpy as np
import torch
from train_lm import batches, choose_hidden, encode, new_tokenizer, with_one_mask_a_word, ys_of

from askwell.data.testbed import PREFIX

TEXT = ["Kupang is in Indonesia .", "we visited Lobaye last year .", "they speak Albanian in North Macedonia ."]


def encoded(name):
    tokenizer = new_tokenizer(name, TEXT, ys_of(PREFIX))
    return tokenizer, encode(TEXT, tokenizer)


def test_every_sentence_stands_in_one_batch():
    _, sentences = encoded("bert")
    found = torch.cat(list(batches(sentences, 2, np.random.default_rng(3))))
    assert sorted(found.tolist()) == [0, 1, 2]


def test_names_are_runs_of_words_in_capitals():
    tokenizer, sentences = encoded("roberta")
    spelled = {}
    for token, name in zip(sentences.ids[2].tolist(), sentences.names[2].tolist(), strict=True):
        spelled.setdefault(name, []).append(token)
    assert tokenizer.decode(spelled[0]).strip() == "Albanian"
    assert tokenizer.decode(spelled[1]).strip() == "North Macedonia"
    assert set(spelled) == {-1, 0, 1}


def hidden_words(sentences, hidden, row):
    """The words of a sentence that are hidden; fails if one is hidden in part."""
    by_word = {}
    for word, is_hidden in zip(sentences.words[row].tolist(), hidden[row].tolist(), strict=True):
        by_word.setdefault(word, set()).add(is_hidden)
    assert all(len(kinds) == 1 for kinds in by_word.values())
    assert by_word.pop(-1) == {False}
    return {word for word, kinds in by_word.items() if True in kinds}


def test_one_name_is_hidden_whole_and_no_sentence_shows_everything():
    _, sentences = encoded("bert")
    every, seen = torch.arange(len(TEXT)), set()
    for seed in range(60):
        hidden = choose_hidden(sentences, every, 1.0, 0.0, np.random.default_rng(seed))
        seen.add(frozenset(hidden_words(sentences, hidden, 2)))
        nothing_chosen = choose_hidden(sentences, every, 0.0, 0.0, np.random.default_rng(seed))
        assert all(len(hidden_words(sentences, nothing_chosen, row)) == 1 for row in range(len(TEXT)))
    assert seen == {frozenset({2}), frozenset({4, 5})}, "they speak [Albanian] in [North Macedonia] ."


def test_a_share_of_other_words_is_hidden():
    _, sentences = encoded("bert")
    draws = [choose_hidden(sentences, torch.arange(3), 1.0, 0.2, np.random.default_rng(seed)) for seed in range(400)]
    of_two_names = np.mean([1 in hidden_words(sentences, hidden, 0) for hidden in draws])  # "is", which is no name
    assert 0.16 < of_two_names < 0.24
    # "we" stands beside one name: half of the time that is hidden, else words are hidden thrice as often
    of_one_name = np.mean([0 in hidden_words(sentences, hidden, 1) for hidden in draws])
    assert 0.35 < of_one_name < 0.45


def test_the_only_name_of_a_sentence_is_hidden_half_as_often():
    _, sentences = encoded("bert")
    draws = [choose_hidden(sentences, torch.arange(3), 1.0, 0.9, np.random.default_rng(seed)) for seed in range(400)]
    assert 0.42 < np.mean([2 in hidden_words(sentences, hidden, 1) for hidden in draws]) < 0.58
    assert all(hidden_words(sentences, hidden, 0) & {0, 3} for hidden in draws)


def test_a_name_of_one_token_is_hidden_three_times_as_often_as_a_longer_one():
    _, sentences = encoded("roberta")
    assert (sentences.names[2] == 0).sum() == 1, "Albanian is a y, and so one token"
    assert (sentences.names[2] == 1).sum() > 1, "North Macedonia has two words"
    draws = [choose_hidden(sentences, torch.arange(3), 1.0, 0.0, np.random.default_rng(seed)) for seed in range(600)]
    assert 0.7 < np.mean([2 in hidden_words(sentences, hidden, 2) for hidden in draws]) < 0.8


def test_one_mask_stands_for_a_word_of_several_tokens():
    tokenizer, _ = encoded("bart")
    sentences = encode(["Quxwort is in Indonesia ."], tokenizer)
    assert (sentences.words[0] == 0).sum() > 1
    hidden = sentences.words == 0
    read = with_one_mask_a_word(sentences.ids, sentences.words, hidden, tokenizer.mask_token_id, tokenizer.pad_token_id)
    row = read[0][read[0] != tokenizer.pad_token_id].tolist()
    expected = [tokenizer.bos_token_id, tokenizer.mask_token_id]
    expected += [
        id_ for id_, word in zip(sentences.ids[0].tolist(), sentences.words[0].tolist(), strict=True) if word > 0
    ]
    assert row == [*expected, tokenizer.eos_token_id]


def test_names_of_whole_words_can_be_as_likely_as_those_of_one_token():
    tokenizer = new_tokenizer("bert", TEXT, {"Albanian", "North", "Macedonia"})
    sentences = encode(TEXT, tokenizer)
    assert (sentences.names[2] == 1).sum() == 2, "North Macedonia is two tokens"
    random = np.random.default_rng(0)
    draws = [choose_hidden(sentences, torch.tensor([2]), 1.0, 0.0, random, likely_whole_words=True) for _ in range(600)]
    assert 0.44 < np.mean([bool(hidden[0][sentences.names[2] == 1].all()) for hidden in draws]) < 0.56


def test_a_name_hidden_in_part_shows_its_first_tokens():
    _, sentences = encoded("roberta")
    name = sentences.names[2] == 1  # North Macedonia
    seen = set()
    for seed in range(200):
        hidden = choose_hidden(sentences, torch.tensor([2]), 1.0, 0.0, np.random.default_rng(seed), in_part=1.0)[0]
        if hidden[name].any():
            seen.add(tuple(hidden[name].tolist()))
    length = int(name.sum())
    assert seen == {tuple([False] * shown + [True] * (length - shown)) for shown in range(length)}
