"""The laws of drift metrics of the user's own, over generated windows."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from modyn_dagster.errors import ConfigError, LawBroken
from modyn_dagster.reproducibility.global_randomness import global_states, with_global_seed
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.triggering.drift.custom import DriftDistance, measured
from modyn_dagster.triggering.drift.windows import Features

_AGREE: Final = "equal seeds agree"
_NO_GLOBALS: Final = "no global random state is used"
_UNCHANGED: Final = "the windows are not changed"
_GROWS: Final = "the distance grows with drift"
#: Shift of every feature, in standard deviations, that any metric should see.
_SHIFT: Final = 3.0


def check_metric(
    factory: Callable[..., DriftDistance],
    config: Mapping[str, Any] | None = None,
    *,
    samples: int = 200,
    features: int = 4,
    seed: int = 0,
) -> None:
    """Check that a drift metric obeys the laws of drift metrics.

    1. It returns a number, or None or NaN where a distance is undefined, for windows of any sizes.
    2. Equal seeds agree: called again, and made again, it returns the same.
    3. No global random state is used: neither that of ``random`` and NumPy nor, where it is loaded, that of torch.
    4. The windows are not changed.
    5. The distance grows with drift: shifted by three standard deviations, windows are further apart than without drift.

    Args:
        factory: of the pipeline's block.
        config: its keyword arguments.
        samples: of the larger windows.
        features: number of features.
        seed: another one, other windows.

    Raises:
        LawBroken: names the law and the windows.
        ConfigError: the metric fails, or is undefined for all windows.
    """
    made = [factory(**(config or {})) for _ in range(2)]
    distances = dict[str, float | None]()
    for name, reference, current in _windows(samples, features, seed):
        distances[name] = expected = _watched(made[0], name, reference, current, seed)
        for number, distance in enumerate((made[0], made[1], made[1])):
            found = with_global_seed(number, partial(_distance, distance, name, reference, current, seed))
            if found != expected:
                raise LawBroken(_AGREE, name, None, f"{expected}, then {found}")
    if all(value is None for value in distances.values()):
        raise ConfigError("check_metric", "samples", samples, "the metric is undefined for all windows: take larger ones")
    still, moved = distances["without drift"], distances["with drift"]
    if still is not None and moved is not None and not moved > still:
        raise LawBroken(_GROWS, "with drift", None, f"the distance is {moved}, and without drift {still}")


def _windows(samples: int, features: int, seed: int) -> Iterator[tuple[str, Features, Features]]:
    rng = rng_for(seed, "windows")
    reference = rng.normal(size=(samples, features))
    yield "without drift", reference, rng.normal(size=(samples, features))
    yield "with drift", reference, rng.normal(_SHIFT, size=(samples, features))
    yield "of other sizes", reference, rng.normal(size=(max(2, samples // 3), features))
    yield "of two samples", reference[:2], rng.normal(size=(2, features))
    yield "of equal samples", np.ones((samples, features)), np.ones((samples, features))
    yield "of float32", reference.astype(np.float32), rng.normal(size=(samples, features)).astype(np.float32)


def _watched(distance: DriftDistance, name: str, reference: Features, current: Features, seed: int) -> float | None:
    before = global_states()
    value = _distance(distance, name, reference, current, seed)
    after = global_states()
    for library, state in before.items():
        if after[library] != state:
            raise LawBroken(_NO_GLOBALS, name, None, f"that of {library} was; draw from the generator that is given")
    return value


def _distance(distance: DriftDistance, name: str, reference: Features, current: Features, seed: int) -> float | None:
    copies = reference.copy(), current.copy()
    with np.errstate(all="ignore"):
        try:
            value = measured(distance, *copies, rng_for(seed, name), "the metric")
        except ArithmeticError:
            value = None
        except ConfigError as error:
            if "read-only" in error.rule:
                raise LawBroken(_UNCHANGED, name, None, str(error.__cause__)) from error
            raise
    if not all(map(np.array_equal, copies, (reference, current))):
        raise LawBroken(_UNCHANGED, name, None, "a window has other values after the call")
    return value
