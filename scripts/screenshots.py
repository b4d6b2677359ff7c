"""Take the documentation's pictures of the page, a report and a knowledge card: docs/how-to/{page,report,card}.png.

    python scripts/screenshots.py RUNS CARD

RUNS is a folder of runs with a report in it (`askwell report RUNS`), CARD one that `askwell probe` wrote. It needs
Chromium.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

import askwell

SHOWN = Path(__file__).parents[1] / "docs" / "how-to"
WIDTH, HEIGHT, COLOURS = 1200, 900, 128
"""Pages have few colours: a palette makes the files a third as large."""
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"),
)


def take(address: str, file: Path) -> None:
    """Write the top of a page as a PNG file."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("Chromium is needed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        profile = f"--user-data-dir={folder}/profile"
        subprocess.run([browser, *CHROMIUM, profile, f"--screenshot={shot}", address], check=True, capture_output=True)
        picture = Image.open(io.BytesIO(shot.read_bytes())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    sys.stdout.write(f"{file}: {file.stat().st_size // 1024} kB\n")


def main() -> None:
    """Serve the runs, ask one of them, and take the three pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("card", type=Path)
    parser.add_argument("--about", default="", help="the run to ask, by its folder's name; the first if not given")
    parser.add_argument("--x", default="Peru", help="what to ask it about")
    chosen = parser.parse_args()
    take((chosen.runs / "report" / "report.html").resolve().as_uri(), SHOWN / "report.png")
    take((chosen.card / "card.html").resolve().as_uri(), SHOWN / "card.png")
    command = [sys.executable, "-m", "askwell", "serve", str(chosen.runs), "--port", "0"]
    # A pipe would be filled in blocks, and the address come too late.
    service = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert service.stdout is not None
        said = (re.search(r"http://[\w.:]+", line) for line in service.stdout)
        address = next(found[0] for found in said if found)
        about = chosen.about or min(run.parent.name for run in chosen.runs.glob("*/run.json"))
        askwell.Client(address).ask(chosen.x, mixture=about)  # the page says "loading" while an LM is loaded
        asked = urlencode({"about": about, "x": chosen.x})
        take(f"{address}/?{asked}", SHOWN / "page.png")
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
