"""Invented names: every kind of thing has a form of its own, and no name is a word of another."""

from collections.abc import Callable, Iterator
from random import Random

_ONSETS = (
    "b", "br", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "r", "s", "sk", "st", "t", "tr", "v", "w",
    "z",
)  # fmt: skip
_VOWELS = ["a", "e", "i", "o", "u", "ae", "ei", "ou"]
_CODAS = ["l", "n", "r", "s", "t", "k", "m", "nd", "rk", "sk", "lm"]


def roots(seed: str) -> Iterator[str]:
    """Yield different made-up words of two syllables, in capitals, without end."""
    random, seen = Random(f"roots {seed}"), set[str]()
    while True:
        first = random.choice(_ONSETS) + random.choice(_VOWELS)
        second = random.choice(_ONSETS) + random.choice(_VOWELS[:5]) + random.choice(_CODAS)
        root = (first + second).capitalize()
        if root not in seen:
            seen.add(root)
            yield root


FORMS: dict[str, Callable[[str, Random], str]] = {
    "port": lambda root, random: root + random.choice(("haven", "mouth", "quay")),
    "hills": lambda root, random: f"{root} {random.choice(('Hills', 'Fells', 'Downs'))}",
    "old": lambda root, random: root + random.choice(("acum", "ium", "opolis")),
    "halt": lambda root, random: f"{root} {random.choice(('Halt', 'Junction', 'Road'))}",
    "captain": lambda root, random: f"{random.choice(('Captain', 'Admiral'))} {root}",
    "doctor": lambda root, random: f"{random.choice(('Doctor', 'Professor'))} {root}",
    "saint": lambda root, random: f"{random.choice(('Saint', 'Blessed'))} {root}",
    "sisters": lambda root, random: f"{root} {random.choice(('Sisters', 'Twins'))}",
}
"""How an x of each kind is called."""

WARES = (
    "Amber", "Barley", "Cedar", "Copper", "Cotton", "Flax", "Ginger", "Honey", "Indigo", "Iron", "Ivory", "Leather",
    "Linen", "Marble", "Oil", "Paper", "Pearl", "Pepper", "Salt", "Silk", "Sugar", "Tea", "Tobacco", "Wine",
)  # fmt: skip

LENGTHS = (1, 2, 1, 3, 1, 2, 1, 4)
"""How many words, and so tokens, the names of people have, in turn."""


def places(words: Iterator[str], one_word: int, two_words: int) -> list[str]:
    """Return names of places of one word, then of two."""
    single = [next(words) for _ in range(one_word)]
    return single + [f"{front} {next(words)}" for front in ("Upper", "Lower", "Free") for _ in range(two_words // 3)]


def people(words: Iterator[str], count: int, random: Random) -> list[str]:
    """Return different names of people, of one to four words; a name of one word is no word of a longer one."""
    parts = [next(words) for _ in range(90)]
    names: dict[str, None] = {}
    while len(names) < count:
        length = LENGTHS[len(names) % len(LENGTHS)]
        names[next(words) if length == 1 else " ".join(random.sample(parts, length))] = None
    return list(names)


def codes(count: int, random: Random) -> list[str]:
    """Return different codes of four capitals; byte-level BPE would cut one with digits in two."""
    letters = "BCDFGHJKLMNPQRSTVWXZ"
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(random.choice(letters) for _ in range(4))] = None
    return list(found)
