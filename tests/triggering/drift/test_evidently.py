"""evidently as a backend, and as an oracle of the metrics of this package."""

import numpy as np
import pytest
from scipy import stats

from modyn_dagster.errors import ConfigError
from modyn_dagster.triggering.drift.backends.evidently import DISTANCES, EMBEDDINGS, P_VALUES
from tests.triggering.drift.drifting import measured, normal, score
from tests.triggering.measured import fires_on_a_shift

#: Permutes for half a minute.
SLOW = {"TVD"}


def theirs(metric: str, **config) -> dict:
    return {"backend": "evidently", "metric": metric, "config": config}


@pytest.mark.soak("laws-policies")
@pytest.mark.long
def test_mmd_of_the_same_bandwidth_is_theirs():
    x, y = normal(0, 60, 50, 4, shift=0.5)
    expected = score(theirs("mmd"), x, y)
    # Theirs is the median of distances across windows, of these few samples all.
    across = np.median([np.linalg.norm(a - b) for a in x for b in y])
    assert score({"metric": "mmd", "bandwidth": across / np.sqrt(2)}, x, y) == pytest.approx(expected, abs=1e-9)


def test_the_distance_of_means_is_theirs():
    x, y = normal(1, 60, 50, 4, shift=0.5)
    assert score(theirs("distance"), x, y) == pytest.approx(np.linalg.norm(x.mean(0) - y.mean(0)))


def test_p_values_of_kolmogorov_and_smirnov_are_theirs():
    x, y = normal(2, 60, 50, 3, shift=0.2)
    expected = min(1.0, 3 * min(stats.ks_2samp(x[:, c], y[:, c]).pvalue for c in range(3)))
    assert score(theirs("ks"), x, y, p_values=True) == pytest.approx(expected)
    assert score(theirs("ks"), x, y) == pytest.approx(expected)


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_wasserstein_is_theirs_in_deviations_of_the_reference(reduce):
    x, y = normal(3, 60, 50, 3, shift=0.2)
    spread = x.std(axis=0)
    expected = [stats.wasserstein_distance(x[:, c], y[:, c]) / spread[c] for c in range(3)]
    assert score(theirs("wasserstein") | {"reduce": reduce}, x, y) == pytest.approx(getattr(np, reduce)(expected), rel=1e-6)


@pytest.mark.parametrize("metric", sorted({*EMBEDDINGS, *DISTANCES, *P_VALUES} - SLOW))
def test_every_metric_answers_the_same_again(metric):
    # Equal sizes: two of them refuse others.
    x, y = normal(4, 60, 60, 2, shift=1.5)
    if P_VALUES.get(metric) == "cat":
        x, y = (x > 1).astype(np.float64), (y > 1).astype(np.float64)
    first = measured(theirs(metric), x, y)
    assert first.values["it"] is not None
    assert measured(theirs(metric), x, y) == first
    assert (first.values["it"] < 0.05) is (metric in P_VALUES)


@pytest.mark.parametrize("metric", ["mmd", "psi"])
def test_a_metric_without_p_values_says_so(metric):
    found = measured(theirs(metric), *normal(5, 40, 40, 2), p_values=True)
    assert found.values["it"] is None
    assert found.details["statistics"]["it"]["why"] == "this metric has no p-value"


def test_settings_go_to_the_metric_and_unknown_ones_are_refused():
    x, y = normal(6, 60, 50, 4, shift=0.5)
    assert score(theirs("distance", dist="cityblock"), x, y) == pytest.approx(np.abs(x.mean(0) - y.mean(0)).sum())
    with pytest.raises(ConfigError, match=r"metrics\.config: evidently"):
        measured(theirs("ks", sharpness=3), x, y)


def test_a_drift_trigger_fires_by_a_metric_of_the_library():
    assert fires_on_a_shift({"backend": "evidently", "metric": "ks"}) == [True, False, False, True]
