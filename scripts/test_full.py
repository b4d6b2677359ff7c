"""Run all tests with their long checks, and a soak of an hour next to them, and record the result.

    python scripts/test_full.py

The record is scripts/test_full.md, which each run replaces. The exit code is 1 if anything failed.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "scripts" / "test_full.md"
LONG = 20
"""How many files of tests are listed, the longest ones."""


def main() -> None:
    """Run everything, print the result and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soak", type=float, default=60, metavar="MINUTES", help="length of the soak; 0: none")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests side by side")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("tests", nargs="*", help="some tests rather than all")
    options = parser.parse_args()
    folder = ROOT / "build" / "test-full"
    folder.mkdir(parents=True, exist_ok=True)
    began, commit = datetime.now(UTC), commit_of(ROOT)
    clock = time.monotonic()
    soak = start_soak(options.soak, folder) if options.soak else None
    try:
        tests = run_tests(options.tests, options.workers, folder / "tests.xml")
        tests_minutes = (time.monotonic() - clock) / 60
        soaked = None if soak is None else soak.wait()
    finally:
        if soak is not None and soak.poll() is None:
            soak.terminate()
    minutes = (time.monotonic() - clock) / 60
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    heading = [
        "# The last run of `make test-full`",
        "",
        f"Written by `scripts/test_full.py`. Begun {began:%Y-%m-%d %H:%M} UTC at commit {commit}, on "
        f"{os.cpu_count()} cores ({platform.machine()}, Python {platform.python_version()}), load "
        f"{os.getloadavg()[2]:.1f} at its end. {minutes:.0f} minutes, of which the tests took {tests_minutes:.0f}; "
        f"{(used.ru_utime + used.ru_stime) / 60:.0f} CPU minutes in all.",
        "",
    ]
    lines = heading + describe_tests(folder / "tests.xml", tests) + describe_soak(soaked, options.soak, folder)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    sys.exit(1 if tests or soaked else 0)


def commit_of(folder: Path) -> str:
    """Return the short hash of what is tested, and whether anything has been changed since."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude", "*"],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def start_soak(minutes: float, folder: Path) -> subprocess.Popen[bytes]:
    """Start the soak in a process of its own, which writes to soak.log."""
    command = [sys.executable, ROOT / "scripts" / "soak.py", "--minutes", str(minutes)]
    with (folder / "soak.log").open("wb") as log:
        return subprocess.Popen([*command, "--out", folder / "soak.jsonl"], stdout=log, stderr=subprocess.STDOUT)


def run_tests(tests: list[str], workers: int, xml: Path) -> int:
    """Run the tests with their long checks, and return pytest's exit code."""
    xml.unlink(missing_ok=True)
    log = xml.with_suffix(".log")
    print(f"Each test's result, as it comes: {log}", flush=True)
    command = [sys.executable, "-m", "pytest", "-vv", "-n", str(workers), "--dist", "worksteal", f"--junitxml={xml}"]
    with log.open("wb") as file:
        return subprocess.run(
            [*command, *tests],
            cwd=ROOT, env=os.environ | {"ASKWELL_TEST_FULL": "1"}, check=False, stdout=file, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip


def describe_tests(xml: Path, code: int) -> list[str]:
    """Describe counts, failures, what tests have found, and which files took longest."""
    if not xml.is_file():
        return [f"The tests did not finish (pytest's exit code: {code}).", ""]
    counts: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    numbers: Counter[str] = Counter()
    failed, found, hostile = [], [], 0
    for case in ElementTree.parse(xml).iter("testcase"):
        file, name = name_of(case)
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        how = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        counts[how] += 1
        if how == "failed":
            failed.append(f"`{name}`: {reason_of(case)}")
        seconds[file] += float(case.get("time") or 0)
        numbers[file] += 1
        for note in case.iter("property"):
            if note.get("name") == "found":
                found.append(str(note.get("value")))
            elif note.get("name") == "cases":
                hostile += int(note.get("value") or 0)
    lines = [f"Tests: {', '.join(f'{count} {how}' for how, count in sorted(counts.items()))}.", ""]
    if failed:
        lines += ["Failed:", "", *(f"- {line}" for line in failed), ""]
    if hostile:
        lines += [f"Hostile files, names and options that were handled without a traceback or a hang: {hostile:,}.", ""]
    lines += [*(f"- {note}" for note in found), ""] if found else []
    lines += ["| tests | number | seconds in all |", "|---|---|---|"]
    longest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:LONG]
    return [*lines, *(f"| {file} | {numbers[file]} | {seconds[file]:.0f} |" for file in longest), ""]


def name_of(case: ElementTree.Element) -> tuple[str, str]:
    """Return the file of a test, and its name as pytest takes it; a file that cannot be collected has its own name."""
    dotted = [part for part in (case.get("classname"), case.get("name")) if part]
    parts = dotted[0].split(".")
    for end in range(len(parts), 0, -1):
        file = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / file).is_file():
            return str(file), "::".join([str(file), *parts[end:], *dotted[1:]])
    return dotted[0], "::".join(dotted)


def reason_of(case: ElementTree.Element) -> str:
    """Return why a test failed, in one line."""
    found = next(child for child in case if child.tag in ("failure", "error"))
    message, text = (found.get("message") or "").strip(), (found.text or "").strip()
    if text and message in ("", "collection failure"):
        return text.splitlines()[-1][:200]
    return message.splitlines()[0][:200] if message else "no message"


def describe_soak(code: int | None, minutes: float, folder: Path) -> list[str]:
    """Describe how the soak ended, with its table."""
    if code is None:
        return ["Without a soak."]
    table = folder / "soak.md"
    shown = table.read_text(encoding="utf-8").replace("# ", "## ", 1) if table.is_file() else ""
    if code:
        last = (folder / "soak.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return [f"The soak of {minutes:g} minutes failed: {' '.join(last)}", "", shown]
    return [shown]


if __name__ == "__main__":
    main()
