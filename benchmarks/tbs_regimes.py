"""Figure 1 of the paper: sizes of T-TBS and R-TBS samples in four regimes of batch sizes."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.time_biased import RTBS, TTBS

Sizes = npt.NDArray[np.int64]
_N: Final = 1_000
_STEPS: Final = np.arange(1_000)
_CHANGE: Final = 200


def regimes() -> Mapping[str, tuple[float, Sizes]]:
    """Decay rate and batch sizes of the four panels."""
    later = np.maximum(0, _STEPS - _CHANGE)
    return {
        "(a) growing from t = 200, decay 0.05": (0.05, np.rint(100 * 1.002**later).astype(np.int64)),
        "(b) constant, decay 0.1": (0.1, np.full(len(_STEPS), 100)),
        "(c) uniform on 0 to 200, decay 0.1": (0.1, rng_for(0, "sizes").integers(0, 201, len(_STEPS))),
        "(d) shrinking from t = 200, decay 0.01": (0.01, np.rint(100 * 0.8**later).astype(np.int64)),
    }


def sizes_over_time(decay: float, batches: Sizes) -> dict[str, Sizes]:
    """Sample sizes of both after every batch, both tuned to 1,000 items and batches of 100."""
    samplers = {"T-TBS": TTBS(_N, decay, 100, seed=0), "R-TBS": RTBS(_N, decay, seed=0)}
    found: dict[str, list[int]] = {name: [] for name in samplers}
    ends = np.cumsum(batches)
    for start, end in zip(ends - batches, ends, strict=True):
        for name, sampler in samplers.items():
            sampler.update(np.arange(start, end, dtype=np.uint64))
            found[name].append(len(sampler.sample()))
    return {name: np.array(values) for name, values in found.items()}
