"""Windows to compare, and calls of the metrics."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.drift import DriftMetricSpec, FeaturesSpec
from modyn_dagster.triggering.drift import measure_drift
from modyn_dagster.triggering.measurement import DriftNeed, Measured

SPEC: Final[TypeAdapter[DriftMetricSpec]] = TypeAdapter(DriftMetricSpec)

#: Every metric of this package, and variants that take other paths through the code.
METRICS: Final[dict[str, dict[str, Any]]] = {
    "mmd": {"metric": "mmd"},
    "mmd_in_blocks": {"metric": "mmd", "block": 7},
    "mmd_by_random_features": {"metric": "mmd", "random_features": 512},
    "energy": {"metric": "energy"},
    "frechet": {"metric": "frechet", "components": 2},
    "lsdd": {"metric": "lsdd", "centers": 20},
    "classifier": {"metric": "classifier"},
    "ks": {"metric": "ks"},
    "largest_ks": {"metric": "ks", "reduce": "max"},
    "cramer_von_mises": {"metric": "cramer_von_mises"},
    "wasserstein": {"metric": "wasserstein"},
    "hellinger": {"metric": "hellinger", "bins": 10},
    "jensen_shannon": {"metric": "jensen_shannon", "bins": 10},
}
#: Metrics whose score is a p-value.
CORRECTED: Final[dict[str, dict[str, Any]]] = {
    "corrected_ks": {"metric": "ks", "reduce": "p_value"},
    "corrected_cramer_von_mises": {"metric": "cramer_von_mises", "reduce": "p_value", "correction": "holm"},
    "corrected_wasserstein": {"metric": "wasserstein", "reduce": "p_value", "correction": "fdr"},
}


def measured(
    spec: dict[str, Any],
    reference: npt.ArrayLike,
    current: npt.ArrayLike,
    *,
    seed: int = 1,
    ordinal: int = 0,
    p_values: bool = False,
    **features: Any,
) -> Measured:
    """Answer of one metric, under the name ``it``."""
    need = DriftNeed(
        ordinal, KeyRange(0, 1), KeyRange(1, 2), {"it": SPEC.validate_python(spec)}, FeaturesSpec(**features), p_values
    )
    return measure_drift(need, reference, current, seed=seed)


def score(spec: dict[str, Any], reference: npt.ArrayLike, current: npt.ArrayLike, **options: Any) -> float:
    """The score, or the p-value where ``p_values`` is asked for."""
    value = measured(spec, reference, current, **options).values["it"]
    assert value is not None
    return value


def statistic(spec: dict[str, Any], reference: npt.ArrayLike, current: npt.ArrayLike, **options: Any) -> dict[str, Any]:
    """Details of the metric."""
    return dict(measured(spec, reference, current, **options).details["statistics"]["it"])


def normal(seed: int, n: int, m: int, d: int, *, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Two windows of normal numbers, the current one shifted."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + shift
