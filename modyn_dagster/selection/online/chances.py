"""With which chance each sample of a time-biased sampler got into it."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.selection.time_biased import BTBS, RTBS, TTBS, Sampler, UniformReservoir

Float64Array = npt.NDArray[np.float64]


def inclusion_chances(sampler: Sampler, ages: Float64Array) -> Float64Array:
    """Pr[item is in the sample] for items of these ``ages float64[m]``, in the unit of the sampler's ``elapsed``.

    R-TBS: ``(C / W) exp(-decay a)``; T-TBS: ``q exp(-decay a)``; B-TBS: ``exp(-decay a)``; uniform reservoir: ``min(1, n / N)``;
    windows: 1.
    """
    if isinstance(sampler, UniformReservoir):
        return np.full(len(ages), min(1.0, sampler.n / max(1, sampler.n_seen)))
    if not isinstance(sampler, RTBS | TTBS | BTBS):
        return np.ones(len(ages))
    chances: Float64Array = _of_the_newest(sampler) * np.exp(-sampler.decay * ages)
    return chances


def _of_the_newest(sampler: RTBS | TTBS | BTBS) -> float:
    match sampler:
        case RTBS():
            return sampler.fill * sampler.n / sampler.weight if sampler.weight else 1.0
        case TTBS():
            return sampler.q
        case BTBS():
            return 1.0
