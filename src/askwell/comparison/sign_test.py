"""The sign test: are wins and losses as many as heads and tails would be?"""

from scipy import stats


def sign_test(wins: int, losses: int) -> float:
    """The two-sided binomial p-value of so many wins among wins and losses; ties have no part, and none is 1."""
    if wins + losses == 0:
        return 1.0
    return float(stats.binomtest(wins, wins + losses, 0.5).pvalue)
