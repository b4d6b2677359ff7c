"""Where askwell keeps what it has pulled."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder, whether it is there or not: ASKWELL_CACHE, or askwell in the user's cache folder."""
    own = os.environ.get("ASKWELL_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "askwell"
