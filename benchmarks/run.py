"""Run the benchmarks: python benchmarks/run.py [PART ...] [--quick] [--out FOLDER]."""

import argparse
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def main(arguments: list[str] | None = None) -> None:
    """Measure the named parts, or all of them."""
    from parts import PARTS, Setting

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="one round of little work, to see that everything runs")
    parser.add_argument(
        "--rounds", type=int, default=Setting.rounds, help="rounds, in each of which every contender is timed once"
    )
    parser.add_argument("--lms", nargs="+", default=Setting.lms, help=f"some of {', '.join(Setting.lms)}")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where results are written")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    lms = ("small",) if options.quick else tuple(options.lms)
    setting = Setting(options.out, options.quick, 1 if options.quick else options.rounds, lms)
    for part in options.parts or PARTS:
        started = time.monotonic()
        PARTS[part](setting)
        print(f"{part}: {time.monotonic() - started:.0f} s, see {options.out / part}.json", flush=True)


if __name__ == "__main__":
    main()
