"""The laws of composite models of the user's own, over generated trainings and anchors."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import LawBroken
from modyn_dagster.evaluation.composite.custom import CompositeChoice, called
from modyn_dagster.evaluation.composite.scores import Choice
from modyn_dagster.reproducibility.global_randomness import with_global_seed
from modyn_dagster.reproducibility.randomness import rng_for

_AGREE: Final = "equal calls agree"
_ALONE: Final = "the choice of an interval depends on its own anchor alone"
#: Numbers of models and of intervals.
_SIZES: Final = ((0, 5), (1, 5), (2, 0), (7, 40), (100, 3))
_SECONDS: Final = 10_000_000

Times = npt.NDArray[np.datetime64]


def check_composite(factory: Callable[..., CompositeChoice], config: Mapping[str, Any] | None = None, *, seed: int = 0) -> None:
    """Check that a composite model obeys the laws of composite models.

    1. It returns for every interval the index of a model, or -1 for none, for any number of models and intervals.
    2. Equal calls agree: called again, and made again, whatever the global random states, it returns the same.
    3. The choice of an interval depends on its own anchor alone: in another order, or without the others, it is the same.

    Args:
        factory: of the pipeline's block.
        config: its keyword arguments.
        seed: another one, other trainings and anchors.

    Raises:
        LawBroken: names the law and the run.
        ConfigError: the function fails, or returns anything else.
    """
    made = [factory(**(config or {})) for _ in range(2)]
    for n_models, n_intervals in _SIZES:
        name = f"of {n_models} models and {n_intervals} intervals"
        rng = rng_for(seed, name)
        ends, anchors = (_times(rng, n) for n in (n_models, n_intervals))
        found = called(made[0], "the function", ends, anchors)
        for number, choice in enumerate((made[0], made[1])):
            again: Choice = with_global_seed(number, partial(called, choice, "the function", ends, anchors))
            if not np.array_equal(found, again):
                raise LawBroken(_AGREE, name, None, f"the models are {found.tolist()}, then {again.tolist()}")
        order = rng.permutation(n_intervals)
        shuffled = called(made[0], "the function", ends, anchors[order])
        if not np.array_equal(shuffled, found[order]):
            raise LawBroken(
                _ALONE, name, None, f"in another order the models are {shuffled.tolist()}, not {found[order].tolist()}"
            )
        for place in range(min(n_intervals, 5)):
            [alone] = called(made[0], "the function", ends, anchors[place : place + 1]).tolist()
            if alone != found[place]:
                raise LawBroken(_ALONE, name, None, f"alone, interval {place} has model {alone}, not {found[place]}")


def _times(rng: np.random.Generator, n: int) -> Times:
    """Ascending moments; some are equal."""
    return np.sort(rng.integers(0, max(1, n), size=n) * _SECONDS).astype("datetime64[us]")
