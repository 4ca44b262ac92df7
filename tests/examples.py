"""Numbers of examples and runs: a law names its own number, and hypothesis' profile in use scales it."""

from typing import Final

from hypothesis import settings

#: Of hypothesis itself, where no profile says otherwise.
_USUAL: Final = 100
_FEWEST: Final = 5


def examples(n: int) -> int:
    """Number of examples for a law with ``n`` usually: 3/10 of it in `make test`, 1/5 in `make check`, 4 times it in `make soak`.

    For ``@settings(max_examples=examples(40))``, and for the runs of simulations whose bounds follow from their number.
    """
    return max(_FEWEST, n * settings().max_examples // _USUAL)
