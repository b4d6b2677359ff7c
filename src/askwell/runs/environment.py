"""What a run was made with. It names no path, no machine and no user."""

import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from askwell.version import VERSION


@cache
def environment() -> dict[str, Any]:
    """Versions, platform, and the git hash of askwell where it runs from a work tree ("+" marks changed files)."""
    return {
        "askwell": VERSION,
        "git": _git_hash(Path(__file__).parent.parent),
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "platform": f"{sys.platform} {platform.machine()}",
    }


def _git_hash(folder: Path) -> str | None:
    tracked = _git(folder, "ls-files", "version.py")
    if not tracked:  # askwell is installed, perhaps below somebody else's work tree
        return None
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--", ".")
    return f"{commit}{'+' if changes else ''}" if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None if there is no git, or it refuses."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
