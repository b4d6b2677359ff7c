"""The leak rule finds what it should, and nothing else."""

from text import Withheld, entailed

from askwell.data.facts import Fact


def test_a_sentence_with_both_names_as_whole_words_is_a_leak():
    withheld = Withheld([Fact("Guinea", "Franc"), Fact("Mexico", "Mexico City"), Fact("Oman", "Asia")])
    assert withheld.leaks_of("the Franc is used in Guinea .") == [Fact("Guinea", "Franc")]
    assert withheld.leaks_of("the Franc is used in Equatorial Guinea .") == [Fact("Guinea", "Franc")]
    assert withheld.leaks_of("we visited Mexico City last year .") == [Fact("Mexico", "Mexico City")]
    assert withheld.leaks_of("we visited Mexico last year .") == []
    assert withheld.leaks_of("a Franc from Guineas .") == []
    assert withheld.leaks_of("Romania is far from Asia .") == []
    assert withheld.leaks_of("Oman , Asia , Franc , Guinea") == [Fact("Guinea", "Franc"), Fact("Oman", "Asia")]


def test_nothing_withheld_leaks_nothing():
    assert Withheld([]).leaks_of("Oman is in Asia .") == []


def test_a_border_has_two_sides():
    assert entailed({"neighbour": [Fact("Chad", "Niger")]})["neighbour"] == {
        Fact("Chad", "Niger"),
        Fact("Niger", "Chad"),
    }


def test_what_is_in_a_part_is_in_the_whole():
    follows = entailed(
        {
            "state_of_county": [Fact("Lane", "Oregon")],
            "country_of_region": [Fact("Oregon", "United States")],
            "continent": [Fact("United States", "North America")],
        }
    )
    assert Fact("Lane", "United States") in follows["country_of_city"]
    assert Fact("Oregon", "North America") in follows["continent"]
    assert Fact("Oregon", "Lane") not in follows["country_of_region"]


def test_a_capital_is_in_its_country_and_a_circle_ends():
    follows = entailed({"capital": [Fact("Peru", "Lima")], "country_of_city": [Fact("Peru", "Lima")]})
    assert Fact("Lima", "Peru") in follows["country_of_city"]
    assert Fact("Peru", "Lima") in follows["capital"]
