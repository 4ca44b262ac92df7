"""alibi-detect as a backend, and as an oracle of the metrics of this package."""

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.spec.triggers.drift import BackendMetric
from modyn_dagster.triggering.drift.backends.alibi import DETECTORS
from modyn_dagster.triggering.drift.backends.third_party import load
from modyn_dagster.triggering.drift.multivariate.lsdd import density_differences
from modyn_dagster.triggering.drift.score import split_indicators
from tests.triggering.drift.drifting import measured, normal, score
from tests.triggering.measured import fires_on_a_shift


def theirs(metric: str, **config) -> dict:
    return {"backend": "alibi", "metric": metric, "config": config}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize(("n", "m", "d"), [(40, 30, 3), (600, 500, 32)])
def test_mmd_with_one_bandwidth_is_theirs(n, m, d, shift, dtype):
    x, y = (window.astype(dtype) for window in normal(0, n, m, d, shift=shift))
    sigma = float(np.sqrt(d))
    expected = score(theirs("mmd", sigma=sigma, n_permutations=1), x, y)
    assert score({"metric": "mmd", "bandwidth": sigma}, x, y) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("ours", "name"), [("ks", "ks"), ("cramer_von_mises", "cvm")])
@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_statistics_of_columns_are_theirs(ours, name, reduce):
    x, y = normal(1, 120, 90, 5, shift=0.1)
    expected = score(theirs(name) | {"reduce": reduce}, x, y)
    assert score({"metric": ours, "reduce": reduce}, x, y) == pytest.approx(expected, abs=1e-6)


def test_lsdd_of_the_same_kernel_is_theirs():
    module = load("alibi_detect.utils.pytorch.distance", BackendMetric(backend="alibi", metric="lsdd"), package="", extra="")
    rng = np.random.default_rng(2)
    kernel, members = rng.uniform(size=(50, 8)), split_indicators(30, 20, 60, rng)
    root = rng.uniform(size=(8, 12))
    overlaps = root @ root.T
    splits = [(np.flatnonzero(split), np.flatnonzero(split == 0)) for split in members.T]
    differences = np.array([kernel[x].mean(0) - kernel[y].mean(0) for x, y in splits])
    expected, _ = module.permed_lsdds(
        torch.from_numpy(kernel),
        [torch.from_numpy(x) for x, _ in splits],
        [torch.from_numpy(y) for _, y in splits],
        torch.from_numpy(overlaps),
    )
    found, _ = density_differences(differences, overlaps)
    assert found == pytest.approx(expected.numpy(), rel=1e-5)


DATA = {
    "fet": lambda window: (window > 0).astype(np.float64),
    "chi_square": lambda window: np.clip(window.round(), -1, 1) + 1,
}


@pytest.mark.parametrize("metric", DETECTORS)
def test_every_detector_answers_the_same_again_and_leaves_generators_alone(metric):
    x, y = (DATA.get(metric, np.asarray)(window) for window in normal(3, 80, 60, 2, shift=0.8))
    torch.manual_seed(4)
    np.random.seed(4)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(4)
    np.random.seed(4)
    for p_values in (False, True):
        first = measured(theirs(metric), x, y, p_values=p_values)
        assert first.values["it"] is not None
        assert measured(theirs(metric), x, y, p_values=p_values) == first
    assert (torch.rand(1), np.random.rand()) == expected
    assert score(theirs(metric), x, y, p_values=True) < 0.05


def test_columns_are_corrected_by_us():
    x, y = normal(5, 60, 60, 4)
    each = [score(theirs("ks"), x[:, [c]], y[:, [c]], p_values=True) for c in range(4)]
    assert score(theirs("ks"), x, y, p_values=True) == pytest.approx(min(1.0, 4 * min(each)), rel=1e-5)


def test_data_that_a_detector_refuses_have_no_score_and_its_reason():
    found = measured(theirs("fet"), *normal(6, 20, 20, 1))
    assert found.values["it"] is None
    assert "must consist of only (0,1)" in found.details["statistics"]["it"]["why"]


def test_settings_that_a_detector_does_not_take_are_refused():
    with pytest.raises(ConfigError, match=r"metrics\.config: alibi mmd refuses it: .*'sigmoid'"):
        measured(theirs("mmd", sigmoid=1), *normal(7, 20, 20, 1))


def test_models_are_given_by_import_path():
    x, y = normal(8, 60, 60, 1, shift=1.0)
    config = {"model": "sklearn.tree:DecisionTreeClassifier"}
    assert score(theirs("classifier", **config), x, y) != score(theirs("classifier"), x, y)
    with pytest.raises(ImportPathError, match="cannot be imported"):
        measured(theirs("classifier", model="sklearn.tree:Sapling"), x, y)


def test_a_drift_trigger_fires_by_a_metric_of_the_library():
    assert fires_on_a_shift({"backend": "alibi", "metric": "ks"}) == [True, False, False, True]
