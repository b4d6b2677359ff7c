"""A cache of loaded LMs with their mixtures; the least recently used make room for others.

Only one thread at a time may use what is here.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from askwell.answers.asking import AskedTogether
from askwell.errors import LMUnavailable
from askwell.lms.checkpoints import built_in_folder
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture

K = TypeVar("K")
V = TypeVar("V")
_MIXTURES_OF_AN_LM = 64
_GROUPS_OF_AN_LM = 32


@dataclass(frozen=True)
class LMSource:
    """Where an LM can be loaded from."""

    name: str
    revision: str | None = None
    tokenizer: str | None = None


@dataclass(frozen=True)
class Askable:
    """A mixture that can be built on its LM."""

    key: tuple[str, ...]
    """Differs whenever the content differs."""
    lm: LMSource
    build: Callable[[FrozenLM], Mixture]


class LoadedLM:
    """An LM, and the mixtures that were used most recently."""

    def __init__(self, lm: FrozenLM) -> None:
        self.lm = lm
        self.bytes = sum(one.numel() * one.element_size() for one in (*lm.model.parameters(), *lm.model.buffers()))
        self._mixtures: OrderedDict[tuple[str, ...], Mixture] = OrderedDict()
        self._groups: OrderedDict[tuple[tuple[str, ...], ...], AskedTogether] = OrderedDict()

    def mixture(self, askable: Askable) -> Mixture:
        """Return the mixture, which is built if it is not in the cache."""
        if askable.key not in self._mixtures:
            self._mixtures[askable.key] = askable.build(self.lm).requires_grad_(False)
        return _recent(self._mixtures, askable.key, _MIXTURES_OF_AN_LM)

    def together(self, askables: Sequence[Askable]) -> AskedTogether:
        """Return these mixtures as a group that is asked together."""
        # A mixture that is not asked costs nothing, so a larger group that includes these can be used.
        for keys in reversed(self._groups):
            if all(one.key in keys for one in askables) and len(keys) <= 2 * len(askables):
                return _recent(self._groups, keys, _GROUPS_OF_AN_LM)
        keys = tuple(one.key for one in askables)
        self._groups[keys] = AskedTogether([self.mixture(one).answering() for one in askables])
        return _recent(self._groups, keys, _GROUPS_OF_AN_LM)


class LoadedLMs:
    """LMs that stay loaded while their weights fit into a given number of bytes."""

    def __init__(self, limit: int, load: Callable[..., FrozenLM] = load_lm) -> None:
        self._limit, self._load = limit, load
        self._lms: OrderedDict[LMSource, LoadedLM] = OrderedDict()

    def get(self, source: LMSource) -> LoadedLM:
        """Return the LM, which is loaded if it is not in the cache; others make room for it."""
        if source not in self._lms:
            self._make_room(_size_on_disk(source))
            loaded = LoadedLM(self._loaded(source))
            if loaded.bytes > self._limit:
                raise LMUnavailable(
                    f"{source.name} takes {loaded.bytes / 2**20:.0f} MiB, but LMs may take {self._limit / 2**20:.0f} "
                    "MiB here; raise the limit with: askwell serve --memory GIB"
                )
            self._make_room(loaded.bytes)
            self._lms[source] = loaded
        self._lms.move_to_end(source)
        return self._lms[source]

    def _loaded(self, source: LMSource) -> FrozenLM:
        try:
            return self._load(source.name, revision=source.revision, tokenizer=source.tokenizer)
        except LMUnavailable as error:  # clients are not told the paths of this machine
            name = Path(source.name).name if Path(source.name).is_absolute() else source.name
            raise LMUnavailable(str(error).replace(source.name, name)) from error

    @property
    def names(self) -> list[str]:
        """The names of the loaded LMs, the most recently used last."""
        return [source.name for source in list(self._lms)]

    @property
    def bytes(self) -> int:
        """Their size in memory."""
        return sum(loaded.bytes for loaded in list(self._lms.values()))

    def _make_room(self, needed: int) -> None:
        while self._lms and self.bytes + needed > self._limit:
            self._lms.popitem(last=False)


def _size_on_disk(source: LMSource) -> int:
    """Return the size of an LM's weights in a local folder; 0 if it is unknown."""
    folder = built_in_folder(source.name) or Path(source.name)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else 0


def _recent(kept: OrderedDict[K, V], key: K, most: int) -> V:
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]
