"""Try the oldest versions that the package's metadata promise: install them in a new environment, then tune and ask.

    python scripts/lowest_versions.py FOLDER [--python python3.11]

FOLDER is where the environment is made. torch is taken as pinned in the Makefile: its oldest builds for Linux bring
gigabytes of CUDA libraries. It needs uv, and writes what was installed to lowest_versions.md beside this file, above
its first section, which is kept by hand.
"""

import argparse
import os
import platform
import re
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTED = Path(__file__).with_suffix(".md")
SMOKE = (
    ("--version",),
    ("ask", "--lm", "testbed:bert", "--facts", "testbed:capital", "--prompts", "testbed:single", "France"),
    ("ask", "--lm", "testbed:causal", "--facts", "testbed:capital", "--prompts", "testbed:single", "France"),
    ("demo", "--quick", "--out", "demo"),
    ("report", "demo", "--out", "report", "--drawn", "1"),
    ("export", "demo", "--where", "setting = 'mixture'", "--out", "run.html"),
)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints; it must succeed."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    """Install, try, and write down what was tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="python3.11")
    parser.add_argument("--uv", default="uv")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run(given.python, "-m", "venv", folder / "venv")
    python, askwell = folder / "venv" / "bin" / "python", folder / "venv" / "bin" / "askwell"
    (torch,) = re.findall(r"torch==\S+", (ROOT / "Makefile").read_text())[:1]
    run(python, "-m", "pip", "install", "--quiet", torch)
    installed = run(python, "-c", "import torch; print(torch.__version__)").strip()
    kept = folder / "overrides.txt"
    kept.write_text("torch; sys_platform == 'never'\n")  # uv would replace a local build by the index's
    run(given.uv, "pip", "install", "--python", python, "--resolution", "lowest-direct", "--overrides", kept, ROOT)
    os.environ["ASKWELL_CACHE"] = str(folder / "cache")
    for arguments in SMOKE:
        run(askwell, *arguments, cwd=folder)
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[><=;\[ ]", one)[0] for one in promised]
    listing = run(given.uv, "pip", "freeze", "--python", python).lower().replace("_", "-")
    found = dict(re.findall(r"^([\w.-]+)==(\S+)$", listing, re.M)) | {"torch": installed}
    lines = [f"| {name} | {found[name.lower().replace('_', '-')]} |" for name in names]
    _, *kept_below = NOTED.read_text(encoding="utf-8").partition("\n## ") if NOTED.exists() else ("", "", "")
    NOTED.write_text(
        "# The oldest versions that were tried\n\n"
        f"`scripts/lowest_versions.py` installed these on {datetime.now(UTC):%Y-%m-%d} with Python "
        f"{run(python, '-V').split()[1]} ({platform.system()}, {platform.machine()}), and `askwell ask`, `demo "
        "--quick`, `report` and `export` worked. torch is not its oldest version: see the script.\n\n"
        "| package | version |\n|---|---|\n" + "\n".join(lines) + "\n" + "".join(kept_below),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
