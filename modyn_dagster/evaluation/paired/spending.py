"""Error spending: shares of an error probability for an unlimited number of tests, which add up to no more than the whole.

Two things are counted in this way: the looks of a test that is valid at one look alone, and the candidates that one gate tests
one after the other.
"""

from modyn_dagster.errors import ConfigError


def spent_alpha(alpha: float, k: int) -> float:
    """Share of an error probability for the k-th test: ``alpha / (k (k + 1))``.

    The first gets a half, the second a sixth, the third a twelfth; the first k together ``alpha k / (k + 1)``. So the probability
    that any of them errs is below ``alpha``, whatever they have in common (Bonferroni).

    Args:
        alpha: error probability of all tests together, between 0 and 1.
        k: number of the test, from 1 on.

    Raises:
        ConfigError: a number outside these ranges.

    >>> [round(spent_alpha(0.06, k), 6) for k in (1, 2, 3)]
    [0.03, 0.01, 0.005]
    """
    if not 0 < alpha < 1:
        raise ConfigError("paired test", "alpha", alpha, "must lie between 0 and 1")
    if k < 1:
        raise ConfigError("paired test", "look", k, "looks and candidates are counted from 1 on")
    return alpha / (k * (k + 1))


def alpha_of_candidate(k: int, alpha: float = 0.05) -> float:
    """Error probability of the k-th candidate of a gate, so that a gate ever promotes a model wrongly with at most ``alpha``.

    Every candidate that is tested counts, promoted or not, in the order in which their tests begin; the rule is that of
    ``spent_alpha``.

    >>> round(alpha_of_candidate(1), 6), round(alpha_of_candidate(4), 6)
    (0.025, 0.0025)
    >>> sum(alpha_of_candidate(k) for k in range(1, 10_000)) < 0.05
    True
    """
    return spent_alpha(alpha, k)
