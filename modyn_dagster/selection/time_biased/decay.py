"""A decay rate from what it should do."""

import math


def decay_for(k: float, n: int, q: float) -> float:
    """The decay rate with which at least one of ``n`` items of age ``k`` is still in the sample with probability ``q``.

    It is ``-ln(1 - (1 - q)**(1/n)) / k``, for a sample that accepts all new items (§1 of the paper). With ``n = 1`` it keeps a
    share ``q`` of what is ``k`` old. ``k`` counts in the unit of ``elapsed``.

    Raises:
        ValueError: ``k`` is not positive, ``n`` below 1, or ``q`` not between 0 and 1, both excluded.

    Examples
    --------
    >>> round(decay_for(k=150, n=1000, q=0.01), 3)
    0.077
    >>> round(decay_for(k=40, n=1, q=0.1), 3)
    0.058
    """
    if not (math.isfinite(k) and k > 0):
        raise ValueError(f"k must be finite and positive, not {k!r}")
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n!r}")
    if not 0 < q < 1:
        raise ValueError(f"q must lie between 0 and 1, not {q!r}")
    # 1 - (1 - q)**(1/n) without cancellation where it is tiny.
    return -math.log(-math.expm1(math.log1p(-q) / n)) / k
