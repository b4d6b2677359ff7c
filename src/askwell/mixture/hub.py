"""The methods that save and load mixtures in the same way as other models on the Hugging Face hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard, ModelHubMixin

from askwell.calls import checked
from askwell.lms.frozen import FrozenLM
from askwell.mixture.description import About

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture


class OnTheHub(ModelHubMixin):
    """`save_pretrained`, `from_pretrained` and `push_to_hub` of a mixture. `askwell.mixture.save` does the work; it is
    imported when it is needed, since it imports Mixture."""

    @classmethod
    def _is_jsonable(cls, value: Any) -> bool:  # noqa: ARG003 - the mixin's signature
        """Whether the mixin keeps an argument of the constructor for its own config.json, which is never written: it
        would copy every fact of a relation one by one."""
        return False

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        about: About | None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **hub_options: Any,
    ) -> str | None:
        """Saves the mixture in a folder, with what is known about it. With `push_to_hub`, also uploads it to the hub
        and returns its address there.

        The mixin's own method would remove the old config.json before the new one is written.
        """
        from askwell.mixture.save import save_mixture

        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        hub_options.pop("config", None)  # config.json is made from the mixture itself
        of_card = hub_options.pop("model_card_kwargs", None) or {}
        about = about or of_card.get("about")
        save_mixture(self._as_mixture, folder, about=about)
        return self.push_to_hub(repo_id or folder.name, about=about, **hub_options) if push_to_hub else None

    def push_to_hub(self, repo_id: str, *, about: About | None = None, **hub_options: Any) -> str:
        """Uploads the mixture and returns its address; the LM's path on this machine is not uploaded."""
        from askwell.mixture.save import LM_PATH, TOKENIZER_PATH

        # The mixin passes the card's options on to `save_pretrained`.
        hub_options |= {"ignore_patterns": [LM_PATH, TOKENIZER_PATH], "model_card_kwargs": {"about": about}}
        return super().push_to_hub(repo_id, **hub_options)

    @classmethod
    @checked
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, lm: FrozenLM | None = None, **hub_options: Any
    ) -> "Mixture":
        """The mixture in a folder or of a hub name, on its LM, which is loaded if it is not given.

        `hub_options` are huggingface_hub's: revision, token, cache_dir, force_download, local_files_only.
        """
        from askwell.mixture.save import load_mixture

        return load_mixture(pretrained_model_name_or_path, lm, **hub_options)

    def generate_model_card(self, *_args: Any, about: About | None = None, **_options: Any) -> ModelCard:
        """The model card: what the mixture asks, how well, and of which LM."""
        from askwell.mixture.card import model_card

        return model_card(self._as_mixture, about or About())

    @property
    def _as_mixture(self) -> "Mixture":
        from askwell.mixture.mixture import Mixture

        assert isinstance(self, Mixture)
        return self
