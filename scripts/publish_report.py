"""Put the report of a store into the documentation, with the date of its runs and the commands that make it again.

    python scripts/publish_report.py testbed-runs --name testbed --sweep examples/testbed.toml --title "The grid …"

Only what is read there is taken: the text, and the figures as SVG. Tables as CSV and LaTeX are in the store's report.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from askwell.views.study import make_report

DOCS = Path(__file__).parent.parent / "docs/findings/reports"


def main() -> None:
    """Write the page and its figures; its entry in zensical.toml is made by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--name", required=True, help="of the page in docs/findings/reports")
    parser.add_argument("--sweep", required=True, help="the sweep's file, as readers are told")
    parser.add_argument("--title", required=True)
    chosen = parser.parse_args()
    figures = DOCS / f"figures-{chosen.name}"
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        written = Path(made)
        make_report(chosen.store, written, formats=["markdown"])
        text = (written / "report.md").read_text(encoding="utf-8")
        for name in sorted(set(re.findall(r"\(figures/([^)]+\.svg)\)", text))):
            shutil.copy(written / "figures" / name, figures / name)
    text = text.replace("](figures/", f"](figures-{chosen.name}/")
    text = text.replace("# Report\n", f"# {chosen.title}\n\n{_about(chosen.store, chosen.sweep)}\n", 1)
    (DOCS / f"{chosen.name}.md").write_text(text, encoding="utf-8")


def _about(store: Path, sweep: str) -> str:
    kept = sorted(store.glob("runs/*/environment.json"))
    environments = [json.loads(path.read_text(encoding="utf-8")) for path in kept]
    days = sorted({str(datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date()) for path in kept})
    seconds = sum(of_run["seconds"] for of_run in environments)
    parts = ("askwell", "torch", "transformers")
    (versions, _), *_ = Counter(", ".join(f"{part} {e[part]}" for part in parts) for e in environments).most_common()
    return (
        f"{len(environments)} runs of {' and '.join(days)} ({versions}; {seconds / 60:.0f} minutes of run time, "
        f"controls included), made by\n\n```sh\naskwell sweep {sweep}\naskwell report {store.name}\n```\n"
    )


if __name__ == "__main__":
    main()
