"""The most frequent y, counted by hand."""

from askwell.data.facts import Fact
from askwell.demo.results import answered_by_frequency, ys_by_frequency

TRAIN = [Fact(x, y) for x, y in (("1", "English"), ("2", "English"), ("3", "French"), ("4", "Dutch"), ("5", "Czech"))]


def test_ys_stand_by_frequency_and_then_by_name():
    assert ys_by_frequency([*TRAIN, Fact("6", "French")]) == ("English", "French", "Czech", "Dutch")


def test_other_right_answers_are_passed_over():
    golds = {"6": ("English", "French"), "7": ("Dutch",), "8": ("English", "French")}
    facts = [Fact("6", "English"), Fact("6", "French"), Fact("7", "Dutch"), Fact("8", "French")]
    assert answered_by_frequency(("English", "French", "Dutch"), golds, facts) == {
        Fact("6", "English"): True,
        Fact("6", "French"): True,  # English is right for 6, too, so that French is the first of the others
        Fact("7", "Dutch"): False,
        Fact("8", "French"): True,
    }
    assert answered_by_frequency((), golds, facts[2:3]) == {Fact("7", "Dutch"): False}
