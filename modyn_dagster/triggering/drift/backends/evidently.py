"""Drift metrics of evidently, an optional library (Apache-2.0)."""

from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.spec.triggers.drift import BackendMetric
from modyn_dagster.triggering.drift.backends.third_party import (
    isolated_randomness,
    load,
    reduced_score,
    refused_config,
    unknown_metric,
)
from modyn_dagster.triggering.drift.score import Score
from modyn_dagster.triggering.drift.windows import Windows

#: Metrics of whole embeddings; each gives one distance, and no p-value.
EMBEDDINGS: Final = {"mmd", "model", "ratio", "distance"}
#: Tests of single columns, with their kind of column; their score is a p-value.
P_VALUES: Final[Mapping[str, str]] = {
    **dict.fromkeys(["anderson", "cramer_von_mises", "empirical_mmd", "es", "ks", "mannw", "t_test"], "num"),
    **dict.fromkeys(["chisquare", "fisher_exact", "g_test", "TVD", "z"], "cat"),
}
#: Distances of single columns, with their kind of column.
DISTANCES: Final[Mapping[str, str]] = dict.fromkeys(["ed", "hellinger", "jensenshannon", "kl_div", "psi", "wasserstein"], "num")
_LEGACY: Final = "evidently.legacy"


def evidently(spec: BackendMetric, windows: Windows) -> Score:
    """Score of evidently (github.com/evidentlyai/evidently): a metric of whole embeddings, or a reduced metric of columns.

    The score of a test is its smallest p-value after correction: the lower, the more drift.

    Args:
        spec: metric, reduction, and ``config`` for the metric (``pca_components``, ``dist``, ...).
        windows: reference and current window.

    Raises:
        MissingExtra: evidently is not installed.
        ConfigError: evidently does not know the metric or a setting.

    >>> import numpy as np
    >>> windows = Windows(np.arange(40.0)[:, None], np.arange(20.0, 60.0)[:, None])
    >>> round(evidently(BackendMetric(backend="evidently", metric="wasserstein"), windows).value, 3)
    1.733
    """
    kinds = {**DISTANCES, **P_VALUES}
    if spec.metric not in EMBEDDINGS | set(kinds):
        raise unknown_metric(spec, [*EMBEDDINGS, *kinds])
    name = "metrics.data_drift.embedding_drift_methods" if spec.metric in EMBEDDINGS else "calculations.stattests"
    library = load(f"{_LEGACY}.{name}", spec, package="evidently", extra="drift-evidently")
    with isolated_randomness(windows):
        try:
            if spec.metric in EMBEDDINGS:
                return _embedding_score(library, spec, windows)
            types = load(f"{_LEGACY}.core", spec, package="evidently", extra="drift-evidently")
            values = _column_scores(library, spec, windows, types.ColumnType(kinds[spec.metric]))
        except (ValueError, ArithmeticError) as error:
            return Score.undefined(f"evidently: {error}")
    if spec.metric in P_VALUES:
        return reduced_score(spec, distances=None, p_values=values, windows=windows)
    return reduced_score(spec, distances=values, p_values=None, windows=windows)


def _embedding_score(library: Any, spec: BackendMetric, windows: Windows) -> Score:
    import pandas as pd

    try:
        method = getattr(library, spec.metric)(**spec.config)
    except TypeError as error:
        raise refused_config(spec, error) from error
    distance, _, _ = method(pd.DataFrame(windows.current), pd.DataFrame(windows.reference))
    return reduced_score(spec, distances=float(distance), p_values=None, windows=windows)


def _column_scores(library: Any, spec: BackendMetric, windows: Windows, kind: Any) -> list[float]:
    import pandas as pd

    values = []
    for column in range(windows.width):
        reference, current = pd.Series(windows.reference[:, column]), pd.Series(windows.current[:, column])
        test = library.get_stattest(reference, current, kind, spec.metric)
        try:
            answer = test(reference, current, kind, **{"threshold": None, **spec.config})
        except TypeError as error:
            raise refused_config(spec, error) from error
        values.append(float(answer.drift_score))
    return values
