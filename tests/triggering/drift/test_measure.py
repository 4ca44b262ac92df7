"""Answers of a drift measurement: several metrics, samples, components, shapes, devices, missing libraries."""

import json
import sys

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, MissingExtra, WrongShape
from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.drift import FeaturesSpec
from modyn_dagster.triggering.drift import measure_drift
from modyn_dagster.triggering.measurement import DriftNeed
from tests.triggering.drift.drifting import METRICS, SPEC, measured, normal, score

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def need(names: list[str], **options) -> DriftNeed:
    metrics = {name: SPEC.validate_python(METRICS[name]) for name in names}
    return DriftNeed(0, KeyRange(0, 1), KeyRange(1, 2), metrics, FeaturesSpec(), **options)


@pytest.mark.parametrize("p_values", [False, True])
def test_every_metric_is_answered_under_its_name_as_if_it_were_alone(p_values):
    windows = normal(0, 40, 30, 2)
    found = measure_drift(need(["ks", "mmd"], p_values=p_values), *windows, seed=3)
    alone = {name: measure_drift(need([name], p_values=p_values), *windows, seed=3).values[name] for name in ("ks", "mmd")}
    assert dict(found.values) == alone


def test_details_are_json_with_counts_and_statistics():
    details = measure_drift(need(list(METRICS), p_values=True), *normal(1, 40, 30, 2), seed=3).details
    assert json.loads(json.dumps(details)) == details
    assert (details["n_reference"], details["n_current"], details["n_compared"]) == (40, 30, [40, 30])
    assert set(details["statistics"]) == set(METRICS)
    assert all(set(one) >= {"statistic", "p_value"} for one in details["statistics"].values())


def test_a_p_value_comes_with_the_statistic_a_score_would_be():
    windows = normal(2, 40, 30, 3, shift=0.2)
    for name in set(METRICS) - {"frechet"}:
        details = measured(METRICS[name], *windows, p_values=True).details
        assert details["statistics"]["it"]["statistic"] == pytest.approx(score(METRICS[name], *windows), rel=1e-9)


def test_a_sample_is_drawn_anew_at_every_point_and_for_every_seed():
    windows = normal(3, 200, 150, 2)
    spec, size = {"metric": "energy"}, 20
    found = {score(spec, *windows, seed=seed, ordinal=ordinal, sample_size=size) for seed in (1, 2) for ordinal in (0, 1)}
    assert len(found) == 4
    assert measured(spec, *windows, sample_size=size).details["n_compared"] == [20, 20]
    assert score(spec, *windows, sample_size=200) == score(spec, *windows)


def test_a_sample_is_of_the_window_it_stands_for():
    reference, current = np.zeros((50, 1)), np.ones((50, 1))
    assert score({"metric": "wasserstein"}, reference, current, sample_size=7) == 1.0


def test_components_of_the_reference_are_compared():
    reference, current = normal(4, 60, 50, 4)
    reference[:, 0] *= 100
    current[:, 0], current[:, 1] = current[:, 0] * 100, current[:, 1] + 50
    assert measured({"metric": "ks"}, reference, current, pca=1).details["n_features"] == 1
    # The drift is in a column that the reference hardly varies in: its first component does not see it.
    assert (
        score({"metric": "ks"}, reference, current, pca=1)
        < 0.3
        < 0.9
        < score({"metric": "ks", "reduce": "max"}, reference, current)
    )


def test_windows_of_other_widths_are_refused():
    with pytest.raises(WrongShape, match=r"the features of the current window returned shape \(4, 3\), expected \(m, 2\)"):
        measured({"metric": "mmd"}, np.zeros((5, 2)), np.zeros((4, 3)))
    with pytest.raises(WrongShape):
        measured({"metric": "mmd"}, np.zeros((5, 2, 2)), np.zeros((4, 2, 2)))


def test_what_is_not_numeric_is_refused():
    with pytest.raises(TypeError, match="the features of the reference window must be numbers"):
        measured({"metric": "mmd"}, np.array([["a"], ["b"]]), np.zeros((4, 1)))


def test_one_dimension_is_one_feature():
    x, y = normal(5, 30, 20, 1)
    assert score({"metric": "mmd"}, x[:, 0], y[:, 0]) == score({"metric": "mmd"}, x, y)


@pytest.mark.parametrize("device", [*DEVICES, "auto"])
@pytest.mark.parametrize("name", ["mmd", "mmd_in_blocks", "mmd_by_random_features", "energy"])
def test_every_device_gives_the_same_scores(name, device):
    windows = normal(6, 400, 300, 8, shift=0.1)
    spec = METRICS[name] | ({"block": 300} if "block" in METRICS[name] else {})
    for p_values in (False, True):
        expected = score(spec, *windows, p_values=p_values)
        assert score(spec, *windows, p_values=p_values, device=device) == pytest.approx(expected, abs=1e-6)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"features\.device: this machine has no CUDA device"):
        measured({"metric": "mmd"}, *normal(7, 5, 5, 1), device="cuda")


@pytest.mark.parametrize(
    ("backend", "modules", "extra"),
    [
        ("alibi", ["alibi_detect", "alibi_detect.cd"], "drift-alibi"),
        ("evidently", ["evidently", "evidently.legacy", "evidently.legacy.calculations.stattests"], "drift-evidently"),
    ],
)
def test_a_library_that_is_absent_is_named_with_its_extra(backend, modules, extra, monkeypatch):
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'modyn-dagster\[{extra}\]'") as raised:
        measured({"backend": backend, "metric": "ks"}, *normal(8, 5, 5, 1))
    assert raised.value.extra == extra


@pytest.mark.parametrize("backend", ["alibi", "evidently"])
def test_a_metric_that_a_library_does_not_have_is_refused_with_those_it_has(backend):
    with pytest.raises(ConfigError, match=r"metrics\.metric: backend .* has .*ks"):
        measured({"backend": backend, "metric": "psychic"}, *normal(9, 5, 5, 1))


@pytest.mark.parametrize("spec", [{"metric": "mmd", "bins": 3}, {"metric": "guess"}, {"metric": "classifier", "folds": 1}])
def test_impossible_metrics_are_refused(spec):
    with pytest.raises(ValidationError):
        SPEC.validate_python(spec)
