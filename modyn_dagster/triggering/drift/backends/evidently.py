"""Drift metrics of evidently, an optional library (Apache-2.0)."""

from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.spec.triggers.drift import BackendMetric
from modyn_dagster.triggering.drift.backends.third_party import isolated_randomness, load, reduced, refused_config, unknown_metric
from modyn_dagster.triggering.drift.score import Score
from modyn_dagster.triggering.drift.windows import Windows

#: Metrics of whole embeddings; each answers one distance, and no p-value.
EMBEDDINGS: Final = {"mmd", "model", "ratio", "distance"}
#: Tests of single columns by the kind of column they are for; of these the score is a p-value.
P_VALUES: Final[Mapping[str, str]] = {
    **dict.fromkeys(["anderson", "cramer_von_mises", "empirical_mmd", "es", "ks", "mannw", "t_test"], "num"),
    **dict.fromkeys(["chisquare", "fisher_exact", "g_test", "TVD", "z"], "cat"),
}
#: Distances of single columns.
DISTANCES: Final[Mapping[str, str]] = dict.fromkeys(["ed", "hellinger", "jensenshannon", "kl_div", "psi", "wasserstein"], "num")
_LEGACY: Final = "evidently.legacy"


def evidently(spec: BackendMetric, windows: Windows) -> Score:
    """A metric of whole embeddings, or a test of every column reduced as the spec says.

    ``config`` goes to the embedding metric (``pca_components``, ``dist``, ...). Tests that answer p-values have the smallest one
    after correction as their score: the lower, the more drift.

    Raises ``MissingExtra``, and ``ConfigError`` for a metric or a setting that evidently does not know.
    """
    known = {**DISTANCES, **P_VALUES}
    if spec.metric not in EMBEDDINGS | set(known):
        raise unknown_metric(spec, [*EMBEDDINGS, *known])
    name = "metrics.data_drift.embedding_drift_methods" if spec.metric in EMBEDDINGS else "calculations.stattests"
    library = load(f"{_LEGACY}.{name}", spec, package="evidently", extra="drift-evidently")
    with isolated_randomness(windows):
        try:
            if spec.metric in EMBEDDINGS:
                return _of_embeddings(library, spec, windows)
            types = load(f"{_LEGACY}.core", spec, package="evidently", extra="drift-evidently")
            values = _of_columns(library, spec, windows, types.ColumnType(known[spec.metric]))
        except (ValueError, ArithmeticError) as error:
            return Score.undefined(f"evidently: {error}")
    if spec.metric in P_VALUES:
        return reduced(spec, distances=None, p_values=values, windows=windows)
    return reduced(spec, distances=values, p_values=None, windows=windows)


def _of_embeddings(library: Any, spec: BackendMetric, windows: Windows) -> Score:
    import pandas as pd

    try:
        method = getattr(library, spec.metric)(**spec.config)
    except TypeError as error:
        raise refused_config(spec, error) from error
    distance, _, _ = method(pd.DataFrame(windows.current), pd.DataFrame(windows.reference))
    return reduced(spec, distances=float(distance), p_values=None, windows=windows)


def _of_columns(library: Any, spec: BackendMetric, windows: Windows, kind: Any) -> list[float]:
    import pandas as pd

    values = []
    for column in range(windows.width):
        reference, current = pd.Series(windows.reference[:, column]), pd.Series(windows.current[:, column])
        test = library.get_stattest(reference, current, kind, spec.metric)
        try:
            found = test(reference, current, kind, **{"threshold": None, **spec.config})
        except TypeError as error:
            raise refused_config(spec, error) from error
        values.append(float(found.drift_score))
    return values
