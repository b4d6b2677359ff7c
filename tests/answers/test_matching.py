"""What counts as right: loose matching and aliases, with ranks counted by hand from the answers that are given."""

import json
from typing import Any

import pytest
from builders import tiny

from askwell.answers.candidates import Candidates
from askwell.answers.reply import RightAnswers, form_of
from askwell.data.facts import Fact, Relation, facts_jsonl
from askwell.data.readers import parse_facts
from askwell.errors import BadFile
from askwell.evaluation.examine import evaluate_split
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import PromptText, RunSpec

WORDS = ("Paris", "Rome", "Lima", "Oslo", "Reykjavik")


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("The Beatles", "beatles", True),
        ("U.S.", "US", True),
        ("Paris!", "paris", True),
        ("a cat", "the cat", True),
        ("Paris", "Parish", False),
        ("Athens", "Ath ens", False),
        ("The", "a", False),
        ("theatre", "atre", False),
    ],
)
def test_forms(one, other, are_same):
    assert (form_of(one, "loose") == form_of(other, "loose")) is are_same
    assert (other in RightAnswers([one], "loose")) is are_same
    assert other not in RightAnswers([one], "exact")


@pytest.mark.parametrize(
    ("name", "answers", "candidates"),
    [("bert", "one-token", None), ("gpt2", "any-length", None), ("gpt2", "any-length", Candidates("c", WORDS))],
)
def test_ranks_leave_out_what_is_also_right(name, answers, candidates):
    lm = FrozenLM(*tiny.TINY[name]())

    def mixture(match="exact"):
        spec = MixtureSpec(lead_in="none", shots=0, match=match, answers=answers)
        return Mixture(lm, ["the capital of [X] is [Y] ."], spec)

    def outcome(fact, match="exact"):
        relation = Relation.of("r", [Fact("Peru", "Lima")], [], [fact])
        return evaluate_split(mixture(match), relation, candidates=candidates, top=top).outcomes[0]

    # Pieces of words are one token as well, but their text is not that of a word.
    top, known = (200, tiny.BOTH) if answers == "one-token" else (10, None)
    replies = mixture().ask("Italy", top, candidates=candidates)
    said = [reply.y for reply in replies if (reply.y.isalpha() if known is None else reply.y in known)]
    best, y = said[0], said[1]
    plain = outcome(Fact("Italy", y))
    before = plain.answers[: plain.answers.index(y)]
    assert (best in before, plain.rank) == (True, 1 + len(before))
    assert best.swapcase() not in plain.answers

    aliased = outcome(Fact("Italy", y, aliases=(best,)))
    assert (aliased.rank, aliased.raw_rank) == (plain.rank - 1, plain.rank)
    assert aliased.golds == tuple(sorted((y, best)))

    # An alias in another case helps only where matching is loose.
    shouted = Fact("Italy", y, aliases=(f"the {best.swapcase()}!",))
    assert outcome(shouted).rank == plain.rank
    loose = outcome(shouted, "loose")
    alike = [answer for answer in before if answer.lower() in (best.lower(), y.lower())]
    assert loose.rank == plain.rank - len(alike)
    assert {*alike} <= {*loose.golds}


def test_aliases_in_files(tmp_path):
    lines = [{"x": "Peru", "y": ["Lima", "Callao"]}, {"x": "US", "y": "Washington", "aliases": ["DC", "D.C."]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "b.csv").write_text("x,y,aliases\nPeru,Lima,\nPeru,Callao,\nUS,Washington,DC | D.C.\n")
    for path in (tmp_path / "a.jsonl", tmp_path / "b.csv"):
        facts = parse_facts(path)
        assert facts == [Fact("Peru", "Lima"), Fact("Peru", "Callao"), Fact("US", "Washington")]
        assert facts[2].aliases == ("DC", "D.C.")
        relation = Relation.of("r", facts, [], [])
        assert relation.golds == {"Peru": ("Callao", "Lima"), "US": ("D.C.", "DC", "Washington")}
        assert relation.digest != Relation.of("r", [Fact(fact.x, fact.y) for fact in facts], [], []).digest
        (tmp_path / "again.jsonl").write_text(facts_jsonl(facts))
        assert [fact.aliases for fact in parse_facts(tmp_path / "again.jsonl")] == [fact.aliases for fact in facts]
    (tmp_path / "c.jsonl").write_text('{"x": "Peru", "y": "Lima"}\n{"x": "Peru", "y": [""]}\n')
    with pytest.raises(BadFile, match=r"c.jsonl.*2.*'y' is empty"):
        parse_facts(tmp_path / "c.jsonl")


def test_a_run_records_how_it_matches():
    def spec(**choices):
        common: Any = {
            "lm": "l",
            "lm_sha256": "0",
            "relation": "r",
            "facts_sha256": "0",
            "prompts": "p",
            "setting": "s",
        }
        return RunSpec(
            **common, templates=(PromptText(template="[X] [Y]"),), mixture=MixtureSpec(**choices), training=None
        )

    assert spec().id == spec(match="exact").id != spec(match="loose").id
    assert "match" not in spec().model_dump()["mixture"]
    assert spec(match="loose").model_dump()["mixture"]["match"] == "loose"
