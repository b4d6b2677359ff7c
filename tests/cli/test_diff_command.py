"""`askwell diff`: what it writes and shows, its exit codes, and what cannot be compared."""

import json

import pytest
from builders.commands import refused
from builders.worlds import PAIRS, write_relation

from askwell.runs.diff_lms import read_diff

TUNING = ("--pairs", "40", "--threads", "1", "--answers", "one-token")
PROMPT = ("--prompts", "[X] lies in [Y] .")


@pytest.fixture
def diff(askwell, lms, facts, tmp_path):
    """Compares the tiny BERT with another LM about the facts, or about what is named instead."""

    def diff(*more, about=("--facts", facts), prompts=PROMPT):
        done = askwell("diff", lms["bert"], *more, *about, *prompts, "--out", tmp_path / "out", *TUNING)
        assert "Traceback" not in done.err
        return done

    return diff


def test_the_page_is_written_and_shown(diff, tmp_path):
    done = diff("--after-bits", "2")
    assert done.code == 0, done.err
    assert "From bert to bert (2 bits)" in done.out
    assert "found by hand before, only by tuned prompts after" in done.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "diff.html", "diff.md", "diff.json", "figures", "runs", "store.json",
    }  # fmt: skip
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4
    found = read_diff(tmp_path / "out").verdicts
    assert (found.before, found.after, found.facts) == ("bert", "bert (2 bits)", 4)
    page = (tmp_path / "out" / "diff.html").read_text(encoding="utf-8")
    assert "Mary Cassatt" in page or not found.changed
    again = diff("--after-bits", "2", "--json")
    assert again.json == json.loads((tmp_path / "out" / "diff.json").read_text(encoding="utf-8"))


def test_prompts_are_looked_up_in_the_data_folder(diff, lms, tmp_path):
    write_relation(tmp_path / "data" / "facts" / "mine" / "P1", train=PAIRS[:6], dev=PAIRS[6:8], test=PAIRS[6:])
    (tmp_path / "data" / "prompts" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "prompts" / "mine" / "P1.jsonl").write_text('{"template": "[X] lies in [Y] ."}\n')
    about = ("--facts", "mine/P1", "--data", tmp_path / "data")
    done = diff(lms["roberta"], about=about, prompts=("--prompts", "mine"))
    assert done.code == 0, done.err
    assert "From bert to roberta" in done.out


def test_an_audit_asks_about_every_line_of_the_forget_set(diff, facts, tmp_path):
    (tmp_path / "forget.csv").write_text("city,country\nQuito,Peru\nLima,Italy\n")
    about = ("--forget", tmp_path / "forget.csv", "--retain", tmp_path / "retain.csv", "--x", "city", "--y", "country")
    (tmp_path / "retain.csv").write_text("city,country\n" + "".join(f"{x},{y}\n" for x, y in PAIRS))
    done = diff("--after-bits", "2", about=about)
    assert done.code == 0, done.err
    found = read_diff(tmp_path / "out")
    assert found.verdicts.facts == 2
    assert found.retained is not None
    assert "The facts to retain" in done.out


def test_a_condition_that_is_met_is_a_failure(askwell, tmp_path):
    command = ("diff", "testbed:bert", "--after-bits", "2", "--facts", "testbed:capital", "--out", tmp_path / "out")
    command += ("--prompts", "The capital of [X] is [Y] .", *TUNING)
    done = askwell(*command, "--fail-if", "gone > 5%", "--fail-if", "new > 99%")
    found = read_diff(tmp_path / "out").verdicts
    share = found.verdicts["gone"]
    assert share.low > 0.05, share
    assert done.code == 1, done.err
    assert f"{share.count} of {share.of} facts are gone, at least {100 * share.low:.1f} %: more than 5 %" in done.err
    assert "are new" not in done.err
    assert askwell(*command, "--fail-if", f"gone > {100 * share.low + 0.1:.1f}%").code == 0


def test_what_cannot_be_compared_is_said_in_a_sentence(diff, facts, lms, tmp_path):
    refused(diff(), "name a second LM, or say how the first is changed: --after-bits 4 or --after-pruned 0.3")
    refused(diff("--after-bits", "5"), "--after-bits 5: choose 8, 4, 3 or 2")
    refused(diff("--after-pruned", "1.5"), "--after-pruned 1.5: name a fraction between 0 and 1")
    refused(diff("--after-bits", "4", "--fail-if", "lost > 2"), "--fail-if 'lost > 2': write a verdict and a number")
    refused(diff("--after-bits", "4", about=()), "diff needs --facts, or --forget and --retain")
    refused(diff("--after-bits", "4", about=("--forget", facts)), "an audit has --forget and --retain, and no --facts")
    refused(diff("--after-bits", "4", prompts=()), "--prompts: capitals has none of its own; name some")
    refused(diff(tmp_path / "nowhere"), "there is no such folder or file")
    (tmp_path / "forget.csv").write_text("x,y\nParis,France\n")
    about = ("--forget", tmp_path / "forget.csv", "--retain", facts)
    refused(diff("--after-bits", "4", about=about), "--forget and --retain share 1 fact (Paris → France)")
    unasked = diff(lms["llama"], prompts=("--prompts", "[Y] contains [X] ."))
    refused(unasked, "llama cannot be asked about capitals")
    assert not (tmp_path / "out" / "diff.json").exists()
